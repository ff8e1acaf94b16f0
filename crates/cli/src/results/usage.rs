//! The resources that tasks used, for people and programs.

use super::TaskResult;
use super::staged::{byte_sum_text, bytes_text};
use crate::exit::write_line;
use falkon_core::gang::{GangUsage, RankUsage};
use falkon_core::metrics::ResourceTotals;
use falkon_core::result::ResourceUsage;
use falkon_core::task::Time;
use serde::Serialize;
use std::collections::BTreeMap;

const SECOND_MICROS: f64 = 1e6;
/// Programs that have a line of their own in the table.
const PROGRAMS_MAX: usize = 24;
/// The line of tasks of further programs.
const OTHERS: &str = "(others)";
/// The line of tasks whose programs are not known here.
const TASKS: &str = "(tasks)";
/// Characters of a program's name in the table.
const NAME_CHARS_MAX: usize = 24;

/// The resources that a task used, in a result's line.
#[derive(Debug, Serialize)]
pub(crate) struct JsonUsage {
    wall_seconds: f64,
    #[serde(flatten)]
    used: JsonUsed,
    /// Of a task on several nodes: how many.
    #[serde(skip_serializing_if = "Option::is_none")]
    node_count: Option<u32>,
    /// Each node that was measured, unless they are too many.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<JsonNode>,
    /// The executors on nodes of which usage is missing, or the first of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<String>,
    /// The number of such nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    missing_count: Option<u32>,
}

/// The resources that one node of a task used.
#[derive(Debug, Serialize)]
struct JsonNode {
    executor: String,
    #[serde(flatten)]
    used: JsonUsed,
    /// Each rank that was seen there, unless they are too many.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ranks: Vec<JsonRank>,
}

/// The resources that one rank of a task used on a node.
#[derive(Debug, Serialize)]
struct JsonRank {
    rank: u32,
    #[serde(flatten)]
    used: JsonUsed,
}

#[derive(Debug, Serialize)]
struct JsonUsed {
    user_seconds: f64,
    system_seconds: f64,
    rss_max_bytes: u64,
    read_bytes: u64,
    written_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_max_bytes: Option<u64>,
}

impl From<ResourceUsage> for JsonUsed {
    fn from(used: ResourceUsage) -> JsonUsed {
        JsonUsed {
            user_seconds: micros_as_seconds(used.user_micros),
            system_seconds: micros_as_seconds(used.system_micros),
            rss_max_bytes: used.rss_max_bytes,
            read_bytes: used.read_bytes,
            written_bytes: used.written_bytes,
            disk_max_bytes: used.disk_max_bytes,
        }
    }
}

fn micros_as_seconds(micros: u64) -> f64 {
    micros as f64 / SECOND_MICROS
}

impl JsonUsage {
    /// Of a task's last attempt; `None` if it was not measured.
    pub(crate) fn of(result: &TaskResult) -> Option<JsonUsage> {
        let detail = result.detail.as_deref()?;
        let wall_seconds = micros_as_seconds(wall_micros(result));
        Some(JsonUsage::new(wall_seconds, detail.resources?, detail.gang.as_deref()))
    }

    fn new(wall_seconds: f64, used: ResourceUsage, gang: Option<&GangUsage>) -> JsonUsage {
        let listed = gang.map(|gang| gang.listed.as_slice()).unwrap_or_default();
        let nodes = listed.iter().filter_map(|node| {
            let executor = node.executor.clone();
            let rank = |of: &RankUsage| JsonRank { rank: of.rank, used: of.used.into() };
            let ranks = node.ranks.iter().map(rank).collect();
            node.used.map(|used| JsonNode { executor, used: used.into(), ranks })
        });
        let missing = listed.iter().filter(|node| node.is_missing);
        JsonUsage {
            wall_seconds,
            used: used.into(),
            node_count: gang.map(|gang| gang.nodes),
            nodes: nodes.collect(),
            missing: missing.map(|node| node.executor.clone()).collect(),
            missing_count: gang.map(|gang| gang.missing).filter(|count| *count > 0),
        }
    }
}

fn wall_micros(result: &TaskResult) -> u64 {
    let (Time(started), Time(ended)) = (result.times.started, result.times.ended);
    ended.saturating_sub(started)
}

/// The resources that the tasks of each program used.
#[derive(Debug, Default)]
pub(crate) struct UsageTable {
    programs: BTreeMap<String, ResourceTotals>,
}

impl UsageTable {
    /// Adds a result, if its task was measured.
    pub(crate) fn add(&mut self, result: &TaskResult) {
        let Some(used) = result.detail.as_deref().and_then(|detail| detail.resources) else {
            return;
        };
        let program = result.what.as_ref().map_or(TASKS, |what| program_of(&what.command));
        let wall_micros = wall_micros(result);
        self.totals(program).add(wall_micros, &used);
    }

    /// Adds a task of a program, with its run time and resources.
    pub(crate) fn add_task(&mut self, program: &[u8], wall_micros: u64, used: &ResourceUsage) {
        let name = program.rsplit(|byte| *byte == b'/').next().unwrap_or(program);
        let name = match name {
            [] => TASKS.into(),
            name => String::from_utf8_lossy(name),
        };
        self.totals(&name).add(wall_micros, used);
    }

