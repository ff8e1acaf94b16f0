//! Packing data: stored or deflated, whichever is smaller.

use crate::limits::{CODE_TABLE_BYTES_MIN, PACKED_SLACK_BYTES};
use falkon_core::archive::Method;
use flate2::{Compress, Compression, FlushCompress, Status};
use std::ops::Range;

/// Packs data, again and again.
#[derive(Debug)]
pub(crate) struct Packer {
    /// `None` if all data are stored.
    deflate: Option<Compress>,
    /// Where four bytes stood before, by a hash of them.
    seen: Vec<u32>,
}

/// Data are looked at in parts of this length: a compressor's codes change with the data.
const LOOK_BYTES: usize = 32 << 10;
/// How far before a string one must be that it refers to.
const DISTANCE_MAX: usize = 32 << 10;
/// Bits of the hash of four bytes.
const SEEN_BITS: u32 = 14;
/// What a repetition of four bytes gains at most. A reference to a string among bytes that
/// are spread evenly takes 12 bits or more, so one to n bytes, which had 9 n bits at most, and
/// in which n - 3 times four bytes repeat, gains less than three times n - 3. One to three
/// bytes gains next to nothing.
const REPEAT_GAIN_BYTES: f64 = 3.0;
/// Up to so many different bytes, a table of codes is short.
const KINDS_FEW: usize = 128;
/// Bytes with the shortest of the codes that need no table.
const SHORT_CODES: usize = 144;

impl Packer {
    /// At levels from 1, fast, to 9, small; at 0, data are stored. The first is
    /// the second: the algorithm that zlib-rs 0.6.8 has for it makes data wrong
    /// that do not shrink.
    pub(crate) fn new(level: u32) -> Packer {
        let to_level = Compression::new(level.clamp(2, 9));
        let deflate = (level > 0).then(|| Compress::new(to_level, false));
        Packer { deflate, seen: vec![0; 1 << SEEN_BITS] }
    }

    /// Appends data in the form that is smaller.
    pub(crate) fn pack(&mut self, data: &[u8], out: &mut Vec<u8>) -> Method {
        let start = out.len();
        if self.may_shrink(data) {
            self.piece(data, true, out);
            if out.len() - start < data.len() {
                return Method::Deflated;
            }
        }
        out.truncate(start);
        out.extend_from_slice(data);
        Method::Stored
    }

    /// Appends one piece of deflated data, which the next one follows unless it
    /// is the last. Pieces are deflated apart from each other.
    pub(crate) fn piece(&mut self, data: &[u8], is_last: bool, out: &mut Vec<u8>) {
        let deflate = self.deflate.as_mut().expect("data are deflated at levels above 0 alone");
        deflate.reset();
        let start = out.len();
        // Blocks that do not shrink are stored, with five bytes before each; what
        // ends a piece takes another few. A compressor that has room is not
        // resumed, which is the part of it that fails first.
        out.resize(start + data.len() + data.len() / 8 + PACKED_SLACK_BYTES, 0);
        let flush = if is_last { FlushCompress::Finish } else { FlushCompress::Full };
        let status = deflate.compress(data, &mut out[start..], flush);
        let (used, made) = (deflate.total_in(), deflate.total_out() as usize);
        let has_room = start + made < out.len();
        out.truncate(start + made);
        let is_whole = match status {
            Ok(Status::StreamEnd) => is_last,
            // With room left, nothing waits to be written.
            Ok(_) => !is_last && has_room,
            Err(_) => false,
        };
        assert!(is_whole && used == data.len() as u64, "deflating with room never fails");
    }

    /// Whether deflating can make data smaller, as far as a look tells. Data whose bytes are
    /// spread so evenly that codes for them gain less than their table takes, and in which so
    /// few strings repeat that these do not make up for it, are stored unseen by the
    /// compressor, which takes several times as long as this look.
    fn may_shrink(&mut self, data: &[u8]) -> bool {
        if self.deflate.is_none() || data.len() < 5 {
            return false;
        }
        if u32::try_from(data.len()).is_err() {
            return true;
        }
        self.seen.fill(0);
        let starts = (0..data.len()).step_by(LOOK_BYTES);
        starts.into_iter().any(|start| {
            let end = data.len().min(start + LOOK_BYTES);
            let lacking = lacking_without_repeats(&data[start..end]);
            lacking < 0.0 || self.repeats_gain_more(data, start..end, lacking)
        })
    }

