//! What a dispatcher and its executors send each other: plain data.

use super::{Subtree, Survey};
use crate::collect::Unwritten;
use crate::data::declared::{AssignedData, CacheRoom, DataOrder, Pace, Serving};
use crate::data::stage::Changes;
use crate::gang::{GangKey, GangOrder, GangReport};
use crate::result::{Report, Tries};
use crate::task::{AllocationId, InstanceId, Resources, Rows, TaskClass, TaskId};
use std::sync::Arc;

/// Names a submission's template between a dispatcher and its executors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(pub u64);

/// Tasks in a row that an executor is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assigned {
    /// The template they belong to; sent before with [`Prepare`].
    pub batch: BatchId,
    /// Their instance.
    pub instance: InstanceId,
    /// The first of them.
    pub first: TaskId,
    /// How many.
    pub count: u64,
    /// Index into the batch's classes.
    pub class: u32,
    /// How often they were tried before.
    pub tries: Tries,
    /// What distinguishes them.
    pub rows: Rows,
    /// The data objects that they read and write, if they name any.
    pub data: Option<Box<AssignedData>>,
}

/// What an executor must know of a submission before it can run its tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepare {
    /// Its name in this session.
    pub batch: BatchId,
    /// The command template, opaque to the core.
    pub template: Arc<Vec<u8>>,
    /// The classes that its tasks refer to.
    pub classes: Vec<TaskClass>,
    /// To a relay: its tasks run once on each executor below that offers this. They come
    /// together, and have one row.
    pub everywhere: Option<Resources>,
}

/// Tasks in a row that an executor has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    /// Their instance.
    pub instance: InstanceId,
    /// The first of them.
    pub first: TaskId,
    /// How many.
    pub count: u64,
    /// As they were assigned.
    pub tries: Tries,
}

/// Tasks in a row that an executor has, of a class with alternatives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldAlternative {
    /// The tasks.
    pub held: Held,
    /// The number of their alternative, from 1.
    pub alternative: u32,
}

/// Everything an executor is told in one message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Order {
    /// Updates up to and including this number were taken in (and journaled);
    /// the executor may forget their reports.
    pub acknowledged: u64,
    /// New templates.
    pub prepare: Vec<Prepare>,
    /// Tasks to run, in this order.
    pub assign: Vec<Assigned>,
    /// Give back this many tasks that have not started, the last first.
    pub recall: u64,
    /// Stop these if they run, drop them if not; report them cancelled.
    pub cancel: Vec<Held>,
    /// These run elsewhere or are not wanted any more: stop and forget them
    /// without a report.
    pub disown: Vec<Held>,
    /// Templates that no assigned task needs any more.
    pub forget: Vec<BatchId>,
    /// Output that the executor keeps ([`Overflow`](crate::result::Overflow))
    /// and that nobody will ask for any more: runs of its numbers, as (first,
    /// count).
    pub discard: Vec<(u64, u64)>,
    /// What there is to know about data besides.
    pub data: Option<Box<DataOrder>>,
    /// Hand back what has not started, finish what has, then go.
    pub leave: bool,
    /// How far apart its heartbeats are to be for the rest of this session; 0 is as before.
    pub heartbeat_micros: u64,
    /// Gangs that it is to hold, or that are over: before the assigned tasks.
    pub gangs: Vec<GangOrder>,
}

/// Everything an executor says in one message; empty, it is a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Update {
    /// Counts this session's updates, from 1.
    pub number: u64,
    /// Tasks that ended.
    pub reports: Vec<Report>,
    /// Tasks given back unstarted.
    pub returned: Vec<Held>,
    /// The answer to a recall is complete.
    pub recalled: bool,
    /// The executor is about to leave: it gives back what it has not started
    /// and takes no more.
    pub leaving: bool,
    /// Tasks that have ended and hold nothing any more; they are reported when
    /// what they wrote is safe. It says so in each session.
    pub staged: Vec<Held>,
    /// Tasks of which a relay has said so, and whose outputs are lost: they run below it
    /// again.
    pub unstaged: Vec<Held>,
    /// Output that it keeps of reports that were acknowledged, in other
    /// sessions as well: runs of its numbers, as (first, count). It says so
    /// once in each session, in parts.
    pub kept: Vec<(u64, u64)>,
    /// What has changed in its cache.
    pub cache: Option<Box<Changes>>,
    /// What is below it, if it is a relay and has not said so yet.
    pub subtree: Option<Box<Subtree>>,
    /// How what is below it does, if it is a relay.
    pub survey: Option<Box<Survey>>,
    /// The archives that it cannot write for now, if that has changed; in each session
    /// anew.
    pub unwritten: Option<Vec<Unwritten>>,
    /// Whether it keeps up with those for whom it collects, if it has something to say of
    /// that.
    pub pace: Option<Pace>,
    /// Gangs that it has released, or that cannot go on.
    pub gangs: Vec<GangReport>,
}

impl Update {
    /// Whether it says nothing but that the executor is there.
    #[must_use]
    pub fn is_heartbeat(&self) -> bool {
        self.reports.is_empty()
            && self.returned.is_empty()
            && !self.recalled
            && !self.leaving
            && self.staged.is_empty()
            && self.unstaged.is_empty()
            && self.kept.is_empty()
            && self.cache.is_none()
            && self.subtree.is_none()
            && self.survey.is_none()
            && self.unwritten.is_none()
            && self.pace.is_none()
            && self.gangs.is_empty()
    }
}

/// By whose leave an executor is there, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lease {
    /// The allocation that it runs in, if a provisioner asked for it.
    pub allocation: Option<AllocationId>,
    /// Time from now on after which it leaves; `None` if nothing makes it.
    pub leaves_in_micros: Option<u64>,
}

/// An executor that registers, or comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join {
    /// Drawn at random when the executor process started.
    pub incarnation: u64,
    /// For people: host and process.
    pub name: String,
    /// What it offers.
    pub capacity: Resources,
    /// Tasks it has and has not reported.
    pub held: Vec<Held>,
    /// Reports that were not acknowledged.
    pub reports: Vec<Report>,
    /// Where it serves what it caches, if it does.
    pub serves: Option<Serving>,
    /// What its cache takes.
    pub cache: CacheRoom,
    /// By whose leave it is there.
    pub lease: Lease,
    /// The gangs that it holds.
    pub gangs: Vec<GangKey>,
    /// The tasks it has of classes with alternatives.
    pub alternatives: Vec<HeldAlternative>,
}
