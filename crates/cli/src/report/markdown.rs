//! A report as Markdown.

use super::course::{Interval, Measure};
use super::sections::{Section, details, heading, overview, warning};
use super::shown::{Shown, span};
use crate::query::printable;

/// Characters of a command or a message in a table.
const TEXT_CHARS_MAX: usize = 80;
/// Columns of the curves.
const CURVE_COLUMNS: usize = 64;
const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The report as text.
pub(super) fn text(shown: &Shown) -> String {
    let mut out = format!("# Report\n\n{}\n\n", cell(&heading(shown), usize::MAX));
    if let Some(warning) = warning(shown) {
        out.push_str(&format!("{warning}\n\n"));
    }
    overview(shown).iter().for_each(|section| table(section, &mut out));
    if !shown.advice.is_empty() {
        out.push_str("## What would have made it faster\n\n");
        shown.advice.iter().for_each(|one| out.push_str(&format!("- {}\n", one.text)));
        out.push('\n');
    }
    course(shown, &mut out);
    details(shown).iter().for_each(|section| table(section, &mut out));
    out
}

/// A text in a cell of a table, without what would end it or act upon a terminal.
fn cell(text: &str, chars_max: usize) -> String {
    let text = printable(text);
    let mut short: String = text.chars().take(chars_max).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    let special =
        |letter: char| matches!(letter, '|' | '\\' | '`' | '*' | '_' | '<' | '>' | '[' | ']');
    short
        .chars()
        .flat_map(|letter| special(letter).then_some('\\').into_iter().chain([letter]))
        .collect()
}

fn table(section: &Section, out: &mut String) {
    let Section { title, note, heads, rows } = section;
    if !title.is_empty() {
        out.push_str(&format!("## {title}\n\n"));
    }
    if !note.is_empty() {
        out.push_str(&format!("{note}\n\n"));
    }
    out.push_str(&format!("| {} |\n|{}\n", heads.join(" | "), "---|".repeat(heads.len())));
    for row in rows {
        let cells: Vec<String> = row.iter().map(|text| cell(text, TEXT_CHARS_MAX)).collect();
        out.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    out.push('\n');
}

/// A curve of as many characters as there are values.
fn curve(values: &[f64]) -> (String, f64) {
    let most = values.iter().copied().fold(0.0, f64::max);
    let level = |value: &f64| match most > 0.0 {
        true => LEVELS[((value / most * 8.0).ceil() as usize).min(8)],
        false => LEVELS[0],
    };
    (values.iter().map(level).collect(), most)
}

fn course(shown: &Shown, out: &mut String) {
    if shown.course.len() < 2 {
        return;
    }
    out.push_str(&format!(
        "## Course\n\nFrom the first task to the last, {}. Means over intervals.\n\n```text\n",
        span(shown.run.makespan_s)
    ));
    let step = shown.course.len().div_ceil(CURVE_COLUMNS);
    let columns: Vec<&[Interval]> = shown.course.chunks(step).collect();
    let mean = |of: &dyn Fn(&Interval) -> f64| -> Vec<f64> {
        let each = columns.iter().map(|column| {
            let micros: f64 = column.iter().map(|one| one.micros as f64).sum();
            column.iter().map(|one| of(one) * one.micros as f64).sum::<f64>() / micros.max(1.0)
        });
        each.collect()
    };
    let lines: [(&str, Vec<f64>); 6] = [
        ("ended/s", mean(&Interval::rate)),
        ("queued", mean(&|one| one.mean(Measure::Queued))),
        ("at executors", mean(&|one| one.mean(Measure::Sent))),
        ("running", mean(&|one| one.mean(Measure::Running))),
        ("slots", mean(&|one| one.mean(Measure::Slots))),
        ("executors", mean(&|one| one.mean(Measure::Executors))),
    ];
    for (name, values) in lines {
        let (curve, most) = curve(&values);
        out.push_str(&format!("{name:>12} |{curve}| at most {most:.1}\n"));
    }
    out.push_str("```\n\n");
}
