//! Refusals to mount and the end of a mount, for the commands that show files.

use crate::exit::{Exit, Runtime, runtime};
use falkon_fuse::{MountError, Mounted};
use std::io;
use std::thread::JoinHandle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// The exit status where nothing can be mounted; `instead` says what else can be done.
pub(crate) fn refused(error: MountError, instead: &str) -> Exit {
    match error {
        MountError::Place { .. } | MountError::NoDirectory { .. } | MountError::Stale { .. } => {
            Exit::usage(error)
        }
        error => Exit::failure(format_args!("{error}; {instead}")),
    }
}

/// The signals that ask for an end. They are caught before anything is mounted: whoever sees
/// files may send one at once.
pub(crate) struct Signals {
    runtime: Runtime,
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub(crate) fn new() -> Result<Self, Exit> {
        let runtime = runtime()?;
        let catch = |kind| runtime.block_on(async { signal(kind) });
        let caught = || -> io::Result<[Signal; 3]> {
            Ok([
                catch(SignalKind::hangup())?,
                catch(SignalKind::interrupt())?,
                catch(SignalKind::terminate())?,
            ])
        };
        let [hangup, interrupt, terminate] = caught()
            .map_err(|error| Exit::failure(format_args!("cannot catch signals: {error}")))?;
        Ok(Self { runtime, hangup, interrupt, terminate })
    }
}

/// Waits until it is unmounted, or to be.
pub(crate) fn wait(
    mounted: Mounted,
    threads: Vec<JoinHandle<io::Result<()>>>,
    signals: Signals,
) -> Result<Exit, Exit> {
    let (sender, ended) = oneshot::channel();
    let joining = std::thread::Builder::new().name("mount".to_owned()).spawn(move || {
        let joined = threads.into_iter().map(|thread| match thread.join() {
            Ok(done) => done,
            Err(_) => Err(io::Error::other("a thread of the file system panicked")),
        });
        let all: Vec<io::Result<()>> = joined.collect();
        // Nobody waits any more if a signal has come.
        let _ = sender.send(all.into_iter().collect::<io::Result<()>>());
    });
    let Signals { runtime, mut hangup, mut interrupt, mut terminate } = signals;
    let unmounted = joining.map(|_| {
        runtime.block_on(async {
            tokio::select! {
                done = ended => Some(done),
                _ = hangup.recv() => None,
                _ = interrupt.recv() => None,
                _ = terminate.recv() => None,
            }
        })
    });
    let path = mounted.path().to_owned();
    let failed = |error: io::Error| {
        Exit::failure(format_args!("stopped showing files at {}: {error}", path.display()))
    };
    match unmounted {
        Ok(Some(Ok(Ok(())))) => {
            mounted.removed();
            Ok(Exit::Success)
        }
        Ok(None) => mounted.unmount().map(|()| Exit::Success).map_err(Exit::failure),
        other => {
            let _ = mounted.unmount();
            Err(failed(match other {
                Ok(Some(Ok(Err(error)))) | Err(error) => error,
                _ => io::Error::other("its threads have ended"),
            }))
        }
    }
}
