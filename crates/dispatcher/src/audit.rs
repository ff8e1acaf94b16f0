//! The record of what was done to a dispatcher: a line of JSON for each control action, with who
//! asked for it, from where, on what, and what came of it. Refused requests that repeat are
//! counted ([`repeats`]), and a thread writes the lines ([`file`]).

mod file;
mod repeats;

use super::Driver;
use falkon_core::dispatch::{ConnectionId, Purpose, Selection};
use falkon_core::result::shortened;
use falkon_core::task::{InstanceId, Time, UserId};
use falkon_net::Log;
use falkon_net::secure::Role;
use falkon_wire::message::{BelowAsk, FromClient, RestartAsk, ToClient, UserAsk};
use falkon_wire::provision::ProvisionAsk;
use file::Writer;
use repeats::{Kind, Repeated, Repeats};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Actions whose answers are awaited.
const PENDING_ACTIONS_MAX: usize = 65_536;
/// The longest text in a line that a peer has chosen.
const TEXT_BYTES_MAX: usize = 512;
/// The user and the action of a line that stands for refused requests of different kinds.
const MIXED: &str = "*";

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
    /// How many requests the line stands for, if several.
    #[serde(skip_serializing_if = "Option::is_none")]
    repeated: Option<u64>,
}

/// An action that was not answered yet.
#[derive(Debug)]
struct Pending {
    /// Whom refusals count for.
    who: String,
    line: Line,
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
                UserAsk::Set { name, change } => plain("user set", format!("{name}{change}")),
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
    writer: Option<Writer>,
    /// Actions that were not answered yet.
    pending: BTreeMap<(ConnectionId, u64), Pending>,
    /// Connections that are gone, and whose actions may be answered in this round.
    closed: Vec<ConnectionId>,
    /// Refused requests that repeat.
    refused: Repeats<Line>,
    /// Lines of the log about requests that a role may not make.
    logged: Repeats<String>,
}

impl Audit {
    /// Opens the record in a dispatcher's directory.
    pub(super) fn open(dir: &Path, log: &Log) -> Audit {
        match Writer::start(dir, log) {
            Ok(writer) => Audit { writer: Some(writer), ..Audit::default() },
            Err(error) => {
                log(&format!("no record of control actions is kept: {error}"));
                Audit::default()
            }
        }
    }

    fn put(&self, line: &Line) {
        let Some(writer) = &self.writer else { return };
        let Ok(mut text) = serde_json::to_vec(line) else { return };
        text.push(b'\n');
        writer.put(text);
    }

    /// Writes the outcome of an action down, if this is its answer.
    fn answered(&mut self, now: Time, connection: ConnectionId, request: u64, answer: &ToClient) {
        let Some(Pending { who, mut line }) = self.pending.remove(&(connection, request)) else {
            return;
        };
        if let ToClient::Created { instance, .. } = answer {
            line.instance = Some(instance.0);
        }
        if let ToClient::Refused { reason, .. } = answer {
            line.outcome = "refused";
            line.why = shortened(&reason.to_string(), TEXT_BYTES_MAX);
            let kind: Kind = (who, line.action);
            let Some(first) = self.refused.take(now, kind, line) else { return };
            line = first;
        }
        self.put(&line);
    }

    /// A connection is gone: what it was not answered when this round ends is not known to have
    /// been done.
    pub(super) fn close(&mut self, connection: ConnectionId) {
        if !self.pending.is_empty() {
            self.closed.push(connection);
        }
    }

    /// Ends a round, in which everything has been answered that could be.
    pub(super) fn end_round(&mut self, now: Time, log: &Log) {
        for connection in std::mem::take(&mut self.closed) {
            let of = (connection, 0)..=(connection, u64::MAX);
            let unanswered: Vec<_> = self.pending.range(of).map(|(key, _)| *key).collect();
            for key in unanswered {
                if let Some(Pending { line, .. }) = self.pending.remove(&key) {
                    self.put(&Line { outcome: "unanswered", ..line });
                }
            }
        }
        while let Some(repeated) = self.refused.poll_line(now) {
            self.put(&stands_for(repeated));
        }
        while let Some(Repeated { line, count, .. }) = self.logged.poll_line(now) {
            log(&format!("{line} (the last of {count} refused requests since the line before)"));
        }
    }

    /// When refused requests were counted for long enough.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.refused.poll_timeout().into_iter().chain(self.logged.poll_timeout()).min()
    }

    /// Waits a moment until everything is written.
    pub(super) fn end(&mut self) {
        for repeated in self.refused.end() {
            self.put(&stands_for(repeated));
        }
        if let Some(writer) = self.writer.take() {
            writer.end();
        }
    }
}

