//! The record of what was done to a dispatcher: a line of JSON for each control action, with who
//! asked for it, from where, on what, and what came of it. A thread writes it, as a slow disk
//! must hold up no task; a line that finds too many others waiting is counted and left out.

use super::Driver;
use falkon_core::dispatch::{ConnectionId, Purpose, Selection};
use falkon_core::result::shortened;
use falkon_core::task::{InstanceId, Time, UserId};
use falkon_net::Log;
use falkon_net::secure::Role;
use falkon_wire::message::{BelowAsk, FromClient, RestartAsk, ToClient, UserAsk};
use falkon_wire::provision::ProvisionAsk;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// The file, beside the access files.
const FILE: &str = "audit.jsonl";
/// A file that is as large as this is set aside.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Files that were set aside and are kept.
const FILES_KEPT: u32 = 4;
/// Lines that wait to be written.
const WAITING_LINES_MAX: usize = 4096;
/// Actions whose answers are awaited.
const PENDING_ACTIONS_MAX: usize = 65_536;
/// The longest text in a line that a peer has chosen.
const TEXT_BYTES_MAX: usize = 512;
/// How long a dispatcher that ends waits for its last lines.
const FLUSH_MS_MAX: u64 = 1000;

/// A line.
#[derive(Debug, Clone, Serialize)]
struct Line {
    time: String,
    user: String,
    address: String,
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    executor: Option<u64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    what: String,
    outcome: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    why: String,
}

/// What a message has done, if it controls anything.
#[derive(Debug, PartialEq, Eq)]
struct Action {
    action: &'static str,
    instance: Option<u64>,
    executor: Option<u64>,
    what: String,
}

impl Action {
    fn of(message: &FromClient) -> Option<Action> {
        let with = |action, instance, executor, what: String| {
            let what = shortened(&what, TEXT_BYTES_MAX);
            Some(Action { action, instance, executor, what })
        };
        let on =
            |action, instance: InstanceId, what: String| with(action, Some(instance.0), None, what);
        let plain = |action, what: String| with(action, None, None, what);
        match message {
            FromClient::Create { options, .. } => plain("create", options.name.clone()),
            FromClient::Cancel { instance, selection, .. } => {
                on("cancel", *instance, selected(selection))
            }
            FromClient::Retry { instance, selection, .. } => {
                on("retry", *instance, selected(selection))
            }
            FromClient::Pause { instance, is_paused, .. } => {
                on(if *is_paused { "pause" } else { "resume" }, *instance, String::new())
            }
            FromClient::Prioritize { instance, priority, .. } => {
                on("priority", *instance, priority.to_string())
            }
            FromClient::Destroy { instance, .. } => on("destroy", *instance, String::new()),
            FromClient::Drain { executor, is_drained, .. } => {
                let action = if *is_drained { "drain" } else { "undrain" };
                with(action, None, Some(executor.0), String::new())
            }
            FromClient::Forget { name, .. } => {
                plain("forget", name.as_deref().unwrap_or_default().to_owned())
            }
            FromClient::Reach { object, purpose: Purpose::Drop { .. }, instance, .. } => {
                with("drop", instance.map(|id| id.0), None, object.url.to_string())
            }
            FromClient::Below { ask: BelowAsk::Drop { object, .. }, instance, .. } => {
                with("drop", instance.map(|id| id.0), None, object.to_string())
            }
            FromClient::Provision { ask: ProvisionAsk::Status { .. }, .. } => None,
            FromClient::Provision { .. } => plain("provision", String::new()),
            FromClient::Stop { .. } => plain("stop", String::new()),
            FromClient::Restart { ask: RestartAsk::Version, .. } => None,
            FromClient::Restart { ask: RestartAsk::Replace { program }, .. } => {
                plain("restart", program.clone().unwrap_or_default())
            }
            FromClient::User { ask, .. } => match ask {
                UserAsk::Add { name, .. } => plain("user add", name.clone()),
                UserAsk::Access { name } => plain("user access", name.clone()),
                UserAsk::Revoke { name, keeps: false } => plain("user revoke", name.clone()),
                UserAsk::Revoke { name, keeps: true } => plain("user revoke --keep", name.clone()),
                UserAsk::List => None,
            },
            _ => None,
        }
    }
}

fn selected(selection: &Selection) -> String {
    match selection {
        Selection::All => "all".to_owned(),
        Selection::Runs(runs) => {
            let tasks = runs.iter().fold(0, |sum: u64, (_, count)| sum.saturating_add(*count));
            format!("{tasks} tasks")
        }
    }
}

