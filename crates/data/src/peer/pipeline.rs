//! Many small objects, or chunks, over one connection: requests are sent without
//! waiting for the answers to those before.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::connection::{Connection, Writer};
use super::receive::{Reader, is_usable};
use super::wire::Request;
use super::{IDLE_MS_MAX, PIPELINE_REQUESTS_MAX, PeerError};
use crate::object::Landing;

/// A request, where its answer goes, and who waits for it.
struct Job {
    request: Request,
    landing: Arc<Landing>,
    done: oneshot::Sender<Result<u64, PeerError>>,
}

/// A connection for small objects or chunks. It ends by itself when it is idle or
/// broken.
pub(super) struct Pipeline {
    jobs: mpsc::Sender<Job>,
    ended: AtomicBool,
    tasks: [AbortHandle; 2],
}

/// Breaks a connection off, unless what came over it was waited for.
struct Breaks<'a>(Option<&'a Pipeline>);

impl Drop for Breaks<'_> {
    fn drop(&mut self) {
        if let Some(pipeline) = self.0 {
            pipeline.end();
            pipeline.tasks.iter().for_each(AbortHandle::abort);
        }
    }
}

impl Pipeline {
    pub(super) fn start(peer: String, connection: Connection) -> Pipeline {
        let (jobs, wanted) = mpsc::channel(PIPELINE_REQUESTS_MAX);
        let (asked, answers) = mpsc::channel(PIPELINE_REQUESTS_MAX);
        let Connection { reader, writer } = connection;
        let asking = tokio::spawn(ask(writer, wanted, asked));
        let receiving = tokio::spawn(receive(peer, reader, answers));
        let tasks = [asking.abort_handle(), receiving.abort_handle()];
        Pipeline { jobs, ended: AtomicBool::new(false), tasks }
    }

    /// Fetches one object. `None` if the connection ended before its answer
    /// began; nothing has arrived then.
    pub(super) async fn fetch(
        &self,
        request: Request,
        landing: &Arc<Landing>,
    ) -> Option<Result<u64, PeerError>> {
        let (done, result) = oneshot::channel();
        self.jobs.send(Job { request, landing: Arc::clone(landing), done }).await.ok()?;
        result.await.ok()
    }

    /// Fetches a chunk likewise. To drop the future breaks the connection off: no more
    /// of the chunk is written, and none of it comes before what is asked for next.
    pub(super) async fn fetch_chunk(
        &self,
        request: Request,
        landing: &Arc<Landing>,
    ) -> Option<Result<u64, PeerError>> {
        let mut breaks = Breaks(Some(self));
        let result = self.fetch(request, landing).await;
        breaks.0 = None;
        result
    }

    pub(super) fn is_over(&self) -> bool {
        self.ended.load(Ordering::Relaxed) || self.jobs.is_closed()
    }

    /// Records that the connection has ended.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// Sends the requests, those that wait together in one go.
async fn ask(mut writer: Writer, mut wanted: mpsc::Receiver<Job>, asked: mpsc::Sender<Job>) {
    let idle = Duration::from_millis(IDLE_MS_MAX);
    let mut bytes = Vec::new();
    // The server closes idle connections too, perhaps a moment earlier: a
    // request that meets the end is repeated.
    while let Ok(Some(first)) = timeout(idle, wanted.recv()).await {
        bytes.clear();
        let mut next = Some(first);
        while let Some(job) = next {
            let Ok(room) = asked.try_reserve() else {
                // The most requests are under way: the gathered ones are sent,
                // and this one waits for an answer.
                if writer.write(&bytes).await.is_err() {
                    return;
                }
                bytes.clear();
                let Ok(room) = asked.reserve().await else { return };
                writer.encode(&job.request, &mut bytes);
                room.send(job);
                next = wanted.try_recv().ok();
                continue;
            };
            writer.encode(&job.request, &mut bytes);
            room.send(job);
            next = wanted.try_recv().ok();
        }
        if writer.write(&bytes).await.is_err() {
            return;
        }
    }
}

/// Receives the answers. When it ends, those that still wait find out by their
/// job's end.
async fn receive(peer: String, mut reader: Reader, mut asked: mpsc::Receiver<Job>) {
    while let Some(job) = asked.recv().await {
        // The bytes of a request that was given up are received all the same,
        // and dropped.
        let landing = Some(&*job.landing).filter(|_| !job.done.is_closed());
        let result = reader.receive(&peer, &job.request, landing).await;
        if let Err(PeerError::Lost { arrived: 0, expected: None, .. }) = &result {
            return;
        }
        let goes_on = is_usable(&result);
        // The request may have been given up.
        let _ = job.done.send(result);
        if !goes_on {
            return;
        }
    }
}
