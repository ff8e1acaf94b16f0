//! `falkon start`: a dispatcher.

mod listen;
mod successor;

use super::background::{BackgroundArgs, log_in};
use super::log_to_stderr;
use super::relay::{Lending, Upstream};
use crate::access::places;
use crate::exit::{Exit, Runtime, runtime};
use crate::plan::quantity::{KeepFor, keep_for};
use crate::provision::from_name;
use crate::run::Interrupts;
use crate::web::otlp;
use clap::{Args, ValueEnum};
use falkon_dispatcher::events::{EVENTS_DIRECTORY, EventOptions};
use falkon_dispatcher::{Concentrators, ControlOptions, ListenAddress, Stopped, StoreOptions};
use falkon_net::secure::{AccessError, AccessFile, FALLBACKS_MAX, Identity, Level, Role};
use falkon_provision::lrm::Executor;
use falkon_provision::{Setup, SetupError};
use listen::{Listen, advertised, resolve};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use successor::{OwnProgram, Successor, TakesOver};
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{SignalKind, signal};

/// Connections that wait to be accepted; the system's own bound
/// (`net.core.somaxconn`) is lower as a rule.
const LISTEN_CONNECTIONS_MAX: u32 = 65_535;

/// How often metrics are sent at most.
const OTLP_EVERY_MIN: Duration = Duration::from_secs(1);

/// How connections are protected.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum SecurityLevel {
    /// Peers authenticate, then nothing is protected: only on this machine
    None,
    /// Peers authenticate, and nobody can change their messages
    Authenticate,
    /// As authenticate, and nobody can read the messages: TLS 1.3
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

/// The failures that acknowledged work survives.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Durability {
    /// The end of the process, however sudden; a crash of the machine loses at most the last
    /// few milliseconds
    Process,
    /// Also a crash of the machine: every round waits for the disk
    Machine,
}

/// `falkon start`
#[derive(Args, Debug)]
pub(crate) struct StartArgs {
    /// Address to listen at; port 0 takes a free one, the previous one if it is free [default:
    /// as before with this directory, and so --advertise and --security, else 127.0.0.1:0]
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// Address for clients and executors, if it is not the one to listen at; may be repeated
    #[arg(long, value_name = "HOST:PORT")]
    advertise: Vec<String>,
    /// Directory for the journal and the access files [default:
    /// $XDG_STATE_HOME/falkon or ~/.local/state/falkon]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Protection of connections [default: authenticate if only this machine can connect, else
    /// encrypt]
    #[arg(long, value_enum)]
    security: Option<SecurityLevel>,
    /// Allow --security none or authenticate, and --web, beyond this machine
    #[arg(long)]
    force: bool,
    /// Which failures acknowledged tasks and results survive
    #[arg(long, value_enum, default_value = "process")]
    durability: Durability,
    /// Processes that hold connections for the dispatcher
    ///
    /// The number of connections of a process is limited (ulimit -n), and each is work. With
    /// auto the dispatcher holds the first thousand itself, and starts a process for every
    /// further eight thousand as they connect. With a number N, N processes hold all
    /// connections from the start; with 0 the dispatcher holds all.
    #[arg(long, value_name = "N|auto", default_value = "auto", value_parser = concentrators, overrides_with = "concentrators")]
    concentrators: Concentrators,
    /// How long instances are kept after the last request for them, once all of their tasks
    /// have ended, unless they were submitted with --keep: 12h, 30d, or forever
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = keep_for)]
    keep: KeepFor,
    /// How many executors write the outputs of all others into archives
    /// [default: all of up to 16 executors, one for each 64 of more than 1024, else 16]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    collectors: Option<u32>,
    /// Size of the events that are kept, for falkon log: the oldest go; 0 keeps none
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = crate::plan::memory_bytes)]
    events: u64,
    /// Serve a page that shows how things are, at this address of this machine; port 0 takes a
    /// free one, and falkon web opens it
    #[arg(long, value_name = "HOST:PORT")]
    web: Option<String>,
    /// Send metrics to a collector of OpenTelemetry at this address, as http://HOST:4318
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// How often metrics are sent, from 1s on
    #[arg(long, value_name = "TIME", default_value = "10s", requires = "otlp", value_parser = crate::plan::duration_micros)]
    otlp_every: u64,
    /// Keep no journal: everything is lost when the dispatcher exits
    #[arg(long)]
    no_journal: bool,
    /// Skip damaged parts of the journal instead of refusing to start
    #[arg(long)]
    salvage: bool,
    /// Get executors from this batch scheduler, as tasks need them (as falkon provision add
    /// does, with defaults that are kind to the cluster); may be repeated
    ///
    /// slurm, gridengine and so on, auto for the installed one, or a queue's file. Unless
    /// --listen was given, now or before, the dispatcher then listens at all of this machine's
    /// addresses, encrypted. Queues that were added before need no option.
    #[arg(long, value_name = "SCHEDULER|FILE")]
    provision: Vec<String>,
    /// Where executors go when this dispatcher, or relay, is gone for good: another one's
    /// access-executor.json, which becomes part of the one that is written here; may be repeated
    #[arg(long, value_name = "FILE")]
    fallback: Vec<PathBuf>,
    /// This program takes the place of one that runs, or is examined for that
    #[arg(long, hide = true, value_enum)]
    takes_over: Option<TakesOver>,
    #[command(flatten)]
    background: BackgroundArgs,
}

