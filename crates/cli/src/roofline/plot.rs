//! The picture of a roofline: what a kernel can reach at most, by how much it computes for each byte, and what kernels do reach.

use super::labels::{self, Taken};
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
/// Words stand this far from the dot that they name.
const GAP: f64 = 4.0;
/// A name is not told again this near to the dot that has it.
const SAME: f64 = 120.0;
/// No more powers of ten than this are named on an axis.
const MOST_TICKS: i32 = 12;

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
    let highest = roofline.peaks.iter().map(|(_, gflops)| *gflops).reduce(f64::max).unwrap_or(1.0);
    let slowest = roofline.memories.iter().map(|(_, gbps)| *gbps).fold(f64::INFINITY, f64::min);
    let slowest = if slowest.is_finite() { slowest.max(1e-9) } else { 1.0 };
    let bend = highest / slowest;
    // Where a memory is fast and arithmetic slow, roofs bend far to the left.
    let low = points().map(|p| p.intensity).fold(f64::min(0.1, bend / 10.0), f64::min).max(1e-6).min(bend / 10.0);
    let high = points().map(|p| p.intensity).fold(2.0 * bend, f64::max);
    let floor = points().map(|p| p.gflops / 1.5).fold(slowest * low, f64::min).max(highest * 1e-9);
    let half = |x: f64| x.log10() * 2.0;
    // Above the highest roof there is room for its name.
    ((low.log10().floor(), half(high).ceil() / 2.0), (half(floor).floor() / 2.0, half(highest * 2.5).ceil() / 2.0))
}

/// Draws a roofline into a picture of this size, with the names of so many kernels.
pub fn draw(roofline: &Roofline, width: f64, height: f64, named: usize) -> Scene {
    let (x, y) = ranges(roofline);
    let frame = Frame { x, y, width, height };
    let mut items = Vec::new();
    draw_axes(&frame, &mut items);
    let names = draw_roofs(&frame, roofline, &mut items);
    let has_place = |p: &&Point| [p.intensity, p.gflops].iter().all(|x| *x > 0.0 && x.is_finite());
    let mut points: Vec<&Point> = roofline.points.iter().filter(has_place).collect();
    // The largest first, so that none hides another; what is fused lies above.
    points.sort_by(|a, b| a.series.is_fused().cmp(&b.series.is_fused()).then(b.us.total_cmp(&a.us)));
    let total =
        |fused: bool| roofline.points.iter().filter(|p| p.series.is_fused() == fused).map(|p| p.us).sum::<f64>();
    let totals = [total(false), total(true)];
    let beyond = points.iter().filter(|point| frame.is_beyond(point)).count();
    let notice = (beyond > 0).then(|| {
        let (dots, lie) = if beyond == 1 { ("dot", "lies") } else { ("dots", "lie") };
        format!("{beyond} {dots} at the border {lie} beyond it")
    });
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
    let mut taken = Taken::inside((LEFT, TOP), (width - RIGHT, height - BOTTOM));
    items.iter().for_each(|item| taken.add(item));
    items.extend(names.into_iter().filter_map(|places| taken.first_free(places)));
    draw_names(&frame, roofline, named, &mut taken, &mut items);
    let title = format!("Roofline of {}", roofline.name);
    let room = width - LEFT - RIGHT - notice.as_ref().map_or(0.0, |words| labels::size(words, Weight::Small).0 + 12.0);
    let letters = (room / labels::size("m", Weight::Title).0).max(1.0) as usize;
    items.extend(notice.map(|words| text((width - RIGHT, 18.0), &words, Anchor::End, Weight::Small)));
    items.push(text((LEFT, 18.0), &cut_back(&title, letters), Anchor::Start, Weight::Title));
    Scene { width, height, title, items }
}

