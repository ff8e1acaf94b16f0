//! Starting a process at the speed of vfork, bound to the life of the host.
//!
//! The child shares the host's memory and runs on a stack of its own until it executes its
//! program (`clone(CLONE_VM | CLONE_VFORK)`, as the C library's `posix_spawn` does); the calling
//! thread stands still meanwhile. Between the two the child may only make system calls on what
//! was prepared before: no allocation, no lock, no panic.
//!
//! The host's side of the bargain: all of its threads keep all signals blocked and all
//! dispositions are the default ones (see [`super::host`]), so no handler can run in the child,
//! and nothing but the signal mask is to be restored.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::clock::US_PER_S;
use super::environment::Image;
use super::host_protocol::CpuSet;
use super::start::Progress;
use super::{Outcome, Stage, Usage};

/// Stack of a child before it executes its program; what it calls are system calls.
const STACK_BYTES: usize = 64 << 10;

/// Below the stack, so that running over it is a fault and not a corruption.
const GUARD_BYTES: usize = 64 << 10;

/// The unit in which the kernel counts what a process reads and writes.
const BLOCK_BYTES: u64 = 512;

const SHELL: &CStr = c"/bin/sh";

/// The memory that a thread's children run on before they execute their programs.
#[derive(Debug)]
pub(super) struct Stack {
    base: *mut c_void,
}

// SAFETY: The mapping belongs to this value alone and is not tied to a thread.
unsafe impl Send for Stack {}

impl Stack {
    pub(super) fn new() -> io::Result<Stack> {
        // SAFETY: A new anonymous mapping at an address of the kernel's choice touches no
        // existing memory.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                GUARD_BYTES + STACK_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let stack = Stack { base };
        // SAFETY: The first GUARD_BYTES of the mapping made above, which nothing refers to yet.
        if unsafe { libc::mprotect(base, GUARD_BYTES, libc::PROT_NONE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(stack)
    }

    fn top(&mut self) -> *mut c_void {
        // SAFETY: One past the end of the mapping of exactly this length.
        unsafe { self.base.byte_add(GUARD_BYTES + STACK_BYTES) }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: The mapping made in `new`, of this length; children have left it, as `spawn`
        // only returns when they have.
        unsafe { libc::munmap(self.base, GUARD_BYTES + STACK_BYTES) };
    }
}

/// The properties of a child, besides its [`Image`].
#[derive(Debug)]
pub(super) struct Setup<'a> {
    pub(super) cwd: Option<&'a CStr>,
    /// `None`: the host's own standard input, which is `/dev/null`.
    pub(super) stdin: Option<BorrowedFd<'a>>,
    pub(super) stdout: BorrowedFd<'a>,
    pub(super) stderr: BorrowedFd<'a>,
    /// The process that the child must still have as its parent.
    pub(super) host: libc::pid_t,
    /// The limit on open files that the host has changed for itself, as it was before.
    pub(super) open_files: Option<libc::rlimit>,
    /// The CPUs that it may run on.
    pub(super) cpus: Option<&'a CpuSet>,
    /// Where it enters a control group.
    pub(super) group: Option<BorrowedFd<'a>>,
    /// Where the child writes how far it is.
    pub(super) progress: &'a Progress,
}

/// Why a process is not running.
#[derive(Debug)]
pub(super) struct NotSpawned {
    pub(super) stage: Stage,
    pub(super) errno: c_int,
    /// The child, if there was one: it must be reaped.
    pid: Option<libc::pid_t>,
}

impl NotSpawned {
    pub(super) fn new(stage: Stage, errno: c_int) -> NotSpawned {
        NotSpawned { stage, errno, pid: None }
    }

    /// Waits for the child, whose number is free then.
    pub(super) fn reap(&self) {
        if let Some(pid) = self.pid {
            // SAFETY: Kills and reaps a child that is ours, that has not been reaped, and that no
            // other thread waits for by its number.
            unsafe {
                libc::kill(pid, libc::SIGKILL);
                libc::waitpid(pid, std::ptr::null_mut(), 0);
            }
        }
    }
}

/// A running child.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) pid: libc::pid_t,
    pub(super) pidfd: OwnedFd,
    /// The process is a copy of a template, and a child of the host's first thread.
    pub(super) is_copy: bool,
}

