//! Where the boxes of a graph stand: in layers from top to bottom, so that edges point down and seldom cross.
//!
//! Comes in: boxes with widths, and edges between them. Goes out: for every box its layer and the middle of it across, and for
//! every edge the points that it goes through. Deterministic, and linear but for a few sweeps. Heights are no matter here: who draws
//! adds them up, and may open boxes.

/// Between boxes of one layer.
const GAP: f64 = 24.0;
/// Width that an edge takes where it passes through a layer.
const WIRE: f64 = 10.0;
/// Edges over more layers than this run beside the graph and take no room in it.
const LONGEST: usize = 24;
/// How many times the order of all layers is improved, and their places.
const SWEEPS: usize = 12;

/// A graph as it is drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// for every box, its layer and where its middle is
    pub boxes: Vec<(usize, f64)>,
    /// for every edge, where it passes through the layers between its ends
    pub wires: Vec<Vec<(usize, f64)>>,
    /// how many layers there are
    pub layers: usize,
    /// how wide it is; boxes begin at 0
    pub width: f64,
}

/// Lays out boxes of these widths. Edges lead from the first to the second; one that closes a circle is drawn and does not count.
pub fn layout(widths: &[f64], edges: &[(usize, usize)]) -> Layout {
    let layer_of = assign_layers(widths.len(), edges);
    let mut grid = Grid::new(widths, edges, &layer_of);
    grid.order();
    grid.place();
    let left = grid.items.iter().map(|item| item.x - item.width / 2.0).fold(f64::INFINITY, f64::min);
    let left = if left.is_finite() { left } else { 0.0 };
    let right = grid.items.iter().map(|item| item.x + item.width / 2.0).fold(left, f64::max);
    let at = |item: &Item| (item.layer, round(item.x - left));
    Layout {
        boxes: grid.items[..widths.len()].iter().map(at).collect(),
        wires: grid.wires.iter().map(|wire| wire.iter().map(|k| at(&grid.items[*k])).collect()).collect(),
        layers: grid.layers.len(),
        width: round(right - left),
    }
}

/// Half pixels are enough, and short in a file.
fn round(x: f64) -> f64 {
    (x * 2.0).round() / 2.0
}

/// The layer of every box: below all that it reads, and no farther above its readers than it must be.
fn assign_layers(count: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut readers = vec![Vec::new(); count];
    let mut waits = vec![0usize; count];
    for (from, to) in edges.iter().filter(|(from, to)| from != to) {
        readers[*from].push(*to);
        waits[*to] += 1;
    }
    let is_source: Vec<bool> = waits.iter().map(|n| *n == 0).collect();
    let mut layer = vec![0usize; count];
    let mut is_done = vec![false; count];
    let mut ready: Vec<usize> = (0..count).filter(|k| waits[*k] == 0).collect();
    let mut order = Vec::with_capacity(count);
    let mut rest = 0;
    loop {
        let Some(k) = ready.pop() else {
            // Whatever is left is in a circle: the first of them goes without waiting.
            while rest < count && is_done[rest] {
                rest += 1;
            }
            if rest == count {
                break;
            }
            ready.push(rest);
            continue;
        };
        if std::mem::replace(&mut is_done[k], true) {
            continue;
        }
        order.push(k);
        for to in &readers[k] {
            waits[*to] -= 1;
            if !is_done[*to] {
                layer[*to] = layer[*to].max(layer[k] + 1);
                if waits[*to] == 0 {
                    ready.push(*to);
                }
            }
        }
    }
    for k in order.into_iter().rev().filter(|k| is_source[*k]) {
        let nearest = readers[k].iter().map(|to| layer[*to]).min().unwrap_or(0);
        layer[k] = nearest.saturating_sub(1);
    }
    layer
}

/// A box, or the place where an edge passes through a layer.
#[derive(Clone, Debug)]
struct Item {
    layer: usize,
    width: f64,
    x: f64,
    above: Vec<usize>,
    below: Vec<usize>,
}

/// Everything that takes room, by layer and in order.
struct Grid {
    items: Vec<Item>,
    layers: Vec<Vec<usize>>,
    wires: Vec<Vec<usize>>,
}

