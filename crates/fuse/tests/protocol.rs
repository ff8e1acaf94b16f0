//! What the kernel asks, and what it may never ask: no request makes a file system fail, and
//! every entry of a directory is listed once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use falkon_fuse::{Answer, Attributes, Entry, Files, ROOT, Session, Totals, Unreadable};
use proptest::prelude::*;

const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const INIT: u32 = 26;
const READDIR: u32 = 28;
const READDIRPLUS: u32 = 44;
const NO_OPEN: u32 = 1 << 17;

/// A directory of so many files, each of which has the data that its number is.
struct Numbers(u64);

impl Numbers {
    fn file(&self, number: u64) -> Attributes {
        let (bytes, modified) = (number.to_string().len() as u64, number);
        Attributes { node: number + 2, is_directory: false, bytes, modified, permissions: 0o644 }
    }
}

impl Files for Numbers {
    fn attributes(&self, node: u64) -> Option<Attributes> {
        let root =
            Attributes { node, is_directory: true, bytes: 0, modified: 0, permissions: 0o755 };
        match node.checked_sub(2) {
            None => (node == ROOT).then_some(root),
            Some(number) => (number < self.0).then(|| self.file(number)),
        }
    }

    fn child(&self, directory: u64, name: &[u8]) -> Option<Attributes> {
        let number = std::str::from_utf8(name).ok()?.parse().ok()?;
        (directory == ROOT && number < self.0).then(|| self.file(number))
    }

    fn parent(&self, _: u64) -> u64 {
        ROOT
    }

