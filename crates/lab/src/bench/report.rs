//! Figures as tables for people and as JSON for programs.

use super::error::BenchError;
use serde::Serialize;
use std::fmt;
use std::io::Write;

/// The machine and the program that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    version: &'static str,
    debug_build: bool,
    cpu: String,
    cores: u32,
    kernel: String,
    memory_bytes: u64,
    /// Processes that ran or wanted to in the minute before, on average.
    load_before: f64,
}

impl Machine {
    /// Looks at this machine.
    pub(crate) fn look() -> Machine {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo")
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
            .map_or_else(|| "unknown processor".to_owned(), |(_, name)| name.trim().to_owned());
        let load = read("/proc/loadavg");
        Machine {
            version: env!("CARGO_PKG_VERSION"),
            debug_build: cfg!(debug_assertions),
            cpu,
            cores: falkon_cli::machine::cpus(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            memory_bytes: falkon_cli::machine::memory(),
            load_before: load.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "falkon {} on {} cores of {}, {} MiB, Linux {}, load before {}",
            self.version,
            self.cores,
            self.cpu,
            self.memory_bytes >> 20,
            self.kernel,
            self.load_before
        )?;
        if self.debug_build {
            write!(f, "\nTHIS IS A DEBUG BUILD: its figures say nothing")?;
        }
        Ok(())
    }
}

/// One figure, measured once per round.
#[derive(Debug)]
struct Row {
    name: String,
    unit: &'static str,
    rounds: Vec<f64>,
}

/// Figures that are compared.
#[derive(Debug)]
pub(crate) struct Table {
    name: &'static str,
    about: String,
    rows: Vec<Row>,
    /// Names of rows that others are compared with.
    bases: Vec<String>,
    notes: Vec<String>,
}

impl Table {
    /// An empty table.
    pub(crate) fn new(name: &'static str, about: String) -> Table {
        Table { name, about, rows: Vec::new(), bases: Vec::new(), notes: Vec::new() }
    }

    /// Adds one round's figure to the row `name`.
    pub(crate) fn add(&mut self, name: &str, unit: &'static str, value: f64) {
        match self.rows.iter_mut().find(|row| row.name == name) {
            Some(row) => row.rounds.push(value),
            None => self.rows.push(Row { name: name.to_owned(), unit, rounds: vec![value] }),
        }
    }

    /// Shows what share of the row `name` each of the others is.
    pub(crate) fn compare_with(&mut self, name: &str) {
        self.bases.push(name.to_owned());
    }

    /// Adds a row: what share the row `name` is of the row `of`, round by round.
    pub(crate) fn ratio_of(&mut self, name: &str, of: &str) {
        let (Some(row), Some(base)) = (self.row(name), self.row(of)) else { return };
        let ratios = row.rounds.iter().zip(&base.rounds).map(|(one, base)| one / base).collect();
        let name = format!("{name} / {of}");
        self.rows.push(Row { name, unit: "x", rounds: ratios });
    }

    /// Adds a row: how much the row `name` is above the row `of`, round by round.
    pub(crate) fn above(&mut self, name: &str, of: &str) {
        let (Some(row), Some(base)) = (self.row(name), self.row(of)) else { return };
        let above = row.rounds.iter().zip(&base.rounds).map(|(one, base)| one - base).collect();
        let (name, unit) = (format!("{name}, above {of}"), row.unit);
        self.rows.push(Row { name, unit, rounds: above });
    }

    /// Adds a remark.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// The last figure of the row `name`.
    pub(crate) fn last(&self, name: &str) -> Option<f64> {
        self.row(name)?.rounds.last().copied()
    }

    fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// The median over the rounds of `row` divided by `base`, if both were
    /// measured in each.
    fn ratio(&self, row: &Row, base: &str) -> Option<f64> {
        let base = self.row(base)?;
        let comparable =
            row.name != base.name && row.unit == base.unit && row.rounds.len() == base.rounds.len();
        let ratios = row.rounds.iter().zip(&base.rounds).map(|(one, base)| one / base);
        comparable.then(|| median(ratios.collect()))
    }
}

/// The middle one, or the mean of the two in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[half],
        _ => (values[half - 1] + values[half]) / 2.0,
    }
}

