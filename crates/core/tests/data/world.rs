//! One stage in a world of peers, stores, a disk and an executor, on a virtual
//! clock. One seed gives one schedule.

mod broadcasts;
mod disk;
mod stripes;

use crate::queue::Queue;
use crate::rng::Rng;
use crate::trees::Trees;
use falkon_core::data::cache::{CacheOptions, Eviction, TierId};
use falkon_core::data::object::{Object, ObjectId, Source, Sources};
use falkon_core::data::stage::{
    Action, Event, FetchError, FetchId, Input, PartialId, Requester, ServeId, Stage, StageOptions,
    UnpackError, UnpackId, Usage, WriteError,
};
use falkon_core::task::{ExecutorId, InstanceId, TaskId, TaskKey, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

pub(crate) const MIB: u64 = 1 << 20;
const STEPS_MAX: u64 = 200_000;

/// What may go wrong, in percent of the cases, until faults end.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    /// A peer has not got it, is busy, cannot be reached, breaks off, or gives
    /// something else.
    pub(crate) peers: u64,
    /// The same of the store, and it may be down altogether.
    pub(crate) store: u64,
    /// Writing fails: the disk is full, or broken; files get lost.
    pub(crate) disk: u64,
    /// Tasks are cancelled, objects dropped.
    pub(crate) cancels: u64,
    /// Inputs are archives that tasks find unpacked: no fault, but more to do.
    pub(crate) unpacks: u64,
}

/// An object as it really is.
#[derive(Debug, Clone)]
pub(crate) struct Real {
    pub(crate) object: Arc<Object>,
    pub(crate) size: u64,
    pub(crate) store: bool,
    /// Which peers hold it.
    pub(crate) peers: Vec<ExecutorId>,
    /// What its source has become.
    pub(crate) becomes: Option<ObjectId>,
}

#[derive(Debug)]
enum Due {
    Event(Event),
    Arrive(Requester, Vec<Input>),
    Cancel(Requester),
    End(Requester),
    Chance,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Coming,
    Here,
    Ready,
    Running,
    Done,
    Failed,
    Cancelled,
}

/// A file being written.
#[derive(Debug, Default)]
struct Partial {
    tier: u8,
    object: u128,
    /// Which bytes are there, as ranges.
    ranges: Vec<(u64, u64)>,
    reach: u64,
    corrupt: bool,
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) seed: u64,
    rng: Rng,
    pub(crate) now: Time,
    pub(crate) stage: Stage,
    tiers: Vec<u64>,
    faults: Faults,
    until: Time,
    store_down_until: Time,
    due: Queue<Due>,
    /// Number of the next output or question.
    next: u64,
    pub(crate) reals: BTreeMap<ObjectId, Real>,
    pub(crate) fates: BTreeMap<Requester, Fate>,
    pub(crate) errors: BTreeMap<Requester, String>,
    pub(crate) usages: BTreeMap<Requester, Usage>,
    partials: BTreeMap<PartialId, Partial>,
    files: BTreeMap<ObjectId, (u8, u64)>,
    fetching: BTreeMap<FetchId, PartialId>,
    pub(crate) fetches: Vec<(ObjectId, Source, u64, Option<u64>)>,
    staged: BTreeMap<Requester, Vec<ObjectId>>,
    pub(crate) trees: Trees,
    /// What tasks find unpacked.
    unpacked: BTreeMap<Requester, Vec<ObjectId>>,
    serving: BTreeMap<ServeId, ObjectId>,
    slots: usize,
    outputs_open: usize,
    /// The chunk that each request is for.
    asked: BTreeMap<ServeId, (u64, u64)>,
    told: BTreeSet<ObjectId>,
    /// Shares that are to be here.
    lent: BTreeSet<ObjectId>,
    /// What tasks find in a file system.
    shown: BTreeSet<ObjectId>,
    pub(crate) steps: u64,
    log: VecDeque<String>,
}

pub(crate) fn key(task: u64) -> Requester {
    Requester::Task(TaskKey { instance: InstanceId(1), task: TaskId(task) })
}

pub(crate) fn object(id: u128, version: &str, size: Option<u64>) -> Arc<Object> {
    let url = format!("s3://bucket{}/{id}", id % 2);
    Arc::new(Object { id: ObjectId(id), url: url.into(), version: version.into(), size })
}

