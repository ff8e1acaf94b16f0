//! A made-up survey: many overlapping exposures of one patch of sky, with faint objects in it whose
//! positions and brightnesses are known, and bright stars away from them.
//!
//! Everything follows from a seed. The whole plan is made first and is small; images are then drawn
//! one by one, each from a random stream of its own.

use crate::catalogue::{Object, PlannedCut};
use crate::cut::window;
use crate::fits::header::Header;
use crate::fits::{self};
use crate::random::Random;
use crate::wcs::{MatrixForm, SkyPosition, Wcs, WcsError};

/// Where the patch is: the COSMOS field.
const PATCH: SkyPosition = SkyPosition { ra_deg: 150.1163, dec_deg: 2.2058 };
/// The pixel scale, that of SDSS.
const SCALE_DEG_PER_PX: f64 = 0.396 / 3600.0;
/// The width of a point source.
const FWHM_PX: f64 = 3.5;
/// A Gaussian's full width at half maximum over its standard deviation: √(8 ln 2).
pub(crate) const FWHM_PER_SIGMA: f64 = 2.354_820_045_030_949;
/// A source is drawn out to here; beyond, it is 10⁻⁹ of its peak.
const SOURCE_RADIUS_SIGMAS: f64 = 6.5;

/// Pixels along a side of a cut-out.
pub(crate) const CUT_SIZE_PX: usize = 41;
/// An object's share of the sky, a square of this side. Cut-outs of neighbours do not overlap, so
/// the noise of one is independent of the noise of any other.
const OBJECT_CELL_PX: f64 = 70.0;
/// How far an object is off the centre of its square, at most, along each side.
const OBJECT_JITTER_PX: f64 = 12.0;
/// Bright stars keep this far from objects: out of their cut-outs.
const STAR_DISTANCE_MIN_PX: f64 = 48.0;
const STARS: usize = 60;
/// A star finds no place after so many attempts: the sky is full of objects.
const STAR_ATTEMPTS_MAX: usize = 100;

/// Peaks of the objects; a quarter of the noise of a pixel.
const OBJECT_PEAK: (f64, f64) = (2.0, 3.0);
/// Peaks of the stars, spread evenly in their logarithm.
const STAR_PEAK: (f64, f64) = (100.0, 6000.0);
/// Noise of a pixel; nights differ.
const NOISE: (f64, f64) = (8.0, 12.0);
const SKY_LEVEL: (f64, f64) = (80.0, 140.0);
/// The sky's rise per pixel, along rows and along columns.
const SKY_SLOPE: (f64, f64) = (-0.03, 0.03);
const ROTATION_DEG: (f64, f64) = (-3.0, 3.0);
/// How far the reference pixel is off the image's centre.
const REFERENCE_PX: (f64, f64) = (-20.0, 20.0);

const EXPOSURE_SECONDS: f64 = 53.9;
/// Time between the starts of two exposures.
const CADENCE_SECONDS: f64 = 90.0;
const EXPOSURES_PER_NIGHT: usize = 200;
/// 2009-03-14T04:00:00, as a modified Julian date.
const FIRST_EXPOSURE_MJD: f64 = 54_904.0 + 4.0 / 24.0;
const SECONDS_PER_DAY: f64 = 86_400.0;

/// The random stream of the plan; image k has stream k + 1.
const PLAN_STREAM: u64 = 0;

/// What the survey shall be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SurveySize {
    pub(crate) images: usize,
    pub(crate) objects: usize,
    pub(crate) image_size_px: usize,
    pub(crate) seed: u64,
}

/// A point source in the sky.
#[derive(Clone, Copy, Debug)]
struct Source {
    position: SkyPosition,
    peak: f64,
}

/// One exposure, before it is drawn.
#[derive(Clone, Debug)]
struct Exposure {
    header: Header,
    /// As read back from the header, so that the plan and every reader calculate alike.
    wcs: Wcs,
    sky_level: f64,
    sky_slope: [f64; 2],
    noise: f64,
}

