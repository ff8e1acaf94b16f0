//! Bytes from peers that mean harm: no panic, and no memory that the bytes do
//! not account for.

use crate::allocation::peak_of;
use crate::decoder::decode_anything;
use crate::strategies as any;
use falkon_core::dispatch::Record;
use falkon_core::task::{InstanceId, TaskId};
use falkon_wire::codec::{Wire, put_array};
use falkon_wire::command::{Command, Template, unpack_row};
use falkon_wire::message::{FromClient, FromExecutor, ToClient, ToExecutor, request_number};
use proptest::prelude::*;

/// Memory that a decoder may hold per byte of its input while it reads. The
/// worst there is are lists of empty byte strings, one byte on the wire and 24
/// in memory, which take up to three times that while their list grows.
const HELD_PER_BYTE_MAX: usize = 80;
/// Memory that a decoder may hold however short the input is: a list of one
/// entry of the largest type.
const HELD_BYTES_MIN: usize = 1024;

/// Decodes as a `T` and checks what that took.
fn bounded<T: Wire>(bytes: &[u8]) {
    let (_, held) = peak_of(|| T::from_bytes(bytes));
    let allowed = HELD_BYTES_MIN + HELD_PER_BYTE_MAX * bytes.len();
    let of = std::any::type_name::<T>();
    assert!(held <= allowed, "{of}: {} bytes made it hold {held} bytes", bytes.len());
}

fn all_bounded(bytes: &[u8]) {
    bounded::<FromClient>(bytes);
    bounded::<ToClient>(bytes);
    bounded::<FromExecutor>(bytes);
    bounded::<ToExecutor>(bytes);
    bounded::<Record>(bytes);
    bounded::<Template>(bytes);
    bounded::<Command>(bytes);
    assert_eq!(Command::check(bytes), Command::from_bytes(bytes).map(|_| ()));
    let (_, held) = peak_of(|| unpack_row(bytes).map(|values| values.len()));
    assert!(held <= HELD_BYTES_MIN + HELD_PER_BYTE_MAX * bytes.len());
}

/// Messages that begin well: an array's head, a tag, small numbers.
fn plausible() -> impl Strategy<Value = Vec<u8>> {
    let head = prop::sample::select(vec![
        0x90u8, 0x91, 0x92, 0x93, 0x94, 0x97, 0x9a, 0x9f, 0xc0, 0xc2, 0xc4, 0xdc, 0xdd, 0xa0, 0x00,
        0x01, 0x02, 0x05, 0xff, 0xcf,
    ]);
    prop::collection::vec(prop_oneof![6 => head, 1 => any::<u8>()], 0..200)
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        decode_anything(&bytes);
        all_bounded(&bytes);
    }

    #[test]
    fn plausible_bytes_do_no_harm(bytes in plausible()) {
        decode_anything(&bytes);
        all_bounded(&bytes);
    }

    #[test]
    fn a_command_is_checked_as_it_is_read(
        command in any::command(),
        place: prop::sample::Index,
        byte: u8,
        cut: prop::sample::Index,
    ) {
        let mut bytes = command.to_bytes();
        prop_assert_eq!(Command::check(&bytes), Ok(()));
        let at = place.index(bytes.len());
        bytes[at] = byte;
        prop_assert_eq!(Command::check(&bytes), Command::from_bytes(&bytes).map(|_| ()));
        bytes.truncate(cut.index(bytes.len()));
        prop_assert_eq!(Command::check(&bytes), Command::from_bytes(&bytes).map(|_| ()));
    }

    #[test]
    fn a_changed_message_does_no_harm(
        message in any::from_client(),
        place: prop::sample::Index,
        byte: u8,
        announced: u32,
    ) {
        let bytes = message.to_bytes();
        let mut changed = bytes.clone();
        let at = place.index(changed.len());
        changed[at] = byte;
        decode_anything(&changed);
        all_bounded(&changed);
        // A list or a binary of any length in the place of whatever was there.
        for head in [0xddu8, 0xc6, 0xdb] {
            let mut changed = bytes[..at].to_vec();
            changed.push(head);
            changed.extend_from_slice(&announced.to_be_bytes());
            changed.extend_from_slice(&bytes[at..]);
            decode_anything(&changed);
            all_bounded(&changed);
        }
    }

    #[test]
    fn changed_results_orders_and_records_do_no_harm(
        results in any::to_client(),
        order in any::to_executor(),
        update in any::from_executor(),
        record in any::record(),
        place: prop::sample::Index,
        byte: u8,
    ) {
        for mut bytes in
            [results.to_bytes(), order.to_bytes(), update.to_bytes(), record.to_bytes()]
        {
            let at = place.index(bytes.len());
            bytes[at] = byte;
            decode_anything(&bytes);
            all_bounded(&bytes);
        }
    }
}

