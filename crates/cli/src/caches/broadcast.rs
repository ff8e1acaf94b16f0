//! `falkon data broadcast`: objects into the caches of all executors, ahead of
//! the tasks that read them.
//!
//! It is a task without work that runs on each executor and reads the objects:
//! they are fetched as the inputs of any task are. It holds no slot, so it
//! waits for no other task.

use crate::access::AccessArgs;
use crate::campaign::Receiver;
use crate::data::PolicyArgs;
use crate::everywhere::{accepted, submission};
use crate::exit::{Exit, runtime, say, write_line};
use crate::plan::quantity::QuantityError;
use crate::plan::{Plan, PlanArgs, disk_bytes, has_value, memory_bytes, resource};
use crate::progress::{Progress, span};
use crate::query::{self, Submitted, counted};
use crate::results::line::Json;
use crate::results::staged::bytes_text;
use crate::results::{Sink, SinkError, TaskResult};
use crate::run::{Ending, make_plan};
use crate::submit::{Created, InstanceArgs};
use clap::Args;
use falkon_core::dispatch::InstanceOptions;
use falkon_core::result::{Cause, Status};
use falkon_core::task::{DISK, Everywhere, Resources, Submission};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Stdout;
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

/// Executors that are named for each reason why they do not have the objects.
const EXECUTORS_SHOWN_MAX: usize = 10;
/// Reasons that are described.
const REASONS_SHOWN_MAX: usize = 10;

/// `falkon data broadcast`
#[derive(Args, Debug)]
pub(super) struct BroadcastArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// Objects: paths, URLs or cache:KEY, as tasks declare them
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<OsString>,
    /// Only to executors that offer this: gpus, memory=SIZE, disk=SIZE, or a custom resource; with =COUNT,
    /// at least so many; may be repeated
    #[arg(long = "to", value_name = "RESOURCE", value_parser = offered)]
    offering: Vec<Offered>,
    /// Print a line of JSON per executor
    #[arg(long)]
    json: bool,
    /// Print no progress line and no summary
    #[arg(long, short)]
    quiet: bool,
}

/// What executors are to offer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Offered {
    Gpus(u32),
    Memory(u64),
    Disk(u64),
    Custom(String, u64),
}

fn offered(text: &str) -> Result<Offered, QuantityError> {
    let (name, amount) = text.split_once('=').unwrap_or((text, "1"));
    if name == "memory" {
        return memory_bytes(amount).map(Offered::Memory);
    }
    if name == DISK {
        return disk_bytes(amount).map(Offered::Disk);
    }
    let (name, count) = resource(&format!("{name}={amount}"))?;
    match name.as_str() {
        "gpus" => {
            let count = u32::try_from(count);
            count.map(Offered::Gpus).map_err(|_| QuantityError::Resource(text.to_owned()))
        }
        _ => Ok(Offered::Custom(name, count)),
    }
}

/// All that was asked for together.
fn resources(offering: &[Offered]) -> Resources {
    let mut custom: BTreeMap<String, u64> = BTreeMap::new();
    let mut all = Resources::default();
    for one in offering {
        match one {
            Offered::Gpus(count) => all.gpus = all.gpus.max(*count),
            Offered::Memory(bytes) => all.memory_bytes = all.memory_bytes.max(*bytes),
            Offered::Disk(bytes) => {
                let most = custom.entry(DISK.to_owned()).or_default();
                *most = (*most).max(*bytes);
            }
            Offered::Custom(name, count) => {
                let most = custom.entry(name.clone()).or_default();
                *most = (*most).max(*count);
            }
        }
    }
    all.custom = custom.into_iter().collect();
    all
}

pub(super) fn broadcast(args: &BroadcastArgs) -> Exit {
    let plan = match plan(&args.sources) {
        Ok(plan) => plan,
        Err(exit) => return exit,
    };
    match runtime() {
        Ok(runtime) => runtime.block_on(run(args, &plan)).unwrap_or_else(|exit| exit),
        Err(exit) => exit,
    }
}

/// A task that reads the objects and does nothing.
fn plan(sources: &[OsString]) -> Result<Plan, Exit> {
    let mut plan =
        PlanArgs { words: ["@sleep", "0"].map(OsString::from).into(), ..PlanArgs::default() };
    plan.options.reads_held = true;
    for (number, source) in (1..).zip(sources) {
        if source.is_empty() {
            return Err(Exit::usage("a source is empty: give a path, a URL or cache:KEY"));
        }
        if has_value(source.as_bytes()) {
            return Err(Exit::usage(format_args!(
                "{} has a placeholder for values in it, and there are none: give the object \
                 another name",
                source.display()
            )));
        }
        let mut input = OsString::from(format!("{number}="));
        input.push(source);
        match source.as_bytes().ends_with(b"/") {
            // A directory, which is unpacked where it arrives.
            true => plan.options.unpack.push(input),
            false => plan.options.input.push(input),
        }
    }
    make_plan(&plan, true)
}

