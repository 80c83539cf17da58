//! The picture of a roofline: what a kernel can reach at most, by how much it computes for each byte, and what kernels do reach.

use super::scene::{Anchor, Item, Paint, Scene, Weight};
use super::{Point, Roofline, Series};
use crate::quantity::{count, significant};
use fuseline_session::plan::name::cut_back;

/// Room around the plot.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 48.0;

/// Kernels with a smaller part of the time do not stretch the axes.
const LEAST_SHARE: f64 = 0.002;
/// Labels are this far apart.
const LINE_HEIGHT: f64 = 15.0;

/// Both axes in decades, and where they lie in the picture.
struct Frame {
    x: (f64, f64),
    y: (f64, f64),
    width: f64,
    height: f64,
}

impl Frame {
    fn x(&self, intensity: f64) -> f64 {
        LEFT + (intensity.log10() - self.x.0) / (self.x.1 - self.x.0) * (self.width - LEFT - RIGHT)
    }

    fn y(&self, gflops: f64) -> f64 {
        let part = (gflops.log10() - self.y.0) / (self.y.1 - self.y.0);
        self.height - BOTTOM - part * (self.height - TOP - BOTTOM)
    }

    /// Whether a point lies outside.
    fn is_beyond(&self, point: &Point) -> bool {
        let beyond = |x: f64, (low, high): (f64, f64)| !(low..=high).contains(&x.log10());
        beyond(point.intensity, self.x) || beyond(point.gflops, self.y)
    }

    /// The place of a point; at the border for what lies outside.
    fn place(&self, point: &Point) -> (f64, f64) {
        let within = |x: f64, (low, high): (f64, f64)| 10f64.powf(x.log10().clamp(low, high));
        (self.x(within(point.intensity, self.x)), self.y(within(point.gflops, self.y)))
    }
}

/// The ranges of both axes, as decades: where the roofs bend, and the kernels that take time.
pub fn ranges(roofline: &Roofline) -> ((f64, f64), (f64, f64)) {
    let total: f64 = roofline.points.iter().map(|point| point.us).sum();
    let counts = |p: &&Point| p.intensity > 0.0 && p.gflops > 0.0 && p.gflops.is_finite() && p.us > total * LEAST_SHARE;
    let points = || roofline.points.iter().filter(counts);
    let highest = roofline.peaks.iter().map(|(_, gflops)| *gflops).fold(1.0, f64::max);
    let slowest = roofline.memories.iter().map(|(_, gbps)| *gbps).fold(f64::INFINITY, f64::min);
    let slowest = if slowest.is_finite() { slowest.max(1e-3) } else { 1.0 };
    let bend = highest / slowest;
    // Where a memory is fast and arithmetic slow, roofs bend far to the left.
    let low = points().map(|p| p.intensity).fold(f64::min(0.1, bend / 10.0), f64::min).max(1e-6).min(bend / 10.0);
    let high = points().map(|p| p.intensity).fold(2.0 * bend, f64::max);
    let floor = points().map(|p| p.gflops / 1.5).fold(slowest * low, f64::min).max(highest * 1e-9);
    let half = |x: f64| x.log10() * 2.0;
    ((low.log10().floor(), half(high).ceil() / 2.0), (half(floor).floor() / 2.0, half(highest * 1.4).ceil() / 2.0))
}

