//! What happened, from a running dispatcher or from files: `falkon log`, `falkon export`.

mod export;
mod filter;
mod line;
mod parquet;
mod perfetto;
pub(crate) mod source;
mod table;
mod words;

pub(crate) use export::{ExportArgs, export};
pub(crate) use words::outcome_words;

use crate::access::AccessArgs;
use crate::exit::{Exit, say};
use crate::query::print;
use clap::Args;
use falkon_core::events::{Event, What};
use falkon_core::task::{ExecutorId, InstanceId};
use filter::FilterArgs;
use source::{Source, SourceError};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How often a follower looks for more.
const LOOK: Duration = Duration::from_millis(250);
/// Bytes that are printed together.
const PRINT_BYTES: usize = 64 << 10;

/// `falkon log`
#[derive(Args, Debug)]
pub(crate) struct LogArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// Read the events of this directory: one that falkon run --out wrote, or a dispatcher's
    /// (falkon start --dir) [default: ask the running dispatcher]
    #[arg(value_name = "DIR", conflicts_with = "access")]
    directory: Option<PathBuf>,
    /// Do not end, and print events as they come
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    filter: FilterArgs,
    /// Print a line of JSON per event
    #[arg(long)]
    json: bool,
}

/// The names of what events have numbers for.
#[derive(Debug, Default)]
pub(crate) struct Names {
    instances: BTreeMap<InstanceId, Arc<str>>,
    executors: BTreeMap<ExecutorId, Arc<str>>,
}

impl Names {
    /// Learns what an event says of names.
    pub(crate) fn learn(&mut self, event: &Event) {
        match &event.what {
            What::InstanceCreated { instance, name, .. } => {
                self.instances.insert(*instance, name.clone());
            }
            What::ExecutorJoined { executor, name, .. } => {
                self.executors.insert(*executor, name.clone());
            }
            _ => {}
        }
    }

    /// The name of an instance, if it has one.
    pub(crate) fn instance(&self, id: InstanceId) -> Option<&str> {
        self.instances.get(&id).map(|name| &**name).filter(|name| !name.is_empty())
    }

    /// All executors, by number.
    pub(crate) fn executors(&self) -> impl Iterator<Item = (&ExecutorId, &Arc<str>)> {
        self.executors.iter()
    }

    /// The name of an executor, if it is known.
    pub(crate) fn executor(&self, id: ExecutorId) -> Option<&str> {
        self.executors.get(&id).map(|name| &**name)
    }
}

/// Runs the command.
pub(crate) fn log(args: LogArgs) -> Exit {
    let filter = match args.filter.filter() {
        Ok(filter) => filter,
        Err(why) => return Exit::usage(why),
    };
    let runtime = match crate::exit::runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    let source = Source::of(args.directory.as_deref(), &args.access, &runtime);
    let mut source = match source {
        Ok(source) => source,
        Err(exit) => return exit,
    };
    let mut names = Names::default();
    let mut text = Vec::new();
    let mut is_told = false;
    loop {
        let next = runtime.block_on(source.next());
        let block = match next {
            Ok(block) => block,
            Err(error) => return error.exit(),
        };
        let Some(block) = block else {
            if let Some(exit) = print_all(&mut text) {
                return exit;
            }
            match filter.not_there(&names) {
                Some(why) if !args.follow => return Exit::usage(why),
                // It may come.
                Some(why) if !is_told => say(format_args!("{why}, so far")),
                None if !args.follow => return Exit::Success,
                _ => {}
            }
            is_told = true;
            std::thread::sleep(LOOK);
            continue;
        };
        let is_whole = block.each(|event| {
            names.learn(&event);
            if block.repeats || !filter.takes(&event, &names) {
                return;
            }
            match args.json {
                true => line::write(&event, &names, &mut text),
                false => words::write(&event, &names, &mut text),
            }
        });
        if !is_whole {
            return SourceError::Unknown.exit();
        }
        if text.len() >= PRINT_BYTES
            && let Some(exit) = print_all(&mut text)
        {
            return exit;
        }
    }
}

fn print_all(text: &mut Vec<u8>) -> Option<Exit> {
    // Lines are of valid texts.
    let printed = print(&String::from_utf8_lossy(text));
    text.clear();
    printed
}
