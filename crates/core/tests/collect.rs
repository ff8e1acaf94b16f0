//! The collector, proved: random schedules of staged outputs and writes that
//! succeed and fail, against a model that follows each output.

#![allow(clippy::unwrap_used, reason = "all of this is tests")]

#[path = "machines/rng.rs"]
mod rng;

use falkon_core::collect::{
    Action, CollectOptions, Collector, Event, ItemId, Member, MemberName, OwnerId, SHORT_PARTS,
    Unwritten, WAITED_TOO_LONG, WriteFailure, WriteId,
};
use falkon_core::limits::{
    COLLECT_ARCHIVES_MAX, COLLECT_CANCEL_MICROS_MAX, COLLECT_IDLE_MICROS, COLLECT_MEMBERS_MAX,
    COLLECT_PATIENCE_MICROS, COLLECT_RETRY_MICROS_MAX, COLLECT_TASKS_MAX,
};
use falkon_core::task::Time;
use rng::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where an output is, as far as a shell knows.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Waits {
        since: Time,
    },
    Writing(WriteId),
    /// It is in its archive.
    Safe,
    /// It was found unreadable, or given up.
    Failed,
}

#[derive(Debug, Clone)]
struct Item {
    owner: OwnerId,
    archive: Arc<str>,
    name: Arc<str>,
    bytes: u64,
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Safe,
    Failed,
}

#[derive(Debug, Default)]
struct Write {
    archive: Arc<str>,
    members: Vec<(ItemId, MemberName)>,
    ends: Time,
}

