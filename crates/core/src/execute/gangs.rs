//! Gangs that this executor is a member of: it holds room for each, from its order to form it
//! until nothing of it runs here any more.
//!
//! On the first member the task itself takes that room. It waits in the queue like others, and
//! starts when its gang has formed here. A gang that waits for room goes before all tasks that
//! need some: the dispatcher has counted that there is room, so what still has it ends soon.

use super::{Action, Executor, Grant, Killed, Link, Queued, Running, TaskKey};
use crate::dispatch::CheckError;
use crate::dispatch::Held;
use crate::dispatch::check::ensure;
use crate::gang::{GangAction, GangKey, GangOrder, GangReport, GangStart, GangToken, Member};
use crate::limits::HELD_GANGS_MAX;
use crate::result::ResourceUsage;
use crate::seldom::Empty;
use crate::task::Resources;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Gangs {
    held: BTreeMap<GangKey, Gang>,
    /// Gangs that wait for room, in the order in which they came.
    waiting: VecDeque<GangKey>,
}

#[derive(Debug)]
struct Gang {
    index: u32,
    resources: Resources,
    ranks_per_node: u32,
    token: GangToken,
    members: Arc<Vec<Member>>,
    state: State,
    /// It cannot go on here, and the dispatcher of each session is told.
    is_broken: bool,
}

#[derive(Debug)]
enum State {
    /// It waits for room.
    Waiting,
    /// It has room.
    Formed(Grant),
    /// What runs of it is being ended: its room, and what its processes used once they have
    /// ended.
    Ending(Grant, Option<Option<ResourceUsage>>),
}

impl Empty for Gangs {
    const EMPTY: &'static Gangs = &Gangs { waiting: VecDeque::new(), held: BTreeMap::new() };
}

impl Gangs {
    /// The gangs that are held here.
    pub(super) fn keys(&self) -> Vec<GangKey> {
        self.held.keys().copied().collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether some wait for room.
    pub(super) fn are_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The room of a gang that has formed.
    fn grant(&self, key: &GangKey) -> Option<&Grant> {
        match &self.held.get(key)?.state {
            State::Formed(grant) => Some(grant),
            State::Waiting | State::Ending(..) => None,
        }
    }

    /// What the gangs hold.
    pub(super) fn rooms(&self) -> impl Iterator<Item = (&Resources, &Grant)> + Clone {
        self.held.values().filter_map(|gang| match &gang.state {
            State::Waiting => None,
            State::Formed(grant) | State::Ending(grant, _) => Some((&gang.resources, grant)),
        })
    }

    /// Gangs wait for room exactly if they have none.
    pub(super) fn check(&self) -> Result<(), CheckError> {
        let are_listed = self
            .waiting
            .iter()
            .all(|key| self.held.get(key).is_some_and(|gang| matches!(gang.state, State::Waiting)));
        let waiting = self.held.values().filter(|gang| matches!(gang.state, State::Waiting));
        ensure!(are_listed && waiting.count() == self.waiting.len(), "a gang waits, or does not");
        ensure!(self.held.len() <= HELD_GANGS_MAX, "too many gangs are held");
        Ok(())
    }
}

impl Executor {
    /// Carries orders about gangs out.
    pub(super) fn take_gang_orders(&mut self, orders: Vec<GangOrder>) {
        for order in orders {
            let key = order.key();
            let is_sound = order.is_sound();
            match order {
                GangOrder::Disband { key } => self.disband(key),
                GangOrder::Form { .. } if self.gangs.held.contains_key(&key) => {}
                GangOrder::Form { index, resources, ranks_per_node, token, members, .. } => {
                    let can_form = is_sound
                        && !self.is_leaving()
                        && self.room.capacity().fits(&resources)
                        && self.gangs.held.len() < HELD_GANGS_MAX;
                    if !can_form {
                        self.updates.gang(GangReport::Released { key, usage: None });
                        continue;
                    }
                    let (state, is_broken) = (State::Waiting, false);
                    let gang =
                        Gang { index, resources, ranks_per_node, token, members, state, is_broken };
                    self.gangs.held.insert(key, gang);
                    self.gangs.waiting.push_back(key);
                }
            }
        }
    }

    /// Forms the gangs that there is room for, each in its turn.
    pub(super) fn form_gangs(&mut self) {
        while self.gangs.are_waiting() {
            let Gangs { waiting, held } = &mut *self.gangs;
            let Some(&key) = waiting.front() else { break };
            let Some(gang) = held.get_mut(&key) else { break };
            if !self.room.fits(&gang.resources) {
                return;
            }
            waiting.pop_front();
            let grant = self.room.take(&gang.resources);
            gang.state = State::Formed(grant.clone());
            self.actions.push_back(Action::Gang(GangAction::Form {
                key,
                index: gang.index,
                resources: gang.resources.clone(),
                grant,
                ranks_per_node: gang.ranks_per_node,
                token: gang.token,
                members: gang.members.clone(),
            }));
        }
    }

