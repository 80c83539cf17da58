use std::collections::BTreeMap;

use crate::call::{at, coordinates, noise, op};

/// Sums by brute force over all letters; an ellipsis is written out by the caller.
fn check(equation: &str, spelled_out: &str, sizes: &[&[usize]]) {
    let operands: Vec<_> = sizes.iter().enumerate().map(|(k, s)| noise(s, k as u64 + 7)).collect();
    let y = operands.iter().fold(op("Einsum").str("equation", equation), |op, x| op.arg(x.clone())).run().remove(0);
    let (left, right) = spelled_out.split_once("->").unwrap();
    let subscripts: Vec<Vec<char>> = left.split(',').map(|s| s.chars().collect()).collect();
    let mut extents: BTreeMap<char, usize> = BTreeMap::new();
    for (subscript, sizes) in subscripts.iter().zip(sizes) {
        for (letter, n) in subscript.iter().zip(*sizes) {
            let extent = extents.entry(*letter).or_insert(*n);
            *extent = (*extent).max(*n);
        }
    }
    let letters: Vec<char> = extents.keys().copied().collect();
    let result: Vec<char> = right.chars().collect();
    let wanted_sizes: Vec<usize> = result.iter().map(|l| extents[l]).collect();
    assert_eq!(y.sizes(), wanted_sizes, "{equation}");
    let mut wanted = vec![0.0; wanted_sizes.iter().product()];
    for i in coordinates(&extents.values().copied().collect::<Vec<_>>()) {
        let value = |l: &char| i[letters.iter().position(|x| x == l).unwrap()];
        let mut product = 1.0;
        for ((subscript, x), sizes) in subscripts.iter().zip(&operands).zip(sizes) {
            let place = subscript.iter().zip(*sizes).map(|(l, n)| if *n == 1 { 0 } else { value(l) as i64 });
            product *= at(x, &place.collect::<Vec<_>>()).unwrap();
        }
        wanted[result.iter().fold(0, |flat, l| flat * extents[l] + value(l))] += product;
    }
    assert_eq!(y.to_f64s(), wanted, "{equation}");
}

#[test]
fn sums_of_products_of_any_number_of_tensors() {
    check("ij,jk->ik", "ij,jk->ik", &[&[2, 3], &[3, 4]]);
    check("ij, jk", "ij,jk->ik", &[&[2, 3], &[3, 4]]);
    check("bij,bjk,bkl->bil", "bij,bjk,bkl->bil", &[&[2, 2, 3], &[2, 3, 4], &[2, 4, 2]]);
    check("ij,kl,jk->il", "ij,kl,jk->il", &[&[2, 3], &[4, 2], &[3, 4]]);
    check("a,b,c->cab", "a,b,c->cab", &[&[2], &[3], &[4]]);
    check("ij,ij->", "ij,ij->", &[&[2, 3], &[2, 3]]);
    check("ijk,j->i", "ijk,j->i", &[&[2, 3, 4], &[3]]);
}

#[test]
fn diagonals_ellipses_and_implied_results() {
    check("ii->i", "ii->i", &[&[3, 3]]);
    check("ii", "ii->", &[&[3, 3]]);
    check("...ii->...i", "aii->ai", &[&[2, 3, 3]]);
    check("ba", "ba->ab", &[&[2, 3]]);
    check("bij,jbj->bi", "bij,jbj->bi", &[&[2, 3, 4], &[4, 2, 4]]);
    check("...ij,...jk->...ik", "abij,bjk->abik", &[&[2, 3, 2, 4], &[3, 4, 2]]);
    check("...ij,...jk", "abij,abjk->abik", &[&[2, 1, 2, 4], &[1, 3, 4, 2]]);
    check("i...->...", "iab->ab", &[&[2, 3, 2]]);
    check("...->", "ab->", &[&[2, 3]]);
}
