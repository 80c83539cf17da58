//! Rooflines on a terminal: letters for kernels, lines for limits.

use std::fmt::Write as _;

use fuseline_session::plan::name::cut_front;

use super::plot::{self, ranges};
use super::{Roofline, Series};
use crate::quantity::count;

/// A character for every point of the plot.
struct Raster {
    cells: Vec<Vec<char>>,
    x: (f64, f64),
    y: (f64, f64),
}

impl Raster {
    fn width(&self) -> usize {
        self.cells[0].len()
    }

    fn column(&self, intensity: f64) -> usize {
        let part = ((intensity.log10() - self.x.0) / (self.x.1 - self.x.0)).clamp(0.0, 1.0);
        (part * (self.width() - 1) as f64).round() as usize
    }

    fn row(&self, gflops: f64) -> Option<usize> {
        let part = (gflops.log10() - self.y.0) / (self.y.1 - self.y.0);
        let last = (self.cells.len() - 1) as f64;
        (0.0..=1.0).contains(&part).then(|| ((1.0 - part) * last).round() as usize)
    }

    fn intensity(&self, column: usize) -> f64 {
        10f64.powf(self.x.0 + (self.x.1 - self.x.0) * column as f64 / (self.width() - 1) as f64)
    }
}

/// The signs of kernels, in their order.
const SIGNS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The sign of the `k`th kernel of a list.
pub fn sign(k: usize) -> char {
    SIGNS.chars().nth(k).unwrap_or('*')
}

/// Draws a roofline into so many columns and rows. Fused kernels are letters, in the order of the points; unfused ones are small dots.
pub fn draw(roofline: &Roofline, columns: usize, rows: usize) -> String {
    let (x, y) = ranges(roofline);
    let margin = 9;
    let width = columns.saturating_sub(margin + 2).clamp(8, 110);
    let mut raster = Raster { cells: vec![vec![' '; width]; rows.max(8)], x, y };
    draw_roofs(&mut raster, roofline);
    let mut fused = 0;
    for point in &roofline.points {
        let sign = match point.series {
            Series::Unfused(_) => '·',
            Series::Fused(..) => {
                fused += 1;
                sign(fused - 1)
            }
        };
        let known = [point.intensity, point.gflops].iter().all(|x| *x > 0.0 && x.is_finite());
        if let Some(row) = raster.row(point.gflops).filter(|_| known) {
            let column = raster.column(point.intensity);
            raster.cells[row][column] = sign;
        }
    }
    frame(&raster, margin)
}

fn draw_roofs(raster: &mut Raster, roofline: &Roofline) {
    let highest = roofline.peaks.iter().map(|(_, gflops)| *gflops).fold(0.0, f64::max);
    let mut memories: Vec<&(String, f64)> = roofline.memories.iter().collect();
    memories.sort_by(|a, b| b.1.total_cmp(&a.1));
    for (n, (_, gbps)) in memories.iter().enumerate() {
        // The farthest memory is what the roof is made of; the nearer ones are drawn lightly.
        let line = if n + 1 == memories.len() { '╱' } else { '⋰' };
        for column in 0..raster.width() {
            let gflops = raster.intensity(column) * gbps;
            if let Some(row) = raster.row(gflops).filter(|_| gflops <= highest) {
                raster.cells[row][column] = line;
            }
        }
    }
    let fastest = memories.first().map_or(f64::INFINITY, |(_, gbps)| *gbps);
    let mut peaks: Vec<&(String, f64)> = roofline.peaks.iter().collect();
    peaks.sort_by(|a, b| b.1.total_cmp(&a.1));
    // Equal ones are one line with all their names.
    for equal in peaks.chunk_by(|a, b| count(a.1 * 1e9) == count(b.1 * 1e9)) {
        let gflops = equal[0].1;
        let Some(row) = raster.row(gflops) else { continue };
        let begin = raster.column(gflops / fastest);
        raster.cells[row][begin..].fill('─');
        let names: Vec<&str> = equal.iter().map(|(name, _)| name.as_str()).collect();
        let label = fitted(&names.join(", "), &format!("{}FLOP/s", count(gflops * 1e9)), raster.width());
        let place = raster.width() - label.len()..raster.width();
        // Above the line where there is room, so that kernels on it do not hide it.
        let is_free = |row: &usize| raster.cells[*row][place.clone()].iter().all(|cell| *cell == ' ');
        let above = row.checked_sub(1).filter(is_free).unwrap_or(row);
        raster.cells[above][place].copy_from_slice(&label);
    }
}

