//! The sending side of a connection that is served.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::sendfile;
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::TcpStream;

use super::silence::in_time;
use super::wire::Answer;
use super::{BUFFER_BYTES, SMALL_BYTES_MAX, TURN_BYTES};
use falkon_net::secure::{Code, Outgoing};

/// The sending side of a served connection.
pub(super) struct Sender {
    pub(super) stream: Outgoing,
    pub(super) seal: Option<Code>,
    /// Answers and small bodies that go out together.
    pub(super) waiting: Vec<u8>,
}

impl Sender {
    /// Sends a message at once, with its code.
    pub(super) async fn say(&mut self, message: &[u8]) -> io::Result<()> {
        self.waiting.extend_from_slice(message);
        self.seal_waiting(message.len());
        self.flush().await
    }

    pub(super) async fn answer(&mut self, answer: Answer) -> io::Result<()> {
        let bytes = answer.encode();
        self.waiting.extend_from_slice(&bytes);
        self.seal_waiting(bytes.len());
        self.flush_if_full().await
    }

    /// Adds the code of the last bytes that wait.
    fn seal_waiting(&mut self, bytes: usize) {
        let Some(seal) = &mut self.seal else { return };
        let mut hasher = seal.begin();
        hasher.update(&self.waiting[self.waiting.len() - bytes..]);
        self.waiting.extend_from_slice(&Code::end(&hasher));
    }

    pub(super) async fn serve(
        &mut self,
        answer: Answer,
        file: &File,
        offset: u64,
    ) -> io::Result<()> {
        self.answer(answer).await?;
        if answer.length <= SMALL_BYTES_MAX {
            let start = self.waiting.len();
            let length = answer.length as usize;
            self.waiting.resize(start + length, 0);
            file.read_exact_at(&mut self.waiting[start..], offset)?;
            self.seal_waiting(length);
            return self.flush_if_full().await;
        }
        self.flush().await?;
        match &self.stream {
            Outgoing::Tcp(stream) if self.seal.is_none() => {
                send_file(stream.as_ref(), file, offset, answer.length).await
            }
            _ => self.copy(file, offset, answer.length).await,
        }
    }

    /// Sends a body through memory, with its code.
    async fn copy(&mut self, file: &File, offset: u64, length: u64) -> io::Result<()> {
        let mut hasher = self.seal.as_mut().map(Code::begin);
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut sent = 0;
        while sent < length {
            let count = (length - sent).min(buffer.len() as u64) as usize;
            file.read_exact_at(&mut buffer[..count], offset + sent)?;
            if let Some(hasher) = &mut hasher {
                hasher.update(&buffer[..count]);
            }
            in_time(self.stream.stream().write_all(&buffer[..count])).await?;
            sent += count as u64;
            if sent % TURN_BYTES < count as u64 {
                tokio::task::yield_now().await;
            }
        }
        if let Some(hasher) = hasher {
            self.waiting.extend_from_slice(&Code::end(&hasher));
        }
        in_time(self.stream.stream().flush()).await
    }

    async fn flush_if_full(&mut self) -> io::Result<()> {
        if self.waiting.len() >= BUFFER_BYTES { self.flush().await } else { Ok(()) }
    }

    pub(super) async fn flush(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let stream = self.stream.stream();
        in_time(stream.write_all(&self.waiting)).await?;
        in_time(stream.flush()).await?;
        self.waiting.clear();
        Ok(())
    }
}

/// Sends a part of a file without copying it.
async fn send_file(stream: &TcpStream, file: &File, from: u64, length: u64) -> io::Result<()> {
    let (mut at, end) = (from, from + length);
    let mut turn = at;
    while at < end {
        in_time(stream.writable()).await?;
        let sent = stream.try_io(Interest::WRITABLE, || {
            let count = (end - at).min(TURN_BYTES) as usize;
            Ok(sendfile(stream, file, Some(&mut at), count)?)
        });
        match sent {
            // The file became shorter: the peer must not take what follows for
            // its end.
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if at - turn >= TURN_BYTES {
            turn = at;
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}
