//! Where a dispatcher listens: where its user says, or where it did the last
//! time, for that is where executors look for it.

use super::StartArgs;
use crate::embedded::hostname;
use crate::exit::Exit;
use falkon_node::dispatcher::Reached;
use falkon_node::secure::Level;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};

/// Where and how to listen.
pub(super) struct Place {
    /// Where.
    pub(super) reached: Reached,
    /// Any other port does if that one is taken.
    pub(super) any_port: bool,
    /// What of the last time is not so any more, though nobody asked for that.
    pub(super) moved: Option<String>,
}

/// Decides where and how to listen.
pub(super) fn resolve(args: &StartArgs, before: Option<Reached>) -> Result<Place, Exit> {
    let from_elsewhere = args.provision.iter().any(|what| what != "local");
    let mut moved = None;
    let asked = args.listen.as_deref().map(named).transpose()?;
    let listen = match (asked, &before) {
        // Any port, then, is best that of the last time.
        (Some(asked), Some(before)) if asked.port() == 0 && asked.ip() == before.listen.ip() => {
            before.listen
        }
        (Some(asked), _) => asked,
        // Nobody has said that it is to be this machine alone.
        (None, Some(before))
            if from_elsewhere && !before.chosen && before.listen.ip().is_loopback() =>
        {
            let listen = everywhere(before.listen.port());
            moved = Some(format!(
                "listens at all addresses of this machine from now on: executors and clients that \
                 were told {} need a new access file; --listen {0} is as the last time",
                before.listen
            ));
            listen
        }
        (None, Some(before)) => before.listen,
        (None, None) if from_elsewhere => everywhere(0),
        (None, None) => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0),
    };
    let before = before.filter(|before| before.listen == listen);
    let level = args.security.map(Level::from);
    let level = level.or(before.as_ref().map(|before| before.level));
    let level = level.unwrap_or_else(|| Level::default_for(listen));
    // What was forced the last time is not asked for again.
    let is_forced = args.force || before.as_ref().is_some_and(|before| before.level == level);
    level.allowed(listen, is_forced).map_err(Exit::usage)?;
    let chosen = asked.is_some() || before.as_ref().is_some_and(|before| before.chosen);
    let advertise = match (args.advertise.is_empty(), before) {
        (true, Some(before)) => before.advertise,
        _ => args.advertise.clone(),
    };
    let any_port = asked.is_some_and(|asked| asked.port() == 0);
    Ok(Place { reached: Reached { listen, chosen, advertise, level }, any_port, moved })
}

fn everywhere(port: u16) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port)
}

fn named(listen: &str) -> Result<SocketAddr, Exit> {
    let mut found = listen.to_socket_addrs().map_err(|error| {
        Exit::usage(format!("--listen {listen}: {error} (it takes HOST:PORT, as 0.0.0.0:7070)"))
    })?;
    found.next().ok_or_else(|| Exit::usage(format!("--listen {listen}: no such address")))
}

/// The addresses that go into access files.
pub(super) fn advertised(reached: &Reached) -> Vec<String> {
    let address = reached.listen;
    if !reached.advertise.is_empty() {
        return reached.advertise.clone();
    }
    if address.ip().is_unspecified() {
        return vec![
            format!("{}:{}", hostname(), address.port()),
            format!("127.0.0.1:{}", address.port()),
        ];
    }
    vec![address.to_string()]
}
