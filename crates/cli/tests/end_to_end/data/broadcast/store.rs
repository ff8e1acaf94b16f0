//! A web server with one object, which counts what is read, and gives no more
//! than a part of it until it is opened, and nothing when it is closed.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};

/// Bytes that are written at a time.
const PIECE_BYTES: usize = 64 << 10;

pub(crate) struct Store {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    object: Vec<u8>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Bytes that were given of the object.
    given: u64,
    /// Up to where it is given.
    until: usize,
    /// Nothing is given any more.
    closed: bool,
    ended: bool,
}

impl Store {
    /// Gives the first `until` bytes for the time being.
    pub(crate) fn start(object: Vec<u8>, until: usize) -> Store {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Mutex::new(State { until, ..State::default() });
        let shared = Arc::new(Shared { object, state, changed: Condvar::new() });
        let serving = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.state.lock().unwrap().ended {
                    return;
                }
                let serving = serving.clone();
                // Whoever goes away in the middle is of no concern.
                std::thread::spawn(move || stream.map(|stream| serve(stream, &serving)));
            }
        });
        Store { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/object", self.address)
    }

    /// Gives all of it from now on.
    pub(crate) fn open(&self) {
        self.shared.state.lock().unwrap().until = usize::MAX;
        self.shared.changed.notify_all();
    }

    /// Gives nothing from now on, and still says which version it has.
    pub(crate) fn close(&self) {
        self.shared.state.lock().unwrap().closed = true;
    }

    /// Waits until so many bytes were given.
    pub(crate) fn wait_for(&self, bytes: u64) {
        let state = self.shared.state.lock().unwrap();
        drop(self.shared.changed.wait_while(state, |state| state.given < bytes).unwrap());
    }

    pub(crate) fn given(&self) -> u64 {
        self.shared.state.lock().unwrap().given
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.shared.state.lock().unwrap().ended = true;
        self.open();
        // It notices with the next connection.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let size = shared.object.len();
    while let Some(request) = lines.next().transpose()? {
        let mut wanted = 0..size;
        let mut is_part = false;
        while let Some(header) = lines.next().transpose()?.filter(|header| !header.is_empty()) {
            let header = header.to_ascii_lowercase();
            if let Some(range) = header.strip_prefix("range: bytes=") {
                let (from, to) = range.trim().split_once('-').unwrap();
                let end = to.parse().map_or(size, |last: usize| size.min(last + 1));
                (wanted, is_part) = (from.parse().unwrap()..end, true);
            }
        }
        let is_read = request.starts_with("GET ");
        if is_read && shared.state.lock().unwrap().closed {
            write!(stream, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")?;
            continue;
        }
        let head = match is_part {
            true => format!(
                "206 Partial Content\r\nContent-Range: bytes {}-{}/{size}",
                wanted.start,
                wanted.end - 1
            ),
            false => "200 OK\r\nAccept-Ranges: bytes".to_owned(),
        };
        let length = wanted.len();
        write!(stream, "HTTP/1.1 {head}\r\nETag: \"v1\"\r\nContent-Length: {length}\r\n\r\n")?;
        if is_read {
            give(&mut stream, shared, wanted)?;
        }
    }
    Ok(())
}

fn give(stream: &mut TcpStream, shared: &Shared, wanted: Range<usize>) -> std::io::Result<()> {
    let mut at = wanted.start;
    while at < wanted.end {
        let end = wanted.end.min(at + PIECE_BYTES);
        let state = shared.state.lock().unwrap();
        drop(shared.changed.wait_while(state, |state| state.until < end).unwrap());
        stream.write_all(&shared.object[at..end])?;
        shared.state.lock().unwrap().given += (end - at) as u64;
        shared.changed.notify_all();
        at = end;
    }
    Ok(())
}
