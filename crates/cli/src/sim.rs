//! `falkon sim`: runs a scenario on a simulated machine.

mod fields;
mod paper;
mod provision;
mod show;

use crate::description;
use crate::exit::Exit;
use crate::query::print;
use clap::Args;
use falkon_sim::{SimError, run};
use fields::{Description, Variant};
use std::path::{Path, PathBuf};

/// `falkon sim`
#[derive(Args, Debug)]
pub(crate) struct SimArgs {
    /// Description of the machine and the work, as TOML; see docs/scenarios.md
    #[arg(required_unless_present = "figures")]
    file: Option<PathBuf>,
    /// Run the papers' experiments instead, and print each row beside what the
    /// paper reports
    #[arg(long, conflicts_with_all = ["file", "json"])]
    figures: bool,
    /// Draw everything random from this number; the same number gives the same
    /// run
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print JSON, with time series: a line for each run
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn sim(args: &SimArgs) -> Exit {
    match &args.file {
        Some(file) => scenario(file, args),
        None => figures(args.seed),
    }
}

fn figures(seed: u64) -> Exit {
    let rows = match paper::rows() {
        Ok(rows) => rows,
        Err(error) => return Exit::failure(format!("a scenario of the papers: {error}")),
    };
    if let Some(exit) = print(&paper::heading()) {
        return exit;
    }
    for row in rows {
        let figures = match run(&row.variant.scenario, seed) {
            Ok(figures) => figures,
            Err(error) => return Exit::failure(error),
        };
        if let Some(exit) = print(&row.line(&figures)) {
            return exit;
        }
    }
    staged_figures(seed)
}

fn staged_figures(seed: u64) -> Exit {
    let rows = match paper::staged_rows() {
        Ok(rows) => rows,
        Err(error) => return Exit::failure(format!("a scenario of the papers: {error}")),
    };
    if let Some(exit) = print(&paper::staged_heading()) {
        return exit;
    }
    for row in rows {
        let figures = match run(&row.variant.scenario, seed) {
            Ok(figures) => figures,
            Err(error) => return Exit::failure(error),
        };
        if let Some(exit) = print(&row.line(&figures)) {
            return exit;
        }
    }
    Exit::Success
}

fn scenario(file: &Path, args: &SimArgs) -> Exit {
    let description: Description = match description::read(file) {
        Ok(description) => description,
        Err(error) => return Exit::usage(error),
    };
    let variants = match description.variants() {
        Ok(variants) => variants,
        Err(error) => return Exit::usage(format!("{}: {error}", file.display())),
    };
    let is_grid = variants.len() > 1;
    let mut any_failed = false;
    for (at, Variant { scenario, label }) in variants.iter().enumerate() {
        let figures = match run(scenario, args.seed) {
            Ok(figures) => figures,
            Err(SimError::Scenario(error)) => {
                return Exit::usage(format!("{}: {error}", file.display()));
            }
            Err(error) => return Exit::failure(format!("{}: {error}", file.display())),
        };
        any_failed |= figures.failed > 0;
        let text = if args.json {
            match show::json(scenario, label, args.seed, &figures) {
                Ok(line) => line,
                Err(error) => return Exit::failure(format!("cannot print the figures: {error}")),
            }
        } else if is_grid {
            show::row(at == 0, scenario, label, &figures)
        } else {
            show::table(scenario, args.seed, &figures)
        };
        if let Some(exit) = print(&text) {
            return exit;
        }
    }
    if any_failed { Exit::TasksFailed } else { Exit::Success }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_papers_is_a_scenario() {
        let rows = paper::rows().unwrap();
        assert_eq!(rows.len(), 11);
        for row in rows {
            row.variant.scenario.check().unwrap();
        }
        let rows = paper::staged_rows().unwrap();
        assert_eq!(rows.len(), 6);
        for row in rows {
            row.variant.scenario.check().unwrap();
        }
    }

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