/// Every list announces as many values as fit its bytes, and has the shortest
/// there are.
#[test]
fn the_shortest_values_take_no_more_than_their_bytes_account_for() {
    const VALUES: usize = 100_000;
    let list_of = |value: &[u8]| {
        let mut list = Vec::new();
        put_array(&mut list, VALUES);
        list.extend(std::iter::repeat_n(value, VALUES).flatten());
        list
    };
    let empty_words = list_of(b"\xa0");
    let command = [&b"\x98"[..], &empty_words, b"\x90\xc0\xc0\x90\x90\xc0\xc0"].concat();
    assert_eq!(Command::from_bytes(&command).unwrap().argv.len(), VALUES);
    let forget =
        [&b"\x92\x01\x9c\x00\x90\x90\x00\x90\x90"[..], &list_of(b"\x00"), b"\x90\xc0\xc2\x00\x90"]
            .concat();
    assert!(ToExecutor::from_bytes(&forget).is_ok());
    let template =
        [&b"\x92\x00\x98"[..], &list_of(b"\x90"), b"\x90\xc0\xc0\x90\x90\xc0\xc0"].concat();
    assert!(Template::from_bytes(&template).is_ok());
    let pieces =
        [&b"\x92\x00\x98\x91"[..], &list_of(b"\x91\x02"), b"\x90\xc0\xc0\x90\x90\xc0\xc0"].concat();
    assert!(Template::from_bytes(&pieces).is_ok());
    let runs = [&b"\x94\x05\x01\x01\x92\x01"[..], &list_of(b"\x92\x00\x00")].concat();
    assert!(FromClient::from_bytes(&runs).is_ok());
    let row = list_of(b"\xa0");
    assert_eq!(unpack_row(&row).unwrap().len(), VALUES);
    for bytes in [command, forget, template, pieces, runs, row] {
        all_bounded(&bytes);
    }
    // What an order says of data, each list in its turn.
    let peers = list_of(b"\x92\x00\x92\xa0\xa0");
    let object = [&b"\x94\xc4\x10"[..], &[0; 16], b"\xa0\xa0\xc0"].concat();
    let located = [&b"\x92"[..], &object, b"\x94\x90\xc2\xc0\xc2"].concat();
    let demand = list_of(&[&b"\x92\xc4\x10"[..], &[0; 16], b"\x00"].concat());
    let fetch = list_of(&located);
    let gone = list_of(b"\x00");
    let drop = list_of(&[&b"\xc4\x10"[..], &[0; 16]].concat());
    let [hold, release] = [drop.clone(), drop.clone()];
    let parents = list_of(&[&b"\x92\xc4\x10"[..], &[0; 16], b"\x90"].concat());
    let striped = parents.clone();
    let take_back = drop.clone();
    let lend = list_of(&[&b"\x93"[..], &located, b"\xc4\x00\x00"].concat());
    let all = [peers, fetch, demand, gone, drop, hold, release, parents, lend, take_back, striped];
    for (at, list) in all.into_iter().enumerate() {
        let mut lists: [&[u8]; 13] = [b"\x90"; 13];
        lists[11] = b"\xc0";
        lists[12] = b"\xc2";
        lists[at] = &list;
        let order = [
            &b"\x92\x01\x9c\x00\x90\x90\x00\x90\x90\x90\x90\x9d"[..],
            &lists.concat(),
            b"\xc2\x00\x90",
        ]
        .concat();
        assert!(ToExecutor::from_bytes(&order).is_ok(), "list {at}");
        all_bounded(&order);
    }
    // Tasks with data, and one task with an object that many hold.
    let no_rows = b"\x93\x00\x90\x00";
    let none = b"\x92\x00\xc4\x00";
    let assigned = |objects: &[u8]| {
        let head = b"\x98\x00\x00\x00\x00\x00\x92\x00\x00";
        [&head[..], no_rows, b"\x94", objects, none, none, b"\xc4\x00"].concat()
    };
    let many = list_of(&assigned(b"\x90"));
    let holders = [&b"\x91\x92"[..], &object, b"\x94", &list_of(b"\x00"), b"\xc2\xc0\xc2"].concat();
    let held = [&b"\x91"[..], &assigned(&holders)].concat();
    for assign in [many, held] {
        let order =
            [&b"\x92\x01\x9c\x00\x90"[..], &assign, b"\x00\x90\x90\x90\x90\xc0\xc2\x00\x90"]
                .concat();
        assert!(ToExecutor::from_bytes(&order).is_ok());
        all_bounded(&order);
    }
    // What an executor keeps, and is to discard.
    let runs = list_of(b"\x92\x00\x00");
    let kept =
        [&b"\x92\x01\x9e\x00\x90\x90\xc2\xc2\x90\x90"[..], &runs, b"\xc0\xc0\xc0\xc0\xc0\x90"]
            .concat();
    assert!(FromExecutor::from_bytes(&kept).is_ok());
    all_bounded(&kept);
    let discard =
        [&b"\x92\x01\x9c\x00\x90\x90\x00\x90\x90\x90"[..], &runs, b"\xc0\xc2\x00\x90"].concat();
    assert!(ToExecutor::from_bytes(&discard).is_ok());
    all_bounded(&discard);
    // Gangs, and their members.
    let members = list_of(b"\x93\x00\xa0\x92\xa0\xc4\x00");
    let key = &b"\x93\x00\x00\x92\x00\x00"[..];
    let resources = &b"\x94\x00\x00\x00\x90"[..];
    let token = [&b"\xc4\x10"[..], &[0; 16]].concat();
    let form = [&b"\x97\x00"[..], key, b"\x00", resources, b"\x00", &token, &members].concat();
    let disbands = list_of(&[&b"\x92\x01"[..], key].concat());
    for gangs in [[b"\x91", &form[..]].concat(), disbands.clone()] {
        let head = &b"\x92\x01\x9c\x00\x90\x90\x00\x90\x90\x90\x90\xc0\xc2\x00"[..];
        let order = [head, &gangs].concat();
        assert!(ToExecutor::from_bytes(&order).is_ok());
        all_bounded(&order);
    }
    let head = &b"\x92\x01\x9e\x00\x90\x90\xc2\xc2\x90\x90\x90\xc0\xc0\xc0\xc0\xc0"[..];
    let broken = [head, &disbands].concat();
    assert!(FromExecutor::from_bytes(&broken).is_ok());
    all_bounded(&broken);
    // What a relay lends.
    let nodes = list_of(b"\x93\x94\x00\x00\x00\x90\xc2\x00");
    let relays = list_of(b"\x00");
    let obtainable = list_of(b"\x94\x00\x00\x00\x90");
    let none = &b"\x90"[..];
    for lists in [[&relays[..], none, none], [none, &nodes, none], [none, none, &obtainable]] {
        let head = &b"\x92\x01\x9e\x00\x90\x90\xc2\xc2\x90\x90\x90\xc0\x95\x00"[..];
        let update = [head, &lists.concat(), b"\xc2\xc0\xc0\xc0\x90"].concat();
        assert!(FromExecutor::from_bytes(&update).is_ok());
        all_bounded(&update);
    }
    // How that does.
    let standings = list_of(b"\x99\xa0\x00\x00\x00\x00\x00\x00\x00\xc0");
    let site = [&b"\x9b\xa0\xa0"[..], resources, b"\x00\x00\x00\x00\x00\x00\x90\xa0"].concat();
    let sites = list_of(&site);
    for lists in [[&standings[..], none], [none, &sites]] {
        let head = &b"\x92\x01\x9e\x00\x90\x90\xc2\xc2\x90\x90\x90\xc0\xc0\x92"[..];
        let update = [head, &lists.concat(), b"\xc0\xc0\x90"].concat();
        assert!(FromExecutor::from_bytes(&update).is_ok());
        all_bounded(&update);
    }
    let waiting = list_of(b"\x95\x94\x00\x00\x00\x90\x00\xc0\x00\x00");
    let unmet = [&b"\x92\x11"[..], &waiting].concat();
    assert!(FromClient::from_bytes(&unmet).is_ok());
    all_bounded(&unmet);
    // Archives that an executor cannot write.
    let unwritten = list_of(b"\x93\xa0\x00\xa0");
    let update =
        [&b"\x92\x01\x9e\x00\x90\x90\xc2\xc2\x90\x90\x90\xc0\xc0\xc0"[..], &unwritten, b"\xc0\x90"]
            .concat();
    assert!(FromExecutor::from_bytes(&update).is_ok());
    all_bounded(&update);
    // What an executor says of its cache.
    let ids = list_of(&[&b"\xc4\x10"[..], &[0; 16]].concat());
    let named = list_of(&object);
    let none = &b"\x90"[..];
    let silent = list_of(&[&b"\x92\xc4\x10"[..], &[0; 16], b"\x00"].concat());
    let moved = list_of(b"\x92\x00\x00");
    for [removed, named, unobtainable, silent, moved] in [
        [&ids, none, none, none, none],
        [none, &named, none, none, none],
        [none, none, &ids, none, none],
        [none, none, none, &silent, none],
        [none, none, none, none, &moved],
    ] {
        let head = &b"\x92\x01\x9e\x00\x90\x90\xc2\xc2\x90\x90\x90\x98\xc2\x90"[..];
        let parts = [removed, named, b"\xc0", unobtainable, silent, moved];
        let update = [head, &parts.concat(), b"\xc0\xc0\xc0\xc0\x90"].concat();
        assert!(FromExecutor::from_bytes(&update).is_ok());
        all_bounded(&update);
    }
    // Objects, and where they are.
    let status = [&b"\x97\xc4\x10"[..], &[0; 16], b"\xa0\xa0\xc0\x00\x00\x00"].concat();
    let holders = list_of(b"\x95\x00\xa0\xc2\xc2\x00");
    let found = [&b"\x91\x95"[..], &status, b"\x00\x92\x00\x00\xc0", &holders, b"\xc0"].concat();
    let objects = [&b"\x94\x08\x00"[..], &list_of(&status), b"\xc0"].concat();
    for answer in [objects, [&b"\x94\x09\x00"[..], &found].concat()] {
        assert!(ToClient::from_bytes(&answer).is_ok());
        all_bounded(&answer);
    }
    // Results with what was staged.
    let captured = b"\x94\xa0\x00\xc0\xc0";
    let usage = b"\x93\x92\x00\x00\x92\x00\x00\x92\x00\x00";
    let head = [&b"\x9a"[..], captured, captured, b"\xa0\xa0", usage, b"\x00\xc0"].concat();
    let detail = [&head[..], b"\x90\xc0\xa0"].concat();
    let named = [&head[..], &list_of(b"\xa0"), b"\xc0\xa0"].concat();
    let report = [&b"\x98\x00\x00\x00\x92\x00\x00\x91\x09\x00\x00"[..], &detail].concat();
    let one = [&b"\x91\x98\x00\x00\x00\x92\x00\x00\x91\x09\x00\x00"[..], &named].concat();
    for reports in [list_of(&report), one] {
        let update = [
            &b"\x92\x01\x9e\x00"[..],
            &reports,
            b"\x90\xc2\xc2\x90\x90\x90\xc0\xc0\xc0\xc0\xc0\x90",
        ]
        .concat();
        assert!(FromExecutor::from_bytes(&update).is_ok());
        all_bounded(&update);
    }
}

