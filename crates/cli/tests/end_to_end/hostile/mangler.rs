//! A peer that proves who it is, speaks the protocol and means ill: an
//! ordinary program behind a proxy that changes what it sends.
//!
//! Works at level `none`, where frames carry neither code nor number.

use super::replay::Corpus;
use super::value::Value;
use crate::fixture::Random;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Frames larger than this end the proxied connection, as they do the real one.
const FRAME_BYTES_MAX: usize = 16 << 20;
/// Bytes that one connection floods with at most.
const FLOOD_BYTES_MAX: usize = 64 << 20;

/// How ill a peer means it: once in so many frames.
#[derive(Debug, Clone, Copy)]
pub(super) struct Character {
    pub(super) mangles: u64,
    pub(super) repeats: u64,
    pub(super) drops: u64,
    pub(super) swaps: u64,
    pub(super) floods: u64,
    pub(super) stalls: u64,
    pub(super) hangs_up: u64,
}

/// What all manglers of a test have done, and learned of their victim.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) frames: AtomicU64,
    pub(super) mangled: AtomicU64,
    pub(super) over: AtomicBool,
    pub(super) corpus: Mutex<Corpus>,
    /// Addresses at which executors serve each other.
    pub(super) peers: Mutex<Vec<String>>,
    /// What executors prove themselves to each other with.
    pub(super) peer_secret: [u8; 32],
}

/// A proxy in front of a dispatcher.
#[derive(Debug)]
pub(super) struct Mangler {
    access: PathBuf,
}

impl Mangler {
    /// Listens, and writes an access file that leads through it.
    pub(super) fn start(
        access: &Path,
        name: &str,
        character: Character,
        random: &Random,
        ledger: &Arc<Ledger>,
    ) -> Mangler {
        let by_executor = name.contains("executor");
        let text = std::fs::read(access).unwrap();
        let mut json: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let victim = json["addresses"][0].as_str().unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        json["addresses"] = serde_json::json!([listener.local_addr().unwrap().to_string()]);
        let file = access.with_file_name(name);
        std::fs::write(&file, json.to_string()).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&file, mode).unwrap();
        let (random, ledger) = (random.clone(), ledger.clone());
        std::thread::spawn(move || {
            for (number, stream) in (1..).zip(listener.incoming()) {
                let Ok(stream) = stream else { continue };
                if ledger.over.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(victim) = TcpStream::connect(&victim) else { continue };
                let streams = (stream, victim);
                let random = random.lane(number);
                relay(streams, by_executor, character, random, &ledger);
            }
        });
        Mangler { access: file }
    }

    pub(super) fn access(&self) -> &Path {
        &self.access
    }
}

/// Carries both directions of a connection, each in a thread of its own.
fn relay(
    (near, far): (TcpStream, TcpStream),
    by_executor: bool,
    character: Character,
    random: Random,
    ledger: &Arc<Ledger>,
) {
    let streams = (near.try_clone(), far.try_clone());
    let (Ok(near_too), Ok(far_too)) = streams else { return };
    let (out, back) = (ledger.clone(), ledger.clone());
    std::thread::spawn(move || {
        let mut sender =
            Sender { to: &far, by_executor, random, character, ledger: &out, held: None };
        // A connection that ends says so to both sides.
        let _ = sender.run(&near);
        let _ = far.shutdown(Shutdown::Both);
        let _ = near.shutdown(Shutdown::Both);
    });
    std::thread::spawn(move || {
        let _ = answers(&far_too, &near_too, &back);
        let _ = far_too.shutdown(Shutdown::Both);
        let _ = near_too.shutdown(Shutdown::Both);
    });
}

/// The bit of a frame's length that says that only its receiver can read it.
const SEALED: u32 = 1 << 31;

/// The next frame, and whether it is sealed.
fn frame_of_either_kind(mut from: impl Read) -> io::Result<(bool, Vec<u8>)> {
    let mut head = [0; 4];
    from.read_exact(&mut head)?;
    let head = u32::from_le_bytes(head);
    let length = (head & !SEALED) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok((head & SEALED != 0, body))
}

