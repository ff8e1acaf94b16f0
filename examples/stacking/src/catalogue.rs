//! The two lists that the generator writes as CSV and the later steps read: the objects in the sky
//! (`catalogue.csv`) and the cut-outs to be made (`cuts.csv`).

use std::path::{Path, PathBuf};

use crate::files::{FileError, read_text};
use crate::wcs::SkyPosition;

const OBJECTS_HEADING: &str = "id,ra_deg,dec_deg,true_peak";
const CUTS_HEADING: &str = "cut,image,ra_deg,dec_deg,size_px";

/// A faint point source of known brightness.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Object {
    pub(crate) id: String,
    pub(crate) position: SkyPosition,
    /// The value of a pixel whose centre is the source's.
    pub(crate) true_peak: f64,
}

/// A cut-out to be made; paths are as in the list, relative to the list's folder.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlannedCut {
    pub(crate) cut: PathBuf,
    pub(crate) image: PathBuf,
    pub(crate) position: SkyPosition,
    pub(crate) size_px: usize,
}

/// A list could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ListError {
    /// The file could not be read.
    #[error(transparent)]
    File(FileError),
    /// The first line is not what the list begins with.
    #[error("{path}: the first line must be '{wanted}'")]
    Heading { path: PathBuf, wanted: &'static str },
    /// A line is wrong.
    #[error("{path}, line {line}: wanted are the fields '{wanted}'")]
    Line { path: PathBuf, line: usize, wanted: &'static str },
    /// There is nothing in the list.
    #[error("{0}: the list is empty")]
    Empty(PathBuf),
}

/// The text of a catalogue.
pub(crate) fn objects_to_csv(objects: &[Object]) -> String {
    let line = |object: &Object| {
        let SkyPosition { ra_deg, dec_deg } = object.position;
        format!("{},{ra_deg},{dec_deg},{}\n", object.id, object.true_peak)
    };
    format!("{OBJECTS_HEADING}\n") + &objects.iter().map(line).collect::<String>()
}

/// Reads a catalogue.
pub(crate) fn read_objects(path: &Path) -> Result<Vec<Object>, ListError> {
    read_list(path, OBJECTS_HEADING, |[id, ra, dec, peak]| {
        let position = position(ra, dec)?;
        Some(Object { id: id.to_owned(), position, true_peak: finite(peak)? })
    })
}

/// The text of a list of cut-outs.
pub(crate) fn cuts_to_csv(cuts: &[PlannedCut]) -> String {
    let line = |planned: &PlannedCut| {
        let PlannedCut { cut, image, position: SkyPosition { ra_deg, dec_deg }, size_px } = planned;
        format!("{},{},{ra_deg},{dec_deg},{size_px}\n", cut.display(), image.display())
    };
    format!("{CUTS_HEADING}\n") + &cuts.iter().map(line).collect::<String>()
}

/// Reads a list of cut-outs.
pub(crate) fn read_cuts(path: &Path) -> Result<Vec<PlannedCut>, ListError> {
    read_list(path, CUTS_HEADING, |[cut, image, ra, dec, size]| {
        let position = position(ra, dec)?;
        Some(PlannedCut {
            cut: cut.into(),
            image: image.into(),
            position,
            size_px: size.parse().ok()?,
        })
    })
}

fn finite(field: &str) -> Option<f64> {
    field.parse().ok().filter(|number: &f64| number.is_finite())
}

fn position(ra: &str, dec: &str) -> Option<SkyPosition> {
    Some(SkyPosition { ra_deg: finite(ra)?, dec_deg: finite(dec)? })
}

fn read_list<T, const FIELDS: usize>(
    path: &Path,
    heading: &'static str,
    parse: impl Fn([&str; FIELDS]) -> Option<T>,
) -> Result<Vec<T>, ListError> {
    let text = read_text(path).map_err(ListError::File)?;
    let mut lines = text.lines().enumerate();
    if lines.next().map(|(_, line)| line.trim()) != Some(heading) {
        return Err(ListError::Heading { path: path.to_owned(), wanted: heading });
    }
    let items = lines
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| {
            let fields: Vec<&str> = line.split(',').map(str::trim).collect();
            fields.try_into().ok().and_then(&parse).ok_or_else(|| ListError::Line {
                path: path.to_owned(),
                line: index + 1,
                wanted: heading,
            })
        })
        .collect::<Result<Vec<T>, ListError>>()?;
    if items.is_empty() { Err(ListError::Empty(path.to_owned())) } else { Ok(items) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, name: &str) -> Result<Vec<Object>, ListError> {
        let path = std::env::temp_dir().join(format!("stacking-{name}-{}.csv", std::process::id()));
        std::fs::write(&path, text).unwrap();
        let result = read_objects(&path);
        std::fs::remove_file(&path).unwrap();
        result
    }

    #[test]
    fn objects_come_back_as_they_were_written() {
        let object = |id: &str, ra_deg, true_peak| Object {
            id: id.to_owned(),
            position: SkyPosition { ra_deg, dec_deg: -0.1 },
            true_peak,
        };
        let objects = vec![object("a", 1.0 / 3.0, 2.5), object("b", 359.999999, 1e-7)];
        assert_eq!(read(&objects_to_csv(&objects), "back").unwrap(), objects);
    }

    #[test]
    fn wrong_lists_are_told_apart() {
        let heading = OBJECTS_HEADING;
        assert!(matches!(read("", "none"), Err(ListError::Heading { .. })));
        assert!(matches!(read(&format!("{heading}\n\n"), "empty"), Err(ListError::Empty(_))));
        for line in ["a,1,2", "a,1,2,3,4", "a,1,x,3", "a,1,inf,3"] {
            let result = read(&format!("{heading}\n\n{line}\n"), "line");
            assert!(matches!(result, Err(ListError::Line { line: 3, .. })), "{line}");
        }
    }
}
