//! A queue of an LRM, ready to be used.

mod look;
mod values;

pub use look::{JobStatus, Size};
pub(super) use values::fill;
pub use values::user_name;

use super::answer::AnswerError;
use super::command::{self, CommandError};
use super::description::{Description, DescriptionError};
use super::job::State;
use super::request::Request;
use super::script::Executor;
use super::settings::{Settings, SettingsError};
use super::template::{FillError, PLACEHOLDERS, Quoting, Template, TemplateError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use values::lines;

/// How long a command that submits may take. An LRM that is busy answers late,
/// and has the job all the same.
const SUBMIT_S_MAX: u64 = 90;
/// How long any other command may take.
const COMMAND_S_MAX: u64 = 45;

/// The longest name of a queue that stands in the names of its jobs as it is.
const LABEL_BYTES_MAX: usize = 12;
/// Digits of the digest that stands there for any other.
const LABEL_DIGITS: usize = 10;

/// How a submission ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Submission {
    /// The LRM has it, under this name.
    Accepted(String),
    /// The LRM does not want it. Nothing was submitted.
    Refused(String),
    /// The LRM does not want it, for it is for more nodes than one job may have.
    TooLarge(String),
    /// The state is unknown, or the LRM cannot be reached: a query will tell.
    Unknown(String),
}

