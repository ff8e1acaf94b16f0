//! The variables that tell a task what it has reserved, so that it uses no more.

use falkon_core::task::{MILLI, Resources, TaskClass};

/// How many threads OpenMP starts; OpenBLAS, MKL, BLIS and NumExpr follow it where their own
/// variables are not set.
const THREADS: &str = "OMP_NUM_THREADS";

/// The variable with the number of a task's alternative, from 0.
const ALTERNATIVE: &str = "FALKON_ALTERNATIVE";

/// A variable of a task's environment, and its value.
type Variable = (Vec<u8>, Vec<u8>);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Granted {
    /// Whether the executor's own environment says how many threads.
    threads_are_set: bool,
}

impl Granted {
    /// For an executor with this environment.
    pub(super) fn new(variable: impl Fn(&str) -> Option<String>) -> Granted {
        Granted { threads_are_set: variable(THREADS).is_some() }
    }

    /// What a task finds unless its own environment says otherwise.
    pub(super) fn environment(&self, resources: &Resources) -> Vec<Variable> {
        let Resources { cpus_milli, gpus, memory_bytes, custom: _ } = resources;
        let disk_bytes = resources.disk_bytes();
        let set = |name: &str, value: String| -> Variable { (name.into(), value.into_bytes()) };
        let mut environment =
            vec![set("FALKON_CPUS", cpus(*cpus_milli)), set("FALKON_GPUS", gpus.to_string())];
        if *memory_bytes > 0 {
            environment.push(set("FALKON_MEMORY", memory_bytes.to_string()));
        }
        if disk_bytes > 0 {
            environment.push(set("FALKON_DISK", disk_bytes.to_string()));
        }
        if !self.threads_are_set {
            environment.push(set(THREADS, (cpus_milli / MILLI).max(1).to_string()));
        }
        environment
    }
}

impl Granted {
    /// How many threads each of so many processes starts that share these CPUs.
    pub(super) fn threads(&self, cpus_milli: u32, processes: u32) -> Option<Variable> {
        let threads = (cpus_milli / MILLI / processes.max(1)).max(1);
        (!self.threads_are_set).then(|| (THREADS.into(), threads.to_string().into_bytes()))
    }
}

/// The variable that tells a task which of several alternatives it has; none if there is one
/// alone.
pub(super) fn alternative(class: &TaskClass) -> Option<Variable> {
    let number = class.alternative.checked_sub(1)?;
    Some((ALTERNATIVE.into(), number.to_string().into_bytes()))
}

/// CPUs as people write them: `2`, `0.5`.
fn cpus(milli: u32) -> String {
    match milli % MILLI {
        0 => (milli / MILLI).to_string(),
        rest => {
            let rest = format!("{rest:03}");
            format!("{}.{}", milli / MILLI, rest.trim_end_matches('0'))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(is_set: bool, resources: &Resources, expected: &[(&str, &str)]) {
        let granted = Granted::new(|_| is_set.then(|| "8".to_owned()));
        let expected: Vec<Variable> =
            expected.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        assert_eq!(granted.environment(resources), expected);
    }

    #[test]
    fn alternatives_count_from_0_and_only_where_there_are_several() {
        let of = |alternative| TaskClass { alternative, ..TaskClass::default() };
        assert_eq!(alternative(&of(0)), None);
        assert_eq!(alternative(&of(1)), Some((ALTERNATIVE.into(), "0".into())));
        assert_eq!(alternative(&of(3)), Some((ALTERNATIVE.into(), "2".into())));
    }

    #[test]
    fn a_task_is_told_what_it_has_reserved() {
        let half = Resources { cpus_milli: 500, ..Resources::default() };
        let expected = [("FALKON_CPUS", "0.5"), ("FALKON_GPUS", "0"), (THREADS, "1")];
        check(false, &half, &expected);
        let much =
            Resources { cpus_milli: 2250, gpus: 1, memory_bytes: 1 << 30, ..Resources::default() };
        let mut much = much;
        much.set_disk_bytes(5 << 30);
        let told = [
            ("FALKON_CPUS", "2.25"),
            ("FALKON_GPUS", "1"),
            ("FALKON_MEMORY", "1073741824"),
            ("FALKON_DISK", "5368709120"),
        ];
        check(true, &much, &told);
        check(false, &much, &[&told[..], &[(THREADS, "2")]].concat());
    }
}
