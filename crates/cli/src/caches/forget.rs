//! `falkon data forget`: what a dispatcher remembers of large objects, by their names.

use super::Asking;
use super::name::dispatcher_name;
use crate::access::AccessArgs;
use crate::exit::{Exit, say};
use clap::Args;

/// `falkon data forget`
#[derive(Args, Debug)]
pub(super) struct ForgetArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// Paths, URLs or cache:KEYs
    #[arg(value_name = "NAME", required_unless_present = "all", conflicts_with = "all")]
    names: Vec<String>,
    /// All names
    #[arg(long)]
    all: bool,
}

pub(super) fn forget(args: &ForgetArgs) -> Exit {
    let asking = Asking { access: args.access.clone(), instance: None };
    asking.ask(async |caches| {
        if args.all {
            let names = caches.client.forget(None).await.map_err(Exit::client)?;
            let s = if names == 1 { "" } else { "s" };
            say(format_args!("forgot {names} name{s}"));
            return Ok(Exit::Success);
        }
        let mut exit = Exit::Success;
        for name in &args.names {
            let asked = dispatcher_name(name).map_err(Exit::usage)?;
            if caches.client.forget(Some(&asked)).await.map_err(Exit::client)? == 0 {
                exit = Exit::usage(format!("nothing is remembered of {name}"));
            }
        }
        Ok(exit)
    })
}
