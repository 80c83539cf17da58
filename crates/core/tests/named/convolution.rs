use crate::call::{Op, at, coordinates, f32s, noise, op};
use fuseline::tensor::{DType, Literal};

struct Case {
    x: Vec<usize>,
    /// filters: [M, C / group, …] for a convolution, [C, M / group, …] for a transposed one
    w: Vec<usize>,
    group: usize,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    before: Vec<i64>,
    after: Vec<i64>,
    extra: Vec<i64>,
}

fn case(x: &[usize], w: &[usize]) -> Case {
    let rank = x.len() - 2;
    Case {
        x: x.to_vec(),
        w: w.to_vec(),
        group: 1,
        strides: vec![1; rank],
        dilations: vec![1; rank],
        before: vec![0; rank],
        after: vec![0; rank],
        extra: vec![0; rank],
    }
}

impl Case {
    fn op(&self, name: &'static str, x: &Literal, w: &Literal) -> Op {
        op(name)
            .int("group", self.group as i64)
            .ints("strides", &self.strides)
            .ints("dilations", &self.dilations)
            .ints("pads", &[self.before.clone(), self.after.clone()].concat())
            .arg(x.clone())
            .arg(w.clone())
    }

    fn convolution(&self) {
        let (x, w) = (noise(&self.x, 1), noise(&self.w, 2));
        let bias = noise(&[self.w[0]], 3);
        let y = &self.op("Conv", &x, &w).arg(bias.clone()).run()[0];
        let per_group = self.w[0] / self.group;
        for i in coordinates(y.sizes()) {
            let mut sum = bias.float(i[1]);
            for t in coordinates(&self.w[1..]) {
                let channel = i[1] / per_group * self.w[1] + t[0];
                let place = (0..self.strides.len())
                    .map(|k| i[2 + k] as i64 * self.strides[k] + t[1 + k] as i64 * self.dilations[k] - self.before[k]);
                let from: Vec<i64> = [i[0] as i64, channel as i64].into_iter().chain(place).collect();
                let tap: Vec<i64> = std::iter::once(i[1]).chain(t).map(|n| n as i64).collect();
                sum += at(&x, &from).unwrap_or(0.0) * at(&w, &tap).unwrap();
            }
            let found = at(y, &i.iter().map(|n| *n as i64).collect::<Vec<_>>()).unwrap();
            assert_eq!(found, sum, "{:?} at {i:?}", self.x);
        }
    }

    fn transposed(&self) {
        let (x, w) = (noise(&self.x, 1), noise(&self.w, 2));
        let y = &self.op("ConvTranspose", &x, &w).ints("output_padding", &self.extra).run()[0];
        let rank = self.strides.len();
        let size = |k: usize| {
            (self.x[2 + k] as i64 - 1) * self.strides[k] + (self.w[2 + k] as i64 - 1) * self.dilations[k] + 1
                - self.before[k]
                - self.after[k]
                + self.extra[k]
        };
        let mut wanted_sizes = vec![self.x[0], self.w[1] * self.group];
        wanted_sizes.extend((0..rank).map(|k| size(k) as usize));
        assert_eq!(y.sizes(), wanted_sizes);
        let mut wanted = f32s(&wanted_sizes, &vec![0.0; wanted_sizes.iter().product()]).to_f64s();
        let channels = self.x[1] / self.group;
        for i in coordinates(&self.x) {
            for t in coordinates(&self.w[1..]) {
                let filter = i[1] / channels * self.w[1] + t[0];
                let mut flat = i[0] * wanted_sizes[1] + filter;
                let mut inside = true;
                for k in 0..rank {
                    let o = i[2 + k] as i64 * self.strides[k] + t[1 + k] as i64 * self.dilations[k] - self.before[k];
                    inside &= (0..wanted_sizes[2 + k] as i64).contains(&o);
                    flat = flat * wanted_sizes[2 + k] + o.max(0) as usize;
                }
                if inside {
                    let tap: Vec<i64> = std::iter::once(i[1]).chain(t).map(|n| n as i64).collect();
                    let from: Vec<i64> = i.iter().map(|n| *n as i64).collect();
                    wanted[flat] += at(&x, &from).unwrap() * at(&w, &tap).unwrap();
                }
            }
        }
        assert_eq!(y.to_f64s(), wanted, "{:?} {:?}", self.x, self.w);
    }
}

