//! Dependencies and objects of recorded tasks, by the places that they have in a
//! replay: tasks that never ran have none.

use super::RecordError;
use falkon_core::data::object::ObjectId;
use falkon_core::events::{NamedObject, Uses, Waits};
use falkon_sim::{Lists, Needs, RecordedObject};
use std::collections::{BTreeSet, HashMap};

/// Tasks and objects that all tasks name together in a replay.
const REPLAY_ITEMS_MAX: u64 = 100_000_000;

/// The places of a record's tasks in its replay.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// Tasks in a row: the first, how many, and the place of the first.
    rows: Vec<(u64, u64, u64)>,
    tasks: u64,
}

impl Places {
    /// Appends tasks, whose numbers are higher than those before.
    pub(super) fn push(&mut self, first: u64, count: u64) {
        match self.rows.last_mut() {
            Some((from, many, _)) if from.checked_add(*many) == Some(first) => {
                *many = many.saturating_add(count);
            }
            _ => self.rows.push((first, count, self.tasks)),
        }
        self.tasks = self.tasks.saturating_add(count);
    }

    /// The parts of a row of tasks that are in the replay: how far into the row each
    /// begins, its place, and how many tasks it has.
    pub(super) fn of(&self, first: u64, count: u64) -> impl Iterator<Item = (u64, u64, u64)> {
        let end = first.saturating_add(count);
        let from =
            self.rows.partition_point(|(start, many, _)| start.saturating_add(*many) <= first);
        let rows = self.rows[from..].iter().take_while(move |(start, ..)| *start < end);
        rows.map(move |(start, many, place)| {
            let begins = first.max(*start);
            (
                begins - first,
                place + (begins - start),
                start.saturating_add(*many).min(end) - begins,
            )
        })
    }
}

/// Tasks in a row with the same list.
#[derive(Debug)]
struct Part {
    place: u64,
    count: u64,
    list: Vec<u64>,
}

/// Events of what tasks need.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    waits: Vec<Waits>,
    uses: Vec<Uses>,
}

/// The objects of a record, by number.
#[derive(Debug, Default)]
struct Objects {
    numbers: HashMap<ObjectId, u64>,
    sizes: Vec<Option<u64>>,
    is_stored: Vec<bool>,
}

impl Objects {
    fn number(&mut self, object: &NamedObject) -> u64 {
        let next = self.sizes.len() as u64;
        let number = *self.numbers.entry(object.id).or_insert(next);
        if number == next {
            self.sizes.push(object.size);
            self.is_stored.push(object.is_stored());
        }
        let size = &mut self.sizes[number as usize];
        *size = (*size).or(object.size);
        number
    }
}

impl Gathered {
    pub(super) fn wait(&mut self, waits: &Waits) {
        self.waits.push(waits.clone());
    }

    pub(super) fn use_(&mut self, uses: &Uses) {
        self.uses.push(uses.clone());
    }

    /// The needs of the tasks at their places; `bytes_of` says how many bytes of inputs the
    /// task at a place had.
    pub(super) fn needs(
        self,
        places: &Places,
        bytes_of: impl Fn(u64) -> u64,
    ) -> Result<Needs, RecordError> {
        let mut items = 0;
        let after = lists(self.after(places, &mut items)?, true);
        let mut objects = Objects::default();
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        let mut written = BTreeSet::new();
        for uses in &self.uses {
            for (_, place, count) in places.of(uses.run.first.0, uses.run.count) {
                for (parts, of) in [(&mut reads, &uses.inputs), (&mut writes, &uses.outputs)] {
                    add(&mut items, of.len() as u64)?;
                    let list = of.iter().map(|object| objects.number(object)).collect();
                    parts.push(Part { place, count, list });
                }
                written.extend(uses.outputs.iter().map(|object| objects.number(object)));
            }
        }
        let (reads, writes) = (lists(reads, false), lists(writes, false));
        infer(&mut objects.sizes, &reads, places.tasks, bytes_of);
        let all = objects.sizes.iter().zip(&objects.is_stored).enumerate();
        let object = |(number, (size, is_stored)): (usize, (&Option<u64>, &bool))| RecordedObject {
            bytes: size.unwrap_or(0),
            // An object that was in a cache before the run is taken to be in a store.
            is_stored: *is_stored || !written.contains(&(number as u64)),
        };
        Ok(Needs { after, reads, writes, objects: all.map(object).collect() })
    }

    fn after(&self, places: &Places, items: &mut u64) -> Result<Vec<Part>, RecordError> {
        let mut parts = Vec::new();
        for waits in &self.waits {
            let move_on = waits.before.iter().any(|before| before.moves);
            let each: u64 = waits.before.iter().fold(0, |sum, one| sum.saturating_add(one.count));
            for (into, place, count) in places.of(waits.run.first.0, waits.run.count) {
                let (lists, count) = if move_on { (count, 1) } else { (1, count) };
                add(items, each.saturating_mul(lists))?;
                for at in 0..lists {
                    let mut list = Vec::new();
                    for (first, many) in waits.of(into + at) {
                        for (_, place, count) in places.of(first.0, many) {
                            list.extend(place..place + count);
                        }
                    }
                    parts.push(Part { place: place + at, count, list });
                }
            }
        }
        Ok(parts)
    }
}

fn add(items: &mut u64, more: u64) -> Result<(), RecordError> {
    *items = items.saturating_add(more);
    match *items <= REPLAY_ITEMS_MAX {
        true => Ok(()),
        false => Err(RecordError::Large { most: REPLAY_ITEMS_MAX }),
    }
}

/// The lists of all tasks, of parts in any order. Those of one row of tasks add up. Where
/// they `point_back`, what is no earlier task is left out: no task waits for itself.
fn lists(mut parts: Vec<Part>, point_back: bool) -> Lists {
    parts.sort_by_key(|part| part.place);
    let mut lists = Lists::default();
    let mut parts = parts.into_iter().peekable();
    while let Some(mut part) = parts.next() {
        while let Some(more) = parts.next_if(|next| next.place == part.place) {
            part.list.extend(more.list);
        }
        let mut known = BTreeSet::new();
        let place = part.place;
        part.list.retain(|item| known.insert(*item) && (!point_back || *item < place));
        let Some(gap) = place.checked_sub(lists.tasks()) else { continue };
        lists.push(gap, &[]);
        lists.push(part.count, &part.list);
    }
    lists
}

/// Gives objects whose size nobody knew what is left of their readers' bytes.
fn infer(sizes: &mut [Option<u64>], reads: &Lists, tasks: u64, bytes_of: impl Fn(u64) -> u64) {
    if sizes.iter().all(Option::is_some) {
        return;
    }
    for place in 0..tasks.min(reads.tasks()) {
        let size_of = |object: &u64| sizes.get(*object as usize).copied().flatten();
        let (known, unknown): (Vec<u64>, Vec<u64>) =
            reads.of(place).iter().partition(|object| size_of(object).is_some());
        let Some(number) = std::num::NonZeroU64::new(unknown.len() as u64) else { continue };
        let known: u64 = known.iter().filter_map(size_of).fold(0, u64::saturating_add);
        let each = bytes_of(place).saturating_sub(known) / number;
        for object in unknown {
            sizes[object as usize] = Some(each);
        }
    }
}