/// The names of the kernels that take the most time, beside their dots, where there is room.
fn draw_names(frame: &Frame, roofline: &Roofline, named: usize, taken: &mut Taken, items: &mut Vec<Item>) {
    let has_place = |p: &&Point| [p.intensity, p.gflops].iter().all(|x| *x > 0.0 && x.is_finite());
    let mut points: Vec<&Point> = roofline.points.iter().filter(has_place).collect();
    points.sort_by(|a, b| b.us.total_cmp(&a.us));
    let mut told: Vec<(&str, (f64, f64))> = Vec::new();
    for point in points.into_iter().take(named) {
        let (x, y) = frame.place(point);
        let radius = items.iter().find_map(|item| match item {
            Item::Dot { at, radius, .. } if *at == (x, y) => Some(*radius),
            _ => None,
        });
        let is_told = |(name, (a, b)): &(&str, (f64, f64))| *name == point.name && (a - x).hypot(b - y) < SAME;
        if told.iter().any(is_told) {
            continue;
        }
        let places =
            [34, 20].into_iter().flat_map(|most| beside((x, y), radius.unwrap_or(3.0), &cut_back(&point.name, most)));
        if let Some(name) = taken.first_free(places) {
            items.push(name);
            told.push((&point.name, (x, y)));
        }
    }
}

/// The places of a name around a dot, the best first.
fn beside((x, y): (f64, f64), radius: f64, name: &str) -> Vec<Item> {
    let near = radius + GAP;
    // Letters reach from a quarter below their line to three quarters above it.
    let (level, above, below) = (y + 4.0, y - near - 2.0, y + near + 9.0);
    let slant = near * 0.75;
    let places = [
        (x + near, level, Anchor::Start),
        (x - near, level, Anchor::End),
        (x, above, Anchor::Middle),
        (x, below, Anchor::Middle),
        (x + slant, above + 4.0, Anchor::Start),
        (x + slant, below - 4.0, Anchor::Start),
        (x - slant, above + 4.0, Anchor::End),
        (x - slant, below - 4.0, Anchor::End),
    ];
    places.into_iter().map(|(x, y, anchor)| text((x, y), name, anchor, Weight::Label)).collect()
}

fn text(at: (f64, f64), words: &str, anchor: Anchor, weight: Weight) -> Item {
    Item::Text { at, text: words.to_string(), anchor, weight, degrees: 0.0 }
}

