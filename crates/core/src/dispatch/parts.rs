//! Orders that are too long for one message.

use super::{Assigned, Order, Prepare};
use crate::data::declared::DataOrder;
use crate::encoded::{
    ASSIGNED_BYTES_MAX, Encoded, HELD_BYTES_MAX, ID_BYTES_MAX, OBJECT_COUNT_BYTES_MAX,
    PARENTS_BYTES_MAX, data_bytes_max, lend_bytes_max, located_bytes_max, peer_bytes_max,
    rows_bytes_max, striped_bytes_max,
};
use crate::gang::GangOrder;
use crate::limits::{ENVELOPE_BYTES_MAX, ORDER_BYTES_MAX, RUN_BYTES_MAX};

impl Order {
    /// The most bytes that the order takes in a message.
    #[must_use]
    pub fn bytes_max(&self) -> u64 {
        let held = (self.cancel.len() + self.disown.len()) as u64 * HELD_BYTES_MAX;
        ENVELOPE_BYTES_MAX
            + self.prepare.iter().map(Prepare::bytes).sum::<u64>()
            + self.assign.iter().map(Assigned::bytes).sum::<u64>()
            + self.forget.len() as u64 * ID_BYTES_MAX
            + self.discard.len() as u64 * RUN_BYTES_MAX
            + held
            + self.gangs.iter().map(GangOrder::bytes).sum::<u64>()
            + self.data.as_ref().map_or(0, |data| data.bytes())
    }

    /// Whether it is too long for one message.
    pub(super) fn is_long(&self) -> bool {
        self.bytes_max() > ORDER_BYTES_MAX
    }

    /// The order as several, in order, each of which has at most
    /// [`ORDER_BYTES_MAX`], or one entry that is longer. Tasks come after their
    /// templates and where their data is, and all that may be about them comes
    /// after them.
    pub(super) fn parts(mut self) -> Vec<Order> {
        let mut parts = Parts { parts: vec![Order::default()], used: ENVELOPE_BYTES_MAX };
        if let Some(data) = self.data.take() {
            parts.add_data(*data);
        }
        for prepare in self.prepare {
            parts.next(prepare.bytes()).prepare.push(prepare);
        }
        for gang in self.gangs {
            parts.next(gang.bytes()).gangs.push(gang);
        }
        for assigned in self.assign {
            parts.next(assigned.bytes()).assign.push(assigned);
        }
        for held in self.cancel {
            parts.next(HELD_BYTES_MAX).cancel.push(held);
        }
        for held in self.disown {
            parts.next(HELD_BYTES_MAX).disown.push(held);
        }
        for batch in self.forget {
            parts.next(ID_BYTES_MAX).forget.push(batch);
        }
        for run in self.discard {
            parts.next(RUN_BYTES_MAX).discard.push(run);
        }
        let last = parts.next(0);
        last.recall = self.recall;
        last.leave = self.leave;
        last.heartbeat_micros = self.heartbeat_micros;
        parts.parts
    }
}

/// The parts that an order is divided into.
struct Parts {
    parts: Vec<Order>,
    /// Bytes of the last one.
    used: u64,
}

impl Parts {
    /// The part that has room for so many bytes more.
    fn next(&mut self, bytes: u64) -> &mut Order {
        if self.used > ENVELOPE_BYTES_MAX && self.used + bytes > ORDER_BYTES_MAX {
            self.used = ENVELOPE_BYTES_MAX;
            self.parts.push(Order::default());
        }
        self.used += bytes;
        let last = self.parts.len() - 1;
        &mut self.parts[last]
    }

    fn next_data(&mut self, bytes: u64) -> &mut DataOrder {
        self.next(bytes).data.get_or_insert_default()
    }

