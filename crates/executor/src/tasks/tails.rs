//! What running tasks have written so far, for visitors who ask.
//!
//! The process host has the first bytes of a stream, and a file has all of it once it is longer.
//! A call writes into its worker's file. What a task wrote whose output was asked for is kept for
//! a moment when it ends, so that whoever follows it misses nothing.

use super::Tasks;
use crate::workers::CallTail;
use falkon_core::execute::{Event, TaskKey};
use falkon_core::result::{Captured, Detail, Stream};
use falkon_data::peer::Written;
use falkon_process::{Tail, Tailed};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Visitors that wait for an answer about one stream of one task; further ones are turned away.
const ASKED_MAX: usize = 64;
/// Tasks of which it is remembered that somebody asked.
const WATCHED_TASKS_MAX: usize = 1024;
/// How long that is remembered, in milliseconds: longer than a visitor waits between questions.
const WATCHED_MS: u64 = 30_000;
/// How long it is kept what a task wrote that somebody asked about and that has ended, in
/// milliseconds.
const ENDED_MS: u64 = 30_000;
/// Bytes of all of that.
const ENDED_BYTES_MAX: usize = 64 << 20;

/// A visitor that waits: from which byte on it wants to read, and where the answer goes.
type Asked = (u64, oneshot::Sender<Written>);

/// A task that has ended.
struct Ended {
    key: TaskKey,
    at: Instant,
    detail: Arc<Detail>,
}

/// See the [module](self).
#[derive(Default)]
pub(super) struct Tails {
    next_request: u64,
    /// What the host was asked, by request: about which launch and stream, from which byte on.
    sent: BTreeMap<u64, (u64, Stream, u64)>,
    /// Who waits for that: one question is with the host for each launch and stream.
    asked: BTreeMap<(u64, Stream), Vec<Asked>>,
    /// The host does not know of these yet.
    pub(super) unsent: Vec<Tail>,
    /// Tasks that somebody asked about, and when last.
    watched: BTreeMap<TaskKey, Instant>,
    /// The oldest first.
    ended: VecDeque<Ended>,
    ended_bytes: usize,
}

impl Tails {
    fn ask(&mut self, launch: u64, stream: Stream, asked: Asked) {
        let waiting = self.asked.entry((launch, stream)).or_default();
        waiting.retain(|(_, answer)| !answer.is_closed());
        let is_first = waiting.is_empty();
        let from = asked.0;
        // One that is turned away asks again.
        if waiting.len() < ASKED_MAX {
            waiting.push(asked);
        }
        let is_with_host = self.sent.values().any(|sent| (sent.0, sent.1) == (launch, stream));
        if is_first && !is_with_host {
            self.send(launch, stream, from);
        }
    }

    fn send(&mut self, launch: u64, stream: Stream, from: u64) {
        let request = self.next_request;
        self.next_request += 1;
        self.sent.insert(request, (launch, stream, from));
        let is_error = stream == Stream::Stderr;
        self.unsent.push(Tail { key: launch, request, is_error, from });
    }

    /// The host has answered.
    pub(super) fn answered(&mut self, tailed: Tailed) {
        let Tailed { request, total_bytes, bytes, spill, is_cut } = tailed;
        let Some((launch, stream, from)) = self.sent.remove(&request) else { return };
        let waiting = self.asked.remove(&(launch, stream)).unwrap_or_default();
        let file = spill.map(|path| PathBuf::from(OsString::from_vec(path)));
        let is_cut = is_cut || file.is_none();
        let mut others = Vec::new();
        for (wanted, answer) in waiting {
            if wanted != from {
                others.push((wanted, answer));
                continue;
            }
            let (bytes, file) = (bytes.clone(), file.clone());
            let here = Written::Here { total_bytes, bytes, file, is_cut, has_ended: false };
            // It may have gone away.
            let _ = answer.send(here);
        }
        others.retain(|(_, answer)| !answer.is_closed());
        if let Some(&(from, _)) = others.first() {
            self.asked.insert((launch, stream), others);
            self.send(launch, stream, from);
        }
    }

    /// A launch is over: its task's end answers all questions.
    pub(super) fn launch_over(&mut self, launch: u64) {
        if self.sent.is_empty() {
            return;
        }
        self.sent.retain(|_, (of, _, _)| *of != launch);
        self.asked.retain(|(of, _), _| *of != launch);
        self.unsent.retain(|tail| tail.key != launch);
    }

    fn watch(&mut self, key: TaskKey, now: Instant) {
        let is_old = |at: Instant, ms| now.duration_since(at) >= Duration::from_millis(ms);
        while self.ended.front().is_some_and(|ended| is_old(ended.at, ENDED_MS)) {
            self.drop_oldest();
        }
        if self.watched.len() >= WATCHED_TASKS_MAX {
            self.watched.retain(|_, at| !is_old(*at, WATCHED_MS));
        }
        if self.watched.len() < WATCHED_TASKS_MAX {
            self.watched.insert(key, now);
        }
    }

    fn drop_oldest(&mut self) {
        if let Some(ended) = self.ended.pop_front() {
            self.ended_bytes -= bytes_of(&ended.detail);
        }
    }

    /// Keeps what a task wrote for a moment, if somebody has asked about it.
    pub(super) fn note_end(&mut self, event: &Event) {
        if self.watched.is_empty() {
            return;
        }
        let Event::Ended { key, detail, .. } = event else { return };
        let Some(asked) = self.watched.remove(key) else { return };
        let now = Instant::now();
        if now.duration_since(asked) >= Duration::from_millis(WATCHED_MS) {
            return;
        }
        let detail = detail.clone().unwrap_or_default();
        self.ended_bytes += bytes_of(&detail);
        self.ended.push_back(Ended { key: *key, at: now, detail });
        while self.ended_bytes > ENDED_BYTES_MAX {
            self.drop_oldest();
        }
    }

