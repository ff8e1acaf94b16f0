//! The properties of a queue: its file, and options that override the file.

use clap::Args;
use falkon_provision::lrm::{KINDS, detect};
use std::path::Path;

/// The options of a queue.
#[derive(Args, Debug, Clone, Default)]
pub(super) struct QueueArgs {
    #[arg(
        value_name = "SCHEDULER|FILE",
        help = format!(
            "The scheduler ({}), `auto` for the installed one, or a queue's file (NAME.toml)",
            KINDS.map(|(kind, _)| kind).join(", ")
        )
    )]
    what: String,
    /// Name of the queue [default: its scheduler, or its file]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Nodes at most [default: 8]
    #[arg(long, value_name = "N")]
    nodes_max: Option<u64>,
    /// Nodes that are held even without work [default: 0]
    #[arg(long, value_name = "N")]
    nodes_min: Option<u64>,
    /// Nodes of one job at most
    #[arg(long, value_name = "N")]
    request_max: Option<u64>,
    /// Waiting jobs at most [default: 2]
    #[arg(long, value_name = "N")]
    pending_max: Option<u64>,
    /// How long a job may run [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = crate::plan::duration_micros)]
    walltime: Option<u64>,
    /// How long a node may be idle [default: 1m]
    #[arg(long, value_name = "TIME", value_parser = crate::plan::duration_micros)]
    idle: Option<u64>,
    /// How nodes are requested: all-at-once, one-at-a-time, additive, exponential, available
    /// [default: all-at-once]
    #[arg(long, value_name = "STRATEGY")]
    acquire: Option<String>,
    /// When nodes are released: idle, no-queued, few-queued, predictive [default: predictive]
    #[arg(long, value_name = "POLICY")]
    release: Option<String>,
    /// Queues with a higher preference are asked first [default: 0]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    preference: Option<i32>,
    /// The scheduler's partition or queue
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,
    /// Who pays: account or project
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Quality of service
    #[arg(long, value_name = "NAME")]
    qos: Option<String>,
    /// CPUs of each node [default: whole nodes, where the scheduler has those]
    #[arg(long, value_name = "N")]
    cpus: Option<u32>,
    /// GPUs of each node
    #[arg(long, value_name = "N")]
    gpus: Option<u32>,
    /// Memory of each node
    #[arg(long, value_name = "SIZE", value_parser = crate::plan::memory_bytes)]
    memory: Option<u64>,
    /// Scratch disk space of each node
    #[arg(long, value_name = "SIZE", value_parser = crate::plan::disk_bytes)]
    disk: Option<u64>,
    /// A further word for the scheduler's submit command; may be repeated
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    option: Vec<String>,
    /// A module loaded on each node; may be repeated
    #[arg(long, value_name = "NAME")]
    module: Vec<String>,
    /// A variable set on each node; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    /// A line of shell run on each node before the executor; may be repeated
    #[arg(long, value_name = "LINE")]
    prologue: Vec<String>,
    /// Where this program is on the nodes [default: where it is here]
    #[arg(long, value_name = "PATH")]
    binary: Option<String>,
    /// A host, for ssh; may be repeated
    #[arg(long, value_name = "HOST")]
    host: Vec<String>,
    /// The image that nodes run, for kubernetes
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// A setting specific to this kind of scheduler, such as namespace of kubernetes or pe of
    /// gridengine; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
}

/// Fields of a queue's file that are times.
const TIMES: [&str; 8] =
    ["walltime", "leave_before", "idle", "held", "billing", "delay", "query_interval", "give_up"];

/// Seconds of a number of microseconds.
fn seconds(micros: u64) -> toml::Value {
    toml::Value::Float(micros as f64 / 1e6)
}

/// The queue that a word of the command line stands for: its name and its
/// file's text.
pub(crate) fn from_name(what: &str) -> Result<(String, String), String> {
    QueueArgs { what: what.to_owned(), ..QueueArgs::default() }.config()
}

