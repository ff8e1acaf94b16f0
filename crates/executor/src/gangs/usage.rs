//! Usage of a gang's processes, as far as this node knows it, and the processes whose usage is
//! still to come: those that run here, and those that were started on other nodes from here.

use falkon_core::gang::{GangUsage, Member, NodeUsed, UsageLedger};
use falkon_core::result::ResourceUsage;
use falkon_data::peer::remote::Told;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;

/// See the [module](self). The driver and the thread that carries streams share it.
#[derive(Clone, Default)]
pub(super) struct Gathering(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// How many processes have not ended: those here, and those that other nodes were asked for.
    open: watch::Sender<usize>,
}

#[derive(Default)]
struct State {
    ledger: UsageLedger,
    /// The nodes of processes that were asked for and have not ended.
    asked: BTreeMap<u64, u32>,
    next: u64,
}

impl Gathering {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what a node used.
    pub(super) fn add(&self, node: NodeUsed) {
        self.state().ledger.add(node);
    }

    /// Hands over what is known.
    pub(super) fn take(&self) -> Vec<NodeUsed> {
        self.state().ledger.take()
    }

    /// Hands over all, as the last: what is still to come will be missing.
    fn take_last(&self) -> Vec<NodeUsed> {
        let mut state = self.state();
        state.give_up();
        state.ledger.take()
    }

    /// What all nodes used, and each of them, as a result says it. What is still to come is
    /// missing.
    pub(super) fn result(&self, members: &[Member]) -> (Option<ResourceUsage>, GangUsage) {
        let mut state = self.state();
        state.give_up();
        state.ledger.result(members)
    }

    /// A process is started here.
    pub(super) fn started(&self) {
        self.0.open.send_modify(|open| *open += 1);
    }

    /// A process that was started here has ended, and what it used has been taken in.
    pub(super) fn ended(&self) {
        self.0.open.send_modify(|open| *open = open.saturating_sub(1));
    }

    /// Another node is asked for a process, until what is returned is dropped.
    pub(super) fn ask(&self, index: u32) -> AskedOther {
        self.started();
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.asked.insert(number, index);
        AskedOther { gathering: self.clone(), number, tells: false, is_known: false }
    }

    /// Whether more is to come.
    pub(super) fn is_open(&self) -> bool {
        *self.0.open.borrow() > 0
    }

    /// Waits until nothing more is to come, for at most `limit`.
    pub(super) async fn closed(&self, limit: Duration) {
        let mut open = self.0.open.subscribe();
        // The sender is held here.
        let _ = tokio::time::timeout(limit, open.wait_for(|open| *open == 0)).await;
    }

    /// Waits until nothing more is to come, for at most `limit`, and hands over all.
    pub(super) async fn close(&self, limit: Duration) -> Vec<NodeUsed> {
        self.closed(limit).await;
        self.take_last()
    }
}

impl State {
    fn give_up(&mut self) {
        for index in self.asked.values() {
            self.ledger.add(NodeUsed::missing(*index));
        }
    }
}

/// A process that another node was asked for.
pub(super) struct AskedOther {
    gathering: Gathering,
    number: u64,
    /// The node tells what was used.
    tells: bool,
    /// Nothing of it is missing.
    is_known: bool,
}

impl AskedOther {
    /// The node has told something.
    pub(super) fn hear(&mut self, told: Told) {
        match told {
            Told::Used(nodes) => {
                self.tells = true;
                let mut state = self.gathering.state();
                nodes.into_iter().for_each(|node| state.ledger.add(node));
            }
            Told::Exited => self.is_known = self.tells,
            Told::Refused => self.is_known = true,
        }
    }
}

impl Drop for AskedOther {
    fn drop(&mut self) {
        {
            let mut state = self.gathering.state();
            let index = state.asked.remove(&self.number);
            if let Some(index) = index.filter(|_| !self.is_known) {
                state.ledger.add(NodeUsed::missing(index));
            }
        }
        self.gathering.ended();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(user_micros: u64) -> NodeUsed {
        let used = Some(ResourceUsage { user_micros, ..ResourceUsage::default() });
        NodeUsed { index: 1, used, is_missing: false, ranks: Vec::new() }
    }

    #[test]
    fn a_node_is_missing_unless_it_has_told_all() {
        let gathering = Gathering::default();
        let cases: [(&[Told], Vec<NodeUsed>); 5] = [
            (&[], vec![NodeUsed::missing(1)]),
            (&[Told::Refused], vec![]),
            // A release of protocol 8 tells nothing.
            (&[Told::Exited], vec![NodeUsed::missing(1)]),
            (&[Told::Used(vec![]), Told::Used(vec![used(5)]), Told::Exited], vec![used(5)]),
            (
                &[Told::Used(vec![]), Told::Used(vec![used(5)])],
                vec![NodeUsed { is_missing: true, ..used(5) }],
            ),
        ];
        for (told, expected) in cases {
            let mut asked = gathering.ask(1);
            assert!(gathering.is_open());
            told.iter().for_each(|told| asked.hear(told.clone()));
            drop(asked);
            assert!(!gathering.is_open());
            assert_eq!(gathering.take(), expected, "{told:?}");
        }
    }

    #[test]
    fn what_is_late_is_missing_and_holds_nothing_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let gathering = Gathering::default();
        let mut prompt = gathering.ask(1);
        let late = gathering.ask(2);
        prompt.hear(Told::Used(vec![used(7)]));
        prompt.hear(Told::Exited);
        drop(prompt);
        let handed = runtime.block_on(gathering.close(Duration::ZERO));
        assert_eq!(handed, [used(7), NodeUsed::missing(2)]);
        drop(late);
        // What has ended is waited for no longer.
        runtime.block_on(gathering.closed(Duration::MAX));
    }
}
