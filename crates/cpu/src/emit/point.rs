//! Where values are wanted: a coordinate for every axis of the kernel.

use fuseline::tile::AxisSet;
use smallvec::SmallVec;

use crate::vector::Value;

/// A coordinate: `base + plus`, and the lane's number if lanes run along the axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Coord {
    /// an Int, or nothing
    pub base: Option<Value>,
    pub plus: i64,
    /// whether lanes run along the axis
    pub lanes: bool,
}

/// A coordinate for every axis. What does not vary over an axis does not look at it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Point {
    coords: SmallVec<[Coord; 6]>,
    /// lanes that are not beyond the end, if some may be
    pub mask: Option<Value>,
}

impl Point {
    /// The point with coordinate 0 everywhere.
    pub fn origin(rank: usize) -> Point {
        Point { coords: SmallVec::from_elem(Coord::default(), rank), mask: None }
    }

    pub fn coord(&self, axis: usize) -> Coord {
        self.coords[axis]
    }

    /// The point with another coordinate along an axis.
    pub fn with(&self, axis: usize, coord: Coord) -> Point {
        let mut point = self.clone();
        point.coords[axis] = coord;
        point
    }

    /// The point further along an axis.
    pub fn moved(&self, axis: usize, by: i64) -> Point {
        let mut point = self.clone();
        point.coords[axis].plus += by;
        point
    }

    /// The point with lanes beyond the end left out.
    pub fn masked(mut self, mask: Value) -> Point {
        self.mask = Some(mask);
        self
    }

    /// The point with all lanes: for memory that is padded.
    pub fn unmasked(mut self) -> Point {
        self.mask = None;
        self
    }

    /// The axis along which lanes run.
    pub fn lane_axis(&self) -> Option<usize> {
        self.coords.iter().position(|coord| coord.lanes)
    }

    /// Whether a value that varies over these axes is the same at another point.
    pub fn is_like(&self, other: &Point, axes: AxisSet) -> bool {
        axes.iter().all(|axis| self.coords[axis] == other.coords[axis])
    }

    /// What tells points apart for a value that varies over these axes.
    pub fn key(&self, axes: AxisSet) -> SmallVec<[Coord; 6]> {
        axes.iter().map(|axis| self.coords[axis]).collect()
    }
}
