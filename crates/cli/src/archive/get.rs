//! `falkon archive cat`, `falkon archive get`

use super::select::{Meant, Selected, select};
use super::{ThreadArgs, report, unreadable};
use crate::exit::Exit;
use clap::Args;
use falkon_archive::{ExtractError, Extraction, LeftOut, Newest, Scratch, each};
use falkon_core::archive::{Member, readable};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Members that are left out and reported one by one; the others are counted.
const REPORTED_MAX: u64 = 20;

/// `falkon archive cat`
#[derive(Args, Debug)]
pub(super) struct CatArgs {
    /// Members: an archive, `!`, and a name or a pattern. Of several members with one name,
    /// the last is printed
    #[arg(value_name = "ARCHIVE!MEMBER", required = true)]
    members: Vec<OsString>,
}

/// Prints members, in the order of the command line and of the archive.
pub(super) fn cat(args: &CatArgs) -> Result<Exit, Exit> {
    let mut scratch = Scratch::default();
    let mut out = io::stdout().lock();
    let mut exit = Exit::Success;
    let mut take = |bytes: &[u8]| out.write_all(bytes);
    for word in &args.members {
        let Selected { archive, members } = select(word)?;
        if let Meant::Named(name) = &members {
            let (part, member) = archive.find(name).map_err(unreadable)?;
            scratch.read(part, &member, &mut take).map_err(unreadable)?;
            continue;
        }
        let newest = Newest::of(&archive, |member| members.is(member)).map_err(unreadable)?;
        let mut found = 0;
        for (number, part) in archive.parts().iter().enumerate() {
            for member in part.members() {
                let member = member.map_err(unreadable)?;
                if members.is(&member) && newest.is(number, &member) {
                    found += 1;
                    scratch.read(part, &member, &mut take).map_err(unreadable)?;
                }
            }
        }
        if found == 0 {
            report(format_args!("{}: no member matches", word.display()));
            exit = Exit::TasksFailed;
        }
    }
    match out.flush() {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Exit::failure(format!("cannot print: {error}")))
        }
        _ => Ok(exit),
    }
}

/// `falkon archive get`
#[derive(Args, Debug)]
pub(super) struct GetArgs {
    /// Archives; with `!` and a name or a pattern, only these members
    #[arg(value_name = "ARCHIVE[!MEMBER]", required = true)]
    archives: Vec<OsString>,
    /// Write below this directory, and nowhere else
    #[arg(long, value_name = "DIR", default_value = ".")]
    to: PathBuf,
    /// Replace files that exist
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    threads: ThreadArgs,
}

/// Writes members to files.
pub(super) fn get(args: &GetArgs) -> Result<Exit, Exit> {
    let extraction = Extraction::into_directory(&args.to, args.overwrite).map_err(Exit::failure)?;
    let found = Tally::default();
    for word in &args.archives {
        let Selected { archive, members } = select(word)?;
        let before = found.seen();
        if let Meant::Named(name) = &members {
            let (part, member) = archive.find(name).map_err(unreadable)?;
            let mut scratch = Scratch::default();
            found.count(&member, extraction.another().extract(part, &member, &mut scratch));
        } else {
            let newest = Newest::of(&archive, |member| members.is(member)).map_err(unreadable)?;
            if newest.doubled() > 0 {
                report(format_args!(
                    "{}: left out {} members whose names later ones have",
                    archive.path().display(),
                    newest.doubled()
                ));
            }
            // A thread takes one, and puts it back with the directories that it has open.
            let idle = Mutex::new(Vec::new());
            let lock = || idle.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            each(
                &archive,
                args.threads.number(),
                |number, member| members.is(member) && newest.is(number, member),
                |scratch, number, member| {
                    let taken = lock().pop();
                    let mut extraction = taken.unwrap_or_else(|| extraction.another());
                    let part = &archive.parts()[number];
                    found.count(member, extraction.extract(part, member, scratch));
                    lock().push(extraction);
                },
            )
            .map_err(unreadable)?;
        }
        if found.seen() == before && !matches!(members, Meant::All) {
            report(format_args!("{}: no member matches", word.display()));
            found.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(found.exit())
}

/// What became of members.
#[derive(Debug, Default)]
struct Tally {
    written: AtomicU64,
    left_out: AtomicU64,
    failed: AtomicU64,
    has_no_room: AtomicU64,
}

impl Tally {
    fn seen(&self) -> u64 {
        let all = [&self.written, &self.left_out, &self.failed, &self.has_no_room];
        all.iter().map(|one| one.load(Ordering::Relaxed)).sum()
    }

    fn count(&self, member: &Member, done: Result<(), ExtractError>) {
        let (counter, line) = match done {
            Ok(()) => (&self.written, None),
            Err(ExtractError::LeftOut(why)) => (&self.left_out, Some(left_out(member, why))),
            Err(ExtractError::Read(error)) => (&self.failed, Some(error.to_string())),
            Err(error) => (&self.has_no_room, Some(error.to_string())),
        };
        let number = counter.fetch_add(1, Ordering::Relaxed);
        if let Some(line) = line
            && number < REPORTED_MAX
        {
            report(line);
        }
    }

    fn exit(&self) -> Exit {
        let value = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let (left_out, failed) = (value(&self.left_out), value(&self.failed));
        let not_written = left_out + failed + value(&self.has_no_room);
        if not_written > 0 {
            report(format_args!(
                "{not_written} members are not written, {} are",
                value(&self.written)
            ));
        }
        match (value(&self.has_no_room), not_written) {
            (_, 0) => Exit::Success,
            (0, _) => Exit::TasksFailed,
            _ => Exit::Failure,
        }
    }
}

fn left_out(member: &Member, why: LeftOut) -> String {
    format!("left out `{}`: {why}", readable(&member.name))
}
