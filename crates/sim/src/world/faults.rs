//! Things break, as the seed says.

use super::World;
use super::connections::Who;
use super::error::Broken;
use crate::event_queue::Event;
use crate::time::Nanos;
use falkon_core::dispatch::Record;
use falkon_core::task::Time;
use falkon_wire::codec::Wire;

#[derive(Debug, Clone, Copy)]
enum Fault {
    NodeCrash,
    Cut,
    Partition,
    DispatcherCrash,
    RelayCrash,
    FileLoss,
    DiskHang,
    DiskFull,
}

impl World<'_> {
    /// What breaks, and how often: faults per nanosecond.
    fn fault_rates(&self) -> impl Iterator<Item = (Fault, f64)> + use<> {
        let faults = self.scenario.faults;
        [
            (Fault::NodeCrash, faults.node_crash),
            (Fault::Cut, faults.cut),
            (Fault::Partition, faults.partition),
            (Fault::DispatcherCrash, faults.dispatcher_crash),
            (Fault::RelayCrash, faults.relay_crash),
            (Fault::FileLoss, faults.file_loss),
            (Fault::DiskHang, faults.disk_hang),
            (Fault::DiskFull, faults.disk_full),
        ]
        .into_iter()
        .filter_map(|(fault, mean)| mean.map(|mean| (fault, 1.0 / mean.0 as f64)))
    }

    /// Plans the next fault, if there will be one.
    pub(super) fn plan_fault(&mut self) {
        let rate: f64 = self.fault_rates().map(|(_, rate)| rate).sum();
        if rate <= 0.0 {
            return;
        }
        let mean = Nanos((1.0 / rate) as u64);
        let at = self.events.now.after(self.rng.exponential(mean));
        if self.scenario.faults.until.is_none_or(|until| at <= until) {
            self.events.plan(at, Event::Fault);
        }
    }

    pub(super) fn fault(&mut self) -> Result<(), Broken> {
        let all: f64 = self.fault_rates().map(|(_, rate)| rate).sum();
        let mut drawn = self.rng.fraction() * all;
        let mut chosen = None;
        for (fault, rate) in self.fault_rates() {
            chosen = Some(fault);
            drawn -= rate;
            if drawn < 0.0 {
                break;
            }
        }
        match chosen {
            Some(Fault::NodeCrash) => {
                let node = self.rng.below(self.nodes.len() as u64) as u32;
                self.crash_node(node)?;
            }
            Some(Fault::Cut) => self.cut(),
            Some(Fault::Partition) => self.partition(),
            Some(Fault::DispatcherCrash) => self.crash_dispatcher()?,
            Some(Fault::RelayCrash) => self.crash_relay()?,
            Some(Fault::FileLoss) => self.lose_file(),
            Some(Fault::DiskHang) => self.hang_disk(),
            Some(Fault::DiskFull) => self.fill_disk(),
            None => {}
        }
        self.plan_fault();
        Ok(())
    }

    /// A node is gone with all that ran there; it may come back.
    fn crash_node(&mut self, number: u32) -> Result<(), Broken> {
        let now = self.events.now;
        let down = self.scenario.faults.node_down;
        let node = &mut self.nodes[number as usize];
        let is_out = self.scenario.provision.is_some() && node.lease.is_none();
        if node.down_until > now || is_out {
            return Ok(());
        }
        self.measured.faults += 1;
        // The process died and its kernel says so; or the machine did, and
        // nobody says anything.
        let is_silent = self.rng.fraction() >= 0.5;
        self.stop_node(number, is_silent)?;
        self.nodes[number as usize].down_until = Nanos(u64::MAX);
        if down > Nanos(0) {
            self.nodes[number as usize].down_until = now.after(down);
            self.events.plan(now.after(down), Event::NodeConnects(number));
        }
        Ok(())
    }

    /// A connection is lost, with what is under way to the dispatcher after
    /// its end has noticed; either end may notice first.
    fn cut(&mut self) {
        let dispatcher = self.rng.below(self.dispatchers.len() as u64) as u32;
        let peers = &self.dispatchers[dispatcher as usize].peers;
        let connection = self.rng.below(peers.len() as u64);
        let Some(peer) = peers.get(connection as usize).filter(|peer| peer.is_open) else {
            return;
        };
        let who = peer.who;
        if matches!(who, Who::Owner(_)) {
            return;
        }
        self.measured.faults += 1;
        let longest = Nanos(self.scenario.network.latency.0.saturating_mul(4));
        let here = self.events.now.after(self.rng.span(longest));
        let there = self.events.now.after(self.rng.span(longest));
        self.close_at_dispatcher(dispatcher, connection, here);
        match who {
            Who::Node(node) => self.events.plan(there, Event::NodeCut { node, connection }),
            Who::Client(client) => {
                self.events.plan(there, Event::ClientCut { client, connection });
            }
            Who::Relay(relay) => self.events.plan(there, Event::RelayCut { relay, connection }),
            Who::Owner(_) => {}
        }
    }

    /// Some nodes and relays are out of reach for a while.
    fn partition(&mut self) {
        self.measured.faults += 1;
        let until = self.events.now.after(self.scenario.faults.partition_length);
        for at in 0..self.nodes.len() {
            if self.rng.fraction() < self.scenario.faults.partition_share {
                let node = &mut self.nodes[at];
                node.cut_off_until = node.cut_off_until.max(until);
            }
        }
        for relay in &mut self.relays {
            if self.rng.fraction() < self.scenario.faults.partition_share {
                relay.cut_off_until = relay.cut_off_until.max(until);
            }
        }
    }

    /// A node's disk does not answer for a while.
    fn hang_disk(&mut self) {
        self.measured.faults += 1;
        let until = self.events.now.after(self.scenario.faults.disk_hang_length);
        let number = self.rng.below(self.nodes.len() as u64) as usize;
        let node = &mut self.nodes[number];
        node.disk_hangs_until = node.disk_hangs_until.max(until);
    }

    /// A dispatcher cannot write for a while.
    fn fill_disk(&mut self) {
        self.measured.faults += 1;
        let until = self.events.now.after(self.scenario.faults.disk_full_length);
        let number = self.rng.below(self.clients.len() as u64) as usize;
        let nearly = self.rng.fraction() < 0.5;
        self.dispatchers[number].journal.fill(until, nearly);
    }

    /// `kill -9`, and later a process that knows the journal.
    fn crash_dispatcher(&mut self) -> Result<(), Broken> {
        let now = self.events.now;
        let number = self.rng.below(self.clients.len() as u64) as u32;
        if self.dispatchers[number as usize].down_until > now {
            return Ok(());
        }
        self.measured.faults += 1;
        let back = now.after(self.scenario.faults.dispatcher_down).after(Nanos(1));
        self.restart_dispatcher(number, back)?;
        self.restart_provisioner();
        Ok(())
    }

    /// A dispatcher's process ends, and another one goes on from the journal.
    pub(super) fn restart_dispatcher(&mut self, number: u32, back: Nanos) -> Result<(), Broken> {
        let now = self.events.now;
        let host = &self.dispatchers[number as usize];
        let open: Vec<u64> = (0..host.peers.len() as u64)
            .filter(|connection| host.peers[*connection as usize].is_open)
            .collect();
        let noticed = now.after(self.scenario.network.latency);
        for connection in open {
            self.close_at_peer(number, connection, noticed);
        }
        let step = match self.scenario.faults.clock_step {
            Nanos(0) => Nanos(0),
            most => self.rng.span(most),
        };
        let written = self.rng.fraction();
        let wall = Time(back.core().0.saturating_sub(step.core().0));
        let host = &mut self.dispatchers[number as usize];
        host.crash(now, back, written);
        let mut core = host.pages.new_core();
        for bytes in host.journal.records() {
            let record = Record::from_bytes(bytes)
                .map_err(|error| format!("a journal record is none: {error}"))?;
            core.recover(record).map_err(|error| format!("the journal is wrong: {error}"))?;
            let is_tight = host.journal.is_tight(back);
            host.pages.store_recovering(&mut core, wall, is_tight);
        }
        core.recovered(wall);
        // The clock goes on from the journal's time if it is behind that.
        host.clock.reads(back, core.now());
        host.pages.keep(&core);
        host.acts.restarted(core.now(), &mut core);
        host.core = core;
        self.wake_dispatcher(number);
        Ok(())
    }
}