    /// What a task wrote that has ended a moment ago.
    fn ended(&self, key: TaskKey) -> Option<&Arc<Detail>> {
        let found = self.ended.iter().rev().find(|ended| ended.key == key);
        found.map(|ended| &ended.detail)
    }
}

fn bytes_of(detail: &Detail) -> usize {
    detail.stdout.head.len() + detail.stderr.head.len()
}

impl Tasks {
    /// Somebody wants to know what a task has written.
    pub(super) fn tail(
        &mut self,
        key: TaskKey,
        stream: Stream,
        from: u64,
        answer: oneshot::Sender<Written>,
    ) {
        if let Some(detail) = self.tails.ended(key) {
            // It may have gone away.
            let _ = answer.send(self.written(detail.stream(stream), stream, from));
            return;
        }
        self.tails.watch(key, Instant::now());
        if let Some(launch) = self.launch_keys.get(&key) {
            self.tails.ask(*launch, stream, (from, answer));
            return;
        }
        let written = match self.workers.tail(key, stream) {
            Some(CallTail::Running(file)) => Written::InFile(file),
            Some(CallTail::Waiting) => Written::Waiting,
            None if self.sleeping.contains_key(&key) => Written::Here {
                total_bytes: 0,
                bytes: Vec::new(),
                file: None,
                is_cut: false,
                has_ended: false,
            },
            None => Written::Gone,
        };
        let _ = answer.send(written);
    }

    /// What a task wrote that has ended.
    fn written(&self, captured: &Captured, stream: Stream, from: u64) -> Written {
        let file = captured.overflow.map(|kept| self.outputs.file(kept.number, stream));
        let head = &captured.head;
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(head.len());
        Written::Here {
            total_bytes: captured.total_bytes,
            bytes: head[from..].to_vec(),
            is_cut: file.is_none(),
            file,
            has_ended: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use falkon_core::result::Outcome;
    use falkon_core::task::{InstanceId, TaskId, Time};

    const KEY: TaskKey = TaskKey { instance: InstanceId(1), task: TaskId(2) };

    fn tailed(request: u64, total_bytes: u64, bytes: &[u8]) -> Tailed {
        Tailed { request, total_bytes, bytes: bytes.to_vec(), spill: None, is_cut: false }
    }

    fn bytes(asked: &mut oneshot::Receiver<Written>) -> Option<Vec<u8>> {
        match asked.try_recv() {
            Ok(Written::Here { bytes, .. }) => Some(bytes),
            _ => None,
        }
    }

    #[test]
    fn the_host_has_one_question_for_each_stream_and_all_are_answered() {
        let mut tails = Tails::default();
        let (ask, mut first) = oneshot::channel();
        tails.ask(7, Stream::Stdout, (0, ask));
        let (ask, mut same) = oneshot::channel();
        tails.ask(7, Stream::Stdout, (0, ask));
        let (ask, mut later) = oneshot::channel();
        tails.ask(7, Stream::Stdout, (3, ask));
        let (ask, gone) = oneshot::channel();
        tails.ask(7, Stream::Stdout, (5, ask));
        drop(gone);
        let (ask, mut error) = oneshot::channel();
        tails.ask(7, Stream::Stderr, (0, ask));
        let sent = std::mem::take(&mut tails.unsent);
        assert_eq!(sent.iter().map(|tail| tail.is_error).collect::<Vec<_>>(), [false, true]);
        tails.answered(tailed(sent[0].request, 3, b"abc"));
        assert_eq!(
            (bytes(&mut first), bytes(&mut same)),
            (Some(b"abc".into()), Some(b"abc".into()))
        );
        let again = std::mem::take(&mut tails.unsent);
        assert_eq!(again.iter().map(|tail| tail.from).collect::<Vec<_>>(), [3]);
        tails.answered(tailed(again[0].request, 4, b"d"));
        assert_eq!(bytes(&mut later), Some(b"d".into()));
        tails.launch_over(7);
        assert!(bytes(&mut error).is_none() && tails.sent.is_empty() && tails.asked.is_empty());
    }

    #[test]
    fn what_was_asked_for_is_kept_when_its_task_ends_and_nothing_else_is() {
        let mut tails = Tails::default();
        let end = |task| {
            let stdout = Captured { head: b"all".to_vec(), total_bytes: 3, ..Captured::default() };
            let detail = Some(Arc::new(Detail { stdout, ..Detail::default() }));
            let key = TaskKey { task: TaskId(task), ..KEY };
            let (outcome, started, ended) = (Outcome::Exit(0), Time(1), Time(2));
            Event::Ended { key, outcome, started, ended, detail }
        };
        tails.watch(KEY, Instant::now());
        tails.note_end(&end(1));
        tails.note_end(&end(2));
        assert!(tails.ended(TaskKey { task: TaskId(1), ..KEY }).is_none());
        assert_eq!(tails.ended(KEY).unwrap().stdout.head, b"all");
        let later = Instant::now() + Duration::from_millis(ENDED_MS);
        tails.watch(TaskKey { task: TaskId(3), ..KEY }, later);
        assert!(tails.ended(KEY).is_none() && tails.ended_bytes == 0);
    }
}
