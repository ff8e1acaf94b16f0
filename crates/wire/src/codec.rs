//! MessagePack encoding of Falkon's types.
//!
//! Structs are positional arrays and enums are arrays that begin with a tag,
//! so that any MessagePack library in any language can read them. Columns
//! (see [`Packed`]) travel as one binary each: a million rows cost two copies,
//! not a million values. Decoding never trusts a length: nothing is allocated
//! that the remaining bytes could not fill.

use falkon_core::task::Packed;
use rmp::Marker;
use std::sync::Arc;

/// Why bytes are not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end in the middle.
    #[error("the message is incomplete")]
    Truncated,
    /// Another type or length stands where `expected` should.
    #[error("expected {expected}, {remaining} bytes before the message's end")]
    Unexpected {
        /// The expected type.
        expected: &'static str,
        /// Byte offset from the end of the input.
        remaining: usize,
    },
    /// A tag that this version does not know.
    #[error("unknown {of} {tag}")]
    UnknownTag {
        /// The type that was read.
        of: &'static str,
        /// The tag found.
        tag: u64,
    },
    /// Bytes are left over after the message.
    #[error("{0} bytes follow the message")]
    Trailing(usize),
    /// Values are nested or combined in a way the type forbids.
    #[error("invalid {0}")]
    Invalid(&'static str),
}

