//! The picture: a single frame and stacks of more and more frames side by side, and a chart of how
//! the signal-to-noise grows.

mod canvas;
mod chart;
mod font;

use crate::stack::measure::{Level, Stack};
use canvas::{Canvas, Colour};

/// A stack is enlarged up to this; one that is larger is shown as it is.
const PANEL_MAX_PX: usize = 328;
const MARGIN_PX: usize = 20;
const GAP_PX: usize = 16;
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
#[derive(Debug, thiserror::Error)]
#[error("cannot encode the picture: {0}")]
pub(crate) struct PictureError(#[source] png::EncodingError);

/// Draws stacks, `size_px` wide, side by side with the chart of `levels` after them, and gives the
/// PNG file. Each stack is stretched linearly from somewhat below its own noise to somewhat above it
/// or to its peak.
pub(crate) fn draw(
    stacks: &[Stack],
    levels: &[Level],
    size_px: usize,
) -> Result<Vec<u8>, PictureError> {
    let zoom = (PANEL_MAX_PX / size_px).max(1);
    let panel_px = size_px * zoom;
    let width = 2 * MARGIN_PX + stacks.len() * (panel_px + GAP_PX) + panel_px;
    let height = 2 * MARGIN_PX + panel_px + LINES * LINE_PX;
    let mut canvas = Canvas::new(width, height, PAPER);
    let left = |place: usize| MARGIN_PX + place * (panel_px + GAP_PX);
    let text_top = |line: usize| MARGIN_PX + panel_px + LINE_PX / 2 + line * LINE_PX;
    for (place, stack) in stacks.iter().enumerate() {
        let left = left(place);
        let [low, high] = stretch(stack);
        for (index, value) in stack.pixels.iter().enumerate() {
            // The first row is the lowest.
            let (column, row) = (index % size_px, size_px - 1 - index / size_px);
            let colour = colour((value - low) / (high - low));
            canvas.fill([left + column * zoom, MARGIN_PX + row * zoom], [zoom, zoom], colour);
        }
        let frames = match stack.n {
            1 => "a single frame".to_owned(),
            n => format!("{n} frames"),
        };
        let sn = format!("S/N {:.1}", stack.peak / stack.peak_error);
        canvas.write([left, text_top(0)], &frames, BRIGHT_INK);
        canvas.write([left, text_top(1)], &sn, BRIGHT_INK);
        let stretch = format!("{low:.1} to +{high:.1} adu");
        canvas.write([left, text_top(2)], &stretch, PALE_INK);
    }
    let left = left(stacks.len());
    chart::draw(&mut canvas, [left, MARGIN_PX], panel_px, levels, PALE_INK);
    canvas.write([left, text_top(0)], "S/N by number of frames", BRIGHT_INK);
    canvas.write([left, text_top(1)], "points: mean as measured", PALE_INK);
    canvas.write([left, text_top(2)], "line: root of n expected", PALE_INK);
    canvas.encode().map_err(PictureError)
}

/// The values that a panel's darkest and brightest colours stand for.
fn stretch(stack: &Stack) -> [f64; 2] {
    let high = stack.peak.max(STRETCH_ABOVE_SIGMAS * stack.pixel_noise);
    [-STRETCH_BELOW_SIGMAS * stack.pixel_noise, high]
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
}
