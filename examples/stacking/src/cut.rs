//! One cut-out: a square window around an object, its sky subtracted.
//!
//! The window is shifted by whole pixels only, so that the object is within half a pixel of its
//! centre. Any interpolation to the exact centre would average neighbouring pixels: the noise would
//! become smaller and correlated by an amount that depends on the shift, and the stack's
//! signal-to-noise would no longer follow √n exactly. What is left of the shift is not lost: the
//! cut-out's own world coordinates tell it, and the stack's measurement takes it into account.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};

use crate::background::{self, Background, Sample};
use crate::files::{FileError, write_whole};
use crate::fits::header::{Header, HeaderError};
use crate::fits::{self, FitsError, Image};
use crate::wcs::{MatrixForm, SkyPosition, Wcs, WcsError};

/// The smallest window that has room for an object and the sky around it.
pub(crate) const SIZE_MIN_PX: usize = 15;
/// The largest window; the whole of it is held in memory.
pub(crate) const SIZE_MAX_PX: usize = 1001;
/// The object's disc, whose pixels do not count as sky, has a radius of the size over this.
const SIZE_PER_OBJECT_RADIUS: f64 = 5.0;

/// Whether windows of this size can be cut: the object is at the centre of the middle pixel, so
/// there must be one.
pub(crate) fn size_is_legal(size_px: usize) -> bool {
    size_px % 2 == 1 && (SIZE_MIN_PX..=SIZE_MAX_PX).contains(&size_px)
}

/// Whether a pixel of a window, given by its place from the middle pixel, is sky and not object.
pub(crate) fn is_sky(size_px: usize, x: f64, y: f64) -> bool {
    x.hypot(y) > size_px as f64 / SIZE_PER_OBJECT_RADIUS
}

/// The places of a window's pixels from its middle pixel, in the order of the pixels.
pub(crate) fn places(size_px: usize) -> impl Iterator<Item = (f64, f64)> {
    let middle = (size_px / 2) as f64;
    (0..size_px).flat_map(move |row| {
        (0..size_px).map(move |column| (column as f64 - middle, row as f64 - middle))
    })
}

/// A cut-out could not be made or read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CutError {
    /// A size that cannot be cut.
    #[error(
        "a cut-out of {0} pixels cannot be made: give an odd number from {SIZE_MIN_PX} to \
         {SIZE_MAX_PX}"
    )]
    Size(usize),
    /// A declination or right ascension that is none.
    #[error("{0} is no direction: give degrees, the declination from -90 to 90")]
    Position(SkyPosition),
    /// An image or a cut-out could not be read.
    #[error(transparent)]
    Fits(FitsError),
    /// A cut-out lacks a card, or has a wrong one.
    #[error("{path}: {source}")]
    Header { path: PathBuf, source: HeaderError },
    /// The world coordinates cannot be used.
    #[error("{path}: {source}")]
    Wcs { path: PathBuf, source: WcsError },
    /// The object is not in the image.
    #[error(
        "{path}: the object at {position} is outside the image: {}",
        whereabouts(.pixel, .size)
    )]
    Outside { path: PathBuf, position: SkyPosition, pixel: Option<[f64; 2]>, size: [usize; 2] },
    /// The object is in the image, but its window is not.
    #[error(
        "{path}: the object at {position} is too near the image's edge for a cut-out of {size_px} \
         pixels; leave it out or make the cut-out smaller"
    )]
    OverEdge { path: PathBuf, position: SkyPosition, size_px: usize },
    /// The window has pixels without a value.
    #[error("{path}: pixels around the object at {position} have no value; leave it out")]
    Undefined { path: PathBuf, position: SkyPosition },
    /// All of the window's pixels are the same.
    #[error(
        "{path}: the pixels around the object at {position} are all the same, so there is no noise \
         to weigh them by; leave it out"
    )]
    NoNoise { path: PathBuf, position: SkyPosition },
    /// The cut-out could not be written.
    #[error(transparent)]
    File(FileError),
}

fn whereabouts(pixel: &Option<[f64; 2]>, [width, height]: &[usize; 2]) -> String {
    match pixel {
        None => "it is on the other side of the sky".to_owned(),
        Some([x, y]) => format!("its pixel would be ({x:.1}, {y:.1}) of {width} by {height}"),
    }
}

