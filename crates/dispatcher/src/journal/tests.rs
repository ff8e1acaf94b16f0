//! Tests with a sync that fails, which no file system does on demand.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use super::sync::Syncer;
use super::{CommitError, Journal, Options, Position, SnapshotError, SyncError};

/// Defines a sync that fails while its flag is set; one per test, as tests run side by side.
macro_rules! breakable_sync {
    ($flag:ident, $sync:ident) => {
        static $flag: AtomicBool = AtomicBool::new(false);
        fn $sync(file: &File) -> io::Result<()> {
            if $flag.load(Ordering::SeqCst) {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            file.sync_data()
        }
    };
}

fn listening() -> (Options, mpsc::Receiver<Result<Position, SyncError>>) {
    let (sender, receiver) = mpsc::channel();
    let on_sync = Box::new(move |outcome| {
        // The test may have stopped listening.
        let _gone = sender.send(outcome);
    });
    (Options { on_sync: Some(on_sync), ..Options::default() }, receiver)
}

#[test]
fn a_failed_sync_poisons_the_journal_for_good() {
    breakable_sync!(BROKEN, sync);
    let dir = tempfile::tempdir().unwrap();
    let (options, told) = listening();
    let (mut journal, _) = Journal::open_syncing(dir.path(), options, sync).unwrap();
    journal.append(&[b"synced"]).unwrap();
    let synced = journal.sync().unwrap();
    assert_eq!(told.recv().unwrap().unwrap(), synced);

    BROKEN.store(true, Ordering::SeqCst);
    journal.append(&[b"committed"]).unwrap();
    let committed = journal.commit().unwrap();
    let error = journal.sync_watch().wait(committed).unwrap_err();
    assert!(error.to_string().contains("takes no more records"), "{error}");
    assert!(matches!(told.recv().unwrap(), Err(SyncError::Failed { .. })));
    assert_eq!(journal.synced(), synced);

    BROKEN.store(false, Ordering::SeqCst);
    journal.append(&[b"refused"]).unwrap();
    assert!(matches!(journal.commit(), Err(CommitError::Poisoned(SyncError::Failed { .. }))));
    let refused = journal.begin_snapshot(0);
    assert!(matches!(refused, Err(SnapshotError::Commit(CommitError::Poisoned(_)))));
    drop(journal);
    assert!(told.recv().is_err(), "told once");

    let (_journal, mut replay) = Journal::open(dir.path(), Options::default()).unwrap();
    assert_eq!(replay.next_record().unwrap(), Some(&b"synced"[..]));
    assert_eq!(replay.next_record().unwrap(), Some(&b"committed"[..]));
    assert_eq!(replay.next_record().unwrap(), None);
}

#[test]
fn a_sync_that_fails_at_a_roll_over_is_told_too() {
    breakable_sync!(BROKEN, sync);
    let dir = tempfile::tempdir().unwrap();
    let (mut options, told) = listening();
    options.segment_bytes_max = 100;
    let (mut journal, _) = Journal::open_syncing(dir.path(), options, sync).unwrap();
    journal.append(&[&[1; 80]]).unwrap();
    journal.sync().unwrap();
    assert!(told.recv().unwrap().is_ok());
    BROKEN.store(true, Ordering::SeqCst);
    journal.append(&[&[2; 80]]).unwrap();
    assert!(matches!(journal.commit(), Err(CommitError::Poisoned(_))));
    assert!(told.recv().unwrap().is_err());
    BROKEN.store(false, Ordering::SeqCst);
    assert!(matches!(journal.commit(), Err(CommitError::Poisoned(_))));
}

#[test]
fn a_sync_that_succeeds_after_one_failed_counts_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path: Arc<std::path::Path> = dir.path().join("file").into();
    let file = Arc::new(File::create(&path).unwrap());
    let start = Position { segment: 1, offset: 0 };
    let syncer = Syncer::start(file, path.clone(), start, File::sync_data, None).unwrap();
    syncer.poison(SyncError::failed(&path, io::Error::from_raw_os_error(libc::EIO)));
    assert!(matches!(syncer.sync_now(), Err(SyncError::Failed { .. })));
    assert!(matches!(syncer.check(), Err(SyncError::Failed { .. })));
    assert_eq!(syncer.watch().synced(), start);
}
