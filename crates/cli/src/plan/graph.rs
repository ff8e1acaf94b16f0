//! Dependencies of tasks: from ids, and from files that one task writes and
//! another reads.
//!
//! Time is linear in tasks and dependencies, and nothing recurses. Ids and
//! paths are kept as 128 bits of their BLAKE3 hash: two that differ have the
//! same with a chance of 2^-128.

use super::error::GraphError;
use super::files;
use super::objects::{archive_of, held_as, source_key};
use falkon_wire::declared::{CACHE_SCHEME, Declared};
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Tasks of a cycle that a message names.
const CYCLE_NAMES_MAX: usize = 12;
/// Unknown ids that a message names.
const UNKNOWN_NAMES_MAX: usize = 5;

type Key = [u8; 16];

/// A file or object that a task writes.
pub(crate) type Made = Key;

/// Whether an object is among those that tasks write; `source` is as
/// [`source_key`] gives it.
pub(crate) fn is_made(made: &HashSet<Made>, source: &[u8]) -> bool {
    made.contains(&key(source))
}

fn key(bytes: &[u8]) -> Key {
    let mut key = Key::default();
    key.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
    key
}

/// For every task, the tasks it waits for, ascending; 4 bytes per task and 4
/// per dependency, nothing at all if there are none.
#[derive(Debug, Default)]
pub(crate) struct Dependencies {
    /// Where each task's begin in `on`, and the end of the last.
    starts: Vec<u32>,
    on: Vec<u32>,
}

impl Dependencies {
    /// The tasks that the task at `index` waits for.
    pub(crate) fn of(&self, index: u64) -> &[u32] {
        let ends = usize::try_from(index)
            .ok()
            .and_then(|index| Some((*self.starts.get(index)?, *self.starts.get(index + 1)?)));
        ends.map_or(&[], |(start, end)| &self.on[start as usize..end as usize])
    }

    /// Whether no task waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.on.is_empty()
    }

    fn from_edges(count: u32, mut edges: Vec<(u32, u32)>) -> Result<Dependencies, GraphError> {
        if edges.is_empty() {
            return Ok(Dependencies::default());
        }
        u32::try_from(edges.len()).map_err(|_| GraphError::TooLarge)?;
        // Radix order, by the second number and then stably by the first.
        edges = ordered(count, edges, |edge| edge.1).1;
        let (starts, edges) = ordered(count, edges, |edge| edge.0);
        let mut found = Dependencies { starts: Vec::with_capacity(starts.len()), on: Vec::new() };
        for window in starts.windows(2) {
            let start = found.on.len();
            found.starts.push(start as u32);
            for (_, on) in &edges[window[0] as usize..window[1] as usize] {
                if found.on.len() == start || found.on.last() != Some(on) {
                    found.on.push(*on);
                }
            }
        }
        found.starts.push(found.on.len() as u32);
        found.on.shrink_to_fit();
        Ok(found)
    }

    /// One cycle, if there is any: each task waits for the next.
    fn cycle(&self) -> Option<Vec<u32>> {
        let count = self.starts.len().saturating_sub(1);
        let mut waits: Vec<u32> = (0..count).map(|at| self.of(at as u64).len() as u32).collect();
        let backwards: Vec<(u32, u32)> = (0..count)
            .flat_map(|at| self.of(at as u64).iter().map(move |on| (*on, at as u32)))
            .collect();
        let (starts, followers) = ordered(count as u32, backwards, |edge| edge.0);
        let mut free: Vec<u32> =
            (0..count as u32).filter(|task| waits[*task as usize] == 0).collect();
        let mut done = free.len();
        while let Some(task) = free.pop() {
            let task = task as usize;
            for (_, follower) in &followers[starts[task] as usize..starts[task + 1] as usize] {
                waits[*follower as usize] -= 1;
                if waits[*follower as usize] == 0 {
                    free.push(*follower);
                    done += 1;
                }
            }
        }
        if done == count {
            return None;
        }
        // Every task left waits for another one left: going on from one of
        // them must come round.
        let mut task = waits.iter().position(|waits| *waits > 0)? as u32;
        let mut path = Vec::new();
        let mut seen_at = HashMap::new();
        while let Entry::Vacant(entry) = seen_at.entry(task) {
            entry.insert(path.len());
            path.push(task);
            task = *self.of(u64::from(task)).iter().find(|on| waits[**on as usize] > 0)?;
        }
        let mut cycle = path.split_off(*seen_at.get(&task)?);
        let least = cycle.iter().enumerate().min_by_key(|(_, task)| **task).map_or(0, |(at, _)| at);
        cycle.rotate_left(least);
        Some(cycle)
    }
}

