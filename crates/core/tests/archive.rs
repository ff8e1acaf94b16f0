//! Archives in memory: what a writer appends, a reader finds; a file that is cut
//! off or damaged never makes a reader panic, loop, or ask for what is not there.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use falkon_core::archive::{
    Candidate, FileBounds, FileBuilder, FormatError, Layout, Member, Method, Opening, Search,
    Started, central, local, next_candidate,
};
use proptest::prelude::*;

/// The CRC-32 of ZIP files, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc));
    !bytes.iter().fold(!0, byte)
}

/// A whole file with these members, stored.
fn file_of(members: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let (mut builder, mut file) = (FileBuilder::new(), Vec::new());
    for (name, data) in members {
        let mut member = Member::new(name.clone(), 1_700_000_001, 0o640);
        let size = data.len() as u64;
        (member.crc, member.size, member.packed) = (crc32(data), size, size);
        let started = Started::new(name, size);
        assert!(builder.has_room(FileBounds::default(), name, size));
        started.encode(&member, &mut file);
        file.extend_from_slice(data);
        builder.add(&member, started);
        assert_eq!(builder.offset(), file.len() as u64);
    }
    file.extend(builder.finish(crc32).concat());
    file
}

fn open(file: &[u8]) -> Result<Layout, FormatError> {
    let mut opening = Opening::new(file.len() as u64);
    let mut reads = 0;
    while let Some(want) = opening.want() {
        opening.give(&file[want.offset as usize..][..want.bytes], crc32)?;
        reads += 1;
        assert!(reads <= 4, "opening a file takes four reads at most");
    }
    Ok(opening.layout().unwrap())
}

/// The members of a file, in the order of its directory.
fn members_of(file: &[u8], layout: &Layout) -> Result<Vec<(u64, Member)>, FormatError> {
    let directory = &file[layout.directory as usize..][..layout.directory_bytes as usize];
    let (mut at, mut found) = (0, Vec::new());
    while at < directory.len() {
        let offset = layout.directory + at as u64;
        let what = "a record";
        let (member, bytes) = central(&directory[at..], offset, layout.base)?
            .ok_or(FormatError::CutOff { offset, what })?;
        found.push((at as u64, member));
        at += bytes;
    }
    Ok(found)
}

fn data_of<'a>(file: &'a [u8], member: &Member) -> Option<&'a [u8]> {
    let rest = file.get(usize::try_from(member.header).ok()?..)?;
    let header = local(rest, member.header).ok()??;
    rest[header.bytes..].get(..usize::try_from(member.packed).ok()?)
}

/// The records that the lookup table has for a name.
fn lookup(file: &[u8], layout: &Layout, name: &[u8]) -> Option<Vec<u64>> {
    let mut search = Search::new(layout.lookup?, name);
    let mut reads = 0;
    while let Some(want) = search.want() {
        let bytes = file.get(want.offset as usize..)?.get(..want.bytes)?;
        search.give(bytes);
        reads += 1;
        assert!(reads as u64 <= layout.members / 64 + 4, "a search ends");
    }
    search.records()
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[a-c]{0,2}".prop_map(String::into_bytes),
        "[a-z0-9/.]{1,30}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..40),
        "\\PC{1,10}".prop_map(String::into_bytes),
    ]
}

fn members() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>)>> {
    prop::collection::vec((name(), prop::collection::vec(any::<u8>(), 0..60)), 0..60)
}

