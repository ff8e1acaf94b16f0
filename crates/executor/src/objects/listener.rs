//! Where an executor listens for others.

use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};

/// The address by which this machine is seen from the dispatcher, and a
/// listener there.
pub(super) fn listen(dispatcher: &str) -> std::io::Result<(TcpListener, SocketAddr)> {
    let mut last = std::io::Error::from(std::io::ErrorKind::AddrNotAvailable);
    for address in dispatcher.to_socket_addrs()? {
        let any: SocketAddr = match address {
            SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
            SocketAddr::V6(_) => ([0u16; 8], 0).into(),
        };
        // The system only looks up the route; no packet is sent.
        let way = UdpSocket::bind(any).and_then(|socket| {
            socket.connect(address)?;
            socket.local_addr()
        });
        match way.and_then(|own| listen_at(own.ip())) {
            Ok(found) => return Ok(found),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A listener at one of this machine's addresses, and the address with its
/// port.
pub(super) fn listen_at(own: IpAddr) -> std::io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind((own, 0))?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}
