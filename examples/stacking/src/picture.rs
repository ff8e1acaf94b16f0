//! The picture: a single frame and stacks of more and more frames side by side.

mod font;

use std::fmt;

use crate::stack::measure::Stack;

type Colour = [u8; 3];

/// Screen pixels per pixel of a stack.
const ZOOM: usize = 8;
const MARGIN_PX: usize = 20;
const GAP_PX: usize = 16;
const TEXT_ZOOM: usize = 2;
/// From the top of one line of text to that of the next.
const LINE_PX: usize = 24;
/// The lines of text below a panel.
const LINES: usize = 3;

const PAPER: Colour = [18, 18, 24];
const BRIGHT_INK: Colour = [240, 240, 240];
const PALE_INK: Colour = [160, 160, 172];

/// A panel's stretch begins this many standard deviations of its noise below the sky …
const STRETCH_BELOW_SIGMAS: f64 = 2.5;
/// … and goes this many above it, or up to the source's peak where that is higher.
const STRETCH_ABOVE_SIGMAS: f64 = 3.5;

/// Colours evenly spread from the stretch's begin to its end (after matplotlib's "inferno").
const COLOURS: [Colour; 9] = [
    [0, 0, 4],
    [31, 12, 72],
    [85, 15, 109],
    [136, 34, 106],
    [186, 54, 85],
    [227, 89, 51],
    [249, 140, 10],
    [249, 201, 50],
    [252, 255, 164],
];

/// The picture could not be encoded.
#[derive(Debug)]
pub(crate) struct PictureError(png::EncodingError);

impl fmt::Display for PictureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot encode the picture: {}", self.0)
    }
}

impl std::error::Error for PictureError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// Draws stacks, `size_px` wide, side by side, and gives the PNG file. Each panel is stretched
/// linearly from somewhat below its own noise to somewhat above it or to its peak.
pub(crate) fn draw(stacks: &[Stack], size_px: usize) -> Result<Vec<u8>, PictureError> {
    let panel_px = size_px * ZOOM;
    let width =
        2 * MARGIN_PX + stacks.len() * (panel_px + GAP_PX) - GAP_PX.min(stacks.len() * GAP_PX);
    let height = 2 * MARGIN_PX + panel_px + LINES * LINE_PX;
    let mut canvas = Canvas { width, height, pixels: vec![PAPER; width * height] };
    for (place, stack) in stacks.iter().enumerate() {
        let left = MARGIN_PX + place * (panel_px + GAP_PX);
        let low = -STRETCH_BELOW_SIGMAS * stack.pixel_noise;
        let high = stack.peak.max(STRETCH_ABOVE_SIGMAS * stack.pixel_noise);
        for (index, value) in stack.pixels.iter().enumerate() {
            // The first row is the lowest.
            let (column, row) = (index % size_px, size_px - 1 - index / size_px);
            let colour = colour((value - low) / (high - low));
            canvas.fill([left + column * ZOOM, MARGIN_PX + row * ZOOM], [ZOOM, ZOOM], colour);
        }
        let frames = match stack.n {
            1 => "a single frame".to_owned(),
            n => format!("{n} frames"),
        };
        let sn = format!("S/N {:.1}", stack.peak / stack.peak_error);
        let stretch = format!("{low:.1} to +{high:.1} adu");
        for (line, (text, ink)) in
            [(frames, BRIGHT_INK), (sn, BRIGHT_INK), (stretch, PALE_INK)].into_iter().enumerate()
        {
            let top = MARGIN_PX + panel_px + LINE_PX / 2 + line * LINE_PX;
            canvas.write([left, top], &text, ink);
        }
    }
    canvas.encode()
}

/// The colour of a value whose stretch is 0 to 1.
fn colour(value: f64) -> Colour {
    let place = value.clamp(0.0, 1.0) * (COLOURS.len() - 1) as f64;
    // A value that is not a number becomes 0 here.
    let below = (place as usize).min(COLOURS.len() - 2);
    let share = place - below as f64;
    let mix = |channel: usize| {
        let [from, to] = [below, below + 1].map(|index| f64::from(COLOURS[index][channel]));
        (from + (to - from) * share).round() as u8
    };
    [mix(0), mix(1), mix(2)]
}

struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<Colour>,
}

impl Canvas {
    /// Fills a rectangle; what lies outside is left out.
    fn fill(&mut self, [left, top]: [usize; 2], [width, height]: [usize; 2], colour: Colour) {
        let right = (left + width).min(self.width);
        for row in top..(top + height).min(self.height) {
            if let Some(run) =
                self.pixels.get_mut(row * self.width + left..row * self.width + right)
            {
                run.fill(colour);
            }
        }
    }

    fn write(&mut self, [left, top]: [usize; 2], text: &str, ink: Colour) {
        for (place, character) in text.chars().enumerate() {
            for (row, bits) in font::glyph(character).into_iter().enumerate() {
                for column in
                    (0..font::ADVANCE_PX - 1).filter(|column| bits >> (4 - column) & 1 == 1)
                {
                    let x = left + (place * font::ADVANCE_PX + column) * TEXT_ZOOM;
                    self.fill([x, top + row * TEXT_ZOOM], [TEXT_ZOOM, TEXT_ZOOM], ink);
                }
            }
        }
    }

    fn encode(self) -> Result<Vec<u8>, PictureError> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, self.width as u32, self.height as u32);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header().map_err(PictureError)?;
        writer.write_image_data(self.pixels.as_flattened()).map_err(PictureError)?;
        writer.finish().map_err(PictureError)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_follow_the_table() {
        assert_eq!(colour(-1.0), COLOURS[0]);
        assert_eq!(colour(0.5), COLOURS[4]);
        assert_eq!(colour(1.0), COLOURS[8]);
        assert_eq!(colour(2.0), COLOURS[8]);
        colour(f64::NAN);
    }

    #[test]
    fn drawing_over_the_edge_is_cut_off() {
        let mut canvas = Canvas { width: 4, height: 3, pixels: vec![PAPER; 12] };
        canvas.fill([2, 2], [10, 10], BRIGHT_INK);
        canvas.fill([9, 0], [2, 2], BRIGHT_INK);
        canvas.write([1, 1], "overlong text", BRIGHT_INK);
        assert_eq!(canvas.pixels.len(), 12);
        assert_eq!(canvas.pixels[11], BRIGHT_INK);
    }
}
