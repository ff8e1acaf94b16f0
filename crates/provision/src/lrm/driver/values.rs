//! The values that a driver fills into the templates of its description.

use super::super::description::Word;
use super::super::script::{Peculiar, node_script};
use super::super::template::{FillError, Quoting, Template, Values};
use super::{Driver, LrmError, Request};
use crate::lrm::template::PLACEHOLDERS;
use std::path::PathBuf;
use std::sync::OnceLock;

/// How long after a job's walltime an LRM that does not plan by walltimes may
/// end it: its executors have left by then, however long it took to start them.
const DEADLINE_S: u64 = 900;
/// The longest value of a label of Kubernetes.
const LABEL_BYTES_MAX: usize = 63;

impl Driver {
    /// The values that all commands share.
    pub(in crate::lrm) fn values(&self) -> Values {
        let mut values = Values::default();
        for name in PLACEHOLDERS {
            values.set_some(name, None);
        }
        for name in &self.description.optional {
            values.set_some(name, None);
        }
        for (name, value) in &self.description.defaults {
            values.set(name, value.clone());
        }
        self.settings.fill(&mut values, self.has_whole_nodes());
        values.set("name_prefix", self.prefix.clone());
        values.set("dispatcher", self.prefix.trim_end_matches('-'));
        values.set("queue", self.queue.clone());
        values.set_some("queue_label", is_label(&self.queue).then(|| self.queue.clone()));
        values.set("user", self.user.clone());
        values.set("user_id", user_number());
        values.set("state_dir", self.dir.to_string_lossy());
        let binary = self.settings.binary.as_ref().unwrap_or(&self.executor.binary);
        values.set("binary", binary.to_string_lossy());
        values.set("own_binary", self.executor.binary.to_string_lossy());
        values
    }

    pub(super) fn request_values(&self, request: &Request) -> Values {
        let mut values = self.values();
        let name = self.job_name(request.allocation);
        let cpus = u64::from(self.settings.cpus.unwrap_or(1));
        values.set("nodes", request.nodes.to_string());
        values.set("total_cpus", request.nodes.saturating_mul(cpus).to_string());
        values.set("allocation", request.allocation.to_string());
        let log = self.log(request.allocation).unwrap_or_else(|| PathBuf::from("/dev/null"));
        values.set("log", log.to_string_lossy());
        let seconds = request.walltime.map(|walltime| walltime.as_secs().max(1));
        values.set_some("walltime_seconds", seconds.map(|seconds| seconds.to_string()));
        values.set("walltime_seconds_or_0", seconds.unwrap_or(0).to_string());
        let deadline = seconds.map(|seconds| seconds.saturating_add(DEADLINE_S));
        values.set_some("deadline_seconds", deadline.map(|seconds| seconds.to_string()));
        let minutes = seconds.map(|seconds| seconds.div_ceil(60));
        values.set_some("walltime_minutes", minutes.map(|minutes| minutes.to_string()));
        let hms = |s: u64| format!("{:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
        values.set_some("walltime_hms", seconds.map(hms));
        let hm = |minutes: u64| format!("{:02}:{:02}", minutes / 60, minutes % 60);
        values.set_some("walltime_hm", minutes.map(hm));
        let staged = self.staged_binary(request.allocation);
        let limits = self.description.executor_limits;
        let script = node_script(
            &self.executor,
            &self.settings,
            &name,
            request,
            Peculiar { limits, binary: staged.as_ref() },
        );
        values.set_some("sent_binary", staged.map(|one| one.to.to_string_lossy().into_owned()));
        values.set("job_name", name);
        values.set("node_script", script);
        values.set("script_file", self.script_file(request.allocation).to_string_lossy());
        values
    }
}

/// The words of a command.
pub(in crate::lrm) fn fill(command: &[Word], values: &Values) -> Result<Vec<String>, LrmError> {
    let mut words = Vec::new();
    for word in command {
        let group = match word {
            Word::One(word) => std::slice::from_ref(word),
            Word::Group(group) => group.as_slice(),
        };
        let mut filled = Some(Vec::new());
        for word in group {
            let more = Template::new(word)?.words(values)?;
            filled = filled.zip(more).map(|(mut filled, more)| {
                filled.extend(more);
                filled
            });
        }
        words.extend(filled.into_iter().flatten());
    }
    Ok(words)
}

/// Fills a text line by line; a line with a placeholder that has no value is
/// left out.
pub(super) fn lines(text: &str, values: &Values) -> Result<String, LrmError> {
    let mut filled = String::new();
    for line in text.lines() {
        match Template::new(line)?.text(values, Quoting::Line) {
            Ok(line) => filled.push_str(&format!("{line}\n")),
            Err(FillError::Unset(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(filled)
}

/// Whether a text can be the value of a label of Kubernetes.
fn is_label(text: &str) -> bool {
    let is_end = |c: char| c.is_ascii_alphanumeric();
    text.len() <= LABEL_BYTES_MAX
        && text.starts_with(is_end)
        && text.ends_with(is_end)
        && text.chars().all(|c| is_end(c) || "-_.".contains(c))
}

/// The name of the user whose jobs these are, or their number if the name is
/// unknown. The LRM goes by the user of the process and not by the environment:
/// `USER` may name another user, and a query for their jobs finds none. The
/// directory service that knows the name is asked once, with `id`; it may take
/// its time.
pub fn user_name() -> String {
    static NAME: OnceLock<String> = OnceLock::new();
    let look = || {
        let said = std::process::Command::new("id").arg("-un").output().ok();
        let said = said.filter(|said| said.status.success())?;
        let name = String::from_utf8(said.stdout).ok()?.trim().to_owned();
        (!name.is_empty() && !name.chars().any(char::is_whitespace)).then_some(name)
    };
    NAME.get_or_init(|| look().unwrap_or_else(user_number)).clone()
}

/// The number of the user whose jobs these are.
fn user_number() -> String {
    rustix::process::geteuid().as_raw().to_string()
}