/// All that the child reads, and what it leaves for the parent, in memory that both share.
struct Shared {
    argv: *mut *const c_char,
    envp: *const *const c_char,
    candidates: *const *const c_char,
    candidates_len: usize,
    cwd: *const c_char,
    stdin: RawFd,
    stdout: RawFd,
    stderr: RawFd,
    host: libc::pid_t,
    open_files: Option<libc::rlimit>,
    cpus: *const CpuSet,
    group: RawFd,
    no_signals: libc::sigset_t,
    /// The candidate being executed.
    candidate: usize,
    /// The step being taken.
    progress: *const Progress,
    /// Why the step failed; 0 if none did.
    errno: c_int,
}

/// Starts a process, and returns when it executes its program or has failed to.
///
/// # Safety
/// The pointers of `image` must lead to memory that stands as [`Image::prepare`] says. All
/// signals must be blocked in the calling thread.
pub(super) unsafe fn spawn(
    stack: &mut Stack,
    image: &mut Image,
    setup: &Setup<'_>,
) -> Result<Child, NotSpawned> {
    // SAFETY: An all-zero sigset_t is a valid value, and sigemptyset makes it the empty set.
    let no_signals = unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        set
    };
    let mut shared = Shared {
        argv: image.argv().as_mut_ptr(),
        envp: image.envp().as_ptr(),
        candidates: image.candidates().as_ptr(),
        candidates_len: image.candidates().len(),
        cwd: setup.cwd.map_or(std::ptr::null(), CStr::as_ptr),
        stdin: setup.stdin.map_or(-1, |fd| fd.as_raw_fd()),
        stdout: setup.stdout.as_raw_fd(),
        stderr: setup.stderr.as_raw_fd(),
        host: setup.host,
        open_files: setup.open_files,
        cpus: setup.cpus.map_or(std::ptr::null(), std::ptr::from_ref),
        group: setup.group.map_or(-1, |fd| fd.as_raw_fd()),
        no_signals,
        candidate: 0,
        progress: setup.progress,
        errno: 0,
    };
    setup.progress.reach(Stage::Fork);
    let mut pidfd: c_int = -1;
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: The stack is a mapping that only this thread's children use, one at a time, as
    // CLONE_VFORK keeps this thread here until the child has left it; so `shared` also lives for
    // as long as the child uses it and is not touched by both at once. `run_child` keeps to
    // system calls. CLONE_PIDFD makes the fifth argument the place for the descriptor.
    let pid = unsafe {
        libc::clone(
            run_child,
            stack.top(),
            flags,
            (&raw mut shared).cast(),
            &raw mut pidfd,
            std::ptr::null_mut::<c_void>(),
            std::ptr::null_mut::<c_int>(),
        )
    };
    if pid < 0 {
        return Err(NotSpawned::new(Stage::Fork, last_errno()));
    }
    // SAFETY: The kernel has just made this descriptor for this thread, and no other one knows of
    // it.
    let pidfd = (pidfd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(pidfd) });
    // SAFETY: `shared` is alive; a volatile read, as the child wrote behind the compiler's back.
    let (errno, candidate) = unsafe {
        let shared = &raw const shared;
        (
            (&raw const (*shared).errno).read_volatile(),
            (&raw const (*shared).candidate).read_volatile(),
        )
    };
    image.executed((errno == 0).then_some(candidate));
    match (errno, pidfd) {
        (0, Some(pidfd)) => Ok(Child { pid, pidfd, is_copy: false }),
        (errno, pidfd) => {
            // No pidfd and no error: a kernel older than 5.2, which ignores the flag.
            let errno = if pidfd.is_none() && errno == 0 { libc::ENOSYS } else { errno };
            Err(NotSpawned { stage: setup.progress.stage(), errno, pid: Some(pid) })
        }
    }
}

/// The child, from its first instruction to the execution of its program. It must not unwind,
/// allocate or lock: its memory is the host's.
extern "C" fn run_child(argument: *mut c_void) -> c_int {
    // SAFETY: `spawn` passes a pointer to a `Shared` that it leaves alone until the child has
    // executed or exited. All pointers in it stand for as long, by `spawn`'s contract. The calls
    // are system calls without memory of their own.
    unsafe {
        let shared = &mut *argument.cast::<Shared>();
        (*shared.progress).is(libc::getpid());
        let errno = become_task(shared);
        (&raw mut shared.errno).write_volatile(errno);
        libc::_exit(127)
    }
}

