//! `falkon cancel`: an instance, some of its tasks, or those that options choose.

use super::chosen::is_under_way;
use super::show;
use super::which::{Among, Which};
use crate::exit::{Exit, say};
use clap::Args;
use falkon_core::dispatch::Selection;

/// `falkon cancel`
#[derive(Args, Debug)]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    which: Which,
}

pub(crate) fn cancel(args: CancelArgs) -> Exit {
    args.which.find(async |among: Among| {
        let (client, instance) = (&among.client, among.instance);
        if among.chosen.takes_all() {
            client.cancel(instance, among.selection()).await?;
            return Ok(Exit::Success);
        }
        let mut cancelled = 0;
        let cancel = async |runs: Vec<(u64, u64)>| {
            cancelled += runs.iter().map(|(_, count)| count).sum::<u64>();
            client.cancel(instance, Selection::Runs(runs)).await
        };
        among.act_on(is_under_way, cancel).await?;
        say(format_args!("{} cancelled", show::counted(cancelled, "task")));
        Ok(Exit::Success)
    })
}
