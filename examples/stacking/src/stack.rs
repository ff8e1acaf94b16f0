//! Adds up cut-outs, measures what comes out and judges it.

pub(crate) mod check;
pub(crate) mod measure;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use crate::catalogue::{ListError, Object, read_cuts, read_objects};
use crate::cut::{CutError, Cutout};
use crate::files::{FileError, failed, write_whole};
use crate::fits;
use crate::fits::header::Header;
use crate::picture::{self, PictureError};
use crate::random::Random;
use crate::survey::FWHM_PER_SIGMA;
use check::{Check, check};
use measure::{Filter, MEMBERS_MIN, Measurement, Member, Stack, measure};

/// The order in which cut-outs are dealt out to groups is that of this seed, always.
const ORDER_SEED: u64 = 1;
/// An object of the catalogue is a cut-out's object if it is not further away than this.
const MATCH_DISTANCE_MAX_DEG: f64 = 0.5 / 3600.0;
/// Frames and stacks shown in the picture.
const PANELS: u32 = 4;

/// What to stack and where to write the results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StackOptions {
    /// A folder of cut-outs, or a list of them.
    pub(crate) cuts: PathBuf,
    pub(crate) catalogue: PathBuf,
    pub(crate) out: PathBuf,
    pub(crate) png: PathBuf,
    pub(crate) table: PathBuf,
}

/// Cut-outs could not be stacked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StackError {
    /// A list or the catalogue could not be read.
    #[error(transparent)]
    List(ListError),
    /// A cut-out could not be read.
    #[error(transparent)]
    Cut(CutError),
    /// A folder could not be read, or a result not be written.
    #[error(transparent)]
    File(FileError),
    /// The picture could not be drawn.
    #[error(transparent)]
    Picture(PictureError),
    /// There are too few cut-outs to see how the noise averages out.
    #[error("{cuts}: {found} cut-outs are too few to stack; {MEMBERS_MIN} are needed at least")]
    TooFew { cuts: PathBuf, found: usize },
    /// Two cut-outs are not of one size.
    #[error(
        "{path}: the cut-out has {size_px} pixels along a side, others have {others_px}; cut all \
         out with one size"
    )]
    Size { path: PathBuf, size_px: usize, others_px: usize },
    /// A cut-out lacks what the measurement needs.
    #[error(
        "{path}: the cut-out has no {keyword} above 0, as its image had none; add the card to the \
         image's header and cut it out again"
    )]
    NoCard { path: PathBuf, keyword: &'static str },
    /// A cut-out's object is not in the catalogue.
    #[error("{path}: the cut-out's object is not in the catalogue {catalogue}")]
    Unknown { path: PathBuf, catalogue: PathBuf },
    /// A cut-out's object is not in its middle.
    #[error("{0}: the cut-out's object is not in its middle; cut it out again")]
    OffCentre(PathBuf),
}

/// What a stack came to.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    /// For people: the table and the findings.
    pub(crate) report: String,
    /// Whether all findings are as they must be.
    pub(crate) passed: bool,
}

/// Reads cut-outs, stacks them and writes the results. These are written whether or not the checks
/// pass.
pub(crate) fn stack(options: &StackOptions) -> Result<Outcome, StackError> {
    let paths = cutout_paths(&options.cuts)?;
    let objects = read_objects(&options.catalogue).map_err(StackError::List)?;
    let cutouts = paths
        .into_iter()
        .map(|path| Ok((Cutout::open(&path).map_err(StackError::Cut)?, path)))
        .collect::<Result<Vec<_>, StackError>>()?;
    stack_cutouts(cutouts, &objects, options)
}

/// Stacks cut-outs that were read already, each with the path that names it in errors.
pub(crate) fn stack_cutouts(
    cutouts: Vec<(Cutout, PathBuf)>,
    objects: &[Object],
    options: &StackOptions,
) -> Result<Outcome, StackError> {
    if cutouts.len() < MEMBERS_MIN {
        return Err(StackError::TooFew { cuts: options.cuts.clone(), found: cutouts.len() });
    }
    let size_px = cutouts[0].0.size_px;
    let mut members = cutouts
        .into_iter()
        .map(|(cutout, path)| member(cutout, path, size_px, objects, &options.catalogue))
        .collect::<Result<Vec<Member>, StackError>>()?;
    Random::seeded(ORDER_SEED, 0).shuffle(&mut members);
    let measured = measure(&members, size_px);
    let checks = check(&measured);

    let filter = Filter::new(&members, size_px);
    let mut shown: Vec<Stack> =
        panel_sizes(members.len()).into_iter().map(|n| filter.stack(&members[..n])).collect();
    shown.push(measured.whole.clone());
    let png = picture::draw(&shown, &measured.levels, size_px).map_err(StackError::Picture)?;
    for (path, bytes) in [
        (&options.out, stack_to_fits(&measured, size_px)),
        (&options.png, png),
        (&options.table, table_to_csv(&measured).into_bytes()),
    ] {
        write_whole(path, &bytes).map_err(StackError::File)?;
    }
    let passed = checks.iter().all(|check| check.passed);
    Ok(Outcome { report: report(&measured, &checks), passed })
}

