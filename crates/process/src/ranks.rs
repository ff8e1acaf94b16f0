//! Usage of the ranks of a parallel program: processes to which a launcher has given numbers.
//!
//! The launcher starts them and waits for them, so the kernel tells the host nothing of each. They
//! are looked at while they run, with the rest of the task: what a rank used after the last look is
//! not known.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Read;

use super::watch::{kib, resident};
use super::{RankUsage, Usage};

/// Most ranks of a task that are told apart.
const RANKS_MAX: usize = 4_096;

/// The most of a process's environment that is searched for its rank, in bytes.
const ENVIRONMENT_BYTES_MAX: u64 = 2 << 20;

/// The most of all environments that is read at one look, in bytes, but for the rest of one.
/// Further processes wait for the next look.
const LOOK_BYTES_MAX: usize = 16 << 20;

/// A process that has no rank at so many looks has none: at the first one, it may not have executed
/// its program yet.
const LOOKS_WITHOUT: u8 = 2;

/// The ranks of a task, as they were seen.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    /// The names of the variables that have a process's rank, the first one first.
    variables: Vec<Vec<u8>>,
    /// The processes of ranks at the last look, by their numbers.
    alive: HashMap<libc::pid_t, Process>,
    /// The number of looks at each process without a rank.
    without: HashMap<libc::pid_t, u8>,
    /// Usage of ranks' processes that have ended, and the most memory of each rank.
    ended: BTreeMap<u32, Usage>,
}

/// A process of a rank, as it was at a look.
#[derive(Debug, Clone, Copy)]
struct Process {
    rank: u32,
    state: State,
    read_bytes: u64,
    written_bytes: u64,
}

/// The state of a process, as the kernel says it. Times have those of its children that were
/// waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    parent: libc::pid_t,
    user_us: u64,
    system_us: u64,
    /// The time at which it began, in the kernel's unit: no other process has its number and this.
    began: u64,
}

impl Ranks {
    /// Begins with the variables that have ranks; without any, nothing is looked at.
    pub(super) fn new(variables: Vec<Vec<u8>>) -> Ranks {
        Ranks { variables, ..Ranks::default() }
    }

    /// Looks at the processes of the task.
    pub(super) fn look(&mut self, processes: &[libc::pid_t]) {
        if self.variables.is_empty() {
            return;
        }
        let (mut alive, mut without) = (HashMap::new(), HashMap::new());
        let mut memory: BTreeMap<u32, u64> = BTreeMap::new();
        let mut read = 0;
        for pid in processes {
            let looks = self.without.get(pid).copied().unwrap_or(0);
            if looks >= LOOKS_WITHOUT {
                without.insert(*pid, looks);
                continue;
            }
            let Some(state) = State::of(*pid) else { continue };
            let known = self.alive.get(pid).filter(|known| known.state.began == state.began);
            let rank = match known {
                Some(known) => Some(known.rank),
                None if read >= LOOK_BYTES_MAX => {
                    without.insert(*pid, looks);
                    continue;
                }
                None => {
                    let environment = environment_of(*pid);
                    read += environment.len();
                    self.rank_in(&environment)
                }
            };
            let Some(rank) = rank else {
                without.insert(*pid, looks + 1);
                continue;
            };
            if !self.ended.contains_key(&rank) && self.ended.len() >= RANKS_MAX {
                continue;
            }
            let usage = self.ended.entry(rank).or_default();
            usage.rss_max_bytes = usage.rss_max_bytes.max(peak(*pid));
            *memory.entry(rank).or_default() += resident(*pid);
            let (read_bytes, written_bytes) = storage(*pid).unwrap_or_else(|| {
                known.map_or((0, 0), |known| (known.read_bytes, known.written_bytes))
            });
            alive.insert(*pid, Process { rank, state, read_bytes, written_bytes });
        }
        for (rank, bytes) in memory {
            let usage = self.ended.entry(rank).or_default();
            usage.rss_max_bytes = usage.rss_max_bytes.max(bytes);
        }
        let was = std::mem::replace(&mut self.alive, alive);
        self.without = without;
        for (pid, process) in was {
            let is_same = |now: &Process| now.state.began == process.state.began;
            let waited_for = |parent: &Process| parent.rank == process.rank;
            let is_in_parent = self.alive.get(&process.state.parent).is_some_and(waited_for);
            if !self.alive.get(&pid).is_some_and(is_same) && !is_in_parent {
                process.add_to(self.ended.entry(process.rank).or_default());
            }
        }
    }