/// The plan of a survey.
#[derive(Clone, Debug)]
pub(crate) struct Survey {
    size: SurveySize,
    objects: Vec<Object>,
    stars: Vec<Source>,
    exposures: Vec<Exposure>,
}

impl Survey {
    /// Plans a survey.
    pub(crate) fn plan(size: SurveySize) -> Result<Survey, WcsError> {
        let mut random = Random::seeded(size.seed, PLAN_STREAM);
        // A plane over the whole patch, in which everything gets its place.
        let patch = Wcs::turned(PATCH, [0.0, 0.0], SCALE_DEG_PER_PX, 0.0)?;
        let cells = size.objects.isqrt() + usize::from(size.objects.isqrt().pow(2) < size.objects);
        let objects_reach = cells as f64 * OBJECT_CELL_PX / 2.0;
        let places = object_places(size.objects, cells, &mut random);
        let objects = places
            .iter()
            .enumerate()
            .map(|(number, place)| Object {
                id: format!("obj-{number:04}"),
                position: patch.to_sky(*place),
                // Rounded, so that the catalogue is a nice one to read.
                true_peak: (random.between(OBJECT_PEAK.0, OBJECT_PEAK.1) * 1000.0).round() / 1000.0,
            })
            .collect();
        let half_px = size.image_size_px as f64 / 2.0;
        // Any point of the objects' square then falls into an image with the same probability.
        let centres_reach = objects_reach + half_px - (CUT_SIZE_PX / 2 + 1) as f64;
        let stars = place_stars(&places, centres_reach + half_px, &patch, &mut random);
        let exposures = (0..size.images)
            .map(|number| plan_exposure(number, size, centres_reach, &patch, &mut random))
            .collect::<Result<Vec<Exposure>, WcsError>>()?;
        Ok(Survey { size, objects, stars, exposures })
    }

    /// The faint objects.
    pub(crate) fn objects(&self) -> &[Object] {
        &self.objects
    }

    /// The number of images.
    pub(crate) fn images(&self) -> usize {
        self.exposures.len()
    }

    /// An image's path in the survey's folder.
    pub(crate) fn image_path(&self, number: usize) -> String {
        format!("images/img-{number:04}.fits")
    }

    /// The cut-outs: every object in every image that holds it, one object after the other.
    pub(crate) fn cuts(&self) -> Vec<PlannedCut> {
        let mut cuts = Vec::new();
        let side = self.size.image_size_px;
        for object in &self.objects {
            for (number, exposure) in self.exposures.iter().enumerate() {
                let pixel = exposure.wcs.to_pixel(object.position);
                if pixel.and_then(|pixel| window(pixel, CUT_SIZE_PX, [side, side])).is_some() {
                    cuts.push(PlannedCut {
                        cut: format!("cuts/cut-{:05}.fits", cuts.len()).into(),
                        image: self.image_path(number).into(),
                        position: object.position,
                        size_px: CUT_SIZE_PX,
                    });
                }
            }
        }
        cuts
    }

    /// Draws an image and gives its FITS file.
    pub(crate) fn draw(&self, number: usize) -> Vec<u8> {
        let exposure = &self.exposures[number];
        let side = self.size.image_size_px;
        let mut random = Random::seeded(self.size.seed, number as u64 + 1);
        let mut pixels = Vec::with_capacity(side * side);
        for row in 0..side {
            let level = exposure.sky_level + exposure.sky_slope[1] * row as f64;
            pixels.extend((0..side).map(|column| {
                let sky = level + exposure.sky_slope[0] * column as f64;
                (sky + exposure.noise * random.normal()) as f32
            }));
        }
        let objects =
            self.objects.iter().map(|o| Source { position: o.position, peak: o.true_peak });
        for source in objects.chain(self.stars.iter().copied()) {
            if let Some(pixel) = exposure.wcs.to_pixel(source.position) {
                add_source(&mut pixels, side, pixel, source.peak);
            }
        }
        fits::encode(&exposure.header, side, &pixels)
    }
}

