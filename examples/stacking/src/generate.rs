//! Writes a survey and everything that the run of it needs into a folder.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::catalogue::{cuts_to_csv, objects_to_csv};
use crate::files::{FileError, failed, make_folder, write_whole};
use crate::survey::{CUT_SIZE_PX, Survey, SurveySize};
use crate::tasks;
use crate::wcs::WcsError;

/// Names of the files in a survey's folder.
pub(crate) const CATALOGUE: &str = "catalogue.csv";
/// The list of cut-outs.
pub(crate) const CUTS: &str = "cuts.csv";
const TASKS: &str = "tasks.jsonl";

/// As many images as fit into their four-digit names.
pub(crate) const IMAGES_MAX: usize = 10_000;
/// As many objects as fit into their four-digit names.
pub(crate) const OBJECTS_MAX: usize = 10_000;
/// An image must hold a cut-out wherever the object is in its middle part.
pub(crate) const IMAGE_SIZE_MIN_PX: usize = 2 * CUT_SIZE_PX;
/// 256 MB per image.
pub(crate) const IMAGE_SIZE_MAX_PX: usize = 8192;

/// A survey could not be generated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GenerateError {
    /// A number is out of its range.
    #[error("{option} {given} is out of range: give a number from {from} to {to}")]
    Range { option: &'static str, given: usize, from: usize, to: usize },
    /// No object falls into any image.
    #[error("no object falls into any image; give more or larger images")]
    NoCuts,
    /// The sky could not be mapped.
    #[error(transparent)]
    Wcs(WcsError),
    /// A file or folder could not be written.
    #[error(transparent)]
    File(FileError),
    /// A path cannot be written into the task file, as JSON is UTF-8.
    #[error("the path {0} is not UTF-8 and cannot stand in a task file; rename it")]
    NotUtf8(PathBuf),
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Generated {
    pub(crate) images: usize,
    pub(crate) objects: usize,
    pub(crate) cuts: usize,
    pub(crate) bytes: u64,
    pub(crate) task_file: PathBuf,
}

/// Writes the images, the catalogue, the list of cut-outs and the task file; existing files of
/// these names are replaced.
pub(crate) fn generate(folder: &Path, size: SurveySize) -> Result<Generated, GenerateError> {
    for (option, given, from, to) in [
        ("--images", size.images, 1, IMAGES_MAX),
        ("--objects", size.objects, 1, OBJECTS_MAX),
        ("--size", size.image_size_px, IMAGE_SIZE_MIN_PX, IMAGE_SIZE_MAX_PX),
    ] {
        if !(from..=to).contains(&given) {
            return Err(GenerateError::Range { option, given, from, to });
        }
    }
    let survey = Survey::plan(size).map_err(GenerateError::Wcs)?;
    let cuts = survey.cuts();
    if cuts.is_empty() {
        return Err(GenerateError::NoCuts);
    }
    make_folder(folder).map_err(GenerateError::File)?;
    let folder = folder.canonicalize().map_err(failed("find", folder));
    let folder = folder.map_err(GenerateError::File)?;
    let program = std::env::current_exe()
        .map_err(failed("find", Path::new("this program")))
        .map_err(GenerateError::File)?;
    let utf8 = |path: &Path| {
        path.to_str().map(str::to_owned).ok_or_else(|| GenerateError::NotUtf8(path.to_owned()))
    };
    let task_text = tasks::to_json_lines(&utf8(&program)?, &utf8(&folder)?, &cuts);
    let bytes = write_images(&survey, &folder).map_err(GenerateError::File)?;
    // The task file comes last: where it stands, everything that it names stands too.
    for (name, text) in [
        (CATALOGUE, objects_to_csv(survey.objects())),
        (CUTS, cuts_to_csv(&cuts)),
        (TASKS, task_text),
    ] {
        write_whole(&folder.join(name), text.as_bytes()).map_err(GenerateError::File)?;
    }
    Ok(Generated {
        images: survey.images(),
        objects: survey.objects().len(),
        cuts: cuts.len(),
        bytes,
        task_file: folder.join(TASKS),
    })
}

/// Draws and writes all images, with a thread per core; returns their bytes.
fn write_images(survey: &Survey, folder: &Path) -> Result<u64, FileError> {
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    let threads = thread::available_parallelism().map_or(1, usize::from).min(survey.images());
    let work = || {
        let mut bytes = 0;
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= survey.images() {
                return bytes;
            }
            let file = survey.draw(number);
            bytes += file.len() as u64;
            if let Err(error) = write_whole(&folder.join(survey.image_path(number)), &file) {
                // The others need not go on; one error is enough to report.
                next.fetch_max(survey.images(), Ordering::Relaxed);
                if let Ok(mut failure) = failure.lock() {
                    failure.get_or_insert(error);
                }
                return bytes;
            }
        }
    };
    let bytes = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .sum()
    });
    match failure.into_inner() {
        Ok(Some(error)) => Err(error),
        _ => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_out_of_range_are_refused_before_anything_is_written() {
        let folder = std::env::temp_dir().join(format!("stacking-range-{}", std::process::id()));
        let size = SurveySize { images: 4, objects: 1, image_size_px: 128, seed: 1 };
        for wrong in [
            SurveySize { images: 0, ..size },
            SurveySize { objects: OBJECTS_MAX + 1, ..size },
            SurveySize { image_size_px: 40, ..size },
        ] {
            assert!(matches!(generate(&folder, wrong), Err(GenerateError::Range { .. })));
        }
        assert!(!folder.exists());
    }
}