    /// Usage of each rank that was seen, in the order of their numbers.
    pub(super) fn used(&self) -> Vec<RankUsage> {
        let mut used = self.ended.clone();
        for process in self.alive.values() {
            process.add_to(used.entry(process.rank).or_default());
        }
        used.into_iter().map(|(rank, usage)| RankUsage { rank, usage }).collect()
    }

    /// The rank that an environment has.
    fn rank_in(&self, environment: &[u8]) -> Option<u32> {
        let rank = |name: &Vec<u8>| {
            let value = environment
                .split(|byte| *byte == 0)
                .find_map(|setting| setting.strip_prefix(name.as_slice())?.strip_prefix(b"="))?;
            std::str::from_utf8(value).ok()?.parse().ok()
        };
        self.variables.iter().find_map(rank)
    }
}

impl Process {
    /// Adds all but the memory.
    fn add_to(&self, usage: &mut Usage) {
        usage.user_us = usage.user_us.saturating_add(self.state.user_us);
        usage.system_us = usage.system_us.saturating_add(self.state.system_us);
        usage.read_bytes = usage.read_bytes.saturating_add(self.read_bytes);
        usage.written_bytes = usage.written_bytes.saturating_add(self.written_bytes);
    }
}

impl State {
    /// `None` if the process is gone.
    fn of(pid: libc::pid_t) -> Option<State> {
        State::read(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn read(stat: &str) -> Option<State> {
        // The program's name, in parentheses, may have any characters.
        let (_, fields) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        let us = |own: usize, waited: usize| {
            let ticks = number(own)?.saturating_add(number(waited)?);
            Some(ticks.saturating_mul(1_000_000) / rustix::param::clock_ticks_per_second().max(1))
        };
        Some(State {
            parent: fields.get(1)?.parse().ok()?,
            user_us: us(11, 13)?,
            system_us: us(12, 14)?,
            began: number(19)?,
        })
    }
}

/// The environment with which a process has executed its program; nothing if it may not be read.
fn environment_of(pid: libc::pid_t) -> Vec<u8> {
    let mut environment = Vec::new();
    let file = File::open(format!("/proc/{pid}/environ"));
    let read = file.and_then(|file| file.take(ENVIRONMENT_BYTES_MAX).read_to_end(&mut environment));
    if read.is_err() {
        environment.clear();
    }
    environment
}

/// The largest resident set that a process had, in bytes; 0 if it has ended.
fn peak(pid: libc::pid_t) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    kib(&status, "VmHWM:").unwrap_or(0)
}

/// Bytes that a process, with its children that were waited for, has read from storage and written
/// to it; `None` if that may not be read.
fn storage(pid: libc::pid_t) -> Option<(u64, u64)> {
    let list = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    let of = |name| list.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Some((of("read_bytes:")?, of("write_bytes:")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::family;
    use rustix::process::{Pid, Signal, kill_process_group};
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
    use tempfile::TempDir;

    /// A shell that runs each line that it is sent, in a folder with two scripts.
    struct Shell {
        child: Child,
        input: ChildStdin,
        output: BufReader<ChildStdout>,
        _folder: TempDir,
    }

    /// Uses the processor for 0.2 s at least, says so, and ends when it can open a pipe.
    const BURN: &str = "
        while read -r line < /proc/self/stat; set -- $line; [ ${14} -lt 20 ]; do
            turn=0
            while [ $turn -lt 1000 ]; do turn=$((turn + 1)); done
        done
        echo burnt
        read line < $PIPE
        exit
    ";
    const BURNT_US: u64 = 200_000;

    /// Has so much memory, says so, and ends when it can open a pipe.
    const HOLD: &str =
        r#"a=$(head -c 20000000 /dev/zero | tr '\0' x); echo held; read line < $PIPE"#;
    const HELD_BYTES: u64 = 20_000_000;

    impl Shell {
        fn start() -> Shell {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("burn"), BURN).unwrap();
            std::fs::write(folder.path().join("hold"), HOLD).unwrap();
            let mut command = Command::new("/bin/sh");
            command.env_remove("RANK").env_remove("OTHER").current_dir(&folder).process_group(0);
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let input = child.stdin.take().unwrap();
            let output = BufReader::new(child.stdout.take().unwrap());
            Shell { child, input, output, _folder: folder }
        }

        /// Sends it a line, and waits until something says this word.
        fn run(&mut self, line: &str, word: &str) {
            writeln!(self.input, "{line}").unwrap();
            let mut line = String::new();
            self.output.read_line(&mut line).unwrap();
            assert_eq!(line.trim(), word);
        }

        /// The ranks after a look, each with its time in user mode.
        fn look(&self, ranks: &mut Ranks) -> Vec<(u32, u64)> {
            ranks.look(&family(self.child.id().cast_signed(), Vec::new()));
            ranks.used().iter().map(|rank| (rank.rank, rank.usage.user_us)).collect()
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = self.child.wait();
        }
    }

    #[test]
    fn ranks_are_told_apart_with_all_that_they_start() {
        let mut shell = Shell::start();
        let mut ranks = Ranks::new(vec![b"RANK".to_vec(), b"OTHER".to_vec()]);
        assert_eq!(shell.look(&mut ranks), [], "the shell has no rank");
        shell.run("mkfifo two seven; echo made", "made");
        shell.run("RANK=7 OTHER=1 PIPE=seven sh burn &", "burnt");
        shell.run("RANK=no OTHER=2 PIPE=two sh -c 'sh hold; exit' &", "held");
        let seen = shell.look(&mut ranks);
        let used = ranks.used();
        assert_eq!(used.iter().map(|rank| rank.rank).collect::<Vec<_>>(), [2, 7]);
        assert!(used[0].usage.rss_max_bytes >= HELD_BYTES, "{used:?}");
        assert!(used[1].usage.rss_max_bytes < HELD_BYTES, "{used:?}");
        assert!(seen[1].1 >= BURNT_US, "{used:?}");
        // Processes that have ended stay known, and count once.
        shell.run("echo > two; echo > seven; wait; echo over", "over");
        assert_eq!(shell.look(&mut ranks), seen);
        assert!(ranks.alive.is_empty());
        assert_eq!(ranks.used(), used);
        // The same rank once more, as a second launcher would have it.
        shell.run("RANK=7 PIPE=seven sh burn &", "burnt");
        let more = shell.look(&mut ranks)[1].1;
        assert!(more >= seen[1].1 + BURNT_US, "{more}");
        shell.run("echo > seven; wait; echo over", "over");
        assert_eq!(shell.look(&mut ranks)[1].1, more);
    }

    #[test]
    fn the_time_of_a_child_that_was_waited_for_is_its_parents() {
        let mut shell = Shell::start();
        let mut ranks = Ranks::new(vec![b"RANK".to_vec()]);
        shell.run("mkfifo child parent; echo made", "made");
        let parent = "PIPE=child sh burn; echo waited; read line < parent; exit";
        shell.run(&format!("RANK=0 sh -c '{parent}' &"), "burnt");
        let first = shell.look(&mut ranks)[0].1;
        assert!(first >= BURNT_US, "{first}");
        shell.run("echo > child", "waited");
        let second = shell.look(&mut ranks)[0].1;
        assert!((first..first + BURNT_US).contains(&second), "{first} and then {second}");
        shell.run("echo > parent; wait; echo over", "over");
        assert_eq!(shell.look(&mut ranks)[0].1, second);
    }

    #[test]
    fn what_the_kernel_says_is_read_whatever_the_program_is_called() {
        let fields = "S 41 5 5 0 -1 4194560 1 2 3 4 100 50 20 10 20 0 1 0 777 1 2";
        let state = State::read(&format!("9 (a) b) (c) {fields}")).unwrap();
        let tick_us = 1_000_000 / rustix::param::clock_ticks_per_second();
        assert_eq!(
            state,
            State { parent: 41, user_us: 120 * tick_us, system_us: 60 * tick_us, began: 777 }
        );
        assert_eq!(State::read("9 (a) S 41 5"), None);
        assert_eq!(State::read(""), None);
    }
}
