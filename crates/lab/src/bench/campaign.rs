//! One client's work on a dispatcher: submit, receive every result, check that
//! each is there.

use super::error::BenchError;
use falkon_core::dispatch::{Delivery, InstanceOptions};
use falkon_core::result::Outcome;
use falkon_core::task::{
    InstanceId, Kind, Packed, Range, Resources, Rows, Submission, TaskClass, TaskId,
};
use falkon_net::client::{Client, Deliveries, Pending};
use falkon_wire::codec::Wire;
use falkon_wire::command::{Command, CommandTemplate, Form, Piece, Template};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// Tasks in one submission of stored rows, at most: what `falkon submit` does.
pub(crate) const BUNDLE_TASKS_MAX: u64 = 1024;
/// Tasks submitted and not accepted, before the client waits.
const UNDER_WAY_TASKS_MAX: u64 = 128 * BUNDLE_TASKS_MAX;
/// Submissions not accepted, before the client waits.
const UNDER_WAY_MAX: usize = 1024;

/// What to submit.
#[derive(Debug, Clone)]
pub(crate) struct Load {
    /// How many tasks.
    pub(crate) tasks: u64,
    /// Tasks per submission.
    pub(crate) bundle: u64,
    /// Each task has its own command, arguments and environment; otherwise all
    /// are rows of one template.
    pub(crate) distinct: bool,
    /// The program, or a builtin, and the arguments in front of those that
    /// distinct tasks have of their own.
    pub(crate) program: &'static str,
    /// Tasks that are not distinct have their number as an argument; otherwise
    /// they have none.
    pub(crate) numbered: bool,
    /// Memory that tasks ask for.
    pub(crate) memory: Memory,
}

/// Memory that tasks ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Memory {
    /// None in particular.
    #[default]
    Any,
    /// All the same: one class of tasks.
    Alike,
    /// All the same, said of each task: a class for each, of which nothing says
    /// that it is like others.
    AlikeEach,
    /// Each a size of its own.
    Different,
}

/// Memory that tasks ask for if they do, at least.
const MEMORY_BYTES_MIN: u64 = 1 << 20;

impl Default for Load {
    fn default() -> Load {
        Load {
            tasks: 0,
            bundle: BUNDLE_TASKS_MAX,
            distinct: true,
            program: "@noop",
            numbered: true,
            memory: Memory::Any,
        }
    }
}

impl Load {
    fn class(&self, task: u64) -> TaskClass {
        let kind = match self.program.split(' ').next() {
            Some("@noop") => Kind::Noop,
            Some("@sleep") => Kind::Sleep,
            _ => Kind::Process,
        };
        let memory_bytes = match self.memory {
            Memory::Any => 0,
            Memory::Alike | Memory::AlikeEach => MEMORY_BYTES_MIN,
            Memory::Different => MEMORY_BYTES_MIN + task,
        };
        let resources = Resources { memory_bytes, ..Resources::cpus(1) };
        TaskClass { kind, resources, ..TaskClass::default() }
    }

    /// The submission that begins with task `first`.
    pub(crate) fn submission(&self, first: u64) -> Submission {
        let count = self.bundle.min(self.tasks - first);
        let (template, rows) = if self.distinct {
            (Template::Each, Rows::Packed(self.commands(first, count)))
        } else {
            let values = Range { start: 0, step: 1, count: self.tasks };
            let mut argv = vec![vec![Piece::Literal(self.program.into())]];
            if self.numbered {
                argv.push(vec![Piece::Value { source: 0, form: Form::Whole }]);
            }
            let template =
                Template::Command(CommandTemplate { argv, ..CommandTemplate::default() });
            (template, Rows::Computed { factors: vec![values], offset: first })
        };
        let (classes, class_runs) = match self.memory {
            Memory::Different | Memory::AlikeEach => (
                (first..first + count).map(|task| self.class(task)).collect(),
                (0..count as u32).map(|class| (1, class)).collect(),
            ),
            _ => (vec![self.class(first)], vec![(count, 0)]),
        };
        Submission {
            data: None,
            count,
            template: Arc::new(template.to_bytes()),
            rows,
            classes,
            class_runs,
            names: None,
            after: Vec::new(),
            everywhere: None,
        }
    }

    fn commands(&self, first: u64, count: u64) -> Packed {
        let (mut blob, mut ends) = (Vec::new(), Vec::with_capacity(count as usize));
        for number in first..first + count {
            let mut argv: Vec<Vec<u8>> = self.program.split(' ').map(Into::into).collect();
            argv.push(format!("--input=/data/object-{number:08}.fits").into());
            argv.push(format!("{}", number % 977).into());
            let command = Command {
                argv,
                env: vec![(b"OBJECT".to_vec(), format!("object-{number:08}").into())],
                ..Command::default()
            };
            command.encode(&mut blob);
            // A bundle's rows fit a frame, so far below 4 GiB.
            ends.push(blob.len() as u32);
        }
        Packed { blob: Arc::new(blob), ends: Arc::new(ends) }
    }
}

