//! `falkon data version`: what tasks that are submitted now would read.

use super::name::dispatcher_name;
use crate::exit::{Exit, runtime};
use clap::Args;
use falkon_data::store::{StoreUrl, Stores};
use serde_json::json;
use std::io::Write;

#[derive(Args, Debug)]
pub(super) struct VersionArgs {
    /// Objects: paths or URLs, as tasks declare them; a directory, with a slash at its end, as
    /// --unpack packs it
    #[arg(required = true, value_name = "SOURCE")]
    sources: Vec<String>,
    /// Print a line of JSON per object
    #[arg(long)]
    json: bool,
}

/// Asks the sources, from this machine.
pub(super) fn version(args: &VersionArgs) -> Exit {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    let stores = Stores::new(std::env::vars());
    let mut out = std::io::stdout().lock();
    for source in &args.sources {
        let found = dispatcher_name(source).and_then(|name| StoreUrl::parse(&name));
        let url = match found {
            Ok(url) => url,
            Err(error) => return Exit::usage(error),
        };
        let now = match runtime.block_on(stores.resolve(&url)) {
            Ok(now) => now,
            Err(error) => return Exit::usage(error),
        };
        let written = match args.json {
            true => {
                let url = url.to_string();
                writeln!(out, "{}", json!({"url": url, "version": now.version, "size": now.bytes}))
            }
            false => {
                let bytes = now.bytes.map_or("?".to_owned(), |bytes| bytes.to_string());
                writeln!(out, "{}\t{bytes}\t{url}", now.version)
            }
        };
        if let Err(error) = written {
            return Exit::failure(format_args!("cannot write: {error}"));
        }
    }
    Exit::Success
}