/// The value that a share of `values`, which must be sorted, does not pass.
pub(crate) fn percentile(values: &[f64], share: f64) -> f64 {
    let last = values.len().saturating_sub(1);
    values.get((last as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}

/// A number of three digits or more, with commas.
fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    if value.abs() < 100.0 {
        return format!("{value:.2}");
    }
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.name, self.about)?;
        let wide = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        write!(f, "  {:wide$}  {:>15}  {:>29}  {:7}", "", "median", "least to most", "")?;
        for base in &self.bases {
            write!(f, "  / {base}")?;
        }
        writeln!(f)?;
        for row in &self.rows {
            let least = row.rounds.iter().copied().fold(f64::INFINITY, f64::min);
            let most = row.rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let spread = match row.rounds.len() {
                0 | 1 => String::new(),
                _ => format!("{} to {}", number(least), number(most)),
            };
            let middle = number(median(row.rounds.clone()));
            write!(f, "  {:wide$}  {middle:>15}  {spread:>29}  {:7}", row.name, row.unit)?;
            for base in &self.bases {
                let width = base.chars().count() + 2;
                let ratio = self.ratio(row, base).map_or(String::new(), |ratio| match ratio {
                    small if small < 0.1 => format!("{small:.4}"),
                    ratio => format!("{ratio:.3}"),
                });
                write!(f, "  {ratio:>width$}")?;
            }
            writeln!(f)?;
        }
        for note in &self.notes {
            writeln!(f, "  {note}")?;
        }
        Ok(())
    }
}

#[derive(Serialize)]
struct JsonRow<'a> {
    name: &'a str,
    unit: &'a str,
    median: f64,
    rounds: &'a [f64],
    ratios: Vec<JsonRatio<'a>>,
}

#[derive(Serialize)]
struct JsonRatio<'a> {
    to: &'a str,
    median: f64,
}

#[derive(Serialize)]
struct JsonTable<'a> {
    bench: &'a str,
    about: &'a str,
    machine: &'a Machine,
    rows: Vec<JsonRow<'a>>,
    notes: &'a [String],
}

/// Prints a table as one line of JSON.
pub(crate) fn print_json(machine: &Machine, table: &Table) -> Result<(), BenchError> {
    let rows = table
        .rows
        .iter()
        .map(|row| JsonRow {
            name: &row.name,
            unit: row.unit,
            median: median(row.rounds.clone()),
            rounds: &row.rounds,
            ratios: table
                .bases
                .iter()
                .filter_map(|to| Some(JsonRatio { to, median: table.ratio(row, to)? }))
                .collect(),
        })
        .collect();
    let line =
        JsonTable { bench: table.name, about: &table.about, machine, rows, notes: &table.notes };
    let print = || -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        serde_json::to_writer(&mut out, &line)?;
        out.write_all(b"\n")
    };
    print().map_err(BenchError::system("print the figures"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_a_round() {
        let mut table = Table::new("test", String::new());
        // A machine that gets slower by half each round.
        for round in [8.0, 4.0, 2.0] {
            table.add("bare", "/s", round);
            table.add("ours", "/s", round * 0.75);
        }
        table.compare_with("bare");
        let ours = table.row("ours").unwrap();
        assert_eq!(table.ratio(ours, "bare"), Some(0.75));
        assert!(table.to_string().contains("0.750"));
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(number(1_234_567.4), "1,234,567");
        assert_eq!(number(123.4), "123");
        assert_eq!(number(12.345), "12.35");
        assert_eq!(number(f64::NAN), "-");
    }

    #[test]
    fn medians_and_percentiles() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        let sorted: Vec<f64> = (0..=100).map(f64::from).collect();
        assert_eq!(percentile(&sorted, 0.99), 99.0);
    }
}