impl World {
    pub(crate) fn new(seed: u64, tiers: &[u64], eviction: Eviction, faults: Faults) -> World {
        let mut rng = Rng::new(seed);
        let cache = CacheOptions { tiers_bytes: tiers.to_vec(), eviction, seed };
        let options = StageOptions {
            cache,
            fetches_max: 1 + rng.below(6) as usize,
            source_fetches_max: 1 + rng.below(3) as usize,
            serves_max: rng.below(3) as usize,
            lends_last: tiers.len() > 2,
            mounts: tiers.len() == 2,
            seed,
        };
        World {
            seed,
            rng,
            now: Time(0),
            stage: Stage::new(&options),
            tiers: tiers.to_vec(),
            faults,
            until: Time(20_000_000),
            store_down_until: Time(0),
            due: Queue::new(),
            next: 0,
            reals: BTreeMap::new(),
            fates: BTreeMap::new(),
            errors: BTreeMap::new(),
            usages: BTreeMap::new(),
            partials: BTreeMap::new(),
            files: BTreeMap::new(),
            fetching: BTreeMap::new(),
            fetches: Vec::new(),
            staged: BTreeMap::new(),
            trees: Trees::default(),
            unpacked: BTreeMap::new(),
            serving: BTreeMap::new(),
            slots: 2,
            outputs_open: 0,
            asked: BTreeMap::new(),
            told: BTreeSet::new(),
            lent: BTreeSet::new(),
            shown: BTreeSet::new(),
            steps: 0,
            log: VecDeque::new(),
        }
    }

    /// A world with objects and tasks that read them.
    pub(crate) fn random(seed: u64, faults: Faults) -> World {
        let mut rng = Rng::new(seed ^ 0x5eed);
        let tiers = rng
            .pick(&[
                vec![100 * MIB],
                vec![60 * MIB, 120 * MIB],
                vec![35 * MIB, 30 * MIB],
                vec![400 * MIB],
                vec![20 * MIB, 40 * MIB, 100 * MIB],
            ])
            .clone();
        let all: Vec<Eviction> = Eviction::all().collect();
        let eviction = *rng.pick(&all);
        let mut world = World::new(seed, &tiers, eviction, faults);
        let objects = 3 + rng.below(15);
        for id in 1..=u128::from(objects) {
            world.random_object(&mut rng, id);
        }
        let mut at = 0;
        for task in 0..5 + rng.below(30) {
            at += rng.below(400_000);
            let inputs = (0..rng.below(4))
                .map(|_| {
                    let real = &world.reals[&ObjectId(1 + u128::from(rng.below(objects)))];
                    let peers = real.peers.iter().copied();
                    // Hints may be wrong, and may be missing.
                    let mut peers: Vec<ExecutorId> = peers.filter(|_| rng.percent(80)).collect();
                    if rng.percent(20) {
                        peers.push(ExecutorId(rng.below(6)));
                    }
                    let coming = rng.percent(20).then(|| ExecutorId(rng.below(6)));
                    let sources =
                        Sources { peers, store: real.store, coming, ..Sources::default() };
                    let is_unpacked = rng.percent(faults.unpacks);
                    let object = Arc::clone(&real.object);
                    Input { object, sources, is_unpacked, may_mount: true }
                })
                .collect();
            world.submit(Time(at), key(task), inputs);
            if rng.percent(faults.cancels) {
                world.plan(at + rng.below(3_000_000), Due::Cancel(key(task)));
            }
        }
        for _ in 0..40 {
            world.plan(rng.below(20_000_000), Due::Chance);
        }
        world
    }

    fn random_object(&mut self, rng: &mut Rng, id: u128) {
        let large = rng.percent(15);
        let size =
            if large { (32 + rng.below(40)) * MIB } else { rng.below(30) * MIB + rng.below(9) };
        let known = rng.percent(70).then_some(size);
        let unversioned = rng.percent(15);
        let version = if unversioned { "" } else { "1" };
        let store = unversioned || rng.percent(90);
        let peers = (0..5).map(ExecutorId).filter(|_| rng.percent(if store { 40 } else { 70 }));
        let peers = peers.collect();
        let becomes = (store && (unversioned || rng.percent(10))).then(|| {
            let new = ObjectId(id + 1_000);
            // A store that cannot name versions gives it for one use.
            let version = if unversioned && rng.percent(40) { "" } else { "2" };
            let size = rng.below(30) * MIB;
            let known = rng.percent(80).then_some(size);
            let object = object(new.0, version, known);
            let real = Real { object, size, store: true, peers: Vec::new(), becomes: None };
            self.reals.insert(new, real);
            new
        });
        let object = object(id, version, known);
        self.reals.insert(ObjectId(id), Real { object, size, store, peers, becomes });
    }