/// A shell whose disk and archives are made up.
struct World {
    rng: Rng,
    now: Time,
    options: CollectOptions,
    collector: Collector,
    items: BTreeMap<ItemId, Item>,
    /// The files that are on the staging disk.
    files: BTreeSet<ItemId>,
    owners: BTreeMap<OwnerId, (Vec<ItemId>, Option<End>)>,
    /// When what cancelled tasks have staged is over.
    cancelled: BTreeMap<OwnerId, Time>,
    writes: BTreeMap<WriteId, Write>,
    /// Since when writes have failed, and when the next may begin at the latest.
    pauses: BTreeMap<Arc<str>, (Time, Time)>,
    /// The archives that cannot be written, as the collector says.
    unwritten: BTreeSet<Arc<str>>,
    failing_percent: u64,
    is_short: bool,
    files_written: u64,
    trouble: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Rng::new(seed);
        let options = CollectOptions {
            delay_micros_max: *rng.pick(&[1, 1_000, 1_000_000, 30_000_000]),
            data_bytes_max: *rng.pick(&[1, 1 << 10, 1 << 20]),
            free_bytes_min: 1 << 20,
            patience_micros: *rng.pick(&[0, 10_000_000, 600_000_000]),
        };
        World {
            failing_percent: *rng.pick(&[0, 0, 10, 60]),
            rng,
            now: Time(1),
            options,
            collector: Collector::new(options),
            items: BTreeMap::new(),
            files: BTreeSet::new(),
            owners: BTreeMap::new(),
            cancelled: BTreeMap::new(),
            writes: BTreeMap::new(),
            pauses: BTreeMap::new(),
            unwritten: BTreeSet::new(),
            is_short: false,
            files_written: 0,
            trouble: 0,
        }
    }

    fn handle(&mut self, event: Event) {
        self.collector.handle(self.now, event);
        self.act();
    }

    fn act(&mut self) {
        while let Some(action) = self.collector.poll_action() {
            match action {
                Action::Write { write, archive, members, waited_micros } => {
                    let is_alone = self.writes.values().all(|other| other.archive != archive);
                    assert!(is_alone, "two files of {archive} at once");
                    assert!(!members.is_empty(), "an empty file");
                    assert!(self.writes.len() < COLLECT_ARCHIVES_MAX);
                    for (item, name) in &members {
                        let is_urgent = waited_micros == WAITED_TOO_LONG;
                        assert!(is_urgent || waited_micros <= self.now.0);
                        let found = self.items.get_mut(item).unwrap();
                        assert!(matches!(found.place, Place::Waits { .. }), "{item:?} twice");
                        assert!(self.files.contains(item), "{item:?} was deleted before");
                        assert_eq!(
                            (&found.archive, &found.name),
                            (&archive, name.as_ref().unwrap())
                        );
                        found.place = Place::Writing(write);
                    }
                    // Now and then the store is away.
                    let is_away = self.rng.percent(self.failing_percent / 4);
                    let most = if is_away { 60_000_000 } else { 3_000_000 };
                    let ends = self.now.after(self.rng.below(most));
                    self.writes.insert(write, Write { archive, members, ends });
                }
                Action::Discard(items) => {
                    for item in items {
                        assert!(self.files.remove(&item), "{item:?} is deleted twice");
                        let found = self.items.get_mut(&item).unwrap();
                        match found.place {
                            Place::Writing(_) => panic!("{item:?} is deleted while it is written"),
                            // Another output of its task has failed.
                            Place::Waits { .. } => found.place = Place::Failed,
                            Place::Safe | Place::Failed => {}
                        }
                    }
                }
                Action::Safe { owner, members } => {
                    self.end(owner, End::Safe);
                    let places = |(item, place): &(ItemId, Arc<str>)| {
                        let found = &self.items[item];
                        assert_eq!(**place, format!("{}.part9!{}", found.archive, found.name));
                        *item
                    };
                    let items: Vec<ItemId> = members.iter().map(places).collect();
                    assert_eq!(
                        items, self.owners[&owner].0,
                        "in the order in which they were staged"
                    );
                }
                Action::Failed { owner, error, is_cancelled } => {
                    assert!(error.contains(".zip"), "{error}");
                    assert_eq!(is_cancelled, self.cancelled.contains_key(&owner), "{owner:?}");
                    self.end(owner, End::Failed);
                }
            }
        }
        self.collector.check().unwrap();
        // Where nothing is wanted any more, nothing fails.
        let is_open = |item: &Item| matches!(item.place, Place::Waits { .. } | Place::Writing(_));
        let open = self.items.values().filter(|item| is_open(item));
        let open: BTreeSet<&Arc<str>> = open.map(|item| &item.archive).collect();
        self.pauses.retain(|archive, _| open.contains(archive));
        if let Some(told) = self.collector.unwritten() {
            self.unwritten = told.into_iter().map(|one| one.archive).collect();
        }
        assert!(self.unwritten.iter().eq(self.pauses.keys()), "{:?}", self.unwritten);
        self.judge();
    }

    fn end(&mut self, owner: OwnerId, end: End) {
        let (items, ended) = self.owners.get_mut(&owner).unwrap();
        assert_eq!(ended.replace(end), None, "{owner:?} ends twice");
        let mut places = items.iter().map(|item| &self.items[item].place);
        match end {
            End::Safe => assert!(places.all(|place| *place == Place::Safe), "{owner:?}"),
            End::Failed => {
                let is_cancelled = self.cancelled.contains_key(&owner);
                let is_lost = places.any(|place| *place == Place::Failed);
                assert!(is_lost || is_cancelled, "{owner:?}");
            }
        }
    }

    /// What is to be written by now is being written, as far as that can be.
    fn judge(&self) {
        for (owner, until) in &self.cancelled {
            assert!(self.owners[owner].1.is_some() || *until > self.now, "{owner:?} is held up");
        }
        let has_room = self.writes.len() < COLLECT_ARCHIVES_MAX;
        let is_free = |archive: &Arc<str>| {
            let pauses = self.pauses.get(archive).is_some_and(|(_, until)| *until > self.now);
            has_room && !pauses && self.writes.values().all(|write| write.archive != *archive)
        };
        let waiting = self.items.values().filter(|item| is_free(&item.archive));
        let mut bytes = 0;
        for item in waiting {
            let Place::Waits { since } = item.place else { continue };
            bytes += item.bytes;
            let due = since.after(self.options.delay_micros_max);
            assert!(due > self.now, "{item:?} should have been written by {due:?}");
        }
        let parts = if self.is_short { SHORT_PARTS } else { 1 };
        assert!(bytes <= self.options.data_bytes_max / parts, "{bytes} bytes wait");
    }

    fn stage(&mut self) {
        let owner = OwnerId(self.owners.len() as u64);
        let members: Vec<Member> = (0..1 + self.rng.below(3))
            .map(|at| {
                let item = ItemId(self.items.len() as u64 + at);
                let archive: Arc<str> = format!("/a{}.zip", self.rng.below(4)).into();
                let name: Arc<str> = format!("m{}", item.0).into();
                let bytes = self.rng.below(*self.rng.clone().pick(&[1, 100, 100_000]) + 1);
                Member { item, archive, name, bytes }
            })
            .collect();
        for Member { item, archive, name, bytes } in members.clone() {
            let place = Place::Waits { since: self.now };
            self.items.insert(item, Item { owner, archive, name, bytes, place });
            self.files.insert(item);
        }
        let items = members.iter().map(|member| member.item).collect();
        self.owners.insert(owner, (items, None));
        self.handle(Event::Staged { owner, members });
    }

    /// Some tasks are cancelled; those that have ended, and unknown ones, too.
    fn cancel(&mut self) {
        let count = self.rng.below(10);
        let one = |rng: &mut Rng| OwnerId(rng.below(self.owners.len() as u64 + 2));
        let owners: Vec<OwnerId> = (0..count).map(|_| one(&mut self.rng)).collect();
        let until = self.now.after(COLLECT_CANCEL_MICROS_MAX);
        for owner in &owners {
            if self.owners.get(owner).is_some_and(|(_, end)| end.is_none()) {
                self.cancelled.entry(*owner).or_insert(until);
            }
        }
        self.handle(Event::Cancel(owners));
    }

    /// A write ends.
    fn end_write(&mut self, write: WriteId) {
        let Write { archive, members, .. } = self.writes.remove(&write).unwrap();
        let fails = self.rng.percent(self.failing_percent);
        let all = |world: &mut World, place: Place| {
            for (item, _) in &members {
                world.items.get_mut(item).unwrap().place = place.clone();
            }
        };
        let result = match (fails, self.rng.below(6)) {
            (false, _) => {
                self.files_written += 1;
                self.pauses.remove(&archive);
                all(self, Place::Safe);
                Ok(format!("{archive}.part9").into())
            }
            (true, 0) => {
                self.pauses.remove(&archive);
                all(self, Place::Failed);
                Err(WriteFailure::Refused("no".to_owned()))
            }
            (true, 1) => {
                all(self, Place::Waits { since: self.now });
                let (item, _) = *self.rng.clone().pick(&members.iter().collect::<Vec<_>>());
                self.items.get_mut(item).unwrap().place = Place::Failed;
                Err(WriteFailure::Member(*item, "torn".to_owned()))
            }
            (true, _) => {
                let since = self.pauses.get(&archive).map_or(self.now, |(since, _)| *since);
                if self.now >= since.after(self.options.patience_micros) {
                    self.pauses.remove(&archive);
                    all(self, Place::Failed);
                } else {
                    let until = self.now.after(COLLECT_RETRY_MICROS_MAX);
                    self.pauses.insert(archive.clone(), (since, until));
                    all(self, Place::Waits { since: self.now });
                }
                Err(WriteFailure::Failed("full".to_owned()))
            }
        };
        self.trouble += u64::from(fails);
        // What is not wanted any more is deleted rather than written again.
        for (item, _) in &members {
            let owner = self.items[item].owner;
            let is_over = self.owners[&owner].1.is_some();
            let found = self.items.get_mut(item).unwrap();
            if is_over && matches!(found.place, Place::Waits { .. }) {
                found.place = Place::Failed;
            }
        }
        self.handle(Event::Written { write, result });
    }

    /// Goes on to the next thing that happens, at most until `until`.
    fn advance(&mut self, until: Time) {
        let write = self.writes.iter().map(|(write, found)| (found.ends, *write)).min();
        let due = self.collector.poll_timeout().map(|(at, _)| at);
        let next = write.map(|(at, _)| at).into_iter().chain(due).min().unwrap_or(until);
        self.now = self.now.max(next.min(until));
        if let Some((at, write)) = write
            && at <= self.now
        {
            return self.end_write(write);
        }
        if due.is_some_and(|at| at <= self.now) {
            self.collector.handle_timeout(self.now);
            self.act();
            let again = self.collector.poll_timeout();
            assert!(again.is_none_or(|(at, _)| at > self.now), "due, and nothing happens");
        }
    }

    fn step(&mut self) {
        match self.rng.below(20) {
            0..=9 => self.stage(),
            10 => {
                self.is_short = self.rng.percent(30);
                let free = if self.is_short { 0 } else { u64::MAX };
                self.handle(Event::Free(free));
            }
            11 => {
                let is_working = self.rng.percent(50);
                self.handle(Event::Working(is_working));
            }
            12 if self.rng.percent(20) => self.handle(Event::Flush),
            13 if self.rng.percent(20) => self.cancel(),
            _ => {
                let until = self.now.after(self.rng.below(2_000_000));
                while self.now < until {
                    self.advance(until);
                }
            }
        }
    }

    /// Nothing more comes: everything ends, without anybody asking for it.
    fn drain(&mut self) {
        self.handle(Event::Working(false));
        for _ in 0..10_000 {
            if self.collector.is_empty() && self.writes.is_empty() {
                break;
            }
            let far = self.now.after(10 * COLLECT_RETRY_MICROS_MAX);
            self.advance(far);
        }
        assert!(self.collector.is_empty(), "something is never written");
        assert_eq!(self.collector.poll_timeout(), None);
        assert!(self.files.is_empty(), "{:?} stay on the disk", self.files);
        for (owner, (_, end)) in &self.owners {
            assert!(end.is_some(), "{owner:?} has no end");
            let may_fail = self.failing_percent > 0 || self.cancelled.contains_key(owner);
            assert!(may_fail || *end == Some(End::Safe), "{owner:?}");
        }
    }
}

