//! Transfers that share bandwidth: the fluid model of a network.
//!
//! A flow crosses a few resources (a store, links, disks), each with a
//! capacity, and all flows get their max-min fair rates: none can get more
//! without another, that has no more, getting less. A byte may take more of a
//! resource than another does, as what is written to a disk that reads faster.
//! Flows of one party take turns, as those that one thread carries: all together
//! claim as much of a resource as one flow of nobody's.
//! When a flow begins or ends, rates are worked out again for those flows alone
//! whose rates this changes (`flow/shares.rs`).

mod due;
mod shares;
#[cfg(test)]
mod tests;

use crate::time::{Nanos, SECOND_NANOS};
use due::Due;
use shares::Room;

/// Resources that one flow may cross.
const FLOW_RESOURCES_MAX: usize = 4;

/// Something with a capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResourceId(u32);

/// A resource that a flow crosses, and what each of its bytes takes of that
/// one's capacity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Crossing {
    resource: ResourceId,
    weight: f64,
    party: Option<PartyId>,
}

/// Flows that claim as much together as any other flow alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartyId(u32);

impl From<ResourceId> for Crossing {
    /// Each byte takes a byte.
    fn from(resource: ResourceId) -> Crossing {
        Crossing { resource, weight: 1.0, party: None }
    }
}

impl Crossing {
    /// The flow belongs to a party.
    pub(crate) fn of(self, party: PartyId) -> Crossing {
        Crossing { party: Some(party), ..self }
    }

    /// Each byte takes so much of what it took.
    pub(crate) fn scaled(self, share: f64) -> Crossing {
        Crossing { weight: self.weight * share, ..self }
    }

    /// Whether it takes anything of the resource.
    pub(crate) fn takes(&self) -> bool {
        self.weight > 0.0
    }
}

impl ResourceId {
    /// Each byte takes so much, above 0.
    pub(crate) fn weighing(self, weight: f64) -> Crossing {
        Crossing { resource: self, weight, party: None }
    }
}

/// A flow under way; numbers are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlowId(u32);

#[derive(Debug)]
struct Resource {
    capacity: f64,
    /// Which flows cross it: each with which of its own resources this is.
    flows: Vec<(u32, u8)>,
    /// Flows that share it, or others with its flows, have parties, or had when
    /// rates were last worked out.
    has_parties: bool,
    /// The working out that it was last touched in.
    seen: u64,
    /// While rates are worked out: what is left, and for how many.
    left: f64,
    open: u32,
    /// What a byte of each of those takes by its claim, together.
    weight: f64,
}

#[derive(Debug, Clone, Copy)]
struct Flow {
    tag: u64,
    crosses: [u32; FLOW_RESOURCES_MAX],
    weights: [f64; FLOW_RESOURCES_MAX],
    parties: [Option<PartyId>; FLOW_RESOURCES_MAX],
    /// Its place in the list of each of them.
    places: [u32; FLOW_RESOURCES_MAX],
    count: u8,
    /// Bytes left, at `since`.
    left: f64,
    since: Nanos,
    /// Bytes per second.
    rate: f64,
    /// Which of its resources gives it no more.
    limit: u8,
    /// The working out that it was last part of.
    seen: u64,
    /// What that gives it, if it has come to it.
    next: Option<f64>,
}

/// All resources and flows.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    resources: Vec<Resource>,
    flows: Vec<Flow>,
    free: Vec<u32>,
    /// How many flows each party has.
    parties: Vec<u32>,
    due: Due,
    /// Resources whose flows must be given new rates.
    dirty: Vec<u32>,
    working: u64,
    room: Room,
}

impl Flows {
    /// Adds a resource of so many bytes per second, above 0.
    pub(crate) fn add_resource(&mut self, capacity: f64) -> ResourceId {
        let id = self.resources.len() as u32;
        self.resources.push(Resource {
            capacity,
            flows: Vec::new(),
            has_parties: false,
            seen: 0,
            left: 0.0,
            open: 0,
            weight: 0.0,
        });
        ResourceId(id)
    }

    /// Adds a party, whose flows all cross one resource with it.
    pub(crate) fn add_party(&mut self) -> PartyId {
        self.parties.push(0);
        PartyId(self.parties.len() as u32 - 1)
    }

    /// Begins a flow across up to four different resources. Rates are worked
    /// out at [`Flows::share_out_again`].
    pub(crate) fn begin(
        &mut self,
        now: Nanos,
        bytes: f64,
        crosses: &[Crossing],
        tag: u64,
    ) -> FlowId {
        let id = self.free.pop().unwrap_or(self.flows.len() as u32);
        let mut flow = Flow {
            tag,
            crosses: [0; FLOW_RESOURCES_MAX],
            weights: [0.0; FLOW_RESOURCES_MAX],
            parties: [None; FLOW_RESOURCES_MAX],
            places: [0; FLOW_RESOURCES_MAX],
            count: 0,
            left: bytes,
            since: now,
            rate: 0.0,
            limit: 0,
            seen: 0,
            next: None,
        };
        let has_parties = crosses.iter().any(|crossing| crossing.party.is_some());
        for Crossing { resource, weight, party } in crosses.iter().take(FLOW_RESOURCES_MAX) {
            let at = flow.count;
            flow.parties[usize::from(at)] = *party;
            if let Some(party) = party {
                self.parties[party.0 as usize] += 1;
            }
            let shared = &mut self.resources[resource.0 as usize];
            shared.has_parties |= has_parties;
            let list = &mut shared.flows;
            flow.crosses[usize::from(at)] = resource.0;
            flow.weights[usize::from(at)] = *weight;
            flow.places[usize::from(at)] = list.len() as u32;
            list.push((id, at));
            flow.count += 1;
            self.dirty.push(resource.0);
        }
        match self.flows.get_mut(id as usize) {
            Some(place) => *place = flow,
            None => self.flows.push(flow),
        }
        self.due.set(id, Nanos(u64::MAX));
        FlowId(id)
    }

    /// Ends a flow, complete or not.
    pub(crate) fn end(&mut self, id: FlowId) {
        let flow = self.flows[id.0 as usize];
        for at in 0..usize::from(flow.count) {
            let (resource, place) = (flow.crosses[at], flow.places[at] as usize);
            if let Some(party) = flow.parties[at] {
                self.parties[party.0 as usize] -= 1;
            }
            let list = &mut self.resources[resource as usize].flows;
            list.swap_remove(place);
            if let Some(&(moved, which)) = list.get(place) {
                self.flows[moved as usize].places[usize::from(which)] = place as u32;
            }
            self.dirty.push(resource);
        }
        self.due.remove(id.0);
        self.free.push(id.0);
    }

    /// Bytes that a flow has left.
    pub(crate) fn left(&self, id: FlowId, now: Nanos) -> f64 {
        let flow = &self.flows[id.0 as usize];
        let passed = now.since(flow.since).0 as f64 / SECOND_NANOS as f64;
        (flow.left - flow.rate * passed).max(0.0)
    }

    /// When the next flow is complete.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        self.due.first().map(|(at, _)| at).filter(|at| *at < Nanos(u64::MAX))
    }

    /// Ends a flow that is complete by `now`; its tag.
    pub(crate) fn complete(&mut self, now: Nanos) -> Option<u64> {
        let (at, id) = self.due.first()?;
        if at > now {
            return None;
        }
        let tag = self.flows[id as usize].tag;
        self.end(FlowId(id));
        Some(tag)
    }

    /// Bytes per second that a flow gets.
    #[cfg(test)]
    fn rate(&self, id: FlowId) -> f64 {
        self.flows[id.0 as usize].rate
    }
}
