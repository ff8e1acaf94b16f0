//! Alternatives of a task: what it may hold instead, as the command line and task files have it.

use super::error::PlanError;
use super::options::{CLASS_FIELDS, CLASS_FLAGS};
use super::quantity::{self, QuantityError};
use falkon_core::limits::ALTERNATIVES_MAX;
use falkon_core::task::{AUTO_CPUS, AUTO_MEMORY, DISK, Kind, Resources, TaskClass};

/// Why something is no alternative.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AlternativeError {
    /// It is not a list of names and amounts.
    #[error(
        "`{0}` is no alternative: write what the task holds instead as NAME=AMOUNT, with commas \
         between, such as cpus=16,memory=32GiB"
    )]
    Form(String),
    /// The name is nearly that of a resource.
    #[error("there is no resource `{given}`; did you mean `{nearest}`?")]
    Unknown {
        /// The name.
        given: String,
        /// The resource with the nearest name.
        nearest: &'static str,
    },
    /// The name is that of an option that is about no resource.
    #[error("`{0}` is the same for all alternatives of a task: give it by itself")]
    Shared(String),
    /// A resource is named twice.
    #[error("`{0}` is given twice in one alternative")]
    Twice(String),
    /// CPUs that executors measure.
    #[error("an alternative says how many CPUs it has: `cpus` cannot be auto there")]
    AutoCpus,
    /// Memory that executors measure.
    #[error("an alternative says how much memory it has: `memory` cannot be auto there")]
    Auto,
    /// The amount is none of its resource.
    #[error(transparent)]
    Amount(#[from] QuantityError),
}

/// The names that people use for resources, and what these are called here.
const SLIPS: [(&str, &str); 7] = [
    ("cpu", "cpus"),
    ("core", "cpus"),
    ("cores", "cpus"),
    ("gpu", "gpus"),
    ("mem", "memory"),
    ("ram", "memory"),
    ("scratch", DISK),
];
const NAMES: [&str; 4] = ["cpus", "gpus", "memory", DISK];

/// An alternative that is being read: all that it does not name has its default.
#[derive(Debug)]
pub(super) struct Reading {
    resources: Resources,
    given: Vec<String>,
}

impl Reading {
    pub(super) fn new() -> Reading {
        Reading { resources: TaskClass::default().resources, given: Vec::new() }
    }

    /// A resource is named: one that has an option of its own, or a custom one.
    ///
    /// # Errors
    /// No resource is called so, or it was named before.
    pub(super) fn name(&mut self, name: &str) -> Result<(), AlternativeError> {
        if self.given.iter().any(|other| other == name) {
            return Err(AlternativeError::Twice(name.to_owned()));
        }
        self.given.push(name.to_owned());
        if NAMES.contains(&name) {
            return Ok(());
        }
        let plain = name.to_lowercase();
        let slip = SLIPS.iter().find(|(slip, _)| *slip == plain).map(|(_, meant)| *meant);
        if let Some(nearest) = slip.or_else(|| NAMES.into_iter().find(|known| *known == plain)) {
            return Err(AlternativeError::Unknown { given: name.to_owned(), nearest });
        }
        let is_option = |names: &[&str]| names.contains(&name);
        if is_option(CLASS_FIELDS) || is_option(CLASS_FLAGS) {
            return Err(AlternativeError::Shared(name.to_owned()));
        }
        Ok(())
    }

    /// # Errors
    /// The number is none that is known.
    pub(super) fn cpus(&mut self, milli: u32) -> Result<(), AlternativeError> {
        if milli == AUTO_CPUS {
            return Err(AlternativeError::AutoCpus);
        }
        self.resources.cpus_milli = milli;
        Ok(())
    }

    pub(super) fn gpus(&mut self, count: u32) {
        self.resources.gpus = count;
    }

    /// # Errors
    /// The amount is none that is known.
    pub(super) fn memory(&mut self, bytes: u64) -> Result<(), AlternativeError> {
        if bytes == AUTO_MEMORY {
            return Err(AlternativeError::Auto);
        }
        self.resources.memory_bytes = bytes;
        Ok(())
    }

    pub(super) fn disk(&mut self, bytes: u64) {
        self.resources.set_disk_bytes(bytes);
    }