/// Bytes being decoded.
#[derive(Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    /// Starts at the first of `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Decoder { rest: bytes }
    }

    /// How many bytes are left.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    fn unexpected(&self, expected: &'static str) -> DecodeError {
        DecodeError::Unexpected { expected, remaining: self.rest.len() }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        if count > self.rest.len() {
            return Err(DecodeError::Truncated);
        }
        let (head, tail) = self.rest.split_at(count);
        self.rest = tail;
        Ok(head)
    }

    fn be(&mut self, width: usize) -> Result<u64, DecodeError> {
        Ok(self.take(width)?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn marker(&mut self) -> Result<Marker, DecodeError> {
        Ok(Marker::from_u8(self.take(1)?[0]))
    }

    /// Reads an unsigned integer.
    ///
    /// # Errors
    /// Another type stands there, or the bytes end.
    pub fn uint(&mut self) -> Result<u64, DecodeError> {
        match self.marker()? {
            Marker::FixPos(value) => Ok(u64::from(value)),
            Marker::U8 => self.be(1),
            Marker::U16 => self.be(2),
            Marker::U32 => self.be(4),
            Marker::U64 => self.be(8),
            _ => Err(self.unexpected("an unsigned integer")),
        }
    }

    /// Reads a signed integer.
    ///
    /// # Errors
    /// Another type stands there, or the bytes end.
    pub fn sint(&mut self) -> Result<i64, DecodeError> {
        match self.marker()? {
            Marker::FixPos(value) => Ok(i64::from(value)),
            Marker::FixNeg(value) => Ok(i64::from(value)),
            Marker::U8 => Ok(self.be(1)? as i64),
            Marker::U16 => Ok(self.be(2)? as i64),
            Marker::U32 => Ok(self.be(4)? as i64),
            Marker::U64 => {
                let value = self.be(8)?;
                i64::try_from(value).map_err(|_| self.unexpected("a signed integer"))
            }
            Marker::I8 => Ok(i64::from(self.be(1)? as u8 as i8)),
            Marker::I16 => Ok(i64::from(self.be(2)? as u16 as i16)),
            Marker::I32 => Ok(i64::from(self.be(4)? as u32 as i32)),
            Marker::I64 => Ok(self.be(8)? as i64),
            _ => Err(self.unexpected("a signed integer")),
        }
    }

    /// Reads an array's head: how many values follow, never more than there
    /// are bytes left (a value has at least one).
    ///
    /// # Errors
    /// Another type stands there, or the bytes end.
    pub fn array(&mut self) -> Result<usize, DecodeError> {
        let count = self.array_head()?;
        if count > self.rest.len() {
            return Err(DecodeError::Truncated);
        }
        Ok(count)
    }

    /// Reads an array's head, whose values need not all be there: how many it
    /// announces, which is not to be trusted.
    pub(crate) fn array_head(&mut self) -> Result<usize, DecodeError> {
        match self.marker()? {
            Marker::FixArray(count) => Ok(usize::from(count)),
            Marker::Array16 => Ok(self.be(2)? as usize),
            Marker::Array32 => Ok(self.be(4)? as usize),
            _ => Err(self.unexpected("an array")),
        }
    }

    /// Reads the head of an array that must have `count` values.
    ///
    /// # Errors
    /// The array has another length, another type stands there, or the bytes end.
    pub fn array_of(&mut self, count: usize, expected: &'static str) -> Result<(), DecodeError> {
        if self.array()? == count { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    /// Reads a binary or a string, without a copy.
    ///
    /// # Errors
    /// Another type stands there, or the bytes end.
    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let count = match self.marker()? {
            Marker::FixStr(count) => usize::from(count),
            Marker::Bin8 | Marker::Str8 => self.be(1)? as usize,
            Marker::Bin16 | Marker::Str16 => self.be(2)? as usize,
            Marker::Bin32 | Marker::Str32 => self.be(4)? as usize,
            _ => return Err(self.unexpected("bytes")),
        };
        self.take(count)
    }

    /// Reads a text, without a copy.
    ///
    /// # Errors
    /// Another type stands there, it is not UTF-8, or the bytes end.
    pub fn text(&mut self) -> Result<&'a str, DecodeError> {
        let bytes = self.bytes()?;
        std::str::from_utf8(bytes).map_err(|_| self.unexpected("text in UTF-8"))
    }

    /// Whether the next value is nil; if so it is consumed.
    ///
    /// # Errors
    /// The bytes end.
    pub fn nil(&mut self) -> Result<bool, DecodeError> {
        let next = *self.rest.first().ok_or(DecodeError::Truncated)?;
        let nil = Marker::from_u8(next) == Marker::Null;
        if nil {
            self.rest = &self.rest[1..];
        }
        Ok(nil)
    }
}

/// Writes an array's head. Bounded by memory: counts past 2^32 cannot occur in
/// a frame.
pub fn put_array(out: &mut Vec<u8>, count: usize) {
    match count {
        0..=15 => out.push(0x90 | count as u8),
        16..=0xffff => {
            out.push(0xdc);
            out.extend_from_slice(&(count as u16).to_be_bytes());
        }
        _ => {
            out.push(0xdd);
            out.extend_from_slice(&(count as u32).to_be_bytes());
        }
    }
}

/// Writes an unsigned integer in its shortest form.
pub fn put_uint(out: &mut Vec<u8>, value: u64) {
    match value {
        0..=0x7f => out.push(value as u8),
        0x80..=0xff => out.extend_from_slice(&[0xcc, value as u8]),
        0x100..=0xffff => {
            out.push(0xcd);
            out.extend_from_slice(&(value as u16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(0xce);
            out.extend_from_slice(&(value as u32).to_be_bytes());
        }
        _ => {
            out.push(0xcf);
            out.extend_from_slice(&value.to_be_bytes());
        }
    }
}

/// Writes a signed integer in its shortest form: a message that was read is
/// not longer when it is written again.
pub fn put_sint(out: &mut Vec<u8>, value: i64) {
    match value {
        0.. => put_uint(out, value as u64),
        -32..=-1 => out.push(value as u8),
        -0x80..=-33 => out.extend_from_slice(&[0xd0, value as u8]),
        -0x8000..=-0x81 => {
            out.push(0xd1);
            out.extend_from_slice(&(value as i16).to_be_bytes());
        }
        -0x8000_0000..=-0x8001 => {
            out.push(0xd2);
            out.extend_from_slice(&(value as i32).to_be_bytes());
        }
        _ => {
            out.push(0xd3);
            out.extend_from_slice(&value.to_be_bytes());
        }
    }
}

/// Writes a binary.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    match bytes.len() {
        count @ 0..=0xff => out.extend_from_slice(&[0xc4, count as u8]),
        count @ 0x100..=0xffff => {
            out.push(0xc5);
            out.extend_from_slice(&(count as u16).to_be_bytes());
        }
        count => {
            out.push(0xc6);
            out.extend_from_slice(&(count as u32).to_be_bytes());
        }
    }
    out.extend_from_slice(bytes);
}

/// Writes a text.
pub fn put_text(out: &mut Vec<u8>, text: &str) {
    match text.len() {
        count @ 0..=31 => out.push(0xa0 | count as u8),
        count @ 32..=0xff => out.extend_from_slice(&[0xd9, count as u8]),
        count @ 0x100..=0xffff => {
            out.push(0xda);
            out.extend_from_slice(&(count as u16).to_be_bytes());
        }
        count => {
            out.push(0xdb);
            out.extend_from_slice(&(count as u32).to_be_bytes());
        }
    }
    out.extend_from_slice(text.as_bytes());
}

/// A value that travels.
pub trait Wire: Sized {
    /// The fields of a struct, in the order in which they travel.
    const FIELDS: &'static [&'static str] = &[];
    /// How many of them, the last ones, are left out where all of them have their defaults.
    const LATER_FIELDS: usize = 0;

    /// Appends this value.
    fn encode(&self, out: &mut Vec<u8>);

    /// Reads one value.
    ///
    /// # Errors
    /// The bytes are not such a value.
    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError>;

    /// This value alone.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }

    /// The value that `bytes` hold, all of them.
    ///
    /// # Errors
    /// The bytes are not such a value, or more than one.
    fn from_bytes(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Decoder::new(bytes);
        let value = Self::decode(&mut from)?;
        match from.remaining() {
            0 => Ok(value),
            count => Err(DecodeError::Trailing(count)),
        }
    }
}

