//! `falkon sim`: runs a scenario on a simulated machine.

mod collective;
mod costs;
mod csv;
mod events;
mod fields;
mod page;
mod plan;
mod provision;
mod replay;
mod show;
mod side;
mod tiers;

pub(crate) use plan::{PlanArgs, plan};
pub(crate) use replay::{ReplayArgs, replay};

pub use fields::{Description, FieldError, Variant};
pub use side::{Job, run_each};

use crate::description;
use crate::exit::Exit;
use crate::query::print;
use clap::{Args, ValueEnum};
use events::SimulatedEvents;
use falkon_sim::{Figures, SimError};
use page::{Run, page};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

/// What has figures of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Topic {
    /// Data that many tasks read together
    Collective,
    /// Executors below relays
    Tiers,
}

/// `falkon sim`
#[derive(Args, Debug)]
pub(crate) struct SimArgs {
    /// Description of the machine and the work, as TOML; see docs/scenarios.md
    #[arg(required_unless_present = "figures")]
    file: Option<PathBuf>,
    /// Print the figures of all scenarios about a topic, beside what the papers
    /// report and what the machine allows, in place of a file's
    #[arg(long, value_enum, value_name = "TOPIC", conflicts_with_all = ["file", "json", "csv", "html", "events"])]
    figures: Option<Topic>,
    /// Seed of all random numbers; the same seed gives the same run
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print JSON, with time series: a line for each run
    #[arg(long)]
    json: bool,
    /// Write the time series of all runs to this file, as comma-separated values
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write a self-contained page with plots to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the events of a scenario that is one run to this directory, for falkon report, log,
    /// export and replay
    #[arg(long, value_name = "DIR")]
    events: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn sim(args: &SimArgs) -> Exit {
    match args.figures {
        Some(Topic::Collective) => return collective::collective(args.seed),
        Some(Topic::Tiers) => return tiers::tiers(args.seed),
        None => {}
    }
    let Some(file) = &args.file else {
        return Exit::usage("name a file with a scenario, or give --figures".to_owned());
    };
    let description: Description = match description::read(file) {
        Ok(description) => description,
        Err(error) => return Exit::usage(error),
    };
    let variants = match description.variants() {
        Ok(variants) => variants,
        Err(error) => return Exit::usage(format!("{}: {error}", file.display())),
    };
    match runs(file, variants, args) {
        Ok(exit) | Err(exit) => exit,
    }
}

/// A file that is to be written, made before anything runs; `None` if none was
/// asked for.
fn create(path: Option<&Path>) -> Result<Option<Output>, Exit> {
    let Some(path) = path else { return Ok(None) };
    match File::create(path) {
        Ok(file) => Ok(Some(Output { path: path.to_owned(), file })),
        Err(error) => Err(Exit::usage(format!("cannot write {}: {error}", path.display()))),
    }
}

struct Output {
    path: PathBuf,
    file: File,
}

impl Output {
    fn write(&mut self, text: &str) -> Result<(), Exit> {
        self.file.write_all(text.as_bytes()).map_err(|error| {
            Exit::failure(format!("cannot write {}: {error}", self.path.display()))
        })
    }
}

fn runs(file: &Path, variants: Vec<Variant>, args: &SimArgs) -> Result<Exit, Exit> {
    let (mut csv, mut html) = (create(args.csv.as_deref())?, create(args.html.as_deref())?);
    let events = args.events.as_deref().map(|dir| {
        if variants.len() > 1 || variants.iter().any(|variant| variant.scenario.dispatchers > 1) {
            let file = file.display();
            return Err(Exit::usage(format!(
                "--events is for one run with one dispatcher, and {file} has several"
            )));
        }
        SimulatedEvents::create(dir)
    });
    let events = events.transpose()?;
    let mut any_failed = false;
    let mut drawn = Vec::new();
    let jobs = variants.iter().map(|variant| {
        let name = variant.scenario.name.clone() + &label(&variant.label);
        Job::new(name, variant.scenario.clone()).with_events(events.clone())
    });
    let exit = run_each(jobs.collect(), args.seed, |at, result| {
        let figures = match result {
            Ok(figures) => figures,
            Err(SimError::Scenario(error)) => {
                return Some(Exit::usage(format!("{}: {error}", file.display())));
            }
            Err(error) => return Some(Exit::failure(format!("{}: {error}", file.display()))),
        };
        any_failed |= figures.failed > 0;
        let variant = &variants[at];
        if let Err(exit) = tell(args, at, &variants, &figures) {
            return Some(exit);
        }
        if let Some(csv) = &mut csv
            && let Err(exit) = csv.write(&csv::series(at, variant, &figures))
        {
            return Some(exit);
        }
        if html.is_some() {
            drawn.push(Run { variant: variant.clone(), figures });
        }
        None
    });
    if let Some(events) = &events {
        events.close()?;
    }
    if let Some(exit) = exit {
        return Err(exit);
    }
    if let Some(html) = &mut html {
        html.write(&page(&drawn, args.seed))?;
    }
    Ok(if any_failed { Exit::TasksFailed } else { Exit::Success })
}

/// Prints what a run was measured by.
fn tell(args: &SimArgs, at: usize, variants: &[Variant], figures: &Figures) -> Result<(), Exit> {
    let Variant { scenario, label } = &variants[at];
    let text = if args.json {
        show::json(scenario, label, args.seed, figures)
            .map_err(|error| Exit::failure(format!("cannot print the figures: {error}")))?
    } else if variants.len() > 1 {
        show::row(at == 0, scenario, label, figures)
    } else {
        show::table(scenario, args.seed, figures)
    };
    print(&text).map_or(Ok(()), Err)
}

/// The number of a run of a grid, behind the grid's name.
#[must_use]
pub fn label(label: &[(&str, f64)]) -> String {
    let of_grid = label.iter().map(|(name, value)| match name.split_once(' ') {
        Some((_, unit)) => format!(", {value} {unit}"),
        None => format!(", {name} {}", crate::amount::shown(*value)),
    });
    of_grid.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_there_is_makes_sense() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        let mut found = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let description: Description = description::read(&path).unwrap();
            for variant in description.variants().unwrap() {
                variant.scenario.check().unwrap();
            }
            found += 1;
        }
        assert!(found >= 5, "only {found} scenarios");
    }
}