proptest! {
    #[test]
    fn a_reader_finds_what_a_writer_wrote(members in members(), before in 0_usize..100) {
        let mut file = vec![b'#'; before];
        file.extend(file_of(&members));
        let layout = open(&file).unwrap();
        prop_assert_eq!(layout.members, members.len() as u64);
        prop_assert_eq!(layout.base, before as u64);
        let entries = layout.lookup.map(|found| found.members().unwrap());
        prop_assert_eq!(entries, (layout.members > 0).then_some(layout.members));
        let found = members_of(&file, &layout).unwrap();
        prop_assert_eq!(found.len(), members.len());
        for ((record, member), (name, data)) in found.iter().zip(&members) {
            prop_assert_eq!(&member.name, name);
            prop_assert_eq!(member.modified, 1_700_000_001);
            prop_assert_eq!(member.permissions(), 0o640);
            prop_assert_eq!(data_of(&file, member), Some(&data[..]));
            let same: Vec<u64> = found.iter().rev().filter(|(_, other)| other.name == *name)
                .map(|(record, _)| *record).collect();
            prop_assert!(same.contains(record));
            prop_assert_eq!(lookup(&file, &layout, name), Some(same));
        }
        let none = (layout.members > 0).then(Vec::new);
        prop_assert_eq!(lookup(&file, &layout, b"no such name, surely"), none);
    }

    #[test]
    fn a_damaged_file_is_refused_or_read_as_far_as_it_goes(
        members in members(),
        cut in any::<prop::sample::Index>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0_u8..8), 0..6),
        in_ends in any::<bool>(),
    ) {
        let mut file = file_of(&members);
        if cut.index(3) == 0 {
            file.truncate(cut.index(file.len() + 1));
        }
        let ends = if in_ends { file.len().min(162) } else { file.len() };
        if ends > 0 {
            for (at, bit) in &flips {
                let at = file.len() - 1 - at.index(ends);
                file[at] ^= 1 << bit;
            }
        }
        if let Ok(layout) = open(&file) {
            prop_assert!(layout.directory + layout.directory_bytes <= file.len() as u64);
            for (name, _) in &members {
                lookup(&file, &layout, name);
            }
            for (_, member) in members_of(&file, &layout).unwrap_or_default() {
                data_of(&file, &member);
            }
        }
        scan(&file);
    }

    #[test]
    fn a_file_that_is_cut_off_has_its_whole_members(members in members(), cut in any::<prop::sample::Index>()) {
        let whole = file_of(&members);
        let cut = cut.index(whole.len() + 1);
        let found = scan(&whole[..cut]);
        let mut end = 0;
        let mut expected = Vec::new();
        for (name, data) in &members {
            end += Started::new(name, data.len() as u64).bytes() + data.len();
            if end <= cut {
                expected.push((name.clone(), data.clone()));
            }
        }
        prop_assert_eq!(found, expected);
    }
}

/// The members that a scan finds, whose data are whole.
fn scan(file: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let (mut at, mut found) = (0, Vec::new());
    while at < file.len() {
        match next_candidate(&file[at..], at as u64, true) {
            Candidate::None { pass } => {
                assert!(pass > 0, "a scan goes on");
                at += pass;
            }
            Candidate::Header { at: within, header } => {
                let start = at + within + header.bytes;
                let end = usize::try_from(header.member.packed)
                    .ok()
                    .and_then(|packed| start.checked_add(packed));
                let data = end.and_then(|end| file.get(start..end));
                match data.filter(|data| crc32(data) == header.member.crc) {
                    Some(data) => {
                        at = start + data.len();
                        found.push((header.member.name, data.to_vec()));
                    }
                    None => at += within + 4,
                }
            }
        }
    }
    found
}

#[test]
fn a_scan_in_pieces_loses_nothing_at_their_ends() {
    let members: Vec<(Vec<u8>, Vec<u8>)> =
        (0..40_u8).map(|at| (vec![b'a' + at % 26; usize::from(at)], vec![at; 3])).collect();
    let file = file_of(&members);
    for piece in [100, 131, 4096] {
        let (mut at, mut found) = (0, 0);
        while at < file.len() {
            let end = file.len().min(at + piece);
            match next_candidate(&file[at..end], at as u64, end == file.len()) {
                Candidate::None { pass } => at += pass,
                Candidate::Header { at: within, header } => {
                    found += 1;
                    at += within + header.bytes + header.member.packed as usize;
                }
            }
        }
        assert_eq!(found, members.len(), "pieces of {piece} bytes");
    }
}

