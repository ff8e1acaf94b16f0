//! FITS images of 32-bit floating point numbers: written whole, read by rows.

pub(crate) mod header;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::files::{FileError, failed};
use header::{BLOCK_BYTES, Header, HeaderError, block_ends_header, starts_as_fits};

/// A header longer than this is refused: real ones have tens of blocks at most.
const HEADER_BLOCKS_MAX: usize = 1024;
const PIXEL_BYTES: u64 = 4;

/// An image could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FitsError {
    /// The file could not be opened or read.
    #[error(transparent)]
    File(FileError),
    /// The header is wrong.
    #[error("{path}: {source}")]
    Header { path: PathBuf, source: HeaderError },
    /// An array that this program does not read.
    #[error(
        "{path}: {what}; only two-dimensional images of 32-bit floating point numbers (BITPIX = \
         -32, NAXIS = 2) in the primary array are read"
    )]
    Unsupported { path: PathBuf, what: String },
    /// The file is shorter than its header says.
    #[error(
        "{path}: the file is truncated: its header asks for {needed_bytes} bytes, it has \
         {found_bytes}; copy or generate it again"
    )]
    Truncated { path: PathBuf, needed_bytes: u64, found_bytes: u64 },
}

/// The bytes of a FITS file with one image; `pixels` are its rows of `width`, the lowest first.
pub(crate) fn encode(header: &Header, width: usize, pixels: &[f32]) -> Vec<u8> {
    let height = pixels.len() / width.max(1);
    let mut bytes = header.encode(width, height);
    bytes.reserve_exact((pixels.len() * PIXEL_BYTES as usize).next_multiple_of(BLOCK_BYTES));
    bytes.extend(pixels.iter().flat_map(|pixel| pixel.to_be_bytes()));
    bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
    bytes
}

/// An open image: the header is read, the pixels are not.
#[derive(Debug)]
pub(crate) struct Image<R> {
    stream: R,
    path: PathBuf,
    header: Header,
    data_offset: u64,
    width: usize,
    height: usize,
    scale: f64,
    zero: f64,
}

impl Image<File> {
    /// Opens a file and reads its header.
    pub(crate) fn open(path: &Path) -> Result<Image<File>, FitsError> {
        let file = File::open(path).map_err(failed("open", path)).map_err(FitsError::File)?;
        Image::new(file, path)
    }
}

impl<R: Read + Seek> Image<R> {
    /// Reads the header from a stream; `path` names it in errors.
    pub(crate) fn new(mut stream: R, path: &Path) -> Result<Image<R>, FitsError> {
        let read_failed = |source| FitsError::File(failed("read", path)(source));
        let wrong_header = |source| FitsError::Header { path: path.to_owned(), source };
        let unsupported = |what| FitsError::Unsupported { path: path.to_owned(), what };

        let blocks = read_header_blocks(&mut stream).map_err(read_failed)?;
        let header = Header::parse(&blocks).map_err(wrong_header)?;
        for (keyword, wanted) in [("BITPIX", -32), ("NAXIS", 2)] {
            let found = header.integer(keyword).map_err(wrong_header)?;
            if found != wanted {
                return Err(unsupported(format!("{keyword} is {found}")));
            }
        }
        let side = |keyword: &'static str| {
            let pixels = header.integer(keyword).map_err(wrong_header)?;
            usize::try_from(pixels).map_err(|_| unsupported(format!("{keyword} is {pixels}")))
        };
        let (width, height) = (side("NAXIS1")?, side("NAXIS2")?);
        let data_offset = blocks.len() as u64;
        let needed_bytes = (width as u64)
            .checked_mul(height as u64)
            .and_then(|pixels| pixels.checked_mul(PIXEL_BYTES))
            .and_then(|bytes| bytes.checked_add(data_offset))
            .ok_or_else(|| unsupported(format!("an image of {width} by {height} pixels")))?;
        let found_bytes = stream.seek(SeekFrom::End(0)).map_err(read_failed)?;
        if found_bytes < needed_bytes {
            let path = path.to_owned();
            return Err(FitsError::Truncated { path, needed_bytes, found_bytes });
        }
        let scale = header.real_or("BSCALE", 1.0).map_err(wrong_header)?;
        let zero = header.real_or("BZERO", 0.0).map_err(wrong_header)?;
        let path = path.to_owned();
        Ok(Image { stream, path, header, data_offset, width, height, scale, zero })
    }

    /// The cards.
    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    /// Pixels in a row.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Rows.
    pub(crate) fn height(&self) -> usize {
        self.height
    }

    /// Reads `count` rows from row `first` (counted from 0) on, and nothing else; rows beyond the
    /// image's last are left out.
    pub(crate) fn rows(&mut self, first: usize, count: usize) -> Result<Vec<f32>, FitsError> {
        let first = first.min(self.height);
        let count = count.min(self.height - first);
        // The file was found to hold all rows, so these products are below its length.
        let row_bytes = self.width as u64 * PIXEL_BYTES;
        let mut bytes = vec![0; count * row_bytes as usize];
        let offset = self.data_offset + first as u64 * row_bytes;
        self.stream
            .seek(SeekFrom::Start(offset))
            .and_then(|_| self.stream.read_exact(&mut bytes))
            .map_err(|source| FitsError::File(failed("read", &self.path)(source)))?;
        let (scale, zero) = (self.scale, self.zero);
        let pixels = bytes.chunks_exact(PIXEL_BYTES as usize).map(|pixel| {
            let value = f32::from_be_bytes([pixel[0], pixel[1], pixel[2], pixel[3]]);
            // Rounding must not touch the usual file, which is not scaled.
            if scale == 1.0 && zero == 0.0 {
                value
            } else {
                (f64::from(value) * scale + zero) as f32
            }
        });
        Ok(pixels.collect())
    }
}