/// `edges` in order of `by`, which is below `count`, ties as they were; and
/// where each number's edges begin.
fn ordered(
    count: u32,
    edges: Vec<(u32, u32)>,
    by: impl Fn(&(u32, u32)) -> u32,
) -> (Vec<u32>, Vec<(u32, u32)>) {
    let mut starts = vec![0u32; count as usize + 1];
    for edge in &edges {
        starts[by(edge) as usize + 1] += 1;
    }
    for at in 1..starts.len() {
        starts[at] += starts[at - 1];
    }
    let mut next = starts.clone();
    let mut sorted = vec![(0, 0); edges.len()];
    for edge in edges {
        let place = &mut next[by(&edge) as usize];
        sorted[*place as usize] = edge;
        *place += 1;
    }
    (starts, sorted)
}

/// Gathers what tasks say about ids and files.
#[derive(Debug, Default)]
pub(crate) struct GraphBuilder {
    /// The folder from which relative paths are seen.
    current_dir: Vec<u8>,
    ids: HashMap<Key, u32>,
    outputs: HashMap<Key, u32>,
    inputs: Vec<(Key, u32)>,
    edges: Vec<(u32, u32)>,
    /// Ids that no task had yet when they were waited for.
    forward: Vec<(u32, Box<[u8]>)>,
    doubled_output: Option<(Vec<u8>, u32, u32)>,
    /// Inputs that live in caches alone.
    cached: Vec<(Key, u32, Box<[u8]>)>,
    /// Whether those may be there that no task writes.
    reads_held: bool,
}

impl GraphBuilder {
    /// A graph of tasks whose relative paths are seen from `current_dir`.
    pub(crate) fn new(current_dir: &[u8]) -> GraphBuilder {
        GraphBuilder { current_dir: current_dir.to_vec(), ..GraphBuilder::default() }
    }

    /// Inputs in caches may be there already, instead of being written by a
    /// task.
    pub(crate) fn reading_held(self, reads_held: bool) -> GraphBuilder {
        GraphBuilder { reads_held, ..self }
    }

    /// The inputs in caches that no task writes, each once.
    pub(crate) fn held(&self) -> BTreeSet<Vec<u8>> {
        let nobody = self.cached.iter().filter(|(key, ..)| !self.outputs.contains_key(key));
        nobody.map(|(_, _, source)| source.to_vec()).collect()
    }

    /// The folder from which relative paths are seen.
    pub(crate) fn current_dir(&self) -> &[u8] {
        &self.current_dir
    }

    /// Gives `task` an id.
    ///
    /// # Errors
    /// Another task has it.
    pub(crate) fn name(&mut self, task: u32, id: &[u8]) -> Result<(), GraphError> {
        match self.ids.entry(key(id)) {
            Entry::Vacant(entry) => {
                entry.insert(task);
                Ok(())
            }
            Entry::Occupied(entry) => Err(GraphError::DoubledId {
                id: String::from_utf8_lossy(id).into_owned(),
                tasks: (u64::from(*entry.get()) + 1, u64::from(task) + 1),
            }),
        }
    }

    /// `task` waits for the task with this id, which may come later.
    pub(crate) fn after(&mut self, task: u32, id: &[u8]) {
        match self.ids.get(&key(id)) {
            Some(on) => self.edges.push((task, *on)),
            None => self.forward.push((task, id.into())),
        }
    }