/// Why an LRM could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum LrmError {
    /// The description is invalid.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    /// The queue's settings cannot be.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A template is none.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A template cannot be filled.
    #[error(transparent)]
    Fill(#[from] FillError),
    /// A command failed.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// An answer was not understood.
    #[error(transparent)]
    Answer(#[from] AnswerError),
    /// A file for the LRM cannot be written.
    #[error("cannot write {path}: {source}")]
    File {
        /// The path.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// A queue of an LRM.
#[derive(Debug, Clone)]
pub struct Driver {
    kind: String,
    description: Description,
    settings: Settings,
    executor: Executor,
    /// The name of the queue.
    queue: String,
    /// The label of the queue in the names of its jobs; empty without one.
    label: String,
    /// The prefix of the names of all this dispatcher's jobs.
    prefix: String,
    /// A directory for files that the LRM reads, and for what jobs write.
    dir: PathBuf,
    user: String,
}

impl Driver {
    /// A queue of the LRM of `kind`; `site` replaces parts of its description.
    /// `tag` names the dispatcher, in letters and digits, and `dir` is where
    /// files for the LRM may be written.
    ///
    /// # Errors
    /// The description or the settings cannot be used.
    pub fn new(
        kind: &str,
        site: &toml::Table,
        settings: Settings,
        executor: Executor,
        tag: &str,
        dir: &Path,
    ) -> Result<Driver, LrmError> {
        let mut description = Description::of(kind, site)?;
        settings.check()?;
        if !settings.manifest.is_empty() && description.submit.document.is_empty() {
            let what = "manifest";
            return Err(SettingsError::NoPlace { kind: kind.to_owned(), what }.into());
        }
        description.submit.document.overlay(&settings.manifest);
        let driver = Driver {
            kind: kind.to_owned(),
            description,
            settings,
            executor,
            queue: String::new(),
            label: String::new(),
            prefix: format!("falkon-{tag}-"),
            dir: dir.to_owned(),
            user: user_name(),
        };
        let mut values = driver.values();
        for name in PLACEHOLDERS {
            values.set(name, "");
        }
        driver.description.check(&values)?;
        for what in &driver.description.requires {
            if driver.template_value(what).is_none() {
                let (kind, what) = (kind.to_owned(), what.clone());
                return Err(SettingsError::Missing { kind, what }.into());
            }
        }
        driver.check_placed()?;
        Ok(driver)
    }

    /// The same, of a queue with this name.
    #[must_use]
    pub fn named(self, queue: &str) -> Driver {
        Driver { queue: queue.to_owned(), label: label_of(queue), ..self }
    }

    /// Every setting must have a place in the submission: a limit that the LRM
    /// never receives would hold for no job.
    fn check_placed(&self) -> Result<(), SettingsError> {
        let settings = &self.settings;
        let set = [
            ("partition", settings.partition.is_some(), &["partition"][..]),
            ("account", settings.account.is_some(), &["account"]),
            ("qos", settings.qos.is_some(), &["qos"]),
            ("cpus", settings.cpus.is_some(), &["cpus", "cpus_or_one", "total_cpus"]),
            ("gpus", settings.gpus.is_some_and(|gpus| gpus > 0), &["gpus"]),
            ("memory_mib", settings.memory_mib.is_some(), &["memory_mib", "memory_mib_or_some"]),
            ("image", settings.image.is_some(), &["image"]),
            ("send", settings.send.is_some(), &["sent_binary"]),
        ];
        for (what, is_set, places) in set {
            let has_place = places.iter().any(|place| self.description.submits(place));
            if what == "send" && is_set && self.description.send.is_some() {
                continue;
            }
            let limits = ["cpus", "gpus", "memory_mib"].contains(&what);
            if is_set && !has_place && !(limits && self.description.executor_limits) {
                return Err(SettingsError::NoPlace { kind: self.kind.clone(), what });
            }
        }
        Ok(())
    }

    fn template_value(&self, name: &str) -> Option<Vec<String>> {
        let template = Template::new(&format!("{{{{{name}}}}}")).ok()?;
        template.words(&self.values()).ok().flatten().filter(|words| !words.is_empty())
    }

    /// How long a command may take.
    pub(super) fn limit(&self, seconds: u64) -> Duration {
        Duration::from_secs(self.description.timeout_s.unwrap_or(seconds))
    }

    /// The kind of the LRM.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The LRM's name, for people.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.description.title
    }

    /// Nodes of one job at most, where there is such a limit.
    #[must_use]
    pub fn nodes_max(&self) -> Option<u64> {
        if self.description.one_node {
            return Some(1);
        }
        if let Some(setting) = &self.description.several_nodes_with {
            return self.template_value(setting).is_none().then_some(1);
        }
        None
    }

    /// Whether nodes are given back only together.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.description.whole
    }

    /// Whether its nodes are this very machine.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.description.here
    }

    pub(super) fn description(&self) -> &Description {
        &self.description
    }

    /// This program, where it is here.
    pub(super) fn own_binary(&self) -> &Path {
        &self.executor.binary
    }

    /// How its jobs are.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Whether jobs have whole nodes, however large those are.
    #[must_use]
    pub(crate) fn has_whole_nodes(&self) -> bool {
        self.description.whole_nodes && self.settings.cpus.is_none()
    }

    /// Whether the LRM says how many nodes there are at all.
    #[must_use]
    pub fn tells_size(&self) -> bool {
        self.description.size.is_some()
    }

    /// The name of an allocation's job: whose it is, of which queue, and its
    /// number.
    #[must_use]
    pub fn job_name(&self, allocation: u64) -> String {
        match self.label.as_str() {
            "" => format!("{}{allocation}", self.prefix),
            label => format!("{}{label}-{allocation}", self.prefix),
        }
    }

    /// The allocation that a job is of, if it is one of this queue's: an LRM
    /// lists those of its other queues, too.
    #[must_use]
    pub fn allocation_of(&self, name: &str) -> Option<u64> {
        let rest = name.strip_prefix(&self.prefix)?;
        let number = match self.label.as_str() {
            "" => rest,
            label => rest.strip_prefix(label)?.strip_prefix('-')?,
        };
        // Each number has one name.
        number.parse().ok().filter(|found: &u64| found.to_string() == number)
    }

    /// Where an allocation's script for its nodes is kept for the LRM.
    fn script_file(&self, allocation: u64) -> PathBuf {
        self.dir.join(format!("{}.sh", self.job_name(allocation)))
    }

    /// Where an allocation's job writes.
    #[must_use]
    pub fn log(&self, allocation: u64) -> Option<PathBuf> {
        let file = format!("{}.log", self.job_name(allocation));
        match self.settings.log.as_deref() {
            Some("none") => None,
            Some(dir) => Some(Path::new(dir).join(file)),
            None => Some(self.dir.join(file)),
        }
    }

    /// The command and the input that submit a request.
    ///
    /// # Errors
    /// A template cannot be filled with this queue's settings.
    pub fn submission(&self, request: &Request) -> Result<(Vec<String>, String), LrmError> {
        let mut values = self.request_values(request);
        let submit = &self.description.submit;
        if !submit.document.is_empty() {
            values.set("document", submit.document.fill(&values)?);
        }
        let words = fill(&submit.command, &values)?;
        let input = match submit.quoting {
            Quoting::Shell => Template::new(&submit.input)?.text(&values, Quoting::Shell)?,
            Quoting::Line => lines(&submit.input, &values)?,
        };
        Ok((words, input.trim_start().to_owned()))
    }

    /// Asks for an allocation.
    pub async fn submit(&self, request: &Request) -> Submission {
        match self.try_submit(request).await {
            Ok(job) => Submission::Accepted(job),
            Err(LrmError::Command(error)) => {
                let words = error.to_string();
                let submit = &self.description.submit;
                let transient = &submit.transient;
                match error {
                    CommandError::Failed { .. } if holds_any(&words, &submit.too_large) => {
                        self.forget(request.allocation);
                        Submission::TooLarge(words)
                    }
                    CommandError::Failed { .. } if !holds_any(&words, transient) => {
                        self.forget(request.allocation);
                        Submission::Refused(words)
                    }
                    CommandError::Start { .. } => Submission::Refused(words),
                    _ => Submission::Unknown(words),
                }
            }
            Err(LrmError::Answer(error)) => Submission::Unknown(error.to_string()),
            Err(error) => Submission::Refused(error.to_string()),
        }
    }

    async fn try_submit(&self, request: &Request) -> Result<String, LrmError> {
        let (words, input) = self.submission(request)?;
        if self.description.submits("script_file") {
            let values = self.request_values(request);
            let script = Template::new("{{node_script}}")?.words(&values)?.unwrap_or_default();
            self.write_script(request.allocation, &script.concat())?;
        }
        let said = command::run(&words, &input, self.limit(SUBMIT_S_MAX)).await?;
        let job = self.description.submit.job.find(&said).map(str::to_owned);
        job.ok_or_else(|| {
            let row = said.chars().take(200).collect();
            AnswerError::Lacks { what: "job", row }.into()
        })
    }

    fn write_script(&self, allocation: u64, script: &str) -> Result<(), LrmError> {
        use std::os::unix::fs::OpenOptionsExt;
        let path = self.script_file(allocation);
        let write = || {
            // A new file has this user's mode, whatever was there.
            let _ = std::fs::remove_file(&path);
            let mut options = std::fs::OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o700).open(&path)?;
            io::Write::write_all(&mut file, format!("#!/bin/sh\n{script}").as_bytes())
        };
        write().map_err(|source| LrmError::File { path: path.clone(), source })
    }

    /// Removes the files that were written for an allocation and are of no use
    /// once it has ended. What its job wrote stays.
    pub fn forget(&self, allocation: u64) {
        // There is none for most LRMs.
        let _ = std::fs::remove_file(self.script_file(allocation));
    }

    /// Ends jobs, or takes them from the queue.
    ///
    /// # Errors
    /// The LRM refuses, for other reasons than that they are over already.
    pub async fn cancel(&self, jobs: &[String]) -> Result<(), LrmError> {
        let cancel = &self.description.cancel;
        let mut values = self.values();
        values.set_list("jobs", jobs.to_vec());
        let words = fill(&cancel.command, &values)?;
        let input = Template::new(&cancel.input)?.text(&values, Quoting::Shell)?;
        match command::run(&words, &input, self.limit(COMMAND_S_MAX)).await {
            Ok(_) => Ok(()),
            Err(error @ CommandError::Failed { .. })
                if holds_any(&error.to_string(), &cancel.gone) =>
            {
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Cancels an allocation whose job's name is not known.
    ///
    /// # Errors
    /// The LRM cannot be asked, or refuses.
    pub async fn cancel_by_name(&self, allocation: u64) -> Result<(), LrmError> {
        let jobs: Vec<String> = self
            .query()
            .await?
            .into_iter()
            .filter(|(found, job)| *found == allocation && job.state != State::Ended)
            .map(|(_, job)| job.job)
            .collect();
        if jobs.is_empty() {
            return Ok(());
        }
        self.cancel(&jobs).await
    }
}

/// The label of a queue in the names of its jobs, which not every LRM lets hold
/// any character: its name where that is short and plain, else a digest.
fn label_of(queue: &str) -> String {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let digest = || format!("q{}", &blake3::hash(queue.as_bytes()).to_hex()[..LABEL_DIGITS]);
    let is_like_digest = queue.starts_with('q') && queue.len() == LABEL_DIGITS + 1;
    match queue.len() <= LABEL_BYTES_MAX && queue.chars().all(is_plain) && !is_like_digest {
        true => queue.to_owned(),
        false => digest(),
    }
}

fn holds_any(words: &str, parts: &[String]) -> bool {
    parts.iter().any(|part| words.contains(part.as_str()))
}
