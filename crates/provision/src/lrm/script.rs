//! The shell script that starts an executor on a node.
//!
//! The script reaches the node on the standard input of a shell, so that
//! neither the dispatcher's secret nor anything else is in a command line, and
//! passes the access file to the executor on its standard input. All foreign
//! text in it is quoted, but for the prologue, which is shell.

use super::request::Request;
use super::settings::Settings;
use super::template::quoted;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

/// The settings with which executors are started.
#[derive(Clone)]
pub struct Executor {
    /// This program, where the queue's settings say nothing else.
    pub binary: PathBuf,
    /// The access file's text, with the executors' secret and no other.
    pub access: String,
    /// How long an executor goes on without a dispatcher.
    pub give_up: Duration,
    /// The time before the walltime's end at which an executor leaves, if it is
    /// set.
    pub leave_before: Option<Duration>,
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executor").field("binary", &self.binary).finish_non_exhaustive()
    }
}

/// How long a node waits for the program, in seconds.
const WAIT_S_MAX: u64 = 300;
/// Ends the access file in the script: no line of JSON is like it.
const ACCESS_END: &str = "END_OF_THE_ACCESS_FILE";

/// The program on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StagedBinary {
    /// Where it is on the nodes.
    pub(super) to: PathBuf,
    /// How large it is.
    pub(super) bytes: u64,
}

/// The peculiarities of a kind of LRM.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peculiar<'a> {
    /// The LRM does not know what a node is to offer.
    pub(super) limits: bool,
    /// The program is sent to the nodes, if it is not where it is to be.
    pub(super) binary: Option<&'a StagedBinary>,
}

/// The script for the nodes of one allocation. `FALKON_SLOTS` in its
/// environment has the number of slots that the node was granted, where only
/// the job's first process learns that from the LRM.
pub(super) fn node_script(
    executor: &Executor,
    settings: &Settings,
    job_name: &str,
    request: &Request,
    peculiar: Peculiar<'_>,
) -> String {
    // How long the job has run already counts, however long what follows takes.
    let mut script =
        String::from("umask 077\nbegan=${FALKON_BEGAN:-$(date +%s)}\nunset FALKON_BEGAN\n");
    for (name, value) in &settings.environment {
        // Into a String writing succeeds.
        let _ = writeln!(script, "export {name}={}", quoted(value));
    }
    for module in &settings.modules {
        let _ = writeln!(script, "module load {} || exit 1", quoted(module));
    }
    for line in &settings.prologue {
        script.push_str(line);
        script.push('\n');
    }
    script.push_str(&find_binary(executor, settings, peculiar.binary));
    let _ = write!(
        script,
        "$run \"$binary\" executor --access - --name {}/\"$(hostname)\" --allocation {allocation} \
         --give-up {}s ${{FALKON_SLOTS:+--slots \"$FALKON_SLOTS\"}}",
        quoted(job_name),
        executor.give_up.as_secs(),
        allocation = request.allocation,
    );
    let limit = |number: Option<u64>| number.filter(|_| peculiar.limits);
    if let Some(cpus) = limit(settings.cpus.map(u64::from)) {
        let _ = write!(script, " --slots {cpus}");
    }
    if let Some(gpus) = limit(settings.gpus.map(u64::from)) {
        let _ = write!(script, " --gpus {gpus}");
    }
    if let Some(memory) = limit(settings.memory_mib) {
        let _ = write!(script, " --memory {memory}MiB");
    }
    if let Some(disk) = settings.disk_mib {
        let _ = write!(script, " --disk {disk}MiB");
    }
    if let Some(walltime) = request.walltime {
        let _ = write!(script, " --walltime {}s --began \"$began\"", walltime.as_secs());
        if let Some(before) = executor.leave_before {
            let _ = write!(script, " --leave-before {}s", before.as_secs());
        }
    }
    if let Some(scratch) = &settings.scratch {
        let _ = write!(script, " --scratch {}", quoted(scratch));
    }
    for option in &settings.executor_options {
        let _ = write!(script, " {}", quoted(option));
    }
    let _ = write!(script, " <<'{ACCESS_END}'\n{}\n{ACCESS_END}\n", executor.access.trim_end());
    script
}

/// Lines that set `binary` to where the program is, and `run` to how it is
/// started: in the place of the shell, or, where it is to be removed
/// afterwards, by it.
fn find_binary(executor: &Executor, settings: &Settings, staged: Option<&StagedBinary>) -> String {
    let binary = settings.binary.as_ref().unwrap_or(&executor.binary);
    let binary = quoted(&binary.to_string_lossy());
    let missing = format!(
        "{{ echo \"$(hostname): there is no program \"{binary}\": say in job.binary where it is on \
         the nodes\" >&2; exit 127; }}"
    );
    let Some(StagedBinary { to, bytes }) = staged else {
        return format!("run=exec binary={binary}\n[ -x \"$binary\" ] || {missing}\n");
    };
    let to = quoted(&to.to_string_lossy());
    format!(
        "run=exec binary={binary}\n\
         if [ ! -x \"$binary\" ]; then\n\
         run= binary={to} tries=0\n\
         until [ -O \"$binary\" ] && [ \"$(wc -c <\"$binary\")\" -eq {bytes} ]; do\n\
         tries=$((tries + 1))\n\
         [ $tries -le {WAIT_S_MAX} ] || {missing}\n\
         sleep 1\n\
         done\n\
         trap 'rm -f \"$binary\"' EXIT\n\
         trap 'exit 143' TERM INT HUP\n\
         chmod 700 \"$binary\"\n\
         fi\n"
    )
}
