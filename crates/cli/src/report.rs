//! `falkon report`: what became of a run, from its events.

mod advice;
mod course;
mod gather;
mod html;
mod markdown;
mod sections;
mod shown;

use crate::access::AccessArgs;
use crate::events::source::{Source, SourceError};
use crate::exit::{Exit, runtime};
use crate::named_file;
use crate::query::print;
use clap::Args;
use gather::Gathered;
use std::path::{Path, PathBuf};

/// `falkon report`
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// A directory that falkon run --out or falkon start --dir wrote, or an instance of the
    /// running dispatcher, by its number or name [default: all instances of the dispatcher]
    #[arg(value_name = "DIR|INSTANCE")]
    what: Option<String>,
    /// Of a directory, only this instance, by its number or name
    #[arg(long, short, value_name = "INSTANCE")]
    instance: Option<String>,
    /// Text with tables, instead of a page
    #[arg(long, group = "format")]
    markdown: bool,
    /// The same for programs, as JSON
    #[arg(long, group = "format")]
    json: bool,
    /// The file to write [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn report(args: ReportArgs) -> Exit {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    let directory = args.what.as_deref().map(Path::new).filter(|path| path.is_dir());
    let wanted = match directory {
        Some(_) => args.instance.clone(),
        None if args.instance.is_some() && args.what.is_some() => {
            return Exit::usage("--instance is for a directory: name the instance alone");
        }
        None => args.what.clone().or(args.instance.clone()),
    };
    let mut source = match Source::of(directory, &args.access, &runtime) {
        Ok(source) => source,
        Err(exit) => return exit,
    };
    let mut gathered = Gathered::new(wanted);
    loop {
        let block = match runtime.block_on(source.next()) {
            Ok(Some(block)) => block,
            Ok(None) => break,
            Err(error) => return error.exit(),
        };
        if !block.each(|event| gathered.add(&event, block.repeats)) {
            return SourceError::Unknown.exit();
        }
    }
    let Some(shown) = gathered.shown() else {
        return Exit::usage(match args.what.or(args.instance) {
            Some(what) => format!("there are no events of tasks of {what:?}"),
            None => "there are no events of tasks".to_owned(),
        });
    };
    let text = match (args.json, args.markdown) {
        (true, _) => shown.json() + "\n",
        (false, true) => markdown::text(&shown),
        (false, false) => html::page(&shown),
    };
    match &args.output {
        None => print(&text).unwrap_or(Exit::Success),
        Some(path) => match named_file::write(path, text.as_bytes()) {
            Ok(()) => Exit::Success,
            Err(error) => Exit::failure(format!("cannot write {}: {error}", path.display())),
        },
    }
}
