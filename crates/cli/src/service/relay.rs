//! `falkon relay`: a dispatcher that lends its executors to another one, or a process
//! that lends those of a dispatcher that is there already.

use super::log_to_stderr;
use super::start::{StartArgs, run};
use crate::exit::{Exit, runtime};
use crate::machine::hostname;
use crate::run::Interrupts;
use clap::Args;
use falkon_core::limits::NAME_BYTES_MAX;
use falkon_core::result::shortened;
use falkon_dispatcher::Handle;
use falkon_net::client::{Client, ClientError};
use falkon_net::secure::{AccessError, AccessFile, Level, Proxy, Role, plain};
use falkon_relay::{Downstream, Place, RelayError};
use std::path::{Path, PathBuf};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Bytes on their way between the relay and its dispatcher.
const LINK_BYTES: usize = 1 << 20;

/// `falkon relay`
#[derive(Args, Debug)]
pub(crate) struct RelayArgs {
    /// Access file of the dispatcher whose tasks are run here
    #[arg(long, value_name = "FILE")]
    upstream: PathBuf,
    /// Connect to that dispatcher through this proxy: http://HOST:PORT or socks5://HOST:PORT
    #[arg(long, value_name = "URL")]
    proxy: Option<Proxy>,
    /// Name shown to people [default: the names of this host and of the relay's directory]
    #[arg(long, value_name = "NAME", value_parser = crate::plan::name)]
    name: Option<String>,
    /// Lend the executors of the dispatcher of this access file, which others use too, instead
    /// of starting one
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["listen", "advertise", "security", "force", "concentrators", "keep", "salvage", "provision", "fallback"]
    )]
    access: Option<PathBuf>,
    #[command(flatten)]
    start: StartArgs,
}

/// The dispatcher that executors are lent to.
pub(super) struct Upstream {
    access: AccessFile,
    proxy: Option<Proxy>,
    name: Option<String>,
}

/// Runs the command.
pub(crate) fn relay(args: RelayArgs) -> Exit {
    if let Some(exit) = args.start.detach() {
        return exit;
    }
    crate::machine::raise_open_files();
    if args.start.keeps_no_journal() {
        return Exit::usage(
            "a relay needs its journal, to come back with the tasks that it has: leave \
             --no-journal out",
        );
    }
    let upstream = match load(&args.upstream, Role::Executor) {
        Ok(access) => Upstream { access, proxy: args.proxy, name: args.name },
        Err(error) => return Exit::usage(error),
    };
    let beside = args.access.as_deref().map(|path| load(path, Role::Owner)).transpose();
    let beside = match beside {
        Ok(beside) => beside,
        Err(error) => return Exit::usage(error),
    };
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(exit) => return exit,
    };
    match beside {
        None => run(runtime, args.start, Some(upstream)),
        Some(access) => {
            let ended = runtime.block_on(lend_beside(&args.start, upstream, access));
            ended.unwrap_or_else(|exit| exit)
        }
    }
}

/// An access file that opens its dispatcher in this role.
fn load(path: &Path, role: Role) -> Result<AccessFile, AccessError> {
    let access = AccessFile::load(path)?;
    access.secret(role)?;
    Ok(access)
}

/// Lends the executors of a dispatcher that is there already.
async fn lend_beside(
    args: &StartArgs,
    upstream: Upstream,
    access: AccessFile,
) -> Result<Exit, Exit> {
    if access.dispatcher == upstream.access.dispatcher {
        return Err(Exit::usage(
            "--upstream and --access name the same dispatcher: its tasks would come back to it",
        ));
    }
    let dir = args.directory()?;
    let place = Place { dir, machine_durable: args.is_machine_durable() };
    args.serves("relay")?;
    let lending = upstream.start(place, Downstream::Access(Box::new(access)));
    // As a dispatcher, it outlives the terminal that it was started from.
    let _hangups = signal(SignalKind::hangup());
    let mut interrupts = Interrupts::new();
    tokio::select! {
        ended = lending.ended() => ended,
        () = interrupts.next() => Ok(Exit::Success),
    }
}

impl Upstream {
    /// Lends the executors of a dispatcher in this process.
    pub(super) fn lend(
        self,
        dispatcher: &Handle,
        level: Level,
        dir: &Path,
        machine_durable: bool,
    ) -> Lending {
        let (ours, theirs) = tokio::io::duplex(LINK_BYTES);
        let (reader, writer) = plain(theirs);
        dispatcher.attach(Role::Owner, "the relay", reader, writer);
        let (reader, writer) = plain(ours);
        let (client, deliveries) = Client::over(reader, writer);
        let place = Place { dir: dir.to_owned(), machine_durable };
        self.start(place, Downstream::Here { client, deliveries, level })
    }

    fn start(self, place: Place, downstream: Downstream) -> Lending {
        let whole = std::path::absolute(&place.dir).unwrap_or_else(|_| place.dir.clone());
        let last = whole.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = self.name.unwrap_or_else(|| {
            let name = format!("{}:{last}", hostname());
            shortened(&name, NAME_BYTES_MAX)
        });
        let options = falkon_relay::Options {
            name,
            place: Some(place),
            lease_micros: None,
            log: log_to_stderr(),
        };
        let (access, proxy) = (Box::new(self.access), self.proxy);
        let upstream = falkon_relay::Upstream::Access { access, proxy };
        // It goes on until its process ends.
        let (_, stop) = oneshot::channel();
        Lending(tokio::spawn(falkon_relay::run(options, upstream, downstream, stop)))
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
