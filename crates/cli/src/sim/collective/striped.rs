//! An object that is too large for any cache, read from the room that members lend.

use super::{Description, FieldError, Job, print, run_each};
use crate::exit::Exit;
use falkon_core::data::limits::STRIPE_BYTES;
use falkon_sim::{Figures, Scenario};

/// How many lend.
const MEMBERS: [u64; 5] = [1, 2, 4, 8, 16];

struct Row {
    scenario: Scenario,
    members: u64,
    /// The time that the members' disks and the reader's link need.
    bound_s: f64,
}

fn rows() -> Result<Vec<Row>, FieldError> {
    let text = include_str!("../../../../../scenarios/striped.toml");
    let description: Description =
        toml::from_str(text).map_err(|error| FieldError::Malformed(error.to_string()))?;
    let variant = description.variants()?.into_iter().next().ok_or(FieldError::Grid(0))?;
    Ok(MEMBERS.iter().filter_map(|members| row(&variant.scenario, *members)).collect())
}

/// The scenario with so many members, all of which it takes to have the object.
fn row(scenario: &Scenario, members: u64) -> Option<Row> {
    let mut scenario = scenario.clone();
    let bytes = scenario.workload.inputs?.object_bytes;
    // The reader has room for the object, and for no share of it beside.
    scenario.nodes.first_mut()?.cache.as_mut()?.lend = bytes;
    let group = scenario.nodes.get_mut(1)?;
    group.count = members;
    group.cache.as_mut()?.lend = bytes.div_ceil(STRIPE_BYTES).div_ceil(members) * STRIPE_BYTES;
    let disks = group.disk?.read_bytes_per_s * members as f64;
    let bound_s = bytes as f64 / disks.min(scenario.network.node_bytes_per_s);
    Some(Row { scenario, members, bound_s })
}

/// Runs all, and prints a line for each.
pub(super) fn print_all(seed: u64) -> Option<Exit> {
    let rows = match rows() {
        Ok(rows) => rows,
        Err(error) => return Some(Exit::failure(format!("a scenario of the program: {error}"))),
    };
    let name = |row: &Row| format!("{} members", row.members);
    let job = |row: &Row| Job::new(name(row), row.scenario.clone());
    run_each(rows.iter().map(job).collect(), seed, |at, result| match result {
        Ok(figures) => print(&line(at, &rows[at], &figures)),
        Err(error) => Some(Exit::failure(error)),
    })
}

fn line(at: usize, row: &Row, figures: &Figures) -> String {
    let heading = match at {
        0 => format!(
            "\nAn object of 4 GB that lies in stripes on disks of 75 MB/s, to one reader over a \
             link of 10 Gb/s\n{:<24} {:>12} {:>12} {:>10} {:>12}\n",
            "", "received, s", "bound, s", "of it, %", "store reads"
        ),
        _ => String::new(),
    };
    let (received, bytes) = (figures.staged.seconds(), object_bytes(row));
    format!(
        "{heading}{:<24} {received:>12.2} {:>12.2} {:>10.0} {:>12.2}\n",
        format!("{} members", row.members),
        row.bound_s,
        row.bound_s / received * 100.0,
        figures.store.bytes as f64 / bytes.max(1.0)
    )
}

fn object_bytes(row: &Row) -> f64 {
    row.scenario.workload.inputs.map_or(0, |inputs| inputs.object_bytes) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_member_adds_its_disk_until_the_readers_link_is_full() {
        for row in rows().unwrap() {
            // A quarter of the object shows the same.
            let mut scenario = row.scenario.clone();
            scenario.workload.inputs.as_mut().unwrap().object_bytes /= 4;
            let row = self::row(&scenario, row.members).unwrap();
            row.scenario.check().unwrap();
            let figures = falkon_sim::run(&row.scenario, 1).unwrap();
            assert_eq!(figures.failed, 0, "{} members", row.members);
            let (received, bound) = (figures.staged.seconds(), row.bound_s);
            let of_bound = bound / received;
            assert!((0.8..=1.0).contains(&of_bound), "{} members: {of_bound}", row.members);
            let reads = figures.store.bytes as f64 / object_bytes(&row);
            assert!(reads < 1.01, "{} members: the store is read {reads} times", row.members);
        }
    }
}
