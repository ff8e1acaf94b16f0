//! Who gets how much of what, where something has changed.
//!
//! Rates are max-min fair exactly if each flow has a resource that is full and
//! gives no other flow more. So after a change only those flows need new rates
//! for which this no longer holds. They get them beside the others, whose rates
//! stay; then those of the others for which it no longer holds join them, and so
//! on. In a network in which most links are full and shared by as many, a change
//! ends a few links away.
//!
//! Parties claim differently much of different resources, for which that rule is
//! not enough: where there are any, all flows that hang together get new rates.

use super::{Flow, Flows, PartyId};
use crate::time::{Nanos, SECOND_NANOS};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// How often flows join, before all that hang together do.
const ROUNDS_MAX: u32 = 16;
/// Rates that differ by less, relatively, are equal.
const NEAR: f64 = 1e-11;

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

/// Room to work in.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Flows that get new rates.
    members: Vec<u32>,
    /// The resources that these cross, and those whose flows have changed.
    touched: Vec<u32>,
    shares: BinaryHeap<Share>,
}

impl Flows {
    /// Works the rates out where something has changed.
    pub(crate) fn share_out_again(&mut self, now: Nanos) {
        if self.dirty.is_empty() {
            return;
        }
        self.working += 1;
        self.room.members.clear();
        self.room.touched.clear();
        let mut dirty = std::mem::take(&mut self.dirty);
        dirty.drain(..).for_each(|resource| self.touch(resource));
        self.dirty = dirty;
        for round in 0.. {
            let is_all = round == ROUNDS_MAX || self.has_parties();
            if is_all {
                self.join_all();
            }
            self.share_out();
            if is_all || !self.join_unfair() {
                break;
            }
        }
        let members = std::mem::take(&mut self.room.members);
        members.iter().for_each(|member| self.settle(now, *member));
        self.room.members = members;
    }

    /// A resource has other flows, or they get other rates.
    fn touch(&mut self, id: u32) {
        let resource = &mut self.resources[id as usize];
        if std::mem::replace(&mut resource.seen, self.working) < self.working {
            self.room.touched.push(id);
        }
    }

    /// A flow gets a new rate. Returns whether it was not to get one before.
    fn join(&mut self, id: u32) -> bool {
        let flow = &mut self.flows[id as usize];
        if std::mem::replace(&mut flow.seen, self.working) == self.working {
            return false;
        }
        let (crosses, count) = (flow.crosses, usize::from(flow.count));
        self.room.members.push(id);
        crosses[..count].iter().for_each(|resource| self.touch(*resource));
        true
    }

    fn has_parties(&self) -> bool {
        self.room.touched.iter().any(|id| self.resources[*id as usize].has_parties)
    }

    /// All flows that hang together with the resources that were touched join.
    fn join_all(&mut self) {
        let mut at = 0;
        while let Some(&next) = self.room.touched.get(at) {
            at += 1;
            for place in 0..self.resources[next as usize].flows.len() {
                self.join(self.resources[next as usize].flows[place].0);
            }
        }
        let with_party = |id: &u32| self.flows[*id as usize].parties.iter().any(Option::is_some);
        let has_parties = self.room.members.iter().any(with_party);
        for id in &self.room.touched {
            self.resources[*id as usize].has_parties = has_parties;
        }
    }

    /// Flows join whose rate is not fair beside those of the members. Returns
    /// whether any do.
    fn join_unfair(&mut self) -> bool {
        let before = self.room.members.len();
        for at in 0..self.room.touched.len() {
            let id = self.room.touched[at];
            let resource = &self.resources[id as usize];
            // The most that it gives a member, and what it gives those that it limits.
            let (mut most, mut share) = (0.0_f64, f64::INFINITY);
            for (member, which) in &resource.flows {
                let flow = &self.flows[*member as usize];
                let Some(next) = flow.next.filter(|_| flow.seen == self.working) else { continue };
                most = most.max(next);
                if flow.limit == *which {
                    share = share.min(next);
                }
            }
            let is_full = resource.left <= resource.capacity * NEAR;
            for place in 0..self.resources[id as usize].flows.len() {
                let (other, which) = self.resources[id as usize].flows[place];
                let flow = &self.flows[other as usize];
                let is_new = flow.rate == 0.0;
                let has_too_much = flow.rate > share * (1.0 + NEAR);
                let has_limit = is_full && most <= flow.rate * (1.0 + NEAR);
                if is_new || has_too_much || (flow.limit == which && !has_limit) {
                    self.join(other);
                }
            }
        }
        self.room.members.len() > before
    }

