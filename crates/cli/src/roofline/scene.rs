//! Pictures as a list of things to draw, which several forms of files have in common.

/// What something is drawn for; colours follow from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// lines behind everything
    Grid,
    /// frames
    Axis,
    /// a limit of memory, the farthest first
    Memory(usize),
    /// a limit of arithmetic, the lowest first
    Peak(usize),
    /// a fused kernel: its number, and that of all that are equal to it
    Fused(usize, usize),
    /// a kernel of the unfused plan
    Unfused(usize),
}

/// Where a text stands by its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// How a text looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    Title,
    Label,
    Small,
}

/// A thing to draw. Places are in pixels from the upper left.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    Line {
        from: (f64, f64),
        to: (f64, f64),
        paint: Paint,
    },
    Dot {
        at: (f64, f64),
        radius: f64,
        paint: Paint,
        title: String,
    },
    /// turned by so many degrees around its point
    Text {
        at: (f64, f64),
        text: String,
        anchor: Anchor,
        weight: Weight,
        degrees: f64,
    },
}

/// A picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Scene {
    pub width: f64,
    pub height: f64,
    /// what it shows, in words
    pub title: String,
    pub items: Vec<Item>,
}