/// Takes the steps one by one; returns only if one failed, with the error number.
///
/// # Safety
/// Only in a child of [`spawn`].
unsafe fn become_task(shared: &mut Shared) -> c_int {
    // SAFETY: As the caller's; system calls on prepared memory.
    unsafe {
        if libc::setpgid(0, 0) != 0
            || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0) != 0
        {
            return last_errno();
        }
        // If the host died before the line above, there is no process to report to.
        if libc::getppid() != shared.host {
            return libc::ESRCH;
        }
        if let Some(limit) = &shared.open_files {
            libc::setrlimit(libc::RLIMIT_NOFILE, limit);
        }
        if !shared.cpus.is_null() {
            // Without these CPUs, which the system may have taken away, it runs on any.
            libc::sched_setaffinity(0, size_of::<CpuSet>(), shared.cpus.cast());
        }
        if shared.group >= 0 {
            // If it does not enter the group, the watch alone holds it to its limit.
            libc::write(shared.group, c"0".as_ptr().cast(), 1);
        }
        (*shared.progress).reach(Stage::Pipes);
        if (shared.stdin >= 0 && libc::dup2(shared.stdin, 0) < 0)
            || libc::dup2(shared.stdout, 1) < 0
            || libc::dup2(shared.stderr, 2) < 0
        {
            return last_errno();
        }
        (*shared.progress).reach(Stage::Chdir);
        if !shared.cwd.is_null() && libc::chdir(shared.cwd) != 0 {
            return last_errno();
        }
        (*shared.progress).reach(Stage::Exec);
        libc::sigprocmask(libc::SIG_SETMASK, &shared.no_signals, std::ptr::null_mut());
        execute(shared)
    }
}

/// Tries the candidates as `execvp` does: what is not there is passed over, what may not be
/// executed is passed over but reported if nothing else is found, a file that is no binary and
/// names no interpreter is run by the shell.
///
/// # Safety
/// Only in a child of [`spawn`].
unsafe fn execute(shared: &mut Shared) -> c_int {
    let mut denied = false;
    for at in 0..shared.candidates_len {
        // SAFETY: As the caller's; `at` is within the candidates, and `argv` has one entry in
        // front of the arguments and at least the program's name after it.
        let errno = unsafe {
            let candidate = *shared.candidates.add(at);
            (&raw mut shared.candidate).write_volatile(at);
            libc::execve(candidate, shared.argv.add(1), shared.envp);
            if last_errno() == libc::ENOEXEC {
                *shared.argv = SHELL.as_ptr();
                *shared.argv.add(1) = candidate;
                libc::execve(SHELL.as_ptr(), shared.argv, shared.envp);
            }
            last_errno()
        };
        match errno {
            libc::EACCES => denied = true,
            libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
            other => return other,
        }
        if shared.candidates_len == 1 {
            return errno;
        }
    }
    if denied { libc::EACCES } else { libc::ENOENT }
}

fn last_errno() -> c_int {
    // SAFETY: The C library's errno of this thread, which a child on this thread shares.
    unsafe { *libc::__errno_location() }
}

/// Waits for a child that has ended.
pub(super) fn reap(child: &Child) -> (Outcome, Usage) {
    let mut status = 0;
    // SAFETY: An all-zero rusage is a valid value, and both are valid places for results. The child
    // is this thread's own and no other thread waits for it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::wait4(child.pid, &mut status, 0, &mut usage);
        usage
    };
    let outcome = if libc::WIFSIGNALED(status) {
        Outcome::Signal(libc::WTERMSIG(status))
    } else {
        Outcome::Exit(libc::WEXITSTATUS(status))
    };
    let us = |time: libc::timeval| time.tv_sec as u64 * US_PER_S + time.tv_usec as u64;
    let usage = Usage {
        user_us: us(usage.ru_utime),
        system_us: us(usage.ru_stime),
        rss_max_bytes: usage.ru_maxrss as u64 * 1024,
        read_bytes: usage.ru_inblock as u64 * BLOCK_BYTES,
        written_bytes: usage.ru_oublock as u64 * BLOCK_BYTES,
    };
    (outcome, usage)
}