/// The record, if one is kept.
#[derive(Debug, Default)]
pub(super) struct Audit {
    writing: Option<Writing>,
    /// Actions that were not answered yet.
    pending: BTreeMap<(ConnectionId, u64), Line>,
    /// Lines that were left out since the last one.
    left_out: u64,
}

#[derive(Debug)]
struct Writing {
    lines: SyncSender<Vec<u8>>,
    /// Ends when all lines were written.
    done: Receiver<()>,
}

impl Audit {
    /// Opens the record in a dispatcher's directory.
    pub(super) fn open(dir: &Path, log: &Log) -> Audit {
        let (lines, waiting) = sync_channel(WAITING_LINES_MAX);
        let (end, done) = sync_channel(0);
        let (path, to_log) = (dir.join(FILE), log.clone());
        let thread = std::thread::Builder::new().name("falkon-audit".to_owned());
        let spawned = thread.spawn(move || {
            // Dropped when this thread ends.
            let _end: SyncSender<()> = end;
            write(&path, &waiting, &to_log);
        });
        match spawned {
            Ok(_) => Audit { writing: Some(Writing { lines, done }), ..Audit::default() },
            Err(error) => {
                log(&format!("no record of control actions is kept: {error}"));
                Audit::default()
            }
        }
    }

    fn put(&mut self, line: &Line) {
        let Some(writing) = &self.writing else { return };
        let Ok(mut text) = serde_json::to_vec(line) else { return };
        text.push(b'\n');
        if self.left_out > 0 {
            let count = format!("{{\"left_out\":{}}}\n", self.left_out).into_bytes();
            if writing.lines.try_send(count).is_ok() {
                self.left_out = 0;
            }
        }
        if writing.lines.try_send(text).is_err() {
            self.left_out += 1;
        }
    }

    /// Writes the outcome of an action down, if this is its answer.
    fn answered(&mut self, connection: ConnectionId, request: u64, answer: &ToClient) {
        let Some(mut line) = self.pending.remove(&(connection, request)) else { return };
        if let ToClient::Created { instance, .. } = answer {
            line.instance = Some(instance.0);
        }
        if let ToClient::Refused { reason, .. } = answer {
            line.outcome = "refused";
            line.why = shortened(&reason.to_string(), TEXT_BYTES_MAX);
        }
        self.put(&line);
    }

    /// A connection is gone: what it was not answered is not known to have been done.
    pub(super) fn close(&mut self, connection: ConnectionId) {
        let of = (connection, 0)..=(connection, u64::MAX);
        let unanswered: Vec<_> = self.pending.range(of).map(|(key, _)| *key).collect();
        for key in unanswered {
            if let Some(line) = self.pending.remove(&key) {
                self.put(&Line { outcome: "unanswered", ..line });
            }
        }
    }

    /// Waits a moment until everything is written.
    pub(super) fn end(&mut self) {
        let Some(Writing { lines, done }) = self.writing.take() else { return };
        drop(lines);
        // It ends with an error in either case: nothing is ever sent.
        let _ = done.recv_timeout(Duration::from_millis(FLUSH_MS_MAX));
    }
}

impl Driver {
    /// Notes that a peer asks for a control action.
    pub(super) fn note_action(
        &mut self,
        now: Time,
        connection: ConnectionId,
        request: Option<u64>,
        message: &FromClient,
    ) {
        if self.audit.writing.is_none() {
            return;
        }
        let (Some(action), Some(request)) = (Action::of(message), request) else { return };
        let Some(peer) = self.peers.get(&connection) else { return };
        let user = match peer.role {
            Role::User(number) => self.users.name(UserId(number)),
            role => role.to_string(),
        };
        let Action { action, instance, executor, what } = action;
        let (time, address) = (now.utc(), peer.name.clone());
        let (outcome, why) = ("done", String::new());
        let line = Line { time, user, address, action, instance, executor, what, outcome, why };
        if self.audit.pending.len() >= PENDING_ACTIONS_MAX {
            self.audit.left_out += 1;
            return;
        }
        self.audit.pending.insert((connection, request), line);
    }