macro_rules! wire_uint {
    ($($type:ty),*) => {$(
        impl Wire for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                put_uint(out, u64::from(*self));
            }
            fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                <$type>::try_from(from.uint()?)
                    .map_err(|_| from.unexpected(concat!("a ", stringify!($type))))
            }
        }
    )*};
}
wire_uint!(u16, u32, u64);

macro_rules! wire_sint {
    ($($type:ty),*) => {$(
        impl Wire for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                put_sint(out, i64::from(*self));
            }
            fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                <$type>::try_from(from.sint()?)
                    .map_err(|_| from.unexpected(concat!("an ", stringify!($type))))
            }
        }
    )*};
}
wire_sint!(i32, i64);

impl Wire for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(if *self { 0xc3 } else { 0xc2 });
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        match from.marker()? {
            Marker::True => Ok(true),
            Marker::False => Ok(false),
            _ => Err(from.unexpected("a boolean")),
        }
    }
}

impl Wire for String {
    fn encode(&self, out: &mut Vec<u8>) {
        put_text(out, self);
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        from.text().map(str::to_owned)
    }
}

/// Shared text travels as text.
impl Wire for Arc<str> {
    fn encode(&self, out: &mut Vec<u8>) {
        put_text(out, self);
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        from.text().map(Arc::from)
    }
}

/// 128-bit names travel as binaries of 16 bytes, the highest first.
impl Wire for u128 {
    fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, &self.to_be_bytes());
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        <[u8; 16]>::decode(from).map(u128::from_be_bytes)
    }
}

/// Numbers in a column travel as one binary of little-endian 32-bit integers.
impl Wire for Vec<u32> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut bytes = Vec::with_capacity(self.len() * 4);
        for number in self {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        put_bytes(out, &bytes);
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let bytes = from.bytes()?;
        if !bytes.len().is_multiple_of(4) {
            return Err(DecodeError::Invalid("column of numbers"));
        }
        Ok(bytes.as_chunks::<4>().0.iter().map(|number| u32::from_le_bytes(*number)).collect())
    }
}

/// Byte strings travel as binaries.
impl Wire for Vec<u8> {
    fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, self);
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(from.bytes()?.to_vec())
    }
}

