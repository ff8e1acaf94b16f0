//! `falkon start`: a dispatcher.

use super::log_to_stderr;
use crate::access::places;
use crate::embedded::hostname;
use crate::exit::{Exit, runtime};
use crate::run::Interrupts;
use clap::{Args, ValueEnum};
use falkon_node::dispatcher::{self, Stopped, StoreOptions};
use falkon_node::secure::{AccessFile, Identity, Level};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpSocket};

/// Connections that wait to be accepted; the system's own bound
/// (`net.core.somaxconn`) is lower as a rule.
const LISTEN_CONNECTIONS_MAX: u32 = 65_535;

/// How connections are protected.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum SecurityLevel {
    /// Peers prove themselves, then nothing is protected: only on this machine
    None,
    /// Peers prove themselves, and nobody can change what they say
    Authenticate,
    /// As authenticate, and nobody can read it: TLS 1.3
    Encrypt,
}

impl From<SecurityLevel> for Level {
    fn from(level: SecurityLevel) -> Level {
        match level {
            SecurityLevel::None => Level::None,
            SecurityLevel::Authenticate => Level::Authenticate,
            SecurityLevel::Encrypt => Level::Encrypt,
        }
    }
}

/// What acknowledged work survives.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Durability {
    /// The end of the process, however sudden; a crash of the machine costs at
    /// most what the last few milliseconds brought
    Process,
    /// Also a crash of the machine: every round waits for the disk
    Machine,
}

/// `falkon start`
#[derive(Args, Debug)]
pub(crate) struct StartArgs {
    /// Address to listen at; port 0 takes a free one [default: as the last time
    /// with this directory, else 127.0.0.1:0]
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Address that others are told, if it is not the one to listen at; may be
    /// repeated
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Vec<String>,
    /// Directory for the journal and the access files [default:
    /// $XDG_STATE_HOME/falkon or ~/.local/state/falkon]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Protection of connections [default: authenticate on this machine alone,
    /// else encrypt]
    #[arg(long, value_enum)]
    security: Option<SecurityLevel>,
    /// Allow --security none or authenticate beyond this machine
    #[arg(long)]
    force: bool,
    /// What acknowledged tasks and results survive
    #[arg(long, value_enum, default_value = "process")]
    durability: Durability,
    /// Keep no journal: everything is gone when the dispatcher ends
    #[arg(long)]
    no_journal: bool,
    /// Go on behind damage in the journal instead of refusing to start
    #[arg(long)]
    salvage: bool,
}

/// Allows as many connections as the system lets this process have.
pub(crate) fn raise_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // The limit stays as it was: fewer executors can connect.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Runs the command.
pub(crate) fn start(args: StartArgs) -> Exit {
    raise_open_files();
    match runtime() {
        Ok(runtime) => runtime.block_on(serve(args)).unwrap_or_else(|exit| exit),
        Err(exit) => exit,
    }
}

async fn serve(args: StartArgs) -> Result<Exit, Exit> {
    let Some(dir) = args.dir.clone().or_else(|| places().default_directory()) else {
        return Err(Exit::usage("no home directory is known: say --dir DIR"));
    };
    make_dir(&dir)?;
    let access_path = dir.join("access.json");
    let before = AccessFile::load(&access_path).ok();
    let listen = resolve(&args, before.as_ref())?;
    let level = args.security.map_or_else(|| Level::default_for(listen), Level::from);
    level.allowed(listen, args.force).map_err(Exit::usage)?;
    let log = log_to_stderr();
    // The journal's lock keeps a second dispatcher out of this directory, so
    // it comes before everything that writes there.
    let store = StoreOptions {
        dir: dir.join("journal"),
        machine_durable: matches!(args.durability, Durability::Machine),
        salvage: args.salvage,
    };
    make_dir(&store.dir)?;
    let identity = Arc::new(Identity::open(&dir).map_err(Exit::failure)?);
    let acceptor = dispatcher::acceptor(&identity, level).map_err(Exit::failure)?;
    let options = dispatcher::Options {
        store: (!args.no_journal).then_some(store),
        identity: Some(identity.clone()),
        log: log.clone(),
    };
    let (handle, stopped) = dispatcher::start(options).map_err(Exit::failure)?;
    let listener = listen_at(listen).map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                ": another program uses that port; stop it, or choose another with --listen"
            }
            _ => "",
        };
        Exit::failure(format!("cannot listen at {listen}: {error}{hint}"))
    })?;
    let address = listener
        .local_addr()
        .map_err(|error| Exit::failure(format!("cannot tell the port in use: {error}")))?;
    let addresses = advertised(&args, address);
    identity.write_access_files(&dir, level, &addresses).map_err(Exit::failure)?;
    log(&format!(
        "dispatcher at {} ({level:?} security), access file {}",
        addresses.join(", "),
        access_path.display()
    ));
    let serving = tokio::spawn(handle.clone().serve(listener, acceptor));
    let mut interrupts = Interrupts::new();
    let mut stopped = stopped;
    let how = tokio::select! {
        how = &mut stopped => how,
        () = interrupts.next() => {
            log("stopping; started again with the same directory it goes on");
            handle.stop().await;
            stopped.await
        }
    };
    serving.abort();
    match how {
        Ok(Stopped::Asked) => Ok(Exit::Success),
        Ok(Stopped::JournalFailed) => Ok(Exit::Failure),
        Err(_) => Err(Exit::failure("the dispatcher has ended unexpectedly")),
    }
}

/// Listens with as long a queue of new connections as the system allows:
/// thousands of executors may start in the same moment, and those that find
/// the queue full try again seconds later.
fn listen_at(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A dispatcher that is started again gets its port back at once.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(LISTEN_CONNECTIONS_MAX)
}

fn make_dir(dir: &std::path::Path) -> Result<(), Exit> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| Exit::usage(format!("cannot create {}: {error}", dir.display())))
}

/// The address to listen at.
fn resolve(args: &StartArgs, before: Option<&AccessFile>) -> Result<SocketAddr, Exit> {
    let fallback = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
    let Some(listen) = &args.listen else {
        let last = before.and_then(|access| access.addresses.first());
        return Ok(last
            .and_then(|address| address.parse::<SocketAddr>().ok())
            .filter(|address| address.ip().is_loopback())
            .unwrap_or(fallback));
    };
    let mut found = listen.to_socket_addrs().map_err(|error| {
        Exit::usage(format!("--listen {listen}: {error} (it takes HOST:PORT, as 0.0.0.0:7070)"))
    })?;
    found.next().ok_or_else(|| Exit::usage(format!("--listen {listen}: no such address")))
}

/// The addresses that go into access files.
fn advertised(args: &StartArgs, address: SocketAddr) -> Vec<String> {
    if !args.advertise.is_empty() {
        return args.advertise.clone();
    }
    if address.ip().is_unspecified() {
        return vec![
            format!("{}:{}", hostname(), address.port()),
            format!("127.0.0.1:{}", address.port()),
        ];
    }
    vec![address.to_string()]
}
