//! `falkon export`: events for other programs.

use super::perfetto::Trace;
use super::source::{Source, SourceError};
use super::table::Tasks;
use super::{Names, line};
use crate::access::AccessArgs;
use crate::exit::{Exit, Runtime, runtime};
use crate::named_file;
use clap::{ArgGroup, Args};
use falkon_core::events::{Event, What};
use std::io::{self, Write};
use std::path::PathBuf;

/// Bytes that are written together.
const WRITE_BYTES: usize = 256 << 10;

/// `falkon export`
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("format").required(true)))]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// Export the events of this directory: one that falkon run --out wrote, or a dispatcher's
    /// (falkon start --dir) [default: ask the running dispatcher]
    #[arg(value_name = "DIR", conflicts_with = "access")]
    directory: Option<PathBuf>,
    /// A line of JSON for each run of tasks that ended alike
    #[arg(long, group = "format")]
    jsonl: bool,
    /// A table of the same, for DuckDB, pandas and polars
    #[arg(long, group = "format")]
    parquet: bool,
    /// A trace for ui.perfetto.dev: executors with their slots, and what ran there
    #[arg(long, group = "format")]
    perfetto: bool,
    /// The file to write [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Events cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write events to {place}: {error}")]
struct ExportError {
    place: String,
    error: io::Error,
}

/// Why an export ends before its end.
#[derive(Debug)]
enum Stopped {
    /// Events cannot be read.
    Source(SourceError),
    /// They cannot be written.
    Write(io::Error),
}

/// What an export makes of events.
enum Format {
    Jsonl(Vec<u8>),
    Parquet(Box<Tasks>),
    Perfetto(Box<Trace>),
}

impl Format {
    fn add(&mut self, event: &Event, names: &Names) {
        match self {
            Format::Jsonl(text) if matches!(event.what, What::Ended(_)) => {
                line::write(event, names, text);
            }
            Format::Jsonl(_) => {}
            Format::Parquet(tasks) => tasks.add(event, names),
            Format::Perfetto(trace) => trace.add(event, names),
        }
    }

    /// Writes what there is, if it is much or the end.
    fn write(&mut self, out: &mut dyn Write, is_end: bool) -> io::Result<()> {
        match self {
            Format::Jsonl(text) if is_end || text.len() >= WRITE_BYTES => {
                out.write_all(text)?;
                text.clear();
            }
            Format::Perfetto(trace) if is_end || trace.len() >= WRITE_BYTES => {
                out.write_all(&trace.take())?;
            }
            Format::Parquet(tasks) if is_end || tasks.len() >= WRITE_BYTES => {
                out.write_all(&tasks.take())?;
            }
            Format::Jsonl(_) | Format::Parquet(_) | Format::Perfetto(_) => {}
        }
        Ok(())
    }
}

/// Runs the command.
pub(crate) fn export(args: ExportArgs) -> Exit {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    let source = match Source::of(args.directory.as_deref(), &args.access, &runtime) {
        Ok(source) => source,
        Err(exit) => return exit,
    };
    let format = match (args.perfetto, args.parquet) {
        (true, _) => Format::Perfetto(Box::new(Trace::new())),
        (false, true) => Format::Parquet(Box::new(Tasks::new())),
        (false, false) => Format::Jsonl(Vec::new()),
    };
    let mut refused = None;
    let fill = |out: &mut dyn Write| match export_to(source, format, &runtime, out) {
        Ok(()) => Ok(()),
        Err(Stopped::Write(error)) => Err(error),
        Err(Stopped::Source(error)) => {
            refused = Some(error);
            Err(io::Error::other("events cannot be read"))
        }
    };
    let (written, place) = match &args.output {
        Some(path) => (named_file::write_with(path, |file| fill(file)), path.display().to_string()),
        None => (fill(&mut io::stdout().lock()), "standard output".to_owned()),
    };
    match (written, refused) {
        (_, Some(error)) => error.exit(),
        (Ok(()), None) => Exit::Success,
        (Err(error), None) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Success,
        (Err(error), None) => Exit::failure(ExportError { place, error }),
    }
}

fn export_to(
    mut source: Source,
    mut format: Format,
    runtime: &Runtime,
    out: &mut dyn Write,
) -> Result<(), Stopped> {
    let mut names = Names::default();
    while let Some(block) = runtime.block_on(source.next()).map_err(Stopped::Source)? {
        let is_whole = block.each(|event| {
            names.learn(&event);
            if !block.repeats {
                format.add(&event, &names);
            }
        });
        if !is_whole {
            return Err(Stopped::Source(SourceError::Unknown));
        }
        format.write(out, false).map_err(Stopped::Write)?;
    }
    match &mut format {
        Format::Perfetto(trace) => trace.end(),
        Format::Parquet(tasks) => tasks.end(),
        Format::Jsonl(_) => {}
    }
    format.write(out, true).and_then(|()| out.flush()).map_err(Stopped::Write)
}
