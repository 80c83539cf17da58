//! Pictures as PNG: shapes by a rasteriser, letters as bitmaps that are part of the program, so that no font need be there.

use fuseline::error::{Error, Result};
use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};
use tiny_skia::{
    Color, FillRule, LineCap, Paint as Brush, PathBuilder, Pixmap, PremultipliedColorU8, Stroke, Transform,
};

use super::scene::{Anchor, Item, Paint, Scene, Weight};

/// Pixels for every unit of a scene: sharp on fine screens too.
const SCALE: f32 = 2.0;

type Rgb = (u8, u8, u8);
const PAPER: Rgb = (0xfb, 0xfa, 0xf7);
const INK: Rgb = (0x35, 0x33, 0x2e);
const SOFT: Rgb = (0x6f, 0x6b, 0x61);
const MEMORY: [Rgb; 4] = [(0x4a, 0x7b, 0xa6), (0x7f, 0xa3, 0xc4), (0xa9, 0xc2, 0xd8), (0xc9, 0xd8, 0xe6)];
const PEAK: [Rgb; 4] = [(0xb3, 0x65, 0x3f), (0xcf, 0x91, 0x70), (0xe0, 0xb5, 0x9d), (0xec, 0xd2, 0xc2)];

/// A file.
pub fn file(scene: &Scene) -> Result<Vec<u8>> {
    let size = |x: f64| (x as f32 * SCALE).ceil() as u32;
    let refused = || Error::limit("a picture of this size");
    let mut picture = Pixmap::new(size(scene.width), size(scene.height)).ok_or_else(refused)?;
    picture.fill(color(PAPER));
    for item in &scene.items {
        match item {
            Item::Line { from, to, paint } => line(&mut picture, *from, *to, *paint),
            Item::Dot { at, radius, paint, .. } => dot(&mut picture, *at, *radius as f32, *paint),
            Item::Text { at, text, anchor, weight, degrees } => {
                words(&mut picture, *at, text, *anchor, *weight, *degrees);
            }
        }
    }
    picture.encode_png().map_err(|error| Error::bug(format!("a picture cannot be written: {error}")))
}

fn color((r, g, b): Rgb) -> Color {
    Color::from_rgba8(r, g, b, 255)
}

fn brush(rgb: Rgb) -> Brush<'static> {
    let mut brush = Brush { anti_alias: true, ..Brush::default() };
    brush.set_color(color(rgb));
    brush
}

fn line(picture: &mut Pixmap, from: (f64, f64), to: (f64, f64), paint: Paint) {
    let (rgb, width) = match paint {
        Paint::Grid => ((0xe7, 0xe4, 0xdc), 1.0),
        Paint::Axis => ((0x8a, 0x86, 0x7c), 1.0),
        Paint::Memory(n) => (MEMORY[n.min(3)], 2.0),
        Paint::Peak(n) => (PEAK[n.min(3)], 2.0),
        Paint::Fused(..) | Paint::Unfused(_) => (INK, 1.0),
    };
    let mut path = PathBuilder::new();
    path.move_to(from.0 as f32, from.1 as f32);
    path.line_to(to.0 as f32, to.1 as f32);
    let Some(path) = path.finish() else { return };
    let stroke = Stroke { width, line_cap: LineCap::Round, ..Stroke::default() };
    picture.stroke_path(&path, &brush(rgb), &stroke, Transform::from_scale(SCALE, SCALE), None);
}

fn dot(picture: &mut Pixmap, at: (f64, f64), radius: f32, paint: Paint) {
    let Some(path) = PathBuilder::from_circle(at.0 as f32, at.1 as f32, radius) else { return };
    let scale = Transform::from_scale(SCALE, SCALE);
    let stroke = |width| Stroke { width, ..Stroke::default() };
    match paint {
        Paint::Fused(..) => {
            let mut fill = brush((0x2f, 0x7d, 0x5d));
            fill.set_color_rgba8(0x2f, 0x7d, 0x5d, 200);
            picture.fill_path(&path, &fill, FillRule::Winding, scale, None);
            picture.stroke_path(&path, &brush(PAPER), &stroke(1.0), scale, None);
        }
        _ => picture.stroke_path(&path, &brush((0x9b, 0x94, 0x88)), &stroke(1.2), scale, None),
    }
}

