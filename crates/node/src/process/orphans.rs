//! Nothing is left behind: finding and ending the processes that tasks leave, in the host while
//! it runs and when it stops, and in the executor when the host was killed.
//!
//! A task's process group is killed when the task ends, so this is about processes that left the
//! group. When their parent ends they become children of the nearest reaper, the host or, if
//! that is gone, the executor. They are told apart by the variable that every task has in its
//! environment.

use std::collections::HashMap;
use std::fs;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};

use super::copy::Copies;
use super::host::Pool;

/// How long processes that have been killed may take to end before they are given up: one that
/// hangs in the kernel, or that belongs to another user, cannot be ended.
const KILL_MS_MAX: u64 = 5_000;

/// How long to wait for the next process to end before looking again.
const LOOK_AGAIN_MS: u64 = 10;

/// Looks after what tasks leave behind. It must be used on the host's first thread only, as what
/// the host adopts are children of that thread, and it waits for children of its thread alone.
#[derive(Debug)]
pub(super) struct Janitor {
    /// Processes that do not tell which task they come from, and the number of the next start
    /// when they were first seen: they come from a task before that.
    strangers: HashMap<Pid, u64>,
}

impl Janitor {
    pub(super) fn new() -> Janitor {
        Janitor { strangers: HashMap::new() }
    }

    /// Ends the processes whose task has ended. Costs one system call if there are none at all.
    pub(super) fn look(&mut self, pool: &Pool) {
        if !reap_own_children(&pool.copies) {
            self.strangers.clear();
            return;
        }
        let children = own_children();
        self.strangers.retain(|pid, _| children.contains(pid));
        for pid in children {
            let left_behind = match task_key(pid, pool.inherited.key_prefix()) {
                Some(key) => !pool.runs(key),
                None => {
                    let (next, oldest) = pool.starts();
                    let seen = *self.strangers.entry(pid).or_insert(next);
                    oldest.is_none_or(|oldest| oldest >= seen)
                }
            };
            if left_behind {
                kill(pid);
            }
        }
        reap_own_children(&pool.copies);
    }

    /// Ends everything, while the slots end their tasks.
    pub(super) fn kill_all(&mut self, pool: &Pool) {
        let deadline = Instant::now() + Duration::from_millis(KILL_MS_MAX);
        while Instant::now() < deadline {
            // A slot counts as busy before it starts its task, and a task that ends leaves its
            // children here before its slot is not busy any more.
            let busy = pool.busy();
            let any = reap_own_children(&pool.copies);
            if !busy && !any {
                return;
            }
            own_children().into_iter().for_each(kill);
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
/// wait; returns whether there are others.
fn reap_own_children(copies: &Copies) -> bool {
    if !has_children() {
        return false;
    }
    let copies = copies.hold();
    let mut others = false;
    for pid in own_children().into_iter().filter(|pid| !copies.has(*pid)) {
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

/// The children of all threads of this process.
fn all_children() -> Vec<Pid> {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return Vec::new() };
    let lists = threads.flatten().flat_map(|one| fs::read_to_string(one.path().join("children")));
    lists.flat_map(|list| pids(&list)).collect()
}

fn pids(list: &str) -> Vec<Pid> {
    list.split_ascii_whitespace().flat_map(str::parse).filter_map(Pid::from_raw).collect()
}

/// The rest of the setting in the environment of process `pid` that starts with `prefix`.
fn setting(pid: Pid, prefix: &[u8]) -> Option<Vec<u8>> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut settings = environment.split(|&byte| byte == 0);
    settings.find_map(|setting| setting.strip_prefix(prefix)).map(<[u8]>::to_vec)
}

fn task_key(pid: Pid, prefix: &[u8]) -> Option<u64> {
    str::from_utf8(&setting(pid, prefix)?).ok()?.parse().ok()
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
    // What cannot be killed has ended already or belongs to somebody else.
    if group(pid) == Some(pid) {
        let _ = rustix::process::kill_process_group(pid, Signal::KILL);
    }
    let _ = rustix::process::kill_process(pid, Signal::KILL);
}

/// Ends what the host `host` left to this process when it was killed; `host` must have ended and
/// not been waited for, so that its number still means its session. Only children that were in
/// that session or that carry `prefix` in their environment are touched.
pub(super) fn sweep(host: Pid, prefix: &[u8]) {
    let deadline = Instant::now() + Duration::from_millis(KILL_MS_MAX);
    let left_by_host = |pid: &Pid| {
        let in_session = session(*pid) == Some(host);
        *pid != host && (in_session || setting(*pid, prefix).is_some())
    };
    while Instant::now() < deadline {
        // When a process has ended, its children are ours: so this goes on until there are none.
        let left: Vec<Pid> = all_children().into_iter().filter(left_by_host).collect();
        if left.is_empty() {
            return;
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
        // It has ended, and something else in this process has waited for it.
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