    pub(crate) fn submit(&mut self, at: Time, task: Requester, inputs: Vec<Input>) {
        self.fates.insert(task, Fate::Coming);
        self.plan(at.0, Due::Arrive(task, inputs));
    }

    fn plan(&mut self, at: u64, due: Due) {
        self.next += 1;
        self.due.plan(Time(at), due);
    }

    fn soon(&mut self, event: Event) {
        let delay = *self.rng.pick(&[0, 1_000, 30_000, 300_000]);
        let at = self.now.0 + self.rng.below(delay + 1);
        self.plan(at, Due::Event(event));
    }

    fn fault(&mut self, percent: u64) -> bool {
        self.now < self.until && self.rng.percent(percent)
    }

    /// Goes on until every task has ended.
    pub(crate) fn run(&mut self) {
        while self
            .fates
            .values()
            .any(|fate| !matches!(fate, Fate::Done | Fate::Failed | Fate::Cancelled))
            || self.outputs_open > 0
        {
            let stuck = !self.step() || self.steps > STEPS_MAX;
            assert!(!stuck, "seed {} stands still\n{}", self.seed, self.describe());
        }
        while self.step() {}
        self.judge();
    }

    fn describe(&self) -> String {
        let log: Vec<&str> = self.log.iter().map(String::as_str).collect();
        format!("{}\nat {:?}: {:?}\n{:?}", log.join("\n"), self.now, self.fates, self.stage)
    }

    fn step(&mut self) -> bool {
        self.steps += 1;
        let event = self.due.due();
        let timeout = self.stage.poll_timeout().map(|(at, _)| at.max(self.now));
        let Some(at) = event.into_iter().chain(timeout).min() else { return false };
        self.now = self.now.max(at);
        if timeout.is_some_and(|timeout| event.is_none_or(|event| timeout <= event)) {
            self.note("timeout".to_owned());
            self.stage.handle_timeout(self.now);
            self.drain();
            return true;
        }
        let Some(due) = self.due.pop() else { return false };
        match due {
            Due::Event(event) => self.deliver(event),
            Due::Arrive(task, inputs) => {
                self.fates.insert(task, Fate::Here);
                self.send(Event::Want { requester: task, inputs });
            }
            Due::Cancel(task) => {
                if matches!(self.fates[&task], Fate::Here | Fate::Ready | Fate::Running) {
                    self.end(task, Fate::Cancelled);
                }
            }
            Due::End(task) => {
                if self.fates[&task] == Fate::Running {
                    if self.rng.percent(30) {
                        self.keep(task);
                    }
                    self.end(task, Fate::Done);
                }
            }
            Due::Chance => self.chance(),
        }
        true
    }

    fn end(&mut self, task: Requester, fate: Fate) {
        self.fates.insert(task, fate);
        self.staged.remove(&task);
        self.unpacked.remove(&task);
        self.send(Event::Ended(task));
    }

    fn keep(&mut self, task: Requester) {
        let id = 10_000 + u128::from(self.next);
        let size = self.rng.below(self.output_mib_max()) * MIB;
        let only_here = self.rng.percent(30);
        let object = object(id, "out", Some(size));
        let real = Real {
            object: Arc::clone(&object),
            size,
            store: false,
            peers: Vec::new(),
            becomes: None,
        };
        self.reals.insert(ObjectId(id), real);
        self.outputs_open += 1;
        self.send(Event::Keep { requester: task, object: Arc::clone(&object), only_here });
        if only_here {
            let at = self.now.0 + self.rng.below(5_000_000);
            self.plan(at, Due::Event(Event::Release(vec![object.id])));
        }
    }

