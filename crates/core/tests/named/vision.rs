use crate::call::{at, coordinates, f32s, noise, op};
use fuseline::ops::named::Attribute;
use fuseline::tensor::Literal;

/// The value between four elements, by the rules of RoiAlign: zero beyond one element outside.
fn between(x: &Literal, image: i64, channel: i64, y: f64, column: f64, largest: bool) -> f64 {
    let (height, width) = (x.sizes()[2] as f64, x.sizes()[3] as f64);
    if y < -1.0 || y > height || column < -1.0 || column > width {
        return 0.0;
    }
    let ends = |at: f64, size: f64| {
        let at = at.max(0.0);
        let low = at.floor().min(size - 1.0);
        let fraction = if at.floor() >= size - 1.0 { 0.0 } else { at - low };
        [(low, 1.0 - fraction), ((low + 1.0).min(size - 1.0), fraction)]
    };
    let mut corners = Vec::new();
    for (row, a) in ends(y, height) {
        for (column, b) in ends(column, width) {
            corners.push(at(x, &[image, channel, row as i64, column as i64]).unwrap() * a * b);
        }
    }
    if largest { corners.into_iter().fold(f64::NEG_INFINITY, f64::max) } else { corners.iter().sum() }
}

#[test]
fn regions_are_sampled_by_bins() {
    let x = noise(&[2, 2, 6, 5], 4);
    let rois = [[0.5, 1.0, 3.5, 4.75], [-2.0, 0.0, 4.0, 7.5], [1.0, 1.0, 1.0, 1.0], [3.0, 4.0, 2.0, 1.0]];
    let images = [0, 1, 1, 0];
    for mode in ["avg", "max"] {
        for half in [true, false] {
            for ratio in [0, 2] {
                let y = op("RoiAlign")
                    .str("mode", mode)
                    .str("coordinate_transformation_mode", if half { "half_pixel" } else { "output_half_pixel" })
                    .int("sampling_ratio", ratio)
                    .int("output_height", 2)
                    .int("output_width", 3)
                    .with("spatial_scale", Attribute::Float(0.75))
                    .arg(x.clone())
                    .arg(f32s(&[4, 4], rois.as_flattened()))
                    .arg(Literal::i64s(&images))
                    .run();
                for (k, i) in coordinates(&[4, 2, 2, 3]).iter().enumerate() {
                    let edges = rois[i[0]].map(|e| e * 0.75 - if half { 0.5 } else { 0.0 });
                    let axis = |first: usize, bins: usize, place: usize| {
                        let mut extent = edges[first + 2] - edges[first];
                        extent = if half { extent } else { extent.max(1.0) };
                        let bin = extent / bins as f64;
                        let number = if ratio > 0 { ratio } else { bin.ceil() as i64 };
                        let at =
                            move |s: i64| edges[first] + place as f64 * bin + (s as f64 + 0.5) * bin / number as f64;
                        (0..number).map(at).collect::<Vec<_>>()
                    };
                    let (rows, columns) = (axis(1, 2, i[2]), axis(0, 3, i[3]));
                    let (image, channel) = (images[i[0]], i[1] as i64);
                    let samples: Vec<f64> = rows
                        .iter()
                        .flat_map(|y| columns.iter().map(move |c| (*y, *c)))
                        .map(|(y, c)| between(&x, image, channel, y, c, mode == "max"))
                        .collect();
                    let wanted = match mode {
                        "avg" => samples.iter().sum::<f64>() / samples.len().max(1) as f64,
                        _ => samples.iter().copied().reduce(f64::max).unwrap_or(0.0),
                    };
                    let found = y[0].float(k);
                    assert!((found - wanted).abs() < 1e-4, "{mode} {half} {ratio} at {i:?}: {found} {wanted}");
                }
            }
        }
    }
}

#[test]
fn the_largest_element_of_every_bin() {
    let x = noise(&[2, 2, 6, 5], 4);
    let rois = [[0., 0., 1., 4., 4.], [1., 1., 2., 9., 9.], [1., 7., 7., 9., 9.], [0., 2., 2., 2., 2.]];
    let y = op("MaxRoiPool").ints("pooled_shape", &[2, 3]).arg(x.clone()).arg(f32s(&[4, 5], rois.as_flattened())).run();
    for (k, i) in coordinates(&[4, 2, 2, 3]).iter().enumerate() {
        let roi = rois[i[0]].map(|e: f64| e as i64);
        let members = |first: usize, size: usize, bins: usize, place: usize| {
            let bin = (roi[first + 2] - roi[first] + 1).max(1) as f64 / bins as f64;
            let low = (place as f64 * bin).floor() as i64 + roi[first];
            let high = ((place + 1) as f64 * bin).ceil() as i64 + roi[first];
            low.clamp(0, size as i64)..high.clamp(0, size as i64)
        };
        let elements = members(2, 6, 2, i[2]).flat_map(|r| members(1, 5, 3, i[3]).map(move |c| (r, c)));
        let elements = elements.map(|(r, c)| at(&x, &[roi[0], i[1] as i64, r, c]).unwrap());
        assert_eq!(y[0].float(k), elements.reduce(f64::max).unwrap_or(0.0), "at {i:?}");
    }
}