#[test]
fn convolutions_are_sums_over_windows() {
    case(&[2, 3, 7], &[4, 3, 3]).convolution();
    case(&[2, 3, 7, 6], &[4, 3, 1, 1]).convolution();
    case(&[1, 2, 7, 6], &[2, 2, 3, 1]).convolution();
    Case { strides: vec![2, 3], before: vec![1, 0], after: vec![2, 1], ..case(&[2, 3, 7, 6], &[4, 3, 3, 2]) }
        .convolution();
    Case { dilations: vec![2, 1, 3], before: vec![1, 1, 2], ..case(&[1, 2, 6, 5, 7], &[3, 2, 2, 3, 2]) }.convolution();
    Case { group: 2, before: vec![1, 1], after: vec![1, 1], ..case(&[2, 6, 5, 4], &[4, 3, 3, 3]) }.convolution();
    Case { group: 6, strides: vec![2, 1], before: vec![1, 1], ..case(&[2, 6, 5, 4], &[6, 1, 3, 3]) }.convolution();
    Case { group: 3, before: vec![1, 1], ..case(&[2, 3, 5, 4], &[6, 1, 3, 3]) }.convolution();
}

#[test]
fn transposed_convolutions_spread_every_element() {
    case(&[2, 3, 5], &[3, 4, 3]).transposed();
    Case { strides: vec![2, 2], ..case(&[1, 3, 4, 5], &[3, 2, 2, 2]) }.transposed();
    Case { strides: vec![2, 3], before: vec![1, 2], after: vec![1, 0], ..case(&[2, 3, 4, 5], &[3, 2, 3, 4]) }
        .transposed();
    Case { strides: vec![3, 2], extra: vec![2, 1], before: vec![1, 0], ..case(&[1, 2, 4, 3], &[2, 3, 4, 3]) }
        .transposed();
    Case { strides: vec![2, 1], dilations: vec![3, 2], before: vec![2, 1], ..case(&[1, 2, 4, 3], &[2, 3, 3, 3]) }
        .transposed();
    Case { group: 2, strides: vec![2, 2], before: vec![1, 1], ..case(&[2, 4, 3, 3], &[4, 3, 3, 3]) }.transposed();
    Case { group: 4, strides: vec![2, 2], extra: vec![1, 1], ..case(&[2, 4, 3, 3], &[4, 1, 3, 3]) }.transposed();
    Case { strides: vec![4, 4], ..case(&[1, 1, 3, 2], &[1, 2, 2, 1]) }.transposed();
}

#[test]
fn automatic_padding_gives_a_window_per_stride() {
    for (auto, before) in [("SAME_UPPER", 0), ("SAME_LOWER", 1)] {
        let y = op("Conv")
            .str("auto_pad", auto)
            .ints("strides", &[2])
            .arg(f32s(&[1, 1, 4], &[1., 2., 3., 4.]))
            .arg(f32s(&[1, 1, 3], &[1., 10., 100.]))
            .run();
        let wanted = if before == 0 { [321., 43.] } else { [210., 432.] };
        assert_eq!(y[0].to_f64s(), wanted, "{auto}");
    }
    // The formula of version 1 exchanges the sides, which its own text on auto_pad contradicts.
    for opset in [7, 11, 22] {
        let transposed = || op("ConvTranspose").opset(opset).ints("strides", &[2]);
        for (auto, wanted) in [("SAME_UPPER", [1., 10., 102., 20.]), ("SAME_LOWER", [10., 102., 20., 200.])] {
            let (x, w) = (f32s(&[1, 1, 2], &[1., 2.]), f32s(&[1, 1, 3], &[1., 10., 100.]));
            let y = transposed().str("auto_pad", auto).arg(x).arg(w).run();
            assert_eq!(y[0].to_f64s(), wanted, "{auto} of version {opset}");
        }
    }
    let y = op("ConvTranspose")
        .ints("output_shape", &[6])
        .ints("strides", &[2])
        .arg(f32s(&[1, 1, 2], &[1., 2.]))
        .arg(f32s(&[1, 1, 3], &[1., 10., 100.]))
        .run();
    assert_eq!(y[0].to_f64s(), [1., 10., 102., 20., 200., 0.]);
}

