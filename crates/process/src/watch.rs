//! The memory of a task that runs: of its process and of all that descend from it.
//!
//! A slot looks at its own task, seldom enough to cost little: the first time after a few
//! milliseconds, which most short tasks do not reach, then after each eighth of the task's age.

use std::collections::HashSet;
use std::fs;

use super::clock::now_us;

/// When a task is looked at for the first time, and how long is between two looks at least.
const LOOK_US_MIN: u64 = 25_000;

/// How long is between two looks at most.
const LOOK_US_MAX: u64 = 5_000_000;

/// After which part of its age a task is looked at again.
const AGE_SHARE: u64 = 8;

/// How many times as long as a look the time until the next one is at least: what a task with very
/// many processes, threads or pages costs is bounded by this.
const COST_SHARE: u64 = 30;

/// Most processes of a task that are looked at.
const PROCESSES_MAX: usize = 4_096;

/// What is seen of the memory of one task.
#[derive(Debug)]
pub(super) struct Watch {
    pid: libc::pid_t,
    started: u64,
    due: u64,
    most_bytes: u64,
}

impl Watch {
    /// Begins with the process `pid`.
    pub(super) fn new(pid: libc::pid_t) -> Watch {
        let started = now_us();
        Watch { pid, started, due: started + LOOK_US_MIN, most_bytes: 0 }
    }

    /// When to look next.
    pub(super) fn due(&self) -> u64 {
        self.due
    }

    /// The most memory that was seen, in bytes.
    pub(super) fn most_bytes(&self) -> u64 {
        self.most_bytes
    }

    /// Looks at the task's processes, if it is time. Those that have left it, and so do not descend
    /// from it any more, are `strays`.
    pub(super) fn look(&mut self, strays: impl FnOnce() -> Vec<libc::pid_t>) {
        let begun = now_us();
        if begun < self.due {
            return;
        }
        let processes = family(self.pid, strays());
        self.most_bytes = self.most_bytes.max(memory(&processes, self.most_bytes));
        let now = now_us();
        let apart = ((now - self.started) / AGE_SHARE).clamp(LOOK_US_MIN, LOOK_US_MAX);
        self.due = now + apart.max((now - begun).saturating_mul(COST_SHARE));
    }
}

/// A process, those that descend from it or from `strays`, and these.
fn family(pid: libc::pid_t, strays: Vec<libc::pid_t>) -> Vec<libc::pid_t> {
    let mut seen: HashSet<libc::pid_t> = HashSet::from([pid]);
    let mut family = vec![pid];
    family.extend(strays.into_iter().filter(|stray| seen.insert(*stray)));
    let mut at = 0;
    while at < family.len() && family.len() < PROCESSES_MAX {
        let children = children(family[at]);
        family.extend(children.into_iter().filter(|child| seen.insert(*child)));
        at += 1;
    }
    family.truncate(PROCESSES_MAX);
    family
}

/// The children of all threads of a process; none if it has ended.
fn children(pid: libc::pid_t) -> Vec<libc::pid_t> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists = threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_ascii_whitespace().flat_map(str::parse).collect::<Vec<_>>())
        .collect()
}

/// The memory of processes together, in bytes. What several of them share counts once, where more
/// than `known` bytes depend on it: to find out costs the kernel a look at every page.
fn memory(processes: &[libc::pid_t], known: u64) -> u64 {
    let sizes: Vec<u64> = processes.iter().map(|pid| resident(*pid)).collect();
    let sum: u64 = sizes.iter().sum();
    if sum <= known || sizes.iter().filter(|size| **size > 0).count() < 2 {
        return sum;
    }
    let shares = processes.iter().zip(&sizes);
    shares.map(|(pid, resident)| share(*pid).unwrap_or(*resident).min(*resident)).sum()
}

/// The resident set of a process in bytes; 0 if it has ended.
fn resident(pid: libc::pid_t) -> u64 {
    let sizes = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages = sizes.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0_u64).saturating_mul(rustix::param::page_size() as u64)
}

/// The resident set of a process in bytes, with its part of each page that several processes have;
/// `None` if that may not be read.
fn share(pid: libc::pid_t) -> Option<u64> {
    let all = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = all.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    const BYTES: u64 = 20_000_000;

    #[test]
    fn the_memory_of_all_processes_of_a_task_is_seen_together() {
        let hold = format!(r#"head -c {BYTES} /dev/zero | tr "\0" x"#);
        let script = format!("a=$({hold}); sh -c 'a=$({hold}); echo ready; read line'; read line");
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = command.spawn().unwrap();
        let pid = shell.id().cast_signed();
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");

        let processes = family(pid, Vec::new());
        assert_eq!(processes.len(), 2, "the shell and its child");
        let mut watch = Watch::new(pid);
        watch.due = 0;
        watch.look(Vec::new);
        assert!(watch.most_bytes() >= 2 * BYTES, "{watch:?}");
        assert!(resident(pid) < 2 * BYTES, "that is more than one of them has");
        assert!(watch.due() > now_us());
        // A stray counts once, whoever names it.
        assert_eq!(family(pid, vec![processes[1], pid]), processes);
        let strayed = family(processes[1], vec![pid]);
        assert_eq!(strayed.len(), 2, "{strayed:?}");

        drop(shell.stdin.take());
        shell.wait().unwrap();
        assert_eq!(memory(&processes, 0), 0, "they have ended");
    }
}
