//! Files of pages: what was written comes back, or is reported; what nobody
//! needs goes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use falkon_core::dispatch::{Event, Page, PagePlace};
use falkon_core::result::{Captured, Detail, Finished, Outcome};
use falkon_core::task::{ExecutorId, InstanceId, TaskId, Time};
use falkon_dispatcher::pages::{PageError, PageFiles, Pages, load};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const INSTANCE: InstanceId = InstanceId(3);

fn page(first: u64, bytes: usize) -> Page {
    let stdout = Captured {
        head: vec![first as u8; bytes],
        total_bytes: bytes as u64,
        ..Captured::default()
    };
    let result = Finished {
        first: TaskId(first),
        count: 1,
        outcome: Outcome::Exit(0),
        executor: Some(ExecutorId(2)),
        attempts: 1,
        queued: Time(1),
        dispatched: Time(2),
        started: Time(3),
        ended: Time(4),
        detail: Some(Arc::new(Detail { stdout, ..Detail::default() })),
    };
    Page { results: vec![result], executors: vec![(ExecutorId(2), "node:2".to_owned())] }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.collect();
    files.sort();
    files
}

fn store(files: &mut PageFiles, count: u64, bytes: usize) -> Vec<PagePlace> {
    (0..count).map(|first| files.store(INSTANCE, first, &page(first, bytes)).unwrap()).collect()
}

#[test]
fn pages_come_back_from_another_process() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = PageFiles::open(dir.path()).unwrap();
    let places = store(&mut files, 20, 1000);
    files.written().sync().unwrap();
    drop(files);
    let mut files = PageFiles::open(dir.path()).unwrap();
    files.keep(places.iter().copied()).unwrap();
    // New pages never go behind old ones, whose end may be torn.
    let more = store(&mut files, 20, 1000);
    for (first, place) in (0..).zip(places) {
        assert!(more.iter().all(|other| other.file != place.file));
        assert_eq!(load(dir.path(), INSTANCE, first, place).unwrap(), page(first, 1000));
    }
}

#[test]
fn whatever_is_damaged_is_reported_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let mut stored = PageFiles::open(dir.path()).unwrap();
    let places = store(&mut stored, 3, 300);
    let path = files(dir.path()).remove(0);
    let whole = std::fs::read(&path).unwrap();
    let judge = |damaged: &dyn Fn(PagePlace) -> bool| {
        for (first, place) in (0..).zip(&places) {
            let found = load(dir.path(), INSTANCE, first, *place);
            match damaged(*place) {
                true => assert!(matches!(found, Err(PageError::Damaged { .. })), "{found:?}"),
                false => assert_eq!(found.unwrap(), page(first, 300)),
            }
        }
    };
    judge(&|_| false);
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        std::fs::write(&path, &bytes).unwrap();
        let at = at as u64;
        judge(&|place| (place.offset..place.offset + place.bytes).contains(&at));
    }
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        judge(&|place| place.offset + place.bytes > length as u64);
    }
    std::fs::remove_file(&path).unwrap();
    for (first, place) in (0..).zip(&places) {
        let error = load(dir.path(), INSTANCE, first, *place).unwrap_err();
        assert!(matches!(error, PageError::Io { .. }), "{error}");
    }
}

