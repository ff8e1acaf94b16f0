//! Orphans: finding and ending the processes that tasks leave, in the host while it runs and when
//! it stops, and in the executor when the host was killed.
//!
//! A task's process group is killed when the task ends, so this is about processes that left the
//! group. When their parent ends they become children of the nearest reaper, the host or, if that
//! is gone, the executor. They are distinguished by the variable that every task has in its
//! environment.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};

use super::copy::Copies;
use super::pool::Pool;

/// How long processes that have been killed may take to end before they are given up: one that
/// hangs in the kernel, or that belongs to another user, cannot be ended.
const KILL_MS_MAX: u64 = 5_000;

/// How long to wait for the next process to end before looking again.
const LOOK_AGAIN_MS: u64 = 10;

/// How long a process may take to execute a program before it is left alone: it hangs in the file
/// system of the program.
const EXECUTE_MS_MAX: u64 = 1_000;

/// How long a process that cleans up after a task may outlive the task.
const CLEAN_MS_MAX: u64 = 30_000;

/// Looks after what tasks leave behind. It must be used on the host's first thread only, as what
/// the host adopts are children of that thread, and it waits for children of its thread alone.
#[derive(Debug)]
pub(super) struct Janitor {
    /// Processes that do not tell which task they come from, and the number of the next start
    /// when they were first seen: they come from a task before that.
    strangers: HashMap<Pid, u64>,
    /// Processes that clean up after tasks that have ended, and since when they were seen to.
    cleaners: HashMap<Pid, Instant>,
}

impl Janitor {
    pub(super) fn new() -> Janitor {
        Janitor { strangers: HashMap::new(), cleaners: HashMap::new() }
    }

    /// Ends the processes whose task has ended. Costs one system call if there are none at all.
    pub(super) fn look(&mut self, pool: &Pool) {
        if !reap_own_children(&pool.copies) {
            self.strangers.clear();
            self.cleaners.clear();
            pool.note_strays(HashMap::new());
            return;
        }
        let children = own_children();
        self.strangers.retain(|pid, _| children.contains(pid));
        self.cleaners.retain(|pid, _| children.contains(pid));
        let mut strays: HashMap<u64, Vec<libc::pid_t>> = HashMap::new();
        for pid in children {
            let environment = Environment::of(pid);
            let task = environment.key(pool.inherited.key_prefix());
            let left_behind = match (task, environment.key(pool.inherited.cleaner_prefix())) {
                (Some(key), _) => {
                    strays.entry(key).or_default().push(pid.as_raw_nonzero().get());
                    !pool.runs(key)
                }
                (None, Some(key)) if pool.runs(key) => false,
                (None, Some(_)) => {
                    let since = self.cleaners.entry(pid).or_insert_with(Instant::now);
                    since.elapsed() >= Duration::from_millis(CLEAN_MS_MAX)
                }
                (None, None) => {
                    let (next, oldest) = pool.starts();
                    let seen = *self.strangers.entry(pid).or_insert(next);
                    oldest.is_none_or(|oldest| oldest >= seen)
                }
            };
            if left_behind {
                kill(pid);
            }
        }
        pool.note_strays(strays);
        reap_own_children(&pool.copies);
    }

    /// Ends everything but what cleans up, while the slots end their tasks.
    pub(super) fn kill_all(&mut self, pool: &Pool) {
        let deadline = Instant::now() + Duration::from_millis(KILL_MS_MAX);
        while Instant::now() < deadline {
            // A slot counts as busy before it starts its task, and a task that ends leaves its
            // children here before its slot is not busy any more.
            let busy = pool.busy();
            let any = reap_own_children(&pool.copies);
            let mut left = own_children();
            left.retain(|pid| Environment::of(*pid).key(pool.inherited.cleaner_prefix()).is_none());
            let is_any_left = any && (!left.is_empty() || pool.copies.hold().is_any_ordered());
            if !busy && !is_any_left {
                return;
            }
            left.into_iter().for_each(kill);
            wait_child_ended();
        }
    }
}

/// Waits until a child has ended, or a little while.
fn wait_child_ended() {
    let timeout = libc::timespec { tv_sec: 0, tv_nsec: LOOK_AGAIN_MS as libc::c_long * 1_000_000 };
    // SAFETY: An all-zero sigset_t is a valid value and then made the set of one signal, which is
    // blocked in all threads of the host; a null pointer says that the details are not wanted.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        libc::sigtimedwait(&set, std::ptr::null_mut(), &timeout);
    }
}