#[test]
fn every_output_is_written_once_in_time_or_its_task_fails() {
    let seeds = std::env::var("FALKON_COLLECT_SEEDS").ok().and_then(|text| text.parse().ok());
    let (mut files, mut trouble) = (0, 0);
    for seed in 0..seeds.unwrap_or(400) {
        let run = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            for _ in 0..200 {
                world.step();
            }
            world.drain();
            (world.files_written, world.trouble)
        });
        let Ok((written, failed)) = run else { panic!("seed {seed}") };
        (files, trouble) = (files + written, trouble + failed);
    }
    assert!(files > 1000 && trouble > 100, "{files} files, {trouble} failures: nothing is tested");
}

#[test]
fn a_cancelled_task_does_not_wait_for_an_archive_that_may_come_back() {
    let mut collector = Collector::new(CollectOptions::default());
    let fails = |collector: &mut Collector, at: u64, write: u64| {
        let result = Err(WriteFailure::Failed("full".to_owned()));
        collector.handle(Time(at), Event::Written { write: WriteId(write), result });
    };
    let failed = |collector: &mut Collector| -> Vec<(u64, bool)> {
        let actions = std::iter::from_fn(|| collector.poll_action());
        let failed = |action| match action {
            Action::Failed { owner, is_cancelled, .. } => Some((owner.0, is_cancelled)),
            _ => None,
        };
        actions.filter_map(failed).collect()
    };
    staged(&mut collector, 0, 1, 5);
    staged(&mut collector, 0, 2, 5);
    collector.handle(Time(0), Event::Flush);
    assert_eq!(written(&mut collector), [2]);
    fails(&mut collector, 10, 0);
    assert_eq!(written(&mut collector), []);
    // It is tried once more, without a pause. The other one waits on.
    collector.handle(Time(20), Event::Cancel(vec![OwnerId(1)]));
    assert_eq!(written(&mut collector), [2]);
    fails(&mut collector, 30, 1);
    assert_eq!(failed(&mut collector), [(1, true)]);
    let (at, _) = collector.poll_timeout().unwrap();
    collector.handle_timeout(at);
    assert_eq!(written(&mut collector), [1]);
    // A write that does not end holds a cancelled task up for some seconds.
    let cancelled = at.after(5);
    collector.handle(cancelled, Event::Cancel(vec![OwnerId(2)]));
    assert_eq!(failed(&mut collector), []);
    let (until, _) = collector.poll_timeout().unwrap();
    assert_eq!(until, cancelled.after(COLLECT_CANCEL_MICROS_MAX));
    collector.handle_timeout(until);
    assert_eq!(failed(&mut collector), [(2, true)]);
    assert!(collector.is_empty());
    // Its file stays until it is written or not.
    collector.handle(until, Event::Written { write: WriteId(2), result: Ok("/a.zip".into()) });
    let actions: Vec<Action> = std::iter::from_fn(|| collector.poll_action()).collect();
    assert_eq!(actions, [Action::Discard(vec![ItemId(2)])]);
}