/// What a campaign took.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Taken {
    /// From the first submission to the last result.
    pub(crate) seconds: f64,
    /// Bytes of messages to the dispatcher.
    pub(crate) bytes_out: u64,
    /// Bytes of results from it.
    pub(crate) bytes_in: u64,
}

/// Submits `load` to a new instance, receives all results, and destroys the
/// instance.
pub(crate) async fn run(
    client: &Client,
    deliveries: &mut Deliveries,
    load: &Load,
) -> Result<Taken, BenchError> {
    let instance = create(client).await?;
    client.subscribe(instance, 0).await?;
    let start = Instant::now();
    let submit = async {
        let bytes = submit(client, instance, load).await?;
        client.seal(instance).await?;
        Ok::<_, BenchError>(bytes)
    };
    let receive = async {
        let received = receive(client, deliveries, instance, load.tasks).await?;
        Ok::<_, BenchError>((start.elapsed().as_secs_f64(), received.bytes))
    };
    let (bytes_out, (seconds, bytes_in)) = tokio::try_join!(submit, receive)?;
    client.destroy(instance).await?;
    Ok(Taken { seconds, bytes_out, bytes_in })
}

/// An instance as an embedded run makes it.
pub(crate) async fn create(client: &Client) -> Result<InstanceId, BenchError> {
    let options =
        InstanceOptions { name: "bench".to_owned(), keep_results: false, ..Default::default() };
    Ok(client.create(options).await?.0)
}

/// Submits all tasks; returns the bytes of the submissions, roughly.
pub(crate) async fn submit(
    client: &Client,
    instance: InstanceId,
    load: &Load,
) -> Result<u64, BenchError> {
    let mut under_way: VecDeque<(u64, Pending)> = VecDeque::new();
    let (mut waiting, mut bytes, mut first) = (0, 0, 0);
    while first < load.tasks {
        let submission = load.submission(first);
        let count = submission.count;
        bytes += message_bytes(&submission);
        while under_way.len() >= UNDER_WAY_MAX
            || (waiting + count > UNDER_WAY_TASKS_MAX && waiting > 0)
        {
            let Some((count, pending)) = under_way.pop_front() else { break };
            pending.accepted().await?;
            waiting -= count;
        }
        under_way.push_back((count, client.submit(instance, TaskId(first), submission).await?));
        waiting += count;
        first += count;
    }
    for (_, pending) in under_way {
        pending.accepted().await?;
    }
    Ok(bytes)
}

fn message_bytes(submission: &Submission) -> u64 {
    let rows = match &submission.rows {
        Rows::Packed(packed) => packed.blob.len() + packed.ends.len() * 4,
        Rows::Computed { .. } => 16,
    };
    (rows + submission.template.len() + 48) as u64
}

/// Results that have been received.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Received {
    /// Bytes of them, roughly.
    bytes: u64,
    /// From the first task's dispatch to the end of the last, in seconds.
    pub(crate) dispatched_in: f64,
}

/// Takes results in until all are there.
pub(crate) async fn receive(
    client: &Client,
    deliveries: &mut Deliveries,
    instance: InstanceId,
    tasks: u64,
) -> Result<Received, BenchError> {
    let (mut position, mut done, mut bytes) = (0, 0, 0);
    let (mut first, mut last) = (u64::MAX, 0);
    loop {
        let delivery = deliveries.recv().await?;
        if delivery.instance != instance {
            continue;
        }
        if delivery.from != position {
            return Err(BenchError::Results { expected: tasks, done });
        }
        bytes += result_bytes(&delivery);
        for run in &delivery.results {
            position += run.count;
            first = first.min(run.dispatched.0);
            last = last.max(run.ended.0);
            if run.outcome == Outcome::Exit(0) {
                done += run.count;
            }
        }
        client.acknowledge(instance, position).await?;
        if delivery.complete {
            break;
        }
    }
    if position == tasks && done == tasks {
        Ok(Received { bytes, dispatched_in: last.saturating_sub(first) as f64 / 1e6 })
    } else {
        Err(BenchError::Results { expected: tasks, done })
    }
}

/// The bytes that a delivery took on the wire, judged by its first run.
fn result_bytes(delivery: &Delivery) -> u64 {
    let each = delivery.results.first().map_or(0, |run| run.to_bytes().len());
    (32 + each * delivery.results.len()) as u64
}