impl StartArgs {
    /// Whether nothing outlives the dispatcher.
    pub(super) fn keeps_no_journal(&self) -> bool {
        self.no_journal
    }

    /// The directory, which is there then.
    pub(super) fn directory(&self) -> Result<PathBuf, Exit> {
        let Some(dir) = self.dir.clone().or_else(|| places().default_directory()) else {
            return Err(Exit::usage("no home directory is known: say --dir DIR"));
        };
        make_dir(&dir)?;
        Ok(dir)
    }

    /// Starts the service in the background if it is to be there, and returns how that went.
    pub(super) fn detach(&self) -> Option<Exit> {
        self.background.detach()
    }

    /// The service is up: what it says goes to its log from now on.
    pub(super) fn serves(&self, service: &str) -> Result<(), Exit> {
        self.background.serves(|| {
            let dir = self.dir.clone().or_else(|| places().default_directory());
            log_in(&dir.unwrap_or_default(), service)
        })
    }

    /// The dispatchers that executors fall back on.
    fn fallbacks(&self) -> Result<Vec<AccessFile>, AccessError> {
        let mut fallbacks = Vec::new();
        for path in &self.fallback {
            let access = AccessFile::load(path)?;
            access.secret(Role::Executor)?;
            if fallbacks.len() == FALLBACKS_MAX {
                return Err(AccessError::Fallbacks { path: path.clone() });
            }
            fallbacks.push(access);
        }
        Ok(fallbacks)
    }

    /// Whether what is acknowledged survives the machine.
    pub(super) fn is_machine_durable(&self) -> bool {
        matches!(self.durability, Durability::Machine)
    }
}

fn concentrators(text: &str) -> Result<Concentrators, String> {
    match text {
        "auto" => Ok(Concentrators::Auto),
        number => {
            number.parse().map(Concentrators::Exactly).map_err(|_| "not auto or a number".into())
        }
    }
}

/// Runs the command.
pub(crate) fn start(args: StartArgs) -> Exit {
    if let Some(exit) = args.detach() {
        return exit;
    }
    crate::machine::raise_open_files();
    match runtime() {
        Ok(runtime) => run(runtime, args, None),
        Err(exit) => exit,
    }
}

/// Runs a dispatcher to its end, or executes the program that takes its place.
pub(super) fn run(runtime: Runtime, args: StartArgs, upstream: Option<Upstream>) -> Exit {
    match runtime.block_on(serve(args, upstream)) {
        Ok(Served::Replaced(successor)) => successor.take_over(runtime),
        Ok(Served::Ended(exit)) | Err(exit) => exit,
    }
}

/// How a dispatcher's service ended.
enum Served {
    Ended(Exit),
    /// This process is to execute another program.
    Replaced(Successor),
}