    fn chance(&mut self) {
        // What is in its place and not yet told is not known to be lost.
        let files = self.files.keys().copied();
        let held: Vec<_> = files.filter(|object| self.stage.cache().holds(*object)).collect();
        let any = ObjectId(1 + u128::from(self.rng.below(18)));
        let here = if held.is_empty() { any } else { *self.rng.pick(&held) };
        let is_tree_in_use = self.unpacked.values().flatten().any(|object| *object == here);
        match self.rng.below(8) {
            0 if held.contains(&here) && !is_tree_in_use && self.fault(self.faults.disk) => {
                self.files.remove(&here);
                self.trees.remove(here);
                for staged in self.staged.values_mut() {
                    staged.retain(|object| *object != here);
                }
                self.serving.retain(|_, object| *object != here);
                self.send(Event::Lost(here));
            }
            1 if self.fault(self.faults.cancels) => self.send(Event::Drop(vec![here])),
            2 => self.send(Event::Demand(vec![(any, self.rng.clone().below(5))])),
            3 => {
                let peers = vec![ExecutorId(self.rng.below(5))];
                self.send(Event::Hints {
                    object: any,
                    sources: Sources { peers, ..Sources::default() },
                });
            }
            4 if self.fault(self.faults.disk) => self.send(Event::Full(TierId(0))),
            5 if self.fault(self.faults.store) => {
                self.store_down_until = self.now.after(self.rng.below(3_000_000));
            }
            6 => {
                self.told.clear();
                self.lent.clear();
                self.send(Event::Connected);
            }
            _ => {
                let object = if self.rng.percent(70) { here } else { any };
                if !self.stripes_chance(any) {
                    self.broadcast_chance(object);
                }
            }
        }
    }

    /// An event of a transfer: what it says is on the disk by then.
    fn deliver(&mut self, mut event: Event) {
        if let Event::Unpacked { unpack, result } = &mut event {
            self.trees.end(*unpack, result);
        }
        let (fetch, bytes, ends) = match &event {
            Event::Fetched { fetch, bytes } | Event::FetchFailed { fetch, bytes, .. } => {
                (*fetch, *bytes, true)
            }
            Event::Arriving { fetch, .. } | Event::Sized { fetch, .. } => (*fetch, 0, false),
            _ => return self.send(event),
        };
        let Some(partial) = self.fetching.get(&fetch).copied() else { return };
        if !self.partials.contains_key(&partial) {
            self.fetching.remove(&fetch);
            // Late answers may come, and mean nothing.
            return self.send(event);
        }
        let (_, _, offset, _) = self.fetches[usize::try_from(fetch.0).unwrap()];
        if ends {
            self.fetching.remove(&fetch);
            let file = self.partials.get_mut(&partial).unwrap();
            file.ranges.push((offset, bytes));
        }
        self.send(event);
        // What does not fit was not written before the stage knew of it.
        if let Some(file) = self.partials.get_mut(&partial) {
            file.reach = file.reach.max(offset + bytes);
            self.check_disk();
        }
    }

    fn note(&mut self, text: String) {
        if self.log.len() >= 60 {
            self.log.pop_front();
        }
        self.log.push_back(format!("{:?} {text}", self.now));
    }

    fn send(&mut self, event: Event) {
        self.note(format!("{event:?}"));
        self.stage.handle(self.now, event);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some(action) = self.stage.poll_action() {
            self.note(format!("    {action:?}"));
            self.act(action);
            self.check_disk();
        }
        if let Err(error) = self.stage.check() {
            panic!("seed {}: {error}\n{}", self.seed, self.describe());
        }
        if self.rng.percent(20) {
            self.hear_changes();
        }
        self.start();
    }