/// Fixed tokens travel as binaries.
impl<const N: usize> Wire for [u8; N] {
    fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, self);
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let bytes = from.bytes()?;
        bytes.try_into().map_err(|_| from.unexpected("a token of fixed length"))
    }
}

impl<T: Wire> Wire for Option<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            None => out.push(0xc0),
            Some(value) => value.encode(out),
        }
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        if from.nil()? { Ok(None) } else { T::decode(from).map(Some) }
    }
}

impl<T: Wire> Wire for Box<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        (**self).encode(out);
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        T::decode(from).map(Box::new)
    }
}

impl<T: Wire> Wire for Arc<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        (**self).encode(out);
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        T::decode(from).map(Arc::new)
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn encode(&self, out: &mut Vec<u8>) {
        put_array(out, 2);
        self.0.encode(out);
        self.1.encode(out);
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        from.array_of(2, "a pair")?;
        Ok((A::decode(from)?, B::decode(from)?))
    }
}

/// Lists of anything but bytes. (A blanket `Vec<T>` would take in `Vec<u8>`,
/// which is a binary.)
macro_rules! wire_list {
    ($($type:ty),* $(,)?) => {$(
        impl $crate::codec::Wire for Vec<$type> {
            fn encode(&self, out: &mut Vec<u8>) {
                $crate::codec::put_array(out, self.len());
                for value in self {
                    $crate::codec::Wire::encode(value, out);
                }
            }
            fn decode(
                from: &mut $crate::codec::Decoder<'_>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                let count = from.array()?;
                // A value has at least one byte, and its size in memory may be
                // far more: take no more ahead than there are bytes, and grow
                // as values really come.
                let ahead = from.remaining() / size_of::<$type>() + 1;
                let mut values = Vec::with_capacity(count.min(ahead));
                for _ in 0..count {
                    values.push($crate::codec::Wire::decode(from)?);
                }
                Ok(values)
            }
        }
    )*};
}
pub(crate) use wire_list;

/// A struct as an array of its fields.
///
/// Fields that are `later` than the oldest version of the protocol come last. They are left out
/// where all of them have their defaults.
macro_rules! wire_struct {
    ($type:ident { $($field:ident),* $(,)? } later { $($later:ident),* $(,)? }) => {
        impl $crate::codec::Wire for $type {
            const FIELDS: &'static [&'static str] =
                &[$(stringify!($field),)* $(stringify!($later)),*];
            const LATER_FIELDS: usize = [$(stringify!($later)),*].len();

            fn encode(&self, out: &mut Vec<u8>) {
                let has_later = $(!falkon_core::encoded::is_default(&self.$later))||*;
                let left_out = if has_later { 0 } else { Self::LATER_FIELDS };
                $crate::codec::put_array(out, Self::FIELDS.len() - left_out);
                $($crate::codec::Wire::encode(&self.$field, out);)*
                if has_later {
                    $($crate::codec::Wire::encode(&self.$later, out);)*
                }
            }
            fn decode(
                from: &mut $crate::codec::Decoder<'_>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                let (count, all) = (from.array()?, Self::FIELDS.len());
                let has_later = count == all;
                if !has_later && count != all - Self::LATER_FIELDS {
                    return Err($crate::codec::DecodeError::Invalid(stringify!($type)));
                }
                $(let $field = $crate::codec::Wire::decode(from)?;)*
                $(
                    let $later = match has_later {
                        true => $crate::codec::Wire::decode(from)?,
                        false => Default::default(),
                    };
                )*
                Ok(Self { $($field,)* $($later),* })
            }
        }
    };
    ($type:ty { $($field:ident),* $(,)? }) => {
        impl $crate::codec::Wire for $type {
            const FIELDS: &'static [&'static str] = &[$(stringify!($field)),*];

            fn encode(&self, out: &mut Vec<u8>) {
                $crate::codec::put_array(out, Self::FIELDS.len());
                $($crate::codec::Wire::encode(&self.$field, out);)*
            }
            fn decode(
                from: &mut $crate::codec::Decoder<'_>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                from.array_of(Self::FIELDS.len(), stringify!($type))?;
                Ok(Self { $($field: $crate::codec::Wire::decode(from)?),* })
            }
        }
    };
}
pub(crate) use wire_struct;

