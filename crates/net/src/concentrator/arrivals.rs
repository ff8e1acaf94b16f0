//! Passing sockets from one process to another: a datagram for each, with the
//! connection's number.

use falkon_core::dispatch::ConnectionId;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram as BlockingDatagram;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UnixDatagram;

/// Pause before a socket is passed again when too many are on their way.
const CROWDED: Duration = Duration::from_millis(10);

/// One end of the socket pair over which sockets are passed on.
#[derive(Debug)]
pub struct Arrivals(UnixDatagram);

/// A connection that was passed on.
#[derive(Debug)]
pub struct Arrival {
    pub connection: ConnectionId,
    /// `None` if this process has no descriptor left for it.
    pub(super) stream: Option<TcpStream>,
}

impl Arrivals {
    /// This process's end, and the one for the other process.
    pub fn pair() -> io::Result<(Arrivals, OwnedFd)> {
        let (ours, theirs) = BlockingDatagram::pair()?;
        Ok((Arrivals::over(ours.into())?, theirs.into()))
    }

    /// The end that this process was started with.
    pub fn over(end: OwnedFd) -> io::Result<Arrivals> {
        let end = BlockingDatagram::from(end);
        end.set_nonblocking(true)?;
        UnixDatagram::from_std(end).map(Arrivals)
    }

    /// Passes a socket on; waits while as many are on their way as the system
    /// allows.
    pub async fn pass(&self, connection: ConnectionId, stream: &TcpStream) -> io::Result<()> {
        loop {
            let send = || Ok(send(self.0.as_fd(), connection, stream.as_fd())?);
            let sent = self.0.async_io(Interest::WRITABLE, send).await;
            match sent {
                Err(error) if error.raw_os_error() == Some(Errno::TOOMANYREFS.raw_os_error()) => {
                    tokio::time::sleep(CROWDED).await;
                }
                sent => return sent,
            }
        }
    }

    /// Passes a socket on, if that need not wait.
    ///
    /// # Errors
    /// `WouldBlock` if too many are on their way; otherwise the other end is gone.
    pub fn try_pass(&self, connection: ConnectionId, stream: &TcpStream) -> io::Result<()> {
        match send(self.0.as_fd(), connection, stream.as_fd()) {
            Err(Errno::TOOMANYREFS) => Err(io::ErrorKind::WouldBlock.into()),
            sent => Ok(sent?),
        }
    }

    /// The next one that was passed.
    pub async fn next(&self) -> io::Result<Arrival> {
        self.0.async_io(Interest::READABLE, || receive(self.0.as_fd())).await
    }
}

fn send(end: BorrowedFd, connection: ConnectionId, stream: BorrowedFd) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let streams = [stream];
    ancillary.push(SendAncillaryMessage::ScmRights(&streams));
    let number = connection.0.to_le_bytes();
    sendmsg(end, &[IoSlice::new(&number)], &mut ancillary, SendFlags::NOSIGNAL).map(drop)
}

fn receive(end: BorrowedFd) -> io::Result<Arrival> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut number = [0; 8];
    let mut parts = [IoSliceMut::new(&mut number)];
    let received = recvmsg(end, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes != number.len() {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let stream = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut streams) => streams.next(),
        _ => None,
    });
    let connection = ConnectionId(u64::from_le_bytes(number));
    Ok(Arrival { connection, stream: stream.map(TcpStream::from) })
}