#[test]
fn integer_convolutions_pad_with_the_zero_point() {
    let u8s = |sizes: &[usize], values: &[i64]| Literal::from_ints(DType::U8, sizes.to_vec(), values).unwrap();
    let y = op("ConvInteger")
        .ints("pads", &[1, 1])
        .arg(u8s(&[1, 1, 3], &[2, 3, 250]))
        .arg(u8s(&[2, 1, 3], &[1, 1, 1, 5, 6, 7]))
        .arg(u8s(&[], &[2]))
        .arg(u8s(&[2], &[0, 5]))
        .run();
    assert_eq!(y[0].dtype(), DType::I32);
    assert_eq!(y[0].to_ints(), [1, 249, 249, 2, 497, 248]);
}

/// A tensor `[N, C, H, W]` as `[N, H, W, C]`.
fn channels_last(x: &Literal) -> Literal {
    let &[n, c, h, w] = x.sizes() else { panic!("four axes") };
    let places = coordinates(&[n, h, w, c]);
    let values: Vec<f64> = places.iter().map(|i| x.float(((i[0] * c + i[3]) * h + i[1]) * w + i[2])).collect();
    Literal::from_f64s(x.dtype(), [n, h, w, c], &values).unwrap()
}

#[test]
fn channels_may_come_last() {
    let (x, w, bias) = (noise(&[2, 4, 5, 3], 1), noise(&[6, 2, 3, 2], 2), noise(&[6], 3));
    let with = |name: &'static str, x: &Literal| op(name).int("group", 2).ints("pads", &[1, 0, 1, 1]).arg(x.clone());
    let first = with("Conv", &x).arg(w.clone()).arg(bias.clone()).run().remove(0);
    let last = with("NhwcConv", &channels_last(&x)).domain("com.microsoft", 1).arg(w.clone()).arg(bias.clone()).run();
    assert_eq!(last[0].to_f64s(), channels_last(&first).to_f64s());
    let fused = with("NhwcFusedConv", &channels_last(&x)).domain("com.microsoft", 1).str("activation", "Relu");
    let fused = fused.arg(w).arg(bias).arg(channels_last(&first)).run();
    let wanted: Vec<f64> = last[0].to_f64s().iter().map(|y| (2.0 * y).max(0.0)).collect();
    assert_eq!(fused[0].to_f64s(), wanted);
    let pool = |name: &'static str, x: &Literal| op(name).ints("kernel_shape", &[2, 2]).arg(x.clone());
    let first = pool("MaxPool", &x).run().remove(0);
    let last = pool("NhwcMaxPool", &channels_last(&x)).domain("com.microsoft", 1).run();
    assert_eq!(last[0].to_f64s(), channels_last(&first).to_f64s());
}

#[test]
fn a_causal_convolution_hands_on_its_past() {
    let (x, w) = (noise(&[1, 2, 6], 1), noise(&[2, 1, 3], 2));
    let run = |x: Literal, past: Option<Literal>| {
        let op = op("CausalConvWithState").domain("com.microsoft", 1).int("dilation", 2).arg(x).arg(w.clone()).no_arg();
        past.map_or(op.clone(), |past| op.arg(past)).outputs(2).run()
    };
    let whole = run(x.clone(), None);
    for channel in 0..2 {
        for t in 0..6 {
            let tap = |j: usize| {
                at(&x, &[0, channel, t + 2 * j as i64 - 4]).unwrap_or(0.0) * w.float(channel as usize * 3 + j)
            };
            assert_eq!(at(&whole[0], &[0, channel, t]), Some((0..3).map(tap).sum()));
        }
    }
    // In two halves the result is the same.
    let half = |from: usize| {
        let values: Vec<f64> = [from, 6 + from].iter().flat_map(|k| (*k..k + 3).map(|k| x.float(k))).collect();
        f32s(&[1, 2, 3], &values)
    };
    let first = run(half(0), None);
    let second = run(half(3), Some(first[1].clone()));
    assert_eq!(second[1].to_f64s(), whole[1].to_f64s());
    let ends: Vec<f64> = [3, 4, 5, 9, 10, 11].iter().map(|k| whole[0].float(*k)).collect();
    assert_eq!(second[0].to_f64s(), ends);
}