/// A square piece of an image with an object in the middle.
#[derive(Clone, Debug)]
pub(crate) struct Cutout {
    /// The image's file name.
    pub(crate) source: String,
    /// The object's direction.
    pub(crate) position: SkyPosition,
    /// The cut-out's own world coordinates.
    pub(crate) wcs: Wcs,
    /// Pixels along a side.
    pub(crate) size_px: usize,
    /// Rows from the lowest on; the sky is subtracted.
    pub(crate) pixels: Vec<f32>,
    /// The sky that was subtracted, and the measured noise.
    pub(crate) background: Background,
    /// The width of a point source in the image, where its header tells it.
    pub(crate) fwhm_px: Option<f64>,
    /// The noise that the image's header claims, where it does.
    pub(crate) nominal_noise: Option<f64>,
}

/// Where a window begins in its image, in columns and rows from 0. `None` if it does not fit in.
pub(crate) fn window(
    pixel: [f64; 2],
    size_px: usize,
    [width, height]: [usize; 2],
) -> Option<[usize; 2]> {
    let start = |coordinate: f64, side: usize| {
        // Pixel 1 is index 0, and the middle pixel is the one nearest to the object.
        let first = (coordinate - 0.5).floor() - (size_px / 2) as f64;
        (first >= 0.0 && first + size_px as f64 <= side as f64).then_some(first as usize)
    };
    Some([start(pixel[0], width)?, start(pixel[1], height)?])
}

impl Cutout {
    /// Cuts the object at `position` out of an image file; only the header and the window's rows are
    /// read.
    pub(crate) fn from_image(
        path: &Path,
        position: SkyPosition,
        size_px: usize,
    ) -> Result<Cutout, CutError> {
        if !size_is_legal(size_px) {
            return Err(CutError::Size(size_px));
        }
        if !position.ra_deg.is_finite() || !(-90.0..=90.0).contains(&position.dec_deg) {
            return Err(CutError::Position(position));
        }
        let mut image = Image::open(path).map_err(CutError::Fits)?;
        let wcs = Wcs::from_header(image.header())
            .map_err(|source| CutError::Wcs { path: path.to_owned(), source })?;
        let [column, row] = find_window(&image, path, &wcs, position, size_px)?;
        let width = image.width();
        let rows = image.rows(row, size_px).map_err(CutError::Fits)?;
        let raw: Vec<f32> =
            rows.chunks(width).flat_map(|row| &row[column..column + size_px]).copied().collect();
        if raw.iter().any(|pixel| !pixel.is_finite()) {
            return Err(CutError::Undefined { path: path.to_owned(), position });
        }
        let (pixels, background) = subtract_sky(&raw, size_px)
            .ok_or_else(|| CutError::NoNoise { path: path.to_owned(), position })?;
        let optional = |keyword| {
            let header = image.header();
            let read = header.has(keyword).then(|| header.real(keyword)).transpose();
            read.map_err(|source| CutError::Header { path: path.to_owned(), source })
        };
        let name = path.file_name().unwrap_or(path.as_os_str());
        Ok(Cutout {
            source: name.to_string_lossy().into_owned(),
            position,
            wcs: wcs.windowed(column, row),
            size_px,
            pixels,
            background,
            fwhm_px: optional("FWHM")?,
            nominal_noise: optional("SKYSIG")?,
        })
    }