/// Letters one by one: each pixel of a letter's bitmap is put where the turned line of text has it.
fn words(picture: &mut Pixmap, at: (f64, f64), text: &str, anchor: Anchor, weight: Weight, degrees: f64) {
    let (height, font, rgb) = match weight {
        Weight::Title => (RasterHeight::Size24, FontWeight::Bold, INK),
        Weight::Label => (RasterHeight::Size20, FontWeight::Regular, INK),
        Weight::Small => (RasterHeight::Size20, FontWeight::Regular, SOFT),
    };
    // The one letter of ours that has no bitmap.
    let text = &text.replace('…', "..");
    let width = get_raster_width(font, height);
    let whole = (width * text.chars().count()) as f64;
    let begin = match anchor {
        Anchor::Start => 0.0,
        Anchor::Middle => -whole / 2.0,
        Anchor::End => -whole,
    };
    let (sin, cos) = degrees.to_radians().sin_cos();
    let baseline = height.val() as f64 * 0.78;
    for (k, letter) in text.chars().enumerate() {
        // A letter without a bitmap is shown as such.
        let Some(raster) = get_raster(letter, font, height).or_else(|| get_raster('?', font, height)) else { continue };
        for (row, line) in raster.rows().enumerate() {
            for (column, ink) in line.iter().enumerate().filter(|(_, ink)| **ink > 0) {
                let (x, y) = (begin + (k * width + column) as f64, row as f64 - baseline);
                let place = |along: f64, origin: f64| origin * f64::from(SCALE) + along;
                blend(picture, place(x * cos - y * sin, at.0), place(x * sin + y * cos, at.1), *ink, rgb);
            }
        }
    }
}

/// Puts some ink between the four pixels around a point, so that turned letters stay smooth.
fn blend(picture: &mut Pixmap, x: f64, y: f64, ink: u8, rgb: Rgb) {
    let (left, top) = (x.floor(), y.floor());
    let (right, low) = (x - left, y - top);
    for (dx, dy, part) in [
        (0, 0, (1.0 - right) * (1.0 - low)),
        (1, 0, right * (1.0 - low)),
        (0, 1, (1.0 - right) * low),
        (1, 1, right * low),
    ] {
        let (x, y) = (left as i64 + dx, top as i64 + dy);
        let (width, height) = (i64::from(picture.width()), i64::from(picture.height()));
        if x < 0 || y < 0 || x >= width || y >= height {
            continue;
        }
        let pixel = &mut picture.pixels_mut()[(y * width + x) as usize];
        let cover = f64::from(ink) / 255.0 * part;
        let mixed = |old: u8, new: u8| (f64::from(old) * (1.0 - cover) + f64::from(new) * cover).round() as u8;
        let (r, g, b) = (mixed(pixel.red(), rgb.0), mixed(pixel.green(), rgb.1), mixed(pixel.blue(), rgb.2));
        *pixel = PremultipliedColorU8::from_rgba(r, g, b, 255).unwrap_or(*pixel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_have_their_size_and_something_on_them() {
        let text = |words: &str, degrees| Item::Text {
            at: (50.0, 50.0),
            text: words.into(),
            anchor: Anchor::Middle,
            weight: Weight::Label,
            degrees,
        };
        let items = vec![
            Item::Line { from: (0.0, 0.0), to: (100.0, 100.0), paint: Paint::Memory(9) },
            Item::Dot { at: (20.0, 80.0), radius: 5.0, paint: Paint::Fused(0, 0), title: String::new() },
            text("L1 714 GB/s", -30.0),
            text("µ ↯ 漢 far outside of the picture, on both sides of it", 0.0),
        ];
        let file = file(&Scene { width: 100.0, height: 100.0, title: String::new(), items }).unwrap();
        let picture = Pixmap::decode_png(&file).unwrap();
        assert_eq!((picture.width(), picture.height()), (200, 200));
        let paper = picture.pixels()[199].demultiply();
        let inked = picture.pixels().iter().filter(|pixel| pixel.demultiply() != paper).count();
        assert!(inked > 1000 && inked < 20_000, "{inked}");
    }
}