/// Reads up to and including the block with the `END` card. What is read of a file that is not FITS
/// or is cut off is left to the parser to judge.
fn read_header_blocks(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut blocks = Vec::new();
    for _ in 0..HEADER_BLOCKS_MAX {
        let start = blocks.len();
        let read = stream.by_ref().take(BLOCK_BYTES as u64).read_to_end(&mut blocks)?;
        let block = &blocks[start..];
        if read < BLOCK_BYTES || !starts_as_fits(&blocks) || block_ends_header(block) {
            break;
        }
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use std::io::Cursor;

    fn sample() -> Vec<u8> {
        let mut header = Header::default();
        header.push_text("OBJECT", "test", "");
        let pixels: Vec<f32> = (0..70 * 20).map(|pixel| pixel as f32 - 0.5).collect();
        encode(&header, 70, &pixels)
    }

    fn open(bytes: Vec<u8>) -> Result<Image<Cursor<Vec<u8>>>, FitsError> {
        Image::new(Cursor::new(bytes), Path::new("test.fits"))
    }

    #[test]
    fn rows_come_back_as_they_were_written() {
        let bytes = sample();
        assert_eq!(bytes.len() % BLOCK_BYTES, 0);
        let mut image = open(bytes).unwrap();
        assert_eq!((image.width(), image.height()), (70, 20));
        let rows = image.rows(3, 2).unwrap();
        let expected: Vec<f32> = (210..350).map(|pixel| pixel as f32 - 0.5).collect();
        assert_eq!(rows, expected);
        assert_eq!(image.rows(19, 5).unwrap().len(), 70);
        assert_eq!(image.rows(usize::MAX, usize::MAX).unwrap().len(), 0);
    }

    #[test]
    fn scaled_values_are_scaled() {
        let mut header = Header::default();
        header.push_real("BSCALE", 2.0, "");
        header.push_real("BZERO", 10.0, "");
        let mut image = open(encode(&header, 2, &[1.0, 2.0])).unwrap();
        assert_eq!(image.rows(0, 1).unwrap(), [12.0, 14.0]);
    }

    #[test]
    fn what_is_wrong_with_a_file_is_told() {
        let message = |bytes: Vec<u8>| open(bytes).unwrap_err().to_string();
        let with = |from: &str, to: &str| {
            let text = sample().into_iter().map(char::from).collect::<String>();
            text.replacen(from, to, 1).chars().map(|c| c as u8).collect::<Vec<u8>>()
        };
        assert!(message(Vec::new()).contains("not a FITS file"));
        assert!(message(b"\x89PNG\r\n".repeat(1000)).contains("not a FITS file"));
        assert!(message(sample()[..2800].to_vec()).contains("truncated"));
        assert!(message(sample()[..200].to_vec()).contains("no END card"));
        assert!(message(sample()[..2880 + 70 * 20 * 4 - 1].to_vec()).contains("truncated"));
        assert!(message(with("-32", " 16")).contains("BITPIX is 16"));
        assert!(message(with("  70 /", " -70 /")).contains("NAXIS1 is -70"));
        assert!(message(with("        70 /", "9000000000 /")).contains("truncated"));
        let (wide, high) = ("              70 /", "              20 /");
        let huge = with(wide, "9000000000000000 /").into_iter().map(char::from).collect::<String>();
        let huge = huge.replacen(high, "9000000000000000 /", 1);
        assert!(message(huge.chars().map(|c| c as u8).collect()).contains("9000000000000000 by"));
    }

    #[test]
    fn damaged_files_never_panic() {
        let whole = sample();
        for round in 0..3000 {
            let mut random = Random::seeded(9, round);
            let mut bytes = whole.clone();
            if random.below(2) == 0 {
                bytes.truncate(random.below(whole.len() + 1));
            }
            for _ in 0..random.below(20) {
                let place = random.below(500);
                if let Some(byte) = bytes.get_mut(place) {
                    *byte = b" 0123456789-+.ETF'/="[random.below(20)];
                }
            }
            if let Ok(mut image) = open(bytes) {
                let _ = image.rows(random.below(30), random.below(30));
            }
        }
    }
}
