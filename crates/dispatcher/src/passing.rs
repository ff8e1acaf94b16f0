//! Sockets on their way to a concentrator. Whoever passes them never waits for
//! one that hangs: it must not keep new connections from the others.

use falkon_core::dispatch::ConnectionId;
use falkon_net::concentrator::Arrivals;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;

/// Sockets that wait until their concentrators take them: how many there may be.
#[derive(Debug, Clone)]
pub(super) struct WaitingRoom(Arc<Semaphore>);

impl WaitingRoom {
    pub(super) fn new(sockets_max: usize) -> WaitingRoom {
        WaitingRoom(Arc::new(Semaphore::new(sockets_max)))
    }

    /// A place, if one is free.
    fn enter(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }

    /// Waits until a place is free, for `limit` at most. Returns whether one is.
    pub(super) async fn has_place(&self, limit: Duration) -> bool {
        matches!(timeout(limit, self.0.acquire()).await, Ok(Ok(_)))
    }
}

/// One of the sockets that wait for a concentrator, as long as it does.
#[derive(Debug)]
struct Counted(Arc<AtomicU64>);

impl Counted {
    fn count(counted: &Arc<AtomicU64>) -> Counted {
        counted.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(counted))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A socket that waits. It is closed if its concentrator ends before.
#[derive(Debug)]
struct Waiting {
    connection: ConnectionId,
    stream: TcpStream,
    _counted: Counted,
    _place: OwnedSemaphorePermit,
}

/// Why a socket was not passed on.
#[derive(Debug)]
pub(super) enum NotPassed {
    /// The concentrator has ended; here is the socket.
    Ended(TcpStream),
    /// The waiting room is full; here is the socket.
    NoRoom(TcpStream),
}

/// The way to one concentrator.
#[derive(Debug)]
pub(super) struct Passing {
    arrivals: Arc<Arrivals>,
    /// The queue's length is bounded by the waiting room.
    queue: mpsc::UnboundedSender<Waiting>,
    waiting: Arc<AtomicU64>,
}

impl Passing {
    /// Starts a task that passes on what has to wait, until nothing more comes
    /// or the concentrator has ended.
    pub(super) fn new(arrivals: Arrivals) -> Passing {
        let arrivals = Arc::new(arrivals);
        let (queue, mut queued) = mpsc::unbounded_channel::<Waiting>();
        let end = Arc::clone(&arrivals);
        tokio::spawn(async move {
            while let Some(Waiting { connection, stream, .. }) = queued.recv().await {
                if end.pass(connection, &stream).await.is_err() {
                    return;
                }
            }
        });
        Passing { arrivals, queue, waiting: Arc::default() }
    }

    /// Sockets that wait for this concentrator.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Passes a socket on, or has it wait until there is room for it on the way.
    pub(super) fn pass(
        &self,
        connection: ConnectionId,
        stream: TcpStream,
        room: &WaitingRoom,
    ) -> Result<(), NotPassed> {
        match self.arrivals.try_pass(connection, &stream) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => return Err(NotPassed::Ended(stream)),
        }
        let Some(place) = room.enter() else { return Err(NotPassed::NoRoom(stream)) };
        let counted = Counted::count(&self.waiting);
        let waiting = Waiting { connection, stream, _counted: counted, _place: place };
        self.queue.send(waiting).map_err(|refused| NotPassed::Ended(refused.0.stream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::net::TcpListener;

    const WAITING_MAX: usize = 5;
    /// Longer than any test.
    const LIMIT: Duration = Duration::from_secs(600);
    /// More than the system keeps on their way.
    const SOCKETS_MAX: u64 = 100_000;

    /// Passes sockets to a concentrator that takes none, until there is no room.
    fn fill(passing: &Passing, room: &WaitingRoom, stream: &TcpStream) -> u64 {
        let pass = |number| {
            let stream = stream.try_clone().unwrap();
            match passing.pass(ConnectionId(number), stream, room) {
                Ok(()) => true,
                Err(NotPassed::NoRoom(_)) => false,
                Err(NotPassed::Ended(_)) => panic!("it has not ended"),
            }
        };
        (0..SOCKETS_MAX).find(|number| !pass(*number)).expect("there is a bound")
    }

    #[tokio::test]
    async fn a_concentrator_that_hangs_holds_up_nobody_and_takes_what_waits_later() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let room = WaitingRoom::new(WAITING_MAX);
        let (ours, theirs) = Arrivals::pair().unwrap();
        let hanging = Passing::new(ours);
        let passed = fill(&hanging, &room, &stream);
        assert_eq!(hanging.waiting(), WAITING_MAX as u64);
        // Other sockets are passed on all the same.
        let (ours, other) = Arrivals::pair().unwrap();
        let healthy = Passing::new(ours);
        healthy.pass(ConnectionId(passed), stream.try_clone().unwrap(), &room).unwrap();
        let other = Arrivals::over(other).unwrap();
        assert_eq!(other.next().await.unwrap().connection, ConnectionId(passed));
        assert_eq!(healthy.waiting(), 0);
        // The concentrator continues: no socket was lost.
        let theirs = Arrivals::over(theirs).unwrap();
        for number in 0..passed {
            assert_eq!(theirs.next().await.unwrap().connection, ConnectionId(number));
        }
        assert!(theirs.next().now_or_never().is_none());
        assert_eq!(hanging.waiting(), 0);
        hanging.pass(ConnectionId(0), stream, &room).unwrap();
    }

    #[tokio::test]
    async fn what_waits_for_a_concentrator_that_ends_makes_room_for_others() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let room = WaitingRoom::new(WAITING_MAX);
        let (ours, theirs) = Arrivals::pair().unwrap();
        let hanging = Passing::new(ours);
        fill(&hanging, &room, &stream);
        drop(theirs);
        while room.0.available_permits() < WAITING_MAX {
            tokio::task::yield_now().await;
        }
        let last = hanging.pass(ConnectionId(0), stream, &room);
        assert!(matches!(last, Err(NotPassed::Ended(_))), "{last:?}");
    }

    #[tokio::test]
    async fn a_crowd_waits_for_room_until_a_concentrator_takes_what_it_has() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let room = WaitingRoom::new(WAITING_MAX);
        let (ours, theirs) = Arrivals::pair().unwrap();
        let busy = Passing::new(ours);
        let passed = fill(&busy, &room, &stream);
        assert!(!room.has_place(Duration::ZERO).await);
        let theirs = Arrivals::over(theirs).unwrap();
        let takes = async {
            for number in 0..=passed {
                assert_eq!(theirs.next().await.unwrap().connection, ConnectionId(number));
            }
        };
        let waits = async {
            assert!(room.has_place(LIMIT).await);
            busy.pass(ConnectionId(passed), stream, &room).unwrap();
        };
        tokio::join!(takes, waits);
    }
}
