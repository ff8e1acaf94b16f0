//! `falkon run --nodes`: executors on the nodes of the batch job that this process is in.

use crate::exit::{Exit, say};
use clap::{ArgMatches, Args};
use falkon_net::secure::AccessFile;
use falkon_provision::lrm::{Launch, OwnJobError, launches, quoted};
use std::collections::VecDeque;
use std::io;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use zeroize::Zeroizing;

/// How long an executor whose run was killed goes on.
const GIVE_UP: &str = "1m";
/// How long launchers may take to end.
const STOP_MAX: Duration = Duration::from_secs(10);
/// The last lines of a launcher that are told when it fails, and bytes of each.
const LINES_KEPT: usize = 5;
const LINE_BYTES_MAX: usize = 1000;
/// Options of a run that are those of its executors as well.
const SHARED: [&str; 14] = [
    "capture",
    "cache",
    "eviction",
    "collect_delay",
    "collect_data",
    "collect_free",
    "collect_patience",
    "memory_limits",
    "pin",
    "preload",
    "worker",
    "worker_calls_max",
    "worker_memory_max",
    "share_workers",
];
/// The shared options that have no value.
const FLAGS: [&str; 2] = ["share_workers", "pin"];
/// Options of a run, and what they are called for an executor.
const RENAMED: [(&str, &str); 4] =
    [("jobs", "slots"), ("offer_gpus", "gpus"), ("offer", "resource"), ("offer_disk", "disk")];

/// How many nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Count {
    All,
    Exactly(u32),
}

/// The nodes of the batch job that run the tasks.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct NodeArgs {
    /// Run the tasks on the nodes of the batch job that this is in: on all, or on N of them
    ///
    /// The site's launcher (srun, qrsh, blaunch; ssh with PBS) starts an executor on each. Tasks
    /// run in the directory in which this was started, and this program must be at the same
    /// path on each node.
    #[arg(long, value_name = "N|all", value_parser = count, conflicts_with = "access")]
    nodes: Option<Count>,
    /// Words for the executors.
    #[arg(skip)]
    passed_on: Vec<String>,
}

fn count(text: &str) -> Result<Count, String> {
    match text {
        "all" => Ok(Count::All),
        number => match number.parse() {
            Ok(0) | Err(_) => Err("not all or a number from 1".to_owned()),
            Ok(number) => Ok(Count::Exactly(number)),
        },
    }
}

impl NodeArgs {
    /// Whether there are any.
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_none()
    }

    /// Takes from the command line of the run what its executors are to be told.
    pub(crate) fn pass_on(&mut self, run: &ArgMatches) {
        let shared = SHARED.map(|id| (id, id));
        for (id, name) in shared.into_iter().chain(RENAMED) {
            let name = name.replace('_', "-");
            if FLAGS.contains(&id) {
                self.passed_on.extend(run.get_flag(id).then(|| format!("--{name}")));
                continue;
            }
            let values = run.get_raw(id).into_iter().flatten();
            let words = values.map(|value| format!("--{name}={}", value.to_string_lossy()));
            self.passed_on.extend(words);
        }
    }

    /// How executors are started, or why that is not possible here.
    pub(crate) fn launches(&self) -> Result<Vec<Launch>, OwnJobError> {
        let wanted = match self.nodes {
            Some(Count::Exactly(nodes)) => Some(nodes),
            Some(Count::All) => None,
            None => return Ok(Vec::new()),
        };
        launches(wanted, |name| std::env::var(name).ok(), |path| std::fs::read_to_string(path))
    }
}

/// Why no node runs tasks any more.
#[derive(Debug, thiserror::Error)]
#[error("no executor is left on a node of this job: {0}")]
pub(crate) struct NoNodes(String);

/// What starts executors on nodes, while it runs.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    launchers: JoinSet<String>,
    ids: Vec<u32>,
    last: String,
}