/// The line for refused requests that were counted.
fn stands_for(repeated: Repeated<Line>) -> Line {
    let Repeated { line, count, is_mixed } = repeated;
    let line = Line { repeated: Some(count), ..line };
    match is_mixed {
        true => Line { user: MIXED.to_owned(), action: MIXED, ..line },
        false => line,
    }
}

impl Driver {
    /// Whom requests of a role count for: there may be very many instances, which users have
    /// created.
    fn who(&self, role: Role) -> String {
        match role {
            Role::User(number) => self.users.name(UserId(number)),
            Role::Instance(id) => self.users.name(self.core.user_of(InstanceId(id))),
            Role::Owner | Role::Client | Role::Executor | Role::Observer => role.to_string(),
        }
    }

    /// Logs that a peer of a role may not make a request, unless that repeats.
    pub(super) fn log_refused(&mut self, now: Time, role: Role, line: String) {
        let kind = (self.who(role), "request");
        if let Some(line) = self.audit.logged.take(now, kind, line) {
            (self.log)(&line);
        }
    }

    /// Notes that a peer asks for a control action.
    pub(super) fn note_action(
        &mut self,
        now: Time,
        connection: ConnectionId,
        request: Option<u64>,
        message: &FromClient,
    ) {
        let Some(writer) = &self.audit.writer else { return };
        let (Some(action), Some(request)) = (Action::of(message), request) else { return };
        let Some(peer) = self.peers.get(&connection) else { return };
        if self.audit.pending.len() >= PENDING_ACTIONS_MAX {
            writer.leave_out();
            return;
        }
        let who = self.who(peer.role);
        let user = match peer.role {
            Role::User(_) => who.clone(),
            role => role.to_string(),
        };
        let Action { action, instance, executor, what } = action;
        let line = Line {
            time: now.utc(),
            user,
            address: peer.name.clone(),
            action,
            instance,
            executor,
            what,
            outcome: "done",
            why: String::new(),
            repeated: None,
        };
        self.audit.pending.insert((connection, request), Pending { who, line });
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
        self.audit.answered(self.clock.now(), connection, request, answer);
    }
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
            repeated: None,
        }
    }

    fn pending(line: Line) -> Pending {
        Pending { who: line.user.clone(), line }
    }

    #[test]
    fn each_action_is_one_line_with_its_outcome() {
        let dir = tempfile::tempdir().unwrap();
        let log: Log = Arc::new(|line: &str| panic!("{line}"));
        let mut audit = Audit::open(dir.path(), &log);
        let (one, other) = (ConnectionId(1), ConnectionId(2));
        audit.pending.insert((one, 5), pending(line("cancel")));
        let text = Line { what: "a\nb\"".to_owned(), ..line("create") };
        audit.pending.insert((one, 6), pending(text));
        audit.pending.insert((other, 5), pending(line("stop")));
        audit.close(other);
        audit.answered(
            Time(1),
            one,
            5,
            &ToClient::Refused { request: 5, reason: Refusal::NotAllowed },
        );
        let secret = falkon_wire::hidden::Hidden(vec![7; 32]);
        let created = ToClient::Created { request: 6, instance: InstanceId(9), secret };
        audit.answered(Time(1), one, 6, &created);
        audit.end_round(Time(1), &log);
        audit.end();
        let path = dir.path().join("audit.jsonl");
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
    fn requests_that_are_refused_in_a_loop_are_two_lines_a_minute() {
        let dir = tempfile::tempdir().unwrap();
        let log: Log = Arc::new(|line: &str| panic!("{line}"));
        let mut audit = Audit::open(dir.path(), &log);
        let one = ConnectionId(1);
        let refused = |request| ToClient::Refused { request, reason: Refusal::NotAllowed };
        for request in 0..100_000 {
            let who = "alice".to_owned();
            audit.pending.insert((one, request), Pending { who, line: line("cancel") });
            audit.answered(Time(request), one, request, &refused(request));
            audit.end_round(Time(request), &log);
        }
        let at = audit.poll_timeout().unwrap();
        audit.end_round(at, &log);
        audit.pending.insert((one, 0), pending(line("pause")));
        audit.answered(at, one, 0, &ToClient::Done { request: 0 });
        audit.end();
        let text = std::fs::read_to_string(dir.path().join("audit.jsonl")).unwrap();
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let told: Vec<_> = lines.iter().map(|line| (&line["action"], &line["repeated"])).collect();
        let expected = [
            (&"cancel".into(), &serde_json::Value::Null),
            (&"cancel".into(), &99_999.into()),
            (&"pause".into(), &serde_json::Value::Null),
        ];
        assert_eq!(told, expected);
    }
}
