//! What running tasks have written so far, for visitors who ask.
//!
//! The process host has the first bytes of a stream, and a file has all of it once it is longer.
//! A call writes into its worker's file. What a task wrote whose output was asked for is kept for
//! a moment when it ends, and a question that comes between the end of its process and that of the
//! task waits for the latter, so that whoever follows it misses nothing.

use super::Tasks;
use crate::workers::CallTail;
use falkon_core::execute::{Event, TaskKey};
use falkon_core::result::{Captured, Detail, Stream};
use falkon_core::task::TaskId;
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
/// A visitor that waits, and of which stream it wants to read.
type AskedOf = (Stream, Asked);

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
    /// Who waits for the end of a task whose process is over. All of these tasks are watched.
    until_end: BTreeMap<TaskKey, Vec<AskedOf>>,
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

    /// A launch of a task is over: the end of the task answers its questions.
    pub(super) fn launch_over(&mut self, launch: u64, key: TaskKey) {
        if self.sent.is_empty() {
            return;
        }
        self.sent.retain(|_, (of, _, _)| *of != launch);
        self.unsent.retain(|tail| tail.key != launch);
        for stream in Stream::BOTH {
            for asked in self.asked.remove(&(launch, stream)).unwrap_or_default() {
                self.wait_for_end(key, stream, asked);
            }
        }
    }

    /// A visitor waits for the end of a task that has no process any more. It is told that the
    /// task is not here where nobody has asked about it before.
    fn wait_for_end(&mut self, key: TaskKey, stream: Stream, asked: Asked) {
        if !self.watched.contains_key(&key) {
            return;
        }
        let waiting = self.until_end.entry(key).or_default();
        waiting.retain(|(_, (_, answer))| !answer.is_closed());
        if waiting.len() < ASKED_MAX {
            waiting.push((stream, asked));
        }
    }

    fn watch(&mut self, key: TaskKey, now: Instant) {
        let is_old = |at: Instant, ms| now.duration_since(at) >= Duration::from_millis(ms);
        while self.ended.front().is_some_and(|ended| is_old(ended.at, ENDED_MS)) {
            self.drop_oldest();
        }
        if self.watched.len() >= WATCHED_TASKS_MAX {
            self.watched.retain(|_, at| !is_old(*at, WATCHED_MS));
            self.until_end.retain(|key, _| self.watched.contains_key(key));
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

    /// A task has ended: keeps what it wrote for a moment, if somebody has asked about it. Returns
    /// those that wait for that.
    fn end(&mut self, key: TaskKey, detail: &Arc<Detail>, now: Instant) -> Vec<AskedOf> {
        let Some(asked) = self.watched.remove(&key) else { return Vec::new() };
        if now.duration_since(asked) < Duration::from_millis(WATCHED_MS) {
            self.ended_bytes += bytes_of(detail);
            self.ended.push_back(Ended { key, at: now, detail: detail.clone() });
            while self.ended_bytes > ENDED_BYTES_MAX {
                self.drop_oldest();
            }
        }
        self.until_end.remove(&key).unwrap_or_default()
    }

    /// Tasks of consecutive numbers are not here any more: who waits for one is told so.
    fn leave(&mut self, first: TaskKey, count: u64) {
        let until = TaskKey { task: TaskId(first.task.0.saturating_add(count)), ..first };
        let gone: Vec<TaskKey> = self.watched.range(first..until).map(|(key, _)| *key).collect();
        for key in gone {
            self.watched.remove(&key);
            self.until_end.remove(&key);
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
        if let Some(launch) = self.launch_keys.get(&key) {
            self.tails.watch(key, Instant::now());
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
            None => return self.tails.wait_for_end(key, stream, (from, answer)),
        };
        self.tails.watch(key, Instant::now());
        // It may have gone away.
        let _ = answer.send(written);
    }

    /// Answers those who wait for what an event says about tasks.
    pub(super) fn answer_visitors(&mut self, event: &Event) {
        if self.tails.watched.is_empty() {
            return;
        }
        match event {
            Event::Ended { key, detail, .. } => {
                let detail = detail.clone().unwrap_or_default();
                for (stream, (from, answer)) in self.tails.end(*key, &detail, Instant::now()) {
                    // It may have gone away.
                    let _ = answer.send(self.written(detail.stream(stream), stream, from));
                }
            }
            Event::TakenBack(key) => self.tails.leave(*key, 1),
            Event::Returned { key, count } => self.tails.leave(*key, *count),
            Event::Unstarted(start) => self.tails.leave(start.key, start.count),
            _ => {}
        }
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
    use falkon_core::task::InstanceId;

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
        tails.launch_over(7, KEY);
        assert!(error.try_recv().is_err(), "nobody watches the task");
        assert!(tails.sent.is_empty() && tails.asked.is_empty() && tails.until_end.is_empty());
    }

    #[test]
    fn what_was_asked_for_is_kept_when_its_task_ends_and_nothing_else_is() {
        let mut tails = Tails::default();
        let stdout = Captured { head: b"all".to_vec(), total_bytes: 3, ..Captured::default() };
        let detail = Arc::new(Detail { stdout, ..Detail::default() });
        let other = TaskKey { task: TaskId(1), ..KEY };
        let now = Instant::now();
        tails.watch(KEY, now);
        assert!(tails.end(other, &detail, now).is_empty());
        assert!(tails.end(KEY, &detail, now).is_empty());
        assert!(tails.ended(other).is_none());
        assert_eq!(tails.ended(KEY).unwrap().stdout.head, b"all");
        let later = now + Duration::from_millis(ENDED_MS);
        tails.watch(TaskKey { task: TaskId(3), ..KEY }, later);
        assert!(tails.ended(KEY).is_none() && tails.ended_bytes == 0);
    }

    #[test]
    fn questions_between_the_end_of_a_process_and_of_its_task_wait_for_the_latter() {
        let mut tails = Tails::default();
        let now = Instant::now();
        tails.watch(KEY, now);
        let (ask, mut before) = oneshot::channel();
        tails.ask(7, Stream::Stdout, (3, ask));
        tails.launch_over(7, KEY);
        let (ask, mut between) = oneshot::channel();
        tails.wait_for_end(KEY, Stream::Stderr, (5, ask));
        let is_open = |asked: &mut oneshot::Receiver<Written>| {
            asked.try_recv() == Err(oneshot::error::TryRecvError::Empty)
        };
        assert!(is_open(&mut before) && is_open(&mut between));
        let waiting = tails.end(KEY, &Arc::default(), now);
        let asked: Vec<_> = waiting.iter().map(|(stream, (from, _))| (*stream, *from)).collect();
        assert_eq!(asked, [(Stream::Stdout, 3), (Stream::Stderr, 5)]);
        assert!(tails.until_end.is_empty() && tails.watched.is_empty());

        tails.watch(KEY, now);
        let (ask, mut moved) = oneshot::channel();
        tails.wait_for_end(KEY, Stream::Stdout, (0, ask));
        tails.leave(TaskKey { task: TaskId(0), ..KEY }, 3);
        assert!(!is_open(&mut moved) && tails.until_end.is_empty());
    }
}
