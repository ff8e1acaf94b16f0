//! Time series as comma-separated values: a line for each sample of each run.

use super::fields::Variant;
use super::show::seconds;
use falkon_sim::Figures;
use std::fmt::Write;

/// The names of the columns. Those of a grid come after the run's number.
fn heading(label: &[(&'static str, f64)]) -> String {
    let mut out = "run".to_owned();
    for (name, _) in label {
        out.push(',');
        out.push_str(&name.replace(' ', "_"));
    }
    out + ",at_s,submitted,queued,running,nodes,busy_nodes,delivered,store_bytes,peer_bytes,\
           read_bytes,busy_slot_s,busy_node_s,node_s\n"
}

/// The samples of the `at`-th run, from 0; the first has the heading above them.
pub(super) fn series(at: usize, variant: &Variant, figures: &Figures) -> String {
    let mut out = if at == 0 { heading(&variant.label) } else { String::new() };
    let mut run = (at + 1).to_string();
    for (_, value) in &variant.label {
        // Writing to a string cannot fail.
        let _ = write!(run, ",{value}");
    }
    for sample in &figures.series {
        let _ = writeln!(
            out,
            "{run},{},{},{},{},{},{},{},{},{},{},{},{},{}",
            sample.at.seconds(),
            sample.submitted,
            sample.queued,
            sample.running,
            sample.nodes,
            sample.busy_nodes,
            sample.delivered,
            sample.store_bytes,
            sample.peer_bytes,
            sample.read_bytes,
            seconds(sample.busy_slot_time),
            seconds(sample.busy_node_time),
            seconds(sample.node_time)
        );
    }
    out
}