/// Runs a dispatcher; one that has an upstream lends its executors to that.
async fn serve(args: StartArgs, upstream: Option<Upstream>) -> Result<Served, Exit> {
    let own = OwnProgram::find();
    let dir = args.directory()?;
    let access_path = dir.join("access.json");
    if args.no_journal && !args.provision.is_empty() {
        return Err(Exit::usage(
            "--provision needs a journal, to find its jobs again: leave --no-journal out",
        ));
    }
    let queues = args.provision.iter().map(|what| from_name(what));
    let queues: Vec<(String, String)> = queues.collect::<Result<_, _>>().map_err(Exit::usage)?;
    let fallbacks = args.fallbacks().map_err(Exit::usage)?;
    let before = ListenAddress::load(&dir).map_err(Exit::failure)?;
    let Listen { mut listening, any_port, moved } = resolve(&args, before)?;
    let collector = args.otlp.as_deref().map(otlp::target).transpose().map_err(Exit::usage)?;
    let every = Duration::from_micros(args.otlp_every);
    if every < OTLP_EVERY_MIN {
        return Err(Exit::usage("--otlp-every takes 1s or more"));
    }
    let (listen, level) = (listening.listen, listening.level);
    let inherited = match args.takes_over {
        Some(TakesOver::Check) => {
            return successor::check(&args, &dir, upstream.is_some()).map(Served::Ended);
        }
        Some(TakesOver::Serve) => {
            successor::reap_inherited();
            successor::inherited_listener()
        }
        None => None,
    };
    let page = args.web.as_deref().map(|text| crate::web::listen(text, args.force));
    let page = page.transpose().map_err(Exit::usage)?;
    let log = log_to_stderr();
    // The journal's lock keeps a second dispatcher out of this directory, so
    // it comes before everything that writes there.
    let store = StoreOptions {
        dir: dir.join("journal"),
        machine_durable: args.is_machine_durable(),
        salvage: args.salvage,
    };
    make_dir(&store.dir)?;
    let identity = Identity::open(&dir).map_err(Exit::failure)?;
    let options = falkon_dispatcher::Options {
        store: (!args.no_journal).then_some(store),
        pages: args.no_journal.then(|| dir.join("pages")),
        identity: Some(identity),
        events: (args.events > 0)
            .then(|| EventOptions { dir: dir.join(EVENTS_DIRECTORY), bytes_max: args.events }),
        keep_micros: args.keep.0,
        collectors: args.collectors.map(|count| count as usize),
        control: Some(ControlOptions { dir: dir.clone(), level }),
        log: log.clone(),
    };
    let (handle, stopped) = falkon_dispatcher::start(options).map_err(Exit::failure)?;
    let identity = handle.identity().expect("it was started with one").clone();
    let acceptor = falkon_dispatcher::acceptor(&identity, level).map_err(Exit::failure)?;
    let is_there =
        |socket: &std::net::TcpListener| socket.local_addr().is_ok_and(|address| address == listen);
    let listener = match inherited.filter(is_there) {
        Some(socket) => TcpListener::from_std(socket),
        None => listen_at(listen),
    };
    let listener = listener.or_else(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse if any_port => listen_at((listen.ip(), 0).into()),
        _ => Err(error),
    });
    let listener = listener.map_err(|error| {
        let hint = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                ": another program uses that port; stop it, or choose another with --listen"
            }
            std::io::ErrorKind::AddrNotAvailable => {
                ": this machine has no such address; choose another with --listen"
            }
            _ => "",
        };
        Exit::failure(format!("cannot listen at {listen}: {error}{hint}"))
    })?;
    let address = listener
        .local_addr()
        .map_err(|error| Exit::failure(format!("cannot tell the port in use: {error}")))?;
    listening.listen = address;
    let addresses = advertised(&listening);
    identity.write_access_files(&dir, level, &addresses, &fallbacks).map_err(Exit::failure)?;
    listening.save(&dir).map_err(Exit::failure)?;
    if let Some(moved) = moved {
        log(&moved);
    }
    if !args.no_journal {
        let access = identity.access_file(level, &addresses, &[Role::Executor]);
        let access = access.with_fallbacks(&fallbacks).map_err(Exit::usage)?;
        let mut setup = provisioner(&identity, &dir, &access, queues)?;
        setup.loopback = address.ip().is_loopback();
        handle.provision(setup).await.map_err(|error| match error {
            SetupError::Queue { .. } => Exit::usage(error),
            _ => Exit::failure(error),
        })?;
    }
    if page.is_none() {
        crate::web::serve_none(&dir);
    }
    let page = page.map(|page| {
        let access = identity.access_file(level, &addresses, &[Role::Observer, Role::Owner]);
        crate::web::serve(page, &handle, &access, &dir)
    });
    let page = page.transpose().map_err(Exit::failure)?;
    // It ends with this function.
    if let Some(page) = &page {
        log(&format!("page at http://{}: falkon web opens it", page.address()));
    }
    let sending = collector.map(|target| {
        log(&format!("metrics are sent to {}", target.shown()));
        otlp::send(target, every, &handle, addresses.join(","), log.clone())
    });
    // It ends with this function, too.
    let _sending = sending.transpose().map_err(Exit::failure)?;
    log(&format!(
        "dispatcher at {} ({level:?} security), access file {}",
        addresses.join(", "),
        access_path.display()
    ));
    args.serves(if upstream.is_some() { "relay" } else { "dispatcher" })?;
    let wishes = handle.restarts().await;
    let socket = listener.as_fd().try_clone_to_owned().ok();
    let examining = tokio::spawn(own.examine_all(handle.clone(), wishes));
    let serving = tokio::spawn(handle.clone().serve(listener, acceptor, args.concentrators));
    let machine_durable = args.is_machine_durable();
    let lending = upstream.map(|upstream| upstream.lend(&handle, level, &dir, machine_durable));
    let mut lending = std::pin::pin!(lending_ended(lending));
    // A dispatcher outlives the terminal that it was started from.
    let _hangups = signal(SignalKind::hangup());
    let mut interrupts = Interrupts::new();
    let mut stopped = stopped;
    let how = tokio::select! {
        biased;
        how = &mut stopped => how,
        ended = &mut lending => {
            handle.stop().await;
            stopped.await.ok();
            return ended.map(Served::Ended);
        }
        () = interrupts.next() => {
            log("stopping; it continues when started again with the same directory");
            handle.stop().await;
            stopped.await
        }
    };
    serving.abort();
    match how {
        Ok(Stopped::Asked) => Ok(Served::Ended(Exit::Success)),
        Ok(Stopped::Replaced) => match examining.await {
            Ok(Some(successor)) => Ok(Served::Replaced(successor.listening_at(socket))),
            Ok(None) | Err(_) => Err(Exit::failure("the program to be restarted is not known")),
        },
        Ok(Stopped::JournalFailed) => Ok(Served::Ended(Exit::Failure)),
        Err(_) => Err(Exit::failure("the dispatcher has ended unexpectedly")),
    }
}