    /// The cut-out as a FITS file.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut header = Header::default();
        header.push_text("SRCIMAGE", &self.source, "cut out of this image");
        header.push_real("RA", self.position.ra_deg, "[deg] the object's right ascension");
        header.push_real("DEC", self.position.dec_deg, "[deg] the object's declination");
        self.wcs.push_cards(&mut header, MatrixForm::Cd);
        header.push_real("BACKGND", self.background.level, "sky subtracted at the middle pixel");
        header.push_real("BACKDX", self.background.slope[0], "[1/pix] its slope along a row");
        header.push_real("BACKDY", self.background.slope[1], "[1/pix] its slope along a column");
        header.push_real("NOISE", self.background.noise, "measured noise of a pixel");
        if let Some(fwhm_px) = self.fwhm_px {
            header.push_real("FWHM", fwhm_px, "[pix] width of a point source");
        }
        if let Some(noise) = self.nominal_noise {
            header.push_real("SKYSIG", noise, "noise of a pixel as the image's header says");
        }
        fits::encode(&header, self.size_px, &self.pixels)
    }

    /// Writes the FITS file, whole or not at all.
    pub(crate) fn write(&self, path: &Path) -> Result<(), CutError> {
        write_whole(path, &self.encode()).map_err(CutError::File)
    }

    /// Reads a cut-out's file.
    pub(crate) fn open(path: &Path) -> Result<Cutout, CutError> {
        Cutout::from_stream(Image::<File>::open(path).map_err(CutError::Fits)?, path)
    }

    /// Reads a cut-out from an opened image; `path` names it in errors.
    pub(crate) fn from_stream<R: Read + Seek>(
        mut image: Image<R>,
        path: &Path,
    ) -> Result<Cutout, CutError> {
        let size_px = image.width();
        if size_px != image.height() || !size_is_legal(size_px) {
            let what = format!("{} by {} pixels are no cut-out", size_px, image.height());
            let path = path.to_owned();
            return Err(CutError::Fits(FitsError::Unsupported { path, what }));
        }
        let pixels = image.rows(0, size_px).map_err(CutError::Fits)?;
        let wrong = |source| CutError::Header { path: path.to_owned(), source };
        let header = image.header();
        let real = |keyword| header.real(keyword).map_err(wrong);
        let optional =
            |keyword| header.has(keyword).then(|| header.real(keyword)).transpose().map_err(wrong);
        let position = SkyPosition { ra_deg: real("RA")?, dec_deg: real("DEC")? };
        if pixels.iter().any(|pixel| !pixel.is_finite()) {
            return Err(CutError::Undefined { path: path.to_owned(), position });
        }
        let background = Background {
            level: real("BACKGND")?,
            slope: [real("BACKDX")?, real("BACKDY")?],
            noise: real("NOISE")?,
        };
        if background.noise <= 0.0 {
            return Err(CutError::NoNoise { path: path.to_owned(), position });
        }
        let wcs = Wcs::from_header(header)
            .map_err(|source| CutError::Wcs { path: path.to_owned(), source })?;
        Ok(Cutout {
            source: header.text("SRCIMAGE").map_err(wrong)?.to_owned(),
            position,
            wcs,
            size_px,
            pixels,
            background,
            fwhm_px: optional("FWHM")?,
            nominal_noise: optional("SKYSIG")?,
        })
    }
}

fn find_window<R: Read + Seek>(
    image: &Image<R>,
    path: &Path,
    wcs: &Wcs,
    position: SkyPosition,
    size_px: usize,
) -> Result<[usize; 2], CutError> {
    let path = path.to_owned();
    let size = [image.width(), image.height()];
    let pixel = wcs.to_pixel(position);
    // A pixel reaches half a unit to either side of its centre.
    let inside = |[x, y]: &[f64; 2]| {
        (0.5..size[0] as f64 + 0.5).contains(x) && (0.5..size[1] as f64 + 0.5).contains(y)
    };
    match pixel.filter(inside) {
        None => Err(CutError::Outside { path, position, pixel, size }),
        Some(inside) => {
            window(inside, size_px, size).ok_or(CutError::OverEdge { path, position, size_px })
        }
    }
}

