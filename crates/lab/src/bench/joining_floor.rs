//! What connections cost that say as little as an executor that joins: how many a second this
//! machine makes of them without any Falkon.

use super::error::BenchError;
use std::io::{Error, Result};
use std::net::SocketAddr;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::task::JoinSet;

/// Connections that are made: a process of usual limits has descriptors for both ends.
const CONNECTIONS: u32 = 6000;
/// Messages there and back until an executor has joined: preambles with a claim and the server's
/// proof, the executor's proof and its welcome, and its registration.
const ROUND_TRIPS: usize = 3;
/// Bytes of a message, about those of a proof.
const MESSAGE_BYTES: usize = 40;
/// Connections that are begun before those that are under way have a turn, as by the emulator.
const BEGUN_AT_ONCE: u32 = 16;

/// Connections a second: one thread makes them and another one accepts them, each message goes
/// there and back, and all of them stay.
pub(crate) fn measure() -> std::result::Result<f64, BenchError> {
    measured().map_err(BenchError::system("make many connections over loopback"))
}

fn measured() -> Result<f64> {
    falkon_cli::machine::raise_open_files();
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let accepting = std::thread::spawn(move || alone(accept(listener)));
    let start = Instant::now();
    let made = std::thread::spawn(move || alone(connect(address))).join();
    let made = made.unwrap_or_else(|_| Err(Error::other("a thread has ended")))?;
    let seconds = start.elapsed().as_secs_f64();
    let accepted = accepting.join();
    drop(made);
    accepted.unwrap_or_else(|_| Err(Error::other("a thread has ended")))?;
    Ok(f64::from(CONNECTIONS) / seconds)
}

/// Carries something out on this thread alone.
fn alone<T>(what: impl Future<Output = Result<T>>) -> Result<T> {
    Builder::new_current_thread().enable_all().build()?.block_on(what)
}

async fn accept(listener: std::net::TcpListener) -> Result<Vec<TcpStream>> {
    let listener = TcpListener::from_std(listener)?;
    let mut under_way = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (mut stream, _) = listener.accept().await?;
        under_way.spawn(async move {
            stream.set_nodelay(true)?;
            let mut message = [0; MESSAGE_BYTES];
            for _ in 0..ROUND_TRIPS {
                stream.read_exact(&mut message).await?;
                stream.write_all(&message).await?;
            }
            Ok(stream)
        });
    }
    under_way.join_all().await.into_iter().collect()
}

async fn connect(address: SocketAddr) -> Result<Vec<TcpStream>> {
    let mut under_way = JoinSet::new();
    for number in 0..CONNECTIONS {
        under_way.spawn(async move {
            let mut stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            let mut message = [0; MESSAGE_BYTES];
            for _ in 0..ROUND_TRIPS {
                stream.write_all(&message).await?;
                stream.read_exact(&mut message).await?;
            }
            Ok(stream)
        });
        if number % BEGUN_AT_ONCE == BEGUN_AT_ONCE - 1 {
            tokio::task::yield_now().await;
        }
    }
    under_way.join_all().await.into_iter().collect()
}