    /// Peers come before all that names them as sources, and the permission to
    /// leave after everything that may still be asked of the executor.
    fn add_data(&mut self, data: DataOrder) {
        for peer in data.peers {
            self.next_data(peer_bytes_max(&peer)).peers.push(peer);
        }
        for demand in data.demand {
            self.next_data(OBJECT_COUNT_BYTES_MAX).demand.push(demand);
        }
        for executor in data.gone {
            self.next_data(ID_BYTES_MAX).gone.push(executor);
        }
        for object in data.drop {
            self.next_data(ID_BYTES_MAX).drop.push(object);
        }
        for object in data.hold {
            self.next_data(ID_BYTES_MAX).hold.push(object);
        }
        for object in data.release {
            self.next_data(ID_BYTES_MAX).release.push(object);
        }
        for parents in data.parents {
            self.next_data(PARENTS_BYTES_MAX).parents.push(parents);
        }
        for lend in data.lend {
            self.next_data(lend_bytes_max(&lend)).lend.push(lend);
        }
        for object in data.take_back {
            self.next_data(ID_BYTES_MAX).take_back.push(object);
        }
        for striped in data.striped {
            self.next_data(striped_bytes_max(striped.1.len())).striped.push(striped);
        }
        if let Some(collects) = data.collects {
            self.next_data(ID_BYTES_MAX).collects = Some(collects);
        }
        for located in data.fetch {
            self.next_data(located_bytes_max(&located)).fetch.push(located);
        }
        if data.may_leave {
            self.next_data(0).may_leave = true;
        }
    }
}

impl DataOrder {
    fn bytes(&self) -> u64 {
        let ids = usize::from(self.collects.is_some())
            + self.gone.len()
            + self.drop.len()
            + self.hold.len()
            + self.release.len();
        let ids = ids + self.take_back.len();
        let striped = self.striped.iter().map(|(_, lenders)| striped_bytes_max(lenders.len()));
        self.peers.iter().map(peer_bytes_max).sum::<u64>()
            + self.fetch.iter().map(located_bytes_max).sum::<u64>()
            + self.demand.len() as u64 * OBJECT_COUNT_BYTES_MAX
            + self.parents.len() as u64 * PARENTS_BYTES_MAX
            + self.lend.iter().map(lend_bytes_max).sum::<u64>()
            + striped.sum::<u64>()
            + ids as u64 * ID_BYTES_MAX
    }
}

impl Prepare {
    fn bytes(&self) -> u64 {
        let everywhere = self.everywhere.encoded_bytes();
        ID_BYTES_MAX + self.template.encoded_bytes() + self.classes.encoded_bytes() + everywhere
    }
}

