//! What happens to results: the options that say so, and the sinks that do it.

use super::directory::Directory;
use super::job_log::JobLog;
use super::line::Json;
use super::measured::MeasureArgs;
use super::order::Ordered;
use super::terminal::Terminal;
use super::tree::Tree;
use super::{Sink, SinkError, TaskResult};
use crate::exit::Exit;
use crate::plan::Plan;
use clap::Args;
use std::path::{Path, PathBuf};

/// Bytes of each output stream kept in memory, by default.
pub(crate) const CAPTURE_BYTES_DEFAULT: u64 = 64 << 10;

/// What happens to results.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Results")]
pub(crate) struct OutputArgs {
    /// Write results to this directory: results.jsonl, the output of tasks in the files
    /// stdout and stderr, and events
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub(crate) out: Option<PathBuf>,
    /// With --out or --resume, also write a file per task and stream
    #[arg(long)]
    pub(crate) out_files: bool,
    /// Continue a run that wrote to DIR: run only tasks that have not succeeded, or have
    /// changed; give the same command line otherwise. Without results there, begin one, as
    /// --out does
    #[arg(long, value_name = "DIR")]
    pub(crate) resume: Option<PathBuf>,
    /// Print a line of JSON per result on standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Print results in the order of the tasks, not as they end
    #[arg(long, short = 'k')]
    pub(crate) keep_order: bool,
    /// Print no progress line and no summary
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Bytes of each output stream kept with a result; longer output goes to a file
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = CAPTURE_BYTES_DEFAULT,
        value_parser = crate::plan::capture_bytes
    )]
    pub(crate) capture: u64,
    /// Begin each line of a task's output with its values and a tab
    #[arg(long, conflicts_with_all = ["json", "out", "resume", "results"])]
    pub(crate) tag: bool,
    /// Write a line per task to FILE, as GNU parallel does: number, executor, start, run time,
    /// exit status, command
    #[arg(long, value_name = "FILE")]
    pub(crate) joblog: Option<PathBuf>,
    /// Write each task's output to DIR/SOURCE/VALUE/…/stdout and stderr, by the task's values,
    /// and do not print it
    #[arg(long, value_name = "DIR")]
    pub(crate) results: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) measure: MeasureArgs,
}

impl OutputArgs {
    /// The first option that needs results to be waited for.
    pub(crate) fn waiting(&self) -> Option<&'static str> {
        [
            (self.tag, "--tag"),
            (self.joblog.is_some(), "--joblog"),
            (self.results.is_some(), "--results"),
        ]
        .into_iter()
        .find_map(|(given, option)| given.then_some(option))
    }

    /// Whether the output of tasks goes to standard output.
    pub(crate) fn prints(&self) -> bool {
        self.out.is_none() && self.resume.is_none() && self.results.is_none()
    }

    /// Whether results say what their tasks are.
    pub(crate) fn describes(&self) -> bool {
        let in_directory = self.out.is_some() || self.resume.is_some();
        self.json || in_directory || self.waiting().is_some()
    }
}

/// Where results go.
pub(crate) fn make_sink<'a>(
    output: &OutputArgs,
    directory: Option<Directory>,
    plan: &Plan,
) -> Result<Box<dyn Sink + 'a>, Exit> {
    let unwritten = |path: &Path, error: std::io::Error| {
        Exit::usage(format_args!("cannot write {}: {error}", path.display()))
    };
    let mut files: Vec<Box<dyn Sink>> = Vec::new();
    if let Some(path) = &output.joblog {
        files.push(Box::new(JobLog::create(path).map_err(|error| unwritten(path, error))?));
    }
    if let Some(path) = &output.results {
        files.push(Box::new(Tree::create(path).map_err(|error| unwritten(path, error))?));
    }
    let printed: Option<Box<dyn Sink>> = if output.json {
        Some(Box::new(Json::new(std::io::stdout())))
    } else if directory.is_none() && output.results.is_none() {
        Some(Box::new(if output.tag { Terminal::tagged() } else { Terminal::default() }))
    } else {
        None
    };
    let printed = printed.map(|sink| -> Box<dyn Sink> {
        if !output.keep_order {
            return sink;
        }
        let plan = plan.clone();
        let indices = (0..plan.count()).map(move |position| plan.index_of(position));
        Box::new(Ordered::new(sink, indices))
    });
    Ok(Box::new(All { files, printed, directory }))
}

/// Results go to files besides, to the directory, then to what is printed.
struct All {
    files: Vec<Box<dyn Sink>>,
    printed: Option<Box<dyn Sink>>,
    directory: Option<Directory>,
}

impl Sink for All {
    fn take(&mut self, result: &TaskResult) -> Result<(), SinkError> {
        // The directory moves long output away.
        self.files.iter_mut().try_for_each(|sink| sink.take(result))?;
        let kept = match &mut self.directory {
            Some(directory) => directory.take(result)?,
            None => [None, None],
        };
        let Some(printed) = &mut self.printed else { return Ok(()) };
        if kept == [None, None] {
            return printed.take(result);
        }
        printed.take(&TaskResult { kept, ..result.clone() })
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.files.iter_mut().try_for_each(|sink| sink.flush())?;
        if let Some(directory) = &mut self.directory {
            directory.flush()?;
        }
        self.printed.as_mut().map_or(Ok(()), Sink::flush)
    }

    fn close(&mut self) -> Result<(), SinkError> {
        self.files.iter_mut().try_for_each(|sink| sink.close())?;
        if let Some(directory) = &mut self.directory {
            directory.close()?;
        }
        self.printed.as_mut().map_or(Ok(()), Sink::close)
    }
}

impl Sink for Box<dyn Sink + '_> {
    fn take(&mut self, result: &TaskResult) -> Result<(), SinkError> {
        (**self).take(result)
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        (**self).flush()
    }

    fn close(&mut self) -> Result<(), SinkError> {
        (**self).close()
    }
}
