//! How many bytes values take in messages and in the journal.
//!
//! The core bounds what it accepts and what it sends by bytes, and knows
//! nothing of the codec. [`Encoded`] counts exactly what the codec writes for a
//! submission, without writing it; the tests of the wire crate compare the two.
//! The parts of an order are counted by upper bounds, which cost less.

use crate::data::broadcast::TREES;
use crate::data::declared::{AssignedData, Declared, Lend, Lists, Located, Peer};
use crate::data::object::Object;
use crate::limits::{CUSTOM_NAMES_MAX, NAME_BYTES_MAX};
use crate::task::{
    After, Everywhere, ExecutorId, Kind, Packed, Range, Resources, Rows, Submission, TaskClass,
    TaskId,
};
use std::sync::Arc;

/// The most that a number takes.
const NUMBER_BYTES_MAX: u64 = 9;
/// The most that the head of a list, a text or a binary takes.
const HEAD_BYTES_MAX: u64 = 5;
/// An object's id with its head.
const OBJECT_ID_BYTES: u64 = 18;
/// An object beside its URL and its version.
const OBJECT_BYTES_MAX: u64 = 1 + OBJECT_ID_BYTES + 2 * HEAD_BYTES_MAX + NUMBER_BYTES_MAX;

/// The most that the id of an object and its parents in a broadcast take.
pub(crate) const PARENTS_BYTES_MAX: u64 = 2 + OBJECT_ID_BYTES + TREES as u64 * NUMBER_BYTES_MAX;
/// The most that the id of an object and a number, as a pair, take.
pub(crate) const OBJECT_COUNT_BYTES_MAX: u64 = 1 + OBJECT_ID_BYTES + NUMBER_BYTES_MAX;
/// The most that the id of an object or of an executor or a batch takes.
pub(crate) const ID_BYTES_MAX: u64 = OBJECT_ID_BYTES;
/// The most that tasks in a row take where an order or an update names them:
/// instance, first, count, and how often they were tried.
pub const HELD_BYTES_MAX: u64 = 1 + 3 * NUMBER_BYTES_MAX + 1 + 2 * HEAD_BYTES_MAX;
/// The most that an order about a gang takes beside its members.
pub(crate) const GANG_ORDER_BYTES_MAX: u64 =
    HELD_BYTES_MAX + 2 * HEAD_BYTES_MAX + 64 + (CUSTOM_NAMES_MAX * (NAME_BYTES_MAX + 16)) as u64;
/// The most that a member of a gang takes beside its name, its address and its fingerprint.
pub(crate) const MEMBER_BYTES_MAX: u64 = 2 + NUMBER_BYTES_MAX + 3 * HEAD_BYTES_MAX;
/// The most that an assignment takes beside its rows and its data.
pub(crate) const ASSIGNED_BYTES_MAX: u64 = 1 + 4 * NUMBER_BYTES_MAX + 6 + 12;

/// A value whose length in bytes is known before it is encoded.
pub trait Encoded {
    /// How many bytes it takes, exactly.
    fn encoded_bytes(&self) -> u64;
}

fn array_bytes(count: usize) -> u64 {
    match count {
        0..=15 => 1,
        16..=0xffff => 3,
        _ => 5,
    }
}

fn blob_bytes(length: usize) -> u64 {
    let head = match length {
        0..=0xff => 2,
        0x100..=0xffff => 3,
        _ => 5,
    };
    head + length as u64
}

fn column_bytes(numbers: usize) -> u64 {
    blob_bytes(4 * numbers)
}

impl Encoded for str {
    fn encoded_bytes(&self) -> u64 {
        match self.len() {
            length @ 0..=31 => 1 + length as u64,
            length => blob_bytes(length),
        }
    }
}

impl Encoded for u64 {
    fn encoded_bytes(&self) -> u64 {
        match *self {
            0..=0x7f => 1,
            0x80..=0xff => 2,
            0x100..=0xffff => 3,
            0x1_0000..=0xffff_ffff => 5,
            _ => NUMBER_BYTES_MAX,
        }
    }
}

impl Encoded for u32 {
    fn encoded_bytes(&self) -> u64 {
        u64::from(*self).encoded_bytes()
    }
}

impl Encoded for i64 {
    fn encoded_bytes(&self) -> u64 {
        match *self {
            0.. => (*self as u64).encoded_bytes(),
            -32..=-1 => 1,
            -128..=-33 => 2,
            -0x8000..=-129 => 3,
            -0x8000_0000..=-0x8001 => 5,
            _ => NUMBER_BYTES_MAX,
        }
    }
}

impl Encoded for i32 {
    fn encoded_bytes(&self) -> u64 {
        i64::from(*self).encoded_bytes()
    }
}

impl Encoded for bool {
    fn encoded_bytes(&self) -> u64 {
        1
    }
}

impl Encoded for Kind {
    fn encoded_bytes(&self) -> u64 {
        2
    }
}

impl Encoded for TaskId {
    fn encoded_bytes(&self) -> u64 {
        self.0.encoded_bytes()
    }
}

impl Encoded for ExecutorId {
    fn encoded_bytes(&self) -> u64 {
        self.0.encoded_bytes()
    }
}

impl Encoded for Arc<Vec<u8>> {
    fn encoded_bytes(&self) -> u64 {
        blob_bytes(self.len())
    }
}

impl Encoded for Packed {
    fn encoded_bytes(&self) -> u64 {
        1 + blob_bytes(self.blob.len()) + column_bytes(self.ends.len())
    }
}

impl<T: Encoded> Encoded for Option<T> {
    fn encoded_bytes(&self) -> u64 {
        self.as_ref().map_or(1, Encoded::encoded_bytes)
    }
}

