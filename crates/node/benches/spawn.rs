//! Tasks per second through the process host, against a bare loop of `posix_spawn` and `waitpid`.
//!
//! Both keep the same number of processes in flight; rounds alternate, so that a change in the
//! machine's load meets both, and the medians are compared. Nothing is asserted. On a machine that
//! is busy otherwise the figures favour the host: the kernel shares processors by session, and
//! the host has one of its own.
//!
//! `cargo bench -p falkon-node --bench spawn [-- PROGRAM [IN_FLIGHT]]`

#![allow(clippy::unwrap_used, reason = "a benchmark may fail at once")]

use std::ffi::CString;
use std::process::ExitCode;
use std::time::Instant;

use falkon_node::process::{HOST_ARGUMENT, Host, HostReceiver, HostSender, Launch, host_main};

const TASKS: u64 = 2_000;
const ROUNDS: usize = 5;

unsafe extern "C" {
    static environ: *const *mut libc::c_char;
}

fn bare(program: &CString, in_flight: u64) -> f64 {
    let start = Instant::now();
    let argv = [program.as_ptr().cast_mut(), std::ptr::null_mut()];
    for at in 0..TASKS + in_flight {
        if at >= in_flight {
            // SAFETY: Null pointers say that nothing but the wait is wanted.
            unsafe { libc::wait4(-1, std::ptr::null_mut(), 0, std::ptr::null_mut()) };
        }
        if at < TASKS {
            let mut pid = 0;
            // SAFETY: All pointers are to live, closed arrays of strings; the null pointers say
            // that there are no actions and attributes.
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
            assert_eq!(error, 0, "posix_spawn of {program:?}");
        }
    }
    TASKS as f64 / start.elapsed().as_secs_f64()
}

/// Keeps `in_flight` tasks running and, behind each, `ahead` more that start in its place.
async fn hosted(
    (sender, receiver): &mut (HostSender, HostReceiver),
    program: &CString,
    in_flight: u64,
    ahead: u64,
) -> f64 {
    let start = Instant::now();
    // Tasks run in chains: the chain of each task, and the last task of each chain.
    let mut chain_of: Vec<usize> = Vec::new();
    let mut last: Vec<Option<u64>> = vec![None; in_flight as usize];
    let mut launch = |chain_of: &mut Vec<usize>, chain: usize| {
        let key = chain_of.len() as u64;
        chain_of.push(chain);
        Launch {
            key,
            after: last[chain].replace(key).filter(|_| ahead > 0),
            argv: vec![program.to_bytes().to_vec()],
            capture_bytes_max: 65_536,
            ..Launch::default()
        }
    };
    let (mut ended, mut batch, mut next) = (0, Vec::new(), Vec::new());
    for at in 0..in_flight * (1 + ahead) {
        next.push(launch(&mut chain_of, (at % in_flight) as usize));
    }
    while ended < TASKS {
        if !next.is_empty() {
            sender.launch(&next).await.unwrap();
        }
        batch.clear();
        receiver.recv(&mut batch).await.unwrap();
        ended += batch.len() as u64;
        next.clear();
        for one in &batch {
            if (chain_of.len() as u64) < TASKS {
                let chain = chain_of[one.key as usize];
                next.push(launch(&mut chain_of, chain));
            }
        }
    }
    TASKS as f64 / start.elapsed().as_secs_f64()
}

/// Processor time of this process and of all children it has waited for, in microseconds.
fn processor_us() -> f64 {
    let us = |who| {
        // SAFETY: An all-zero rusage is a valid value and a valid place for the result.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(who, &mut usage);
            usage
        };
        let us = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
        us(usage.ru_utime) + us(usage.ru_stime)
    };
    us(libc::RUSAGE_SELF) + us(libc::RUSAGE_CHILDREN)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).filter(|one| one != "--bench").peekable();
    if arguments.peek().is_some_and(|one| one == HOST_ARGUMENT) {
        return host_main();
    }
    let program = CString::new(arguments.next().unwrap_or("/bin/true".into())).unwrap();
    let in_flight = arguments.next().map_or(2, |text| text.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ways = ["bare", "host", "host, one ahead"];
    let mut rates: [Vec<f64>; 3] = Default::default();
    for round in 0..=ROUNDS {
        for (way, rates) in rates.iter_mut().enumerate() {
            let before = processor_us();
            // The bare loop waits for any child, so the host is started for each round anew. When
            // it is dropped it is waited for, and its time then counts as that of a child.
            let rate = match way {
                0 => bare(&program, in_flight),
                _ => runtime.block_on(async {
                    let mut host = Host::start().await.unwrap();
                    hosted(&mut host, &program, in_flight, way as u64 - 1).await
                }),
            };
            let each = (processor_us() - before) / TASKS as f64;
            println!("{:16} {rate:6.0}/s, {each:3.0} us of processor time each", ways[way]);
            // The first round warms the machine up.
            if round > 0 {
                rates.push(rate);
            }
        }
    }
    println!("median of {ROUNDS}, {in_flight} in flight, {program:?}:");
    let medians = rates.map(median);
    for (name, rate) in ways.iter().zip(medians) {
        println!("{name:16} {rate:6.0}/s, {:.3} of bare", rate / medians[0]);
    }
    ExitCode::SUCCESS
}
