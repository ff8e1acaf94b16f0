//! Files that have a hole where data are zeros.

use crate::limits::HOLE_BLOCK_BYTES;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A new file that is written from its start to its end. Blocks of zeros take no room in it.
pub(crate) struct SparseFile<'a> {
    file: &'a File,
    bytes: u64,
    /// Where the data that are written end.
    written: u64,
}

impl SparseFile<'_> {
    /// Begins an empty file.
    pub(crate) fn new(file: &File) -> SparseFile<'_> {
        SparseFile { file, bytes: 0, written: 0 }
    }

    /// Appends data. What is left out reads as zeros, as nothing was written there.
    pub(crate) fn append(&mut self, data: &[u8]) -> io::Result<()> {
        // Data between two holes are written at once.
        let (mut from, mut at) = (0, 0);
        while at < data.len() {
            let in_block = (self.bytes + at as u64) % HOLE_BLOCK_BYTES as u64;
            let end = data.len().min(at + HOLE_BLOCK_BYTES - in_block as usize);
            if is_zero(&data[at..end]) {
                self.write(&data[from..at], from)?;
                from = end;
            }
            at = end;
        }
        self.write(&data[from..], from)?;
        self.bytes += data.len() as u64;
        Ok(())
    }

    /// Gives the file its length, if it ends in a hole.
    pub(crate) fn finish(self) -> io::Result<()> {
        if self.written < self.bytes { self.file.set_len(self.bytes) } else { Ok(()) }
    }

    fn write(&mut self, data: &[u8], from: usize) -> io::Result<()> {
        if !data.is_empty() {
            let at = self.bytes + from as u64;
            self.file.write_all_at(data, at)?;
            self.written = at + data.len() as u64;
        }
        Ok(())
    }
}

fn is_zero(data: &[u8]) -> bool {
    // The first bytes tell for nearly all data.
    let (start, rest) = data.split_at(data.len().min(16));
    start.iter().all(|byte| *byte == 0) && rest.iter().fold(0, |all, byte| all | byte) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_appended_is_read(
            runs in prop::collection::vec((any::<bool>(), 1..3 * HOLE_BLOCK_BYTES), 0..8),
            pieces in prop::collection::vec(1..3 * HOLE_BLOCK_BYTES, 1..8),
        ) {
            let data: Vec<u8> =
                runs.iter().flat_map(|(is_zero, bytes)| vec![u8::from(!is_zero); *bytes]).collect();
            let file = tempfile::tempfile().unwrap();
            let mut sparse = SparseFile::new(&file);
            let (mut rest, mut pieces) = (data.as_slice(), pieces.iter().cycle());
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(rest.len().min(*pieces.next().unwrap()));
                sparse.append(piece).unwrap();
                rest = behind;
            }
            sparse.finish().unwrap();
            let mut read = vec![1; data.len() + 1];
            let bytes = file.read_at(&mut read, 0).unwrap();
            prop_assert_eq!(&read[..bytes], data.as_slice());
        }
    }
}
