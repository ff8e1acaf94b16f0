//! Real schedulers, and executors that only say what they were given.

use falkon_provision::lrm::{Driver, Executor, Job, Request, Settings, State, Submission};
use falkon_trials::skip;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// How long anything may take on a slow and busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The daemons of a scheduler, which end when this is dropped.
#[derive(Debug)]
pub(crate) struct Daemons {
    process: Child,
    /// They live as long as this is open.
    stdin: Option<ChildStdin>,
    said: BufReader<ChildStdout>,
}

impl Daemons {
    /// Starts them by `script` of `tests/schedulers`. `None`, with a line that
    /// says why, where that cannot be.
    pub(crate) fn start(script: &str, args: &[&str]) -> Daemons {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/schedulers");
        let mut command = Command::new("bash");
        command.arg(scripts.join(script)).args(args);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = process.stdin.take();
        let mut said = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let daemons = Daemons { process, stdin, said };
        if line.trim() == "ready" {
            return daemons;
        }
        match line.trim().strip_prefix("skipped: ") {
            Some(reason) => skip(reason),
            None => panic!("{script} said {line:?}"),
        }
    }

    /// Has the script stop or start one of them.
    pub(crate) fn tell(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
        let mut answer = String::new();
        self.said.read_line(&mut answer).unwrap();
        assert_eq!(answer, "done\n");
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.process.wait();
    }
}

/// A place with a program in `falkon`'s place, which writes down how it was
/// started and stays until it is told to go.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) dir: tempfile::TempDir,
}

impl Site {
    pub(crate) fn new() -> Site {
        let dir = tempfile::Builder::new().prefix("falkon-lrm-").tempdir().unwrap();
        let site = Site { dir };
        let report = site.path("started");
        let program = format!(
            "#!/bin/sh\nline=$(printf '%s|' \"$@\"; env | grep '^A_VARIABLE' | tr '\\n' '|'; \
             printf 'cpus=%s|' \"${{SLURM_CPUS_ON_NODE:-}}\"; printf 'stdin=%s' \"$(cat)\")\n\
             echo \"$line\" >>'{}'\nexec sleep 300\n",
            report.display()
        );
        std::fs::write(site.path("falkon"), program).unwrap();
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(site.path("falkon"), executable).unwrap();
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn driver(&self, kind: &str, site: &str, settings: &str) -> Driver {
        let executor = Executor {
            binary: self.path("falkon"),
            access: "{\"the access\": \"file's text\"}\n".to_owned(),
            give_up: Duration::from_secs(60),
            leave_before: None,
        };
        let settings: Settings = toml::from_str(settings).unwrap();
        let site: toml::Table = toml::from_str(site).unwrap();
        Driver::new(kind, &site, settings, executor, "test", self.dir.path()).unwrap()
    }

    /// Waits until so many executors were started, and returns what they say.
    #[track_caller]
    pub(crate) fn wait_for_started(&self, count: usize) -> Vec<String> {
        wait_for(|| {
            let text = std::fs::read_to_string(self.path("started")).unwrap_or_default();
            let lines: Vec<String> = text.lines().map(str::to_owned).collect();
            (lines.len() >= count).then_some(lines)
        })
    }
}

/// Waits until `look` finds something.
#[track_caller]
pub(crate) fn wait_for<R>(mut look: impl FnMut() -> Option<R>) -> R {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "nothing came of it");
        // sleeps because a scheduler tells nobody: it has to be asked, and not all the time
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Runs something asynchronous.
pub(crate) fn block_on<R>(work: impl Future<Output = R>) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work)
}

/// Waits until an allocation's job is in a state that `wanted` accepts, or is
/// not listed any more.
#[track_caller]
pub(crate) fn wait_for_state(
    driver: &Driver,
    allocation: u64,
    wanted: impl Fn(Option<&Job>) -> bool,
) -> Option<Job> {
    wait_for(|| {
        let jobs = block_on(driver.query()).unwrap();
        let found = jobs.into_iter().find(|(of, _)| *of == allocation).map(|(_, job)| job);
        wanted(found.as_ref()).then_some(found)
    })
}

pub(crate) fn is_over(job: Option<&Job>) -> bool {
    job.is_none_or(|job| job.state == State::Ended)
}

pub(crate) fn is_running(job: Option<&Job>) -> bool {
    job.is_some_and(|job| job.state == State::Running)
}

#[track_caller]
pub(crate) fn submit(driver: &Driver, allocation: u64, nodes: u64) -> String {
    let request = Request { allocation, nodes, walltime: Some(Duration::from_secs(120)) };
    match block_on(driver.submit(&request)) {
        Submission::Accepted(job) => job,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
pub(crate) fn refusal(driver: &Driver, allocation: u64, nodes: u64) -> String {
    let request = Request { allocation, nodes, walltime: Some(Duration::from_secs(120)) };
    match block_on(driver.submit(&request)) {
        Submission::Refused(words) => words,
        other => panic!("{other:?}"),
    }
}