/// The cut-outs of a folder in the order of their names, or of a list in its order.
fn cutout_paths(cuts: &Path) -> Result<Vec<PathBuf>, StackError> {
    if !cuts.is_dir() {
        let folder = cuts.parent().unwrap_or(Path::new(""));
        let planned = read_cuts(cuts).map_err(StackError::List)?;
        return Ok(planned.into_iter().map(|planned| folder.join(planned.cut)).collect());
    }
    let unreadable = |source| StackError::File(failed("read the folder", cuts)(source));
    let mut paths = Vec::new();
    for entry in fs::read_dir(cuts).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "fits") {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

fn member(
    cutout: Cutout,
    path: PathBuf,
    size_px: usize,
    objects: &[Object],
    catalogue: &Path,
) -> Result<Member, StackError> {
    if cutout.size_px != size_px {
        return Err(StackError::Size { path, size_px: cutout.size_px, others_px: size_px });
    }
    let card = |value: Option<f64>, keyword| {
        let above_zero = value.filter(|value| *value > 0.0);
        above_zero.ok_or_else(|| StackError::NoCard { path: path.clone(), keyword })
    };
    let sigma_px = card(cutout.fwhm_px, "FWHM")? / FWHM_PER_SIGMA;
    let nominal_noise = card(cutout.nominal_noise, "SKYSIG")?;
    let distance = |object: &&Object| object.position.separation_deg(cutout.position);
    let object = objects
        .iter()
        .min_by(|a, b| distance(a).total_cmp(&distance(b)))
        .filter(|object| distance(object) <= MATCH_DISTANCE_MAX_DEG);
    let Some(object) = object else {
        return Err(StackError::Unknown { path, catalogue: catalogue.to_owned() });
    };
    // Rounding to the nearest pixel may have gone either way in the last digit.
    let middle = (size_px / 2 + 1) as f64;
    let offset_px = cutout.wcs.to_pixel(cutout.position).map(|[x, y]| [x - middle, y - middle]);
    let offset_px = offset_px.filter(|offset| offset.iter().all(|along| along.abs() < 0.501));
    let Some(offset_px) = offset_px else {
        return Err(StackError::OffCentre(path));
    };
    Ok(Member {
        pixels: cutout.pixels,
        offset_px,
        sigma_px,
        weight: cutout.background.noise.powi(-2),
        nominal_noise,
        true_peak: object.true_peak,
    })
}

/// How many cut-outs the picture's panels before the last hold: 1, and powers of two evenly spread
/// up to `total`, without repetition.
fn panel_sizes(total: usize) -> Vec<usize> {
    let steps = f64::from(PANELS - 1);
    let power = |panel: u32| ((total as f64).log2() * f64::from(panel) / steps).round();
    let mut sizes: Vec<usize> = (0..PANELS - 1).map(|panel| power(panel).exp2() as usize).collect();
    sizes.dedup();
    sizes.retain(|n| *n < total);
    sizes
}

fn stack_to_fits(measured: &Measurement, size_px: usize) -> Vec<u8> {
    let Measurement { whole, true_peak, slope, .. } = measured;
    let mut header = Header::default();
    header.push_text("OBJECT", "stack", "");
    header.push_text("BUNIT", "adu", "unit of the pixels");
    header.push_integer("NCOMBINE", whole.n as i64, "number of cut-outs");
    let mut push = |keyword, value: f64, comment| {
        if value.is_finite() {
            header.push_real(keyword, value, comment);
        }
    };
    push("PEAK", whole.peak, "[adu] the source's peak, by matched filter");
    push("PEAKERR", whole.peak_error, "[adu] its standard error");
    push("TRUEPEAK", *true_peak, "[adu] the peak by the catalogue");
    push("SNR", whole.peak / whole.peak_error, "signal-to-noise");
    push("SKYRMS", whole.pixel_noise, "[adu] noise of a pixel");
    if let Some(slope) = slope {
        push("SLOPE", slope.value, "of ln(S/N) against ln n");
        push("SLOPEERR", slope.error, "its standard error");
    }
    let pixels: Vec<f32> = whole.pixels.iter().map(|pixel| *pixel as f32).collect();
    fits::encode(&header, size_px, &pixels)
}

fn table_to_csv(measured: &Measurement) -> String {
    let mut text = "n,groups,signal,noise,sn,sn_expected,ratio,scatter\n".to_owned();
    for level in &measured.levels {
        let (n, groups, sn) = (level.n, level.groups, level.sn());
        let scatter = level.scatter.map(|scatter| format!("{scatter:.6}")).unwrap_or_default();
        text += &format!(
            "{n},{groups},{:.6},{:.6},{sn:.6},{:.6},{:.6},{scatter}\n",
            level.signal,
            level.noise,
            level.expected_sn,
            sn / level.expected_sn,
        );
    }
    text
}

fn report(measured: &Measurement, checks: &[Check]) -> String {
    let mut text = format!(
        "{:>7} {:>7} {:>8} {:>8} {:>8} {:>8} {:>7} {:>8}\n",
        "n", "groups", "signal", "noise", "S/N", "expected", "ratio", "scatter"
    );
    for level in &measured.levels {
        let scatter = level.scatter.map_or("-".to_owned(), |scatter| format!("{scatter:.4}"));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:>7} {:>7} {:>8.4} {:>8.4} {:>8.3} {:>8.3} {:>7.3} {scatter:>8}",
            level.n,
            level.groups,
            level.signal,
            level.noise,
            level.sn(),
            level.expected_sn,
            level.sn() / level.expected_sn,
        );
    }
    text.push('\n');
    for check in checks {
        let _ = writeln!(text, "{check}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_spread_over_the_numbers_of_frames() {
        assert_eq!(panel_sizes(1600), [1, 16, 128]);
        assert_eq!(panel_sizes(16), [1, 2, 8]);
        assert_eq!(panel_sizes(2), [1]);
    }
}
