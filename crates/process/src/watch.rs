//! The memory of a task that runs: of its process and of all that descend from it.
//!
//! A slot looks at its own task, seldom enough to cost little: the first time after a few
//! milliseconds, which most short tasks do not reach, then after each eighth of the task's age. One
//! that has a limit is looked at again before it could reach it.
//!
//! Only what the system cannot drop counts towards a limit: pages without a file, and files in
//! memory that a process has mapped. A program that maps a large file, or reserves addresses that
//! it does not touch, stays below its limit.

use std::collections::HashSet;
use std::fs;

use super::RankUsage;
use super::clock::now_us;
use super::ranks::Ranks;

/// When a task is looked at for the first time, and how long is between two looks at least.
const LOOK_US_MIN: u64 = 25_000;

/// How long is between two looks at most.
const LOOK_US_MAX: u64 = 5_000_000;

/// After which part of its age a task is looked at again.
const AGE_SHARE: u64 = 8;

/// How many times as long as a look the time until the next one is at least: what a task with very
/// many processes, threads or pages costs is bounded by this.
const COST_SHARE: u64 = 30;

/// The speed at which a task with a limit is expected to fill memory, in bytes per microsecond.
const GROWTH_BYTES_PER_US: u64 = 4_000;

/// Most processes of a task that are looked at.
const PROCESSES_MAX: usize = 4_096;

/// What is seen of the memory of one task.
#[derive(Debug)]
pub(super) struct Watch {
    pid: libc::pid_t,
    started: u64,
    due: u64,
    most_bytes: u64,
    limit: Option<u64>,
    /// What it had when it had more than its limit.
    over: Option<Over>,
    ranks: Ranks,
}

/// A task that has more memory than its limit.
#[derive(Debug, Clone)]
pub(super) struct Over {
    /// What it has, in bytes.
    pub(super) bytes: u64,
    /// Its processes.
    pub(super) processes: Vec<libc::pid_t>,
}

impl Watch {
    /// Begins with the process `pid`, which may have `limit` bytes, and whose `ranks` are told
    /// apart.
    pub(super) fn new(pid: libc::pid_t, limit: Option<u64>, ranks: Ranks) -> Watch {
        let started = now_us();
        let due = started + LOOK_US_MIN;
        Watch { pid, started, due, most_bytes: 0, limit, over: None, ranks }
    }

    /// When to look next.
    pub(super) fn due(&self) -> u64 {
        self.due
    }

    /// The most memory that was seen, in bytes.
    pub(super) fn most_bytes(&self) -> u64 {
        self.most_bytes
    }

    /// The task, if it was seen with more than its limit.
    pub(super) fn over(&self) -> Option<&Over> {
        self.over.as_ref()
    }

    /// Usage of each rank that was seen.
    pub(super) fn ranks(&self) -> Vec<RankUsage> {
        self.ranks.used()
    }

    /// Looks at the task's processes, if it is time; returns whether it was. Those that have left
    /// the task, and so do not descend from it any more, are `strays`.
    pub(super) fn look(&mut self, strays: impl FnOnce() -> Vec<libc::pid_t>) -> bool {
        let begun = now_us();
        if begun < self.due {
            return false;
        }
        let processes = family(self.pid, strays());
        self.ranks.look(&processes);
        let seen = memory(&processes, self.most_bytes);
        self.most_bytes = self.most_bytes.max(seen.bytes);
        let mut apart_max = LOOK_US_MAX;
        if let Some(limit) = self.limit {
            let mut held = seen.resident;
            if held > limit {
                held = processes.iter().map(|pid| kept(*pid)).sum();
            }
            apart_max = limit.saturating_sub(held) / GROWTH_BYTES_PER_US;
            if held > limit {
                // It may have grown since.
                self.most_bytes = self.most_bytes.max(held);
                self.over = Some(Over { bytes: held, processes });
            }
        }
        let now = now_us();
        let apart = ((now - self.started) / AGE_SHARE).min(apart_max);
        let apart = apart.clamp(LOOK_US_MIN, LOOK_US_MAX);
        self.due = now + apart.max((now - begun).saturating_mul(COST_SHARE));
        true
    }
}

/// Whether there is a process with this number that has not ended.
pub(super) fn exists(pid: libc::pid_t) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// A process, those that descend from it or from `strays`, and these.
pub(super) fn family(pid: libc::pid_t, strays: Vec<libc::pid_t>) -> Vec<libc::pid_t> {
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

/// What is seen of the memory of several processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Seen {
    /// The sum of their resident sets, in bytes.
    resident: u64,
    /// The memory that they have together, in bytes.
    bytes: u64,
}

/// The memory of processes together. What several of them share counts once, where more than
/// `known` bytes depend on it: to find out costs the kernel a look at every page.
fn memory(processes: &[libc::pid_t], known: u64) -> Seen {
    let sizes: Vec<u64> = processes.iter().map(|pid| resident(*pid)).collect();
    let sum: u64 = sizes.iter().sum();
    if sum <= known || sizes.iter().filter(|size| **size > 0).count() < 2 {
        return Seen { resident: sum, bytes: sum };
    }
    let shares = processes.iter().zip(&sizes);
    let share =
        |(pid, resident): (&libc::pid_t, &u64)| share(*pid).unwrap_or(*resident).min(*resident);
    Seen { resident: sum, bytes: shares.map(share).sum() }
}

/// The resident set of a process in bytes; 0 if it has ended.
pub(super) fn resident(pid: libc::pid_t) -> u64 {
    let sizes = fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages = sizes.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0_u64).saturating_mul(rustix::param::page_size() as u64)
}

/// The resident set of a process in bytes, with its part of each page that several processes have;
/// `None` if that may not be read.
fn share(pid: libc::pid_t) -> Option<u64> {
    kib(&fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?, "Pss:")
}

/// The memory of a process that the system cannot drop, in bytes, with its part of each page that
/// several processes have; 0 if it has ended.
fn kept(pid: libc::pid_t) -> u64 {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let of = |name| kib(&rollup, name);
    if let (Some(anonymous), Some(shared)) = (of("Pss_Anon:"), of("Pss_Shmem:")) {
        return anonymous + shared;
    }
    // It may not be read, or the kernel is older than 5.2: what has a file does not count.
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let of = |name| kib(&status, name).unwrap_or(0);
    of("RssAnon:") + of("RssShmem:")
}

/// The bytes of the line `name` of a list of sizes.
pub(super) fn kib(list: &str, name: &str) -> Option<u64> {
    let size = list.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = size.trim().strip_suffix("kB")?.trim().parse().ok()?;
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
        let mut watch = Watch::new(pid, Some(2 * BYTES), Ranks::default());
        watch.due = 0;
        watch.look(Vec::new);
        assert!(watch.most_bytes() >= 2 * BYTES, "{watch:?}");
        assert!(resident(pid) < 2 * BYTES, "that is more than one of them has");
        assert!(watch.due() > now_us());
        let over = watch.over().expect("they have more than their limit");
        assert!((2 * BYTES..=watch.most_bytes()).contains(&over.bytes), "{over:?}");
        assert_eq!(over.processes, processes);
        // A stray counts once, whoever names it.
        assert_eq!(family(pid, vec![processes[1], pid]), processes);
        let strayed = family(processes[1], vec![pid]);
        assert_eq!(strayed.len(), 2, "{strayed:?}");

        drop(shell.stdin.take());
        shell.wait().unwrap();
        assert_eq!(memory(&processes, 0), Seen::default(), "they have ended");
        assert!(!exists(pid));
    }
}
