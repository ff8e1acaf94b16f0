//! This machine, and what a process of Falkon asks of it before all else.

use std::process::ExitCode;

/// Buffers up to this size come from memory that is kept when they are freed.
/// By default the C library maps and unmaps each of more than 128 KiB, a
/// message of a thousand tasks, and every page of it costs a fault each time:
/// half of an executor's processor time for distinct tasks.
#[cfg(target_env = "gnu")]
const KEPT_BLOCK_BYTES: libc::c_int = 4 << 20;
/// Freed memory that is kept for the next message at most.
#[cfg(target_env = "gnu")]
const KEPT_FREE_BYTES: libc::c_int = 32 << 20;

/// The first of a program's own: process host and concentrators are the program
/// that needs them, executed again. Runs one of these to its end if this
/// process is to be one; has the C library keep freed buffers of messages for
/// the next ones otherwise. Other C libraries than glibc are left as they are.
#[must_use]
pub fn begin() -> Option<ExitCode> {
    if crate::rsh::is_called_for() {
        return Some(crate::rsh::main());
    }
    match std::env::args_os().nth(1).as_ref().and_then(|argument| argument.to_str()) {
        Some(falkon_process::HOST_ARGUMENT) => {
            return Some(falkon_process::host_main());
        }
        Some(falkon_net::concentrator::CONCENTRATOR_ARGUMENT) => {
            return Some(falkon_net::concentrator::concentrator_main());
        }
        Some(falkon_executor::gangs::REMOTE_ARGUMENT) => {
            return Some(falkon_executor::gangs::remote_main());
        }
        _ => {}
    }
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt has no precondition but that no other thread is inside
    // it: this is called first of all, before there are threads. A value it
    // does not take leaves the allocator as it was.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, KEPT_BLOCK_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_FREE_BYTES);
    }
    None
}

/// Allows as many connections as the system lets this process have.
pub fn raise_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // The limit stays as it was: fewer executors can connect.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Bytes of memory of this machine; 0 if it does not say.
#[must_use]
pub fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram as u64 * u64::from(info.mem_unit)
}

/// This machine's name.
#[must_use]
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The name of this node: what Slurm calls it within a job, otherwise this machine's name.
#[must_use]
pub fn node_name() -> String {
    let by_slurm = std::env::var("SLURMD_NODENAME").ok();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let named = by_slurm.filter(|name| !name.is_empty() && name.bytes().all(is_plain));
    named.unwrap_or_else(hostname)
}

/// CPUs that this process may use.
#[must_use]
pub fn cpus() -> u32 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u32)
}
