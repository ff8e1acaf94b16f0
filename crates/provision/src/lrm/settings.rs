//! The settings of a queue's owner for its jobs.

use super::template::Values;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// How the jobs of a queue are: the table `job` of a queue's file. What is not
/// said is left to the LRM.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The LRM's partition or queue.
    pub partition: Option<String>,
    /// The account, project, or accounting group that pays.
    pub account: Option<String>,
    /// Quality of service.
    pub qos: Option<String>,
    /// CPUs of each node; without it whole nodes, where the LRM has those.
    pub cpus: Option<u32>,
    /// GPUs of each node.
    pub gpus: Option<u32>,
    /// Memory of each node, in MiB.
    pub memory_mib: Option<u64>,
    /// Scratch disk space of each node, in MiB.
    pub disk_mib: Option<u64>,
    /// Further words for the submit command, each passed on as it is.
    pub options: Vec<String>,
    /// Modules loaded on each node before the executor starts.
    pub modules: Vec<String>,
    /// Variables set on each node.
    pub environment: BTreeMap<String, String>,
    /// Lines of shell run on each node before the executor starts.
    pub prologue: Vec<String>,
    /// Where this program is on the nodes; without it, where it is here.
    pub binary: Option<PathBuf>,
    /// Directory of the nodes to which this program is sent where it is nowhere
    /// else.
    pub send: Option<String>,
    /// Directory for what jobs write, as the nodes see it; `none` for nowhere;
    /// without it one in the dispatcher's own directory.
    pub log: Option<String>,
    /// Directory for what executors keep on a node.
    pub scratch: Option<String>,
    /// Further options of `falkon executor`.
    pub executor_options: Vec<String>,
    /// The hosts, where they are listed by their names (ssh).
    pub hosts: Vec<String>,
    /// The image that nodes run, where they are containers.
    pub image: Option<String>,
    /// A table that is merged into the document that describes a job, where
    /// there is one.
    pub manifest: toml::Table,
    /// Placeholders of a site's own templates.
    pub settings: BTreeMap<String, String>,
}

/// Memory of each node for each of its CPUs, where an LRM requires some.
const CPU_MEMORY_MIB: u64 = 1024;

/// Why settings cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// The name of a variable is none.
    #[error("`{0}` is not the name of an environment variable")]
    Variable(String),
    /// A placeholder's name is none, or is taken.
    #[error(
        "settings: `{0}` is taken or no name: use letters, digits and _, and none of the names \
         that job has itself"
    )]
    Setting(String),
    /// A value holds a character that has no place there.
    #[error("{what} must not hold control characters")]
    Control {
        /// Where.
        what: &'static str,
    },
    /// A number must not be 0.
    #[error("{0} must not be 0")]
    Zero(&'static str),
    /// The LRM's description has no place for it.
    #[error(
        "job.{what} has no place in what is submitted to {kind}: say it in job.options, in the \
         scheduler's own words"
    )]
    NoPlace {
        /// The kind of LRM.
        kind: String,
        /// The setting.
        what: &'static str,
    },
    /// The LRM's description asks for it.
    #[error("{kind} needs job.{what}: set it")]
    Missing {
        /// The kind of LRM.
        kind: String,
        /// The missing setting.
        what: String,
    },
}

/// Whether a shell would take it for a variable's name.
fn is_name(name: &str) -> bool {
    let first = name.chars().next();
    first.is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl Settings {
    /// Whether they can be used.
    ///
    /// # Errors
    /// The setting that cannot be used.
    pub fn check(&self) -> Result<(), SettingsError> {
        if let Some(name) = self.environment.keys().find(|name| !is_name(name)) {
            return Err(SettingsError::Variable(name.clone()));
        }
        let numbers = [
            ("cpus", self.cpus.map(u64::from)),
            ("memory_mib", self.memory_mib),
            ("disk_mib", self.disk_mib),
        ];
        for (what, number) in numbers {
            if number == Some(0) {
                return Err(SettingsError::Zero(what));
            }
        }
        let mut own = Values::default();
        Settings::default().fill(&mut own, false);
        for name in self.settings.keys() {
            if !is_name(name)
                || own.knows(name)
                || super::template::PLACEHOLDERS.contains(&name.as_str())
            {
                return Err(SettingsError::Setting(name.clone()));
            }
        }
        let control = |text: &String| text.chars().any(char::is_control);
        let texts = [
            ("partition", self.partition.as_ref()),
            ("account", self.account.as_ref()),
            ("qos", self.qos.as_ref()),
            ("log", self.log.as_ref()),
            ("scratch", self.scratch.as_ref()),
            ("send", self.send.as_ref()),
            ("image", self.image.as_ref()),
        ];
        let texts = texts.into_iter().filter_map(|(what, text)| Some((what, text?)));
        let texts = texts
            .chain(self.options.iter().map(|text| ("options", text)))
            .chain(self.modules.iter().map(|text| ("modules", text)))
            .chain(self.hosts.iter().map(|text| ("hosts", text)))
            .chain(self.executor_options.iter().map(|text| ("executor_options", text)))
            .chain(self.settings.values().map(|text| ("settings", text)));
        for (what, text) in texts {
            if control(text) {
                return Err(SettingsError::Control { what });
            }
        }
        Ok(())
    }

    /// Fills in what settings say. `whole`: nodes are asked for as a whole.
    pub(super) fn fill(&self, values: &mut Values, whole: bool) {
        let number = |value: Option<u32>| value.map(|value| value.to_string());
        values.set_some("partition", self.partition.clone());
        values.set_some("account", self.account.clone());
        values.set_some("qos", self.qos.clone());
        values.set_some("cpus", number(self.cpus));
        values.set("cpus_or_one", self.cpus.unwrap_or(1).to_string());
        values.set_some("gpus", number(self.gpus.filter(|gpus| *gpus > 0)));
        values.set_some("memory_mib", self.memory_mib.map(|memory| memory.to_string()));
        let some = || u64::from(self.cpus.unwrap_or(1)).saturating_mul(CPU_MEMORY_MIB);
        values.set("memory_mib_or_some", self.memory_mib.unwrap_or_else(some).to_string());
        values.set_some("disk_mib", self.disk_mib.map(|disk| disk.to_string()));
        values
            .set_some("disk_kib", self.disk_mib.map(|disk| disk.saturating_mul(1024).to_string()));
        values.set_some("image", self.image.clone());
        values.set_list("options", self.options.clone());
        values.set_list("hosts", self.hosts.clone());
        values.set_some("whole", whole.then(String::new));
        for (name, value) in &self.settings {
            values.set(name, value.clone());
        }
    }
}