impl Assigned {
    fn bytes(&self) -> u64 {
        let data = self.data.as_ref().map_or(0, |data| data_bytes_max(data));
        ASSIGNED_BYTES_MAX + rows_bytes_max(&self.rows) + data
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::declared::{Collects, Lend, Located, Peer, Serving};
    use crate::data::object::{Object, ObjectId, Sources};
    use crate::dispatch::{BatchId, Held};
    use crate::gang::{GangKey, GangToken, Member};
    use crate::result::Tries;
    use crate::task::{ExecutorId, InstanceId, Packed, Resources, Rows, TaskId};
    use proptest::prelude::*;
    use std::sync::Arc;

    fn held(number: u64) -> Held {
        Held { instance: InstanceId(1), first: TaskId(number), count: 1, tries: Tries::default() }
    }

    fn located(number: u64) -> Located {
        let object = Object {
            id: ObjectId(u128::from(number)),
            url: "/data/".repeat(40).into(),
            version: "1".into(),
            size: None,
        };
        Located { object, sources: Sources::default() }
    }

    fn assigned(number: u64, row: usize) -> Assigned {
        let mut rows = Packed::default();
        assert!(rows.push(&vec![b'x'; row]));
        Assigned {
            batch: BatchId(number),
            instance: InstanceId(1),
            first: TaskId(number),
            count: 1,
            class: 0,
            tries: Tries::default(),
            rows: Rows::Packed(rows),
            data: None,
        }
    }

    fn form(number: u64, nodes: u64) -> GangOrder {
        let Held { instance, first: task, tries, .. } = held(number);
        let serves = Serving { address: "node:7000".repeat(20), fingerprint: vec![7; 32] };
        let member =
            |id| Member { executor: ExecutorId(id), name: id.to_string(), serves: serves.clone() };
        GangOrder::Form {
            key: GangKey { instance, task, tries },
            index: 0,
            resources: Resources::cpus(1),
            ranks_per_node: 1,
            token: GangToken::default(),
            members: Arc::new((0..nodes).map(member).collect()),
        }
    }

    /// An order with lists of these lengths, and a row of each of these.
    fn order(lengths: [u64; 8], rows: &[usize]) -> Order {
        let [cancel, disown, forget, peers, fetch, demand, drop, release] = lengths;
        let ids = |count| (0..count).map(|number| ObjectId(u128::from(number))).collect();
        let serves = Serving { address: "node:7000".repeat(20), fingerprint: vec![7; 32] };
        let peer = |number| Peer { executor: ExecutorId(number), serves: serves.clone() };
        Order {
            acknowledged: 0,
            prepare: vec![Prepare {
                batch: BatchId(0),
                template: Arc::new(vec![0; 5000]),
                classes: Vec::new(),
                everywhere: None,
            }],
            assign: rows.iter().zip(0..).map(|(row, number)| assigned(number, *row)).collect(),
            recall: 3,
            cancel: (0..cancel).map(held).collect(),
            disown: (0..disown).map(held).collect(),
            forget: (0..forget).map(BatchId).collect(),
            discard: (0..forget).map(|number| (2 * number, 1)).collect(),
            data: Some(Box::new(DataOrder {
                peers: (0..peers).map(peer).collect(),
                fetch: (0..fetch).map(located).collect(),
                demand: (0..demand).map(|number| (ObjectId(u128::from(number)), number)).collect(),
                gone: vec![ExecutorId(9)],
                drop: ids(drop),
                hold: ids(drop / 2),
                release: ids(release),
                parents: ids(release).into_iter().map(|id| (id, vec![ExecutorId(1); 2])).collect(),
                collects: Some(Collects::Other(ExecutorId(7))),
                lend: (0..fetch)
                    .map(|number| Lend { located: located(number), stripes: vec![1; 9], of: 9 })
                    .collect(),
                take_back: ids(drop),
                striped: ids(release).into_iter().map(|id| (id, vec![ExecutorId(1); 9])).collect(),
                may_leave: true,
            })),
            leave: true,
            heartbeat_micros: 4_000_000,
            gangs: (0..forget.min(100)).map(|number| form(number, fetch.min(4096))).collect(),
        }
    }

    /// What an executor makes of several orders, one after another.
    fn joined(parts: Vec<Order>) -> Order {
        let mut whole = Order { data: Some(Box::default()), ..Order::default() };
        for part in parts {
            whole.prepare.extend(part.prepare);
            whole.assign.extend(part.assign);
            whole.cancel.extend(part.cancel);
            whole.disown.extend(part.disown);
            whole.forget.extend(part.forget);
            whole.discard.extend(part.discard);
            whole.gangs.extend(part.gangs);
            whole.recall += part.recall;
            whole.leave |= part.leave;
            whole.heartbeat_micros += part.heartbeat_micros;
            let (Some(into), Some(data)) = (&mut whole.data, part.data) else { continue };
            into.peers.extend(data.peers);
            into.fetch.extend(data.fetch);
            into.demand.extend(data.demand);
            into.gone.extend(data.gone);
            into.drop.extend(data.drop);
            into.hold.extend(data.hold);
            into.release.extend(data.release);
            into.parents.extend(data.parents);
            into.lend.extend(data.lend);
            into.take_back.extend(data.take_back);
            into.striped.extend(data.striped);
            into.collects = into.collects.or(data.collects);
            into.may_leave |= data.may_leave;
        }
        whole
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(16) })]

        #[test]
        fn nothing_of_a_long_order_is_lost_and_no_part_is_too_long(
            lengths in prop::array::uniform8(prop_oneof![3 => 0..100u64, 1 => 0..300_000u64]),
            rows in prop::collection::vec(prop_oneof![4 => 0..1000usize, 1 => 0..9_000_000usize], 0..6),
        ) {
            let whole = order(lengths, &rows);
            let parts = whole.clone().parts();
            for part in &parts {
                let entries = part.prepare.len() + part.assign.len() + part.gangs.len();
                prop_assert!(!part.is_long() || (entries == 1 && part.cancel.is_empty()));
            }
            prop_assert!(joined(parts) == whole, "something was lost");
        }
    }
}