/// Draws a roofline into a picture of this size, with the names of so many kernels.
pub fn draw(roofline: &Roofline, width: f64, height: f64, named: usize) -> Scene {
    let (x, y) = ranges(roofline);
    let frame = Frame { x, y, width, height };
    let mut items = Vec::new();
    draw_axes(&frame, &mut items);
    draw_roofs(&frame, roofline, &mut items);
    let has_place = |p: &&Point| [p.intensity, p.gflops].iter().all(|x| *x > 0.0 && x.is_finite());
    let mut points: Vec<&Point> = roofline.points.iter().filter(has_place).collect();
    // The largest first, so that none hides another; what is fused lies above.
    points.sort_by(|a, b| a.series.is_fused().cmp(&b.series.is_fused()).then(b.us.total_cmp(&a.us)));
    let total =
        |fused: bool| roofline.points.iter().filter(|p| p.series.is_fused() == fused).map(|p| p.us).sum::<f64>();
    let totals = [total(false), total(true)];
    let beyond = points.iter().filter(|point| frame.is_beyond(point)).count();
    if beyond > 0 {
        let (dots, lie) = if beyond == 1 { ("dot", "lies") } else { ("dots", "lie") };
        let words = format!("{beyond} {dots} at the border {lie} beyond it");
        items.push(text((width - RIGHT, 18.0), &words, Anchor::End, Weight::Small));
    }
    for point in points {
        let share = point.us / totals[usize::from(point.series.is_fused())].max(f64::MIN_POSITIVE);
        let paint = match point.series {
            Series::Fused(kernel, class) => Paint::Fused(kernel, class),
            Series::Unfused(kernel) => Paint::Unfused(kernel),
        };
        let rates = format!("{} GFLOP/s at {} FLOP/byte", significant(point.gflops), significant(point.intensity));
        items.push(Item::Dot {
            at: frame.place(point),
            radius: 3.0 + 9.0 * share.clamp(0.0, 1.0).sqrt(),
            paint,
            title: format!("{}: {rates}, {} µs", point.name, significant(point.us)),
        });
    }
    draw_names(&frame, roofline, named, &mut items);
    let title = format!("Roofline of {}", roofline.name);
    items.push(text((LEFT, 18.0), &title, Anchor::Start, Weight::Title));
    Scene { width, height, title, items }
}

/// The names of the kernels that take the most time, where they hide no other name.
fn draw_names(frame: &Frame, roofline: &Roofline, named: usize, items: &mut Vec<Item>) {
    let has_place = |p: &&Point| [p.intensity, p.gflops].iter().all(|x| *x > 0.0 && x.is_finite());
    let mut points: Vec<&Point> = roofline.points.iter().filter(has_place).collect();
    points.sort_by(|a, b| b.us.total_cmp(&a.us));
    let mut taken: Vec<(f64, f64)> = Vec::new();
    for point in points.into_iter().take(named) {
        let (x, y) = frame.place(point);
        let is_right = x > frame.width * 0.7;
        let (x, anchor) = if is_right { (x - 14.0, Anchor::End) } else { (x + 14.0, Anchor::Start) };
        let is_free = |other: &(f64, f64)| (other.0 - x).abs() > 220.0 || (other.1 - y).abs() > LINE_HEIGHT;
        if taken.iter().all(is_free) {
            taken.push((x, y));
            items.push(text((x, y + 4.0), &cut_back(&point.name, 34), anchor, Weight::Label));
        }
    }
}

fn text(at: (f64, f64), words: &str, anchor: Anchor, weight: Weight) -> Item {
    Item::Text { at, text: words.to_string(), anchor, weight, degrees: 0.0 }
}

fn draw_axes(frame: &Frame, items: &mut Vec<Item>) {
    let (left, right) = (LEFT, frame.width - RIGHT);
    let (top, bottom) = (TOP, frame.height - BOTTOM);
    for decade in frame.x.0.ceil() as i32..=frame.x.1.floor() as i32 {
        let (x, value) = (frame.x(10f64.powi(decade)), 10f64.powi(decade));
        items.push(Item::Line { from: (x, top), to: (x, bottom), paint: Paint::Grid });
        items.push(text((x, bottom + 17.0), &power(value), Anchor::Middle, Weight::Small));
    }
    for decade in frame.y.0.ceil() as i32..=frame.y.1.floor() as i32 {
        let (y, value) = (frame.y(10f64.powi(decade)), 10f64.powi(decade));
        items.push(Item::Line { from: (left, y), to: (right, y), paint: Paint::Grid });
        items.push(text((left - 8.0, y + 4.0), &power(value), Anchor::End, Weight::Small));
    }
    items.push(Item::Line { from: (left, bottom), to: (right, bottom), paint: Paint::Axis });
    items.push(Item::Line { from: (left, top), to: (left, bottom), paint: Paint::Axis });
    let middle = ((left + right) / 2.0, frame.height - 10.0);
    items.push(text(middle, "FLOP for each byte of memory", Anchor::Middle, Weight::Label));
    let at = (16.0, (top + bottom) / 2.0);
    let words = "GFLOP/s".to_string();
    items.push(Item::Text { at, text: words, anchor: Anchor::Middle, weight: Weight::Label, degrees: -90.0 });
}

