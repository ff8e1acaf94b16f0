//! The processor time of processes, and how often they wake
//! up.

/// Processor time that the threads of a process have used, in nanoseconds; 0
/// if it is gone. Threads that have ended do not count.
pub(crate) fn of(pid: u32) -> u64 {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    let run_time = |thread: std::fs::DirEntry| -> Option<u64> {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok()
    };
    threads.flatten().filter_map(run_time).sum()
}

/// How often the threads of a process have slept, which is how often they were
/// woken up, or will be.
pub(crate) fn sleeps_of(pid: u32) -> u64 {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    let sleeps = |thread: std::fs::DirEntry| -> Option<u64> {
        let text = std::fs::read_to_string(thread.path().join("status")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse().ok()
    };
    threads.flatten().filter_map(sleeps).sum()
}

/// Processor time of this process, in nanoseconds: threads that have ended
/// count.
pub(crate) fn own() -> u64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec as u64 * 1_000_000_000 + spent.tv_nsec as u64
}

/// Processor time of children that have ended and were waited for, and of
/// theirs, in nanoseconds.
pub(crate) fn children() -> u64 {
    // SAFETY: It is plain numbers, for which zeros are values.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: The pointer is to a live structure of the type that the call
    // fills. It can only fail for an unknown `who` or a bad pointer.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    let nanos =
        |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    nanos(usage.ru_utime) + nanos(usage.ru_stime)
}