    fn totals(&mut self, program: &str) -> &mut ResourceTotals {
        let is_full = self.programs.len() >= PROGRAMS_MAX;
        let name = match is_full && !self.programs.contains_key(program) {
            true => OTHERS,
            false => program,
        };
        self.programs.entry(name.to_owned()).or_default()
    }

    /// Shows the table.
    pub(crate) fn show(&self) {
        if self.programs.is_empty() {
            write_line("falkon: no task ran as a process, so none was measured");
        } else {
            self.lines().into_iter().for_each(write_line);
        }
    }

    /// The lines of the table, with a head.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "{:<NAME_CHARS_MAX$} {:>9} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} \
             {:>10}",
            "program",
            "tasks",
            "wall",
            "user",
            "system",
            "memory 50%",
            "95%",
            "most",
            "read",
            "written",
            "disk most"
        )];
        lines.extend(self.programs.iter().map(|(program, totals)| {
            let name: String = program.chars().take(NAME_CHARS_MAX).collect();
            format!(
                "{name:<NAME_CHARS_MAX$} {:>9} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} {:>10} \
                 {:>10} {:>10}",
                totals.tasks,
                seconds(totals.wall_micros),
                seconds(totals.user_micros),
                seconds(totals.system_micros),
                bytes_text(totals.memory_of(50)),
                bytes_text(totals.memory_of(95)),
                bytes_text(totals.rss_max_bytes),
                byte_sum_text(totals.read_bytes),
                byte_sum_text(totals.written_bytes),
                totals.disk_max_bytes.map_or_else(|| "-".to_owned(), bytes_text),
            )
        }));
        lines
    }
}

/// The first word of a command, without its folder.
fn program_of(command: &str) -> &str {
    let word = command.split_whitespace().next().unwrap_or(TASKS);
    let word = word.trim_matches(['\'', '"']);
    match word.rsplit('/').next() {
        Some(name) if !name.is_empty() => name,
        _ => word,
    }
}

fn seconds(micros: u128) -> String {
    format!("{:.2} s", micros as f64 / SECOND_MICROS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use falkon_core::gang::NodeUsage;

    #[test]
    fn a_task_on_several_nodes_says_what_each_used_and_which_are_missing() {
        let of =
            |seconds: u64| ResourceUsage { user_micros: seconds * 1_000_000, ..Default::default() };
        let json = |gang: Option<&GangUsage>| {
            serde_json::to_value(JsonUsage::new(2.0, of(3), gang)).unwrap()
        };
        let alone = json(None);
        let names: Vec<&str> = alone.as_object().unwrap().keys().map(String::as_str).collect();
        let expected = ["read_bytes", "rss_max_bytes", "system_seconds", "user_seconds"];
        assert_eq!(names, [&expected[..], &["wall_seconds", "written_bytes"]].concat());
        let node = |name: &str, used, is_missing| NodeUsage {
            executor: name.to_owned(),
            used,
            is_missing,
            ranks: Vec::new(),
        };
        let ranks = vec![RankUsage { rank: 5, used: of(1) }];
        let listed = vec![
            NodeUsage { ranks, ..node("n1", Some(of(1)), false) },
            node("n2", Some(of(2)), true),
            node("n3", None, true),
        ];
        let found = json(Some(&GangUsage { nodes: 4, missing: 2, listed }));
        assert_eq!((&found["user_seconds"], &found["node_count"]), (&3.0.into(), &4.into()));
        let seconds = |at: usize| found["nodes"][at]["user_seconds"].as_f64();
        assert_eq!([0, 1, 2].map(seconds), [Some(1.0), Some(2.0), None]);
        assert_eq!(found["nodes"][1]["executor"], "n2");
        assert_eq!(found["nodes"][0]["ranks"][0]["rank"], 5);
        assert_eq!(found["nodes"][0]["ranks"][0]["user_seconds"], 1.0);
        assert_eq!(found["nodes"][1].get("ranks"), None);
        assert_eq!(found["missing"], serde_json::json!(["n2", "n3"]));
        assert_eq!(found["missing_count"], 2);
    }

    #[test]
    fn each_program_has_a_line_and_the_table_is_bounded() {
        let mut table = UsageTable::default();
        let used =
            ResourceUsage { user_micros: 1_500_000, rss_max_bytes: 3 << 20, ..Default::default() };
        for number in 0..100 {
            table
                .totals(program_of(&format!("'/opt/bin/dock{number:03}' --x")))
                .add(2_000_000, &used);
        }
        let lines = table.lines();
        assert_eq!(lines.len(), 1 + PROGRAMS_MAX + 1);
        assert!(lines[1].starts_with(OTHERS), "{}", lines[1]);
        let words: Vec<&str> = lines[2].split_whitespace().collect();
        let expected = "dock000 1 2.00 s 1.50 s 0.00 s 3.0 MiB 3.0 MiB 3.0 MiB 0 B 0 B -";
        assert_eq!(words.join(" "), expected);
        assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{lines:#?}");
    }
}
