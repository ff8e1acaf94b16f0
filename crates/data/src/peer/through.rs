//! Objects of executors that cannot be reached: their parts come through the dispatcher, one
//! after another.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use falkon_core::data::object::ObjectId;
use falkon_core::part::{OBJECT_PART_BYTES_MAX, PartAnswer, PartQuestion};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use super::{PeerError, Piece};
use crate::object::Landing;

/// Parts that one executor asks for at a time.
pub const PARTS_ASKED_MAX: usize = 16;

/// Parts of one object that are asked for at a time.
const OBJECT_PARTS_MAX: usize = 4;

/// How long a part may take, in milliseconds: longer than any dispatcher on the way waits for
/// those that it asks.
const PART_MS_MAX: u64 = 60_000;

/// What errors call those who are asked.
const ELSEWHERE: &str = "another site, through the dispatcher,";

/// A question on its way to the dispatcher.
#[derive(Debug)]
pub struct PartAsked {
    /// The question.
    pub question: PartQuestion,
    /// Where the answer goes; dropping it is [`PartAnswer::Unreached`].
    pub answer: oneshot::Sender<PartAnswer>,
    /// One of [`PARTS_ASKED_MAX`]: it goes when the answer is there.
    permit: OwnedSemaphorePermit,
}

impl PartAsked {
    /// Gives the answer.
    pub fn end(self, answer: PartAnswer) {
        drop(self.permit);
        // Nobody may want it any more.
        let _ = self.answer.send(answer);
    }
}

/// The way to the dispatcher.
#[derive(Clone, Debug)]
pub struct Through {
    asks: mpsc::Sender<PartAsked>,
    asking: Arc<Semaphore>,
}

/// Parts that were asked for, in their order, with where they end.
type Asked = VecDeque<(PartQuestion, oneshot::Receiver<PartAnswer>)>;

impl Through {
    /// A way, and where the questions are to be taken that go it.
    #[must_use]
    pub fn new() -> (Through, mpsc::Receiver<PartAsked>) {
        let (asks, asked) = mpsc::channel(PARTS_ASKED_MAX);
        (Through { asks, asking: Arc::new(Semaphore::new(PARTS_ASKED_MAX)) }, asked)
    }

    async fn ask(
        &self,
        question: PartQuestion,
    ) -> Result<oneshot::Receiver<PartAnswer>, PeerError> {
        let permit = Arc::clone(&self.asking).acquire_owned().await;
        let permit = permit.map_err(|_| lost(0, "the executor ends"))?;
        let (answer, told) = oneshot::channel();
        let asked = PartAsked { question, answer, permit };
        self.asks.send(asked).await.map_err(|_| lost(0, "the executor ends"))?;
        Ok(told)
    }

    /// Fetches a piece of an object.
    pub(super) async fn fetch(&self, piece: &Piece, landing: &Landing) -> Result<u64, PeerError> {
        let object = piece.object;
        // How much there is, the first answer says.
        let first = self.question(object, piece.offset, piece.length.unwrap_or(u64::MAX));
        let (whole, bytes) = received(first, self.ask(first).await?, landing).await?;
        landing.sized(whole);
        let rest = whole.checked_sub(piece.offset);
        let length = match (rest, piece.length) {
            (Some(rest), None) => rest,
            (Some(rest), Some(length)) if length <= rest => length,
            _ => return Err(wrong(&format!("its object has {whole} bytes, too few"))),
        };
        landing.write(&bytes).map_err(PeerError::local)?;
        let (mut at, end) = (piece.offset + bytes.len() as u64, piece.offset + length);
        let (mut asked, mut next) = (Asked::new(), at);
        while at < end {
            while next < end && asked.len() < OBJECT_PARTS_MAX {
                let question = self.question(object, next, end - next);
                next += question.count;
                asked.push_back((question, self.ask(question).await?));
            }
            let Some((question, told)) = asked.pop_front() else { break };
            let (now, bytes) = received(question, told, landing).await?;
            if now != whole {
                return Err(wrong(&format!("its object had {whole} bytes and has {now}")));
            }
            landing.write(&bytes).map_err(PeerError::local)?;
            at += bytes.len() as u64;
        }
        Ok(length)
    }

    fn question(&self, object: ObjectId, from: u64, count: u64) -> PartQuestion {
        PartQuestion { object, from, count: count.min(OBJECT_PART_BYTES_MAX as u64) }
    }
}

/// Waits for a part. Returns the bytes of the whole object, and the part.
async fn received(
    question: PartQuestion,
    told: oneshot::Receiver<PartAnswer>,
    landing: &Landing,
) -> Result<(u64, Vec<u8>), PeerError> {
    let arrived = landing.written();
    let told = timeout(Duration::from_millis(PART_MS_MAX), told).await;
    let told = told.map_err(|_| lost(arrived, "it has not answered in time"))?;
    match question.checked(told.unwrap_or(PartAnswer::Unreached)) {
        PartAnswer::Here { whole, bytes } => Ok((whole, bytes)),
        PartAnswer::Gone => Err(PeerError::Gone),
        PartAnswer::Busy => Err(PeerError::Busy),
        PartAnswer::Unreached => Err(lost(arrived, "those who have the object were not reached")),
    }
}