fn member(item: u64, archive: &str, bytes: u64) -> Member {
    let name = format!("m{item}").into();
    Member { item: ItemId(item), archive: archive.into(), name, bytes }
}

fn staged(collector: &mut Collector, at: u64, item: u64, bytes: u64) {
    let members = vec![member(item, "/a.zip", bytes)];
    collector.handle(Time(at), Event::Staged { owner: OwnerId(item), members });
}

fn written(collector: &mut Collector) -> Vec<usize> {
    std::iter::from_fn(|| collector.poll_action())
        .filter_map(|action| match action {
            Action::Write { members, .. } => Some(members.len()),
            _ => None,
        })
        .collect()
}

#[test]
fn outputs_that_wait_together_are_one_file() {
    let options = CollectOptions { delay_micros_max: 1000, ..CollectOptions::default() };
    let mut collector = Collector::new(options);
    (0..10).for_each(|item| staged(&mut collector, item, item, 5));
    assert_eq!(collector.poll_timeout().unwrap().0, Time(1000));
    collector.handle_timeout(Time(999));
    assert_eq!(written(&mut collector), []);
    collector.handle_timeout(Time(1000));
    assert_eq!(written(&mut collector), [10]);
}

#[test]
fn an_executor_without_work_waits_for_a_moment_only() {
    let mut collector = Collector::new(CollectOptions::default());
    collector.handle(Time(0), Event::Working(false));
    // It has been idle for long, and then it has not.
    staged(&mut collector, 5_000_000, 0, 5);
    collector.handle(Time(5_000_000), Event::Working(false));
    assert_eq!(written(&mut collector), []);
    let (at, _) = collector.poll_timeout().unwrap();
    assert_eq!(at, Time(5_000_000 + COLLECT_IDLE_MICROS));
    collector.handle_timeout(at);
    assert_eq!(written(&mut collector), [1]);
}

