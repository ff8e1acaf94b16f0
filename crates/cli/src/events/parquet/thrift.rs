//! Thrift's compact protocol, as far as heads of pages and footers need it.

use super::encodings::{folded, varint};

/// A struct in Thrift's compact protocol, whose fields come in the order of their numbers.
#[derive(Debug, Default)]
pub(super) struct Thrift {
    bytes: Vec<u8>,
    last: u8,
}

/// Types of the compact protocol.
const TRUE: u8 = 1;
const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

impl Thrift {
    fn field(&mut self, number: u8, kind: u8) {
        debug_assert!(number > self.last && number - self.last < 16, "fields come in order");
        self.bytes.push((number - self.last) << 4 | kind);
        self.last = number;
    }

    fn folded(&mut self, number: i64) {
        varint(folded(number), &mut self.bytes);
    }

    pub(super) fn i32(&mut self, field: u8, number: i64) -> &mut Self {
        self.field(field, I32);
        self.folded(number);
        self
    }

    pub(super) fn i64(&mut self, field: u8, number: u64) -> &mut Self {
        self.field(field, I64);
        // No file has 2^63 bytes or rows.
        self.folded(number as i64);
        self
    }

    pub(super) fn yes(&mut self, field: u8) -> &mut Self {
        self.field(field, TRUE);
        self
    }

    pub(super) fn text(&mut self, field: u8, text: &str) -> &mut Self {
        self.field(field, BINARY);
        self.bare_text(text);
        self
    }

    fn bare_text(&mut self, text: &str) {
        varint(text.len() as u64, &mut self.bytes);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn list(&mut self, field: u8, kind: u8, count: usize) {
        self.field(field, LIST);
        match count {
            0..15 => self.bytes.push((count as u8) << 4 | kind),
            _ => {
                self.bytes.push(0xf0 | kind);
                varint(count as u64, &mut self.bytes);
            }
        }
    }

    pub(super) fn i32s(&mut self, field: u8, numbers: &[i64]) -> &mut Self {
        self.list(field, I32, numbers.len());
        numbers.iter().for_each(|number| self.folded(*number));
        self
    }

    pub(super) fn texts(&mut self, field: u8, texts: &[&str]) -> &mut Self {
        self.list(field, BINARY, texts.len());
        texts.iter().for_each(|text| self.bare_text(text));
        self
    }

    pub(super) fn structs(&mut self, field: u8, structs: &[Vec<u8>]) -> &mut Self {
        self.list(field, STRUCT, structs.len());
        structs.iter().for_each(|one| self.bytes.extend_from_slice(one));
        self
    }

    pub(super) fn inner(&mut self, field: u8, inner: &[u8]) -> &mut Self {
        self.field(field, STRUCT);
        self.bytes.extend_from_slice(inner);
        self
    }

    pub(super) fn end(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }
}
