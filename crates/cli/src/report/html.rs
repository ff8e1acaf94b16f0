//! A report as one page that needs nothing from elsewhere: the papers' plots, and the tables.

use super::course::{Interval, Measure};
use super::sections::{Section, details, heading, overview, warning};
use super::shown::{Shown, span};
use crate::charts::{Chart, Kind, Line, escape, foot, head};
use std::fmt::Write;

/// The page.
pub(super) fn page(shown: &Shown) -> String {
    let title = match shown.instances.as_slice() {
        [(id, name)] if name.is_empty() => format!("Instance {id}"),
        [(_, name)] => name.clone(),
        _ => "Report".to_owned(),
    };
    let title = escape(&title);
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head>{}<title>{title}</title></head><body><main>\n\
         <h1>{title}</h1>\n<noscript><p>Scripts draw the charts; this browser runs none. \
         <code>--markdown</code> and <code>--json</code> have the same numbers.</p></noscript>\n\
         <p>{}</p>\n",
        head(),
        escape(&heading(shown))
    );
    if let Some(warning) = warning(shown) {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "<p><strong>{}</strong></p>", escape(&warning));
    }
    overview(shown).iter().for_each(|section| table(section, &mut out));
    if !shown.advice.is_empty() {
        out.push_str("<h2>What would have made it faster</h2>\n<ul>\n");
        for one in &shown.advice {
            let _ = writeln!(out, "<li>{}</li>", escape(&one.text));
        }
        out.push_str("</ul>\n");
    }
    if shown.course.len() > 1 {
        let _ = writeln!(
            out,
            "<h2>Course</h2>\n<p>From the first task to the last, {}. Means over intervals; times \
             are seconds since the first task.</p>",
            escape(&span(shown.run.makespan_s))
        );
        charts(shown).iter().for_each(|chart| out.push_str(&chart.figure()));
    }
    details(shown).iter().for_each(|section| table(section, &mut out));
    let _ = writeln!(out, "</main>{}</body></html>", foot());
    out
}

fn table(section: &Section, out: &mut String) {
    let Section { title, note, heads, rows } = section;
    if !title.is_empty() {
        let _ = writeln!(out, "<h2>{}</h2>", escape(title));
    }
    if !note.is_empty() {
        let _ = writeln!(out, "<p>{}</p>", escape(note));
    }
    let label = if title.is_empty() { "Summary" } else { title };
    // A part that scrolls can be scrolled with the keyboard.
    let _ = write!(
        out,
        "<div class=\"wide\" role=\"region\" aria-label=\"{}\" tabindex=\"0\"><table>",
        escape(label)
    );
    if heads.iter().any(|head| !head.is_empty()) {
        let heads = heads.iter().map(|head| format!("<th scope=\"col\">{}</th>", escape(head)));
        let _ = write!(out, "<thead><tr>{}</tr></thead>", heads.collect::<String>());
    }
    out.push_str("<tbody>\n");
    for row in rows {
        let cells = row.iter().enumerate().map(|(at, text)| {
            let text = escape(text);
            match at {
                0 => format!("<th scope=\"row\">{text}</th>"),
                _ => format!("<td class=\"text\">{text}</td>"),
            }
        });
        let _ = writeln!(out, "<tr>{}</tr>", cells.collect::<String>());
    }
    out.push_str("</tbody></table></div>\n");
}

/// Means over intervals, at their ends; the first stands at the beginning too.
fn means(shown: &Shown, of: impl Fn(&Interval) -> f64) -> Vec<(f64, f64)> {
    let at = |one: &Interval| one.from.after(one.micros).since(shown.first) as f64 / 1e6;
    let first = shown.course.first().map(|one| (0.0, of(one)));
    first.into_iter().chain(shown.course.iter().map(|one| (at(one), of(one)))).collect()
}

/// The papers' plots: throughput, the queue, slots and executors over time.
fn charts(shown: &Shown) -> Vec<Chart> {
    let mean = |name: &str, measure| Line::of_means(name, means(shown, |one| one.mean(measure)));
    let failed = |one: &Interval| one.failed as f64 / (one.micros as f64 / 1e6);
    let mut throughput = vec![Line::of_means("ended", means(shown, Interval::rate))];
    if shown.counts.ended() > shown.counts.done {
        throughput.push(Line::of_means("did not succeed", means(shown, failed)));
    }
    let chart = |title, unit, kind, lines| Chart { title, unit, kind, most: None, lines };
    vec![
        chart("Throughput", "tasks/s", Kind::Lines, throughput),
        chart(
            "Tasks",
            "tasks",
            Kind::Stacked,
            vec![
                mean("running", Measure::Running),
                mean("at executors", Measure::Sent),
                mean("queued", Measure::Queued),
            ],
        ),
        chart(
            "Slots",
            "slots",
            Kind::Lines,
            vec![mean("in use", Measure::Running), mean("there", Measure::Slots).into_bound()],
        ),
        chart("Executors", "executors", Kind::Lines, vec![mean("there", Measure::Executors)]),
    ]
}
