//! Files of events against a list of the events that were written.
#![allow(clippy::unwrap_used, reason = "a test may fail at once")]

use super::files::{EventFiles, FILE_HEAD, listed, path_of};
use super::{Blocks, EventReader, Position};
use falkon_core::events::{Event, What};
use falkon_core::task::Time;
use falkon_wire::events::BlockWriter;
use proptest::prelude::*;
use std::path::Path;

/// Writes a block that says so many numbers, and nothing else.
fn write(files: &mut EventFiles, numbers: &[u64]) {
    let mut block = BlockWriter::default();
    for number in numbers {
        block.push(&Event { at: Time(*number), what: What::Missing { events: *number } });
    }
    let span = (Time(numbers[0]), Time(numbers[numbers.len() - 1]));
    files.write(&block, span, false).unwrap();
}

/// The numbers that a reader finds from where it is.
fn read(reader: &mut EventReader) -> Vec<u64> {
    let mut found = Vec::new();
    while let Some(block) = reader.next_block().unwrap() {
        let is_whole = block.each(|event| match event.what {
            What::Missing { events } => found.push(events),
            other => panic!("{other:?}"),
        });
        assert!(is_whole);
    }
    found
}

fn reader(dir: &Path) -> EventReader {
    EventReader::open(dir.to_owned(), None)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn a_follower_reads_all_and_a_late_reader_what_is_kept(
        blocks in prop::collection::vec((1..40usize, any::<bool>(), any::<bool>()), 1..60)
    ) {
        let dir = tempfile::tempdir().unwrap();
        let bytes_max = 4000;
        let mut files = EventFiles::open(dir.path(), bytes_max).unwrap();
        let (mut written, mut follower, mut followed) = (Vec::new(), reader(dir.path()), vec![]);
        let mut asked = (Vec::new(), None);
        for (count, restarts, looks) in blocks {
            let next = written.len() as u64;
            let numbers: Vec<u64> = (next..next + count as u64).collect();
            write(&mut files, &numbers);
            written.extend(numbers);
            followed.extend(read(&mut follower));
            if looks {
                let blocks = Blocks::read(dir.path(), asked.1);
                for block in blocks.iter() {
                    block.each(|event| asked.0.push(event.at.0));
                }
                asked.1 = Some(blocks.next);
            }
            if restarts {
                files = EventFiles::open(dir.path(), bytes_max).unwrap();
            }
        }
        prop_assert_eq!(&followed, &written);
        // One that looks now and then may miss what was removed, and nothing else.
        prop_assert!(asked.0.is_sorted() && asked.0.iter().all(|at| written.contains(at)));
        let late = read(&mut reader(dir.path()));
        prop_assert!(written.ends_with(&late) && !late.is_empty());
        let kept: u64 = listed(dir.path()).unwrap().values().sum();
        prop_assert!(kept <= bytes_max + 2000, "{} bytes are kept", kept);
    }
}

/// Whatever a machine that fails leaves of a file, what is whole is read, and the next file
/// too.
#[test]
fn a_torn_or_damaged_file_is_read_as_far_as_it_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let mut files = EventFiles::open(dir.path(), u64::MAX).unwrap();
    let mut ends = vec![FILE_HEAD.len()];
    for number in 0..4 {
        write(&mut files, &[number]);
        ends.push(listed(dir.path()).unwrap()[&1] as usize);
    }
    let whole = std::fs::read(path_of(dir.path(), 1)).unwrap();
    let mut files = EventFiles::open(dir.path(), u64::MAX).unwrap();
    write(&mut files, &[9]);
    let blocks_within = |length: usize| ends.iter().filter(|end| **end <= length).count() as u64;
    for length in 0..=whole.len() {
        std::fs::write(path_of(dir.path(), 1), &whole[..length]).unwrap();
        let mut expected: Vec<u64> = (0..blocks_within(length).saturating_sub(1)).collect();
        expected.push(9);
        assert_eq!(read(&mut reader(dir.path())), expected, "cut at {length}");
    }
    for at in FILE_HEAD.len()..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x40;
        std::fs::write(path_of(dir.path(), 1), &damaged).unwrap();
        let mut expected: Vec<u64> = (0..blocks_within(at).saturating_sub(1)).collect();
        expected.push(9);
        assert_eq!(read(&mut reader(dir.path())), expected, "damaged at {at}");
    }
    let nowhere = Some(Position { file: 7, offset: 3 });
    assert!(Blocks::read(dir.path(), nowhere).bytes.is_empty());
}