/// A place for each object: about the centres of the squares of a chequer board, row by row.
fn object_places(objects: usize, cells: usize, random: &mut Random) -> Vec<[f64; 2]> {
    let mut along = |cell: usize| {
        let centre = (cell as f64 + 0.5 - cells as f64 / 2.0) * OBJECT_CELL_PX;
        centre + random.between(-OBJECT_JITTER_PX, OBJECT_JITTER_PX)
    };
    (0..objects).map(|object| [along(object % cells), along(object / cells)]).collect()
}

fn place_stars(objects: &[[f64; 2]], reach: f64, patch: &Wcs, random: &mut Random) -> Vec<Source> {
    let is_free = |[x, y]: &[f64; 2]| {
        objects.iter().all(|[ox, oy]| (x - ox).hypot(y - oy) >= STAR_DISTANCE_MIN_PX)
    };
    let mut stars = Vec::with_capacity(STARS);
    for _ in 0..STARS {
        let place = (0..STAR_ATTEMPTS_MAX)
            .map(|_| [random.between(-reach, reach), random.between(-reach, reach)])
            .find(is_free);
        let peak = random.between(STAR_PEAK.0.ln(), STAR_PEAK.1.ln()).exp();
        stars.extend(place.map(|place| Source { position: patch.to_sky(place), peak }));
    }
    stars
}

fn plan_exposure(
    number: usize,
    size: SurveySize,
    centres_reach: f64,
    patch: &Wcs,
    random: &mut Random,
) -> Result<Exposure, WcsError> {
    let mut draw = |(low, high): (f64, f64)| random.between(low, high);
    let rotation_deg = draw(ROTATION_DEG);
    let off_centre = [draw(REFERENCE_PX), draw(REFERENCE_PX)];
    let reach = (-centres_reach, centres_reach);
    let centre = [draw(reach), draw(reach)];
    // The reference pixel is off the image's centre, so the pointing is off the same way.
    let pointing = patch.to_sky([centre[0] + off_centre[0], centre[1] + off_centre[1]]);
    let middle_px = (size.image_size_px + 1) as f64 / 2.0;
    let reference_px = off_centre.map(|off| middle_px + off);
    let wcs = Wcs::turned(pointing, reference_px, SCALE_DEG_PER_PX, rotation_deg)?;
    let noise = (draw(NOISE) * 1000.0).round() / 1000.0;
    let header = exposure_header(number, size.seed, &wcs, noise);
    Ok(Exposure {
        wcs: Wcs::from_header(&header)?,
        header,
        sky_level: draw(SKY_LEVEL),
        sky_slope: [draw(SKY_SLOPE), draw(SKY_SLOPE)],
        noise,
    })
}

fn exposure_header(number: usize, seed: u64, wcs: &Wcs, noise: f64) -> Header {
    let night = (number / EXPOSURES_PER_NIGHT) as f64;
    let seconds = (number % EXPOSURES_PER_NIGHT) as f64 * CADENCE_SECONDS;
    let mjd = FIRST_EXPOSURE_MJD + night + seconds / SECONDS_PER_DAY;
    let mut header = Header::default();
    header.push_text("OBJECT", "COSMOS patch", "what the telescope looked at");
    header.push_text("ORIGIN", "stacking generate", "a made-up image");
    header.push_text("SEED", &seed.to_string(), "of the survey it belongs to");
    header.push_integer("EXPNUM", number as i64, "number of the exposure");
    header.push_text("FILTER", "r", "");
    header.push_real("EXPTIME", EXPOSURE_SECONDS, "[s] exposure time");
    header.push_text("DATE-OBS", &date_time(mjd), "UTC at the start");
    header.push_real("MJD-OBS", mjd, "[d] the same as a modified Julian date");
    header.push_text("BUNIT", "adu", "unit of the pixels");
    // Both ways of writing the matrix occur in real archives, so both occur here.
    let form = if number.is_multiple_of(2) { MatrixForm::Cd } else { MatrixForm::PcAndCdelt };
    wcs.push_cards(&mut header, form);
    header.push_real("FWHM", FWHM_PX, "[pix] width of a point source");
    header.push_real("SKYSIG", noise, "[adu] noise of a pixel");
    header
}