    fn list(&self, directory: u64, after: Option<u64>, take: &mut dyn FnMut(Entry<'_>) -> bool) {
        let first = after.map_or(0, |node| node.saturating_sub(1));
        for number in (first..self.0).filter(|_| directory == ROOT) {
            let name = number.to_string();
            if !take(Entry { name: name.as_bytes(), attributes: self.file(number) }) {
                return;
            }
        }
    }

    fn read(
        &self,
        node: u64,
        offset: u64,
        bytes: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Unreadable> {
        let data = node.checked_sub(2).filter(|number| *number < self.0).ok_or(Unreadable)?;
        let data = data.to_string().into_bytes();
        out.extend(data.iter().skip(offset as usize).take(bytes));
        Ok(())
    }

    fn totals(&self) -> Totals {
        Totals { files: self.0, bytes: 10_000 }
    }
}

fn request(kind: u32, node: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&(40 + body.len() as u32).to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&77_u64.to_ne_bytes());
    bytes.extend_from_slice(&node.to_ne_bytes());
    bytes.resize(40, 0);
    bytes.extend_from_slice(body);
    bytes
}

/// What a request to read asks for.
fn piece(offset: u64, bytes: u32) -> Vec<u8> {
    let mut body = vec![0; 40];
    body[8..16].copy_from_slice(&offset.to_ne_bytes());
    body[16..20].copy_from_slice(&bytes.to_ne_bytes());
    body
}

fn begun(flags: u32) -> Session {
    let mut session = Session::new(10, 20);
    let body: Vec<u8> =
        [7_u32, 40, 131_072, flags].iter().flat_map(|value| value.to_ne_bytes()).collect();
    let mut out = Vec::new();
    assert_eq!(session.begin(&request(INIT, 0, &body), &mut out), Answer::Ready);
    assert_eq!(out.len(), 80);
    session
}

/// The error of an answer, and what follows its header.
fn answered(session: Session, files: &Numbers, request: &[u8]) -> (i32, Vec<u8>) {
    let mut out = Vec::new();
    assert_eq!(session.answer(request, files, &mut out), Answer::Ready);
    assert_eq!(u32::from_ne_bytes(out[..4].try_into().unwrap()) as usize, out.len());
    assert_eq!(u64::from_ne_bytes(out[8..16].try_into().unwrap()), 77);
    (i32::from_ne_bytes(out[4..8].try_into().unwrap()), out.split_off(16))
}

fn value(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

#[test]
fn files_are_found_and_read() {
    let (session, files) = (begun(0), Numbers(2000));
    let (error, found) = answered(session, &files, &request(LOOKUP, ROOT, b"1234\0"));
    assert_eq!((error, found.len(), value(&found, 0)), (0, 128, 1236));
    // The length, and the mode.
    assert_eq!(value(&found, 40 + 8), 4);
    let mode = u32::from_ne_bytes(found[40 + 60..40 + 64].try_into().unwrap());
    assert_eq!(mode, 0o100_644);
    // What is not there is remembered too.
    let (error, none) = answered(session, &files, &request(LOOKUP, ROOT, b"x\0"));
    assert_eq!((error, none.len(), value(&none, 0)), (0, 128, 0));
    assert!(value(&none, 16) > 0);
    let (error, attributes) = answered(session, &files, &request(GETATTR, 1236, &[0; 16]));
    assert_eq!((error, &attributes[16..]), (0, &found[40..]));
    assert_eq!(answered(session, &files, &request(GETATTR, 5000, &[0; 16])).0, -2);
    assert_eq!(answered(session, &files, &request(READ, 1236, &piece(1, 2))), (0, b"23".to_vec()));
    assert_eq!(answered(session, &files, &request(READ, 5000, &piece(0, 2))), (-5, Vec::new()));
    assert_eq!(answered(session, &files, &request(99, ROOT, &[])).0, -38);
}

#[test]
fn files_need_not_be_opened_where_the_kernel_can_do_without() {
    let files = Numbers(1);
    assert_eq!(answered(begun(0), &files, &request(OPEN, 2, &[0; 8])).0, 0);
    assert_eq!(answered(begun(NO_OPEN), &files, &request(OPEN, 2, &[0; 8])).0, -38);
}

#[test]
fn another_version_is_refused() {
    let mut out = Vec::new();
    for (major, minor) in [(6_u32, 40_u32), (8, 0), (7, 22)] {
        let body: Vec<u8> =
            [major, minor, 0, 0].iter().flat_map(|value| value.to_ne_bytes()).collect();
        let begun = Session::new(0, 0).begin(&request(INIT, 0, &body), &mut out);
        assert_eq!(begun, Answer::Version { major, minor });
        assert_eq!(out.len(), 16);
    }
}

proptest! {
    #[test]
    fn each_entry_is_listed_once(count in 0_u64..200, room in 200_u32..5000, is_plus: bool) {
        let (session, files) = (begun(0), Numbers(count));
        let kind = if is_plus { READDIRPLUS } else { READDIR };
        let (mut names, mut from) = (Vec::new(), 0);
        loop {
            let (error, listed) = answered(session, &files, &request(kind, ROOT, &piece(from, room)));
            prop_assert_eq!(error, 0);
            prop_assert!(listed.len() <= room as usize);
            let mut rest = &listed[..];
            while !rest.is_empty() {
                let entry = if is_plus { &rest[128..] } else { rest };
                from = value(entry, 8);
                let length = u32::from_ne_bytes(entry[16..20].try_into().unwrap()) as usize;
                names.push(String::from_utf8(entry[24..24 + length].to_vec()).unwrap());
                rest = &entry[(24 + length).next_multiple_of(8)..];
            }
            if listed.is_empty() {
                break;
            }
        }
        let expected = [".".to_owned(), "..".to_owned()];
        let expected: Vec<String> =
            expected.into_iter().chain((0..count).map(|number| number.to_string())).collect();
        prop_assert_eq!(names, expected);
    }

    #[test]
    fn no_request_makes_it_fail(
        bytes in prop::collection::vec(any::<u8>(), 0..120),
        kind in 0_u32..60,
        node in prop_oneof![0_u64..10, any::<u64>()],
        body in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let mut out = Vec::new();
        for bytes in [bytes, request(kind, node, &body)] {
            let mut session = Session::new(0, 0);
            session.begin(&bytes, &mut out);
            session.answer(&bytes, &Numbers(5), &mut out);
            prop_assert!(out.len() <= 16 + (1 << 20));
        }
    }
}