/// Whether executors could be started with what a queue's file has for them: a
/// job that starts none would be the first to say that they cannot.
fn check_executor_options(table: &toml::Table) -> Result<(), String> {
    let options = table.get("job").and_then(|job| job.get("executor_options"));
    let Some(options) = options.and_then(toml::Value::as_array) else { return Ok(()) };
    // An option that is no text is refused where the file is read.
    let options = options.iter().filter_map(toml::Value::as_str);
    let Err(error) = crate::service::executor::executor_parses(options) else { return Ok(()) };
    let error = error.to_string();
    let first = error.lines().next().unwrap_or_default();
    Err(format!("executor_options: {}", first.trim_start_matches("error: ")))
}

impl QueueArgs {
    /// The name of the queue unless another is given.
    pub(super) fn plain_name(&self) -> String {
        let file = || {
            let stem = Path::new(&self.what).file_stem();
            stem.map_or_else(|| self.what.clone(), |stem| stem.to_string_lossy().into_owned())
        };
        let what = if self.is_file() { file() } else { self.what.clone() };
        self.name.clone().unwrap_or(what)
    }

    fn is_file(&self) -> bool {
        self.what.ends_with(".toml") || self.what.contains('/')
    }

    /// The queue's file for `nodes` nodes at least.
    pub(super) fn config_for(&self, nodes: u64) -> Result<(String, String), String> {
        let nodes_max = self.nodes_max.or(Some(nodes));
        QueueArgs { nodes_max, ..self.clone() }.config()
    }

    /// The queue's name and the text of its file.
    pub(super) fn config(&self) -> Result<(String, String), String> {
        let mut name = self.plain_name();
        let mut table = if self.is_file() {
            let text = std::fs::read_to_string(&self.what)
                .map_err(|error| format!("cannot read {}: {error}", self.what))?;
            let parsed = text.parse::<toml::Table>();
            parsed.map_err(|error| format!("{}: {error}", self.what))?
        } else {
            let mut kind = self.what.clone();
            if kind == "auto" {
                let path = std::env::var_os("PATH").unwrap_or_default();
                detect(&path).map_err(|error| error.to_string())?.clone_into(&mut kind);
                name = self.name.clone().unwrap_or_else(|| kind.clone());
            }
            toml::Table::from_iter([("kind".to_owned(), toml::Value::String(kind))])
        };
        for key in TIMES {
            if let Some(toml::Value::String(text)) = table.get(key) {
                let time = match (key, text.as_str()) {
                    ("idle" | "held", "never") => toml::Value::Float(-1.0),
                    _ => seconds(
                        crate::plan::duration_micros(text)
                            .map_err(|error| format!("{key}: {error}"))?,
                    ),
                };
                table.insert(key.to_owned(), time);
            }
        }
        self.say_policy(&mut table);
        self.say_job(&mut table)?;
        check_executor_options(&table)?;
        Ok((name, table.to_string()))
    }

    fn say_policy(&self, table: &mut toml::Table) {
        let number = |value: Option<u64>| {
            value.map(|value| toml::Value::Integer(i64::try_from(value).unwrap_or(i64::MAX)))
        };
        let text = |value: &Option<String>| value.clone().map(toml::Value::String);
        let said = [
            ("nodes_max", number(self.nodes_max)),
            ("nodes_min", number(self.nodes_min)),
            ("request_max", number(self.request_max)),
            ("pending_max", number(self.pending_max)),
            ("walltime", self.walltime.map(seconds)),
            ("idle", self.idle.map(seconds)),
            ("acquire", text(&self.acquire)),
            ("release", text(&self.release)),
            ("preference", self.preference.map(|value| toml::Value::Integer(value.into()))),
        ];
        for (key, value) in said {
            if let Some(value) = value {
                table.insert(key.to_owned(), value);
            }
        }
    }

