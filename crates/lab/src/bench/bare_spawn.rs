//! The floor of process tasks: a loop of `posix_spawn` and `wait4` in one
//! thread, and the process host by itself.
//!
//! Each process gets its number as its argument, as all that are compared get:
//! GNU `true` loads the locale when it has one argument, which takes it half
//! as long again.

use super::error::BenchError;
use clap::Args;
use falkon_process::{Host, HostReceiver, HostSender, Launch};
use std::ffi::{CString, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Instant;

unsafe extern "C" {
    static environ: *const *mut libc::c_char;
}

/// `falkon-lab bench bare-loop`
#[derive(Args, Debug)]
pub(crate) struct BareLoopArgs {
    /// The program
    program: OsString,
    /// How often
    tasks: u64,
    /// How many at a time
    in_flight: u64,
}

/// Runs the loop, and prints nothing. It has no other children: any that ends
/// is taken for one of its own.
pub(crate) fn bare_loop(args: &BareLoopArgs) -> Result<(), BenchError> {
    let program = CString::new(args.program.as_bytes())
        .map_err(|error| BenchError::System { what: "name a program", source: error.into() })?;
    for at in 0..args.tasks.saturating_add(args.in_flight) {
        if at >= args.in_flight {
            // SAFETY: Null pointers say that nothing but the wait is wanted.
            unsafe { libc::wait4(-1, std::ptr::null_mut(), 0, std::ptr::null_mut()) };
        }
        if at < args.tasks {
            let mut pid = 0;
            let number = CString::new(at.to_string()).unwrap_or_default();
            let argv =
                [program.as_ptr().cast_mut(), number.as_ptr().cast_mut(), std::ptr::null_mut()];
            // SAFETY: All pointers are to live, closed arrays of strings; the
            // null pointers say that there are no actions and attributes.
            let error = unsafe {
                libc::posix_spawn(
                    &mut pid,
                    program.as_ptr(),
                    std::ptr::null(),
                    std::ptr::null(),
                    argv.as_ptr(),
                    environ,
                )
            };
            if error != 0 {
                let source = std::io::Error::from_raw_os_error(error);
                return Err(BenchError::System { what: "spawn a process", source });
            }
        }
    }
    Ok(())
}

/// Gives what `command` starts a session of its own: the kernel shares
/// processors between sessions, and Falkon's process host has one, so that on
/// a busy machine others would get less.
pub(crate) fn in_own_session(command: &mut Command) -> &mut Command {
    // SAFETY: Between fork and exec one system call without memory is made. It
    // cannot fail in a child that was just forked and leads no group.
    unsafe {
        command.pre_exec(|| {
            libc::setsid();
            Ok(())
        })
    }
}

/// Processes per second through a process host, which captures what they
/// write. Keeps `in_flight` of them running and, behind each, `ahead` more
/// that start in its place.
pub(crate) async fn host_alone(
    program: &str,
    tasks: u64,
    in_flight: u64,
    ahead: u64,
) -> Result<f64, BenchError> {
    let mut host = Host::start().await.map_err(BenchError::Host)?;
    let start = Instant::now();
    let mut chains = Chains {
        program: program.as_bytes().to_vec(),
        ahead: ahead > 0,
        chain_of: Vec::new(),
        last: vec![None; in_flight as usize],
    };
    let first = (in_flight * (1 + ahead)).min(tasks);
    let launches: Vec<Launch> =
        (0..first).map(|at| chains.next((at % in_flight) as usize)).collect();
    keep_running(&mut host, &mut chains, launches, tasks).await?;
    Ok(tasks as f64 / start.elapsed().as_secs_f64())
}

/// Tasks that run one after the other: the chain of each task, and the last
/// task of each chain.
struct Chains {
    program: Vec<u8>,
    ahead: bool,
    chain_of: Vec<usize>,
    last: Vec<Option<u64>>,
}

impl Chains {
    fn next(&mut self, chain: usize) -> Launch {
        let key = self.chain_of.len() as u64;
        self.chain_of.push(chain);
        Launch {
            key,
            after: self.last[chain].replace(key).filter(|_| self.ahead),
            argv: vec![self.program.clone(), key.to_string().into_bytes()],
            capture_bytes_max: 65_536,
            ..Launch::default()
        }
    }
}

async fn keep_running(
    (sender, receiver): &mut (HostSender, HostReceiver),
    chains: &mut Chains,
    mut launches: Vec<Launch>,
    tasks: u64,
) -> Result<(), BenchError> {
    let (mut ended, mut batch) = (0, Vec::new());
    while ended < tasks {
        if !launches.is_empty() {
            sender.launch(&launches).await.map_err(BenchError::Launch)?;
        }
        batch.clear();
        receiver.recv(&mut batch).await.map_err(BenchError::HostLost)?;
        ended += batch.len() as u64;
        launches.clear();
        for one in &batch {
            if (chains.chain_of.len() as u64) < tasks {
                let chain = chains.chain_of[one.key as usize];
                launches.push(chains.next(chain));
            }
        }
    }
    Ok(())
}