    /// Whether the gang of a queued task has formed.
    pub(super) fn has_formed(&self, run: &Queued) -> bool {
        self.gangs.grant(&run.gang_key()).is_some()
    }

    /// Starts the queued task at `at`, whose gang has formed.
    pub(super) fn start_in_gang(&mut self, at: usize) {
        let Some(run) = self.take_queued(at, 1) else { return };
        let (key, gang_key) = (run.key(), run.gang_key());
        let Some(grant) = self.gangs.grant(&gang_key).cloned() else { return };
        let deadline =
            (run.class.timeout_micros > 0).then(|| self.now.after(run.class.timeout_micros));
        if let Some(at) = deadline {
            self.deadlines.insert((at, key));
        }
        self.order_start(&run, &[], &grant, None);
        let gang = Some(gang_key);
        let running = Running { deadline, gang, ..Running::new(run, grant, Link::Alone) };
        self.running.insert(key, Box::new(running));
    }

    /// The gang of a task, as its command is started with it.
    pub(super) fn gang_start(&self, run: &Queued) -> Option<Arc<GangStart>> {
        let key = run.gang_key();
        let gang = self.gangs.held.get(&key).filter(|_| run.class.is_gang())?;
        let Gang { ranks_per_node, token, members, .. } = gang;
        let (ranks_per_node, token, members) = (*ranks_per_node, *token, members.clone());
        Some(Arc::new(GangStart { key, ranks_per_node, token, members }))
    }

    /// Ends what runs of a gang here. One that is unknown has ended.
    pub(super) fn disband(&mut self, key: GangKey) {
        let Some(gang) = self.gangs.held.get_mut(&key) else {
            self.updates.gang(GangReport::Released { key, usage: None });
            return;
        };
        match std::mem::replace(&mut gang.state, State::Waiting) {
            State::Waiting => {
                self.gangs.waiting.retain(|waiting| *waiting != key);
                self.gangs.held.remove(&key);
                self.updates.gang(GangReport::Released { key, usage: None });
                self.startable = true;
            }
            State::Formed(grant) => {
                gang.state = State::Ending(grant, None);
                self.actions.push_back(Action::Gang(GangAction::Disband { key }));
            }
            State::Ending(grant, ended) => gang.state = State::Ending(grant, ended),
        }
        // The command of a gang that is over is not waited for.
        let held = Held { instance: key.instance, first: key.task, count: 1, tries: key.tries };
        self.drop_queued(&[held], None);
        let task = TaskKey { instance: key.instance, task: key.task };
        if self.running.find(&task).is_some_and(|run| run.gang == Some(key)) {
            self.kill(task, Killed::Disowned, 0);
        }
    }

    /// Nothing that was started here for a gang runs any more.
    pub(super) fn gang_ended(&mut self, key: GangKey, usage: Option<ResourceUsage>) {
        if let Some(gang) = self.gangs.held.get_mut(&key)
            && let State::Ending(_, ended) = &mut gang.state
        {
            ended.get_or_insert(usage);
            self.release_gang(key);
        }
    }

    /// Gives a gang's room back, if it has ended here and its task does not run any more.
    pub(super) fn release_gang(&mut self, key: GangKey) {
        let task = TaskKey { instance: key.instance, task: key.task };
        if self.running.find(&task).is_some_and(|run| run.gang == Some(key)) {
            return;
        }
        let Some(gang) = self.gangs.held.get(&key) else { return };
        let State::Ending(grant, Some(usage)) = &gang.state else { return };
        self.room.give(&gang.resources, grant);
        self.updates.gang(GangReport::Released { key, usage: *usage });
        self.gangs.held.remove(&key);
        self.startable = true;
    }

    /// Gangs that have no room yet do not form here any more.
    pub(super) fn release_waiting_gangs(&mut self) {
        if !self.gangs.are_waiting() {
            return;
        }
        for key in std::mem::take(&mut self.gangs.waiting) {
            self.gangs.held.remove(&key);
            self.updates.gang(GangReport::Released { key, usage: None });
        }
    }

    /// The time of this executor is over: gangs cannot go on here.
    pub(super) fn break_gangs(&mut self) {
        if self.gangs.is_empty() {
            return;
        }
        for (key, gang) in &mut self.gangs.held {
            let is_ending = matches!(gang.state, State::Ending(..));
            if !is_ending && !std::mem::replace(&mut gang.is_broken, true) {
                self.updates.gang(GangReport::Broken { key: *key });
            }
        }
    }

    /// A session begins: its dispatcher has not been told which gangs cannot go on.
    pub(super) fn tell_gangs_anew(&mut self) {
        for (key, _) in self.gangs.held.iter().filter(|(_, gang)| gang.is_broken) {
            self.updates.gang(GangReport::Broken { key: *key });
        }
    }
}

impl Queued {
    /// The gang that is this try of its task.
    pub(super) fn gang_key(&self) -> GangKey {
        let TaskKey { instance, task } = self.key();
        GangKey { instance, task, tries: self.tries }
    }
}
