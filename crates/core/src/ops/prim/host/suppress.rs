//! Non-maximum suppression: of boxes that overlap, the one with the best score stays.

use crate::error::{Error, Result};
use crate::reference::{Buffer, Run};
use crate::tensor::{DType, TensorType};

/// Whether boxes `[batch, boxes, 4]` and scores `[batch, classes, boxes]` have the right kinds.
pub(super) fn check(boxes: &TensorType, scores: &TensorType) -> Result<()> {
    let fits = boxes.dtype.is_float() && scores.dtype.is_float() && boxes.shape.rank() == 3 && scores.shape.rank() == 3;
    if fits { Ok(()) } else { Err(Error::invalid(format!("suppression among boxes {boxes} with scores {scores}"))) }
}

/// Rows (batch, class, box), best score first within each class; of equal scores the first box.
pub(super) fn suppress(args: &[Buffer], centered: bool, run: &Run<'_>) -> Result<Buffer> {
    let (boxes, scores) = (&args[0], &args[1]);
    let (&[batches, count, width], &[score_batches, classes, score_count]) = (boxes.sizes(), scores.sizes()) else {
        return Err(Error::bug("suppression takes tensors of three axes"));
    };
    if width != 4 || batches != score_batches || count != score_count {
        let (a, b) = (boxes.sizes(), scores.sizes());
        return Err(Error::invalid(format!("suppression among boxes of sizes {a:?} with scores of sizes {b:?}")));
    }
    // Rectangles, candidates and what sorting them takes, those that are taken.
    let lists = batches.saturating_add(1).saturating_mul(count).saturating_mul(4);
    run.reserve_work(&[boxes, scores], lists)?;
    let most = usize::try_from(args[2].to_ints()[0]).unwrap_or(0);
    let (overlap, least) = (args[3].to_floats()[0], args[4].to_floats()[0]);
    let (corners, scores) = (boxes.to_floats(), scores.to_floats());
    let rectangles: Vec<Rectangle> = corners.chunks_exact(4).map(|b| Rectangle::new(b, centered)).collect();
    let mut rows = Vec::new();
    for batch in 0..batches {
        let rectangles = &rectangles[batch * count..(batch + 1) * count];
        for class in 0..classes {
            let start = (batch * classes + class) * count;
            let scores = &scores[start..start + count];
            let mut candidates: Vec<usize> = (0..count).filter(|k| scores[*k] > least).collect();
            candidates.sort_by(|a, b| scores[*b].total_cmp(&scores[*a])); // stable: the first of equals stays first
            let mut taken: Vec<usize> = Vec::new();
            for candidate in candidates {
                if taken.len() == most {
                    break;
                }
                if !taken.iter().any(|t| rectangles[candidate].overlap(&rectangles[*t]) > overlap) {
                    taken.push(candidate);
                }
            }
            run.reserve_work(&[boxes, &args[1]], lists.saturating_add(rows.len().saturating_mul(2)))?;
            rows.extend(taken.iter().flat_map(|k| [batch as i64, class as i64, *k as i64]));
        }
    }
    Ok(Buffer::ints(DType::I64, vec![rows.len() / 3, 3], rows))
}

/// A box by its extremes.
struct Rectangle {
    low: [f64; 2],
    high: [f64; 2],
}

impl Rectangle {
    fn new(numbers: &[f64], centered: bool) -> Rectangle {
        let (a, b) = ([numbers[0], numbers[1]], [numbers[2], numbers[3]]);
        if centered {
            let low = [a[0] - b[0] / 2.0, a[1] - b[1] / 2.0];
            return Rectangle { low, high: [a[0] + b[0] / 2.0, a[1] + b[1] / 2.0] };
        }
        Rectangle { low: [a[0].min(b[0]), a[1].min(b[1])], high: [a[0].max(b[0]), a[1].max(b[1])] }
    }

    fn area(&self) -> f64 {
        (self.high[0] - self.low[0]) * (self.high[1] - self.low[1])
    }

    /// The area that both cover as a part of the area that either covers; 0 for boxes without an area.
    fn overlap(&self, other: &Rectangle) -> f64 {
        let span = |k: usize| (self.high[k].min(other.high[k]) - self.low[k].max(other.low[k])).max(0.0);
        let shared = span(0) * span(1);
        let joint = self.area() + other.area() - shared;
        if shared <= 0.0 || self.area() <= 0.0 || other.area() <= 0.0 || joint <= 0.0 { 0.0 } else { shared / joint }
    }
}
