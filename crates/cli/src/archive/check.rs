//! `falkon archive check`

use super::{BoundArgs, ThreadArgs, report, unreadable, unwritable};
use crate::exit::Exit;
use crate::query::print;
use clap::Args;
use falkon_archive::Writer;
use std::path::PathBuf;

/// `falkon archive check`
#[derive(Args, Debug)]
pub(super) struct CheckArgs {
    /// Archives, by their first files, or single files of them
    #[arg(value_name = "ARCHIVE", required = true)]
    archives: Vec<PathBuf>,
    /// Copy the members that are whole into this new archive, also from files that are cut
    /// off or were never finished
    #[arg(long, value_name = "TARGET")]
    salvage: Option<PathBuf>,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    bounds: BoundArgs,
}

/// Reads everything.
pub(super) fn check(args: &CheckArgs) -> Result<Exit, Exit> {
    if let Some(target) = &args.salvage {
        let options = args.bounds.options(args.threads);
        let mut writer = Writer::create(target, options).map_err(unwritable)?;
        let (mut members, mut lost) = (0, 0);
        for path in &args.archives {
            let salvaged = falkon_archive::salvage(path, &mut writer).map_err(unwritable)?;
            members += salvaged.members;
            lost += salvaged.lost;
        }
        writer.finish().map_err(unwritable)?;
        let target = target.display();
        let text = format!("{target}: {members} members are whole, {lost} more are not\n");
        return Ok(print(&text).unwrap_or(Exit::Success));
    }
    let mut faults = 0;
    for path in &args.archives {
        let threads = args.threads.number();
        let checked = falkon_archive::check(path, threads, &|error| report(error));
        let checked = checked.map_err(unreadable)?;
        faults += checked.faults;
        let verdict = match checked.faults {
            0 => "all is whole".to_owned(),
            faults => format!("{faults} faults"),
        };
        let line = format!(
            "{}: {} members of {} bytes in {} files: {verdict}\n",
            path.display(),
            checked.members,
            checked.bytes,
            checked.files
        );
        if let Some(exit) = print(&line) {
            return Ok(exit);
        }
    }
    Ok(if faults == 0 { Exit::Success } else { Exit::TasksFailed })
}
