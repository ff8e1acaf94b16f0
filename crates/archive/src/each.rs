//! Work on many members by several threads.

use crate::limits::{SHARE_MEMBERS, THREADS_MAX};
use crate::read::{ReadError, Scratch};
use crate::set::Archive;
use falkon_core::archive::Member;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

type Share = Vec<(usize, Member)>;

/// Does `work` for each member that is meant, by so many threads: with what
/// reading takes, the number of its file among the archive's, and the member. In
/// memory are a few hundred members for each thread.
///
/// # Errors
/// If a directory cannot be read, or no thread can be started; what was read
/// before is worked on.
pub fn each(
    archive: &Archive,
    threads: usize,
    is_meant: impl Fn(usize, &Member) -> bool,
    work: impl Fn(&mut Scratch, usize, &Member) + Sync,
) -> Result<(), ReadError> {
    let threads = threads.clamp(1, THREADS_MAX);
    let (sender, receiver) = sync_channel::<Share>(threads);
    let receiver = Mutex::new(receiver);
    std::thread::scope(|scope| {
        for number in 0..threads {
            let thread = std::thread::Builder::new().name("unpack".to_owned());
            let started = thread.spawn_scoped(scope, || {
                let mut scratch = Scratch::default();
                while let Some(share) = next(&receiver) {
                    for (number, member) in share {
                        work(&mut scratch, number, &member);
                    }
                }
            });
            match started {
                Ok(_) => {}
                Err(error) if number == 0 => {
                    return Err(ReadError::Io { path: archive.path().to_owned(), error });
                }
                // Those that there are do it.
                Err(_) => break,
            }
        }
        let shared = share(archive, &is_meant, &sender);
        drop(sender);
        shared
    })
}

fn next(receiver: &Mutex<Receiver<Share>>) -> Option<Share> {
    receiver.lock().unwrap_or_else(std::sync::PoisonError::into_inner).recv().ok()
}

fn share(
    archive: &Archive,
    is_meant: &impl Fn(usize, &Member) -> bool,
    sender: &SyncSender<Share>,
) -> Result<(), ReadError> {
    let mut share = Share::new();
    // Threads that panicked take no more; the scope passes their panic on.
    let send = |share: Share| drop(sender.send(share));
    for (number, part) in archive.parts().iter().enumerate() {
        for member in part.members() {
            let member = match member {
                Ok(member) => member,
                Err(error) => {
                    send(share);
                    return Err(error);
                }
            };
            if is_meant(number, &member) {
                share.push((number, member));
            }
            if share.len() == SHARE_MEMBERS {
                send(std::mem::take(&mut share));
            }
        }
    }
    send(share);
    Ok(())
}