    pub(super) fn custom(&mut self, name: &str, count: u64) -> Result<(), AlternativeError> {
        let name = quantity::name(name)?;
        if count > 0 {
            self.resources.custom.push((name, count));
            self.resources.custom.sort_unstable();
        }
        Ok(())
    }

    pub(super) fn end(self) -> Resources {
        self.resources
    }
}

/// An alternative as the command line has it: `NAME=AMOUNT[,NAME=AMOUNT…]`.
///
/// # Errors
/// The text is none.
pub(super) fn alternative(text: &str) -> Result<Resources, AlternativeError> {
    let mut reading = Reading::new();
    for part in text.split(',') {
        let form = || AlternativeError::Form(text.to_owned());
        let (name, amount) = part.split_once('=').ok_or_else(form)?;
        let (name, amount) = (name.trim(), amount.trim());
        if name.is_empty() {
            return Err(form());
        }
        reading.name(name)?;
        let wrong = || QuantityError::Resource(format!("{name}={amount}"));
        match name {
            "cpus" => reading.cpus(quantity::task_cpus_milli(amount)?)?,
            "gpus" => reading.gpus(amount.parse().map_err(|_| wrong())?),
            "memory" => reading.memory(quantity::task_memory_bytes(amount)?)?,
            DISK => reading.disk(quantity::disk_bytes(amount)?),
            custom => reading.custom(custom, amount.parse().map_err(|_| wrong())?)?,
        }
    }
    Ok(reading.end())
}

/// Checks the alternatives of a task.
///
/// # Errors
/// There are too many, two are the same, or the task can have none.
pub(super) fn check(class: &TaskClass) -> Result<(), PlanError> {
    if !class.has_alternatives() {
        return Ok(());
    }
    let (given, most) = (class.alternatives.len(), ALTERNATIVES_MAX - 1);
    if given > most {
        return Err(PlanError::ManyAlternatives { given, most });
    }
    let other = match class {
        _ if class.is_gang() => Some("--nodes-per-task"),
        _ if class.speculate => Some("--speculate"),
        _ if class.resources.cpus_milli == AUTO_CPUS => Some("--cpus auto"),
        _ if class.resources.memory_bytes == AUTO_MEMORY => Some("--memory auto"),
        _ if class.kind == Kind::Noop => Some("@noop, which holds nothing"),
        _ => None,
    };
    if let Some(other) = other {
        return Err(PlanError::AlternativesWith { other });
    }
    let all: Vec<&Resources> = class.requests().collect();
    let is_same = |at: &usize| all[..*at].contains(&all[*at]);
    match (0..all.len()).find(is_same) {
        Some(at) => Err(PlanError::SameAlternative { shown: all[at].to_string() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alternative_is_a_whole_request() {
        let found = alternative("cpus=16, memory=2GiB,disk=1GiB,licences=2,gpus=1").unwrap();
        assert_eq!((found.cpus_milli, found.gpus), (16_000, 1));
        assert_eq!((found.memory_bytes, found.disk_bytes()), (2 << 30, 1 << 30));
        assert_eq!(found.custom, [("disk".to_owned(), 1 << 30), ("licences".to_owned(), 2)]);
        assert_eq!(alternative("gpus=2").unwrap().cpus_milli, 1000);
    }

    #[test]
    fn what_is_no_alternative_is_said() {
        for (text, said) in [
            ("", "`` is no alternative"),
            ("16", "`16` is no alternative"),
            ("cpus=1,", "`cpus=1,` is no alternative"),
            ("=1", "`=1` is no alternative"),
            ("cpu=16", "did you mean `cpus`?"),
            ("GPUs=1", "did you mean `gpus`?"),
            ("mem=1GiB", "did you mean `memory`?"),
            ("timeout=5m", "`timeout` is the same for all"),
            ("nodes-per-task=2", "`nodes-per-task` is the same for all"),
            ("cpus=1,cpus=2", "`cpus` is given twice"),
            ("memory=auto", "cannot be auto"),
            ("cpus=auto", "`cpus` cannot be auto"),
            ("memory=much", "`much` is not"),
            ("gpus=1.5", "gpus=1.5"),
            ("cpus=0", "`0` is not a number of cpus"),
            ("licences=few", "licences=few"),
        ] {
            let error = alternative(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