async fn run(args: &BroadcastArgs, plan: &Plan) -> Result<Exit, Exit> {
    let access = args.access.load_or_exit()?;
    let instance = InstanceArgs::named("broadcast");
    let options =
        InstanceOptions { policy: PolicyArgs::default().options(plan)?, ..instance.options() };
    let started = Instant::now();
    let mut created = instance.create(&access, &options, plan, args.quiet).await?;
    let mut submission = submission(plan).await?;
    let offering = resources(&args.offering);
    submission.everywhere = Some(Everywhere { offering, ..Everywhere::default() });
    // It runs nothing, so it runs beside whatever is there.
    for class in &mut submission.classes {
        class.resources = Resources::default();
    }
    let bytes = bytes_of(&submission);
    let count = match accepted(&mut created, &submission, args.quiet).await {
        Ok(count) => count,
        Err(exit) => {
            destroy(&created).await;
            return Err(exit);
        }
    };
    let mut arrivals =
        Arrivals { json: args.json.then(|| Json::new(std::io::stdout())), ..Arrivals::default() };
    let ending = {
        let progress = Progress::of_bytes(count, bytes, !args.quiet);
        let mut receiver = Receiver::new(None, Box::new(&mut arrivals), progress, false);
        let Created { id, access, .. } = &created;
        let followed = query::follow(access, *id, &mut receiver, Submitted::Awaited, args.quiet);
        let ending = followed.await;
        receiver.hide();
        ending
    };
    // One that is interrupted again leaves what it has cancelled to the dispatcher.
    if !matches!(ending, Ending::Client(_)) {
        destroy(&created).await;
    }
    arrivals.report(count, bytes, (!args.quiet).then_some(started));
    Ok(match ending {
        Ending::Complete => arrivals.exit(),
        Ending::Abandoned | Ending::Sink(SinkError::Closed) => Exit::TasksFailed,
        Ending::Sink(error) => Exit::failure(error),
        Ending::Client(error) => Exit::client(error),
        Ending::Executor(error) => Exit::failure(error),
    })
}

/// How many bytes all objects have together, as far as is known here.
fn bytes_of(submission: &Submission) -> u64 {
    let objects = submission.data.iter().flat_map(|data| data.objects.iter());
    objects.filter_map(|object| object.size).fold(0, u64::saturating_add)
}

/// Nobody asks for the results again. An instance that cannot be destroyed now
/// expires.
async fn destroy(created: &Created) {
    if let Ok((client, _)) = crate::access::connect(&created.access, Some(created.id)).await {
        let _ = client.destroy(created.id).await;
    }
}

/// The executors that have the objects, as their results arrive.
#[derive(Default)]
struct Arrivals {
    json: Option<Json<Stdout>>,
    /// How many have them.
    done: u64,
    /// How many have left meanwhile.
    left: u64,
    /// How many do not receive them any more.
    cancelled: u64,
    failed: u64,
    /// Why, and the first executors.
    reasons: BTreeMap<String, Vec<String>>,
}

impl Sink for &mut Arrivals {
    fn take(&mut self, result: &TaskResult) -> Result<(), SinkError> {
        let cause = result.detail.as_ref().and_then(|detail| detail.cause);
        match result.status() {
            Status::Done => self.done += 1,
            Status::Cancelled => self.cancelled += 1,
            Status::Failed if cause == Some(Cause::ExecutorLeft) => self.left += 1,
            Status::Failed => {
                self.failed += 1;
                let reason = result.error().unwrap_or_default();
                if self.reasons.len() < REASONS_SHOWN_MAX || self.reasons.contains_key(&reason) {
                    let executors = self.reasons.entry(reason).or_default();
                    let name = result.executor.as_deref().unwrap_or("an executor that left");
                    executors.push(name.to_owned());
                }
            }
        }
        self.json.as_mut().map_or(Ok(()), |json| json.take(result))
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.json.as_mut().map_or(Ok(()), Sink::flush)
    }
}

impl Arrivals {
    fn exit(&self) -> Exit {
        match self.failed + self.cancelled == 0 && self.done > 0 {
            true => Exit::Success,
            false => Exit::TasksFailed,
        }
    }

    /// Says who does not have the objects, and, with the time of the beginning,
    /// how many do.
    fn report(&self, count: u64, bytes: u64, started: Option<Instant>) {
        for (reason, executors) in &self.reasons {
            let mut executors = executors.clone();
            executors.sort();
            let shown = executors.len().min(EXECUTORS_SHOWN_MAX);
            let more = match executors.len() - shown {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            write_line(format_args!(
                "falkon: not on {}{more}: {reason}",
                executors[..shown].join(", ")
            ));
        }
        let Some(started) = started else { return };
        let there = count.saturating_sub(self.left);
        let mut text = format!("on {} of {}", self.done, counted(there, "executor"));
        if bytes > 0 {
            text.push_str(&format!(", {} each", bytes_text(bytes)));
        }
        if self.left > 0 {
            text.push_str(&format!("; {} left meanwhile", counted(self.left, "executor")));
        }
        say(format_args!("{text}, in {}", span(started.elapsed().as_secs_f64())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_executors_are_to_offer_is_read() {
        assert_eq!(offered("gpus"), Ok(Offered::Gpus(1)));
        assert_eq!(offered("gpus=4"), Ok(Offered::Gpus(4)));
        assert_eq!(offered("memory=1GiB"), Ok(Offered::Memory(1 << 30)));
        assert_eq!(offered("disk=1GiB"), Ok(Offered::Disk(1 << 30)));
        assert_eq!(offered("bigmem"), Ok(Offered::Custom("bigmem".to_owned(), 1)));
        for text in ["", "=1", "memory=much", "gpus=x", "gpus=5000000000"] {
            assert!(offered(text).is_err(), "{text}");
        }
        let all = ["b=2", "a", "b=1", "gpus"].map(|text| offered(text).unwrap());
        let custom = vec![("a".to_owned(), 1), ("b".to_owned(), 2)];
        assert_eq!(resources(&all), Resources { gpus: 1, custom, ..Resources::default() });
    }
}
