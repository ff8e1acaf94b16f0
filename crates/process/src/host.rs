//! The process host: takes launches from the executor, runs each in a slot, sends back the ends.
//!
//! The host's threads are slots, which run the tasks, and the first one, the janitor, which waits
//! for the executor to go away and ends what tasks leave behind. Slots without a task read the
//! executor's records ([`Inbox`]); before the last one of them takes a task, it makes another, so
//! that kills are read whatever runs. A slot's thread lives as long as the host, as the kernel
//! kills a task when the thread that started it ends. The janitor starts no tasks, and processes
//! that tasks leave behind become children of the first thread, so it can wait for its own children
//! without taking the end of a task away from a slot.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use super::copy::{Copies, Given, Templates};
use super::environment::Inherited;
use super::groups::{self, Groups};
use super::inbox::Inbox;
use super::orphans::{Janitor, session};
use super::outbox::Outbox;
use super::pool::{Parts, Pool, Seat};
use super::slot::Slot;
use super::{START_MS_MAX, host_protocol};

/// How often the janitor looks whether tasks have left something behind.
const JANITOR_PERIOD_MS: u64 = 1_000;

/// Slots that there are from the start: one that runs a task, and one that reads meanwhile.
const FIRST_SLOTS: usize = 2;

/// Stack of each slot, which holds its buffers on the heap.
const THREAD_STACK_BYTES: usize = 256 << 10;

/// The process host's `main`: to be called, before anything else is done, by a program whose
/// first argument is [`HOST_ARGUMENT`](super::HOST_ARGUMENT). Returns when the executor has gone
/// and nothing of any task is left.
pub fn host_main() -> ExitCode {
    // A panic in one thread would leave its task without a result for ever; without a host, the
    // executor at least knows.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
    let Some(instance) = std::env::args_os().nth(2) else {
        eprintln!("falkon: the task host is started by falkon itself");
        return ExitCode::from(2);
    };
    let limit = std::env::args().nth(3).and_then(|text| text.parse().ok());
    let given = std::env::args().nth(4).and_then(|text| Given::read(&text));
    match serve(&instance, Duration::from_millis(limit.unwrap_or(START_MS_MAX)), given) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("falkon: the task host failed: {error}");
            ExitCode::from(3)
        }
    }
}

fn serve(instance: &OsStr, start_limit: Duration, given: Option<Given>) -> io::Result<()> {
    reset_signals()?;
    // Away from the terminal, whose signals are for the executor to act upon. One that has a
    // template already leads a session.
    let own = rustix::process::getpid();
    if session(own) != Some(own) {
        rustix::process::setsid()?;
    }
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    rustix::thread::set_name(c"falkon-host")?;
    let launches = take_socket(0, &File::open("/dev/null")?)?;
    let ends = take_socket(1, &File::options().write(true).open("/dev/null")?)?;
    let copies = Copies::expecting(given.as_ref().map(|given| given.pid));
    let pool = Arc::new(Pool::new(Parts {
        templates: Templates::new(given),
        inbox: Inbox::new(launches)?,
        outbox: Outbox::new(ends),
        inherited: Inherited::read(instance),
        open_files: raise_open_files(),
        pid: rustix::process::getpid().as_raw_nonzero().get(),
        copies,
        groups: Groups::new(instance),
        start_slot,
    }));
    pool.add_slots(FIRST_SLOTS)?;
    pool.outbox.send(host_protocol::put_ready);

    let mut janitor = Janitor::new();
    while !pool.wait_closed(Duration::from_millis(JANITOR_PERIOD_MS)) {
        janitor.look(&pool);
        pool.shortages.look();
        pool.watch_starts(start_limit, Duration::from_millis(JANITOR_PERIOD_MS));
        // A slot that holds ends back may hang, as what it is about to execute does.
        pool.outbox.flush();
    }
    janitor.kill_all(&pool);
    groups::clear(&instance.to_string_lossy());
    Ok(())
}

/// Starts the thread of a slot, which keeps the pipes for a task's output ready if it `is_ready`.
fn start_slot(pool: Arc<Pool>, seat: Arc<Seat>, is_ready: bool) -> io::Result<()> {
    let slot = Slot::new(pool, seat, is_ready)?;
    std::thread::Builder::new().stack_size(THREAD_STACK_BYTES).spawn(move || slot.run())?;
    Ok(())
}

/// Blocks all signals for all threads to come, and undoes what was inherited: tasks start with
/// the dispositions of the host.
fn reset_signals() -> io::Result<()> {
    // SAFETY: Plain values are passed to system calls; no other thread exists yet. Signals
    // without a changeable disposition give an error that changes nothing.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        let error = libc::pthread_sigmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        for signal in 1..=libc::SIGRTMAX() {
            libc::signal(signal, libc::SIG_DFL);
        }
    }
    Ok(())
}

/// Takes a socket from where it was inherited and puts `null` there, for tasks to inherit.
fn take_socket(from: i32, null: &File) -> io::Result<UnixStream> {
    // SAFETY: The executor has put sockets at standard input and output, which nothing in the host
    // closes or uses otherwise.
    let inherited = unsafe { BorrowedFd::borrow_raw(from) };
    let socket = rustix::io::fcntl_dupfd_cloexec(inherited, 3)?;
    // SAFETY: Replaces one open descriptor, which has no owner, by another.
    if unsafe { libc::dup2(null.as_raw_fd(), from) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(UnixStream::from(socket))
}

/// Raises the limit on open files as far as allowed; returns the former one if that changed it.
fn raise_open_files() -> Option<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the result, and a valid argument after it.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) != 0 || limit.rlim_cur >= limit.rlim_max
        {
            return None;
        }
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, ..limit };
        (libc::setrlimit(libc::RLIMIT_NOFILE, &raised) == 0).then_some(limit)
    }
}