impl Grid {
    fn new(widths: &[f64], edges: &[(usize, usize)], layer_of: &[usize]) -> Grid {
        let boxed = |(width, layer): (&f64, &usize)| Item {
            layer: *layer,
            width: *width,
            x: 0.0,
            above: Vec::new(),
            below: Vec::new(),
        };
        let mut items: Vec<Item> = widths.iter().zip(layer_of).map(boxed).collect();
        let mut wires = Vec::with_capacity(edges.len());
        for (from, to) in edges {
            let between = layer_of[*from] + 1..layer_of[*to].max(layer_of[*from] + 1);
            let mut wire = Vec::new();
            if layer_of[*to] <= layer_of[*from] || between.len() > LONGEST {
                wires.push(wire);
                continue;
            }
            let mut last = *from;
            for layer in between {
                let next = items.len();
                items.push(Item { layer, width: WIRE, x: 0.0, above: vec![last], below: Vec::new() });
                items[last].below.push(next);
                wire.push(next);
                last = next;
            }
            items[last].below.push(*to);
            items[*to].above.push(last);
            wires.push(wire);
        }
        let mut layers = vec![Vec::new(); items.iter().map(|item| item.layer + 1).max().unwrap_or(0)];
        for (k, item) in items.iter().enumerate() {
            layers[item.layer].push(k);
        }
        Grid { items, layers, wires }
    }

    /// Puts every layer into the order in which its edges seldom cross: by the mean place of what is above, then below.
    fn order(&mut self) {
        let mut place = vec![0.0; self.items.len()];
        let number = |layer: &[usize], place: &mut [f64]| {
            layer.iter().enumerate().for_each(|(n, k)| place[*k] = n as f64 - layer.len() as f64 / 2.0);
        };
        self.layers.iter().for_each(|layer| number(layer, &mut place));
        for sweep in 0..SWEEPS {
            let down = sweep % 2 == 0;
            for n in 0..self.layers.len() {
                let n = if down { n } else { self.layers.len() - 1 - n };
                let items = &self.items;
                let wish = |k: &usize| {
                    let others = if down { &items[*k].above } else { &items[*k].below };
                    mean(others.iter().map(|other| place[*other])).unwrap_or(place[*k])
                };
                let mut wished: Vec<(f64, usize)> = self.layers[n].iter().map(|k| (wish(k), *k)).collect();
                wished.sort_by(|a, b| a.0.total_cmp(&b.0).then(place[a.1].total_cmp(&place[b.1])));
                self.layers[n] = wished.into_iter().map(|(_, k)| k).collect();
                number(&self.layers[n], &mut place);
            }
        }
    }

    /// Gives every item its place across: as near to its neighbours above and below as the order of its layer allows.
    fn place(&mut self) {
        for layer in &self.layers {
            let mut x = 0.0;
            for k in layer {
                self.items[*k].x = x + self.items[*k].width / 2.0;
                x += self.items[*k].width + GAP;
            }
            layer.iter().for_each(|k| self.items[*k].x -= x / 2.0);
        }
        for sweep in 0..2 * SWEEPS {
            let down = sweep % 2 == 0;
            for n in 0..self.layers.len() {
                let n = if down { n } else { self.layers.len() - 1 - n };
                let items = &self.items;
                let wish = |k: &usize| {
                    let (near, far) = (&items[*k].above, &items[*k].below);
                    let (near, far) = if down { (near, far) } else { (far, near) };
                    let at = |others: &[usize]| {
                        let pulls = others.iter().map(|other| pull(&items[*k], &items[*other]));
                        let sum: f64 = pulls.clone().sum();
                        let whole: f64 = pulls.zip(others).map(|(pull, other)| pull * items[*other].x).sum();
                        (sum > 0.0).then(|| whole / sum)
                    };
                    at(near).or_else(|| at(far)).unwrap_or(items[*k].x)
                };
                let wishes: Vec<f64> = self.layers[n].iter().map(wish).collect();
                let widths: Vec<f64> = self.layers[n].iter().map(|k| items[*k].width).collect();
                for (k, x) in self.layers[n].iter().zip(spread(&wishes, &widths)) {
                    self.items[*k].x = x;
                }
            }
        }
    }
}

fn mean(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = numbers.fold((0.0, 0usize), |(sum, count), x| (sum + x, count + 1));
    (count > 0).then(|| sum / count as f64)
}