    fn say_job(&self, table: &mut toml::Table) -> Result<(), String> {
        let text = |value: &Option<String>| value.clone().map(toml::Value::String);
        let number = |value: Option<u32>| value.map(|value| toml::Value::Integer(value.into()));
        let list = |words: &[String]| {
            let words = words.iter().cloned().map(toml::Value::String).collect();
            Some(toml::Value::Array(words)).filter(|words| words != &toml::Value::Array(Vec::new()))
        };
        let mib = |bytes: Option<u64>| {
            let mib = bytes.map(|bytes| i64::try_from(bytes.div_ceil(1 << 20)).unwrap_or(i64::MAX));
            mib.map(toml::Value::Integer)
        };
        let said = [
            ("partition", text(&self.partition)),
            ("account", text(&self.account)),
            ("qos", text(&self.qos)),
            ("cpus", number(self.cpus)),
            ("gpus", number(self.gpus)),
            ("memory_mib", mib(self.memory)),
            ("disk_mib", mib(self.disk)),
            ("options", list(&self.option)),
            ("modules", list(&self.module)),
            ("prologue", list(&self.prologue)),
            ("binary", text(&self.binary)),
            ("hosts", list(&self.host)),
            ("image", text(&self.image)),
            ("environment", pairs(&self.env)?),
            ("settings", pairs(&self.set)?),
        ];
        let said: Vec<_> =
            said.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        if said.is_empty() {
            return Ok(());
        }
        let empty = toml::Value::Table(toml::Table::new());
        let job = table.entry("job").or_insert(empty).as_table_mut();
        let job = job.ok_or("job must be a table")?;
        for (key, value) in said {
            match (job.get_mut(key), value) {
                (Some(toml::Value::Table(known)), toml::Value::Table(more)) => known.extend(more),
                (_, value) => {
                    job.insert(key.to_owned(), value);
                }
            }
        }
        Ok(())
    }
}

/// A table of words of the form NAME=VALUE, if there are any.
fn pairs(words: &[String]) -> Result<Option<toml::Value>, String> {
    let mut table = toml::Table::new();
    for word in words {
        let (name, value) = word
            .split_once('=')
            .ok_or_else(|| format!("`{word}` sets nothing: write NAME=VALUE"))?;
        table.insert(name.to_owned(), toml::Value::String(value.to_owned()));
    }
    Ok((!table.is_empty()).then_some(toml::Value::Table(table)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use falkon_provision::config::QueueConfig;

    #[test]
    fn options_that_no_executor_knows_are_refused() {
        let check = |options: &str| {
            let text = format!("[job]\nexecutor_options = {options}\n");
            check_executor_options(&text.parse().unwrap())
        };
        let error = check("[\"--cache-size\", \"100GB\"]").unwrap_err();
        assert!(error.contains("unexpected argument '--cache-size'"), "{error}");
        let error = check("[\"--name\", \"mine\"]").unwrap_err();
        assert!(error.contains("multiple times"), "{error}");
        // The examples in the documents are valid.
        let documents = include_str!("../../../../docs/provisioning.md");
        let line = documents.lines().find(|line| line.starts_with("executor_options = ")).unwrap();
        check(line.split_once("= ").unwrap().1).unwrap();
        check("[]").unwrap();
    }

    #[test]
    fn options_stand_in_the_place_of_what_the_file_says() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("big.toml");
        let text = "kind = \"slurm\"\nwalltime = \"2h\"\nidle = \"never\"\n[job]\n\
                    environment = { A = \"1\" }\npartition = \"long\"\n";
        std::fs::write(&file, text).unwrap();
        let args = QueueArgs {
            what: file.to_str().unwrap().to_owned(),
            nodes_max: Some(64),
            env: vec!["B=x=y".to_owned()],
            partition: Some("it's \"one\"".to_owned()),
            ..QueueArgs::default()
        };
        let (name, text) = args.config().unwrap();
        let config = QueueConfig::parse(&text).unwrap();
        assert_eq!(name, "big");
        assert_eq!((config.walltime, config.idle, config.nodes_max), (7200.0, -1.0, Some(64)));
        assert_eq!(config.job.partition.as_deref(), Some("it's \"one\""));
        let variables: Vec<_> = config.job.environment.into_iter().collect();
        assert_eq!(variables, [("A".into(), "1".into()), ("B".into(), "x=y".into())]);
    }
}