/// An enum as an array: its tag, then the variant's fields.
macro_rules! wire_enum {
    ($type:ident { $($tag:literal => $variant:ident $({ $($field:ident),* $(,)? })? $(( $($item:ident),* ))?),* $(,)? }) => {
        impl $crate::codec::Wire for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $($type::$variant $({ $($field),* })? $(( $($item),* ))? => {
                        const FIELDS: &[&str] = &[$($(stringify!($field)),*)? $($(stringify!($item)),*)?];
                        $crate::codec::put_array(out, 1 + FIELDS.len());
                        $crate::codec::put_uint(out, $tag);
                        $($($crate::codec::Wire::encode($field, out);)*)?
                        $($($crate::codec::Wire::encode($item, out);)*)?
                    })*
                }
            }
            fn decode(
                from: &mut $crate::codec::Decoder<'_>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                let count = from.array()?;
                if count == 0 {
                    return Err($crate::codec::DecodeError::Invalid(stringify!($type)));
                }
                match from.uint()? {
                    $($tag => {
                        const FIELDS: &[&str] = &[$($(stringify!($field)),*)? $($(stringify!($item)),*)?];
                        if count != 1 + FIELDS.len() {
                            return Err($crate::codec::DecodeError::Invalid(
                                concat!(stringify!($type), "::", stringify!($variant)),
                            ));
                        }
                        $($(let $field = $crate::codec::Wire::decode(from)?;)*)?
                        $($(let $item = $crate::codec::Wire::decode(from)?;)*)?
                        Ok($type::$variant $({ $($field),* })? $(( $($item),* ))?)
                    })*
                    tag => Err($crate::codec::DecodeError::UnknownTag { of: stringify!($type), tag }),
                }
            }
        }
    };
}
pub(crate) use wire_enum;

/// An enum whose variants have no fields, as a number alone.
macro_rules! wire_number {
    ($type:ident { $($tag:literal => $variant:ident),* $(,)? }) => {
        impl $crate::codec::Wire for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                $crate::codec::put_uint(out, match self { $($type::$variant => $tag),* });
            }
            fn decode(
                from: &mut $crate::codec::Decoder<'_>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                match from.uint()? {
                    $($tag => Ok($type::$variant),)*
                    tag => Err($crate::codec::DecodeError::UnknownTag { of: stringify!($type), tag }),
                }
            }
        }
    };
}
pub(crate) use wire_number;

/// A column travels as two binaries: the strings, and their lengths as
/// little-endian 32-bit integers.
impl Wire for Packed {
    fn encode(&self, out: &mut Vec<u8>) {
        put_array(out, 2);
        put_bytes(out, &self.blob);
        let mut lengths = Vec::with_capacity(self.ends.len() * 4);
        let mut before = 0;
        for end in self.ends.iter() {
            lengths.extend_from_slice(&end.wrapping_sub(before).to_le_bytes());
            before = *end;
        }
        put_bytes(out, &lengths);
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        from.array_of(2, "a column")?;
        let blob = from.bytes()?.to_vec();
        let lengths = from.bytes()?;
        if !lengths.len().is_multiple_of(4) {
            return Err(DecodeError::Invalid("column lengths"));
        }
        let mut end = 0u32;
        let mut ends = Vec::with_capacity(lengths.len() / 4);
        for length in lengths.as_chunks::<4>().0 {
            end = end
                .checked_add(u32::from_le_bytes(*length))
                .ok_or(DecodeError::Invalid("column lengths"))?;
            ends.push(end);
        }
        if end as usize != blob.len() {
            return Err(DecodeError::Invalid("column lengths"));
        }
        Ok(Packed { blob: Arc::new(blob), ends: Arc::new(ends) })
    }
}
wire_list!(u64, String, (Vec<u8>, Vec<u8>), Vec<u8>, (u64, u32), (String, u64), (u64, u64));