    /// Notes what came of a control action, if this is the answer to one.
    pub(super) fn note_answer(&mut self, connection: ConnectionId, answer: &ToClient) {
        if self.audit.pending.is_empty() {
            return;
        }
        let request = match answer {
            ToClient::Created { request, .. }
            | ToClient::Done { request }
            | ToClient::Refused { request, .. }
            | ToClient::Retried { request, .. }
            | ToClient::Forgotten { request, .. }
            | ToClient::Reached { request, .. }
            | ToClient::User { request, .. }
            | ToClient::Program { request, .. }
            | ToClient::Provision { request, .. } => *request,
            _ => return,
        };
        self.audit.answered(connection, request, answer);
    }
}

/// Writes lines until no more come. One that cannot be written is lost, and the log says so once.
fn write(path: &Path, lines: &Receiver<Vec<u8>>, log: &Log) {
    let mut file = None;
    let mut has_failed = false;
    while let Ok(line) = lines.recv() {
        let written = append(path, &mut file, &line);
        if let Err(error) = &written {
            file = None;
            if !has_failed {
                log(&format!("cannot write {}: {error}", path.display()));
            }
        }
        has_failed = written.is_err();
    }
}

fn append(path: &Path, file: &mut Option<(File, u64)>, line: &[u8]) -> io::Result<()> {
    let opened = || {
        let mut options = OpenOptions::new();
        let file = options.create(true).append(true).mode(0o600).open(path)?;
        let bytes = file.metadata()?.len();
        Ok::<_, io::Error>((file, bytes))
    };
    let (mut there, bytes) = match file.take() {
        Some(open) => open,
        None => opened()?,
    };
    if bytes > 0 && bytes + line.len() as u64 > FILE_BYTES_MAX {
        drop(there);
        set_aside(path)?;
        (there, _) = opened()?;
    }
    there.write_all(line)?;
    let bytes = there.metadata()?.len();
    *file = Some((there, bytes));
    Ok(())
}

/// Sets the file aside, and those before it.
fn set_aside(path: &Path) -> io::Result<()> {
    let aside = |number: u32| {
        let mut name = path.to_owned().into_os_string();
        name.push(format!(".{number}"));
        PathBuf::from(name)
    };
    for number in (1..FILES_KEPT).rev() {
        // It is not there at first.
        let _ = std::fs::rename(aside(number), aside(number + 1));
    }
    std::fs::rename(path, aside(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use falkon_wire::message::Refusal;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    fn line(action: &'static str) -> Line {
        Line {
            time: Time(0).utc(),
            user: "alice".to_owned(),
            address: "127.0.0.1:1".to_owned(),
            action,
            instance: Some(3),
            executor: None,
            what: String::new(),
            outcome: "done",
            why: String::new(),
        }
    }

    #[test]
    fn each_action_is_one_line_with_its_outcome() {
        let dir = tempfile::tempdir().unwrap();
        let log: Log = Arc::new(|line: &str| panic!("{line}"));
        let mut audit = Audit::open(dir.path(), &log);
        let (one, other) = (ConnectionId(1), ConnectionId(2));
        audit.pending.insert((one, 5), line("cancel"));
        audit.pending.insert((one, 6), Line { what: "a\nb\"".to_owned(), ..line("create") });
        audit.pending.insert((other, 5), line("stop"));
        audit.answered(one, 5, &ToClient::Refused { request: 5, reason: Refusal::NotAllowed });
        let secret = falkon_wire::hidden::Hidden(vec![7; 32]);
        let created = ToClient::Created { request: 6, instance: InstanceId(9), secret };
        audit.answered(one, 6, &created);
        audit.close(other);
        audit.end();
        let path = dir.path().join(FILE);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let outcomes: Vec<_> = lines.iter().map(|line| line["outcome"].as_str().unwrap()).collect();
        assert_eq!(outcomes, ["refused", "done", "unanswered"]);
        assert_eq!((&lines[1]["instance"], &lines[1]["what"]), (&9.into(), &"a\nb\"".into()));
        assert!(lines[0]["why"].as_str().unwrap().contains("does not allow"));
    }

    #[test]
    fn a_file_that_has_grown_is_set_aside_and_few_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let large = vec![b'x'; FILE_BYTES_MAX as usize / 2 + 1];
        let mut file = None;
        for _ in 0..2 * FILES_KEPT {
            append(&path, &mut file, &large).unwrap();
        }
        let mut names: Vec<String> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        let expected: Vec<String> = std::iter::once(FILE.to_owned())
            .chain((1..=FILES_KEPT).map(|number| format!("{FILE}.{number}")))
            .collect();
        assert_eq!(names, expected);
    }
}
