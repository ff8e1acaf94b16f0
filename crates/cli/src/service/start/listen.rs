//! Where a dispatcher listens: where its user says, or where it did the last
//! time, for that is where executors look for it.

use super::StartArgs;
use crate::exit::Exit;
use crate::machine::hostname;
use falkon_dispatcher::ListenAddress;
use falkon_net::secure::Level;
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};

/// Where and how to listen.
pub(super) struct Listen {
    /// Where.
    pub(super) listening: ListenAddress,
    /// Any other port does if that one is taken.
    pub(super) any_port: bool,
    /// A change since the last time that was not asked for.
    pub(super) moved: Option<String>,
}

/// Decides where and how to listen.
pub(super) fn resolve(args: &StartArgs, before: Option<ListenAddress>) -> Result<Listen, Exit> {
    let from_elsewhere = args.provision.iter().any(|what| what != "local");
    let mut moved = None;
    let asked = args.listen.as_deref().map(named).transpose()?;
    let listen = match (asked, &before) {
        // Any port, then, is best that of the last time.
        (Some(asked), Some(before)) if asked.port() == 0 && asked.ip() == before.listen.ip() => {
            before.listen
        }
        (Some(asked), _) => asked,
        // No option restricts it to this machine.
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
    // A forced level of the last time needs no second confirmation.
    let is_forced = args.force || before.as_ref().is_some_and(|before| before.level == level);
    level.allowed(listen, is_forced).map_err(Exit::usage)?;
    let chosen = asked.is_some() || before.as_ref().is_some_and(|before| before.chosen);
    let advertise = match (args.advertise.is_empty(), before) {
        (true, Some(before)) => before.advertise,
        _ => args.advertise.clone(),
    };
    let any_port = asked.is_some_and(|asked| asked.port() == 0);
    Ok(Listen { listening: ListenAddress { listen, chosen, advertise, level }, any_port, moved })
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
pub(super) fn advertised(listening: &ListenAddress) -> Vec<String> {
    let address = listening.listen;
    if !listening.advertise.is_empty() {
        return listening.advertise.clone();
    }
    if address.ip().is_unspecified() {
        return vec![
            format!("{}:{}", hostname(), address.port()),
            format!("127.0.0.1:{}", address.port()),
        ];
    }
    vec![address.to_string()]
}
