//! A way to a peer on which things go wrong.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Mischief {
    None,
    /// Ends a connection after so many bytes to the client.
    CutAfter(usize),
    /// Changes the byte at this place of what goes to the client.
    ChangeAt(usize),
}

pub(crate) struct Proxy {
    pub(crate) address: String,
    connections: Arc<AtomicUsize>,
}

impl Proxy {
    /// How many there were so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

pub(crate) fn start(to: &str, mischief: Mischief) -> Proxy {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let connections = Arc::new(AtomicUsize::new(0));
    let (count, to) = (Arc::clone(&connections), to.to_owned());
    std::thread::spawn(move || {
        for client in listener.incoming() {
            count.fetch_add(1, Ordering::Relaxed);
            let (client, server) = (client.unwrap(), TcpStream::connect(&to).unwrap());
            client.set_nodelay(true).unwrap();
            server.set_nodelay(true).unwrap();
            let (from_client, to_server) =
                (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || carry(from_client, to_server, Mischief::None));
            std::thread::spawn(move || carry(server, client, mischief));
        }
    });
    Proxy { address, connections }
}

/// Carries bytes one way until either side ends.
fn carry(mut from: TcpStream, mut to: TcpStream, mischief: Mischief) {
    let mut buffer = vec![0; 64 << 10];
    let mut carried = 0;
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let mut bytes = &mut buffer[..count];
        match mischief {
            Mischief::CutAfter(limit) => {
                let left = bytes.len().min(limit - carried);
                bytes = &mut bytes[..left];
            }
            Mischief::ChangeAt(at) if (carried..carried + count).contains(&at) => {
                bytes[at - carried] ^= 1;
            }
            _ => {}
        }
        carried += bytes.len();
        if bytes.is_empty() || to.write_all(bytes).is_err() {
            break;
        }
    }
    // The other direction ends with this one.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