    /// Works out the max-min fair rates of the members beside the other flows: again
    /// and again, the resource that has least for each of them gives it to them, and
    /// they leave the others the rest.
    fn share_out(&mut self) {
        self.room.shares.clear();
        for &member in &self.room.members {
            self.flows[member as usize].next = None;
        }
        for &id in &self.room.touched {
            let resource = &mut self.resources[id as usize];
            (resource.left, resource.open, resource.weight) = (resource.capacity, 0, 0.0);
            for (id, at) in &resource.flows {
                let (flow, at) = (&self.flows[*id as usize], usize::from(*at));
                if flow.seen < self.working {
                    resource.left -= flow.rate * flow.weights[at];
                } else {
                    resource.open += 1;
                    resource.weight += flow.weights[at] * claim(&self.parties, flow.parties[at]);
                }
            }
            resource.left = resource.left.max(0.0);
            if resource.open > 0 {
                self.room.shares.push(Share(resource.left / resource.weight, id));
            }
        }
        while let Some(Share(share, id)) = self.room.shares.pop() {
            let resource = &self.resources[id as usize];
            if resource.open == 0 {
                continue;
            }
            let current = resource.left / resource.weight;
            if current > share {
                // Others have taken less than their part since.
                self.room.shares.push(Share(current, id));
                continue;
            }
            if self.fix_limited(id) {
                // They leave the others more.
                let resource = &self.resources[id as usize];
                self.room.shares.push(Share(resource.left / resource.weight, id));
                continue;
            }
            for at in 0..self.resources[id as usize].flows.len() {
                let (flow, which) = self.resources[id as usize].flows[at];
                let Flow { next, seen, parties, .. } = self.flows[flow as usize];
                if seen == self.working && next.is_none() {
                    let rate = current * claim(&self.parties, parties[usize::from(which)]);
                    self.fix(flow, which, rate);
                }
            }
        }
    }

    /// Settles the flows of a resource that get less of another one than of this, if
    /// there are any: one of a party claims less of one resource than of another.
    fn fix_limited(&mut self, id: u32) -> bool {
        if !self.resources[id as usize].has_parties {
            return false;
        }
        let mut is_any = false;
        for at in 0..self.resources[id as usize].flows.len() {
            let (id, which) = self.resources[id as usize].flows[at];
            let flow = &self.flows[id as usize];
            if flow.next.is_some() || flow.parties.iter().all(Option::is_none) {
                continue;
            }
            let share = |at: usize| {
                let resource = &self.resources[flow.crosses[at] as usize];
                resource.left / resource.weight * claim(&self.parties, flow.parties[at])
            };
            let shares = (0..usize::from(flow.count)).map(|at| (share(at), at as u8));
            let least = shares.min_by(|one, other| one.0.total_cmp(&other.0));
            let Some((least, limit)) = least else { continue };
            if least < share(usize::from(which)) * (1.0 - 1e-9) {
                is_any = true;
                self.fix(id, limit, least);
            }
        }
        is_any
    }

    /// A member is to get this rate, and no more because of one of its resources.
    fn fix(&mut self, id: u32, limit: u8, rate: f64) {
        let flow = &mut self.flows[id as usize];
        (flow.next, flow.limit) = (Some(rate), limit);
        for at in 0..usize::from(flow.count) {
            let resource = &mut self.resources[flow.crosses[at] as usize];
            resource.left = (resource.left - rate * flow.weights[at]).max(0.0);
            resource.weight -= flow.weights[at] * claim(&self.parties, flow.parties[at]);
            resource.open -= 1;
        }
    }

    /// A flow goes on at the rate that was worked out.
    fn settle(&mut self, now: Nanos, id: u32) {
        let flow = &mut self.flows[id as usize];
        let Some(rate) = flow.next.take().filter(|rate| *rate != flow.rate) else { return };
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