/// A name and its number in so many characters: of the name as much of its end as there is room for.
fn fitted(name: &str, number: &str, width: usize) -> Vec<char> {
    let room = width.saturating_sub(number.chars().count() + 1);
    let label = if room < 2 { number.to_owned() } else { format!("{} {number}", cut_front(name, room)) };
    let label: Vec<char> = label.chars().collect();
    // Where not even the number has room, a part of it would be another number.
    if label.len() <= width { label } else { Vec::new() }
}

fn frame(raster: &Raster, margin: usize) -> String {
    let mut text = format!("{:>margin$}\n", "GFLOP/s");
    let mut line = |words: String| writeln!(text, "{}", words.trim_end()).expect("writing to a string succeeds");
    let decades = |(low, high): (f64, f64)| low.ceil() as i32..=high.floor() as i32;
    for (row, cells) in raster.cells.iter().enumerate() {
        let tick = decades(raster.y).find(|decade| raster.row(10f64.powi(*decade)) == Some(row));
        let label = tick.map_or(String::new(), |decade| power(10f64.powi(decade)));
        line(format!(
            "{label:>margin$} {}{}",
            if tick.is_some() { '┤' } else { '│' },
            cells.iter().collect::<String>()
        ));
    }
    let mut axis = vec!['─'; raster.width()];
    let mut labels = vec![' '; raster.width()];
    for decade in decades(raster.x) {
        let column = raster.column(10f64.powi(decade));
        axis[column] = '┬';
        let label: Vec<char> = power(10f64.powi(decade)).chars().collect();
        if let Some(last) = raster.width().checked_sub(label.len()) {
            let begin = column.min(last);
            labels[begin..begin + label.len()].copy_from_slice(&label);
        }
    }
    line(format!("{:margin$} └{}", "", axis.into_iter().collect::<String>()));
    line(format!("{:margin$}  {}", "", labels.into_iter().collect::<String>()));
    line(format!("{:margin$}  FLOP for each byte of memory", ""));
    text
}

/// A power of ten in as few letters as can be.
fn power(value: f64) -> String {
    plot::power(value).replace(' ', "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roofline::Point;

    #[test]
    fn ticks_have_room_or_are_left_out() {
        assert_eq!([1e-300, 1e-5, 0.01, 1.0, 1000.0].map(power), ["1e-300", "1e-5", "0.01", "1", "1k"]);
        for width in 1..9 {
            let raster = Raster { cells: vec![vec![' '; width]; 3], x: (-300.0, 300.0), y: (-3.0, 3.0) };
            assert!(frame(&raster, 8).lines().all(|line| line.chars().count() <= 8 + 2 + width.max(30)));
        }
    }

    #[test]
    fn names_are_cut_and_numbers_are_not() {
        let in_width = |width| fitted("f16, bf16 matrices", "989 TFLOP/s", width).into_iter().collect::<String>();
        assert_eq!(in_width(30), "f16, bf16 matrices 989 TFLOP/s");
        assert_eq!(in_width(21), "…matrices 989 TFLOP/s");
        assert_eq!([in_width(13), in_width(11), in_width(10)], ["989 TFLOP/s", "989 TFLOP/s", ""]);
    }

    #[test]
    fn kernels_stand_below_their_roofs() {
        let point = |intensity, gflops, series| Point { name: "k".into(), intensity, gflops, us: 1.0, series };
        let roofline = Roofline {
            name: "machine".into(),
            memories: vec![("DRAM".into(), 50.0)],
            peaks: vec![("f32 vectors".into(), 500.0)],
            points: vec![
                point(1.0, 40.0, Series::Fused(0, 0)),
                point(0.5, 10.0, Series::Unfused(0)),
                point(f64::NAN, 10.0, Series::Fused(1, 1)),
                point(100.0, 450.0, Series::Fused(2, 2)),
            ],
        };
        let text = draw(&roofline, 80, 16);
        let line = |sign: char| text.lines().position(|line| line.contains(sign));
        assert!(text.contains("f32 vectors 500 GFLOP/s"), "{text}");
        assert!(line('C') < line('A') && line('A') < line('·') && line('B').is_none(), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let empty = Roofline { points: Vec::new(), memories: Vec::new(), peaks: Vec::new(), name: String::new() };
        assert!(draw(&empty, 20, 1).lines().count() > 8, "nothing to draw is no reason to fail");
    }
}
