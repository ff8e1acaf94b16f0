//! `falkon relay`: a dispatcher that lends its executors to another one.

use super::log_to_stderr;
use super::start::{StartArgs, serve};
use crate::exit::{Exit, runtime};
use crate::machine::hostname;
use clap::Args;
use falkon_core::limits::NAME_BYTES_MAX;
use falkon_core::result::shortened;
use falkon_dispatcher::Handle;
use falkon_net::client::{Client, ClientError};
use falkon_net::secure::{AccessFile, Role, plain};
use falkon_relay::RelayError;
use std::path::{Path, PathBuf};
use tokio::task::JoinHandle;

/// Bytes on their way between the relay and its dispatcher.
const LINK_BYTES: usize = 1 << 20;

/// `falkon relay`
#[derive(Args, Debug)]
pub(crate) struct RelayArgs {
    /// Access file of the dispatcher whose tasks are run here
    #[arg(long, value_name = "FILE")]
    upstream: PathBuf,
    /// Name shown to people [default: the names of this host and of the relay's directory]
    #[arg(long, value_name = "NAME", value_parser = crate::plan::name)]
    name: Option<String>,
    #[command(flatten)]
    start: StartArgs,
}

/// The dispatcher that executors are lent to.
pub(super) struct Upstream {
    access: AccessFile,
    name: Option<String>,
}

/// Runs the command.
pub(crate) fn relay(args: RelayArgs) -> Exit {
    crate::machine::raise_open_files();
    if args.start.keeps_no_journal() {
        return Exit::usage(
            "a relay needs its journal, to come back with the tasks that it has: leave \
             --no-journal out",
        );
    }
    let access = match AccessFile::load(&args.upstream) {
        Ok(access) => access,
        Err(error) => return Exit::usage(error),
    };
    let upstream = Upstream { access, name: args.name };
    match runtime() {
        Ok(runtime) => {
            runtime.block_on(serve(args.start, Some(upstream))).unwrap_or_else(|exit| exit)
        }
        Err(exit) => exit,
    }
}

impl Upstream {
    /// Lends the executors of a dispatcher in this process.
    pub(super) fn lend(self, dispatcher: &Handle, dir: &Path, machine_durable: bool) -> Lending {
        let (ours, theirs) = tokio::io::duplex(LINK_BYTES);
        let (reader, writer) = plain(theirs);
        dispatcher.attach(Role::Owner, "the relay", reader, writer);
        let (reader, writer) = plain(ours);
        let (client, deliveries) = Client::over(reader, writer);
        let whole = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
        let last = whole.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = self.name.unwrap_or_else(|| {
            let name = format!("{}:{last}", hostname());
            shortened(&name, NAME_BYTES_MAX)
        });
        let options = falkon_relay::Options {
            name,
            dir: dir.to_owned(),
            machine_durable,
            log: log_to_stderr(),
        };
        Lending(tokio::spawn(falkon_relay::run(options, self.access, client, deliveries)))
    }
}

/// The relay, until it ends.
pub(super) struct Lending(JoinHandle<Result<(), RelayError>>);

impl Lending {
    /// How it has ended. If its dispatcher has, that has more to say, and this waits.
    pub(super) async fn ended(self) -> Result<Exit, Exit> {
        match self.0.await {
            Ok(Ok(())) => Ok(Exit::Success),
            Ok(Err(RelayError::Below(ClientError::Lost))) => std::future::pending().await,
            Ok(Err(RelayError::Connect(error))) => Err(Exit::client(ClientError::Connect(error))),
            Ok(Err(error)) => Err(Exit::failure(error)),
            Err(_) => Err(Exit::failure("the relay has ended unexpectedly")),
        }
    }
}
