//! `--pipe`: standard input in blocks of whole lines, a task for each.

use crate::exit::{Exit, say};
use crate::plan::{PlanArgs, memory_bytes};
use crate::scratch::Scratch;
use clap::Args;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Bytes read at a time.
const READ_BYTES: usize = 256 << 10;

/// Where tasks' standard input comes from.
#[derive(Args, Debug, Clone, Copy)]
#[command(next_help_heading = "Sources")]
pub(crate) struct PipeArgs {
    /// A task per block of standard input, which it reads as its own
    ///
    /// Standard input is read to its end first, into files in the temporary directory (TMPDIR),
    /// which go when the run ends. {#} is the number of the block; nothing is appended to the
    /// command.
    #[arg(
        long,
        conflicts_with_all = [
            "each", "each-line", "rows", "range", "value", "tasks", "workflow", "stdin", "call",
            "resume", "access", "nodes",
        ]
    )]
    pipe: bool,
    /// The size of a block: as many whole lines as fit, one at least
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "1MiB",
        requires = "pipe",
        value_parser = memory_bytes
    )]
    block: u64,
}

/// The blocks of standard input, in files that are there as long as this is.
#[derive(Debug)]
pub(crate) struct Blocks(Scratch);

impl Blocks {
    /// Removes the files.
    pub(crate) fn remove(self) {
        self.0.remove();
    }
}

impl PipeArgs {
    /// Reads standard input, if it is to be divided, and has the plan make a task of each block.
    ///
    /// # Errors
    /// How the command ends: with what is wrong, or because there is no input.
    pub(crate) fn divide(self, plan: &mut PlanArgs) -> Result<Option<Blocks>, Exit> {
        if !self.pipe {
            return Ok(None);
        }
        if !plan.has_no_source() {
            return Err(Exit::usage(
                "values follow the command, and --pipe makes a task of each block of standard \
                 input: leave out one of them",
            ));
        }
        let blocks = Blocks(Scratch::new("falkon-pipe")?);
        let directory = blocks.0.path().join("blocks");
        let divided = std::fs::create_dir(&directory)
            .map_err(|source| DivideError::Write { path: directory.clone(), source })
            .and_then(|()| divide(io::stdin().lock(), &directory, self.block));
        match divided {
            Ok(0) => {
                blocks.remove();
                say("nothing to do: standard input is empty");
                Err(Exit::Success)
            }
            Ok(count) => {
                plan.read_blocks(&directory, count);
                Ok(Some(blocks))
            }
            Err(error) => {
                blocks.remove();
                Err(Exit::failure(error))
            }
        }
    }
}

/// Why standard input was not divided.
#[derive(Debug, thiserror::Error)]
enum DivideError {
    #[error("cannot read standard input: {0}")]
    Read(io::Error),
    #[error(
        "cannot write {}, a part of standard input: {source} (TMPDIR says where temporary files \
         go)",
        path.display()
    )]
    Write { path: PathBuf, source: io::Error },
}

/// Divides `input` at ends of lines into files `1`, `2`, … in `directory`. Returns how many.
fn divide(input: impl Read, directory: &Path, block_bytes: u64) -> Result<u64, DivideError> {
    let mut input = BufReader::with_capacity(READ_BYTES, input);
    let mut count = 0;
    let mut block: Option<Block> = None;
    loop {
        let bytes = match input.fill_buf() {
            Ok([]) => return Ok(count),
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(DivideError::Read(error)),
        };
        let path = |number: u64| directory.join(number.to_string());
        let failed = |path: PathBuf| move |source| DivideError::Write { path, source };
        let full = block.as_ref().is_none_or(|block| block.is_full(block_bytes));
        let mut current = match block.take() {
            Some(current) if !full => current,
            last => {
                count += 1;
                let mut next = Block::create(&path(count)).map_err(failed(path(count)))?;
                if let Some(last) = last {
                    last.cut(&mut next).map_err(failed(path(count)))?;
                }
                next
            }
        };
        let taken = current.take(bytes, block_bytes).map_err(failed(path(count)))?;
        input.consume(taken);
        block = Some(current);
    }
}

/// A file that lines are written to.
#[derive(Debug)]
struct Block {
    file: File,
    bytes: u64,
    /// The bytes up to the end of the last whole line.
    line_bytes: u64,
}

impl Block {
    fn create(path: &Path) -> io::Result<Block> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        Ok(Block { file, bytes: 0, line_bytes: 0 })
    }

    /// Takes bytes until there are `most`, and the rest of the line if it is the only one. Returns
    /// how many.
    fn take(&mut self, bytes: &[u8], most: u64) -> io::Result<usize> {
        let room = usize::try_from(most.saturating_sub(self.bytes)).unwrap_or(usize::MAX);
        let taken = match room {
            0 => bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1),
            room => room.min(bytes.len()),
        };
        self.file.write_all(&bytes[..taken])?;
        if let Some(at) = bytes[..taken].iter().rposition(|byte| *byte == b'\n') {
            self.line_bytes = self.bytes + at as u64 + 1;
        }
        self.bytes += taken as u64;
        Ok(taken)
    }

    fn is_full(&self, most: u64) -> bool {
        self.bytes >= most && self.line_bytes > 0
    }

    /// Moves what is behind the last whole line to the next block.
    fn cut(mut self, next: &mut Block) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.line_bytes))?;
        next.bytes = io::copy(&mut self.file, &mut next.file)?;
        self.file.set_len(self.line_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What `divide` is to do, in memory.
    fn blocks(input: &[u8], most: usize) -> Vec<Vec<u8>> {
        let mut blocks: Vec<Vec<u8>> = Vec::new();
        for line in input.split_inclusive(|byte| *byte == b'\n') {
            match blocks.last_mut() {
                Some(last) if last.len() + line.len() <= most => last.extend(line),
                _ => blocks.push(line.to_vec()),
            }
        }
        blocks
    }

    /// Reads a byte or a few at a time.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let most = self.1.min(into.len());
            self.0.read(&mut into[..most])
        }
    }

    proptest! {
        #[test]
        fn blocks_are_as_many_whole_lines_as_fit(
            input in "[ab\n]{0,60}", most in 1usize..12, at_once in 1usize..20,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let input = input.as_bytes();
            let count = divide(Slow(input, at_once), dir.path(), most as u64).unwrap();
            let read = |number: u64| std::fs::read(dir.path().join(number.to_string())).unwrap();
            let found: Vec<Vec<u8>> = (1..=count).map(read).collect();
            prop_assert_eq!(found, blocks(input, most));
            prop_assert_eq!(std::fs::read_dir(dir.path()).unwrap().count() as u64, count);
        }
    }
}
