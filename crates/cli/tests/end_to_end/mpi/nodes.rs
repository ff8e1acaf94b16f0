//! Nodes of a cluster: network namespaces with names of their own, at one switch.

use crate::fixture::{Dispatcher, Running, Site};
use falkon_trials::skip;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Clusters that one process of tests can have; those of different processes at the same time
/// seldom have the same numbers.
const CLUSTERS_MAX: u32 = 64;

/// Some nodes; gone when dropped.
pub(super) struct Nodes {
    /// A part of the names of namespaces, bridges and hosts.
    number: u32,
    pub(super) names: Vec<String>,
}

/// Runs a command of the system, silently; whether it succeeds.
fn system(words: &str) -> bool {
    let mut words = words.split(' ');
    let mut command = Command::new(words.next().unwrap());
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

impl Nodes {
    pub(super) fn new(count: usize) -> Nodes {
        static CLUSTERS: AtomicU32 = AtomicU32::new(0);
        let cluster = CLUSTERS.fetch_add(1, Ordering::Relaxed);
        assert!(cluster < CLUSTERS_MAX, "clusters have no more numbers");
        let number = (std::process::id() * CLUSTERS_MAX + cluster) % (1 << 14);
        let names = (1..=count).map(|at| format!("fk{number}-{at}")).collect();
        let nodes = Nodes { number, names };
        // Of an earlier run that was killed.
        nodes.remove();
        if !nodes.make() {
            skip("network namespaces cannot be made here");
        }
        nodes
    }

    fn address(&self, at: usize) -> String {
        format!("10.{}.{}.{}", 64 + self.number / 256, self.number % 256, at + 1)
    }

    /// Where the dispatcher listens.
    pub(super) fn listen(&self) -> String {
        format!("{}:0", self.address(0))
    }

    fn make(&self) -> bool {
        let switch = format!("fk{}", self.number);
        let mut all = system(&format!("ip link add {switch} type bridge"))
            && system(&format!("ip addr add {}/24 dev {switch}", self.address(0)))
            && system(&format!("ip link set {switch} up"));
        let hosts = self.names.iter().enumerate();
        let hosts: String =
            hosts.map(|(at, name)| format!("{} {name}\n", self.address(at + 1))).collect();
        for (at, name) in self.names.iter().enumerate() {
            let folder = format!("/etc/netns/{name}");
            all = all
                && std::fs::create_dir_all(&folder).is_ok()
                && std::fs::write(
                    format!("{folder}/hosts"),
                    format!("127.0.0.1 localhost\n{hosts}"),
                )
                .is_ok()
                && system(&format!("ip netns add {name}"))
                && system(&format!("ip link add {name}v type veth peer name eth0 netns {name}"))
                && system(&format!("ip link set {name}v master {switch} up"))
                && system(&format!("ip -n {name} addr add {}/24 dev eth0", self.address(at + 1)))
                && system(&format!("ip -n {name} link set eth0 up"))
                && system(&format!("ip -n {name} link set lo up"))
                && system(&format!("ip netns exec {name} unshare --uts hostname {name}"));
        }
        all
    }

    fn remove(&self) {
        for name in &self.names {
            system(&format!("ip netns del {name}"));
            // A namespace goes later, when its last process has ended.
            system(&format!("ip link del {name}v"));
            let _ = std::fs::remove_dir_all(format!("/etc/netns/{name}"));
        }
        system(&format!("ip link del fk{}", self.number));
    }

    /// The words before a command that is to run on a node.
    pub(super) fn on(name: &str) -> [&str; 9] {
        let become_host = "hostname \"$0\"; exec \"$@\"";
        ["ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c", become_host]
    }

    /// A command on a node.
    pub(super) fn command(site: &Site, name: &str, words: &[&str]) -> Command {
        let on = Nodes::on(name);
        let mut command = site.program(on[0]);
        command.args(&on[1..]).arg(name).args(words);
        command
    }

    /// Starts an executor of two slots on each node.
    pub(super) fn executors(&self, site: &Site, dispatcher: &Dispatcher<'_>) -> Vec<Running> {
        let start = |name: &String| Nodes::executor(site, dispatcher, name);
        self.names.iter().map(start).collect()
    }

    /// Starts the executor of a node, and waits until the dispatcher has it.
    pub(super) fn executor(site: &Site, dispatcher: &Dispatcher<'_>, name: &str) -> Running {
        let access = dispatcher.access();
        let falkon = env!("CARGO_BIN_EXE_falkon");
        let words = [falkon, "executor", "--access", access.file(), "--name", name, "--slots", "2"];
        let mut command = Nodes::command(site, name, &words);
        // As in a job of a batch scheduler, under a launcher.
        command.envs([("SLURM_JOB_ID", "7"), ("PMI_RANK", "1"), ("OMPI_COMM_WORLD_RANK", "1")]);
        let executor = Running::start(command);
        dispatcher.service().wait_for(&format!("executor {name} joined"));
        executor
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.remove();
    }
}
