//! Packing data: stored or deflated, whichever is smaller.

use crate::limits::{CODE_TABLE_BYTES_MIN, PACKED_SLACK_BYTES, PROBE_BYTES_MAX};
use falkon_core::archive::Method;
use flate2::{Compress, Compression, FlushCompress, Status};

/// Packs data, again and again.
#[derive(Debug)]
pub(crate) struct Packer {
    /// `None` if all data are stored.
    deflate: Option<Compress>,
    /// Where three bytes stood before, by a hash of them.
    seen: Vec<u16>,
}

/// Bits of the hash of three bytes.
const SEEN_BITS: u32 = 12;

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

    /// Whether deflating can make data smaller, as far as a look tells: short
    /// data without three bytes that repeat, and whose bytes are spread so
    /// evenly that codes for them gain less than their table takes, are stored
    /// unseen by the compressor, whose start takes longer than this look.
    fn may_shrink(&mut self, data: &[u8]) -> bool {
        if self.deflate.is_none() || data.len() < 4 {
            return false;
        }
        if data.len() > PROBE_BYTES_MAX {
            return true;
        }
        let mut counts = [0_u32; 256];
        data.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        let all = data.len() as f64;
        let bits = |count: &u32| {
            let count = f64::from(*count);
            if count > 0.0 { count * (all / count).log2() } else { 0.0 }
        };
        let coded = counts.iter().map(bits).sum::<f64>() / 8.0;
        if coded + (CODE_TABLE_BYTES_MIN as f64) < all {
            return true;
        }
        self.repeats(data)
    }

    fn repeats(&mut self, data: &[u8]) -> bool {
        self.seen.fill(0);
        for (at, three) in data.windows(3).enumerate() {
            let value = u32::from_le_bytes([three[0], three[1], three[2], 0]);
            let slot = (value.wrapping_mul(0x9e37_79b1) >> (32 - SEEN_BITS)) as usize;
            let before = usize::from(self.seen[slot]);
            if before > 0 && &data[before - 1..before + 2] == three {
                return true;
            }
            self.seen[slot] = u16::try_from(at + 1).unwrap_or_default();
        }
        false
    }
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
