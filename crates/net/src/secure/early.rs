//! The first bytes of a connection. A preamble that leaves goes out with what follows it, in one
//! write; one that comes is read with what follows it, in one read.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::breakdown::Breakdown;
use super::preamble::{PREAMBLE_BYTES, Preamble};

/// The most that is read of a connection together with the preamble, which is counted, in bytes:
/// a hello, a TLS handshake's first message or a server's answer to either.
pub(super) const EARLY_BYTES_MAX: usize = 1 << 10;

/// The most that is read of a connection that is refused and that has sent more than
/// [`EARLY_BYTES_MAX`], in bytes. Closing a connection with unread bytes resets it, and a reset
/// can overtake a refusal that has to be sent again.
const DISMISSED_BYTES_MAX: usize = 16 << 10;

/// A stream whose preamble comes, and goes, with what follows it.
pub(super) struct Early<S> {
    stream: S,
    /// The bytes that came with the other side's preamble.
    received: Vec<u8>,
    /// How many of them have been read.
    read: usize,
    /// The preamble that leaves before anything else, and how much of it has left.
    held: Option<([u8; PREAMBLE_BYTES], usize)>,
    /// The other side's preamble has come. Until then reads wait.
    has_come: bool,
}

impl<S> Early<S> {
    pub(super) fn new(stream: S) -> Early<S> {
        Early { stream, received: Vec::new(), read: 0, held: None, has_come: false }
    }

    /// Has this side's preamble leave with what is written next, or with a flush.
    pub(super) fn hold(&mut self, preamble: &Preamble) {
        self.held = Some((preamble.bytes, 0));
    }

    /// Whether more came with the other side's preamble and has not been read.
    pub(super) fn has_more(&self) -> bool {
        self.read < self.received.len()
    }

    pub(super) fn stream(&self) -> &S {
        &self.stream
    }

    /// The stream, once nothing is left of the first bytes; `None` if the other side has sent more
    /// than it may.
    pub(super) fn into_inner(self) -> Option<S> {
        (!self.has_more() && self.held.is_none()).then_some(self.stream)
    }
}

impl<S: AsyncRead + Unpin> Early<S> {
    /// The other side's preamble. Gives up at the first byte that cannot be part of one: a peer
    /// that speaks something else may never send 16 bytes.
    pub(super) async fn preamble(&mut self) -> Result<Preamble, Breakdown> {
        poll_fn(|context| self.poll_preamble(context)).await
    }

    pub(super) fn poll_preamble(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Preamble, Breakdown>> {
        loop {
            match Preamble::parse(&self.received) {
                Ok(None) => {}
                Ok(Some(preamble)) => {
                    self.read = PREAMBLE_BYTES;
                    self.has_come = true;
                    return Poll::Ready(Ok(preamble));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
            let mut space = [MaybeUninit::uninit(); EARLY_BYTES_MAX];
            let mut room = ReadBuf::uninit(&mut space[self.received.len()..]);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut room))?;
            if room.filled().is_empty() {
                return Poll::Ready(Err(Breakdown::HungUp));
            }
            self.received.extend_from_slice(room.filled());
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Early<S> {
    /// Sends the held preamble to a peer that is refused, and reads what it has sent already, so
    /// that the preamble reaches it.
    pub(super) async fn dismiss(&mut self) -> io::Result<()> {
        poll_fn(|context| Pin::new(&mut *self).poll_flush(context)).await?;
        if self.received.len() < EARLY_BYTES_MAX {
            return Ok(());
        }
        let mut left = DISMISSED_BYTES_MAX;
        poll_fn(|context| {
            let mut space = [MaybeUninit::uninit(); EARLY_BYTES_MAX];
            while left > 0 {
                let mut room = ReadBuf::uninit(&mut space);
                match Pin::new(&mut self.stream).poll_read(context, &mut room) {
                    Poll::Ready(Ok(())) if !room.filled().is_empty() => {
                        left = left.saturating_sub(room.filled().len());
                    }
                    // Nothing more has come, or nothing more comes.
                    _ => break,
                }
            }
            Poll::Ready(Ok(()))
        })
        .await
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Early<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.has_come {
            // The task that polls this polls for the preamble as well, which wakes it.
            return Poll::Pending;
        }
        if !this.has_more() {
            return Pin::new(&mut this.stream).poll_read(context, out);
        }
        let left = this.received.get(this.read..).unwrap_or_default();
        let (now, _) = left.split_at(left.len().min(out.remaining()));
        out.put_slice(now);
        this.read += now.len();
        if this.read == this.received.len() {
            (this.received, this.read) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Early<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.held.is_none() {
            return Pin::new(&mut self.stream).poll_write(context, bytes);
        }
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        while let Some((preamble, left)) = &mut this.held {
            let first = preamble.get(*left..).unwrap_or_default();
            let mut all = Vec::with_capacity(parts.len() + 1);
            all.push(IoSlice::new(first));
            all.extend_from_slice(parts);
            let first = first.len();
            let written = ready!(Pin::new(&mut this.stream).poll_write_vectored(context, &all))?;
            if written < first {
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                *left += written;
                continue;
            }
            this.held = None;
            if written > first || parts.iter().all(|part| part.is_empty()) {
                return Poll::Ready(Ok(written - first));
            }
        }
        Pin::new(&mut this.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.held.is_some() {
            ready!(self.as_mut().poll_write(context, &[]))?;
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.as_mut().poll_flush(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::super::Level;
    use super::super::preamble::Status;
    use super::*;

    proptest! {
        /// However small the pieces are in which bytes pass.
        #[test]
        fn a_preamble_and_what_follows_it_pass_whole(
            rest in prop::collection::vec(any::<u8>(), 0..3000),
            room in 1usize..4000,
            piece in 1usize..4000,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let (near, far) = duplex(room);
                let (mut near, mut far) = (Early::new(near), Early::new(far));
                let preamble = Preamble::new(9, Level::Authenticate, Status::Fine);
                near.hold(&preamble);
                let send = async {
                    for piece in rest.chunks(piece) {
                        near.write_all(piece).await.unwrap();
                    }
                    near.shutdown().await.unwrap();
                };
                let receive = async {
                    let found = far.preamble().await.unwrap();
                    let mut bytes = Vec::new();
                    far.read_to_end(&mut bytes).await.unwrap();
                    (found, bytes)
                };
                let ((), (found, bytes)) = tokio::join!(send, receive);
                assert_eq!(found, preamble);
                assert_eq!(bytes, rest);
                assert!(far.into_inner().is_some());
            });
        }
    }
}