#[test]
fn outputs_that_come_one_by_one_do_not_become_a_file_each() {
    let options = CollectOptions::default();
    let second = 1_000_000;
    let mut collector = Collector::new(options);
    let mut files = Vec::new();
    // What is due is written by `until`, at once, from when an output came on.
    let run = |collector: &mut Collector, files: &mut Vec<u64>, from: u64, until: u64| {
        let mut now = from;
        loop {
            while let Some(action) = collector.poll_action() {
                if let Action::Write { write, .. } = action {
                    files.push(now - from);
                    let result = Ok("/a.zip".into());
                    collector.handle(Time(now), Event::Written { write, result });
                }
            }
            match collector.poll_timeout() {
                Some((at, _)) if at.0 < until => now = at.0,
                _ => return,
            }
            collector.handle_timeout(Time(now));
        }
    };
    // One a second, for two minutes.
    for at in 0..120 {
        staged(&mut collector, at * second, at, 5);
        collector.handle(Time(at * second), Event::Working(false));
        run(&mut collector, &mut files, at * second, (at + 1) * second);
    }
    let idle = [1, 2, 4, 8].map(|times| times * COLLECT_IDLE_MICROS);
    assert_eq!(files[..4], idle, "the idle time doubles");
    let by_delay = 120 * second / options.delay_micros_max;
    assert!(files.len() as u64 <= 4 + by_delay, "{files:?}");
    // The last ones wait for no longer than it has doubled.
    let before = files.len();
    run(&mut collector, &mut files, 119 * second, u64::MAX);
    assert_eq!(files[before..], [COLLECT_IDLE_MICROS << 4]);
    // After a pause the first that comes is written soon.
    let later = 1_000 * second;
    staged(&mut collector, later, 200, 5);
    collector.handle(Time(later), Event::Working(false));
    run(&mut collector, &mut files, later, u64::MAX);
    assert_eq!(files.last(), Some(&COLLECT_IDLE_MICROS));
}