    /// The executor: starts what is ready, and needs what is not.
    fn start(&mut self) {
        let running = self.fates.values().filter(|fate| **fate == Fate::Running).count();
        if running >= self.slots {
            return;
        }
        let of = |world: &World, wanted| {
            let fates = world.fates.iter();
            fates.filter(|(_, fate)| **fate == wanted).map(|(key, _)| *key).collect::<Vec<_>>()
        };
        let ready = of(self, Fate::Ready);
        let here = of(self, Fate::Here);
        if !ready.is_empty() && self.rng.percent(70) {
            let task = *self.rng.pick(&ready);
            self.fates.insert(task, Fate::Running);
            let at = self.now.0 + self.rng.below(500_000);
            self.plan(at, Due::End(task));
            self.send(Event::Started(task));
        } else if !here.is_empty() && self.rng.percent(20) {
            let task = *self.rng.pick(&here);
            self.send(Event::Needed(task));
        } else if !ready.is_empty() {
            let at = self.now.0 + 10_000;
            self.plan(at, Due::Event(Event::Demand(Vec::new())));
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Ready { requester: task, inputs, usage } => {
                assert_eq!(self.fates.insert(task, Fate::Ready), Some(Fate::Here));
                let (mounted, inputs): (Vec<_>, Vec<_>) =
                    inputs.into_iter().partition(|input| input.is_mounted);
                self.find_mounted(&mounted);
                for input in &inputs {
                    let at = self.files.get(&input.object.id).map(|file| file.0);
                    let right = at == Some(input.tier.0);
                    assert!(right, "seed {}: {input:?}\n{}", self.seed, self.describe());
                    let is_there = !input.is_unpacked || self.trees.is_ready(input.object.id);
                    assert!(is_there, "seed {}: {input:?}\n{}", self.seed, self.describe());
                }
                let brought = usage.local.objects + usage.peer.objects + usage.store.objects;
                assert!(brought >= inputs.len() as u64, "seed {}: {usage:?}", self.seed);
                self.usages.insert(task, usage);
                self.staged.insert(task, inputs.iter().map(|input| input.object.id).collect());
                let unpacked = inputs.iter().filter(|input| input.is_unpacked);
                self.unpacked.insert(task, unpacked.map(|input| input.object.id).collect());
            }
            Action::Show { object, .. } => drop(self.shown.insert(object.id)),
            Action::Hide(object) => assert!(self.shown.remove(&object)),
            Action::Unready(task) => {
                assert_eq!(self.fates.insert(task, Fate::Here), Some(Fate::Ready));
                self.staged.remove(&task);
                self.unpacked.remove(&task);
            }
            Action::Failed { requester: task, error } => {
                assert_eq!(self.fates.insert(task, Fate::Failed), Some(Fate::Here));
                self.errors.insert(task, error.to_string());
            }
            Action::Delete(gone) => {
                self.files.remove(&gone.object);
                self.trees.remove(gone.object);
            }
            Action::Measure { unpack, object, bytes_max } => {
                let result = self.trees.measure(object.id, bytes_max);
                self.unpacked(unpack, result);
            }
            Action::Unpack { unpack, object, bytes } => {
                self.trees.begin(unpack, object.id, self.files[&object.id].0, bytes);
                self.unpacked(unpack, Ok(bytes));
            }
            Action::Fetch { fetch, partial, tier, object, source, offset, length } => {
                assert_eq!(fetch.0, self.fetches.len() as u64);
                self.fetches.push((object.id, source, offset, length));
                let others = self.partials.iter().filter(|(id, _)| **id != partial);
                let mut others = others.into_iter();
                // A task's object comes from shares, and a share of it may lie here as well.
                let is_share = stripes::is_share(object.id);
                let twice = !is_share && others.any(|(_, other)| other.object == object.id.0);
                assert!(!twice, "seed {}: {object:?} is fetched twice", self.seed);
                let file = self.partials.entry(partial).or_default();
                (file.tier, file.object) = (tier.0, object.id.0);
                self.fetching.insert(fetch, partial);
                self.transfer(fetch, partial, object.id, source, offset, length);
            }
            Action::Seal { partial, object, size, .. } => self.seal(partial, &object, size),
            Action::Discard { partial, .. } => {
                self.partials.remove(&partial);
            }
            Action::Adopt { partial, tier, object, .. } => {
                let result = self.write_result();
                if result.is_ok() {
                    self.files.insert(object.id, (tier.0, object.size.unwrap()));
                }
                self.soon(Event::Adopted { partial, result });
            }
            end @ (Action::Kept { .. } | Action::NotKept { .. }) => self.output_ended(&end),
            Action::Resolve(object) => self.answer(&object),
            Action::Serve { serve, object, tier, .. } => {
                assert_eq!(self.files[&object].0, tier.0);
                self.serving.insert(serve, object);
                let at = self.now.0 + self.rng.below(2_000_000);
                self.plan(at, Due::Event(Event::Served(serve)));
            }
            action => self.act_on_broadcast(&action),
        }
    }

    fn unpacked(&mut self, unpack: UnpackId, mut result: Result<u64, UnpackError>) {
        if let Err(error) = self.write_result() {
            let is_full = error == WriteError::Full;
            result = Err(if is_full { UnpackError::Full } else { UnpackError::Failed("t".into()) });
        }
        self.soon(Event::Unpacked { unpack, result });
    }

    fn write_result(&mut self) -> Result<(), WriteError> {
        if !self.fault(self.faults.disk) {
            return Ok(());
        }
        Err(if self.rng.percent(60) { WriteError::Full } else { WriteError::Failed("torn".into()) })
    }

    fn seal(&mut self, partial: PartialId, object: &Object, size: u64) {
        let mut result = self.write_result();
        let mut file = self.partials.remove(&partial).unwrap();
        file.ranges.sort_unstable();
        let mut reach = 0;
        for (offset, length) in &file.ranges {
            assert!(*offset <= reach, "seed {}: a gap in {object:?}", self.seed);
            reach = reach.max(offset + length);
        }
        assert_eq!(reach, size, "seed {}: {object:?} is not whole", self.seed);
        if result.is_ok() && file.corrupt {
            result = Err(WriteError::Wrong("bad hash".into()));
        }
        if result.is_ok() {
            assert_eq!(size, self.reals[&object.id].size);
            self.files.insert(object.id, (file.tier, size));
        }
        self.soon(Event::Sealed { partial, result });
    }

