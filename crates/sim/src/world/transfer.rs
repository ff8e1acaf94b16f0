//! Transfers of data objects: from the persistent store to a node.
//!
//! A transfer waits for its turn at the store if that begins only so many per
//! second, then for the store's operation and the network's latency, and then
//! flows, sharing the store's bandwidth and the node's link with others.

use super::World;
use crate::agenda::Event;
use crate::flow::{FlowId, Flows, ResourceId};
use crate::scenario::Scenario;
use crate::time::Nanos;
use falkon_core::execute::TaskKey;

/// A transfer under way. Numbers are never used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TransferId(pub(crate) u64);

/// What the end of a transfer means.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ends {
    /// A process has read an input.
    Read { node: u32, key: TaskKey, object: u64 },
}

#[derive(Debug)]
struct Transfer {
    id: TransferId,
    node: u32,
    bytes: u64,
    ends: Ends,
    flow: Option<FlowId>,
}

pub(super) struct Transfers {
    flows: Flows,
    store: Option<ResourceId>,
    /// Each node's link, towards it.
    links: Vec<ResourceId>,
    /// By place, which a number has in its lower half.
    open: Vec<Option<Transfer>>,
    free: Vec<u32>,
    /// Tells the uses of a place apart.
    uses: u32,
    /// When the store may begin its next operation.
    store_free_at: Nanos,
    /// When transfers are looked at next.
    planned: Option<Nanos>,
}

impl Transfers {
    pub(super) fn new(scenario: &Scenario, nodes: usize) -> Transfers {
        let mut flows = Flows::default();
        let (mut store, mut links) = (None, Vec::new());
        if scenario.workload.inputs.is_some() {
            store = Some(flows.add_resource(scenario.store.bytes_per_s));
            let link = scenario.network.node_bytes_per_s;
            links.extend((0..nodes).map(|_| flows.add_resource(link)));
        }
        Transfers {
            flows,
            store,
            links,
            open: Vec::new(),
            free: Vec::new(),
            uses: 0,
            store_free_at: Nanos(0),
            planned: None,
        }
    }

    fn place(&self, id: TransferId) -> Option<usize> {
        let place = (id.0 & u64::from(u32::MAX)) as usize;
        self.open.get(place)?.as_ref().filter(|transfer| transfer.id == id).map(|_| place)
    }

    fn add(&mut self, node: u32, bytes: u64, ends: Ends) -> TransferId {
        let place = self.free.pop().unwrap_or_else(|| {
            self.open.push(None);
            self.open.len() as u32 - 1
        });
        self.uses = self.uses.wrapping_add(1);
        let id = TransferId(u64::from(self.uses) << 32 | u64::from(place));
        self.open[place as usize] = Some(Transfer { id, node, bytes, ends, flow: None });
        id
    }

    fn remove(&mut self, place: usize) -> Option<Transfer> {
        self.free.push(place as u32);
        self.open[place].take()
    }
}

impl World<'_> {
    /// Reads an object from the persistent store, from `at` on.
    pub(super) fn read_store(
        &mut self,
        at: Nanos,
        node: u32,
        bytes: u64,
        ends: Ends,
    ) -> TransferId {
        let store = &self.scenario.store;
        let mut begins = at;
        if let Some(rate) = store.operations_per_s {
            begins = begins.max(self.transfers.store_free_at);
            self.transfers.store_free_at = begins.after(Nanos::from_seconds(1.0 / rate));
        }
        let latency = self.scenario.network.latency;
        let opens = begins.after(store.operation).after(latency).after(latency);
        let opens = opens.max(self.nodes[node as usize].cut_off_until);
        let id = self.transfers.add(node, bytes, ends);
        self.agenda.plan(opens, Event::TransferOpens(id));
        id
    }

    /// Nobody waits for a transfer any more.
    pub(super) fn abandon(&mut self, id: TransferId) {
        if let Some(place) = self.transfers.place(id)
            && let Some(transfer) = self.transfers.remove(place)
            && let Some(flow) = transfer.flow
        {
            self.transfers.flows.end(flow);
        }
    }

    pub(super) fn transfer_opens(&mut self, id: TransferId) {
        let transfers = &mut self.transfers;
        let Some(place) = transfers.place(id) else { return };
        let (Some(store), Some(transfer)) = (transfers.store, transfers.open[place].as_mut())
        else {
            return;
        };
        let crosses = [store, transfers.links[transfer.node as usize]];
        let bytes = transfer.bytes as f64;
        let flow = transfers.flows.begin(self.agenda.now, bytes, &crosses, place as u64);
        transfer.flow = Some(flow);
    }

    pub(super) fn transfers_due(&mut self) {
        let now = self.agenda.now;
        if self.transfers.planned == Some(now) {
            self.transfers.planned = None;
        }
        while let Some(place) = self.transfers.flows.complete(now) {
            let Some(transfer) = self.transfers.remove(place as usize) else { continue };
            self.measured.store.objects += 1;
            self.measured.store.bytes += transfer.bytes;
            let Ends::Read { node, key, object } = transfer.ends;
            if let Some(read) = self.measured.objects.get_mut(object as usize) {
                self.measured.different += u64::from(!std::mem::replace(read, true));
            }
            self.has_read(node, key);
        }
    }

    /// Works out rates that have changed, and when the next transfer is
    /// complete.
    pub(super) fn settle_transfers(&mut self) {
        self.transfers.flows.settle(self.agenda.now);
        let Some(due) = self.transfers.flows.next_due() else { return };
        if self.transfers.planned.is_none_or(|planned| due < planned) {
            self.transfers.planned = Some(due);
            self.agenda.plan(due, Event::TransfersDue);
        }
    }
}
