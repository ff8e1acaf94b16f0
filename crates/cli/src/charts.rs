//! Charts of the pages that Falkon makes: one look, drawn by uPlot (a file beside this one,
//! under the MIT licence) from data in the page. A page with charts needs nothing from elsewhere.
//!
//! A self-contained page has [`head`] in its head, a [`Chart::figure`] for each chart, and
//! [`foot`] at the end of its body. Pages that a server sends take the files themselves.

use serde::Serialize;
use std::fmt::Write;

/// Colours and tables of all pages, as CSS.
pub(crate) const PAGE_CSS: &str = include_str!("charts/page.css");
/// The library's style, as CSS.
pub(crate) const LIBRARY_CSS: &str = include_str!("charts/uplot/uPlot.min.css");
/// The library: the licence, which has to go with it, and the code.
pub(crate) const LIBRARY_JS: &str = concat!(
    "/*\n",
    include_str!("charts/uplot/LICENSE"),
    "*/\n",
    include_str!("charts/uplot/uPlot.iife.min.js")
);
/// What draws charts with the library.
pub(crate) const CHARTS_JS: &str = include_str!("charts/charts.js");

/// What a self-contained page may do: nothing but draw itself.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'";

/// The head of a self-contained page with charts, without the title.
pub(crate) fn head() -> String {
    format!(
        "<meta charset=\"utf-8\"/><meta name=\"viewport\" content=\"width=device-width\"/>\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{}\"/>\
         <style>{LIBRARY_CSS}\n{PAGE_CSS}</style>",
        escape(POLICY)
    )
}

/// The end of the body of a self-contained page with charts.
pub(crate) fn foot() -> String {
    format!("<script>{LIBRARY_JS}\n{CHARTS_JS}</script>\n")
}

/// Text as it stands in an element or between double quotes. What XML cannot
/// have is shown as such.
pub(crate) fn escape(text: &str) -> String {
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
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    name: String,
    /// The horizontal coordinates, ascending.
    x: Vec<f64>,
    y: Vec<f64>,
    /// The line is a bound, not a measurement.
    #[serde(rename = "bound")]
    is_bound: bool,
    /// A value is a mean over the time since the coordinate before it.
    #[serde(rename = "steps")]
    is_mean: bool,
}

impl Line {
    /// A line through values at times, in the order of times.
    pub(crate) fn new(name: impl Into<String>, points: Vec<(f64, f64)>) -> Line {
        let (x, y) = points.into_iter().map(|(x, y)| (rounded(x), rounded(y))).unzip();
        Line { name: name.into(), x, y, is_bound: false, is_mean: false }
    }

    /// A line of means over the time since the value before.
    pub(crate) fn of_means(name: impl Into<String>, points: Vec<(f64, f64)>) -> Line {
        Line { is_mean: true, ..Line::new(name, points) }
    }

    /// The same line, as one that cannot be exceeded.
    pub(crate) fn into_bound(self) -> Line {
        Line { is_bound: true, ..self }
    }
}

/// As many digits as a drawing shows.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let scale = 10f64.powi(6 - value.abs().log10().floor() as i32);
    let scaled = (value * scale).round() / scale;
    if scaled.is_finite() { scaled } else { value }
}

/// How a chart shows its lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// Each for itself.
    Lines,
    /// As areas, each on top of the one before; bounds stay lines.
    Stacked,
}

/// Values over time.
#[derive(Debug, Serialize)]
pub(crate) struct Chart {
    /// The chart's heading.
    pub(crate) title: &'static str,
    /// The vertical quantity's unit.
    pub(crate) unit: &'static str,
    pub(crate) kind: Kind,
    /// The end of the vertical axis, if it does not follow from the values.
    pub(crate) most: Option<f64>,
    /// In the order in which they are named.
    pub(crate) lines: Vec<Line>,
}

impl Chart {
    /// The chart as an element of a self-contained page.
    pub(crate) fn figure(&self) -> String {
        // Numbers and texts have no form that JSON cannot write; infinities are rounded away.
        let data = serde_json::to_string(self).unwrap_or_default();
        // A page's parser knows no JSON: the data end where they seem to.
        let data = data.replace('<', "\\u003c");
        format!(
            "<figure class=\"chart\"><figcaption>{} <span class=\"unit\">{}</span></figcaption>\
             <script type=\"application/json\">{data}</script></figure>\n",
            escape(self.title),
            escape(self.unit)
        )
    }
}

/// A bar for each row of a list, by the rows' names, up to `most`. It needs no script.
pub(crate) fn bars(title: &str, unit: &str, most: f64, rows: &[(String, f64)]) -> String {
    let mut out = format!(
        "<figure><figcaption>{} <span class=\"unit\">{}</span></figcaption>\
         <table class=\"bars\"><tbody>\n",
        escape(title),
        escape(unit)
    );
    for (name, value) in rows {
        let name = escape(name);
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{name}</th><td class=\"bar\"><meter min=\"0\" max=\"{most}\" \
             value=\"{value:.3}\" aria-label=\"{name}\"></meter></td><td>{value:.2}</td></tr>"
        );
    }
    out.push_str("</tbody></table></figure>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_numbers_have_seven_digits() {
        let cases = [(0.1 + 0.2, 0.3), (123_456_789.0, 123_456_800.0), (-1e-9, -1e-9), (0.0, 0.0)];
        for (value, expected) in cases {
            assert!((rounded(value) - expected).abs() <= expected.abs() * 1e-9, "{value}");
        }
        assert_eq!((rounded(f64::NAN), rounded(f64::INFINITY)), (0.0, 0.0));
        assert!(rounded(f64::MIN_POSITIVE) > 0.0 && rounded(f64::MAX).is_finite());
    }

    #[test]
    fn no_name_of_a_line_ends_the_data() {
        let name = "</script><script>alert(1)</script><!--";
        let lines = vec![Line::of_means(name, vec![(0.0, 1.0)])];
        let chart = Chart { title: "T", unit: "s", kind: Kind::Lines, most: None, lines };
        let figure = chart.figure();
        assert_eq!(figure.matches('<').count(), 8, "{figure}");
        let (_, data) = figure.split_once("json\">").unwrap();
        let data = data.split_once("</script>").unwrap().0;
        let value: serde_json::Value = serde_json::from_str(data).unwrap();
        assert_eq!(value["lines"][0]["name"], name);
        assert_eq!(value["lines"][0]["steps"], true);
    }

    /// The library goes with its licence, and none of the files ends its element.
    #[test]
    fn the_library_can_stand_in_a_page() {
        assert!(LIBRARY_JS.contains("Permission is hereby granted"));
        for text in [LIBRARY_JS, CHARTS_JS, PAGE_CSS, LIBRARY_CSS] {
            let text = text.to_ascii_lowercase();
            assert!(!text.contains("</s") && !text.contains("<!--"));
        }
    }
}