    /// `task` reads and writes these files, relative to its folder.
    pub(crate) fn files(
        &mut self,
        task: u32,
        cwd: Option<&[u8]>,
        inputs: &[Vec<u8>],
        outputs: &[Vec<u8>],
    ) {
        if inputs.is_empty() && outputs.is_empty() {
            return;
        }
        let folder = match cwd {
            Some(cwd) => files::normalized(&self.current_dir, cwd),
            None => self.current_dir.clone(),
        };
        let current_dir = self.current_dir.clone();
        let place_of_source = |source: &[u8]| key(&source_key(source, &current_dir));
        let place = |text: &[u8]| match Declared::read(text) {
            Declared::File(path) => key(&files::normalized(&folder, path)),
            Declared::Object { source, .. } => place_of_source(source),
        };
        for input in inputs {
            let object = Declared::read(input).object();
            let key = match object.filter(|(_, source)| source.starts_with(CACHE_SCHEME)) {
                Some((_, source)) => {
                    let held = held_as(source);
                    let key = place_of_source(held);
                    if self.cached.last().is_none_or(|(last, ..)| *last != key) {
                        self.cached.push((key, task, held.into()));
                    }
                    key
                }
                None => {
                    let archive = object.and_then(|(_, source)| archive_of(source));
                    self.inputs.extend(archive.map(|archive| (place_of_source(archive), task)));
                    place(input)
                }
            };
            self.inputs.push((key, task));
        }
        for output in outputs {
            let first = *self.outputs.entry(place(output)).or_insert(task);
            if first != task && self.doubled_output.is_none() {
                self.doubled_output = Some((output.clone(), first, task));
            }
        }
    }

    /// The files and objects that tasks write, as [`is_made`] looks them up.
    pub(crate) fn made(&self) -> HashSet<Made> {
        self.outputs.keys().copied().collect()
    }

    /// Whether tasks read what others leave in caches.
    pub(crate) fn reads_caches(&self) -> bool {
        !self.cached.is_empty()
    }