/// How strongly two that are joined want to stand below each other: edges stay straight first, then boxes stay below boxes.
fn pull(a: &Item, b: &Item) -> f64 {
    match [a, b].map(|item| item.width == WIRE) {
        [true, true] => 8.0,
        [false, false] => 4.0,
        _ => 0.2,
    }
}

/// Places in the given order and far enough apart, as near to the wishes as that allows (least squares).
fn spread(wishes: &[f64], widths: &[f64]) -> Vec<f64> {
    // With all distances taken away, places must only not decrease: neighbours that would are put together at their mean.
    let mut offsets = vec![0.0; wishes.len()];
    for k in 1..wishes.len() {
        offsets[k] = offsets[k - 1] + (widths[k - 1] + widths[k]) / 2.0 + GAP;
    }
    let mut runs: Vec<(f64, usize)> = Vec::with_capacity(wishes.len());
    for (wish, offset) in wishes.iter().zip(&offsets) {
        runs.push((wish - offset, 1));
        while let [.., (a, n), (b, m)] = runs[..]
            && a > b
        {
            runs.truncate(runs.len() - 2);
            runs.push(((a * n as f64 + b * m as f64) / (n + m) as f64, n + m));
        }
    }
    let places = runs.into_iter().flat_map(|(x, count)| std::iter::repeat_n(x, count));
    places.zip(&offsets).map(|(x, offset)| x + offset).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No two boxes of a layer overlap, and every edge that does not close a circle points down.
    fn check(widths: &[f64], edges: &[(usize, usize)]) -> Layout {
        let laid = layout(widths, edges);
        let mut by_layer = vec![Vec::new(); laid.layers];
        for (k, (layer, x)) in laid.boxes.iter().enumerate() {
            assert!(*x >= widths[k] / 2.0 - 0.5 && x + widths[k] / 2.0 <= laid.width + 0.5, "{laid:?}");
            by_layer[*layer].push((x - widths[k] / 2.0, x + widths[k] / 2.0));
        }
        for layer in &mut by_layer {
            layer.sort_by(|a, b| a.0.total_cmp(&b.0));
            assert!(layer.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{layer:?}");
        }
        assert_eq!(laid.wires.len(), edges.len());
        assert_eq!(laid, layout(widths, edges));
        laid
    }

    #[test]
    fn a_chain_is_a_straight_line() {
        let laid = check(&[80.0, 200.0, 40.0], &[(0, 1), (1, 2)]);
        assert_eq!(laid.boxes, [(0, 100.0), (1, 100.0), (2, 100.0)]);
        assert_eq!(laid.layers, 3);
    }

    #[test]
    fn sides_of_a_diamond_stand_beside_each_other() {
        let laid = check(&[50.0; 4], &[(0, 1), (0, 2), (1, 3), (2, 3)]);
        assert_eq!(laid.boxes.iter().map(|(layer, _)| *layer).collect::<Vec<_>>(), [0, 1, 1, 2]);
        assert_eq!(laid.boxes[0].1, laid.boxes[3].1);
        let long = check(&[50.0; 4], &[(0, 1), (1, 2), (2, 3), (0, 3)]);
        assert_eq!(long.wires[3].len(), 2, "an edge past two layers goes through both");
    }

    #[test]
    fn sources_stand_by_their_readers() {
        let laid = check(&[50.0; 5], &[(0, 1), (1, 2), (2, 3), (4, 3)]);
        assert_eq!(laid.boxes[4].0, 2);
    }

    #[test]
    fn circles_and_loose_boxes_have_places() {
        check(&[50.0; 3], &[(0, 1), (1, 2), (2, 1), (2, 2)]);
        check(&[50.0; 3], &[]);
        assert_eq!(check(&[], &[]).layers, 0);
    }

    #[test]
    fn large_graphs_are_laid_out_at_once() {
        let count = 3000usize;
        let edges = (1..count).flat_map(|k| [(k - 1, k), (k / 2, k), (k.saturating_sub(7), k)]);
        let edges: Vec<(usize, usize)> = edges.filter(|(from, to)| from != to).collect();
        let start = std::time::Instant::now();
        check(&vec![120.0; count], &edges);
        assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
    }
}
