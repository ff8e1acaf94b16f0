//! Admission of connections to their handshakes: carries out what
//! [`Handshakes`] decides.

use std::collections::HashMap;
use std::fmt;
use std::future::ready;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use falkon_core::handshakes::{
    Arrived, HandshakeBounds, HandshakeId, Handshakes, SourceId, Spoken, Standing,
};
use tokio::io::AsyncRead;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use super::breakdown::{Breakdown, Deadline, Stage};
use super::early::Early;
use super::preamble::Preamble;
use super::{PLACE_MS_MAX, PREAMBLE_MS_MAX, STALLED_MS};
use crate::concentrator::descriptors_max;

/// The longest time that one connection is left in the system's queue for those before it to
/// speak or to leave. With others that stay silent, it is what each arrival costs.
const CROWDED: Duration = Duration::from_millis(1);

/// Turns that a handshake needs to look once more and leave, and one to spare.
const LEAVE_TURNS_MAX: usize = 3;

/// The handshakes of one acceptor.
pub(super) struct Admission {
    inside: Mutex<Inside>,
    /// A handshake has spoken or left.
    moved: Notify,
}

struct Inside {
    handshakes: Handshakes,
    /// The notices to handshakes whose standing has changed.
    changed: HashMap<HandshakeId, Arc<Notify>>,
}

impl Inside {
    fn notify(&self, ids: impl IntoIterator<Item = HandshakeId>) {
        for changed in ids.into_iter().filter_map(|id| self.changed.get(&id)) {
            changed.notify_one();
        }
    }
}

/// The source that an address belongs to. With IPv6, the owner of one address
/// has the other 2^64 of its network, too.
fn source_of(address: IpAddr) -> SourceId {
    SourceId(match address.to_canonical() {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits() >> 64 << 64,
    })
}

/// A connection whose handshake is not over.
pub struct Entrant {
    admission: Arc<Admission>,
    id: HandshakeId,
    changed: Arc<Notify>,
}

impl fmt::Debug for Entrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entrant").field(&self.id).finish()
    }
}

impl Admission {
    pub(super) fn new() -> Arc<Admission> {
        let bounds = HandshakeBounds::for_descriptors(descriptors_max());
        let handshakes = Handshakes::new(bounds);
        let inside = Mutex::new(Inside { handshakes, changed: HashMap::new() });
        Arc::new(Admission { inside, moved: Notify::new() })
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a connection; `None` if there are too many. Waits a moment where it
    /// would cost another one, and for handshakes that are evicted to have their
    /// turn to leave.
    pub(super) async fn arrive(self: &Arc<Admission>, from: IpAddr) -> Option<Entrant> {
        // A permit that is left of an earlier move costs one look more.
        let crowd_moves = async {
            while self.inside().handshakes.is_crowded(source_of(from)) {
                self.moved.notified().await;
            }
        };
        if self.inside().handshakes.is_crowded(source_of(from)) {
            // The crowd has had its time.
            let _ = timeout(CROWDED, crowd_moves).await;
        }
        for _ in 0..LEAVE_TURNS_MAX {
            if let Some(entrant) = self.arrive_now(from) {
                return Some(entrant);
            }
            tokio::task::yield_now().await;
        }
        None
    }

    fn arrive_now(self: &Arc<Admission>, from: IpAddr) -> Option<Entrant> {
        let mut inside = self.inside();
        let Arrived { id, evict } = inside.handshakes.arrive(source_of(from))?;
        let changed = Arc::new(Notify::new());
        inside.changed.insert(id, changed.clone());
        inside.notify(evict);
        Some(Entrant { admission: self.clone(), id, changed })
    }
}

impl Entrant {
    fn standing(&self) -> Standing {
        self.admission.inside().handshakes.standing(self.id)
    }