impl Nodes {
    /// Starts an executor on each node.
    ///
    /// # Errors
    /// A launcher cannot be started. The user was told.
    pub(crate) fn start(
        args: &NodeArgs,
        launches: Vec<Launch>,
        access: &AccessFile,
    ) -> Result<Nodes, Exit> {
        let program = std::env::current_exe().map_err(|error| {
            Exit::failure(format_args!("cannot tell where this program is: {error}"))
        })?;
        let mut executor = vec![program.to_string_lossy().into_owned()];
        executor.extend(["executor", "--access", "-", "--give-up", GIVE_UP].map(str::to_owned));
        executor.extend(args.passed_on.iter().cloned());
        let says_slots = args.passed_on.iter().any(|word| word.starts_with("--slots="));
        let mut nodes = Nodes::default();
        for launch in launches {
            let mut words = executor.clone();
            words.extend(launch.cpus.filter(|_| !says_slots).map(|cpus| format!("--slots={cpus}")));
            if launch.by_shell {
                words.iter_mut().for_each(|word| *word = quoted(word));
            }
            let mut command = Command::new(launch.program);
            command.args(&launch.words).args(words).kill_on_drop(true);
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
            let child = command.spawn().map_err(|error| {
                Exit::failure(format_args!("cannot start {}: {error}", launch.program))
            })?;
            nodes.ids.extend(child.id());
            nodes.launchers.spawn(watched(launch, child, access.text()));
        }
        Ok(nodes)
    }

    /// Waits until none is left, if there were any.
    pub(crate) async fn failure(&mut self) -> NoNodes {
        if self.ids.is_empty() {
            return std::future::pending().await;
        }
        while let Some(ended) = self.launchers.join_next().await {
            // Not aborted here, and it does not panic.
            self.last = ended.unwrap_or_default();
            if !self.launchers.is_empty() {
                say(&self.last);
            }
        }
        NoNodes(std::mem::take(&mut self.last))
    }

    /// Has the executors leave, and waits until their launchers have ended. Executors out of
    /// reach of their launcher's signals leave when they find the dispatcher gone.
    pub(crate) async fn stop(mut self) {
        use rustix::process::{Pid, Signal, kill_process};
        for id in &self.ids {
            if let Some(id) = Pid::from_raw(id.cast_signed()) {
                // It may have ended.
                let _ = kill_process(id, Signal::TERM);
            }
        }
        let ended = async { while self.launchers.join_next().await.is_some() {} };
        // What is left then is killed.
        let _ = tokio::time::timeout(STOP_MAX, ended).await;
    }
}

/// Gives a launcher what its executors need, and returns how it ended.
async fn watched(launch: Launch, mut child: Child, access: Zeroizing<Vec<u8>>) -> String {
    if let Some(mut stdin) = child.stdin.take() {
        // If nobody reads, it has ended, and says why.
        let _ = stdin.write_all(&access).await;
    }
    let last = match child.stderr.take() {
        Some(stderr) => last_lines(stderr).await.unwrap_or_default(),
        None => VecDeque::new(),
    };
    let what = launch.words.last().map_or("", String::as_str);
    let how = match child.wait().await {
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    let mut text = format!("{} ({what}) has ended: {how}", launch.program);
    for line in last {
        text.push_str("\n  ");
        text.extend(line.chars().map(|char| if char.is_control() { ' ' } else { char }));
    }
    text
}

async fn last_lines(stream: impl AsyncRead + Unpin) -> io::Result<VecDeque<String>> {
    let mut last = VecDeque::new();
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        let found = reader.fill_buf().await?;
        if found.is_empty() {
            break;
        }
        let end = found.iter().position(|byte| *byte == b'\n');
        let part = &found[..end.unwrap_or(found.len())];
        let room = LINE_BYTES_MAX.saturating_sub(line.len()).min(part.len());
        line.extend_from_slice(&part[..room]);
        let used = part.len() + usize::from(end.is_some());
        reader.consume(used);
        if end.is_some() {
            last.push_back(String::from_utf8_lossy(&std::mem::take(&mut line)).into_owned());
            if last.len() > LINES_KEPT {
                last.pop_front();
            }
        }
    }
    Ok(last)
}
