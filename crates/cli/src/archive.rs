//! `falkon archive`: many small files in few large ones.

mod check;
mod create;
mod get;
mod list;
mod mount;
mod select;

use crate::exit::{Exit, write_line};
use clap::{Args, Subcommand};
use falkon_archive::{ReadError, WriteError, WriteOptions};
use falkon_core::archive::FileBounds;
use falkon_core::archive::limits::{FILE_BYTES, FILE_MEMBERS, FILE_MEMBERS_MAX};
use std::fmt::Display;

/// `falkon archive`
#[derive(Args, Debug)]
pub(crate) struct ArchiveArgs {
    #[command(subcommand)]
    command: ArchiveCommand,
}

#[derive(Subcommand, Debug)]
enum ArchiveCommand {
    /// List the members of archives
    Ls(list::ListArgs),
    /// Print members
    Cat(get::CatArgs),
    /// Copy members to files of a directory
    Get(get::GetArgs),
    /// Show archives as a read-only file system
    Mount(mount::MountArgs),
    /// Read all of archives, and recover what is whole in damaged ones
    Check(check::CheckArgs),
    /// Copy the members of archives into one, without packing them again
    Join(create::JoinArgs),
    /// Put files into an archive
    Create(create::CreateArgs),
}

/// Runs the command.
pub(crate) fn archive(args: ArchiveArgs) -> Exit {
    let done = match args.command {
        ArchiveCommand::Ls(args) => list::list(&args),
        ArchiveCommand::Cat(args) => get::cat(&args),
        ArchiveCommand::Get(args) => get::get(&args),
        ArchiveCommand::Mount(args) => mount::mount(&args),
        ArchiveCommand::Check(args) => check::check(&args),
        ArchiveCommand::Join(args) => create::join(&args),
        ArchiveCommand::Create(args) => create::create(&args),
    };
    done.unwrap_or_else(|exit| exit)
}

/// Reports what is wrong with one member, or one file: the rest goes on.
fn report(message: impl Display) {
    write_line(format_args!("falkon: {message}"));
}

/// What cannot be found or opened is for the user to mend.
fn unreadable(error: ReadError) -> Exit {
    match error {
        ReadError::Taken { error, .. } if error.kind() == std::io::ErrorKind::BrokenPipe => {
            Exit::Success
        }
        ReadError::Missing { .. } | ReadError::NoFile { .. } | ReadError::NoMember { .. } => {
            Exit::usage(error)
        }
        ReadError::Format { .. } | ReadError::Member { .. } => {
            report(error);
            Exit::TasksFailed
        }
        _ => Exit::failure(error),
    }
}

fn unwritable(error: WriteError) -> Exit {
    match error {
        WriteError::Read(error) => unreadable(error),
        WriteError::Exists { .. } | WriteError::Part { .. } | WriteError::Name { .. } => {
            Exit::usage(error)
        }
        error => Exit::failure(error),
    }
}

/// How many threads work.
#[derive(Args, Debug, Clone, Copy)]
struct ThreadArgs {
    /// Use N threads [default: as many as there are processors]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
}

impl ThreadArgs {
    fn number(self) -> usize {
        self.jobs.map_or(WriteOptions::default().threads, usize::from)
    }
}

/// When a file of an archive ends and another one begins.
#[derive(Args, Debug, Clone, Copy)]
#[command(next_help_heading = "Files")]
struct BoundArgs {
    /// Begin another file of the archive after N members. Python's zipfile opens files of
    /// 65000 members in half a second
    #[arg(
        long, value_name = "N", default_value_t = FILE_MEMBERS,
        value_parser = clap::value_parser!(u64).range(1..=FILE_MEMBERS_MAX)
    )]
    file_members: u64,
    /// Begin another file of the archive before it is larger than SIZE (10GiB) [default: 1TiB]
    #[arg(long, value_name = "SIZE", value_parser = crate::plan::memory_bytes)]
    file_bytes: Option<u64>,
    /// Add files to the archive if it exists
    #[arg(long)]
    append: bool,
}

impl BoundArgs {
    fn options(self, threads: ThreadArgs) -> WriteOptions {
        let bytes = self.file_bytes.unwrap_or(FILE_BYTES);
        WriteOptions {
            bounds: FileBounds { members: self.file_members, bytes },
            threads: threads.number(),
            append: self.append,
            ..WriteOptions::default()
        }
    }
}
