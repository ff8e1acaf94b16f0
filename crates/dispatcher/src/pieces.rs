//! Records that are longer than the journal takes: none should be, and if one is
//! after all, it is kept in several pieces rather than ending the dispatcher.

use crate::journal::RECORD_BYTES_MAX;

/// The first byte of a piece; no encoded value begins with it.
const PIECE: u8 = 0xc1;
/// [`PIECE`], which piece it is, from 0, and how many there are: 32 bits each,
/// little-endian.
const HEAD_BYTES: usize = 9;

/// The journal records of an encoded record, in order.
pub(super) fn pieces(encoded: Vec<u8>) -> Vec<Vec<u8>> {
    pieces_of(encoded, RECORD_BYTES_MAX)
}

fn pieces_of(encoded: Vec<u8>, bytes_max: usize) -> Vec<Vec<u8>> {
    if encoded.len() <= bytes_max {
        return vec![encoded];
    }
    let chunks = encoded.chunks(bytes_max - HEAD_BYTES);
    let count = chunks.len() as u32;
    chunks
        .zip(0u32..)
        .map(|(chunk, number)| {
            let mut piece = Vec::with_capacity(HEAD_BYTES + chunk.len());
            piece.push(PIECE);
            piece.extend_from_slice(&number.to_le_bytes());
            piece.extend_from_slice(&count.to_le_bytes());
            piece.extend_from_slice(chunk);
            piece
        })
        .collect()
}

/// Puts pieces together again.
#[derive(Debug, Default)]
pub(super) struct Joined {
    whole: Vec<u8>,
    /// How many pieces are there.
    joined: u32,
}

impl Joined {
    /// The record that `bytes` complete; `None` if more of it follow. Pieces
    /// of which one is missing are passed over.
    pub(super) fn next<'a>(&'a mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let head = bytes.split_first_chunk::<HEAD_BYTES>();
        let Some((&[PIECE, a, b, c, d, e, f, g, h], chunk)) = head else {
            self.joined = 0;
            return Some(bytes);
        };
        let (number, count) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        if number == 0 {
            self.joined = 0;
        }
        if number != self.joined {
            return None;
        }
        if number == 0 {
            self.whole.clear();
        }
        self.whole.extend_from_slice(chunk);
        self.joined += 1;
        (self.joined == count).then_some(&self.whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn records_of_any_length_come_back(
            lengths in prop::collection::vec(0usize..200, 0..8),
            bytes_max in 10usize..64,
        ) {
            let mut joined = Joined::default();
            for length in lengths {
                let record: Vec<u8> = (0..length).map(|at| 0x90 | (at as u8 & 0x0f)).collect();
                let pieces = pieces_of(record.clone(), bytes_max);
                let (last, first) = pieces.split_last().unwrap();
                for piece in first {
                    prop_assert!(piece.len() <= bytes_max);
                    prop_assert_eq!(joined.next(piece), None);
                }
                prop_assert_eq!(joined.next(last), Some(&record[..]));
            }
        }

        #[test]
        fn a_record_of_which_a_piece_is_missing_is_passed_over(lost in 0usize..4) {
            let record = vec![0x91; 40];
            let mut pieces = pieces_of(record.clone(), 19);
            prop_assert_eq!(pieces.len(), 4);
            pieces.remove(lost);
            let mut joined = Joined::default();
            for piece in &pieces {
                prop_assert_eq!(joined.next(piece), None);
            }
            prop_assert_eq!(joined.next(&[0x91]), Some(&[0x91][..]));
            let whole: Vec<bool> =
                pieces_of(record, 19).iter().map(|piece| joined.next(piece).is_some()).collect();
            prop_assert_eq!(whole, [false, false, false, true]);
        }
    }
}
