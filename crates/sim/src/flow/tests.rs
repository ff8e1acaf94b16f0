//! Rates against a brute-force reference.

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

/// Random networks: each node has a link in each direction, some have a disk, and all
/// share a store. The test applies changes to one machine, sometimes several at a time,
/// and compares its rates with those of a machine that is built anew from all flows.
#[test]
fn rates_after_changes_are_those_of_a_machine_that_works_all_out_at_once() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let nodes = 2 + rng.below(if seed % 4 == 0 { 60 } else { 12 }) as usize;
        let capacity = |rng: &mut Rng| match seed % 2 {
            0 => 140.0,
            _ => 1.0 + rng.below(300) as f64,
        };
        let capacities: Vec<f64> = (0..=3 * nodes).map(|_| capacity(&mut rng)).collect();
        let machine = || {
            let mut flows = Flows::default();
            for capacity in &capacities {
                flows.add_resource(*capacity);
            }
            flows
        };
        let mut flows = machine();
        let mut live: Vec<(FlowId, Vec<Crossing>)> = Vec::new();
        for step in 0..150u64 {
            for _ in 0..1 + rng.below(3) {
                if live.len() > 3 * nodes || (!live.is_empty() && rng.below(5) < 2) {
                    let at = rng.below(live.len() as u64) as usize;
                    flows.end(live.swap_remove(at).0);
                    continue;
                }
                let (from, to) = (rng.below(nodes as u64), rng.below(nodes as u64));
                let mut crosses = match rng.below(8) {
                    0 => vec![ResourceId(0), ResourceId(2 + 3 * to as u32)],
                    _ => vec![ResourceId(1 + 3 * from as u32), ResourceId(2 + 3 * to as u32)],
                };
                if rng.below(6) == 0 {
                    crosses.push(ResourceId(3 + 3 * to as u32));
                }
                let mut weigh = |resource: ResourceId| match rng.below(4) {
                    0 => resource.weighing(0.5 + rng.below(4) as f64 / 2.0),
                    _ => resource.into(),
                };
                let crosses: Vec<Crossing> = crosses.into_iter().map(&mut weigh).collect();
                live.push((flows.begin(Nanos(step), 1e12, &crosses, 0), crosses));
            }
            flows.share_out_again(Nanos(step));
            let mut anew = machine();
            let begin =
                |(_, crosses): &(FlowId, Vec<Crossing>)| anew.begin(Nanos(step), 1e12, crosses, 0);
            let ids: Vec<FlowId> = live.iter().map(begin).collect();
            anew.share_out_again(Nanos(step));
            for ((id, _), other) in live.iter().zip(ids) {
                let (rate, expected) = (flows.rate(*id), anew.rate(other));
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
    let begin = |flows: &mut Flows, crosses: &[Crossing]| flows.begin(Nanos(0), 1e9, crosses, 0);
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