    fn answer(&mut self, object: &Object) {
        let now = if self.now < self.store_down_until {
            Err(FetchError::Unreachable("store down".into()))
        } else {
            let becomes = self.reals[&object.id].becomes.unwrap();
            Ok(Arc::clone(&self.reals[&becomes].object))
        };
        self.soon(Event::Resolved { object: object.id, now });
    }

    /// What a source answers.
    fn transfer(
        &mut self,
        fetch: FetchId,
        partial: PartialId,
        object: ObjectId,
        source: Source,
        offset: u64,
        length: Option<u64>,
    ) {
        if source != Source::Store && self.hangs(fetch, length) {
            return;
        }
        let real = self.reals[&object].clone();
        let length = length.unwrap_or(real.size - offset);
        let has = match source {
            Source::Peer(peer) => real.peers.contains(&peer),
            Source::Store => real.store,
            Source::Own | Source::Dispatcher => panic!("no object here is a member"),
        };
        let is_store = source == Source::Store;
        let percent = if is_store { self.faults.store } else { self.faults.peers };
        let part = self.rng.below(length + 1);
        let why = if is_store && self.now < self.store_down_until {
            Some((0, FetchError::Unreachable("store down".into())))
        } else if !has {
            Some((0, FetchError::Gone))
        } else if let (true, Some(new)) = (is_store, real.becomes) {
            Some((0, FetchError::Changed(Arc::clone(&self.reals[&new].object))))
        } else if self.fault(percent) {
            Some(match self.rng.below(8) {
                0 => (0, FetchError::Gone),
                7 => (0, FetchError::Coming),
                1 | 2 => (0, FetchError::Busy),
                3 => (0, FetchError::Unreachable("no route".into())),
                4 => (part, FetchError::Unreachable("broke off".into())),
                5 => (part, FetchError::Wrong("odd".into())),
                _ => (part, FetchError::Write(WriteError::Full)),
            })
        } else {
            None
        };
        if real.object.size.is_none() && offset == 0 && why.as_ref().is_none_or(|why| why.0 > 0) {
            if self.rng.percent(50) {
                self.plan(self.now.0, Due::Event(Event::Sized { fetch, size: real.size }));
            } else {
                let ends = why.as_ref().map_or(length, |why| why.0);
                for until in (1..=ends / (8 * MIB)).map(|at| at * 8 * MIB).chain([ends]) {
                    self.plan(self.now.0, Due::Event(Event::Arriving { fetch, until }));
                }
            }
        } else if real.object.size.is_none() && why.is_none() {
            self.plan(self.now.0, Due::Event(Event::Arriving { fetch, until: offset + length }));
        } else if real.object.size.is_none() {
            let until = offset + why.as_ref().map_or(0, |why| why.0);
            self.plan(self.now.0, Due::Event(Event::Arriving { fetch, until }));
        }
        match why {
            Some((bytes, why)) => self.soon(Event::FetchFailed { fetch, bytes, why }),
            None => {
                if !is_store && self.fault(self.faults.peers / 3) {
                    self.partials.get_mut(&partial).unwrap().corrupt = true;
                }
                self.soon(Event::Fetched { fetch, bytes: length });
            }
        }
    }

    /// At the end nothing is left behind.
    fn judge(&mut self) {
        let lent: Vec<ObjectId> = self.lent.iter().copied().collect();
        self.send(Event::TakeBack(lent));
        assert!(self.partials.is_empty(), "seed {}: {:?}", self.seed, self.partials);
        assert!(self.shown.is_empty(), "seed {}: {:?}", self.seed, self.shown);
        assert_eq!(self.stage.load(), (0, 0));
        self.hear_changes();
        let held: Vec<ObjectId> = self.files.keys().copied().collect();
        let cached: Vec<ObjectId> = self.stage.cache().entries().map(|(id, _)| id).collect();
        assert_eq!(held, cached, "seed {}", self.seed);
        assert_eq!(held, self.told.iter().copied().collect::<Vec<_>>(), "seed {}", self.seed);
        for (_, entry) in self.stage.cache().entries() {
            assert!(entry.is_held && entry.pins == 0);
        }
    }
}