    /// Whether strings in a part of the data that stood before can gain more than so many
    /// bytes.
    fn repeats_gain_more(&mut self, data: &[u8], part: Range<usize>, bytes: f64) -> bool {
        let mut gain = 0.0;
        for at in part.start..part.end.min(data.len() - 3) {
            let four = u32::from_le_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]);
            let slot = (four.wrapping_mul(0x9e37_79b1) >> (32 - SEEN_BITS)) as usize;
            let before = std::mem::replace(&mut self.seen[slot], at as u32 + 1) as usize;
            if before > 0 && at + 1 - before <= DISTANCE_MAX {
                let seen = &data[before - 1..before + 3];
                if seen == four.to_le_bytes() {
                    gain += REPEAT_GAIN_BYTES;
                    if gain > bytes {
                        return true;
                    }
                }
            }
        }
        false
    }
}

/// What codes for single bytes lack in bytes to make data smaller; below 0, they do.
fn lacking_without_repeats(data: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    data.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    let all = data.len() as f64;
    let bits = |count: &u32| {
        let count = f64::from(*count);
        if count > 0.0 { count * (all / count).log2() } else { 0.0 }
    };
    let coded = counts.iter().map(bits).sum::<f64>() / 8.0;
    let is_even = counts.iter().filter(|count| **count > 0).count() > KINDS_FEW;
    let table = if is_even { CODE_TABLE_BYTES_MIN } else { 0 };
    let with_table = coded + table as f64 - all;
    // Codes without a table have 8 bits for these, and 9 for others.
    let short = counts[..SHORT_CODES].iter().copied().map(f64::from).sum::<f64>();
    with_table.min((all - short) / 8.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(bytes: usize) -> Vec<u8> {
        let mut state = 7_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        (0..bytes).map(|_| next()).collect()
    }

    #[test]
    fn the_smaller_form_is_taken() {
        let mut packer = Packer::new(6);
        let halves = random(500).repeat(2);
        for (data, expected) in [
            (Vec::new(), Method::Stored),
            (b"abc".to_vec(), Method::Stored),
            (b"a".repeat(10), Method::Deflated),
            (b"energy = 7.25\n".repeat(9), Method::Deflated),
            (random(1024), Method::Stored),
            (random(10_000), Method::Stored),
            ([random(10_000), b"energy".repeat(99)].concat(), Method::Deflated),
            (random(300_000), Method::Stored),
            (halves, Method::Deflated),
        ] {
            let mut out = b"before".to_vec();
            assert_eq!(packer.pack(&data, &mut out), expected, "{} bytes", data.len());
            let packed = &out[6..];
            match expected {
                Method::Stored => assert_eq!(packed, data),
                _ => {
                    assert!(packed.len() < data.len());
                    assert_eq!(inflated(packed, data.len()), data);
                }
            }
        }
        let mut out = Vec::new();
        assert_eq!(Packer::new(0).pack(&b"a".repeat(100), &mut out), Method::Stored);
    }

    /// Data that are stored unseen by the compressor would not become smaller by more than a
    /// 256th: bytes of few and of many kinds, with strings in them that repeat.
    #[test]
    fn nothing_is_stored_that_deflating_makes_much_smaller() {
        let (mut packer, mut state) = (Packer::new(2), 1_u64);
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % bound
        };
        for round in 0..2000 {
            let kinds = [256, 250, 200, 144, 16][below(5) as usize];
            let bytes = 1 << below(15);
            let mut data: Vec<u8> = (0..bytes).map(|_| below(kinds) as u8).collect();
            for _ in 0..below(12) {
                let from = below(data.len() as u64) as usize;
                let string = data[from..].iter().copied().take(3 + below(30) as usize).collect();
                let mut string: Vec<u8> = string;
                data.append(&mut string);
            }
            let (mut packed, mut deflated) = (Vec::new(), Vec::new());
            packer.pack(&data, &mut packed);
            packer.piece(&data, true, &mut deflated);
            let (packed, least) = (packed.len(), data.len().min(deflated.len()));
            assert!(
                packed <= least + least / 256,
                "round {round}: {packed} of {least} bytes, {kinds} kinds"
            );
        }
    }

    #[test]
    fn pieces_are_one_stream() {
        let mut packer = Packer::new(3);
        for data in [random(10_000), b"energy = 7.25\n".repeat(1000), Vec::new()] {
            let mut out = Vec::new();
            let (first, rest) = data.split_at(data.len() / 3);
            packer.piece(first, false, &mut out);
            packer.piece(b"", false, &mut out);
            packer.piece(rest, true, &mut out);
            assert_eq!(inflated(&out, data.len()), data);
        }
    }

    fn inflated(packed: &[u8], bytes: usize) -> Vec<u8> {
        let mut inflate = flate2::Decompress::new(false);
        let mut out = vec![0; bytes + 1];
        let status = inflate.decompress(packed, &mut out, flate2::FlushDecompress::Finish).unwrap();
        assert_eq!(status, Status::StreamEnd);
        assert_eq!(inflate.total_in(), packed.len() as u64);
        out.truncate(inflate.total_out() as usize);
        out
    }
}
