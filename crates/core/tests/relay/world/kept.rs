//! Long output of tasks, which nodes keep until they are told to discard it.

use super::{CLIENT, End, World};
use falkon_core::dispatch::{self, AccessError, ConnectionId};
use falkon_core::result::{Captured, Detail, Overflow, Stream};
use falkon_core::tail::{KeptQuestion, OutputQuestion, Tail, TailState};
use falkon_core::task::{TaskId, TaskKey, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Debug, Default)]
pub(super) struct Books {
    /// Of 100 tasks that end, so many have written more than is sent.
    percent: u64,
    last: u64,
    /// The process that wrote each, by number.
    writers: BTreeMap<u64, u64>,
    /// What is kept, by process and number.
    kept: BTreeSet<(u64, u64)>,
    /// What a dispatcher has asked a relay last.
    asked: Option<(ConnectionId, u64, KeptQuestion)>,
}

impl World {
    /// Of 100 tasks that end from now on, so many write more than is sent.
    pub(crate) fn write_much(&mut self, percent: u64) {
        self.books.percent = percent;
    }

    /// What a task has written that ends on this node.
    pub(super) fn written(&mut self, incarnation: u64) -> Option<Arc<Detail>> {
        if !self.rng.percent(self.books.percent) {
            return None;
        }
        self.books.last += 1;
        let number = self.books.last;
        self.books.writers.insert(number, incarnation);
        self.books.kept.insert((incarnation, number));
        let overflow = Some(Overflow { incarnation, number });
        // Whoever reads it finds the number again.
        let total_bytes = number;
        let stdout = Captured { head: Vec::new(), total_bytes, overflow, member: None };
        Some(Arc::new(Detail { stdout, ..Detail::default() }))
    }

    pub(super) fn discard(&mut self, incarnation: u64, runs: &[(u64, u64)]) {
        for &(first, count) in runs {
            let last = first.saturating_add(count);
            self.books.kept.retain(|(process, number)| {
                *process != incarnation || !(first..last).contains(number)
            });
        }
    }

    pub(super) fn asked_for_output(&mut self, to: ConnectionId, number: u64, about: KeptQuestion) {
        self.books.asked = Some((to, number, about));
    }

    /// How much output processes keep that are there.
    pub(crate) fn kept(&self) -> usize {
        let processes: BTreeSet<u64> = self.nodes.iter().map(|node| node.incarnation).collect();
        self.books.kept.iter().filter(|(process, _)| processes.contains(process)).count()
    }

    /// Long output of each result that the client has is read, through the relays, where the
    /// task has left it, unless its process is gone. Returns how much can be read.
    pub(crate) fn read_all(&mut self) -> usize {
        let instance = self.instance.unwrap();
        let results = self.results.iter();
        let cut: BTreeMap<u64, u64> = results
            .filter_map(|(task, result)| {
                let stdout = &result.detail.as_ref()?.stdout;
                stdout.overflow.map(|_| (*task, stdout.total_bytes))
            })
            .collect();
        let processes: BTreeSet<u64> = self.nodes.iter().map(|node| node.incarnation).collect();
        let mut read = 0;
        for (task, number) in cut {
            let there = self.books.kept.iter().find(|(_, kept)| *kept == number).copied();
            let there = there.filter(|(process, _)| processes.contains(process));
            let is_lost = there.is_none() && processes.contains(&self.books.writers[&number]);
            assert!(!is_lost, "task {task}: its output was discarded");
            let found = self.find_output(0, TaskKey { instance, task: TaskId(task) });
            let found = found.map(|found| (found.incarnation, found.number));
            assert!(found.is_none() || found == there, "task {task}: {found:?}, not {there:?}");
            assert!(found.is_some() || there.is_none(), "task {task}: {there:?} is not found");
            read += usize::from(found.is_some());
        }
        read
    }

    /// Where output is, by the dispatcher of a site.
    fn find_output(&mut self, site: usize, task: TaskKey) -> Option<Overflow> {
        let stream = Stream::Stdout;
        let now = Time(self.now);
        match self.sites[site].core.reach_output(task.instance, task.task, stream) {
            Ok((overflow, access)) => (!access.name.is_empty()).then_some(overflow),
            Err(AccessError::Below(_)) => {
                let question = OutputQuestion { task, stream, from: 0, count: 1 };
                let (connection, request) = match site {
                    0 => (CLIENT, 7),
                    _ => {
                        let request = self.ask(site, super::Asked::Other);
                        (self.sites[site].lends.as_ref().unwrap().owner, request)
                    }
                };
                let event = dispatch::Event::ReadOutput { connection, request, question };
                self.sites[site].core.handle(now, event);
                self.pump(site);
                let (connection, number, question) = self.books.asked.take()?;
                let told = Ok(Tail::without_bytes(TailState::Gone));
                self.sites[site]
                    .core
                    .handle(now, dispatch::Event::TailTold { connection, number, told });
                self.pump(site);
                let Some((_, End::Lender(below))) = self.ends.get(&connection).copied() else {
                    panic!("no relay is asked");
                };
                let task = self.relay(below).kept(question.output)?;
                self.find_output(below, task)
            }
            Err(_) => None,
        }
    }
}
