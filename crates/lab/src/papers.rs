//! `falkon-lab papers`: the papers' experiments, each beside what the paper
//! reports of it. The scenarios are those in `scenarios/`.

mod reported;
mod staged;
mod validate;

use clap::{Args, ValueEnum};
use falkon_cli::exit::Exit;
use falkon_cli::print;
use falkon_cli::sim::{Description, FieldError, Job, Variant, label, run_each};
use falkon_sim::{Count, Figures};
use reported::{EXPERIMENTS, Reported};
use validate::{Errors, model_s};

/// The papers' experiments, by what they are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// All of them
    All,
    /// Data-aware policies: a workload with a growing arrival rate
    Mi,
    /// How many decisions per second a dispatcher makes
    Decisions,
    /// Tasks that compare each item with each other one
    AllPairs,
    /// Tasks with different degrees of file sharing
    Stacking,
    /// Short tasks on many processors
    Efficiency,
    /// The abstract model against simulated runs
    Model,
    /// Nodes acquired on demand: a workload of 18 stages
    Provision,
}

/// `falkon-lab papers`
#[derive(Args, Debug)]
pub(crate) struct PapersArgs {
    /// Which of them
    #[arg(value_enum, default_value = "all")]
    part: Part,
    /// Seed of all random numbers; the same seed gives the same run
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Runs the command.
pub(crate) fn papers(args: &PapersArgs) -> Exit {
    let PapersArgs { part, seed } = *args;
    let staged = matches!(part, Part::All | Part::Provision);
    let found =
        rows(part).and_then(|rows| Ok((rows, if staged { staged::rows()? } else { Vec::new() })));
    let (rows, staged) = match found {
        Ok(found) => found,
        Err(error) => return Exit::failure(format!("a scenario of the papers: {error}")),
    };
    let variants = rows.iter().map(|row| (&row.name, &row.variant));
    let variants = variants.chain(staged.iter().map(|row| (&row.name, &row.variant)));
    let jobs = variants.map(|(name, variant)| Job::new(name.clone(), variant.scenario.clone()));
    let mut tables = Tables::default();
    let exit = run_each(jobs.collect(), seed, |at, result| {
        let figures = match result {
            Ok(figures) => figures,
            Err(error) => return Some(Exit::failure(error)),
        };
        let mut text = String::new();
        match rows.get(at) {
            Some(row) => text.push_str(&tables.line(row, &figures)),
            None => {
                if at == rows.len() {
                    text.push_str(&staged::heading());
                }
                text.push_str(&staged[at - rows.len()].line(&figures));
            }
        }
        if at + 1 == rows.len() {
            text.push_str(&tables.end());
        }
        print(&text)
    });
    exit.unwrap_or(Exit::Success)
}

/// A run that is to be made for a table.
struct Row {
    variant: Variant,
    part: Part,
    name: String,
    reported: Reported,
}

/// The rows of a part, or of all.
///
/// # Errors
/// A scenario that came with this program is wrong.
fn rows(part: Part) -> Result<Vec<Row>, FieldError> {
    let mut rows = Vec::new();
    for experiment in &EXPERIMENTS {
        if part != Part::All && part != experiment.part {
            continue;
        }
        let description: Description = toml::from_str(experiment.text)
            .map_err(|error| FieldError::Malformed(error.to_string()))?;
        let nothing = std::iter::repeat(&reported::NOTHING);
        let reported = experiment.rows.iter().chain(nothing);
        for (variant, reported) in description.variants()?.into_iter().zip(reported) {
            let name = experiment.name.to_owned() + &label(&variant.label);
            rows.push(Row { variant, part: experiment.part, name, reported: *reported });
        }
    }
    Ok(rows)
}

/// A table that is being printed.
#[derive(Default)]
struct Tables {
    /// What the rows so far were part of.
    part: Option<Part>,
    errors: Errors,
}

fn beside(ours: String, theirs: Option<&str>) -> String {
    match theirs {
        Some(theirs) => format!("{ours} ({theirs})"),
        None => ours,
    }
}

/// A name, and cells of these widths.
fn cells(name: &str, cells: &[(usize, String)]) -> String {
    let padded = cells.iter().map(|(width, cell)| format!(" {cell:>width$}"));
    format!("{name:<36}") + &padded.collect::<String>() + "\n"
}

fn headings(name: &str, columns: &[(usize, &str)]) -> String {
    let columns: Vec<(usize, String)> =
        columns.iter().map(|(width, column)| (*width, (*column).to_owned())).collect();
    cells(name, &columns)
}

impl Tables {
    /// A row as a line, with the heading above it if it begins a table.
    fn line(&mut self, row: &Row, figures: &Figures) -> String {
        let mut out = String::new();
        if self.part != Some(row.part) {
            out = if self.part.is_some() { "\n".to_owned() } else { String::new() };
            self.part = Some(row.part);
            out.push_str(&heading(row.part));
        }
        let (share, theirs) = (|part: f64, whole: f64| part * 100.0 / whole.max(1.0), row.reported);
        let reads = figures.reads.objects as f64;
        let efficiency = format!("{:.1}", figures.efficiency * 100.0);
        let gigabytes = |count: Count| format!("{:.0}", count.bytes as f64 / 1e9);
        let per_second = format!("{:.0}", figures.throughput_per_s);
        let makespan = figures.makespan.seconds();
        let read_gb_s = format!("{:.1}", figures.reads.bytes as f64 * 8e-9 / makespan);
        let line = match row.part {
            Part::All | Part::Provision => Vec::new(),
            Part::Mi => {
                let shares = [figures.local, figures.peer, figures.store]
                    .map(|count| format!("{:.1}", share(count.objects as f64, reads)));
                vec![
                    (15, beside(format!("{makespan:.0}"), theirs.time_s)),
                    (15, beside(efficiency, theirs.efficiency)),
                    (31, beside(shares.join("/"), theirs.reads)),
                    (
                        17,
                        beside(
                            format!("{:.2}", figures.response.mean.seconds()),
                            theirs.response_s,
                        ),
                    ),
                    (16, beside(figures.queue_peak.to_string(), theirs.queue)),
                    (11, beside(format!("{:.1}", figures.cpu_s / 3600.0), theirs.cpu_hours)),
                ]
            }
            Part::Decisions => vec![(20, beside(per_second, theirs.per_s))],
            Part::AllPairs => vec![
                (15, beside(format!("{makespan:.0}"), theirs.time_s)),
                (15, beside(efficiency, theirs.efficiency)),
                (16, beside(gigabytes(figures.peer), theirs.peer_gb)),
                (16, beside(gigabytes(figures.store), theirs.store_gb)),
                (14, beside(read_gb_s, theirs.rate_gb_s)),
                (16, beside(per_second, theirs.per_s)),
            ],
            Part::Stacking => {
                // Each file is read from the store once at least.
                let ideal = 1.0 - figures.different_objects as f64 / reads.max(1.0);
                let hits = 1.0 - (figures.store.objects as f64 / reads.max(1.0)).min(1.0);
                let of_ideal = if ideal > 0.0 { hits * 100.0 / ideal } else { 100.0 };
                vec![
                    (12, format!("{:.2}", ideal * 100.0)),
                    (12, format!("{:.2}", hits * 100.0)),
                    (17, beside(format!("{of_ideal:.2}"), theirs.hits)),
                    (14, format!("{:.2}", share(figures.local.objects as f64, reads))),
                    (17, beside(read_gb_s, theirs.rate_gb_s)),
                    (12, efficiency),
                ]
            }
            Part::Efficiency => vec![
                (12, figures.slots.to_string()),
                (17, beside(format!("{:.2}", figures.efficiency * 100.0), theirs.efficiency)),
                (12, per_second),
            ],
            Part::Model => {
                return out + &self.model_line(row, figures);
            }
        };
        out + &cells(&row.name, &line)
    }

