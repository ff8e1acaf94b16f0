//! Members of archives: found by the archive's lookup table or directory, read by range,
//! inflated and checked. No other part of the archive is read.

mod list;
mod remote;
mod set;

use std::path::Path;
use std::sync::Arc;

use falkon_archive::{ReadError, Scratch};

use crate::object::Landing;

use super::copy::Steps;
use super::{Fetched, Resolved, StoreError, StoreUrl, Stores, Want, posix};
use set::Set;

pub use list::Members;

/// Asks for a member's size and version.
pub(super) async fn resolve(
    stores: &Stores,
    archive: &StoreUrl,
    name: &str,
) -> Result<Resolved, StoreError> {
    let member = name.to_owned();
    with_set(stores, archive, name, move |set, _| Ok(set.find(&member)?.resolved)).await
}

/// Lists all members of an archive.
pub(super) async fn list(stores: &Stores, archive: &StoreUrl) -> Result<Members, StoreError> {
    let work = |set: &Set, steps: &Steps| Members::of(set, steps);
    match archive {
        StoreUrl::Posix(path) => on_disk(stores, path, work).await,
        _ => remote::with_set(stores, archive, work).await,
    }
}

/// Copies a member, or a range of it. All of it is read and checked in any case.
pub(super) async fn fetch(
    stores: &Stores,
    (archive, name): (&StoreUrl, &str),
    want: &Want,
    target: &Arc<Landing>,
) -> Result<Fetched, StoreError> {
    let (member, want, target) = (name.to_owned(), want.clone(), Arc::clone(target));
    let url = format!("{archive}!{name}");
    let copy = move |set: &Set, steps: &Steps| copy_out(set, &url, &member, &want, &target, steps);
    with_set(stores, archive, name, copy).await
}

/// Opens an archive and does `work` with it, in a thread that may block.
async fn with_set<T: Send + 'static>(
    stores: &Stores,
    archive: &StoreUrl,
    name: &str,
    work: impl FnOnce(&Set, &Steps) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let done = match archive {
        StoreUrl::Posix(path) => on_disk(stores, path, work).await,
        _ => remote::with_set(stores, archive, work).await,
    };
    done.map_err(|error| of_member(name, error))
}

/// The same, with an archive on disk.
async fn on_disk<T: Send + 'static>(
    stores: &Stores,
    path: &Path,
    work: impl FnOnce(&Set, &Steps) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let archive = path.to_owned();
    let work = move |steps: &Steps| work(&Set::on_disk(&archive)?, steps);
    posix::aside(path, Some(stores.file_limit), work).await
}

/// Names the member in an error of the archive that does not.
fn of_member(name: &str, error: StoreError) -> StoreError {
    let marked = format!("!{name}");
    let names_it = match &error {
        StoreError::Archive(ReadError::NoMember { .. } | ReadError::Member { .. }) => true,
        StoreError::NotThere { url } | StoreError::NotAllowed { url, .. } => url.ends_with(&marked),
        StoreError::Changed { url, .. }
        | StoreError::Refused { url, .. }
        | StoreError::Unreachable { url, .. }
        | StoreError::DiskFull { url, .. }
        | StoreError::Local { url, .. } => url.ends_with(&marked),
        _ => false,
    };
    match names_it {
        true => error,
        false => StoreError::Member { member: name.to_owned(), error: Box::new(error) },
    }
}

fn copy_out(
    set: &Set,
    url: &str,
    name: &str,
    want: &Want,
    target: &Landing,
    steps: &Steps,
) -> Result<Fetched, StoreError> {
    let found = set.find(name)?;
    want.check(url, &found.resolved)?;
    let whole = found.member.size;
    target.sized(whole);
    let range = want.within(whole).ok_or_else(|| want.beyond(url, whole))?;
    let mut at = 0;
    let mut is_stopped = false;
    // The last piece is written when all is known to be right: so an object that is damaged is
    // never whole, whoever takes it over while it arrives.
    let mut last = Vec::new();
    let mut take = |bytes: &[u8]| {
        if !steps.go_on() {
            is_stopped = true;
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        let from = range.start.clamp(at, at + bytes.len() as u64) - at;
        let to = range.end.clamp(at, at + bytes.len() as u64) - at;
        at += bytes.len() as u64;
        if from < to {
            if !last.is_empty() {
                target.write(&last)?;
            }
            last.clear();
            last.extend_from_slice(&bytes[from as usize..to as usize]);
        }
        Ok(())
    };
    let read = Scratch::default().read(found.part, &found.member, &mut take);
    let done = match read {
        Ok(()) if last.is_empty() => Ok(()),
        Ok(()) => target.write(&last).map_err(|error| StoreError::local(url.to_owned(), error)),
        Err(_) if is_stopped => Err(posix::given_up(Path::new(url))),
        Err(ReadError::Taken { error, .. }) => Err(StoreError::local(url.to_owned(), error)),
        Err(error) => Err(set.changed(found.number, url).unwrap_or_else(|| set::failed(error))),
    };
    match done {
        Ok(()) => Ok(Fetched { bytes: range.end - range.start, version: found.resolved.version }),
        Err(error) => {
            // A part of a member proves nothing.
            target.discard();
            Err(error)
        }
    }
}
