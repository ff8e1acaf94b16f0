//! Answers to what the page asks.

use super::show::{history, instance};
use super::timeline::timeline;
use super::watch::Dashboard;
use crate::query::{Chosen, executor_json, explain_instance, explain_task, task_json};
use crate::top::board::takes_nothing;
use falkon_core::events::SCALES_MICROS;
use falkon_core::task::{InstanceId, TaskId};
use falkon_net::client::{Client, ClientError};
use falkon_web::{Answer, Question};
use falkon_wire::message::{ExecutorStatus, TaskInfo};
use serde_json::{Value, json};

/// Rows of a list in one answer.
const ROWS_MAX: u64 = 200;
/// Rows of a list in one answer, if the page does not say.
const ROWS: u64 = 50;
/// Tasks that are looked at for one answer; the page says where to go on.
const LOOKED_TASKS_MAX: u64 = 50_000;
/// Questions to the dispatcher for one answer.
const ASKED_MAX: usize = 200;

/// Answers a question, or says why not.
pub(super) async fn answer(dashboard: &Dashboard, question: &Question) -> Result<Value, Answer> {
    match question.name.as_str() {
        "history" => over_time(dashboard, question),
        "instances" => instances(dashboard, question),
        "executors" => executors(dashboard, question),
        "tasks" => tasks(dashboard, question).await,
        "task" => task(dashboard, question).await,
        "timeline" => timeline(dashboard, question, &client(dashboard)?).await,
        "explain" => explain(dashboard, question).await,
        _ => Err(Answer::NotFound("there is no such question".to_owned())),
    }
}

fn number(question: &Question, name: &str, otherwise: u64) -> Result<u64, Answer> {
    question.number(name).map_err(Answer::Wrong).map(|found| found.unwrap_or(otherwise))
}

pub(super) fn needed(question: &Question, name: &str) -> Result<u64, Answer> {
    let found = question.number(name).map_err(Answer::Wrong)?;
    found.ok_or_else(|| Answer::Wrong(format!("say which {name}")))
}

/// The place of the first row that is wanted, and how many are.
fn page_of(question: &Question) -> Result<(usize, usize), Answer> {
    let from = usize::try_from(number(question, "from", 0)?).unwrap_or(usize::MAX);
    Ok((from, number(question, "count", ROWS)?.min(ROWS_MAX) as usize))
}

/// What a dispatcher said that gave no answer.
pub(super) fn refused(error: ClientError) -> Answer {
    match error {
        ClientError::Refused(reason) => Answer::NotFound(reason.to_string()),
        error => Answer::Unavailable(error.to_string()),
    }
}

fn client(dashboard: &Dashboard) -> Result<Client, Answer> {
    let none = || Answer::Unavailable("there is no connection to the dispatcher".to_owned());
    dashboard.client().ok_or_else(none)
}

fn over_time(dashboard: &Dashboard, question: &Question) -> Result<Value, Answer> {
    let scale = number(question, "scale", 0)? as usize;
    if scale >= SCALES_MICROS.len() {
        return Err(Answer::Wrong(format!("there are scales 0 to {}", SCALES_MICROS.len() - 1)));
    }
    let since = question.value("since").and_then(|text| text.parse().ok()).unwrap_or(0.0);
    Ok(history(&dashboard.known(), scale, since))
}

fn instances(dashboard: &Dashboard, question: &Question) -> Result<Value, Answer> {
    let (from, count) = page_of(question)?;
    let known = dashboard.known();
    let text = question.value("text").unwrap_or_default();
    let only = question.number("id").map_err(Answer::Wrong)?;
    let of_text = |one: &&falkon_wire::message::InstanceStatus| {
        let is_named = text.is_empty() || one.name.contains(text) || one.id.to_string() == text;
        is_named && only.is_none_or(|id| one.id == id)
    };
    let found: Vec<_> = known.board.status.instances.iter().filter(of_text).collect();
    let shown = found.iter().skip(from).take(count).map(|one| instance(&known, one));
    Ok(json!({ "count": found.len(), "shown": shown.collect::<Vec<_>>() }))
}

fn executors(dashboard: &Dashboard, question: &Question) -> Result<Value, Answer> {
    let (from, count) = page_of(question)?;
    let text = question.value("text").unwrap_or_default();
    let is_wanted: fn(&ExecutorStatus) -> bool = match question.value("state") {
        None => |_| true,
        Some("busy") => |one| one.tasks > 0,
        Some("idle") => |one| one.tasks == 0 && !takes_nothing(one),
        Some("away") => |one| !one.connected,
        Some("suspended") => |one| one.suspended_until.is_some(),
        Some("drained") => |one| one.drained,
        Some(_) => return Err(Answer::Wrong("there is no such state of executors".to_owned())),
    };
    let known = dashboard.known();
    let executors = known.board.status.executors.iter();
    let found: Vec<_> = executors.filter(|one| is_wanted(one) && one.name.contains(text)).collect();
    let shown = found.iter().skip(from).take(count).map(|one| executor_json(one));
    Ok(json!({ "count": found.len(), "shown": shown.collect::<Vec<_>>() }))
}

