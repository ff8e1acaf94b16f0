//! The command line's arguments.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::str::FromStr;

use crate::stack::StackOptions;
use crate::survey::SurveySize;
use crate::wcs::SkyPosition;

/// What `stacking --help` prints.
pub(crate) const HELP: &str = "\
Image stacking: cuts faint objects out of many images and adds them up.

  stacking generate DIR [--images N] [--objects N] [--size PIX] [--seed S]
      makes up a survey in DIR: images, catalogue.csv, cuts.csv, and tasks.jsonl for Falkon
      (400 images of 320 by 320 pixels, 16 objects, seed 1)
  stacking cut IMAGE RA DEC SIZE OUT
      cuts the object at RA, DEC (degrees) out of a FITS image, SIZE pixels wide, its sky subtracted
  stacking stack --cuts DIR|LIST --catalogue FILE --out FITS --png PNG --table CSV
      stacks cut-outs (of a folder, or those that a cuts.csv lists), measures and checks the result
  stacking serial DIR
      does all of a survey's cuts and the stack in this one process, for comparison

Exit status: 0 done, 1 something failed or a check did not pass, 2 arguments not understood.
";

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Command {
    Help,
    Generate { folder: PathBuf, size: SurveySize },
    Cut { image: PathBuf, position: SkyPosition, size_px: usize, out: PathBuf },
    Stack(StackOptions),
    Serial { folder: PathBuf },
}