/// A modified Julian date as FITS writes dates, to the second (Hinnant's `civil_from_days`).
fn date_time(mjd: f64) -> String {
    let seconds = (mjd * SECONDS_PER_DAY).round() as i64;
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days from 0000-03-01 on; day 0 of the modified Julian date is 1858-11-17.
    let day = days + 678_881;
    let era = day.div_euclid(146_097);
    let day_of_era = day.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day_of_month:02}T{hour:02}:{minute:02}:{second:02}")
}

/// Adds a Gaussian to a square image.
fn add_source(pixels: &mut [f32], side: usize, [x, y]: [f64; 2], peak: f64) {
    let sigma = FWHM_PX / FWHM_PER_SIGMA;
    let reach = SOURCE_RADIUS_SIGMAS * sigma;
    // Indices are a pixel's coordinates less one; what lies outside the image is clamped away.
    let range = |coordinate: f64| {
        let index = |at: f64| at.clamp(0.0, side as f64) as usize;
        index((coordinate - 1.0 - reach).ceil())..index((coordinate + reach).floor())
    };
    for row in range(y) {
        let dy = row as f64 + 1.0 - y;
        for column in range(x) {
            let dx = column as f64 + 1.0 - x;
            let value = peak * (-(dx * dx + dy * dy) / (2.0 * sigma * sigma)).exp();
            pixels[row * side + column] += value as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: SurveySize = SurveySize { images: 40, objects: 5, image_size_px: 128, seed: 1 };

    #[test]
    fn the_same_seed_draws_the_same_bytes() {
        let draw = |size| Survey::plan(size).unwrap().draw(7);
        assert_eq!(draw(SMALL), draw(SMALL));
        assert_ne!(draw(SMALL), draw(SurveySize { seed: 2, ..SMALL }));
    }

    #[test]
    fn objects_keep_apart_from_each_other_and_from_stars() {
        for seed in 0..20 {
            let survey = Survey::plan(SurveySize { seed, objects: 30, ..SMALL }).unwrap();
            assert!(survey.stars.len() > STARS / 2);
            for (number, object) in survey.objects.iter().enumerate() {
                let far = |other: SkyPosition, px: f64| {
                    object.position.separation_deg(other) > px * SCALE_DEG_PER_PX * 0.999
                };
                assert!(survey.objects[..number].iter().all(|o| far(o.position, 46.0)), "{seed}");
                assert!(survey.stars.iter().all(|s| far(s.position, 48.0)), "seed {seed}");
            }
        }
    }

    #[test]
    fn cutouts_are_as_many_as_the_geometry_says() {
        let size = SurveySize { images: 400, objects: 16, image_size_px: 320, seed: 1 };
        let cuts = Survey::plan(size).unwrap().cuts();
        // An image holds a share of (139 / 279)² of the positions that objects can have.
        assert!((1500..1700).contains(&cuts.len()), "{}", cuts.len());
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date_time(54_904.0 + 4.0 / 24.0), "2009-03-14T04:00:00");
        assert_eq!(date_time(0.0), "1858-11-17T00:00:00");
        assert_eq!(date_time(51_603.999_988_425_93), "2000-02-29T23:59:59");
        assert_eq!(date_time(60_310.0), "2024-01-01T00:00:00");
    }

    #[test]
    fn a_source_on_the_edge_is_drawn_as_far_as_the_image_goes() {
        for (x, y) in [(0.6, 5.0), (10.4, 10.4), (-3.0, 20.0), (1e9, -1e9), (-1e300, 5.0)] {
            let mut pixels = vec![0.0; 100];
            add_source(&mut pixels, 10, [x, y], 100.0);
            for (index, pixel) in pixels.iter().enumerate() {
                let (dx, dy) = ((index % 10 + 1) as f64 - x, (index / 10 + 1) as f64 - y);
                let sigma = FWHM_PX / FWHM_PER_SIGMA;
                let expected = 100.0 * (-(dx * dx + dy * dy) / (2.0 * sigma * sigma)).exp();
                assert!((f64::from(*pixel) - expected).abs() < 1e-5, "{index} of ({x}, {y})");
            }
        }
    }
}
