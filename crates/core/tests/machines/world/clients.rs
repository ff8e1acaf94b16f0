//! Clients: their requests and what they are answered.

use super::World;
use super::links::{Down, Peer, Up};
use crate::fates::check_detail;
use falkon_core::dispatch::{ConnectionId, Event};

impl World {
    pub(super) fn tend_client(&mut self, index: usize) {
        self.clients[index].wake_at = None;
        if self.clients[index].connection.is_none() {
            let id = self.connect(Peer::Client(index));
            self.clients[index].connection = Some(id);
        }
        let Some(id) = self.clients[index].connection else { return };
        if let Some(event) = self.clients[index].request(&mut self.rng) {
            self.send_up(id, Up::Event(Box::new(event)));
        }
    }

    pub(super) fn client_hears(&mut self, index: usize, id: u64, down: Down) {
        let client = &mut self.clients[index];
        match down {
            Down::Reply(request, reply) => {
                client.reply(request, reply);
                if let Some(instance) = client.instance {
                    self.of_instance.insert(instance, index);
                }
                let pause = if self.rng.percent(50) { 1_000 } else { client.plan.pause_micros };
                client.wake_at = Some(self.now.after(self.rng.below(pause)));
            }
            Down::Delivery(delivery) => {
                let written = Event::Written { connection: ConnectionId(id), messages: 1 };
                self.dispatcher.handle(self.now, written);
                for found in &delivery.results {
                    check_detail(index, &client.plan.tasks, found);
                    let name =
                        delivery.executors.iter().find(|(id, _)| found.executor == Some(*id));
                    let incarnation = name.and_then(|(_, name)| name.strip_prefix("node-"));
                    let incarnation = incarnation.map(|number| number.parse().unwrap());
                    for task in found.first.0..found.first.0 + found.count {
                        let history = self.history.entry((index, task)).or_default();
                        history.check(task, found, incarnation);
                    }
                }
                client.receive(&delivery);
                let last = delivery.complete || self.rng.percent(70);
                let upto = client.log.len() as u64;
                let connection = ConnectionId(id);
                let instance = delivery.instance;
                if last {
                    let event = Event::Acknowledge { connection, instance, upto };
                    self.send_up(id, Up::Event(Box::new(event)));
                }
            }
            Down::Closed => {
                client.disconnected();
                client.wake_at = Some(self.now.after(self.rng.below(1_000_000)));
                self.close_towards(id, false);
            }
            Down::Order(order) => panic!("a client was sent {order:?}"),
        }
    }
}