/// The arguments say nothing that can be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum UsageError {
    #[error("no command given; see 'stacking --help'")]
    NoCommand,
    #[error("unknown command {}; see 'stacking --help'", .0.display())]
    UnknownCommand(OsString),
    #[error("unknown option {}; see 'stacking --help'", .0.display())]
    UnknownOption(OsString),
    /// An option has no value after it.
    #[error("{0} needs a value; see 'stacking --help'")]
    NoValue(&'static str),
    /// An option or argument is given twice, or an argument is one too many.
    #[error("{} is one too many; see 'stacking --help'", .0.display())]
    Extra(OsString),
    #[error("{0} is missing; see 'stacking --help'")]
    Missing(&'static str),
    /// A number is none.
    #[error("{argument} must be a number, not '{}'; see 'stacking --help'", .value.display())]
    Number { argument: &'static str, value: OsString },
}

/// Understands the arguments, those after the program's name.
pub(crate) fn parse(arguments: Vec<OsString>) -> Result<Command, UsageError> {
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        return Ok(Command::Help);
    }
    let mut arguments = arguments.into_iter();
    let name = arguments.next().ok_or(UsageError::NoCommand)?;
    let rest = arguments.collect();
    match name.to_str() {
        Some("help") => Ok(Command::Help),
        Some("generate") => generate(rest),
        Some("cut") => cut(rest),
        Some("stack") => stack(rest),
        Some("serial") => {
            let ([folder], []) = sort(rest, ["DIR"], [])?;
            Ok(Command::Serial { folder: folder.into() })
        }
        _ => Err(UsageError::UnknownCommand(name)),
    }
}

fn generate(arguments: Vec<OsString>) -> Result<Command, UsageError> {
    let names = ["--images", "--objects", "--size", "--seed"];
    let ([folder], [images, objects, image_size_px, seed]) = sort(arguments, ["DIR"], names)?;
    fn or<T: FromStr>(
        argument: &'static str,
        value: Option<OsString>,
        default: T,
    ) -> Result<T, UsageError> {
        value.map_or(Ok(default), |value| number(argument, value))
    }
    let size = SurveySize {
        images: or(names[0], images, 400)?,
        objects: or(names[1], objects, 16)?,
        image_size_px: or(names[2], image_size_px, 320)?,
        seed: or(names[3], seed, 1)?,
    };
    Ok(Command::Generate { folder: folder.into(), size })
}

fn cut(arguments: Vec<OsString>) -> Result<Command, UsageError> {
    // Nothing is an option here: a declination may begin with a minus sign.
    let mut arguments = arguments.into_iter();
    let mut next = |name| arguments.next().ok_or(UsageError::Missing(name));
    let image = next("IMAGE")?.into();
    let ra_deg = number("RA", next("RA")?)?;
    let dec_deg = number("DEC", next("DEC")?)?;
    let size_px = number("SIZE", next("SIZE")?)?;
    let out = next("OUT")?.into();
    match arguments.next() {
        Some(extra) => Err(UsageError::Extra(extra)),
        None => Ok(Command::Cut { image, position: SkyPosition { ra_deg, dec_deg }, size_px, out }),
    }
}

fn stack(arguments: Vec<OsString>) -> Result<Command, UsageError> {
    let names = ["--cuts", "--catalogue", "--out", "--png", "--table"];
    let ([], values) = sort(arguments, [], names)?;
    let mut values = values.into_iter().zip(names);
    let mut next = || match values.next() {
        Some((Some(value), _)) => Ok(PathBuf::from(value)),
        Some((None, name)) => Err(UsageError::Missing(name)),
        None => Err(UsageError::NoCommand),
    };
    Ok(Command::Stack(StackOptions {
        cuts: next()?,
        catalogue: next()?,
        out: next()?,
        png: next()?,
        table: next()?,
    }))
}

/// Tells options with values from positional arguments, all of which must be there.
fn sort<const POSITIONS: usize, const OPTIONS: usize>(
    arguments: Vec<OsString>,
    positions: [&'static str; POSITIONS],
    options: [&'static str; OPTIONS],
) -> Result<([OsString; POSITIONS], [Option<OsString>; OPTIONS]), UsageError> {
    let mut found = Vec::new();
    let mut values = [const { None }; OPTIONS];
    let mut arguments = arguments.into_iter();
    while let Some(argument) = arguments.next() {
        if let Some(place) = options.iter().position(|option| argument == OsStr::new(option)) {
            let value = arguments.next().ok_or(UsageError::NoValue(options[place]))?;
            if values[place].replace(value).is_some() {
                return Err(UsageError::Extra(argument));
            }
        } else if argument.as_encoded_bytes().starts_with(b"-") {
            return Err(UsageError::UnknownOption(argument));
        } else if found.len() == POSITIONS {
            return Err(UsageError::Extra(argument));
        } else {
            found.push(argument);
        }
    }
    match found.try_into() {
        Ok(found) => Ok((found, values)),
        Err(found) => Err(UsageError::Missing(positions[found.len()])),
    }
}

fn number<T: FromStr>(argument: &'static str, value: OsString) -> Result<T, UsageError> {
    let parsed = value.to_str().and_then(|text| text.parse().ok());
    parsed.ok_or(UsageError::Number { argument, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, UsageError> {
        parse(line.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn commands_are_understood() {
        let size = SurveySize { images: 10, objects: 16, image_size_px: 320, seed: 7 };
        assert_eq!(
            parsed("generate --images 10 d --seed 7"),
            Ok(Command::Generate { folder: "d".into(), size })
        );
        assert_eq!(
            parsed("cut a.fits 150.5 -2.25 41 b.fits"),
            Ok(Command::Cut {
                image: "a.fits".into(),
                position: SkyPosition { ra_deg: 150.5, dec_deg: -2.25 },
                size_px: 41,
                out: "b.fits".into(),
            })
        );
        assert_eq!(parsed("serial d"), Ok(Command::Serial { folder: "d".into() }));
        assert_eq!(parsed("stack --help"), Ok(Command::Help));
    }

    #[test]
    fn wrong_arguments_are_named() {
        for (line, message) in [
            ("", "no command given"),
            ("dance", "unknown command dance"),
            ("generate", "DIR is missing"),
            ("generate a b", "b is one too many"),
            ("generate a --images", "--images needs a value"),
            ("generate a --images ten", "--images must be a number, not 'ten'"),
            ("generate a --images 1 --images 2", "--images is one too many"),
            ("generate a --colour red", "unknown option --colour"),
            ("cut a 1 2 41", "OUT is missing"),
            ("cut a 1 2 41 b c", "c is one too many"),
            ("cut a 1 north 41 b", "DEC must be a number, not 'north'"),
            ("stack --cuts a --out b", "--catalogue is missing"),
        ] {
            let error = parsed(line).unwrap_err().to_string();
            assert_eq!(error, format!("{message}; see 'stacking --help'"), "{line}");
        }
    }
}