/// How the lending of executors has ended; waits for ever where none are lent.
async fn lending_ended(lending: Option<Lending>) -> Result<Exit, Exit> {
    match lending {
        Some(lending) => lending.ended().await,
        None => std::future::pending().await,
    }
}

/// Where the provisioner's files are in the dispatcher's directory.
const PROVISION_DIRECTORY: &str = "provision";

/// The options of the provisioner.
fn provisioner(
    identity: &Identity,
    dir: &Path,
    access: &AccessFile,
    queues: Vec<(String, String)>,
) -> Result<Setup, Exit> {
    let binary = std::env::current_exe()
        .map_err(|error| Exit::failure(format!("cannot tell where this program is: {error}")))?;
    let dir = std::path::absolute(dir.join(PROVISION_DIRECTORY)).map_err(|error| {
        Exit::failure(format!("cannot tell where {} is: {error}", dir.display()))
    })?;
    let access = String::from_utf8_lossy(&access.text()).into_owned();
    let dispatcher = identity.dispatcher().0;
    let tag = dispatcher.iter().take(TAG_BYTES).map(|byte| format!("{byte:02x}"));
    let executor = Executor { binary, access, give_up: Duration::ZERO, leave_before: None };
    Ok(Setup { dir, executor, tag: tag.collect(), loopback: false, queues })
}

/// Bytes of the dispatcher's number that are in the names of its jobs.
const TAG_BYTES: usize = 4;

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

/// The name survives the machine, as the journal's acknowledged contents must.
fn make_dir(dir: &std::path::Path) -> Result<(), Exit> {
    falkon_dispatcher::journal::create_dir(dir)
        .map_err(|error| Exit::usage(format!("cannot create {}: {error}", dir.display())))
}
