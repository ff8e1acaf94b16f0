//! `falkon retry`: tasks that have ended and not well run again, in their places.

use super::chosen::is_retriable;
use super::show;
use super::which::{Among, Which};
use crate::exit::{Exit, say};
use clap::Args;
use falkon_core::dispatch::Selection;
use falkon_net::client::ClientError;

/// `falkon retry`
#[derive(Args, Debug)]
pub(crate) struct RetryArgs {
    /// All tasks that have failed; so it is if nothing else chooses tasks
    #[arg(long, conflicts_with_all = ["tasks", "state", "command", "executor"])]
    failed: bool,
    #[command(flatten)]
    which: Which,
}

/// How many tasks run again, and how many cannot.
#[derive(Default)]
struct Count {
    retried: u64,
    forgotten: u64,
}

pub(crate) fn retry(args: RetryArgs) -> Exit {
    let RetryArgs { failed: _, which } = args;
    which.find(async |among: Among| {
        let mut count = Count::default();
        if among.tasks.is_empty() && among.chosen.takes_all() {
            count.add(&among, Selection::All).await?;
            return Ok(count.exit());
        }
        // Those that were cancelled run again if their state, or they themselves, are named.
        let with_cancelled = !among.tasks.is_empty() || among.chosen.names_states();
        let retry = async |runs| count.add(&among, Selection::Runs(runs)).await;
        among.act_on(|task| is_retriable(task, with_cancelled), retry).await?;
        Ok(count.exit())
    })
}

impl Count {
    async fn add(&mut self, among: &Among, selection: Selection) -> Result<(), ClientError> {
        let (retried, forgotten) = among.client.retry(among.instance, selection).await?;
        self.retried += retried;
        self.forgotten += forgotten;
        Ok(())
    }

    fn exit(&self) -> Exit {
        let Count { retried, forgotten } = self;
        if *forgotten > 0 {
            let tasks = show::counted(*forgotten, "task");
            say(format_args!(
                "{tasks} cannot be retried: what they were is not known any more, or they are \
                 one executor's alone; submit them again"
            ));
        }
        let printed = show::print(&format!("{} retried\n", show::counted(*retried, "task")));
        let exit = if *retried == 0 && *forgotten > 0 { Exit::Usage } else { Exit::Success };
        printed.unwrap_or(exit)
    }
}
