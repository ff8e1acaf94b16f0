//! `--joblog`: a line per task, as GNU parallel writes it.

use super::{Sink, SinkError, TaskResult};
use falkon_core::result::Outcome;
use falkon_core::task::Time;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

const HEAD: &str = "Seq\tHost\tStarttime\tJobRuntime\tSend\tReceive\tExitval\tSignal\tCommand\n";

/// See the [module](self).
pub(crate) struct JobLog {
    out: BufWriter<File>,
    name: String,
}

impl JobLog {
    /// Begins a log; a file that is there is written anew.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn create(path: &Path) -> io::Result<JobLog> {
        let mut out = BufWriter::new(File::create(path)?);
        out.write_all(HEAD.as_bytes())?;
        Ok(JobLog { out, name: path.display().to_string() })
    }
}

fn write_line(result: &TaskResult, out: &mut impl Write) -> io::Result<()> {
    let seconds = |time: Time| time.0 as f64 / 1e6;
    let (start, runtime) = match result.has_run() {
        true => {
            let start = seconds(result.times.started);
            (start, seconds(result.times.ended) - start)
        }
        false => (0.0, 0.0),
    };
    let received = result.detail.as_deref().map_or(0, |detail| detail.stdout.total_bytes);
    let (exit, signal) = match result.outcome {
        Outcome::Exit(code) => (code, 0),
        Outcome::Signal(signal) => (0, signal),
        // GNU parallel's mark of a task that did not run to its end.
        _ => (-1, 0),
    };
    let host = result.executor.as_deref().unwrap_or(":");
    let command = result.what.as_ref().map_or("", |what| what.command.as_str());
    let command = command.replace(char::is_control, " ");
    writeln!(
        out,
        "{}\t{host}\t{start:.3}\t{runtime:10.3}\t0\t{received}\t{exit}\t{signal}\t{command}",
        result.index + 1
    )
}

impl Sink for JobLog {
    fn take(&mut self, result: &TaskResult) -> Result<(), SinkError> {
        write_line(result, &mut self.out).map_err(SinkError::of(&self.name))
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.out.flush().map_err(SinkError::of(&self.name))
    }
}