impl<T: Encoded> Encoded for Arc<T> {
    fn encoded_bytes(&self) -> u64 {
        (**self).encoded_bytes()
    }
}

impl<T: Encoded> Encoded for [T] {
    fn encoded_bytes(&self) -> u64 {
        array_bytes(self.len()) + self.iter().map(Encoded::encoded_bytes).sum::<u64>()
    }
}

impl Encoded for (String, u64) {
    fn encoded_bytes(&self) -> u64 {
        1 + self.0.encoded_bytes() + self.1.encoded_bytes()
    }
}

impl Encoded for (u64, u32) {
    fn encoded_bytes(&self) -> u64 {
        1 + self.0.encoded_bytes() + self.1.encoded_bytes()
    }
}

/// Whether a value says nothing.
pub fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A struct is an array of its fields.
macro_rules! encoded_struct {
    ($type:ident { $($field:ident),* $(,)? } $(later { $($later:ident),* })?) => {
        impl Encoded for $type {
            fn encoded_bytes(&self) -> u64 {
                let $type { $($field,)* $($($later),*)? } = self;
                const FIELDS: usize = [$(stringify!($field)),*].len();
                // Those that were added later are left out where they say nothing.
                let (fields, bytes) = (FIELDS, 0 $(+ $field.encoded_bytes())*);
                $(
                    const LATER: usize = [$(stringify!($later)),*].len();
                    let (fields, bytes) = match $(is_default($later))&&* {
                        true => (fields, bytes),
                        false => (fields + LATER, bytes $(+ $later.encoded_bytes())*),
                    };
                )?
                array_bytes(fields) + bytes
            }
        }
    };
}

crate::submission_structs!(encoded_struct);

impl Encoded for Rows {
    fn encoded_bytes(&self) -> u64 {
        match self {
            Rows::Computed { factors, offset } => {
                2 + factors.encoded_bytes() + offset.encoded_bytes()
            }
            Rows::Packed(packed) => 2 + packed.encoded_bytes(),
        }
    }
}

impl Encoded for Lists {
    fn encoded_bytes(&self) -> u64 {
        match self {
            Lists::Same(items) => 2 + column_bytes(items.len()),
            Lists::Each { items, ends } => 2 + column_bytes(items.len()) + column_bytes(ends.len()),
        }
    }
}

impl Encoded for Object {
    fn encoded_bytes(&self) -> u64 {
        let Object { id: _, url, version, size } = self;
        1 + OBJECT_ID_BYTES + url.encoded_bytes() + version.encoded_bytes() + size.encoded_bytes()
    }
}

impl Encoded for Vec<Object> {
    fn encoded_bytes(&self) -> u64 {
        self.as_slice().encoded_bytes()
    }
}

/// The most that an object takes in an order, with `peers` executors that
/// have it.
#[must_use]
pub fn object_bytes_max(object: &Object, peers: u64) -> u64 {
    let sources = 1 + HEAD_BYTES_MAX + peers * NUMBER_BYTES_MAX + 2 + NUMBER_BYTES_MAX;
    1 + OBJECT_BYTES_MAX + (object.url.len() + object.version.len()) as u64 + sources
}

pub(crate) fn located_bytes_max(located: &Located) -> u64 {
    object_bytes_max(&located.object, located.sources.peers.len() as u64)
}

pub(crate) fn lend_bytes_max(lend: &Lend) -> u64 {
    let stripes = HEAD_BYTES_MAX + lend.stripes.len() as u64 * NUMBER_BYTES_MAX;
    1 + located_bytes_max(&lend.located) + stripes + NUMBER_BYTES_MAX
}

/// The most that the id of an object and the lenders of its stripes take.
pub(crate) fn striped_bytes_max(stripes: usize) -> u64 {
    1 + OBJECT_ID_BYTES + HEAD_BYTES_MAX + stripes as u64 * NUMBER_BYTES_MAX
}

pub(crate) fn peer_bytes_max(peer: &Peer) -> u64 {
    let texts = peer.serves.address.len() + peer.serves.fingerprint.len();
    2 + NUMBER_BYTES_MAX + 2 * HEAD_BYTES_MAX + texts as u64
}

pub(crate) fn rows_bytes_max(rows: &Rows) -> u64 {
    match rows {
        Rows::Computed { factors, .. } => {
            let range = 1 + 3 * NUMBER_BYTES_MAX;
            2 + HEAD_BYTES_MAX + factors.len() as u64 * range + NUMBER_BYTES_MAX
        }
        Rows::Packed(rows) => {
            3 + 2 * HEAD_BYTES_MAX + rows.blob.len() as u64 + 4 * rows.ends.len() as u64
        }
    }
}

pub(crate) fn data_bytes_max(data: &AssignedData) -> u64 {
    let objects: u64 = data.objects.iter().map(located_bytes_max).sum();
    let read = HEAD_BYTES_MAX + NUMBER_BYTES_MAX * data.read.len() as u64;
    let lists = data.inputs.encoded_bytes() + data.outputs.encoded_bytes();
    1 + HEAD_BYTES_MAX + objects + lists + read
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The most that rows take is no less than they take, and little more.
    #[test]
    fn rows_take_what_their_bounds_say_and_hardly_less() {
        let number = i64::MIN;
        for count in [0, 1, 5, 40, 5000] {
            let factors = vec![Range { start: number, step: number, count: u64::MAX }; count];
            let computed = Rows::Computed { factors, offset: u64::MAX };
            let mut packed = Packed::default();
            for length in 0..count {
                assert!(packed.push(&vec![b'x'; length % 300]));
            }
            for rows in [computed, Rows::Packed(packed)] {
                let (most, taken) = (rows_bytes_max(&rows), rows.encoded_bytes());
                assert!((taken..=taken + 16).contains(&most), "{taken} bytes, at most {most}");
            }
        }
    }
}