    /// The graph of `count` tasks; `name` gives a task's name for messages.
    ///
    /// # Errors
    /// An id is unknown, two tasks write one file, or tasks wait for each
    /// other.
    pub(crate) fn finish(
        mut self,
        count: u64,
        name: impl Fn(u64) -> String,
    ) -> Result<Dependencies, GraphError> {
        let count = u32::try_from(count).map_err(|_| GraphError::TooLarge)?;
        let name = |task: u32| name(u64::from(task));
        if let Some((path, first, second)) = self.doubled_output {
            return Err(GraphError::DoubledOutput {
                path: String::from_utf8_lossy(&path).into_owned(),
                tasks: (name(first), name(second)),
            });
        }
        let nobody = |(key, task, _): &&(Key, u32, _)| {
            let maker = self.outputs.get(key);
            maker.map_or(!self.reads_held, |maker| maker == task)
        };
        if let Some((_, task, source)) = self.cached.iter().find(nobody) {
            let source = String::from_utf8_lossy(source).into_owned();
            return Err(GraphError::NotMade { read: source, task: name(*task) });
        }
        let mut unknown = Vec::new();
        let mut more = 0;
        for (task, id) in std::mem::take(&mut self.forward) {
            match self.ids.get(&key(&id)) {
                Some(on) => self.edges.push((task, *on)),
                None if unknown.len() < UNKNOWN_NAMES_MAX => {
                    unknown.push((name(task), String::from_utf8_lossy(&id).into_owned()));
                }
                None => more += 1,
            }
        }
        if !unknown.is_empty() {
            return Err(GraphError::UnknownIds { pairs: unknown, more });
        }
        for (input, task) in &self.inputs {
            if let Some(producer) = self.outputs.get(input)
                && producer != task
            {
                self.edges.push((*task, *producer));
            }
        }
        let edges = std::mem::take(&mut self.edges);
        drop(self);
        let dependencies = Dependencies::from_edges(count, edges)?;
        match dependencies.cycle() {
            None => Ok(dependencies),
            Some(cycle) => Err(GraphError::Cycle {
                length: cycle.len() as u64,
                tasks: cycle.into_iter().take(CYCLE_NAMES_MAX).map(name).collect(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn letter(task: u64) -> String {
        format!("t{task}")
    }

    fn graph(count: u32, edges: &[(u32, u32)]) -> Result<Dependencies, GraphError> {
        let mut builder = GraphBuilder::new(b"/");
        for task in 0..count {
            builder.name(task, letter(u64::from(task)).as_bytes()).unwrap();
            for (_, on) in edges.iter().filter(|edge| edge.0 == task) {
                builder.after(task, letter(u64::from(*on)).as_bytes());
            }
        }
        builder.finish(u64::from(count), letter)
    }

    #[test]
    fn a_cycle_is_named_in_order() {
        let error = graph(5, &[(0, 1), (1, 3), (3, 2), (2, 1), (4, 0)]).unwrap_err();
        let text = "tasks wait for each other in a cycle: t1 → t3 → t2 → t1";
        assert_eq!(error.to_string(), text);
        let error = graph(1, &[(0, 0)]).unwrap_err();
        assert_eq!(error.to_string(), "tasks wait for each other in a cycle: t0 → t0");
        let ring: Vec<(u32, u32)> = (0..100).map(|task| (task, (task + 1) % 100)).collect();
        assert!(graph(100, &ring).unwrap_err().to_string().ends_with("t11 → … (100 tasks)"));
    }

    #[test]
    fn unknown_and_doubled_ids_are_refused() {
        let mut builder = GraphBuilder::new(b"/");
        builder.name(0, b"a").unwrap();
        let error = builder.name(1, b"a").unwrap_err();
        assert_eq!(error, GraphError::DoubledId { id: "a".to_owned(), tasks: (1, 2) });
        builder.after(0, b"x");
        let error = builder.finish(2, letter).unwrap_err();
        assert_eq!(error.to_string(), "task `t0` waits for `x`, but no task has that id");
    }

    #[test]
    fn files_give_dependencies_whatever_their_spelling() {
        let paths = |names: &[&str]| -> Vec<Vec<u8>> {
            names.iter().map(|name| name.as_bytes().to_vec()).collect()
        };
        let mut builder = GraphBuilder::new(b"/work");
        builder.files(0, Some(b"d"), &paths(&["../d/./x", "z"]), &[]);
        builder.files(1, None, &[], &paths(&["d/x"]));
        builder.files(2, Some(b"/"), &paths(&["work//d/x"]), &paths(&["work/d/y"]));
        builder.files(3, None, &paths(&["same"]), &paths(&["same"]));
        let found = builder.finish(4, letter).unwrap();
        assert_eq!(found.of(0), [1]);
        assert_eq!(found.of(1), [0; 0]);
        assert_eq!(found.of(2), [1]);
        assert_eq!(found.of(3), [0; 0]);

        let mut builder = GraphBuilder::new(b"/work");
        builder.files(0, None, &[], &paths(&["d/x"]));
        builder.files(1, Some(b"d"), &[], &paths(&["./x"]));
        let error = builder.finish(2, letter).unwrap_err();
        assert_eq!(error.to_string(), "tasks `t0` and `t1` both declare the output `./x`");
    }

    #[test]
    fn a_long_chain_needs_no_stack() {
        let chain: Vec<(u32, u32)> = (1..300_000).map(|task| (task, task - 1)).collect();
        let found = Dependencies::from_edges(300_000, chain.clone()).unwrap();
        assert_eq!(found.cycle(), None);
        let mut ring = chain;
        ring.push((0, 299_999));
        let found = Dependencies::from_edges(300_000, ring).unwrap();
        assert_eq!(found.cycle().unwrap().len(), 300_000);
    }

    /// Whether repeated removal of tasks that wait for nobody removes all.
    fn is_acyclic(count: u32, edges: &BTreeSet<(u32, u32)>) -> bool {
        let mut left: BTreeSet<u32> = (0..count).collect();
        loop {
            let free: Vec<u32> = left
                .iter()
                .filter(|task| !edges.iter().any(|(from, on)| from == *task && left.contains(on)))
                .copied()
                .collect();
            if free.is_empty() {
                return left.is_empty();
            }
            for task in free {
                left.remove(&task);
            }
        }
    }

    proptest! {
        #[test]
        fn graphs_agree_with_a_naive_check(
            count in 1u32..9,
            raw in prop::collection::vec((0u32..9, 0u32..9), 0..14),
        ) {
            let edges: Vec<(u32, u32)> =
                raw.into_iter().filter(|(a, b)| *a < count && *b < count).collect();
            let set: BTreeSet<(u32, u32)> = edges.iter().copied().collect();
            match graph(count, &edges) {
                Ok(found) => {
                    prop_assert!(is_acyclic(count, &set));
                    for task in 0..count {
                        let on: Vec<u32> =
                            set.iter().filter(|edge| edge.0 == task).map(|edge| edge.1).collect();
                        prop_assert_eq!(found.of(u64::from(task)), &on[..]);
                    }
                }
                Err(GraphError::Cycle { tasks, length }) => {
                    prop_assert!(!is_acyclic(count, &set));
                    prop_assert_eq!(tasks.len() as u64, length);
                    let number = |name: &String| name[1..].parse::<u32>().unwrap();
                    for (task, next) in tasks.iter().zip(tasks.iter().cycle().skip(1)) {
                        prop_assert!(set.contains(&(number(task), number(next))));
                    }
                }
                Err(error) => prop_assert!(false, "{error}"),
            }
        }
    }
}
