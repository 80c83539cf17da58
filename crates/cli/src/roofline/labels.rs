//! Where words stand in a picture: beside what they name, and on nothing else.

use super::scene::{Anchor, Item, Paint, Weight};

type Place = (f64, f64);

/// What is drawn already and must not be written on, inside of a frame that no word leaves.
pub struct Taken {
    low: Place,
    high: Place,
    discs: Vec<Disc>,
    lines: Vec<(Place, Place)>,
}

/// Dots are discs, and words are rows of them: so they may be turned.
#[derive(Clone, Copy)]
struct Disc {
    at: Place,
    radius: f64,
}

impl Taken {
    /// Nothing yet, in a frame from its upper left to its lower right.
    pub fn inside(low: Place, high: Place) -> Taken {
        Taken { low, high, discs: Vec::new(), lines: Vec::new() }
    }

    /// Keeps words off an item. Lines of the grid may be written on.
    pub fn add(&mut self, item: &Item) {
        match item {
            Item::Line { paint: Paint::Grid, .. } => {}
            Item::Line { from, to, .. } => self.lines.push((*from, *to)),
            Item::Dot { at, radius, .. } => self.discs.push(Disc { at: *at, radius: *radius }),
            Item::Text { .. } => self.discs.extend(discs(item)),
        }
    }

    /// The first of some places of a text that is free, which is then taken; none where all are in the way of something.
    pub fn first_free(&mut self, places: impl IntoIterator<Item = Item>) -> Option<Item> {
        let found = places.into_iter().find(|text| discs(text).iter().all(|disc| self.is_free(*disc)))?;
        self.add(&found);
        Some(found)
    }

    fn is_free(&self, Disc { at, radius }: Disc) -> bool {
        let is_inside = |x: f64, low: f64, high: f64| low <= x - radius && x + radius <= high;
        is_inside(at.0, self.low.0, self.high.0)
            && is_inside(at.1, self.low.1, self.high.1)
            && self.discs.iter().all(|other| distance(at, other.at) >= radius + other.radius)
            && self.lines.iter().all(|line| distance_to_line(at, *line) >= radius)
    }
}

/// How wide a text is at most in the letters that pictures are drawn with, and how high.
pub fn size(text: &str, weight: Weight) -> (f64, f64) {
    let (letter, height) = match weight {
        Weight::Title => (8.4, 15.0),
        Weight::Label => (6.6, 12.0),
        Weight::Small => (6.1, 11.0),
    };
    (letter * text.chars().count() as f64, height)
}

/// A text as a row of discs; nothing for what is no text.
fn discs(item: &Item) -> Vec<Disc> {
    let Item::Text { at, text, anchor, weight, degrees } = item else { return Vec::new() };
    let (width, height) = size(text, *weight);
    let begin = match anchor {
        Anchor::Start => 0.0,
        Anchor::Middle => -width / 2.0,
        Anchor::End => -width,
    };
    let radius = height / 2.0;
    // Letters stand on their point: the middle of most is a third of their height above it.
    let middle = -height * 0.36;
    let (sin, cos) = degrees.to_radians().sin_cos();
    let count = (width / radius).ceil().max(1.0) as usize;
    let disc = |k: usize| {
        let along = begin + radius.min(width / 2.0) + (width - 2.0 * radius).max(0.0) * k as f64 / count as f64;
        Disc { at: (at.0 + along * cos - middle * sin, at.1 + along * sin + middle * cos), radius }
    };
    (0..=count).map(disc).collect()
}

fn distance(a: Place, b: Place) -> f64 {
    (a.0 - b.0).hypot(a.1 - b.1)
}

fn distance_to_line(at: Place, (from, to): (Place, Place)) -> f64 {
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let length = (dx * dx + dy * dy).max(f64::MIN_POSITIVE);
    let part = (((at.0 - from.0) * dx + (at.1 - from.1) * dy) / length).clamp(0.0, 1.0);
    distance(at, (from.0 + part * dx, from.1 + part * dy))
}
