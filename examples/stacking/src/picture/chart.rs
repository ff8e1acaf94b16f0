//! The chart of signal-to-noise against the number of frames, both axes logarithmic: points that
//! follow √n lie on a straight line.

use std::ops::Range;

use super::canvas::{Canvas, Colour, TEXT_HEIGHT_PX, text_width_px};
use crate::stack::measure::Level;

const GROUND: Colour = [8, 8, 12];
const GRID: Colour = [52, 52, 64];
const LINE: Colour = [136, 34, 106];
const POINT: Colour = [249, 201, 50];
const POINT_PX: usize = 7;
/// Between an axis and the first or last point.
const INSET_PX: f64 = 14.0;
/// Between a label and the axis.
const LABEL_GAP_PX: usize = 6;

/// Draws the chart into a square, given by its left and top and its side: measured points upon the
/// line that was expected. Labels stand inside. Without a point above zero there is only the ground.
pub(crate) fn draw(
    canvas: &mut Canvas,
    [left, top]: [usize; 2],
    side_px: usize,
    levels: &[Level],
    ink: Colour,
) {
    canvas.fill([left, top], [side_px, side_px], GROUND);
    let drawable = |sn: f64| sn.is_finite() && sn > 0.0;
    let points: Vec<&Level> =
        levels.iter().filter(|level| drawable(level.sn()) && drawable(level.expected_sn)).collect();
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
    let all = || points.iter().flat_map(|level| [level.sn(), level.expected_sn]).map(f64::log10);
    let frames = (first.n as f64).log10()..(last.n as f64).log10();
    let ratios = all().fold(f64::INFINITY, f64::min)..all().fold(f64::NEG_INFINITY, f64::max);

    let inner = side_px as f64 - 2.0 * INSET_PX;
    let share = |value: f64, range: &Range<f64>| {
        // A range of one value has it at its beginning.
        (value - range.start) / (range.end - range.start).max(f64::MIN_POSITIVE)
    };
    let x = |frame: f64| left as f64 + INSET_PX + inner * share(frame, &frames);
    let y = |ratio: f64| (top + side_px) as f64 - INSET_PX - inner * share(ratio, &ratios);

    for power in powers_of_ten(&frames) {
        let label = label(power);
        let at = x(f64::from(power));
        canvas.fill([at as usize, top], [1, side_px], GRID);
        let label_left = (at as usize + LABEL_GAP_PX)
            .min((left + side_px).saturating_sub(text_width_px(&label)));
        canvas.write([label_left, top + side_px - TEXT_HEIGHT_PX - LABEL_GAP_PX], &label, ink);
    }
    for power in powers_of_ten(&ratios) {
        let at = y(f64::from(power)) as usize;
        canvas.fill([left, at], [side_px, 1], GRID);
        let label_top = at.saturating_sub(TEXT_HEIGHT_PX + LABEL_GAP_PX).max(top);
        canvas.write([left + LABEL_GAP_PX + INSET_PX as usize, label_top], &label(power), ink);
    }
    let place = |level: &Level, sn: f64| [x((level.n as f64).log10()), y(sn.log10())];
    canvas.line(place(first, first.expected_sn), place(last, last.expected_sn), LINE);
    for level in points {
        canvas.dot(place(level, level.sn()), POINT_PX, POINT);
    }
}

fn powers_of_ten(range: &Range<f64>) -> impl Iterator<Item = i32> + use<> {
    range.start.ceil() as i32..=range.end.floor() as i32
}

fn label(power: i32) -> String {
    if power < 0 {
        format!("{:.*}", power.unsigned_abs() as usize, 10_f64.powi(power))
    } else {
        format!("{:.0}", 10_f64.powi(power))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_ten_lie_in_the_range() {
        assert_eq!(
            powers_of_ten(&(-0.2..3.2)).map(label).collect::<Vec<_>>(),
            ["1", "10", "100", "1000"]
        );
        assert_eq!(powers_of_ten(&(-2.0..-0.5)).map(label).collect::<Vec<_>>(), ["0.01", "0.1"]);
        assert_eq!(powers_of_ten(&(0.2..0.9)).count(), 0);
    }

    #[test]
    fn odd_levels_are_drawn_without_harm() {
        let level = |n, signal, expected_sn| Level {
            n,
            groups: 1,
            signal,
            noise: 1.0,
            scatter: None,
            expected_sn,
        };
        let mut canvas = Canvas::new(100, 100, [0; 3]);
        for levels in [
            vec![],
            vec![level(1, -1.0, 1.0)],
            vec![level(1, 1.0, 1.0)],
            vec![level(1, f64::NAN, 1.0), level(2, 1e300, 1e-300), level(4, 1.0, f64::INFINITY)],
            vec![level(1, 1e-300, 1.0), level(2, 1e300, 1.0)],
        ] {
            draw(&mut canvas, [10, 10], 80, &levels, [255; 3]);
        }
    }
}