    /// Reads the preamble, and gives up a peer that sends none.
    pub(super) async fn preamble<S: AsyncRead + Unpin>(
        &self,
        stream: &mut Early<S>,
    ) -> Result<Preamble, (Stage, Breakdown)> {
        let deadline = Deadline::after(PREAMBLE_MS_MAX);
        self.unless_evicted(Stage::Preamble, deadline, stream.preamble()).await
    }

    /// Waits for a place, once the peer has spoken. Returns false if there is
    /// none.
    pub(super) async fn place(&self) -> bool {
        {
            let mut inside = self.admission.inside();
            let spoken = inside.handshakes.spoke(self.id);
            self.admission.moved.notify_one();
            match spoken {
                Spoken::Begin => return true,
                Spoken::TurnedAway => return false,
                Spoken::Wait { evict, turned_away } => {
                    inside.notify(evict.into_iter().chain(turned_away));
                }
            }
        }
        let begun = async {
            loop {
                match self.standing() {
                    Standing::Waiting => self.changed.notified().await,
                    standing => return standing == Standing::InPlace,
                }
            }
        };
        let limit = Duration::from_millis(PLACE_MS_MAX);
        timeout(limit, begun).await.unwrap_or_else(|_| self.standing() == Standing::InPlace)
    }

    /// The pace of a handshake that has a place from now on.
    pub(super) fn pace(&self) -> Pace<'_> {
        Pace { entrant: self, deadline: Deadline::start() }
    }

    /// Carries out a step that depends on the peer. Ends it when its time is
    /// over, or when the handshake is to leave and the peer has done nothing.
    async fn unless_evicted<T, E: Into<Breakdown>>(
        &self,
        stage: Stage,
        deadline: Deadline,
        step: impl Future<Output = Result<T, E>>,
    ) -> Result<T, (Stage, Breakdown)> {
        let mut step = pin!(step);
        let mut stalls = pin!(sleep_until(Instant::now() + Duration::from_millis(STALLED_MS)));
        let mut has_stalled = false;
        loop {
            tokio::select! {
                biased;
                done = &mut step => return done.map_err(|error| (stage, error.into())),
                () = self.changed.notified() => {}
                () = &mut stalls, if !has_stalled => {
                    has_stalled = true;
                    self.stalled();
                }
                () = sleep_until(deadline.at()) => return Err((stage, deadline.passed())),
            }
            if self.standing() == Standing::Evicted {
                // Bytes from the peer may have arrived without having been
                // read.
                tokio::task::yield_now().await;
                tokio::select! {
                    biased;
                    done = &mut step => return done.map_err(|error| (stage, error.into())),
                    () = ready(()) => return Err((stage, Breakdown::Evicted)),
                }
            }
        }
    }

    fn stalled(&self) {
        let mut inside = self.admission.inside();
        if inside.handshakes.standing(self.id) == Standing::InPlace {
            inside.handshakes.stalled(self.id);
        }
    }

    fn advanced(&self) {
        let mut inside = self.admission.inside();
        let evict = inside.handshakes.advanced(self.id);
        inside.notify(evict);
    }
}

impl Drop for Entrant {
    fn drop(&mut self) {
        let mut inside = self.admission.inside();
        inside.changed.remove(&self.id);
        let next = inside.handshakes.leave(self.id);
        inside.notify(next);
        self.admission.moved.notify_one();
    }
}

/// The time that the steps of a handshake in its place may take.
#[derive(Clone, Copy)]
pub(super) struct Pace<'a> {
    entrant: &'a Entrant,
    deadline: Deadline,
}

impl Pace<'_> {
    /// Runs one step, and says at which stage it broke down if it did.
    pub(super) async fn step<T, E: Into<Breakdown>>(
        self,
        stage: Stage,
        step: impl Future<Output = Result<T, E>>,
    ) -> Result<T, (Stage, Breakdown)> {
        let done = self.entrant.unless_evicted(stage, self.deadline, step).await?;
        self.entrant.advanced();
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_an_ipv6_network_is_one_source() {
        let of = |text: &str| source_of(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
