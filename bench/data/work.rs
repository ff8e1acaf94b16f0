//! A task of `shaped.py`: it reads the file `in`, and then computes.
//!
//!     work SECONDS GROUP SHARE_US PERIOD_US
//!
//! The task computes on a slow processor: in a control group below GROUP that may use
//! SHARE_US in each PERIOD_US, in which it is for as long as it computes, as long as
//! that processor needs SECONDS. It uses a given processor time, whatever the machine
//! and whoever else is there. Without a share it waits for so long.

use std::error::Error;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// One after another, as a program that looks at what it reads.
const PIECE_BYTES: usize = 1 << 16;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [seconds, group, share_us, period_us] = words.as_slice() else {
        return Err("work SECONDS GROUP SHARE_US PERIOD_US".into());
    };
    let (seconds, share, period): (f64, f64, f64) =
        (seconds.parse()?, share_us.parse()?, period_us.parse()?);
    let (mut object, mut piece) = (File::open("in")?, vec![0; PIECE_BYTES]);
    while object.read(&mut piece)? > 0 {}
    if share == 0.0 {
        std::thread::sleep(Duration::from_secs_f64(seconds));
        return Ok(());
    }
    let slow = Path::new(group).join(std::process::id().to_string());
    fs::create_dir(&slow)?;
    if slow.join("cpu.max").exists() {
        fs::write(slow.join("cpu.max"), format!("{share_us} {period_us}"))?;
    } else {
        fs::write(slow.join("cpu.cfs_period_us"), period_us)?;
        fs::write(slow.join("cpu.cfs_quota_us"), share_us)?;
    }
    fs::write(slow.join("cgroup.procs"), "0")?;
    // A new group gives the first period's share at once, which is used besides.
    compute(seconds * share / period + share / 1e6);
    fs::write(Path::new(group).join("outside/cgroup.procs"), "0")?;
    Ok(fs::remove_dir(slow)?)
}

/// Keeps a processor busy for so many seconds of its time.
fn compute(seconds: f64) {
    let end = used_s() + seconds;
    let mut value = 1u64;
    while used_s() < end {
        for _ in 0..20_000 {
            value = black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

/// The processor time of this process so far, in seconds.
fn used_s() -> f64 {
    let mut now = TimeSpec { seconds: 0, nanos: 0 };
    // SAFETY: `TimeSpec` is what a `struct timespec` is where `long` has 64 bits, and
    // lives until the call returns.
    unsafe { clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &mut now) };
    now.seconds as f64 + now.nanos as f64 / 1e9
}

#[repr(C)]
struct TimeSpec {
    seconds: i64,
    nanos: i64,
}

const CLOCK_PROCESS_CPUTIME_ID: i32 = 2;

unsafe extern "C" {
    fn clock_gettime(clock: i32, now: *mut TimeSpec) -> i32;
}
