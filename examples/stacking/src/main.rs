//! Image stacking as in AstroPortal: faint objects are cut out of many images of the same sky and
//! added up, until what no single image shows stands out of the noise.
//!
//! The program is an ordinary one that knows nothing of Falkon. It also makes up the survey that it
//! works on, so that the right result is known.

mod arguments;
mod background;
mod catalogue;
mod cut;
mod files;
mod fits;
mod generate;
mod picture;
mod random;
mod serial;
mod stack;
mod survey;
mod tasks;
mod wcs;

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use arguments::Command;
use cut::Cutout;
use stack::Outcome;

/// Something failed, or a check did not pass.
const FAILED: u8 = 1;
/// The arguments were not understood.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let command = match arguments::parse(std::env::args_os().skip(1).collect()) {
        Ok(command) => command,
        Err(error) => return fail(USAGE, &error),
    };
    match run(command) {
        Ok(Outcome { report, passed }) => {
            // A reader that has gone away has read enough.
            let _ = io::stdout().lock().write_all(report.as_bytes());
            if passed {
                return ExitCode::SUCCESS;
            }
            let message = "stacking: the result is not what it must be: see FAILED above\n";
            let _ = io::stderr().lock().write_all(message.as_bytes());
            ExitCode::from(FAILED)
        }
        Err(error) => fail(FAILED, error.as_ref()),
    }
}

fn fail(status: u8, error: &dyn Error) -> ExitCode {
    let _ = writeln!(io::stderr().lock(), "stacking: {error}");
    ExitCode::from(status)
}

fn run(command: Command) -> Result<Outcome, Box<dyn Error>> {
    let done = |report: String| Outcome { report, passed: true };
    Ok(match command {
        Command::Help => done(arguments::HELP.to_owned()),
        Command::Generate { folder, size } => {
            let generated = generate::generate(&folder, size)?;
            done(format!(
                "{} images ({} MB) of {} objects; {} cut-outs to be made\ntasks: {}\n",
                generated.images,
                generated.bytes / 1_000_000,
                generated.objects,
                generated.cuts,
                generated.task_file.display(),
            ))
        }
        Command::Cut { image, position, size_px, out } => {
            Cutout::from_image(&image, position, size_px)?.write(&out)?;
            done(String::new())
        }
        Command::Stack(options) => stack::stack(&options)?,
        Command::Serial { folder } => serial::serial(&folder)?,
    })
}