/// Fits the sky around the object and takes it off everywhere.
fn subtract_sky(raw: &[f32], size_px: usize) -> Option<(Vec<f32>, Background)> {
    let sky: Vec<Sample> = places(size_px)
        .zip(raw)
        .filter(|((x, y), _)| is_sky(size_px, *x, *y))
        .map(|((x, y), value)| Sample { x, y, value: f64::from(*value) })
        .collect();
    let background = background::fit(&sky)?;
    let pixels = places(size_px)
        .zip(raw)
        .map(|((x, y), value)| (f64::from(*value) - background.at(x, y)) as f32)
        .collect();
    Some((pixels, background))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use std::io::Cursor;

    #[test]
    fn a_window_has_the_nearest_pixel_in_its_middle() {
        assert_eq!(window([8.0, 8.0], 15, [15, 15]), Some([0, 0]));
        assert_eq!(window([8.49, 7.5], 15, [15, 15]), Some([0, 0]));
        assert_eq!(window([8.5, 8.0], 15, [15, 15]), None);
        assert_eq!(window([7.49, 8.0], 15, [15, 15]), None);
        assert_eq!(window([100.2, 50.7], 15, [200, 200]), Some([92, 43]));
        assert_eq!(window([f64::MAX, 8.0], 15, [15, 15]), None);
        assert_eq!(window([8.0, f64::NAN], 15, [15, 15]), None);
    }

    #[test]
    fn a_cutout_comes_back_as_it_was_written() {
        let mut random = Random::seeded(2, 0);
        let position = SkyPosition { ra_deg: 150.123, dec_deg: -2.5 };
        let cutout = Cutout {
            source: "img-001.fits".to_owned(),
            position,
            wcs: Wcs::turned(position, [8.3, 7.9], 1e-4, 3.0).unwrap(),
            size_px: 15,
            pixels: (0..225).map(|_| random.normal() as f32).collect(),
            background: Background { level: 99.7, slope: [0.01, -1e-7], noise: 9.9 },
            fwhm_px: Some(3.5),
            nominal_noise: None,
        };
        let read = |bytes| {
            let path = Path::new("cut.fits");
            Cutout::from_stream(Image::new(Cursor::new(bytes), path).unwrap(), path).unwrap()
        };
        let back = read(cutout.encode());
        assert_eq!(back.encode(), cutout.encode());
        assert_eq!((back.position, back.wcs), (cutout.position, cutout.wcs));
        assert_eq!(back.pixels, cutout.pixels);
    }

    #[test]
    fn an_object_is_cut_out_where_it_is() {
        let folder = std::env::temp_dir().join(format!("stacking-cut-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("image.fits");
        let mut random = Random::seeded(4, 0);
        let reference = SkyPosition { ra_deg: 10.0, dec_deg: 60.0 };
        let wcs = Wcs::turned(reference, [40.0, 30.0], 1e-4, 25.0).unwrap();
        let object = [50.3, 41.8];
        let pixel_value = |x: f64, y: f64, noise: f64| {
            let square = (x - object[0]).powi(2) + (y - object[1]).powi(2);
            (100.0 + 0.5 * x - 0.2 * y + 50.0 * (-square / 4.0).exp() + 0.1 * noise) as f32
        };
        let pixels: Vec<f32> = (0..80 * 60)
            .map(|k| pixel_value((k % 80 + 1) as f64, (k / 80 + 1) as f64, random.normal()))
            .collect();
        let mut header = Header::default();
        wcs.push_cards(&mut header, MatrixForm::PcAndCdelt);
        std::fs::write(&path, fits::encode(&header, 80, &pixels)).unwrap();

        let sky = wcs.to_sky(object);
        let cutout = Cutout::from_image(&path, sky, 25).unwrap();
        let [x, y] = cutout.wcs.to_pixel(sky).unwrap();
        assert!((x - 13.3).abs() < 1e-6 && (y - 12.8).abs() < 1e-6, "({x}, {y})");
        let brightest = (0..625).max_by(|a, b| cutout.pixels[*a].total_cmp(&cutout.pixels[*b]));
        assert_eq!(brightest, Some(12 * 25 + 12));
        let expected = 50.0 * (-(0.3_f32.powi(2) + 0.2_f32.powi(2)) / 4.0).exp();
        assert!((cutout.pixels[12 * 25 + 12] - expected).abs() < 0.5);
        assert!((cutout.background.noise - 0.1).abs() < 0.03, "{:?}", cutout.background);

        let error = |sky, size| Cutout::from_image(&path, sky, size).unwrap_err();
        assert!(matches!(error(sky, 24), CutError::Size(24)));
        assert!(matches!(error(wcs.to_sky([5.0, 30.0]), 25), CutError::OverEdge { .. }));
        assert!(matches!(error(wcs.to_sky([85.0, 30.0]), 25), CutError::Outside { .. }));
        let far = SkyPosition { ra_deg: 190.0, dec_deg: -60.0 };
        assert!(matches!(error(far, 25), CutError::Outside { pixel: None, .. }));
        let no_direction = SkyPosition { ra_deg: f64::NAN, dec_deg: 0.0 };
        assert!(matches!(error(no_direction, 25), CutError::Position(_)));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
