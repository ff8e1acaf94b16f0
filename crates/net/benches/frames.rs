//! Frames over loopback TCP at the three security levels, beside a bare
//! read/write loop that moves the same bytes in the same way, all in one run:
//! `cargo bench -p falkon-net --bench frames`.
//!
//! Sender and receiver are threads of their own with a runtime each. The rounds
//! of the contenders are interleaved and the median round of each is printed,
//! so that a busy machine hits all alike.

#![allow(clippy::unwrap_used, reason = "a test or a benchmark fails by panicking")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use falkon_net::secure::{Acceptor, FrameReader, FrameWriter, Identity, Level, Role, connect};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const VERSION: u16 = 1;
const ROUNDS: usize = 9;
/// How much is queued before a flush, in bytes: a usual bundle.
const FLUSH_BYTES: usize = 64 << 10;

#[derive(Clone, Copy)]
struct Load {
    name: &'static str,
    frame_bytes: usize,
    frames: usize,
}

const LOADS: [Load; 3] = [
    Load { name: "64 B frames", frame_bytes: 64, frames: 1_000_000 },
    Load { name: "1 MiB frames", frame_bytes: 1 << 20, frames: 512 },
    Load { name: "16 MiB frames", frame_bytes: 16 << 20, frames: 32 },
];

/// `None` is the bare loop.
const CONTENDERS: [Option<Level>; 4] =
    [None, Some(Level::None), Some(Level::Authenticate), Some(Level::Encrypt)];

fn main() {
    for load in LOADS {
        let mut rounds = CONTENDERS.map(|_| Vec::new());
        for _ in 0..ROUNDS {
            for (contender, times) in CONTENDERS.iter().zip(&mut rounds) {
                times.push(round(*contender, load));
            }
        }
        let medians = rounds.map(|mut times| {
            times.sort();
            times[ROUNDS / 2].as_secs_f64()
        });
        println!("{} ({} of them)", load.name, load.frames);
        for (contender, seconds) in CONTENDERS.iter().zip(medians) {
            let name = contender.map_or("bare loop".to_owned(), |level| level.to_string());
            println!(
                "  {name:<14} {:>8.2} M frames/s {:>8.0} MB/s   {:>5.2} of the bare loop",
                load.frames as f64 / seconds / 1e6,
                (load.frames * load.frame_bytes) as f64 / seconds / 1e6,
                medians[0] / seconds,
            );
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// The time from the first frame's sending to the last one's arrival.
fn round(contender: Option<Level>, load: Load) -> Duration {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let identity = Arc::new(Identity::open(dir.path()).unwrap());
    let level = contender.unwrap_or(Level::None);
    let access = identity.access_file(level, &[address.to_string()], &[Role::Executor]);
    let acceptor = Acceptor::new(identity, level, VERSION).unwrap();

    let receiver = std::thread::spawn(move || {
        runtime().block_on(async move {
            let (stream, _) = TcpListener::from_std(listener).unwrap().accept().await.unwrap();
            match contender {
                None => receive_bare(stream, load).await,
                Some(_) => {
                    let mut session = acceptor.accept(stream, |_| false).await.unwrap();
                    receive(&mut session.reader, load).await;
                }
            }
            Instant::now()
        })
    });
    let start = runtime().block_on(async {
        match contender {
            None => {
                let stream = TcpStream::connect(address).await.unwrap();
                stream.set_nodelay(true).unwrap();
                let start = Instant::now();
                send_bare(stream, load).await;
                start
            }
            Some(_) => {
                let mut session = connect(&access, Role::Executor, VERSION).await.unwrap();
                let start = Instant::now();
                send(&mut session.writer, load).await;
                session.writer.close().await.unwrap();
                start
            }
        }
    });
    receiver.join().unwrap() - start
}

async fn send(writer: &mut FrameWriter, load: Load) {
    let body = vec![7; load.frame_bytes];
    for _ in 0..load.frames {
        writer.queue(&body).unwrap();
        if writer.queued_bytes() >= FLUSH_BYTES {
            writer.flush().await.unwrap();
        }
    }
    writer.flush().await.unwrap();
}

async fn receive(reader: &mut FrameReader, load: Load) {
    let mut frames = 0;
    while frames < load.frames {
        let batch = reader.read_batch().await.unwrap().unwrap();
        for body in batch {
            assert_eq!(std::hint::black_box(body).len(), load.frame_bytes);
            frames += 1;
        }
    }
}

/// Writes the same bytes, lengths included, in pieces of the same size.
async fn send_bare(mut stream: TcpStream, load: Load) {
    let frame = load.frame_bytes + 4;
    let piece = vec![7; FLUSH_BYTES.div_ceil(frame) * frame];
    let mut rest = load.frames * frame;
    while rest > 0 {
        let count = rest.min(piece.len());
        stream.write_all(&piece[..count]).await.unwrap();
        rest -= count;
    }
}

/// Reads into a buffer of the reader's size.
async fn receive_bare(mut stream: TcpStream, load: Load) {
    let mut buffer = vec![0; falkon_net::secure::READ_BUFFER_BYTES];
    let mut rest = load.frames * (load.frame_bytes + 4);
    while rest > 0 {
        let count = stream.read(&mut buffer).await.unwrap();
        assert!(count > 0);
        rest -= count;
    }
}
