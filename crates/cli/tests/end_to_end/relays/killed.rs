//! Relays behind one another that are killed, stand still, and lose their directories.

use super::{ROUND_RESULTS, ROUNDS, Relay, wait_for_nodes};
use crate::fixture::{Access, Random, Running, Site, indices, json_lines, poll};
use falkon_trials::trial;
use rustix::process::Signal;

/// Whether a dispatcher lists an executor or relay of this name.
fn lists(access: &Access<'_>, name: &str) -> bool {
    let status = access.status();
    let executors = status["executors"].as_array().unwrap();
    executors.iter().any(|executor| executor["name"] == name)
}

/// A relay with its executor.
struct Cluster<'a> {
    relay: Relay<'a>,
    executor: Running,
}

impl<'a> Cluster<'a> {
    fn start(site: &'a Site, name: &'static str, upstream: &str) -> Cluster<'a> {
        let relay = Relay::start(site, name, upstream);
        let executor = relay.executor(&format!("{name}-1"), "2");
        Cluster { relay, executor }
    }

    /// Its relay stands still until the dispatcher above has given it up.
    fn stall(&self, above: &Access<'_>) {
        let running = self.relay.running.as_ref().expect("the relay runs");
        running.signal(Signal::STOP);
        poll("the loss of a relay", || !lists(above, self.relay.name));
        running.signal(Signal::CONT);
    }

    /// Its relay is killed and starts without its directory, and so do its executors.
    fn start_anew(&mut self) {
        self.relay.take().kill();
        std::fs::remove_dir_all(self.relay.site.path(self.relay.name)).unwrap();
        let (site, name) = (self.relay.site, self.relay.name);
        self.relay = Relay::start(site, name, &self.relay.upstream);
        let executor = self.relay.executor(&format!("{name}-1"), "2");
        std::mem::replace(&mut self.executor, executor).kill();
    }
}

#[trial]
fn results_come_once_through_tiers_whose_relays_are_killed_stand_still_and_start_anew() {
    let rounds = std::env::var("FALKON_ROUNDS").map_or(ROUNDS, |text| text.parse().unwrap());
    let mut random = Random::seeded("results_come_once_through_tiers");
    // Each kind of fault comes in each run.
    let events = rounds.max(4);
    let tasks = events * ROUND_RESULTS * 3 / 2;
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let mut upper = Cluster::start(&site, "upper", dispatcher.access().file());
    let upstream = upper.relay.access().file().to_owned();
    let mut lower = ["left", "right"].map(|name| Cluster::start(&site, name, &upstream));
    wait_for_nodes(&dispatcher, &[("upper", 3)]);

    let range = format!("0-{}", tasks - 1);
    let submit = ["--wait", "--json", "--range", &range, "--", "echo", "{}"];
    let client = dispatcher.access().start("submit", &submit);
    let first = random.below(4);
    for round in 0..events {
        client.wait_for_lines(((round + 1) * ROUND_RESULTS / 2) as usize);
        let one = random.below(2) as usize;
        match (first + round) % 4 {
            0 => upper.relay.kill_and_restart(),
            1 => lower[one].relay.kill_and_restart(),
            2 if random.below(2) == 0 => upper.stall(&dispatcher.access()),
            2 => lower[one].stall(&upper.relay.access()),
            _ => lower[one].start_anew(),
        }
    }
    let ran = client.finish().exits(0);
    let expected: Vec<u64> = (0..tasks).collect();
    assert_eq!(indices(ran.text()), expected, "results are missing, or there twice");
    for result in json_lines(ran.text()) {
        assert_eq!(result["status"], "done", "{result}");
        assert_eq!(result["stdout"], format!("{}\n", result["index"]), "{result}");
    }
    for cluster in lower.iter().chain([&upper]) {
        poll("the end of all tasks below", || {
            let status = cluster.relay.access().status();
            let instance = &status["instances"][0];
            instance["ready"] == 0 && instance["dispatched"] == 0
        });
    }
}