#[test]
fn a_page_of_others_is_not_taken_for_ones_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = PageFiles::open(dir.path()).unwrap();
    let place = store(&mut files, 1, 300)[0];
    assert!(load(dir.path(), InstanceId(4), 0, place).is_err());
    assert!(load(dir.path(), INSTANCE, 1, place).is_err());
    let wrong = [
        PagePlace { offset: 1, ..place },
        PagePlace { bytes: place.bytes - 1, ..place },
        PagePlace { bytes: 0, ..place },
        PagePlace { bytes: u64::MAX, ..place },
        PagePlace { offset: u64::MAX, ..place },
    ];
    for wrong in wrong {
        assert!(load(dir.path(), INSTANCE, 0, wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn a_file_goes_when_none_of_its_pages_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let mut stored = PageFiles::open(dir.path()).unwrap();
    let places = store(&mut stored, 9, 20 << 20);
    let count = files(dir.path()).len();
    assert!(count > 1, "a file has no end");
    stored.forget(&places);
    let left = files(dir.path()).len();
    assert!(left <= 1, "{left} files are left of {count}");
    // What a process that was killed leaves goes with the next.
    let places = store(&mut stored, 9, 20 << 20);
    drop(stored);
    let mut stored = PageFiles::open(dir.path()).unwrap();
    stored.keep(places[..1].iter().copied()).unwrap();
    assert_eq!(files(dir.path()).len(), 1);
    assert_eq!(load(dir.path(), INSTANCE, 0, places[0]).unwrap(), page(0, 20 << 20));
}

#[test]
fn pages_written_after_all_before_them_were_given_up_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let mut stored = PageFiles::open(dir.path()).unwrap();
    store(&mut stored, 3, 1000);
    // So it is when a journal is read: its results are moved to disk, and then
    // it says that they were acknowledged.
    stored.keep(std::iter::empty()).unwrap();
    assert_eq!(files(dir.path()).len(), 0);
    for (first, place) in (0..).zip(store(&mut stored, 3, 1000)) {
        assert_eq!(load(dir.path(), INSTANCE, first, place).unwrap(), page(first, 1000));
    }
}

#[test]
fn a_directory_has_one_owner() {
    let dir = tempfile::tempdir().unwrap();
    let _files = PageFiles::open(dir.path()).unwrap();
    let error = PageFiles::open(dir.path()).unwrap_err();
    assert!(matches!(error, PageError::Locked { .. }), "{error}");
}

#[test]
fn a_file_stays_as_long_as_one_of_its_pages_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let mut stored = PageFiles::open(dir.path()).unwrap();
    let places = store(&mut stored, 30, 5 << 20);
    let old = places[0].file;
    let (first, others): (Vec<_>, Vec<_>) =
        places.into_iter().filter(|place| place.file == old).partition(|place| place.offset > 0);
    assert!(!first.is_empty() && others.len() == 1);
    stored.forget(&first);
    assert_eq!(load(dir.path(), INSTANCE, 0, others[0]).unwrap(), page(0, 5 << 20));
    stored.forget(&others);
    assert!(matches!(load(dir.path(), INSTANCE, 0, others[0]), Err(PageError::Io { .. })));
}

#[test]
fn pages_leave_room_on_the_disk_for_the_journal() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = PageFiles::open(dir.path()).unwrap();
    files.written().leave(u64::MAX / 2);
    let refused = files.store(INSTANCE, 0, &page(0, 1000));
    assert!(
        matches!(refused, Err(PageError::NoRoom { leave_bytes, .. }) if leave_bytes == u64::MAX / 2)
    );
    files.written().leave(0);
    assert!(files.store(INSTANCE, 0, &page(0, 1000)).is_ok());
}

/// What the threads of [`Pages`] answer.
fn answer(pages: &mut Pages) -> Event {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(pages.hear())
}

#[test]
fn threads_write_read_and_remove_pages() {
    let dir = tempfile::tempdir().unwrap();
    let mut pages = Pages::start(PageFiles::open(dir.path()).unwrap(), Arc::new(|_: &str| {}));
    let mut store = |first| {
        pages.store(INSTANCE, first, page(first, 40 << 20));
        match answer(&mut pages) {
            Event::PageStored { instance: INSTANCE, from, place: Some(place) } if from == first => {
                place
            }
            other => panic!("{other:?}"),
        }
    };
    let places = [store(0), store(1), store(2)];
    pages.load(INSTANCE, 1, places[1]);
    match answer(&mut pages) {
        Event::PageLoaded { instance: INSTANCE, from: 1, page: Ok(found) } => {
            assert_eq!(found, page(1, 40 << 20));
        }
        other => panic!("{other:?}"),
    }
    let before = files(dir.path()).len();
    pages.forget(places[..2].to_vec());
    // What is asked for later is done later.
    pages.store(INSTANCE, 3, page(3, 10));
    assert!(matches!(answer(&mut pages), Event::PageStored { from: 3, .. }));
    assert!(files(dir.path()).len() < before, "{before} files before");
    pages.load(INSTANCE, 0, places[0]);
    assert!(matches!(answer(&mut pages), Event::PageLoaded { from: 0, page: Err(_), .. }));
}