#[test]
fn sizes_and_offsets_beyond_four_gib_survive() {
    let mut builder = FileBuilder::new();
    let sizes = [100 << 30, u64::from(u32::MAX), 0xffff_fffe, 7];
    for (at, size) in sizes.into_iter().enumerate() {
        let mut member = Member::new(format!("{at}"), 0, 0o600);
        (member.size, member.packed) = (size, size);
        let started = Started::new(&member.name, size);
        let mut header = Vec::new();
        started.encode(&member, &mut header);
        assert_eq!(header.len(), started.bytes());
        let read = local(&header, 0).unwrap().unwrap();
        assert_eq!((read.member.size, read.member.packed), (size, size));
        assert_eq!(read.bytes, header.len());
        builder.add(&member, started);
    }
    let start = builder.offset();
    let ends = builder.finish(crc32).concat();
    // A file with a hole in the place of the data.
    let mut opening = Opening::new(start + ends.len() as u64);
    while let Some(want) = opening.want() {
        let bytes: Vec<u8> = (want.offset..want.offset + want.bytes as u64)
            .map(|at| at.checked_sub(start).map_or(0, |at| ends[at as usize]))
            .collect();
        opening.give(&bytes, crc32).unwrap();
    }
    let layout = opening.layout().unwrap();
    let mut at = (layout.directory - start) as usize;
    let mut header = 0;
    for size in sizes {
        let (member, bytes) = central(&ends[at..], 0, layout.base).unwrap().unwrap();
        assert_eq!((member.size, member.packed, member.header), (size, size, header));
        header += Started::new(&member.name, size).bytes() as u64 + size;
        at += bytes;
    }
}

#[test]
fn a_table_of_many_members_is_searched_with_two_reads() {
    let mut builder = FileBuilder::new();
    for at in 0..300_000_u32 {
        let member = Member::new(format!("{at}/energy.dat"), 0, 0o600);
        builder.add(&member, Started::new(&member.name, 0));
    }
    let start = builder.offset();
    let ends = builder.finish(crc32).concat();
    // The headers are not read.
    let file = [vec![0; start as usize], ends].concat();
    let layout = open(&file).unwrap();
    for at in (0..300_000_u32).step_by(997) {
        let name = format!("{at}/energy.dat");
        let mut search = Search::new(layout.lookup.unwrap(), name.as_bytes());
        let mut reads = 0;
        while let Some(want) = search.want() {
            search.give(&file[want.offset as usize..][..want.bytes]);
            reads += 1;
        }
        assert!(reads <= 2, "{name}: {reads}");
        let [record] = search.records().unwrap()[..] else { panic!("{name}") };
        let record = &file[(layout.directory + record) as usize..];
        assert_eq!(central(record, 0, 0).unwrap().unwrap().0.name, name.as_bytes());
    }
}

#[test]
fn one_name_that_thousands_of_members_have_is_left_to_the_directory() {
    let mut builder = FileBuilder::new();
    for at in 0..9_000_u32 {
        let name = if at % 2 == 0 { "same".to_owned() } else { at.to_string() };
        let member = Member::new(name, 0, 0o600);
        builder.add(&member, Started::new(&member.name, 0));
    }
    let file = [vec![0; builder.offset() as usize], builder.finish(crc32).concat()].concat();
    let layout = open(&file).unwrap();
    assert_eq!(lookup(&file, &layout, b"same"), None);
    assert_eq!(lookup(&file, &layout, b"7").unwrap().len(), 1);
}

#[test]
fn methods_of_other_tools_keep_their_numbers() {
    for number in [0, 8, 9, 12, 14, 93, 99] {
        assert_eq!(Method::numbered(number).number(), number);
    }
}

#[test]
fn a_file_of_a_set_ends_at_its_bounds() {
    let mut builder = FileBuilder::new();
    let bounds = FileBounds { members: 3, bytes: 2_000 };
    // An empty file takes anything.
    assert!(builder.has_room(bounds, b"large", 1 << 50));
    let mut member = Member::new("a", 0, 0o600);
    (member.size, member.packed) = (500, 500);
    builder.add(&member, Started::new(&member.name, 500));
    assert!(builder.has_room(bounds, b"a", 500));
    assert!(!builder.has_room(bounds, b"a", 1_400));
    builder.add(&member, Started::new(&member.name, 500));
    builder.add(&member, Started::new(&member.name, 10));
    assert!(!builder.has_room(bounds, b"a", 0));
}