#[test]
fn bytes_and_members_that_wait_are_bounded_and_so_are_tasks() {
    let options = CollectOptions { data_bytes_max: 1000, ..CollectOptions::default() };
    let mut collector = Collector::new(options);
    staged(&mut collector, 0, 0, 1000);
    assert_eq!(written(&mut collector), []);
    staged(&mut collector, 0, 1, 1);
    assert_eq!(written(&mut collector), [2]);
    // The file is being written: no other is, and what waits is bounded all the same.
    staged(&mut collector, 0, 2, 999);
    assert!(!collector.is_full());
    staged(&mut collector, 0, 3, 1);
    assert!(collector.is_full());
    assert_eq!(written(&mut collector), []);

    let mut collector = Collector::new(CollectOptions::default());
    let most = COLLECT_MEMBERS_MAX as u64;
    (0..most).for_each(|item| staged(&mut collector, 0, item, 0));
    assert_eq!(written(&mut collector), []);
    staged(&mut collector, 0, most, 0);
    assert_eq!(written(&mut collector), [COLLECT_MEMBERS_MAX + 1]);
    let tasks = COLLECT_TASKS_MAX as u64;
    (most + 1..tasks - 1).for_each(|item| staged(&mut collector, 0, item, 0));
    assert!(!collector.is_full());
    staged(&mut collector, 0, tasks - 1, 0);
    assert!(collector.is_full());
}

#[test]
fn a_store_that_is_away_for_an_hour_costs_nothing_but_time() {
    let hour = 3600 * 1_000_000;
    let mut collector = Collector::new(CollectOptions::default());
    staged(&mut collector, 0, 0, 5);
    let (mut now, mut tries) = (Time(0), 0);
    let mut write = |collector: &mut Collector, now: Time, until: u64| -> Option<Vec<Action>> {
        collector.handle_timeout(now);
        let Some(Action::Write { write, .. }) = collector.poll_action() else { return None };
        tries += 1;
        let is_back = now.0 >= until;
        let away = || Err(WriteFailure::Failed("away".to_owned()));
        let result = if is_back { Ok("/a.zip".into()) } else { away() };
        collector.handle(now, Event::Written { write, result });
        Some(std::iter::from_fn(|| collector.poll_action()).collect())
    };
    let first = 30_000_000;
    loop {
        now = collector.poll_timeout().map_or(now, |(at, _)| at);
        let actions = write(&mut collector, now, first + hour).unwrap();
        let told = collector.unwritten();
        if collector.is_empty() {
            assert!(matches!(actions[..], [Action::Discard(_), Action::Safe { .. }]));
            assert_eq!(told, Some(Vec::new()));
            break;
        }
        let error: Arc<str> = "away".into();
        let one = Unwritten { archive: "/a.zip".into(), since: Time(first), error };
        // It says so once.
        assert!(told.is_none_or(|told| told == [one]), "at {now:?}");
    }
    assert!(now.0 < first + hour + COLLECT_RETRY_MICROS_MAX, "{now:?}");
    // For longer than the user waits, and to the very end of that.
    staged(&mut collector, now.0, 1, 5);
    let begun = now.after(first);
    let failed = loop {
        now = collector.poll_timeout().unwrap().0;
        if let [Action::Discard(_), Action::Failed { error, .. }] =
            &write(&mut collector, now, u64::MAX).unwrap()[..]
        {
            break error.clone();
        }
    };
    assert_eq!(now, begun.after(COLLECT_PATIENCE_MICROS));
    assert!(failed.contains("within 7200 s (--collect-patience): away"), "{failed}");
    assert!(tries < 300, "{tries} tries");
}

#[test]
fn on_a_disk_that_is_nearly_full_nothing_starts_before_what_is_staged_is_written() {
    let options = CollectOptions::default();
    let mut collector = Collector::new(options);
    let nearly = options.free_bytes_min / SHORT_PARTS;
    collector.handle(Time(0), Event::Free(nearly - 1));
    assert!(!collector.is_full(), "nothing is staged");
    staged(&mut collector, 0, 0, 5);
    assert!(collector.is_full());
    collector.handle(Time(0), Event::Flush);
    assert_eq!(written(&mut collector), [1]);
    assert!(collector.is_full());
    let result = Ok("/a.zip".into());
    collector.handle(Time(0), Event::Written { write: WriteId(0), result });
    assert!(!collector.is_full());
    collector.handle(Time(0), Event::Free(nearly));
    staged(&mut collector, 0, 1, 5);
    assert!(!collector.is_full());
}