fn send_of_either_kind(mut to: impl Write, sealed: bool, body: &[u8]) -> io::Result<()> {
    let seal = if sealed { SEALED } else { 0 };
    let mut bytes = (body.len() as u32 | seal).to_le_bytes().to_vec();
    bytes.extend_from_slice(body);
    to.write_all(&bytes)
}

fn frame(from: impl Read) -> io::Result<Vec<u8>> {
    match frame_of_either_kind(from)? {
        (false, body) => Ok(body),
        (true, _) => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn send(to: impl Write, body: &[u8]) -> io::Result<()> {
    send_of_either_kind(to, false, body)
}

/// Passes the preamble and the two messages of the handshake on.
fn introduce(mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
    let mut preamble = [0; 16];
    from.read_exact(&mut preamble)?;
    to.write_all(&preamble)?;
    for _ in 0..2 {
        send(to, &frame(from)?)?;
    }
    Ok(())
}

/// What comes back is passed on as it is, after a look at what it tells.
fn answers(from: &TcpStream, to: &TcpStream, ledger: &Ledger) -> io::Result<()> {
    introduce(from, to)?;
    loop {
        let (sealed, body) = frame_of_either_kind(from)?;
        if !sealed && let Some(mut value) = Value::read(&body) {
            value.each(&mut |part| {
                let Value::Text(text) = part else { return };
                let text = String::from_utf8_lossy(text);
                if text.parse::<std::net::SocketAddr>().is_ok() {
                    let mut peers = ledger.peers.lock().unwrap();
                    if !peers.iter().any(|peer| *peer == text) {
                        peers.push(text.into_owned());
                    }
                }
            });
        }
        send_of_either_kind(to, sealed, &body)?;
    }
}

/// The direction in which frames are changed.
struct Sender<'a> {
    to: &'a TcpStream,
    by_executor: bool,
    random: Random,
    character: Character,
    ledger: &'a Ledger,
    /// A frame that waits to be sent behind the next one.
    held: Option<Vec<u8>>,
}

impl Sender<'_> {
    fn once_in(&mut self, frames: u64) -> bool {
        frames > 0 && self.random.below(frames) == 0
    }

    fn run(&mut self, from: &TcpStream) -> io::Result<()> {
        introduce(from, self.to)?;
        loop {
            let mut body = frame(from)?;
            self.ledger.frames.fetch_add(1, Ordering::Relaxed);
            let corpus = &self.ledger.corpus;
            corpus.lock().unwrap().remember(self.by_executor, &body, &mut self.random);
            if self.once_in(self.character.hangs_up) {
                // In the middle of a message.
                let mut to = self.to;
                to.write_all(&(body.len() as u32 + 1).to_le_bytes())?;
                to.write_all(&body)?;
                return Ok(());
            }
            if self.once_in(self.character.drops) {
                continue;
            }
            if self.once_in(self.character.mangles)
                && let Some(mut value) = Value::read(&body)
            {
                let done = value.mangle(&mut self.random);
                self.ledger.mangled.fetch_add(1, Ordering::Relaxed);
                if std::env::var_os("FALKON_HOSTILE_TRACE").is_some() {
                    println!("{:02x?}: {done}", &body[..body.len().min(8)]);
                }
                body.clear();
                value.write(&mut body);
                body.truncate(FRAME_BYTES_MAX);
            }
            if self.once_in(self.character.stalls) {
                self.random.moment(1_500_000);
            }
            if self.once_in(self.character.swaps) && self.held.is_none() {
                self.held = Some(body);
                continue;
            }
            self.send(&body)?;
            if let Some(held) = self.held.take() {
                self.send(&held)?;
            }
            if self.once_in(self.character.repeats) {
                self.send(&body)?;
            }
            if self.once_in(self.character.floods) {
                let times = (FLOOD_BYTES_MAX / (body.len() + 4)).min(5_000);
                for _ in 0..times {
                    self.send(&body)?;
                }
            }
        }
    }

    fn send(&mut self, body: &[u8]) -> io::Result<()> {
        send(self.to, body)
    }
}