/// Tasks of an instance from a number on: as many as are wanted, or as could be looked at.
/// `next` says where to go on, if there may be more.
async fn tasks(dashboard: &Dashboard, question: &Question) -> Result<Value, Answer> {
    let instance = InstanceId(needed(question, "instance")?);
    let from = number(question, "from", 0)?;
    let count = number(question, "count", ROWS)?.min(ROWS_MAX);
    let state = question.value("state");
    let chosen = Chosen::of(state, question.value("command"), question.value("executor"));
    let chosen = chosen.map_err(Answer::Wrong)?;
    let client = client(dashboard)?;
    let mut found = Found { tasks: Vec::new(), next: Some(from), looked: 0 };
    if state == Some("failed") && found.failed(dashboard, &client, instance, &chosen, count).await?
    {
        return Ok(found.json());
    }
    let takes_all = chosen.takes_all();
    for _ in 0..ASKED_MAX {
        let Some(at) = found.next.filter(|_| found.wants_more(count)) else { break };
        let asked = if takes_all { count - found.tasks.len() as u64 } else { LOOKED_TASKS_MAX };
        let some = client.tasks(instance, TaskId(at), asked).await.map_err(refused)?;
        found.take(some, &chosen, count);
    }
    Ok(found.json())
}

/// Tasks that were found.
struct Found {
    tasks: Vec<TaskInfo>,
    /// Where to go on; `None` at the end of the instance.
    next: Option<u64>,
    looked: u64,
}

impl Found {
    fn wants_more(&self, count: u64) -> bool {
        (self.tasks.len() as u64) < count && self.looked < LOOKED_TASKS_MAX
    }

    /// Takes those that are wanted, in a row from `next` on.
    fn take(&mut self, some: Vec<TaskInfo>, chosen: &Chosen, count: u64) {
        let Some(last) = some.last() else {
            self.next = None;
            return;
        };
        self.looked += some.len() as u64;
        self.next = Some(last.task.0 + 1);
        for task in some {
            if self.tasks.len() as u64 == count {
                self.next = Some(task.task.0);
                return;
            }
            if chosen.takes(&task) {
                self.tasks.push(task);
            }
        }
    }

    /// Takes failed tasks by the numbers that events have. False if events do not have all.
    async fn failed(
        &mut self,
        dashboard: &Dashboard,
        client: &Client,
        instance: InstanceId,
        chosen: &Chosen,
        count: u64,
    ) -> Result<bool, Answer> {
        let from = self.next.unwrap_or_default();
        let runs: Vec<(u64, u64)> = {
            let known = dashboard.known();
            let mut all = known.board.status.instances.iter();
            let failed = all.find(|one| one.id == instance.0).map_or(0, |one| one.counts.failed);
            let listed = known.failures.failed_from(instance, 0).map(|(_, count)| count);
            if known.is_behind || listed.sum::<u64>() < failed {
                return Ok(false);
            }
            known.failures.failed_from(instance, from).take(ASKED_MAX).collect()
        };
        let is_all = runs.len() < ASKED_MAX;
        for (first, length) in runs {
            let (mut at, end) = (first.max(from), first + length);
            while at < end {
                if !self.wants_more(count) {
                    self.next = Some(at);
                    return Ok(true);
                }
                let some = client.tasks(instance, TaskId(at), end - at).await.map_err(refused)?;
                if some.is_empty() {
                    self.next = None;
                    return Ok(true);
                }
                self.take(some, chosen, count);
                at = self.next.unwrap_or(end);
            }
            self.next = Some(end);
        }
        if is_all {
            self.next = None;
        }
        Ok(true)
    }

    fn json(self) -> Value {
        let tasks: Vec<Value> = self.tasks.iter().map(task_json).collect();
        json!({ "shown": tasks, "next": self.next, "looked": self.looked })
    }
}

/// A task: what it is, and why it waits or how it ended.
async fn task(dashboard: &Dashboard, question: &Question) -> Result<Value, Answer> {
    let instance = InstanceId(needed(question, "instance")?);
    let task = needed(question, "task")?;
    let client = client(dashboard)?;
    let none = || Answer::NotFound(format!("there is no task {task} of instance {instance}"));
    let found = client.tasks(instance, TaskId(task), 1).await.map_err(refused)?;
    let info = found.into_iter().find(|info| info.task.0 == task).ok_or_else(none)?;
    let text = explain_task(&client, instance, task, false).await.map_err(refused)?;
    let mut value = task_json(&info);
    value["explained"] = json!(text.ok_or_else(none)?);
    Ok(value)
}

/// Why tasks of an instance wait.
async fn explain(dashboard: &Dashboard, question: &Question) -> Result<Value, Answer> {
    let instance = InstanceId(needed(question, "instance")?);
    let client = client(dashboard)?;
    let text = explain_instance(&client, instance, false).await.map_err(refused)?;
    let none = || Answer::NotFound(format!("there is no instance {instance}"));
    Ok(json!({ "explained": text.ok_or_else(none)? }))
}