/// Lengths are not believed: one that the bytes cannot fill is refused before
/// anything is allocated for it, and one that they could fill gets no more
/// than their number until the values are there.
#[test]
fn announced_lengths_are_not_believed() {
    for head in [&b"\xdd\xff\xff\xff\xff"[..], b"\xdc\xff\xff", b"\xc6\xff\xff\xff\xff"] {
        let message = [b"\x94\x05\x01\x01\x92\x01", head, b"\x92\x00\x00"].concat();
        let (decoded, held) = peak_of(|| FromClient::from_bytes(&message));
        assert!(decoded.is_err());
        assert!(held <= HELD_BYTES_MIN, "{held} bytes held");
    }
    // ToClient::Status with 4000 instances, of which there is none.
    let mut status = b"\x93\x05\x01\x95\xa0\x00\x00\xdc\x0f\xa0".to_vec();
    status.resize(status.len() + 4000, 0xc0);
    let (decoded, held) = peak_of(|| ToClient::from_bytes(&status));
    assert!(decoded.is_err());
    assert!(held <= HELD_BYTES_MIN + status.len(), "{held} bytes held");
}

/// A dispatcher that cannot read a request answers it by its number.
#[test]
fn a_request_has_its_number_within_its_first_bytes() {
    let instance = InstanceId(u64::MAX);
    for request in [0, 127, 128, 70_000, u64::MAX] {
        let tasks = FromClient::Tasks { request, instance, first: TaskId(7), count: 1 };
        for message in [FromClient::Destroy { request, instance }, tasks] {
            let bytes = message.to_bytes();
            assert_eq!(request_number(&bytes[..bytes.len().min(32)]), Some(request));
        }
    }
    let unanswered = FromClient::Acknowledge { instance, upto: 5 };
    assert_eq!(request_number(&unanswered.to_bytes()), None);
    for nothing in [&b""[..], b"\xc1", b"\x93", b"\x93\x01", b"\x93\x01\xcf\x01"] {
        assert_eq!(request_number(nothing), None);
    }
}