    fn model_line(&mut self, row: &Row, figures: &Figures) -> String {
        let measured = figures.makespan.seconds();
        match model_s(&row.variant.scenario, figures) {
            Ok(modelled) => {
                let error = self.errors.add(measured, modelled);
                let line = [
                    (12, format!("{measured:.2}")),
                    (12, format!("{modelled:.2}")),
                    (12, format!("{:+.1}", error * 100.0)),
                ];
                cells(&row.name, &line)
            }
            Err(error) => format!("{:<36} {error}\n", row.name),
        }
    }

    /// What stands below the last row.
    fn end(&self) -> String {
        if self.part != Some(Part::Model) {
            return String::new();
        }
        format!(
            "mean {:.1} % (5), worst {:.1} % (29), R² {:.4}\n",
            self.errors.mean() * 100.0,
            self.errors.worst() * 100.0,
            self.errors.r_squared()
        )
    }
}

/// What stands above the rows.
fn heading(part: Part) -> String {
    match part {
        Part::All | Part::Provision => String::new(),
        Part::Mi => {
            "MI workload, 64 nodes, or up to 64 on demand; in brackets: data-diffusion 5.2, on \
             demand\n"
                .to_owned()
                + &headings(
                    "policy, cache",
                    &[
                        (15, "time, s"),
                        (15, "efficiency, %"),
                        (31, "local/peer/store, %"),
                        (17, "response, s"),
                        (16, "longest queue"),
                        (11, "CPU hours"),
                    ],
                )
        }
        Part::Decisions => {
            "Decisions of one dispatcher with its messages, at the costs measured for it; in \
             brackets: data-diffusion 5.1\n"
                .to_owned()
                + &headings("policy", &[(20, "decisions/s")])
        }
        Part::AllPairs => {
            "All-Pairs; in brackets: middleware 4.3.3; efficiency against tasks that read nothing, in \
             the paper against all data on local disks\n"
                .to_owned()
                + &headings(
                    "problem",
                    &[
                        (15, "time, s"),
                        (15, "efficiency, %"),
                        (16, "peers, GB"),
                        (16, "store, GB"),
                        (14, "read, Gb/s"),
                        (16, "decisions/s"),
                    ],
                )
        }
        Part::Stacking => {
            "Stacking on 128 processors, the store gives 4 Gb/s; in brackets: middleware 5.6\n"
                .to_owned()
                + &headings(
                    "objects per file",
                    &[
                        (12, "ideal hits, %"),
                        (12, "hits, %"),
                        (17, "of ideal, %"),
                        (14, "local, %"),
                        (17, "read, Gb/s"),
                        (12, "efficiency, %"),
                    ],
                )
        }
        Part::Efficiency => {
            "Short tasks; in brackets: loosely-coupled IV.C\n".to_owned()
                + &headings(
                    "nodes, run time",
                    &[(12, "processors"), (17, "efficiency, %"), (12, "tasks/s")],
                )
        }
        Part::Model => {
            "The abstract model against simulated runs; in brackets: data-diffusion 4.4, against \
             experiments\n"
                .to_owned()
                + &headings("scenario", &[(12, "run, s"), (12, "model, s"), (12, "error, %")])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_papers_is_a_scenario() {
        let all = rows(Part::All).unwrap();
        assert_eq!(all.iter().filter(|row| row.part == Part::Mi).count(), 16);
        assert_eq!(all.iter().filter(|row| row.part == Part::AllPairs).count(), 6);
        assert_eq!(all.iter().filter(|row| row.part == Part::Stacking).count(), 9);
        for row in all {
            row.variant.scenario.check().unwrap();
        }
        let rows = staged::rows().unwrap();
        assert_eq!(rows.len(), 6);
        for row in rows {
            row.variant.scenario.check().unwrap();
        }
    }
}
