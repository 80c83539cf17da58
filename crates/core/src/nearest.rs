//! What somebody may have meant.

/// The three names that take the fewest changes to be the one that was given, the nearest first. A name that has it as a part is nearer
/// than one that is spelt differently.
pub fn nearest<'n>(given: &str, names: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    let mut ranked: Vec<(bool, usize, &str)> =
        names.map(|name| (!name.contains(given), changes(given, name), name)).collect();
    ranked.sort();
    ranked.into_iter().take(3).map(|(.., name)| name).collect()
}

/// What to say to somebody who gave a name that is none of these: the nearest ones, or all where none is near.
pub fn suggestion<'n>(given: &str, names: impl Iterator<Item = &'n str> + Clone) -> String {
    let most = (given.chars().count() / 2).max(1);
    let near = |name: &&str| name.contains(given) || changes(given, name) <= most;
    let found: Vec<&str> = nearest(given, names.clone()).into_iter().filter(near).collect();
    match found.as_slice() {
        [] => format!("there are {}", names.collect::<Vec<_>>().join(", ")),
        [only] => format!("the nearest is {only}"),
        several => format!("the nearest are {}", several.join(", ")),
    }
}

/// How many letters must be changed, put in or left out.
fn changes(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.iter().enumerate() {
            let other = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = other.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_come_first() {
        assert_eq!(changes("kitten", "sitting"), 3);
        assert_eq!((changes("", "abc"), changes("abc", ""), changes("abc", "abc")), (3, 3, 0));
        let names = ["softmax", "silu", "masked_softmax", "layernorm", "add_layernorm"];
        assert_eq!(nearest("softmx", names.into_iter())[0], "softmax");
        assert_eq!(nearest("norm", names.into_iter())[..2], ["layernorm", "add_layernorm"]);
        let said = |given: &str| suggestion(given, ["exp", "exp2", "erf", "max"].into_iter());
        assert_eq!(said("expp"), "the nearest are exp, exp2");
        assert_eq!(said("maxi"), "the nearest is max");
        assert_eq!(said("gelu"), "there are exp, exp2, erf, max");
    }
}
