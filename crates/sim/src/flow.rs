//! Transfers that share bandwidth: the fluid model of a network.
//!
//! A flow crosses a few resources (a store, links, disks), each with a
//! capacity, and all flows get their max-min fair rates: none can get more
//! without another, that has no more, getting less. A byte may take more of a
//! resource than another does, as what is written to a disk that reads faster.
//! Flows of one party take turns, as those that one thread carries: all together
//! claim as much of a resource as one flow of nobody's.
//! When a flow begins or ends, rates are worked out again for the flows that it shares a resource
//! with, directly or through others, and for no more.

mod due;

use crate::time::{Nanos, SECOND_NANOS};
use due::Due;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

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
    /// The working out that it was last seen in.
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
    seen: u64,
    has_rate: bool,
}

/// What one flow of a resource would get, the least first in a heap.
#[derive(Debug, PartialEq)]
struct Share(f64, u32);

impl Eq for Share {}

impl PartialOrd for Share {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Share {
    fn cmp(&self, other: &Self) -> Ordering {
        other.0.total_cmp(&self.0).then(other.1.cmp(&self.1))
    }
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
    // Room to work in.
    touched: Vec<u32>,
    members: Vec<u32>,
    shares: BinaryHeap<Share>,
}

impl Flows {
    /// Adds a resource of so many bytes per second, above 0.
    pub(crate) fn add_resource(&mut self, capacity: f64) -> ResourceId {
        let id = self.resources.len() as u32;
        self.resources.push(Resource {
            capacity,
            flows: Vec::new(),
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
            seen: 0,
            has_rate: false,
        };
        for Crossing { resource, weight, party } in crosses.iter().take(FLOW_RESOURCES_MAX) {
            let at = flow.count;
            flow.parties[usize::from(at)] = *party;
            if let Some(party) = party {
                self.parties[party.0 as usize] += 1;
            }
            let list = &mut self.resources[resource.0 as usize].flows;
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

    /// Works the rates out where something has changed.
    pub(crate) fn share_out_again(&mut self, now: Nanos) {
        if self.dirty.is_empty() {
            return;
        }
        self.working += 1;
        let mut dirty = std::mem::take(&mut self.dirty);
        for resource in dirty.drain(..) {
            if self.resources[resource as usize].seen < self.working {
                self.gather(resource);
                self.share_out(now);
            }
        }
        self.dirty = dirty;
    }

    /// Finds all flows and resources that hang together with one resource.
    fn gather(&mut self, from: u32) {
        self.touched.clear();
        self.members.clear();
        self.resources[from as usize].seen = self.working;
        self.touched.push(from);
        let mut at = 0;
        while let Some(&next) = self.touched.get(at) {
            at += 1;
            for place in 0..self.resources[next as usize].flows.len() {
                let (id, _) = self.resources[next as usize].flows[place];
                let flow = &mut self.flows[id as usize];
                if std::mem::replace(&mut flow.seen, self.working) == self.working {
                    continue;
                }
                self.members.push(id);
                for &resource in &flow.crosses[..usize::from(flow.count)] {
                    let seen = &mut self.resources[resource as usize].seen;
                    if std::mem::replace(seen, self.working) != self.working {
                        self.touched.push(resource);
                    }
                }
            }
        }
    }

    /// Gives the flows that were gathered their max-min fair rates: again and
    /// again, the resource that has least for each of its flows gives it to
    /// them, and they leave the others the rest.
    fn share_out(&mut self, now: Nanos) {
        self.shares.clear();
        for &id in &self.touched {
            let resource = &mut self.resources[id as usize];
            resource.left = resource.capacity;
            resource.open = resource.flows.len() as u32;
            let weigh = |(id, at): &(u32, u8)| {
                let (flow, at) = (&self.flows[*id as usize], usize::from(*at));
                flow.weights[at] * claim(&self.parties, flow.parties[at])
            };
            resource.weight = resource.flows.iter().map(weigh).sum();
            if resource.open > 0 {
                self.shares.push(Share(resource.left / resource.weight, id));
            }
        }
        for &member in &self.members {
            self.flows[member as usize].has_rate = false;
        }
        while let Some(Share(share, id)) = self.shares.pop() {
            let resource = &self.resources[id as usize];
            if resource.open == 0 {
                continue;
            }
            let current = resource.left / resource.weight;
            if current > share {
                // Others have taken less than their part since.
                self.shares.push(Share(current, id));
                continue;
            }
            if self.fix_limited(now, id) {
                // They leave the others more.
                let resource = &self.resources[id as usize];
                self.shares.push(Share(resource.left / resource.weight, id));
                continue;
            }
            for at in 0..self.resources[id as usize].flows.len() {
                let (flow, which) = self.resources[id as usize].flows[at];
                let Flow { has_rate, parties, .. } = self.flows[flow as usize];
                if !has_rate {
                    let rate = current * claim(&self.parties, parties[usize::from(which)]);
                    self.set_rate(now, flow, rate);
                }
            }
        }
    }

    /// Settles the flows of a resource that get less of another one than of this, if
    /// there are any: one of a party claims less of one resource than of another.
    fn fix_limited(&mut self, now: Nanos, id: u32) -> bool {
        let mut is_any = false;
        for at in 0..self.resources[id as usize].flows.len() {
            let (id, which) = self.resources[id as usize].flows[at];
            let flow = &self.flows[id as usize];
            if flow.has_rate || flow.parties.iter().all(Option::is_none) {
                continue;
            }
            let share = |at: usize| {
                let resource = &self.resources[flow.crosses[at] as usize];
                resource.left / resource.weight * claim(&self.parties, flow.parties[at])
            };
            let least = (0..usize::from(flow.count)).map(share).fold(f64::INFINITY, f64::min);
            if least < share(usize::from(which)) * (1.0 - 1e-9) {
                is_any = true;
                self.set_rate(now, id, least);
            }
        }
        is_any
    }

    fn set_rate(&mut self, now: Nanos, id: u32, rate: f64) {
        let flow = &mut self.flows[id as usize];
        flow.has_rate = true;
        for at in 0..usize::from(flow.count) {
            let resource = &mut self.resources[flow.crosses[at] as usize];
            resource.left = (resource.left - rate * flow.weights[at]).max(0.0);
            resource.weight -= flow.weights[at] * claim(&self.parties, flow.parties[at]);
            resource.open -= 1;
        }
        if flow.rate == rate {
            return;
        }
        let passed = now.since(flow.since).0 as f64 / SECOND_NANOS as f64;
        flow.left = (flow.left - flow.rate * passed).max(0.0);
        flow.since = now;
        flow.rate = rate;
        let span = (flow.left / rate * SECOND_NANOS as f64).ceil();
        self.due.set(id, now.after(Nanos(span as u64)));
    }
}

/// The share of one flow's claim that one of a party has.
fn claim(parties: &[u32], party: Option<PartyId>) -> f64 {
    party.map_or(1.0, |party| 1.0 / f64::from(parties[party.0 as usize].max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Max-min fair rates by raising all rates together until something is
    /// full, slowly. A flow has the resources that it crosses, and what a byte
    /// takes of each.
    fn reference(capacities: &[f64], flows: &[Vec<(usize, f64)>]) -> Vec<f64> {
        let takes = |flow: usize, at: usize| -> f64 {
            flows[flow].iter().filter(|(resource, _)| *resource == at).map(|(_, of)| of).sum()
        };
        let mut rates = vec![0.0; flows.len()];
        let mut fixed = vec![false; flows.len()];
        while fixed.iter().any(|fixed| !fixed) {
            let used = |at: usize, rates: &[f64]| -> f64 {
                (0..flows.len()).map(|f| rates[f] * takes(f, at)).sum()
            };
            let open = |at: usize| -> f64 {
                (0..flows.len()).filter(|f| !fixed[*f]).map(|f| takes(f, at)).sum()
            };
            let (at, rise) = (0..capacities.len())
                .filter(|at| open(*at) > 0.0)
                .map(|at| (at, (capacities[at] - used(at, &rates)) / open(at)))
                .min_by(|one, other| one.1.total_cmp(&other.1))
                .unwrap();
            for f in 0..flows.len() {
                if !fixed[f] {
                    rates[f] += rise;
                }
            }
            for (f, fixed) in fixed.iter_mut().enumerate() {
                *fixed |= takes(f, at) > 0.0;
            }
        }
        rates
    }

    #[test]
    fn rates_are_max_min_fair_after_every_change() {
        for seed in 0..60 {
            let mut rng = Rng::new(seed);
            let mut flows = Flows::default();
            let capacities: Vec<f64> =
                (0..1 + rng.below(8)).map(|_| 1.0 + rng.below(1000) as f64).collect();
            let resources: Vec<ResourceId> =
                capacities.iter().map(|capacity| flows.add_resource(*capacity)).collect();
            // Of each third machine every byte takes as much as any other.
            let heaviest = if seed % 3 == 0 { 1 } else { 5 };
            let mut live: Vec<(FlowId, Vec<(usize, f64)>)> = Vec::new();
            for step in 0..60u64 {
                if !live.is_empty() && rng.below(3) == 0 {
                    let at = rng.below(live.len() as u64) as usize;
                    flows.end(live.swap_remove(at).0);
                } else {
                    let mut crosses: Vec<usize> = (0..1 + rng.below(3))
                        .map(|_| rng.below(capacities.len() as u64) as usize)
                        .collect();
                    crosses.sort_unstable();
                    crosses.dedup();
                    let mut weigh = |at| (at, (1 + rng.below(heaviest)) as f64 / heaviest as f64);
                    let crosses: Vec<(usize, f64)> = crosses.into_iter().map(&mut weigh).collect();
                    let ids: Vec<Crossing> =
                        crosses.iter().map(|(at, of)| resources[*at].weighing(*of)).collect();
                    live.push((flows.begin(Nanos(step), 1e12, &ids, 0), crosses));
                }
                flows.share_out_again(Nanos(step));
                let crosses: Vec<Vec<(usize, f64)>> =
                    live.iter().map(|(_, crosses)| crosses.clone()).collect();
                for ((id, _), expected) in live.iter().zip(reference(&capacities, &crosses)) {
                    let rate = flows.rate(*id);
                    let near = (rate - expected).abs() <= 1e-9 * expected;
                    assert!(near, "seed {seed}, step {step}: {rate} for {expected}");
                }
            }
        }
    }

    #[test]
    fn a_party_claims_as_much_as_one_flow_and_leaves_the_others_what_it_cannot_use() {
        let mut flows = Flows::default();
        let (disk, link) = (flows.add_resource(90.0), flows.add_resource(10.0));
        let party = flows.add_party();
        let member = Crossing::from(disk).of(party);
        let begin =
            |flows: &mut Flows, crosses: &[Crossing]| flows.begin(Nanos(0), 1e9, crosses, 0);
        let alone = begin(&mut flows, &[disk.into()]);
        let (one, other) = (begin(&mut flows, &[member]), begin(&mut flows, &[member]));
        let limited = begin(&mut flows, &[link.into(), member]);
        let rates = |flows: &mut Flows| {
            flows.share_out_again(Nanos(0));
            [alone, one, other].map(|id| (flows.rate(id) * 1e6).round() / 1e6)
        };
        // The link leaves the third 10 of 15, and the others share the rest by their claims.
        assert_eq!(rates(&mut flows), [48.0, 16.0, 16.0]);
        assert_eq!(flows.rate(limited), 10.0);
        flows.end(limited);
        assert_eq!(rates(&mut flows), [45.0, 22.5, 22.5]);
        flows.end(other);
        flows.share_out_again(Nanos(0));
        assert_eq!([alone, one].map(|id| flows.rate(id)), [45.0, 45.0]);
    }

    #[test]
    fn parties_never_take_more_than_there_is_and_nobody_gets_nothing() {
        for seed in 0..60 {
            let mut rng = Rng::new(seed);
            let mut flows = Flows::default();
            let capacities: Vec<f64> = (0..6).map(|_| 1.0 + rng.below(100) as f64).collect();
            let resources: Vec<(ResourceId, PartyId)> = capacities
                .iter()
                .map(|capacity| (flows.add_resource(*capacity), flows.add_party()))
                .collect();
            let mut live: Vec<(FlowId, Vec<usize>)> = Vec::new();
            for step in 0..60u64 {
                if !live.is_empty() && rng.below(3) == 0 {
                    let at = rng.below(live.len() as u64) as usize;
                    flows.end(live.swap_remove(at).0);
                } else {
                    let first = rng.below(6) as usize;
                    let crosses: Vec<usize> = (first..6).take(1 + rng.below(3) as usize).collect();
                    let ids = crosses.iter().map(|at| {
                        let (resource, party) = resources[*at];
                        let crossing = Crossing::from(resource);
                        if rng.below(2) == 0 { crossing } else { crossing.of(party) }
                    });
                    let ids: Vec<Crossing> = ids.collect();
                    live.push((flows.begin(Nanos(step), 1e12, &ids, 0), crosses));
                }
                flows.share_out_again(Nanos(step));
                for (at, capacity) in capacities.iter().enumerate() {
                    let here = live.iter().filter(|(_, crosses)| crosses.contains(&at));
                    let used: f64 = here.map(|(id, _)| flows.rate(*id)).sum();
                    assert!(used <= capacity * (1.0 + 1e-9), "seed {seed}, step {step}: {used}");
                }
                let least = live.iter().map(|(id, _)| flows.rate(*id)).fold(1.0, f64::min);
                assert!(least > 0.0, "seed {seed}, step {step}");
            }
        }
    }

    #[test]
    fn flows_take_their_bytes_over_their_share() {
        let mut flows = Flows::default();
        let store = flows.add_resource(100.0);
        let link = flows.add_resource(30.0);
        let second = |seconds: u64| Nanos(seconds * SECOND_NANOS);
        flows.begin(Nanos(0), 300.0, &[store.into(), link.into()], 1);
        flows.begin(Nanos(0), 700.0, &[store.into()], 2);
        flows.share_out_again(Nanos(0));
        // 30 and 70 per second.
        assert_eq!(flows.next_due(), Some(second(10)));
        flows.begin(second(5), 100.0, &[store.into()], 3);
        flows.share_out_again(second(5));
        // 150 at 30, 350 and 100 at 35 per second.
        assert_eq!(flows.complete(second(5)), None);
        let due = flows.next_due().unwrap();
        assert!((due.seconds() - (5.0 + 100.0 / 35.0)).abs() < 1e-6, "{due:?}");
        assert_eq!(flows.complete(due), Some(3));
        flows.share_out_again(due);
        assert_eq!(flows.next_due(), Some(second(10)));
        assert_eq!(flows.complete(second(10)), Some(1));
        flows.share_out_again(second(10));
        let left = 350.0 - 100.0 - (10.0 - due.seconds()) * 70.0;
        let due = flows.next_due().unwrap();
        assert!((due.seconds() - (10.0 + left / 100.0)).abs() < 1e-6, "{due:?}");
        assert_eq!(flows.complete(due), Some(2));
        assert_eq!(flows.next_due(), None);
    }
}
