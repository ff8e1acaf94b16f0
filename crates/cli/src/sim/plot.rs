//! Drawings of figures over time, as SVG in a page: axes with round numbers,
//! units, a legend. Colours come from the page's style sheet.

use std::fmt::Write;

/// Colours that the style sheet has; further lines take them again, dashed.
pub(super) const COLOURS: usize = 8;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 44.0;
/// About how many numbers an axis has.
const TICKS: f64 = 5.0;

/// Text as it stands in an element or between double quotes. What XML cannot
/// have is shown as such.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(' '),
            c if c.is_control() || c == '\u{fffe}' || c == '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A line of a chart.
pub(super) struct Line {
    pub(super) name: String,
    /// In the order of their first coordinates.
    pub(super) points: Vec<(f64, f64)>,
    /// The line is a bound, not a measurement.
    pub(super) is_ideal: bool,
}

impl Line {
    pub(super) fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Line {
        Line { name: name.into(), points, is_ideal: false }
    }
}

/// How a chart shows its lines.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// Each for itself.
    Lines,
    /// As areas, each on top of the one before; ideals stay lines.
    Stacked,
}

/// Values over time.
pub(super) struct Chart {
    pub(super) title: &'static str,
    /// The vertical quantity, with its unit.
    pub(super) unit: &'static str,
    pub(super) kind: Kind,
    pub(super) lines: Vec<Line>,
}

/// An axis from 0 to something round.
struct Axis {
    end: f64,
    step: f64,
}

impl Axis {
    fn new(greatest: f64) -> Axis {
        let greatest = if greatest.is_finite() && greatest > 0.0 { greatest } else { 1.0 };
        let rough = greatest / TICKS;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
        let step = step.into_iter().find(|step| *step >= rough).unwrap_or(10.0 * power);
        Axis { end: (greatest / step).ceil() * step, step }
    }

    /// The numbers at the axis, as they are and as they are written.
    fn ticks(&self) -> impl Iterator<Item = (f64, String)> + '_ {
        let decimals = (-self.step.log10().floor()).clamp(0.0, 9.0) as usize;
        let count = (self.end / self.step).round() as usize;
        (0..=count).map(move |at| {
            let value = at as f64 * self.step;
            let text = match decimals {
                0 => crate::amount::shown(value.round()),
                _ => format!("{value:.decimals$}"),
            };
            (value, text)
        })
    }
}

/// Where values are in a drawing.
struct Frame {
    across: Axis,
    up: Axis,
}

impl Frame {
    fn x(&self, value: f64) -> f64 {
        LEFT + (value / self.across.end).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        HEIGHT - BOTTOM - (value / self.up.end).clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    }

    /// A path through points, `M` or `L` first.
    fn path(&self, out: &mut String, points: impl Iterator<Item = (f64, f64)>, first: char) {
        let mut letter = first;
        for (x, y) in points {
            // Writing to a string cannot fail.
            let _ = write!(out, "{letter}{:.1} {:.1}", self.x(x), self.y(y));
            letter = 'L';
        }
    }

    /// Lines across with numbers, and what they are of.
    fn axes(&self, out: &mut String, across: &str, up: &str) {
        for (value, text) in self.up.ticks() {
            let y = self.y(value);
            let _ = write!(
                out,
                "<line class=\"rule\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0
            );
        }
        let foot = HEIGHT - BOTTOM;
        for (value, text) in self.across.ticks() {
            let x = self.x(value);
            let _ = write!(
                out,
                "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{foot}\" y2=\"{}\"/>\
                 <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{text}</text>",
                foot + 4.0,
                foot + 18.0
            );
        }
        let _ = write!(
            out,
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{foot}\" y2=\"{foot}\"/>\
             <text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
             <text transform=\"translate(14 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            WIDTH - RIGHT,
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 6.0,
            escape(across),
            (TOP + foot) / 2.0,
            escape(up)
        );
    }
}

/// How the line at a place in the list is drawn.
fn look(at: usize) -> String {
    let dash = if at >= COLOURS { ";stroke-dasharray:6 3" } else { "" };
    format!("stroke:var(--c{}){dash}", at % COLOURS)
}