fn lost(arrived: u64, reason: &str) -> PeerError {
    let (peer, reason) = (ELSEWHERE.to_owned(), reason.to_owned());
    PeerError::Lost { peer, arrived, expected: None, reason }
}

fn wrong(reason: &str) -> PeerError {
    PeerError::Wrong { peer: ELSEWHERE.to_owned(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::{Fetcher, Peer};
    use super::*;
    use std::sync::Mutex;

    /// Fetches a piece of an object that somebody answers for.
    async fn fetch(
        (offset, length): (u64, Option<u64>),
        mut answer: impl FnMut(PartQuestion) -> PartAnswer + Send + 'static,
    ) -> (Result<u64, PeerError>, Vec<u8>, usize) {
        let (through, mut asked) = Through::new();
        let answering = tokio::spawn(async move {
            let mut most = 0;
            let mut open = VecDeque::new();
            while let Some(next) = asked.recv().await {
                open.push_back(next);
                while let Ok(next) = asked.try_recv() {
                    open.push_back(next);
                }
                most = most.max(open.len());
                while let Some(next) = open.pop_front() {
                    let told = answer(next.question);
                    next.end(told);
                }
            }
            most
        });
        let taken = Arc::new(Mutex::new(Vec::new()));
        let taking = Arc::clone(&taken);
        let take = move |bytes: &[u8]| {
            taking.lock().expect("nobody panics").extend_from_slice(bytes);
            Ok(())
        };
        let landing = Landing::taking(take, |_| {});
        let piece = Piece { object: ObjectId(7), offset, length, size: None };
        let fetcher = Fetcher::through(through);
        let fetched = fetcher.fetch(&Peer::default(), &piece, &landing).await;
        drop(fetcher);
        let bytes = taken.lock().expect("nobody panics").clone();
        (fetched, bytes, answering.await.expect("it ends"))
    }

    fn object(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at % 251) as u8).collect()
    }

    fn part(object: &[u8], question: PartQuestion) -> PartAnswer {
        let whole = object.len() as u64;
        let Some(length) = question.length_of(whole) else {
            return PartAnswer::Here { whole, bytes: Vec::new() };
        };
        let from = question.from as usize;
        PartAnswer::Here { whole, bytes: object[from..from + length as usize].to_vec() }
    }

    #[tokio::test]
    async fn an_object_comes_in_parts_of_which_few_are_on_their_way() {
        let part_bytes = OBJECT_PART_BYTES_MAX;
        for bytes in [0, 1, part_bytes, part_bytes + 1, 9 * part_bytes + 5] {
            let whole = object(bytes);
            let there = whole.clone();
            let (fetched, got, most) = fetch((0, None), move |asked| part(&there, asked)).await;
            assert_eq!(fetched.expect("it comes"), bytes as u64);
            assert!(got == whole, "{bytes} bytes");
            assert!(most <= OBJECT_PARTS_MAX, "{most} at a time");
        }
    }

    #[tokio::test]
    async fn a_range_comes_alone() {
        let whole = object(3 * OBJECT_PART_BYTES_MAX);
        let (from, until) = (100, 2 * OBJECT_PART_BYTES_MAX + 7);
        let (there, range) = (whole.clone(), (from as u64, Some((until - from) as u64)));
        let (fetched, got, _) = fetch(range, move |asked| part(&there, asked)).await;
        assert_eq!(fetched.expect("it comes"), (until - from) as u64);
        assert!(got == whole[from..until]);
    }

    #[tokio::test]
    async fn what_is_not_what_was_asked_for_is_refused() {
        let short = |_| PartAnswer::Here { whole: 100, bytes: vec![0; 5] };
        let (fetched, ..) = fetch((0, None), short).await;
        assert!(matches!(fetched, Err(PeerError::Lost { .. })), "{fetched:?}");
        let (fetched, ..) = fetch((0, Some(9)), |asked| part(&[1; 3], asked)).await;
        assert!(matches!(fetched, Err(PeerError::Wrong { .. })), "{fetched:?}");
        let mut sizes = [3 * OBJECT_PART_BYTES_MAX, 4 * OBJECT_PART_BYTES_MAX].into_iter();
        let grows = move |asked| part(&object(sizes.next().unwrap_or(1 << 20)), asked);
        let (fetched, ..) = fetch((0, None), grows).await;
        assert!(matches!(fetched, Err(PeerError::Wrong { .. })), "{fetched:?}");
    }

    #[tokio::test]
    async fn those_who_do_not_have_it_say_so() {
        let (fetched, ..) = fetch((0, None), |_| PartAnswer::Gone).await;
        assert!(matches!(fetched, Err(PeerError::Gone)), "{fetched:?}");
        let (fetched, ..) = fetch((0, None), |_| PartAnswer::Busy).await;
        assert!(matches!(fetched, Err(PeerError::Busy)), "{fetched:?}");
        let (fetched, ..) = fetch((0, None), |_| PartAnswer::Unreached).await;
        assert!(matches!(fetched, Err(PeerError::Lost { .. })), "{fetched:?}");
    }
}
