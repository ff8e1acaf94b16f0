//! The CPUs that this process may use, by NUMA node and core.

use falkon_core::execute::Cpu;
use falkon_core::task::MILLI;
use falkon_process::CPUS_MAX;
use std::collections::BTreeMap;
use std::path::Path;

/// Why tasks cannot be pinned.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// There are too few CPUs for the slots.
    #[error(
        "tasks cannot be pinned: {offered} CPUs are offered, and this process may use {usable}: \
         offer fewer slots, or leave --pin out"
    )]
    TooFew {
        /// CPUs that the executor offers.
        offered: u32,
        /// CPUs that it may use.
        usable: usize,
    },
}

/// The CPUs for an executor that offers so many thousandths of them and pins its tasks.
///
/// # Errors
/// This process may not use so many.
pub(super) fn pinned(cpus_milli: u32) -> Result<Vec<Cpu>, PinError> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let cpus = usable(&status, Path::new("/sys/devices/system"));
    let offered = cpus_milli.div_ceil(MILLI);
    match cpus.len() < offered as usize {
        true => Err(PinError::TooFew { offered, usable: cpus.len() }),
        false => Ok(cpus),
    }
}

/// The CPUs of a process with this `/proc/PID/status`, on a machine that `system` describes.
fn usable(status: &str, system: &Path) -> Vec<Cpu> {
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let read = |path: String| std::fs::read_to_string(system.join(path)).unwrap_or_default();
    let mut nodes = BTreeMap::new();
    for node in numbers(&read("node/online".to_owned())) {
        let cpus = numbers(&read(format!("node/node{node}/cpulist")));
        nodes.extend(cpus.map(|cpu| (cpu, node)));
    }
    let cpus = numbers(allowed.unwrap_or_default()).filter(|cpu| (*cpu as usize) < CPUS_MAX);
    cpus.map(|number| {
        let siblings = read(format!("cpu/cpu{number}/topology/thread_siblings_list"));
        let core = numbers(&siblings).next().unwrap_or(number);
        Cpu { node: nodes.get(&number).copied().unwrap_or(0), core, number }
    })
    .collect()
}

/// The numbers in a list such as `0-3,8`; what is no number is left out.
fn numbers(list: &str) -> impl Iterator<Item = u32> + use<> {
    let range = |part: &str| {
        let (first, last) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    };
    let ranges: Vec<_> = list.split(',').filter_map(range).collect();
    ranges.into_iter().flatten().take(CPUS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usable_cpus_have_their_nodes_and_cores() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("node/online", "0-1\n");
        write("node/node0/cpulist", "0-1,4-5\n");
        write("node/node1/cpulist", "2-3,6-7\n");
        for number in 0..8 {
            let siblings = format!("{},{}\n", number % 4, number % 4 + 4);
            write(&format!("cpu/cpu{number}/topology/thread_siblings_list"), &siblings);
        }
        let status = "Name:\tx\nCpus_allowed_list:\t1,3-6\nMems_allowed:\t1\n";
        let cpu = |number, node, core| Cpu { node, core, number };
        let expected = [cpu(1, 0, 1), cpu(3, 1, 3), cpu(4, 0, 0), cpu(5, 0, 1), cpu(6, 1, 2)];
        assert_eq!(usable(status, folder.path()), expected);
        // A machine that says nothing of itself.
        let plain = [cpu(1, 0, 1), cpu(2, 0, 2)];
        assert_eq!(usable("Cpus_allowed_list:\t1-2\n", Path::new("/no/such")), plain);
    }

    #[test]
    fn more_slots_than_cpus_cannot_be_pinned() {
        let error = pinned(u32::MAX).unwrap_err().to_string();
        assert!(error.starts_with("tasks cannot be pinned: 4294968 CPUs are offered"), "{error}");
    }
}