/// Waits for all children of this thread that have ended, but for copies, for which their slots
/// wait; returns whether there are others. Waits for none while a copy is ordered, which may be
/// any of them.
fn reap_own_children(copies: &Copies) -> bool {
    if !has_children() {
        return false;
    }
    let copies = copies.hold();
    let mut others = copies.is_any_ordered();
    for pid in own_children().into_iter().filter(|pid| !copies.may_have(*pid)) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let reaped = rustix::process::waitid(WaitId::Pid(pid), options);
        others |= matches!(reaped, Ok(None));
    }
    others
}

/// Whether this thread has children. The slots' own do not count.
fn has_children() -> bool {
    // SAFETY: An all-zero siginfo_t is a valid value and a valid place for the result.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WNOTHREAD;
        libc::waitid(libc::P_ALL, 0, &mut info, flags) == 0
    }
}

/// The children of this thread.
fn own_children() -> Vec<Pid> {
    fs::read_to_string("/proc/thread-self/children").map(|list| pids(&list)).unwrap_or_default()
}

/// The children of all threads of this process. Asked of each process for its parent: the kernel's
/// list of threads is cut short when one ends while it is read.
fn all_children() -> Vec<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let own = std::process::id().to_string();
    let names = processes.flatten().map(|entry| entry.file_name());
    let pids = names.filter_map(|name| Pid::from_raw(name.to_str()?.parse().ok()?));
    pids.filter(|pid| stat(*pid).get(PARENT_FIELD) == Some(&own)).collect()
}

fn pids(list: &str) -> Vec<Pid> {
    list.split_ascii_whitespace().flat_map(str::parse).filter_map(Pid::from_raw).collect()
}

/// Where [`stat`] says the parent.
const PARENT_FIELD: usize = 1;

/// Where [`stat`] says the state.
const STATE_FIELD: usize = 0;

/// Where [`stat`] says at which addresses the environment begins and ends: 0 until the program that
/// the process executes has begun.
const ENVIRONMENT_FIELDS: [usize; 2] = [47, 48];

/// The fields of `/proc/PID/stat` of a process, from the third one, the state, on; none if there is
/// no such process.
fn stat(pid: Pid) -> Vec<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The field before, the name of the program, may have blanks and brackets.
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    rest.split_ascii_whitespace().map(str::to_owned).collect()
}

/// The addresses between which a process has its environment; none if it has ended.
fn addresses(stat: &[String]) -> Option<[usize; 2]> {
    if matches!(stat.get(STATE_FIELD)?.as_str(), "Z" | "X") {
        return None;
    }
    Some(ENVIRONMENT_FIELDS.map(|at| stat.get(at).map_or(0, |field| field.parse().unwrap_or(0))))
}

/// The mark in a process's environment.
#[derive(Debug)]
enum Environment {
    Known(Vec<u8>),
    /// The process executes another program: its environment reads as empty or cut short.
    Changing,
    /// The environment may not be read, or the process has ended.
    Unknown,
}

impl Environment {
    fn of(pid: Pid) -> Environment {
        let before = addresses(&stat(pid));
        let Ok(read) = fs::read(format!("/proc/{pid}/environ")) else {
            return Environment::Unknown;
        };
        let stat = stat(pid);
        let Some([start, end]) = addresses(&stat) else { return Environment::Unknown };
        // Each program has its environment somewhere else.
        let is_whole = before == Some([start, end]) && end.checked_sub(start) == Some(read.len());
        match is_whole && end > 0 {
            true => Environment::Known(read),
            false => Environment::Changing,
        }
    }

    /// The rest of the setting that starts with `prefix`.
    fn setting(&self, prefix: &[u8]) -> Option<&[u8]> {
        let Environment::Known(settings) = self else { return None };
        settings.split(|&byte| byte == 0).find_map(|setting| setting.strip_prefix(prefix))
    }

    /// The number of the task that this setting ties the process to.
    fn key(&self, prefix: &[u8]) -> Option<u64> {
        str::from_utf8(self.setting(prefix)?).ok()?.parse().ok()
    }
}

/// The process group of `pid`; none if it has ended, or if the group's number has no meaning here
/// because its leader is outside this container (the kernel then says 0, which no [`Pid`] may be).
fn group(pid: Pid) -> Option<Pid> {
    // SAFETY: getpgid takes a plain number and touches no memory.
    Pid::from_raw(unsafe { libc::getpgid(pid.as_raw_nonzero().get()) }.max(0))
}

