//! Every message and every record comes back as it was sent.

use crate::strategies as any;
use falkon_core::dispatch::Record;
use falkon_core::task::{Packed, Rows};
use falkon_wire::codec::{DecodeError, Wire};
use falkon_wire::command::{Template, pack_row, unpack_row};
use proptest::prelude::*;
use std::fmt::Debug;

/// Checks that `value` survives, that nothing less and nothing more than its
/// bytes is taken for it, and that it has one encoding.
fn check<T: Wire + PartialEq + Debug>(value: &T) -> Result<(), TestCaseError> {
    let bytes = value.to_bytes();
    let back = T::from_bytes(&bytes);
    prop_assert_eq!(back.as_ref(), Ok(value));
    prop_assert_eq!(T::from_bytes(&[&bytes[..], &[0xc0]].concat()), Err(DecodeError::Trailing(1)));
    for cut in [0, bytes.len() / 3, bytes.len() / 2, bytes.len() - 1] {
        prop_assert!(T::from_bytes(&bytes[..cut]).is_err(), "cut at {}", cut);
    }
    Ok(())
}

macro_rules! round_trips {
    ($($name:ident: $strategy:expr;)*) => {
        proptest! {
            $(#[test]
            fn $name(value in $strategy) {
                check(&value)?;
            })*
        }
    };
}

round_trips! {
    messages_from_clients_come_back: any::from_client();
    messages_to_clients_come_back: any::to_client();
    messages_from_executors_come_back: any::from_executor();
    messages_to_executors_come_back: any::to_executor();
    journal_records_come_back: any::record();
    notes_of_relays_come_back: any::note();
    commands_come_back: any::command();
    templates_come_back: any::template();
}

proptest! {
    #[test]
    fn rows_come_back(values in prop::collection::vec(any::bytes(), 0..40)) {
        let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
        let mut row = Vec::new();
        pack_row(&values, &mut row);
        prop_assert_eq!(unpack_row(&row), Ok(values));
        row.push(0);
        prop_assert_eq!(unpack_row(&row), Err(DecodeError::Trailing(1)));
    }

    /// What a task runs, for people, is what its whole command says.
    #[test]
    fn words_are_those_of_the_whole_command(
        template in any::template(),
        command in any::command(),
        values in prop::collection::vec(any::bytes(), 0..9),
        number: u64,
    ) {
        let mut row = Vec::new();
        match &template {
            Template::Each => row = command.to_bytes(),
            _ => pack_row(&values.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut row),
        }
        let mut packed = Packed::default();
        prop_assert!(packed.push(&row));
        let rows = Rows::Packed(packed);
        if let Ok(whole) = template.expand(&rows, 0, number) {
            let name = whole.call.map(|call| call.function.name.clone());
            let expected: Vec<_> = name.into_iter().chain(whole.argv).collect();
            prop_assert_eq!(template.words(&rows, 0, number), Ok(expected));
        }
    }

    #[test]
    fn numbers_of_any_size_come_back(unsigned: u64, signed: i64, shift in 0u32..64) {
        // Shifted, so that small ones are as common as large ones.
        let (unsigned, signed) = (unsigned >> shift, signed >> shift);
        check(&unsigned)?;
        check(&signed)?;
        check(&(signed as i32))?;
        check(&(unsigned as u16))?;
    }

    /// What comes after a message in a frame of its own is never touched, so
    /// messages can be read one after another.
    #[test]
    fn messages_follow_one_another(first in any::record(), second in any::record()) {
        let mut bytes = first.to_bytes();
        second.encode(&mut bytes);
        let mut from = falkon_wire::codec::Decoder::new(&bytes);
        prop_assert_eq!(Record::decode(&mut from), Ok(first));
        prop_assert_eq!(Record::decode(&mut from), Ok(second));
        prop_assert_eq!(from.remaining(), 0);
    }
}

#[test]
fn lengths_at_every_boundary_come_back() {
    for length in [0, 1, 15, 16, 31, 32, 255, 256, 65_535, 65_536, 70_000] {
        check(&vec![0x5au8; length]).unwrap();
        check(&"a".repeat(length)).unwrap();
        check(&vec![7u64; length]).unwrap();
        check(&vec![Vec::<u8>::new(); length]).unwrap();
    }
}