fn opening(out: &mut String, title: &str) {
    let title = escape(title);
    let _ = write!(
        out,
        "<figure><figcaption>{title}</figcaption><svg xmlns=\"http://www.w3.org/2000/svg\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">"
    );
}

impl Chart {
    /// The chart as an element of a page.
    pub(super) fn figure(&self) -> String {
        let sums = self.sums();
        let all = || sums.iter().chain(self.ideals().map(|line| &line.points)).flatten();
        let greatest = |of: fn(&(f64, f64)) -> f64| all().map(of).fold(0.0, f64::max);
        let frame =
            Frame { across: Axis::new(greatest(|at| at.0)), up: Axis::new(greatest(|at| at.1)) };
        let mut out = String::new();
        opening(&mut out, self.title);
        frame.axes(&mut out, "time, s", self.unit);
        for (at, sum) in sums.iter().enumerate() {
            let points = sum.iter().copied();
            if self.kind == Kind::Lines {
                out.push_str("<path class=\"line\" d=\"");
                frame.path(&mut out, points, 'M');
                let _ = write!(out, "\" style=\"{}\"/>", look(at));
                continue;
            }
            out.push_str("<path class=\"area\" d=\"");
            frame.path(&mut out, points, 'M');
            match at.checked_sub(1).and_then(|below| sums.get(below)) {
                Some(below) => frame.path(&mut out, below.iter().rev().copied(), 'L'),
                None => {
                    let ends = [sum.last(), sum.first()].into_iter().flatten();
                    frame.path(&mut out, ends.map(|(x, _)| (*x, 0.0)), 'L');
                }
            }
            let _ = write!(out, "Z\" style=\"fill:var(--c{})\"/>", at % COLOURS);
        }
        for ideal in self.ideals() {
            out.push_str("<path class=\"line ideal\" d=\"");
            frame.path(&mut out, ideal.points.iter().copied(), 'M');
            out.push_str("\"/>");
        }
        out.push_str("</svg>");
        self.legend(&mut out);
        out.push_str("</figure>\n");
        out
    }

    fn ideals(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().filter(|line| line.is_ideal && !line.points.is_empty())
    }

    /// The lines as they are drawn: in a stack, each with those below it.
    fn sums(&self) -> Vec<Vec<(f64, f64)>> {
        let mut sums: Vec<Vec<(f64, f64)>> = Vec::new();
        for line in self.lines.iter().filter(|line| !line.is_ideal) {
            let below = sums.last().filter(|_| self.kind == Kind::Stacked);
            let on = |at: usize| below.and_then(|below| below.get(at)).map_or(0.0, |one| one.1);
            let points = line.points.iter().enumerate();
            sums.push(points.map(|(at, (x, y))| (*x, y + on(at))).collect());
        }
        sums
    }

    fn legend(&self, out: &mut String) {
        out.push_str("<ul>");
        for (at, line) in self.lines.iter().filter(|line| !line.is_ideal).enumerate() {
            let dashed = if at >= COLOURS { " dashed" } else { "" };
            let (colour, name) = (at % COLOURS, escape(&line.name));
            let _ = write!(
                out,
                "<li><span class=\"key{dashed}\" style=\"border-color:var(--c{colour})\"></span>\
                 {name}</li>"
            );
        }
        for ideal in self.ideals() {
            let name = escape(&ideal.name);
            let _ = write!(out, "<li><span class=\"key ideal\"></span>{name}</li>");
        }
        out.push_str("</ul>");
    }
}

/// A bar for each row of a grid, up to 100 %.
pub(super) fn bars(title: &str, rows: &[(String, f64)]) -> String {
    let frame = Frame { across: Axis::new(rows.len() as f64), up: Axis::new(100.0) };
    let mut out = String::new();
    opening(&mut out, title);
    frame.axes(&mut out, "row of the table", "%");
    for (at, (name, value)) in rows.iter().enumerate() {
        let (from, to) = (frame.x(at as f64 + 0.15), frame.x(at as f64 + 0.85));
        let (top, foot) = (frame.y(*value), frame.y(0.0));
        let _ = write!(
            out,
            "<rect x=\"{from:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" \
             style=\"fill:var(--c0)\"><title>{}: {value:.2} %</title></rect>",
            to - from,
            foot - top,
            escape(name)
        );
    }
    out.push_str("</svg></figure>\n");
    out
}