/// The session of `pid`; none in the cases of [`group`].
pub(super) fn session(pid: Pid) -> Option<Pid> {
    // SAFETY: getsid takes a plain number and touches no memory.
    Pid::from_raw(unsafe { libc::getsid(pid.as_raw_nonzero().get()) }.max(0))
}

/// Kills a child that has not been waited for and, if it leads one, its process group.
fn kill(pid: Pid) {
    // A process that cannot be killed has ended already or belongs to another user.
    if group(pid) == Some(pid) {
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    }
    let _ = rustix::process::kill_process(pid, Signal::KILL);
}

/// Ends what the host `host` left to this process when it was killed; `host` must have ended and
/// not been waited for, so that its number still means its session. Only children that were in
/// that session or that carry `prefix` in their environment are touched.
pub(super) fn sweep(host: Pid, prefix: &[u8]) {
    let start = Instant::now();
    let deadline = start + Duration::from_millis(KILL_MS_MAX);
    let execute_by = start + Duration::from_millis(EXECUTE_MS_MAX);
    while Instant::now() < deadline {
        // When a process has ended, its children are ours: so this goes on until there are none.
        let (mut left, mut is_unclear) = (Vec::new(), false);
        for pid in all_children().into_iter().filter(|pid| *pid != host) {
            let environment = Environment::of(pid);
            if session(pid) == Some(host) || environment.setting(prefix).is_some() {
                left.push(pid);
            }
            is_unclear |= matches!(environment, Environment::Changing);
        }
        if left.is_empty() && !(is_unclear && Instant::now() < execute_by) {
            return;
        }
        if left.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        for &pid in &left {
            kill(pid);
        }
        for pid in left {
            reap(pid, deadline);
        }
    }
}

/// Waits for a child of this process to end, until `deadline`; returns how it ended.
pub(super) fn reap(pid: Pid, deadline: Instant) -> Option<rustix::process::WaitIdStatus> {
    if !wait_ended(pid, deadline) {
        return None;
    }
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    rustix::process::waitid(WaitId::Pid(pid), options).ok().flatten()
}

/// Waits until a child of this process has ended, without reaping it, until `deadline`.
pub(super) fn wait_ended(pid: Pid, deadline: Instant) -> bool {
    let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else {
        // The process has ended, and another part of this process has waited for it.
        return true;
    };
    let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match rustix::event::poll(&mut fds, Some(&left)) {
            Err(error) if std::io::Error::from(error).kind() == ErrorKind::Interrupted => {}
            result => return result.is_ok_and(|ready| ready > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// A child of this thread that has ended, and that was not waited for.
    #[expect(clippy::zombie_processes, reason = "a zombie is what the tests are about")]
    fn ended_child() -> Pid {
        let child = Command::new("true").spawn().unwrap();
        let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
        assert!(wait_ended(pid, Instant::now() + Duration::from_secs(60)));
        pid
    }

    #[test]
    fn a_copy_that_ends_before_its_slot_reads_its_number_is_left_to_its_slot() {
        let copies = Copies::default();
        let ordered = copies.expect();
        let pid = ended_child();
        assert!(reap_own_children(&copies), "it is somebody's");
        let child = ordered.adopt(pid).unwrap();
        reap_own_children(&copies);
        assert_eq!(copies.reap(&child).0, crate::Outcome::Exit(0));
    }

    #[test]
    fn what_has_ended_is_waited_for_once_no_copy_is_expected() {
        let copies = Copies::default();
        let given_up = copies.expect();
        let pid = ended_child();
        assert!(reap_own_children(&copies));
        drop(given_up);
        assert!(!reap_own_children(&copies), "all were waited for");
        assert!(copies.adopt(pid).is_err());
    }

    #[test]
    fn what_executes_one_program_after_the_other_is_swept() {
        let host = ended_child();
        for _ in 0..200 {
            let again = "exec /bin/sh -c \"$AGAIN\"";
            let mut command = Command::new("/bin/sh");
            let child = command.args(["-c", again]).env("AGAIN", again).env("SWEPT", "1").spawn();
            let pid = Pid::from_raw(child.unwrap().id().cast_signed()).unwrap();
            sweep(host, b"SWEPT=");
            assert!(rustix::process::test_kill_process(pid).is_err(), "{pid:?} is left");
        }
        reap(host, Instant::now());
    }
}
