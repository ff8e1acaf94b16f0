//! Events of what tasks need, as bytes.
//!
//! An object that the block has had is its number among them. A block has no more objects
//! than fit into it, so no other bound is needed. Of any other object, its URL is what
//! differs from the URL of the object before.

use super::{BlockReader, BlockWriter, EventsError, RESERVES, USES, WAITS, more};
use falkon_core::data::object::ObjectId;
use falkon_core::dispatch::diffusion::{POLICIES, PolicyName};
use falkon_core::events::{Before, NamedObject, Reserves, Uses, Waits};
use falkon_core::limits::{EVENT_NEEDS_MAX, EVENT_TEXT_BYTES_MAX};
use falkon_core::task::TaskId;
use std::sync::Arc;

/// The bytes of an object's id.
const ID_BYTES: usize = 16;

/// The number of a policy: its place among all, of which the first is the usual one.
pub(super) fn number_of(policy: PolicyName) -> u64 {
    POLICIES.iter().position(|(known, _)| *known == policy).unwrap_or(0) as u64
}

/// How many bytes two texts have in common at their beginning, in whole characters.
fn in_common(one: &str, other: &str) -> usize {
    let pairs = one.chars().zip(other.chars());
    pairs.take_while(|(one, other)| one == other).map(|(one, _)| one.len_utf8()).sum()
}

impl BlockWriter {
    pub(super) fn waits(&mut self, waits: &Waits) {
        self.run(WAITS, &waits.run);
        self.number(waits.before.len() as u64);
        let mut near = waits.run.first.0;
        for before in waits.before.iter() {
            self.difference(before.first.0, near);
            self.number(before.count);
            self.number(u64::from(before.moves));
            near = before.first.0;
        }
    }

    pub(super) fn uses(&mut self, uses: &Uses) {
        self.run(USES | more(!uses.outputs.is_empty()), &uses.run);
        self.objects(&uses.inputs);
        if !uses.outputs.is_empty() {
            self.objects(&uses.outputs);
        }
    }

    pub(super) fn reserves(&mut self, reserves: &Reserves) {
        self.run(RESERVES | more(reserves.nodes > 1), &reserves.run);
        self.resources(&reserves.resources);
        if reserves.nodes > 1 {
            self.number(u64::from(reserves.nodes));
        }
    }

    fn objects(&mut self, objects: &[Arc<NamedObject>]) {
        self.number(objects.len() as u64);
        for object in objects {
            if let Some(number) = self.objects.get(&object.id) {
                let number = *number;
                self.number(number);
                continue;
            }
            self.number(0);
            self.bytes.extend_from_slice(&object.id.0.to_be_bytes());
            self.number(object.size.map_or(0, |size| size.saturating_add(1)));
            let common = in_common(&self.url, &object.url);
            self.number(common as u64);
            self.number((object.url.len() - common) as u64);
            self.bytes.extend_from_slice(&object.url.as_bytes()[common..]);
            self.url = object.url.clone();
            let next = self.objects.len() as u64 + 1;
            self.objects.insert(object.id, next);
        }
    }
}

impl BlockReader<'_> {
    pub(super) fn waits(&mut self, head: u8) -> Result<Waits, EventsError> {
        let run = self.run(head)?;
        let mut near = run.first.0;
        let mut before = Vec::new();
        for _ in 0..self.items()? {
            let first = self.difference(near)?;
            let count = self.number()?;
            let moves = self.number()? != 0;
            let by = if moves { run.count - 1 } else { 0 };
            let end = first.checked_add(count).and_then(|end| end.checked_add(by));
            if count == 0 || end.is_none() {
                return Err(EventsError::Invalid("tasks"));
            }
            before.push(Before { first: TaskId(first), count, moves });
            near = first;
        }
        Ok(Waits { run, before: before.into() })
    }

    pub(super) fn uses(&mut self, head: u8) -> Result<Uses, EventsError> {
        let run = self.run(head)?;
        let inputs = self.objects()?;
        let outputs = if head & super::MORE != 0 { self.objects()? } else { Vec::new() };
        Ok(Uses { run, inputs, outputs })
    }

    pub(super) fn reserves(&mut self, head: u8) -> Result<Reserves, EventsError> {
        let run = self.run(head)?;
        let resources = self.resources()?;
        let nodes = if head & super::MORE != 0 { self.small()? } else { 1 };
        if nodes == 0 {
            Err(EventsError::Invalid("nodes"))
        } else {
            Ok(Reserves { run, resources, nodes })
        }
    }

    /// How many items follow.
    fn items(&mut self) -> Result<u64, EventsError> {
        let items = self.number()?;
        if items > EVENT_NEEDS_MAX as u64 { Err(EventsError::Invalid("items")) } else { Ok(items) }
    }

    fn objects(&mut self) -> Result<Vec<Arc<NamedObject>>, EventsError> {
        let mut objects = Vec::new();
        for _ in 0..self.items()? {
            let number = self.number()?;
            let known = match number.checked_sub(1) {
                None => self.new_object()?,
                Some(place) => {
                    let known = usize::try_from(place).ok().and_then(|it| self.objects.get(it));
                    known.cloned().ok_or(EventsError::Invalid("object"))?
                }
            };
            objects.push(known);
        }
        Ok(objects)
    }

    fn new_object(&mut self) -> Result<Arc<NamedObject>, EventsError> {
        let (id, rest) = self.rest.split_first_chunk::<ID_BYTES>().ok_or(EventsError::Truncated)?;
        self.rest = rest;
        let id = ObjectId(u128::from_be_bytes(*id));
        let size = self.number()?.checked_sub(1);
        let invalid = EventsError::Invalid("URL");
        let common = usize::try_from(self.number()?).map_err(|_| invalid)?;
        let length = usize::try_from(self.number()?).map_err(|_| invalid)?;
        if common.saturating_add(length) > EVENT_TEXT_BYTES_MAX {
            return Err(invalid);
        }
        let common = self.url.get(..common).ok_or(invalid)?;
        let (rest, left) = self.rest.split_at_checked(length).ok_or(EventsError::Truncated)?;
        let rest = std::str::from_utf8(rest).map_err(|_| invalid)?;
        let url: Arc<str> = [common, rest].concat().into();
        self.rest = left;
        self.url = url.clone();
        let object = Arc::new(NamedObject { id, url, size });
        self.objects.push(object.clone());
        Ok(object)
    }

    pub(super) fn policy(&mut self) -> Result<PolicyName, EventsError> {
        let number = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        let found = POLICIES.get(number).map(|(policy, _)| *policy);
        found.ok_or(EventsError::Invalid("policy"))
    }
}
