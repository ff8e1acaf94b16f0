//! Many byte strings in little memory.

/// Strings of one piece of a column: as many as a submission has tasks at most.
const PIECE_STRINGS: u64 = 1 << 16;

/// Byte strings one after another: four bytes each beyond their own, no
/// allocation each, and no limit on how many.
#[derive(Debug, Default)]
pub(crate) struct Column {
    pieces: Vec<Piece>,
    count: u64,
}

#[derive(Debug, Default)]
struct Piece {
    blob: Vec<u8>,
    ends: Vec<u32>,
}

impl Column {
    /// How many strings there are.
    pub(crate) fn len(&self) -> u64 {
        self.count
    }

    /// Appends `bytes`. Returns `false`, unchanged, if the strings around it
    /// already take 4 GiB.
    #[must_use]
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        if self.count.is_multiple_of(PIECE_STRINGS) {
            if let Some(full) = self.pieces.last_mut() {
                full.blob.shrink_to_fit();
                full.ends.shrink_to_fit();
            }
            self.pieces.push(Piece::default());
        }
        let Some(piece) = self.pieces.last_mut() else { return false };
        let Ok(end) = u32::try_from(piece.blob.len() + bytes.len()) else { return false };
        piece.blob.extend_from_slice(bytes);
        piece.ends.push(end);
        self.count += 1;
        true
    }

    /// The string at `index`; `None` past the end.
    pub(crate) fn at(&self, index: u64) -> Option<&[u8]> {
        let piece = self.pieces.get(usize::try_from(index / PIECE_STRINGS).ok()?)?;
        let index = (index % PIECE_STRINGS) as usize;
        let end = *piece.ends.get(index)? as usize;
        let start = if index == 0 { 0 } else { piece.ends[index - 1] as usize };
        piece.blob.get(start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_come_back_across_pieces() {
        let mut column = Column::default();
        let text = |index: u64| format!("{}", index * 7).into_bytes();
        let count = 2 * PIECE_STRINGS + 3;
        for index in 0..count {
            assert!(column.push(&text(index)));
        }
        assert_eq!(column.len(), count);
        for index in (0..count).step_by(997).chain([PIECE_STRINGS - 1, PIECE_STRINGS, count - 1]) {
            assert_eq!(column.at(index), Some(&text(index)[..]));
        }
        assert_eq!(column.at(count), None);
    }
}
