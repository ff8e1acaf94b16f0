//! The whole run in one process, one cut-out after the other: what the tasks must come to.

use std::fs;
use std::io::Cursor;
use std::path::Path;

use crate::catalogue::{ListError, PlannedCut, read_cuts, read_objects};
use crate::cut::{CutError, Cutout};
use crate::files::{FileError, failed};
use crate::fits::Image;
use crate::generate::{CATALOGUE, CUTS};
use crate::stack::{Outcome, StackError, StackOptions, stack_cutouts};

/// Where the results go, within the survey's folder.
const FOLDER: &str = "serial";
const STACK: &str = "stack.fits";

/// The serial run failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SerialError {
    /// The folder's lists could not be read.
    #[error(transparent)]
    List(ListError),
    /// A cut-out could not be made.
    #[error(transparent)]
    Cut(CutError),
    /// The cut-outs could not be stacked.
    #[error(transparent)]
    Stack(StackError),
    /// A stack could not be read for comparison.
    #[error(transparent)]
    File(FileError),
}

/// Makes and stacks all cut-outs of a survey's folder, writes the results into its folder `serial`,
/// and compares the stack with the one that the tasks made, where there is one.
pub(crate) fn serial(folder: &Path) -> Result<Outcome, SerialError> {
    let planned = read_cuts(&folder.join(CUTS)).map_err(SerialError::List)?;
    let objects = read_objects(&folder.join(CATALOGUE)).map_err(SerialError::List)?;
    let cutouts = planned
        .into_iter()
        .map(|planned| cut(folder, planned))
        .collect::<Result<Vec<_>, CutError>>()
        .map_err(SerialError::Cut)?;
    let results = folder.join(FOLDER);
    let options = StackOptions {
        cuts: folder.join(CUTS),
        catalogue: folder.join(CATALOGUE),
        out: results.join(STACK),
        png: results.join("stack.png"),
        table: results.join("sn.csv"),
    };
    let mut outcome = stack_cutouts(cutouts, &objects, &options).map_err(SerialError::Stack)?;

    let tasks_stack = folder.join(STACK);
    if tasks_stack.exists() {
        let read = |path: &Path| fs::read(path).map_err(failed("read", path));
        let same = read(&tasks_stack).map_err(SerialError::File)?
            == read(&options.out).map_err(SerialError::File)?;
        outcome.passed &= same;
        let (mark, are) =
            if same { ("ok    ", "the same bytes") } else { ("FAILED", "not the same bytes") };
        outcome.report +=
            &format!("{mark} {} and {} are {are}\n", tasks_stack.display(), options.out.display());
    }
    Ok(outcome)
}

/// Makes a cut-out and reads it back from the bytes that its file would have, so that it is just as
/// the stack's task would see it.
fn cut(folder: &Path, planned: PlannedCut) -> Result<(Cutout, std::path::PathBuf), CutError> {
    let image = folder.join(&planned.image);
    let bytes = Cutout::from_image(&image, planned.position, planned.size_px)?.encode();
    let image = Image::new(Cursor::new(bytes), &planned.cut).map_err(CutError::Fits)?;
    Ok((Cutout::from_stream(image, &planned.cut)?, planned.cut))
}
