//! Rows of few columns that follow each other without a gap: all elements of as many rows as there are lanes are as many whole vectors as there are columns,
//! and every column has an element in each of the lanes, in one vector or another. So it is put together of all vectors, and its lanes are then put in
//! order; what is written goes the other way.

use fuseline::tensor::DType;

use super::turn::COLUMNS;
use crate::vector::{Address, Builder, Compare, Ty, Value};

/// Where the elements of whole rows of a few columns lie in vectors, of so many lanes.
pub(super) struct Interleaved {
    columns: usize,
    lanes: usize,
}

impl Interleaved {
    /// Rows of so many columns, so many elements apart. `None` where they have gaps, where two elements of a column would stand in the same lane, or where more is put together
    /// than [turning](super::turn) takes.
    pub fn of(columns: usize, stride: i64, lanes: u32) -> Option<Interleaved> {
        let (most, lanes) = (2 * COLUMNS as usize - 2, lanes as usize);
        let apart = columns % 2 == 1 && lanes.is_power_of_two();
        (apart && (3..most).contains(&columns) && stride == columns as i64).then_some(Interleaved { columns, lanes })
    }

    /// Every column, of the rows that begin at a place.
    pub fn load(&self, b: &mut Builder, at: Address, memory: DType) -> Vec<Value> {
        let vectors: Vec<Value> = (0..self.columns).map(|k| b.load(self.place(at, k), memory, None)).collect();
        let masks = self.masks(b);
        let column = |b: &mut Builder, column: usize| {
            let mixed = self.mixed(b, &masks, &vectors, |vector| self.first_lane(vector, column));
            let lanes: Vec<u32> = (0..self.lanes).map(|row| self.lane(row, column)).collect();
            let lanes = b.numbers(Ty::I32, &lanes);
            b.pick(mixed, lanes)
        };
        (0..self.columns).map(|k| column(b, k)).collect()
    }

    /// Whole vectors of the elements of rows, in the order in which they lie in memory, with their places.
    pub fn vectors(&self, b: &mut Builder, at: Address, columns: &[Value]) -> Vec<(Address, Value)> {
        let spread = |b: &mut Builder, column: usize| {
            let mut rows = vec![0; self.lanes];
            (0..self.lanes).for_each(|row| rows[self.lane(row, column) as usize] = row as u32);
            let rows = b.numbers(Ty::I32, &rows);
            b.pick(columns[column], rows)
        };
        let spread: Vec<Value> = (0..self.columns).map(|column| spread(b, column)).collect();
        let masks = self.masks(b);
        let vector = |k: usize| self.mixed(b, &masks, &spread, |column| self.first_lane(k, column));
        let vectors: Vec<Value> = (0..self.columns).map(vector).collect();
        vectors.into_iter().enumerate().map(|(k, vector)| (self.place(at, k), vector)).collect()
    }

    /// Where a vector lies.
    fn place(&self, at: Address, vector: usize) -> Address {
        Address { offset: at.offset + (vector * self.lanes * 4) as i32, ..at }
    }

    /// The lane of a column's element of a row.
    fn lane(&self, row: usize, column: usize) -> u32 {
        ((row * self.columns + column) % self.lanes) as u32
    }

    /// The first lane of a vector that holds an element of a column; the others come in steps of as many as there are columns.
    fn first_lane(&self, vector: usize, column: usize) -> usize {
        (column + self.columns * self.lanes - vector * self.lanes) % self.columns
    }

    /// For each of the first lanes, as many as there are columns, a mask of those that come behind it in steps of so many.
    fn masks(&self, b: &mut Builder) -> Vec<Value> {
        let steps: Vec<u32> = (0..self.lanes).map(|lane| (lane % self.columns) as u32).collect();
        let steps = b.numbers(Ty::I32, &steps);
        let mask = |first: usize| {
            let first = b.integer(Ty::I32, first as i64);
            b.compare(Compare::Eq, steps, first)
        };
        (0..self.columns).map(mask).collect()
    }

    /// Of each of some vectors the lanes from a first one on.
    fn mixed(&self, b: &mut Builder, masks: &[Value], parts: &[Value], first: impl Fn(usize) -> usize) -> Value {
        let others = parts.iter().enumerate().skip(1);
        others.fold(parts[0], |mixed, (k, part)| b.select(masks[first(k)], *part, mixed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_of_a_column_stands_in_a_lane_of_its_own() {
        for (columns, lanes) in [(3, 4), (3, 8), (3, 16), (5, 8), (5, 16)] {
            let rows = Interleaved::of(columns, columns as i64, lanes).unwrap();
            for column in 0..columns {
                let mut taken: Vec<u32> = (0..rows.lanes).map(|row| rows.lane(row, column)).collect();
                taken.sort_unstable();
                assert_eq!(taken, (0..lanes).collect::<Vec<_>>(), "{columns} in {lanes}");
            }
            for element in 0..columns * rows.lanes {
                let (vector, lane) = (element / rows.lanes, element % rows.lanes);
                let of_column = |column: &usize| lane % columns == rows.first_lane(vector, *column);
                assert_eq!((0..columns).filter(of_column).collect::<Vec<_>>(), [element % columns]);
            }
        }
    }

    #[test]
    fn rows_with_gaps_or_of_even_lengths_are_read_otherwise() {
        for (columns, stride) in [(3, 4), (4, 4), (6, 6), (7, 7), (1, 1), (2, 2)] {
            assert!(Interleaved::of(columns, stride, 16).is_none(), "{columns} by {stride}");
        }
    }
}
