//! `falkon archive ls`

use super::select::{Meant, Selected, select};
use super::{report, unreadable};
use crate::exit::Exit;
use clap::Args;
use falkon_core::archive::{Kind, Member, Method, readable};
use falkon_core::task::Time;
use serde_json::json;
use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Text that is printed at a time.
const PRINT_BYTES: usize = 256 << 10;

/// `falkon archive ls`
#[derive(Args, Debug)]
pub(super) struct ListArgs {
    /// Archives, by their first files; with `!` and a pattern, only members that match. `*`
    /// stands for anything but a slash, `**` for anything
    #[arg(value_name = "ARCHIVE[!PATTERN]", required = true)]
    archives: Vec<OsString>,
    /// Print sizes, times and CRCs too
    #[arg(short, long)]
    long: bool,
    /// Print a line of JSON per member
    #[arg(long, conflicts_with_all = ["long", "null"])]
    json: bool,
    /// Print names as they are, each followed by a zero byte. Otherwise control characters,
    /// backslashes and what is no UTF-8 are printed as \xNN
    #[arg(short = '0', long, conflicts_with = "long")]
    null: bool,
}

/// Lists members.
pub(super) fn list(args: &ListArgs) -> Result<Exit, Exit> {
    let mut out = BufWriter::with_capacity(PRINT_BYTES, io::stdout().lock());
    let mut exit = Exit::Success;
    for word in &args.archives {
        let selected = select(word)?;
        match print(args, &selected, &mut out) {
            Ok(0) if !matches!(selected.members, Meant::All) => {
                report(format_args!("{}: no member matches", word.display()));
                exit = Exit::TasksFailed;
            }
            Ok(_) => {}
            Err(Stop::Exit(exit)) => return Err(exit),
            Err(Stop::Print(error)) => return Ok(unprintable(&error)),
        }
    }
    match out.flush() {
        Ok(()) => Ok(exit),
        Err(error) => Ok(unprintable(&error)),
    }
}

fn unprintable(error: &io::Error) -> Exit {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Exit::Success,
        _ => Exit::failure(format!("cannot print: {error}")),
    }
}

enum Stop {
    Exit(Exit),
    Print(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Print(error)
    }
}

/// Prints members; says how many.
fn print(args: &ListArgs, selected: &Selected, out: &mut impl Write) -> Result<u64, Stop> {
    if let Meant::Named(name) = &selected.members {
        let found = selected.archive.find(name);
        let (part, member) = found.map_err(|error| Stop::Exit(unreadable(error)))?;
        one(args, &member, part.path(), out)?;
        return Ok(1);
    }
    let mut members = 0;
    for found in selected.archive.members() {
        let (part, member) = match found {
            Ok(found) => found,
            Err(error) => {
                out.flush()?;
                return Err(Stop::Exit(unreadable(error)));
            }
        };
        if selected.members.is(&member) {
            one(args, &member, part.path(), out)?;
            members += 1;
        }
    }
    Ok(members)
}

fn one(args: &ListArgs, member: &Member, file: &Path, out: &mut impl Write) -> io::Result<()> {
    if args.null {
        out.write_all(&member.name)?;
        return out.write_all(&[0]);
    }
    if args.json {
        let line = json!({
            "name": readable(&member.name),
            "file": file.display().to_string(),
            "size": member.size,
            "packed": member.packed,
            "method": method(member.method),
            "crc": member.crc,
            "modified": member.modified,
            "offset": member.header,
            "kind": kind(member.kind()),
        });
        return writeln!(out, "{line}");
    }
    if args.long {
        let time = Time(member.modified.saturating_mul(1_000_000)).utc();
        let (time, crc) = (&time[..19], member.crc);
        let method = method(member.method);
        write!(out, "{:>12} {:>12} {method:>8} {crc:08x} {time} ", member.size, member.packed)?;
    }
    writeln!(out, "{}", readable(&member.name))
}

fn method(method: Method) -> String {
    match method {
        Method::Stored => "stored".to_owned(),
        Method::Deflated => "deflated".to_owned(),
        Method::Other(number) => format!("other {number}"),
    }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symlink",
        Kind::Special => "special",
    }
}
