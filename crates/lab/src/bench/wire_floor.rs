//! What the network and the disk cost without any Falkon: the same bytes along
//! the same way, and a message there and back through two hops.

use super::error::BenchError;
use super::services::Scratch;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::fs::File;
use std::io::{Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes per read and write, a usual bundle.
const PIECE_BYTES: usize = 256 << 10;
/// Bytes of a message that goes there and back.
const PING_BYTES: usize = 64;
/// How long a thread that waits awake looks for a message before it sleeps.
const AWAKE_MICROS: u64 = 200;

fn pair() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let ours = TcpStream::connect(listener.local_addr()?)?;
    let (theirs, _) = listener.accept()?;
    ours.set_nodelay(true)?;
    theirs.set_nodelay(true)?;
    Ok((ours, theirs))
}

/// Seconds that `out` bytes take from a client through a relay, which writes
/// them to a file, to a sink, while `back` bytes come back the same way. Each
/// is a thread with blocking reads and writes, and does nothing else.
pub(crate) fn relay(out: u64, back: u64) -> std::result::Result<f64, BenchError> {
    let scratch = Scratch::new()?;
    relay_in(&scratch, out, back).map_err(BenchError::system("move bytes over loopback"))
}

fn relay_in(scratch: &Scratch, out: u64, back: u64) -> Result<f64> {
    let (client, relay_client) = pair()?;
    let (relay_sink, sink) = pair()?;
    let journal = File::create(scratch.path().join("relayed"))?;
    let journal_back = File::create(scratch.path().join("relayed-back"))?;
    let start = Instant::now();
    let (client_in, relay_client_out) = (client.try_clone()?, relay_client.try_clone()?);
    let (relay_sink_in, sink_out) = (relay_sink.try_clone()?, sink.try_clone()?);
    let ways: Vec<thread::JoinHandle<Result<()>>> = vec![
        thread::spawn(move || send(client, out)),
        thread::spawn(move || pass(relay_client, relay_sink, journal, out)),
        thread::spawn(move || drain(sink, out)),
        thread::spawn(move || send(sink_out, back)),
        thread::spawn(move || pass(relay_sink_in, relay_client_out, journal_back, back)),
        thread::spawn(move || drain(client_in, back)),
    ];
    for way in ways {
        way.join().unwrap_or_else(|_| Err(std::io::Error::other("a thread has ended")))?;
    }
    Ok(start.elapsed().as_secs_f64())
}

fn send(mut to: TcpStream, mut bytes: u64) -> Result<()> {
    let piece = vec![7; PIECE_BYTES];
    while bytes > 0 {
        let count = bytes.min(PIECE_BYTES as u64);
        to.write_all(&piece[..count as usize])?;
        bytes -= count;
    }
    Ok(())
}

fn pass(mut from: TcpStream, mut to: TcpStream, mut journal: File, bytes: u64) -> Result<()> {
    take(&mut from, bytes, |piece| {
        journal.write_all(piece)?;
        to.write_all(piece)
    })
}

fn drain(mut from: TcpStream, bytes: u64) -> Result<()> {
    take(&mut from, bytes, |_| Ok(()))
}

fn take(
    from: &mut TcpStream,
    mut bytes: u64,
    mut each: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    while bytes > 0 {
        let most = bytes.min(PIECE_BYTES as u64) as usize;
        let count = from.read(&mut piece[..most])?;
        if count == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        each(&piece[..count])?;
        bytes -= count as u64;
    }
    Ok(())
}

/// How a thread waits for the next message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// It sleeps until the message is there.
    Asleep,
    /// It looks for the message again and again, offering the processor to
    /// others in between, and sleeps after [`AWAKE_MICROS`]: as the dispatcher
    /// and the executor do where answers come soon.
    Awake,
}

impl Wait {
    fn read(self, from: &mut TcpStream, message: &mut [u8]) -> Result<()> {
        let start = Instant::now();
        let mut read = 0;
        while self == Wait::Awake && start.elapsed() < Duration::from_micros(AWAKE_MICROS) {
            match recv(&*from, &mut message[read..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                Ok((count, _)) => read += count,
                Err(Errno::WOULDBLOCK | Errno::INTR) => thread::yield_now(),
                Err(error) => return Err(error.into()),
            }
            if read == message.len() {
                return Ok(());
            }
        }
        from.read_exact(&mut message[read..])
    }
}

/// A message's way from here through a relay to a far end and back: three
/// threads.
pub(crate) struct TwoHops {
    near: TcpStream,
    wait: Wait,
    threads: Vec<thread::JoinHandle<Result<()>>>,
}

impl TwoHops {
    /// The far end does `work` for each message before it answers.
    pub(crate) fn new(
        wait: Wait,
        work: impl Fn() -> Result<()> + Send + 'static,
    ) -> std::result::Result<TwoHops, BenchError> {
        TwoHops::set_up(wait, work).map_err(BenchError::system("make connections over loopback"))
    }

    fn set_up(wait: Wait, work: impl Fn() -> Result<()> + Send + 'static) -> Result<TwoHops> {
        let (near, mut relay_near) = pair()?;
        let (mut relay_far, mut far) = pair()?;
        let relay = move || -> Result<()> {
            let mut message = [0; PING_BYTES];
            loop {
                wait.read(&mut relay_near, &mut message)?;
                relay_far.write_all(&message)?;
                wait.read(&mut relay_far, &mut message)?;
                relay_near.write_all(&message)?;
            }
        };
        let end = move || -> Result<()> {
            let mut message = [0; PING_BYTES];
            loop {
                wait.read(&mut far, &mut message)?;
                work()?;
                far.write_all(&message)?;
            }
        };
        Ok(TwoHops { near, wait, threads: vec![thread::spawn(relay), thread::spawn(end)] })
    }

    /// Seconds that one message takes there and back.
    pub(crate) fn ping(&mut self) -> std::result::Result<f64, BenchError> {
        let start = Instant::now();
        let mut message = [1; PING_BYTES];
        self.near
            .write_all(&message)
            .and_then(|()| self.wait.read(&mut self.near, &mut message))
            .map_err(BenchError::system("send a message over loopback"))?;
        Ok(start.elapsed().as_secs_f64())
    }
}

impl Drop for TwoHops {
    fn drop(&mut self) {
        // A connection that is gone already ends the threads as well; they end
        // with an error, as their peers have hung up.
        let _ = self.near.shutdown(std::net::Shutdown::Both);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