fn draw_axes(frame: &Frame, items: &mut Vec<Item>) {
    let (left, right) = (LEFT, frame.width - RIGHT);
    let (top, bottom) = (TOP, frame.height - BOTTOM);
    for decade in ticks(frame.x) {
        let (x, value) = (frame.x(10f64.powi(decade)), 10f64.powi(decade));
        items.push(Item::Line { from: (x, top), to: (x, bottom), paint: Paint::Grid });
        items.push(text((x, bottom + 17.0), &power(value), Anchor::Middle, Weight::Small));
    }
    for decade in ticks(frame.y) {
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

/// The powers of ten that an axis names: all of them, or every second, third … where there are many.
fn ticks((low, high): (f64, f64)) -> impl Iterator<Item = i32> {
    let (low, high) = (low.ceil() as i32, high.floor() as i32);
    let step = ((high - low) / MOST_TICKS + 1).max(1);
    (low..=high).filter(move |decade| decade.rem_euclid(step) == 0)
}

/// A power of ten for an axis.
pub fn power(value: f64) -> String {
    match value {
        1.0.. => count(value.round()).replace(".00 ", " ").replace(".0 ", " "),
        // Zeros behind the point are hard to count.
        ..1e-3 => format!("{value:e}"),
        _ => format!("{value}"),
    }
}

/// Draws the roofs. Returns their names, those of arithmetic first, each with all places along its line where it may stand, the best first.
fn draw_roofs(frame: &Frame, roofline: &Roofline, items: &mut Vec<Item>) -> Vec<Vec<Item>> {
    let highest = roofline.peaks.iter().map(|(_, gflops)| *gflops).fold(0.0, f64::max);
    let (low_x, high_x) = (10f64.powf(frame.x.0), 10f64.powf(frame.x.1));
    let low_y = 10f64.powf(frame.y.0);
    let mut memories: Vec<&(String, f64)> = roofline.memories.iter().collect();
    memories.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut slopes = Vec::new();
    for (n, (name, gbps)) in memories.iter().enumerate() {
        let begin = low_x.max(low_y / gbps);
        let end = (highest / gbps).min(high_x);
        if begin >= end {
            continue;
        }
        let (from, to) = ((frame.x(begin), frame.y(begin * gbps)), (frame.x(end), frame.y(end * gbps)));
        items.push(Item::Line { from, to, paint: Paint::Memory(n) });
        // On the side on which the next line is farther away.
        let gap = |other: Option<&&(String, f64)>| other.map_or(f64::INFINITY, |(_, rate)| (rate / gbps).ln().abs());
        let is_below = gap(n.checked_sub(1).and_then(|near| memories.get(near))) > gap(memories.get(n + 1));
        slopes.push(along(from, to, is_below, &format!("{name} {}B/s", count(gbps * 1e9))));
    }
    let fastest = roofline.memories.iter().map(|(_, gbps)| *gbps).fold(0.0, f64::max);
    let mut peaks: Vec<&(String, f64)> = roofline.peaks.iter().collect();
    peaks.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut names = Vec::new();
    for (n, (name, gflops)) in peaks.iter().enumerate() {
        let begin = if fastest > 0.0 { gflops / fastest } else { low_x };
        let from = (frame.x(begin.clamp(low_x, high_x)), frame.y(*gflops));
        let to = (frame.width - RIGHT, frame.y(*gflops));
        items.push(Item::Line { from, to, paint: Paint::Peak(peaks.len() - 1 - n) });
        let words = format!("{name} {}FLOP/s", count(gflops * 1e9));
        // From the right to where the line begins, above it or below.
        let steps = ((to.0 - from.0) / 12.0).max(0.0) as usize;
        let places = (0..=steps).flat_map(|k| [-6.0, 14.0].map(|dy| (to.0 - 4.0 - 12.0 * k as f64, to.1 + dy)));
        names.push(places.map(|at| text(at, &words, Anchor::End, Weight::Small)).collect());
    }
    names.extend(slopes);
    names
}

/// The places of a name along a slope, from its foot upwards: on one side of it, or else on the other.
fn along(from: (f64, f64), to: (f64, f64), is_below: bool, words: &str) -> Vec<Item> {
    let degrees = (to.1 - from.1).atan2(to.0 - from.0).to_degrees();
    let length = (to.0 - from.0).hypot(to.1 - from.1).max(1.0);
    let (dx, dy) = ((to.0 - from.0) / length, (to.1 - from.1) / length);
    let sides = if is_below { [-14.0, 6.0] } else { [6.0, -14.0] };
    let steps = (length / 10.0) as usize;
    let place = |(side, k): (f64, usize)| {
        let far = 10.0 + 10.0 * k as f64;
        let at = (from.0 + dx * far + dy * side, from.1 + dy * far - dx * side);
        Item::Text { at, text: words.to_string(), anchor: Anchor::Start, weight: Weight::Small, degrees }
    };
    sides.into_iter().flat_map(|side| (0..=steps).map(move |k| (side, k))).map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roofs_that_bend_far_to_either_side_are_drawn() {
        for (gbps, gflops) in [
            (1000.0, 1.0),
            (4800.0, 67.0),
            (1e6, 1e-3),
            (1e-3, 1e6),
            (1e12, 1e-6),
            (1e-6, 1e12),
            (1.0, 1.0),
            (48.0, 357.0),
        ] {
            let (memories, peaks) = (vec![("memory".into(), gbps)], vec![("peak".into(), gflops)]);
            let roofline = Roofline { name: "a machine".into(), memories, peaks, points: Vec::new() };
            let (x, y) = ranges(&roofline);
            assert!(x.0 < x.1 && y.0 < y.1, "{gbps} GB/s and {gflops} GFLOP/s: {x:?}, {y:?}");
            let scene = draw(&roofline, 800.0, 500.0, 0);
            assert!(scene.items.iter().any(|item| matches!(item, Item::Line { paint: Paint::Peak(_), .. })));
            let told = |word: &str| {
                scene.items.iter().any(|item| matches!(item, Item::Text { text, .. } if text.contains(word)))
            };
            assert!(told("memory ") && told("peak "), "{gbps} GB/s and {gflops} GFLOP/s: {scene:#?}");
            let ticks = scene.items.iter().filter(|item| matches!(item, Item::Line { paint: Paint::Grid, .. })).count();
            assert!((2..=26).contains(&ticks), "{gbps} GB/s and {gflops} GFLOP/s: {ticks} lines");
        }
    }

    /// The frame of a text that is not turned, in letters that are a little narrower than what is set aside for them.
    fn frame_of(item: &Item) -> Option<[f64; 4]> {
        let Item::Text { at, text, anchor, weight, degrees: 0.0 } = item else { return None };
        let (letter, height) = match weight {
            Weight::Title => (7.5, 15.0),
            Weight::Label => (6.0, 12.0),
            Weight::Small => (5.5, 11.0),
        };
        let width = letter * text.chars().count() as f64;
        let left = match anchor {
            Anchor::Start => at.0,
            Anchor::Middle => at.0 - width / 2.0,
            Anchor::End => at.0 - width,
        };
        Some([left, at.1 - height * 0.7, left + width, at.1 + height * 0.1])
    }

    #[test]
    fn words_stand_on_nothing() {
        // Crowds around the roofs, and dots of many sizes elsewhere.
        let point = |k: usize| Point {
            name: format!("Conv + Mul + {k} × Add + ReLU6 and much more"),
            intensity: 0.08 * 1.13f64.powi((k * 37 % 71) as i32),
            gflops: 1.5 * 1.11f64.powi((k * 29 % 53) as i32),
            us: 1.0 + (k * k % 97) as f64,
            series: if k.is_multiple_of(3) { Series::Unfused(k) } else { Series::Fused(k, k) },
        };
        let memories = [("DRAM", 28.0), ("L3", 40.0), ("L2", 200.0), ("L1", 700.0)].map(|(n, x)| (n.into(), x)).into();
        let peaks = [("f32 vectors", 350.0), ("bf16 matrices", 380.0), ("i8 matrices", 2000.0)]
            .map(|(n, x)| (n.into(), x))
            .into();
        let points = (0..60).map(point).collect();
        let scene = draw(&Roofline { name: "a machine".into(), memories, peaks, points }, 960.0, 540.0, 40);
        let words: Vec<([f64; 4], &Item)> =
            scene.items.iter().filter_map(|item| Some((frame_of(item)?, item))).collect();
        let named =
            words.iter().filter(|(_, item)| matches!(item, Item::Text { text, .. } if text.starts_with("Conv")));
        assert!(named.count() >= 6, "names are told: {words:#?}");
        for (k, (a, item)) in words.iter().enumerate() {
            for (b, other) in &words[..k] {
                let apart = a[0] >= b[2] || b[0] >= a[2] || a[1] >= b[3] || b[1] >= a[3];
                assert!(apart, "{item:?} is written on {other:?}");
            }
            for dot in &scene.items {
                let Item::Dot { at, radius, .. } = dot else { continue };
                let nearest = (at.0.clamp(a[0], a[2]), at.1.clamp(a[1], a[3]));
                let far = (at.0 - nearest.0).hypot(at.1 - nearest.1);
                assert!(far >= *radius, "{item:?} is written on {dot:?}");
            }
        }
    }
}