/// A power of ten for an axis.
fn power(value: f64) -> String {
    if value >= 1.0 { count(value.round()).replace(".00 ", " ").replace(".0 ", " ") } else { format!("{value}") }
}

fn draw_roofs(frame: &Frame, roofline: &Roofline, items: &mut Vec<Item>) {
    let highest = roofline.peaks.iter().map(|(_, gflops)| *gflops).fold(0.0, f64::max);
    let (low_x, high_x) = (10f64.powf(frame.x.0), 10f64.powf(frame.x.1));
    let low_y = 10f64.powf(frame.y.0);
    let mut memories: Vec<&(String, f64)> = roofline.memories.iter().collect();
    memories.sort_by(|a, b| a.1.total_cmp(&b.1));
    for (n, (name, gbps)) in memories.iter().enumerate() {
        let begin = low_x.max(low_y / gbps);
        let end = (highest / gbps).min(high_x);
        if begin >= end {
            continue;
        }
        let (from, to) = ((frame.x(begin), frame.y(begin * gbps)), (frame.x(end), frame.y(end * gbps)));
        items.push(Item::Line { from, to, paint: Paint::Memory(n) });
        let degrees = (to.1 - from.1).atan2(to.0 - from.0).to_degrees();
        let length = (to.0 - from.0).hypot(to.1 - from.1).max(1.0);
        let (dx, dy) = ((to.0 - from.0) / length, (to.1 - from.1) / length);
        // On the side on which the next line is farther away.
        let gap = |other: Option<&&(String, f64)>| other.map_or(f64::INFINITY, |(_, rate)| (rate / gbps).ln().abs());
        let is_below = gap(n.checked_sub(1).and_then(|near| memories.get(near))) > gap(memories.get(n + 1));
        let (along, across) = if is_below { (24.0, -13.0) } else { (10.0, 6.0) };
        let at = (from.0 + dx * along + dy * across, from.1 + dy * along - dx * across);
        let words = format!("{name} {}B/s", count(gbps * 1e9));
        items.push(Item::Text { at, text: words, anchor: Anchor::Start, weight: Weight::Small, degrees });
    }
    let fastest = roofline.memories.iter().map(|(_, gbps)| *gbps).fold(0.0, f64::max);
    let mut peaks: Vec<&(String, f64)> = roofline.peaks.iter().collect();
    peaks.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut above = f64::NEG_INFINITY;
    for (n, (name, gflops)) in peaks.iter().enumerate() {
        let begin = if fastest > 0.0 { gflops / fastest } else { low_x };
        let from = (frame.x(begin.clamp(low_x, high_x)), frame.y(*gflops));
        let to = (frame.width - RIGHT, frame.y(*gflops));
        items.push(Item::Line { from, to, paint: Paint::Peak(peaks.len() - 1 - n) });
        // Above its line, or below where the last label is in the way.
        let y = if to.1 - 6.0 - above < LINE_HEIGHT { (to.1 + 13.0).max(above + LINE_HEIGHT) } else { to.1 - 6.0 };
        above = y;
        let words = format!("{name} {}FLOP/s", count(gflops * 1e9));
        items.push(text((to.0 - 4.0, y), &words, Anchor::End, Weight::Small));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roofs_that_bend_far_to_either_side_are_drawn() {
        for (gbps, gflops) in [(1000.0, 1.0), (4800.0, 67.0), (1e6, 1e-3), (1e-3, 1e6), (1.0, 1.0), (48.0, 357.0)] {
            let (memories, peaks) = (vec![("memory".into(), gbps)], vec![("peak".into(), gflops)]);
            let roofline = Roofline { name: "a machine".into(), memories, peaks, points: Vec::new() };
            let (x, y) = ranges(&roofline);
            assert!(x.0 < x.1 && y.0 < y.1, "{gbps} GB/s and {gflops} GFLOP/s: {x:?}, {y:?}");
            draw(&roofline, 800.0, 500.0, 0);
        }
    }
}
