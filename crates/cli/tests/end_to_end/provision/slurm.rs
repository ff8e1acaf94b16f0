//! Against a real Slurm.

use super::{allocations, prefix_of, provisioned, run_some, wait_for_none};
use crate::fixture::{Access, Daemons, Site, poll_for};
use falkon_trials::trial;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;

/// A site with a Slurm of its own.
struct Slurm {
    site: Site,
    daemons: Daemons,
}

impl Slurm {
    fn start(nodes: &str) -> Slurm {
        let mut site = Site::new();
        let home = site.text("slurm");
        let daemons = Daemons::start(&site, "slurm.sh", &[&home, nodes, "2"]);
        site.set("SLURM_CONF", &format!("{home}/slurm.conf"));
        Slurm { site, daemons }
    }

    /// Its jobs that are not over: number and state.
    fn jobs(&self) -> Vec<(String, String)> {
        let mut squeue = self.site.program("/usr/bin/squeue");
        squeue.args(["--noheader", "--format=%i %T"]);
        let said = String::from_utf8(squeue.output().unwrap().stdout).unwrap();
        let words = said.lines().filter_map(|line| line.split_once(' '));
        words.map(|(job, state)| (job.to_owned(), state.to_owned())).collect()
    }

    #[track_caller]
    fn wait_for_no_jobs(&self) {
        poll_for("no job is left", || self.jobs().is_empty().then_some(()));
    }

    fn run(&self, program: &str, args: &[&str]) {
        let mut command = self.site.program(program);
        assert!(command.args(args).status().unwrap().success());
    }

    fn queue(&self, name: &str, more: &str) -> String {
        let text = format!(
            "kind = \"slurm\"\nnodes_max = 3\nidle = 2\nrelease = \"idle\"\nquery_interval = 0.5\n\
             delay = 1\nwalltime = 600\n{more}"
        );
        self.site.write(name, text)
    }
}

/// A failed test shows the state and the log of its Slurm.
impl Drop for Slurm {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let log = self.site.text("slurm/log/slurmctld.log");
        let asked: [(&str, &[&str]); 3] = [
            ("squeue", &["--long"]),
            ("sinfo", &["--Node", "--long"]),
            ("tail", &["-n", "40", &log]),
        ];
        for (program, args) in asked {
            let said = self.site.program(program).args(args).output();
            let said = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned());
            eprintln!("{program}:\n{}", said.unwrap_or_else(|error| error.to_string()));
        }
    }
}

#[trial]
fn nodes_of_slurm_come_and_go_with_the_tasks() {
    let mut slurm = Slurm::start("3");
    // One at a time, so that a node is of use where two are not to be had.
    let queue = slurm.queue("q.toml", "acquire = \"one-at-a-time\"\n");
    let site = &slurm.site;
    let mut dispatcher = site.dispatcher("d", &["--provision", &queue]);
    let access = dispatcher.access();

    // It grows as tasks come, and shrinks when they have ended.
    let results = run_some(&access, 40);
    let prefix = prefix_of(&dispatcher);
    for result in &results {
        assert!(result["executor"].as_str().unwrap().starts_with(&prefix), "{result}");
    }
    // No more than was granted: two CPUs of each node.
    let said = dispatcher.service().said();
    assert!(said.contains(" joined with 2 cpus"), "{said}");
    wait_for_none(&access);
    slurm.wait_for_no_jobs();

    // Nodes that are drained are done without.
    slurm.run("scontrol", &["update", "nodename=n1,n2", "state=drain", "reason=test"]);
    run_some(&access, 4);
    slurm.run("scontrol", &["update", "nodename=n1,n2", "state=resume"]);
    wait_for_none(&access);

    // A job that somebody cancels costs nothing but its time.
    let id = access.submit(&["--range", "1-6", "--retries", "0", "--", "sleep", "1.5"]);
    let job = poll_for("a job runs", || {
        let running = slurm.jobs().into_iter().find(|(_, state)| state == "RUNNING");
        running.filter(|_| allocations(&access).iter().any(|one| one["executors"] != 0))
    });
    slurm.run("scancel", &[&job.0]);
    access.run("wait", &[&id, "--quiet"]).exits(0);

    // What runs is found again after a crash, and used: no task runs twice.
    let mut signals = site.signals("signals");
    let mut gate = site.gate("gate");
    let command = format!("echo on > {}; read line < {}", signals.path(), gate.path());
    let id = access.submit(&["--range", "1-2", "--", "sh", "-c", &command]);
    assert_eq!(signals.take(2), ["on", "on"]);
    let before = allocations(&access);
    dispatcher.kill();
    dispatcher.start();
    poll_for("the allocations are there again", || {
        (!allocations(&access).is_empty()).then_some(())
    });
    gate.let_through(2);
    access.run("wait", &[&id, "--quiet"]).exits(0);
    for result in access.results(&id) {
        let name = result["executor"].as_str().unwrap();
        let is_of = |one: &Value| name.starts_with(&format!("{prefix}q-{}/", one["id"]));
        assert!(before.iter().any(is_of), "{name} is of none of {before:?}");
        assert_eq!(result["attempts"], 1);
    }
    wait_for_none(&access);
    slurm.wait_for_no_jobs();

    // A node whose daemon dies takes no task's result with it, and is done
    // without until it is back.
    let id = access.submit(&["--range", "1-6", "--retries", "0", "--", "sleep", "1"]);
    poll_for("a job has executors", || {
        allocations(&access).iter().any(|one| one["executors"] != 0).then_some(())
    });
    slurm.daemons.tell("stop n1");
    access.run("wait", &[&id, "--quiet"]).exits(0);
    slurm.daemons.tell("start n1");
    wait_for_none(&access);
    slurm.wait_for_no_jobs();

    // Static: so many nodes, whatever there is to do.
    access.run("provision", &["once", "q", "--nodes", "2", "--time", "3m"]).exits(0);
    poll_for("both nodes have come", || {
        allocations(&access).iter().any(|one| one["executors"] == 2).then_some(())
    });
    let shown = access.run("provision", &["show", "q"]).exits(0);
    assert!(shown.text().contains("stays until its walltime ends"), "{shown}");

    // The controller goes away while more is asked for than there is, and comes
    // back: nobody is any the worse.
    access.run("provision", &["once", "q", "--nodes", "3"]).exits(0);
    poll_for("the second request is known to Slurm", || {
        allocations(&access).iter().any(|one| one["state"] == "pending").then_some(())
    });
    slurm.daemons.tell("stop slurmctld");
    dispatcher.service().wait_for("queries in a row failed");
    run_some(&access, 4);
    slurm.daemons.tell("start slurmctld");
    access.run("provision", &["resume", "q"]).exits(0);
    poll_for("Slurm answers again", || {
        (provisioned(&access)["queues"][0]["state"] == "ready").then_some(())
    });

    // A queue that is removed leaves nothing behind.
    access.run("provision", &["remove", "q"]).exits(0);
    dispatcher.service().wait_for("is removed, with all of its allocations");
    slurm.wait_for_no_jobs();
    access.run("stop", &[]).exits(0);
    dispatcher.running.take().unwrap().finish().exits(0);
    site.left().wait_for_none();
}

#[trial]
fn slurm_that_refuses_hangs_or_starts_nothing_is_told_of_and_left_in_peace() {
    let slurm = Slurm::start("2");
    // A squeue that hangs while a file is there, and counts its calls.
    let bin = slurm.site.path("bin");
    std::fs::create_dir(&bin).unwrap();
    let hang = slurm.site.text("hang");
    let calls = slurm.site.text("calls");
    let script = format!(
        "#!/bin/sh\necho >>'{calls}'\n[ -e '{hang}' ] && exec sleep 1000\n\
         exec /usr/bin/squeue \"$@\"\n"
    );
    std::fs::write(bin.join("squeue"), script).unwrap();
    std::fs::set_permissions(bin.join("squeue"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut slurm = slurm;
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    slurm.site.set("PATH", &path);

    let refused = slurm.queue("refused.toml", "[job]\npartition = \"nonesuch\"\n");
    let barren = slurm.queue(
        "barren.toml",
        "preference = -1\n[job]\nbinary = \"/nowhere/falkon\"\npartition = \"main\"\n",
    );
    let site = &slurm.site;
    let dispatcher = site.dispatcher("d", &["--provision", &refused]);
    let access = dispatcher.access();
    let id = access.submit(&["--", "true"]);
    let said = dispatcher.service().wait_for("Invalid partition name specified");
    assert!(said.contains("refused 1 times in a row"), "{said}");
    let shown = access.run("provision", &["show", "refused", "--json"]).exits(0);
    assert!(shown.text().contains("Invalid partition name specified"), "{shown}");
    access.run("provision", &["plan"]).exits(0);
    access.run("provision", &["remove", "refused"]).exits(0);

    // Jobs that come to nothing say why, and are not asked for again at once.
    access.run("provision", &["add", &barren]).exits(0);
    let said = dispatcher.service().wait_for("there is no program /nowhere/falkon");
    assert!(said.contains("queue barren: ask for nothing for a while"), "{said}");
    access.run("provision", &["remove", "barren"]).exits(0);
    dispatcher.service().wait_for("queue barren: is removed");

    // A program that is not on the nodes is sent there, and leaves nothing.
    let there = slurm.site.path("there");
    std::fs::create_dir(&there).unwrap();
    let sent = slurm.queue(
        "sent.toml",
        &format!("[job]\nbinary = \"/nowhere/falkon\"\nsend = \"{}\"\n", there.display()),
    );
    access.run("provision", &["add", &sent]).exits(0);
    dispatcher.service().wait_for("the program is on its nodes");
    access.run("wait", &[&id, "--quiet"]).exits(0);
    access.run("provision", &["remove", "sent"]).exits(0);
    dispatcher.service().wait_for("queue sent: is removed");
    poll_for("nothing is left", || (std::fs::read_dir(&there).unwrap().count() == 0).then_some(()));
    let id = access.submit(&["--", "true"]);

    // One that does not answer is asked less and less, and never twice at once.
    let hanging = slurm.queue("hanging.toml", "[lrm]\ntimeout_s = 1\n");
    std::fs::write(&hang, "").unwrap();
    std::fs::remove_file(&calls).unwrap();
    access.run("provision", &["add", &hanging]).exits(0);
    dispatcher.service().wait_for("squeue did not answer within 1 s");
    assert_eq!(std::fs::read(&calls).unwrap().len(), 1);
    std::fs::remove_file(&hang).unwrap();
    access.run("provision", &["resume", "hanging"]).exits(0);
    access.run("wait", &[&id, "--quiet"]).exits(0);
    wait_for_none(&access);
    slurm.wait_for_no_jobs();
}

/// What `falkon status` says of a run that waits, once it says `part`.
#[track_caller]
fn wait_for_status(access: &Access<'_>, part: &str) -> String {
    poll_for(part, || {
        let said = access.run("status", &[]).exits(0).text().to_owned();
        said.contains(part).then_some(said)
    })
}

#[trial]
fn a_partition_of_a_few_nodes_is_enough() {
    let slurm = Slurm::start("3");
    let site = &slurm.site;
    // As the documents begin, with nothing said of the cluster.
    let dispatcher = site.dispatcher("d", &["--provision", "slurm"]);
    let access = dispatcher.access();
    let results = run_some(&access, 60);
    assert_eq!(results.len(), 60);
    let listed = provisioned(&access);
    assert_eq!(listed["queues"][0]["nodes_there"], 3, "{listed}");
    access.run("provision", &["remove", "slurm"]).exits(0);
    dispatcher.service().wait_for("is removed, with all of its allocations");
    slurm.wait_for_no_jobs();

    // Where nobody says how many nodes there are, what Slurm says of the job
    // does: it is asked for anew, smaller.
    let blind = slurm.queue("blind.toml", "nodes_max = 7\n[lrm.size]\ncommand = [\"true\"]\n");
    let text = std::fs::read_to_string(&blind).unwrap().replacen("nodes_max = 3\n", "", 1);
    std::fs::write(&blind, text).unwrap();
    access.run("provision", &["add", &blind]).exits(0);
    run_some(&access, 60);
    let log = access.run("provision", &["log"]).exits(0);
    assert!(log.text().contains("it can never start"), "{log}");
    access.run("provision", &["remove", "blind"]).exits(0);
    dispatcher.service().wait_for("queue blind: is removed");
    slurm.wait_for_no_jobs();
}

#[trial]
fn a_run_in_a_job_uses_the_nodes_of_the_job() {
    let slurm = Slurm::start("3");
    let site = &slurm.site;
    // Output beyond what a result holds comes from the other nodes, too.
    let task = "echo $SLURMD_NODENAME {}; head -c 100000 /dev/zero; sleep 0.2";
    let run = format!(
        "#!/bin/sh\n'{}' run --nodes \"$1\" --jobs 2 --range 1-12 --out out-$1 --shell -- '{task}'\n",
        env!("CARGO_BIN_EXE_falkon")
    );
    site.write("job.sh", run);
    let job = |nodes: &str| {
        let mut sbatch = site.program("/usr/bin/sbatch");
        sbatch.args(["--wait", "--nodes=3", "--ntasks-per-node=1", "--cpus-per-task=2"]);
        sbatch.args(["--output=said", "job.sh", nodes]);
        let status = sbatch.output().unwrap().status;
        assert!(status.success() || nodes == "4", "{}", site.read("said"));
        status.code()
    };
    for (wanted, used) in [("all", 3), ("2", 2)] {
        job(wanted);
        let out = site.read(&format!("out-{wanted}/stdout"));
        assert_eq!(out.len() - out.replace('\0', "").len(), 12 * 100_000, "{}", site.read("said"));
        let lines = out.replace('\0', "");
        let names: std::collections::BTreeSet<&str> =
            lines.lines().filter_map(|line| line.split(' ').next()).collect();
        assert_eq!((names.len(), lines.lines().count()), (used, 12), "{lines}");
    }
    assert_eq!(job("4"), Some(2));
    assert!(site.read("said").contains("this job has 3 nodes, not 4"), "{}", site.read("said"));
    // The ranks print where they run.
    let task = r#"wc -l < $FALKON_NODE_FILE; srun $FALKON_SRUN sh -c 'echo $SLURMD_NODENAME'"#;
    site.write("gang.sh", task);
    let gangs = format!(
        "#!/bin/sh\n'{}' run --nodes all --nodes-per-task \"$1\" --ranks-per-node 2 --range 1-4 \
         --out gangs -- sh \"$PWD/gang.sh\"\n",
        env!("CARGO_BIN_EXE_falkon")
    );
    site.write("job.sh", gangs);
    job("3");
    let out = site.read("gangs/stdout");
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    let expected = [["3"; 4].as_slice(), &["n1"; 8], &["n2"; 8], &["n3"; 8]].concat();
    assert_eq!(lines, expected, "{}", site.read("said"));
    assert_eq!(job("4"), Some(2));
    assert!(site.read("said").contains("this run has 3"), "{}", site.read("said"));
    slurm.wait_for_no_jobs();
    site.run(["run", "--nodes", "all", "--", "true"]).exits(2).says("this is no batch job");
    site.left().wait_for_none();
}

#[trial]
fn jobs_that_somebody_holds_are_done_without_and_said_so() {
    let slurm = Slurm::start("2");
    let site = &slurm.site;
    // Every job is held as it is submitted.
    let held = slurm.queue("held.toml", "held = 600\n[job]\noptions = [\"--hold\"]\n");
    let dispatcher = site.dispatcher("d", &["--provision", &held]);
    let access = dispatcher.access();
    let id = access.submit(&["--", "true"]);
    let said = wait_for_status(&access, "JobHeldUser");
    assert!(said.contains("queue held was asked for "), "{said}");
    let shown = access.run("provision", &["plan"]).exits(0);
    assert!(shown.text().contains(" is held: PENDING, JobHeldUser"), "{shown}");
    // No more than a few: whoever holds them all is not fed for ever.
    poll_for("the queue stops asking", || (slurm.jobs().len() == 4).then_some(()));
    // One that is let go serves.
    let (job, _) = slurm.jobs().into_iter().next_back().unwrap();
    slurm.run("scontrol", &["release", &job]);
    access.run("wait", &[&id, "--quiet"]).exits(0);
    access.run("provision", &["remove", "held"]).exits(0);
    dispatcher.service().wait_for("queue held: is removed");
    slurm.wait_for_no_jobs();
}

#[trial]
fn after_a_crash_each_queue_has_its_own_jobs() {
    let slurm = Slurm::start("3");
    let site = &slurm.site;
    let queue = |name: &str, partition: &str| {
        let more = format!("nodes_min = 1\n[job]\npartition = \"{partition}\"\n");
        let text = std::fs::read_to_string(slurm.queue(name, &more)).unwrap();
        let text = text.replacen("nodes_max = 3", "nodes_max = 1", 1);
        site.write(name, text.replacen("walltime = 600", "walltime = 100", 1))
    };
    let (aa, bb) = (queue("aa.toml", "main"), queue("bb.toml", "short"));
    let mut dispatcher = site.dispatcher("d", &["--provision", &aa]);
    dispatcher.access().run("provision", &["add", &bb]).exits(0);
    let both_here = |access: &Access<'_>| {
        poll_for("both have a node", || {
            let mut all = allocations(access);
            all.sort_by_key(|one| one["id"].as_u64());
            let is_here = all.iter().all(|one| one["executors"] == 1);
            (all.len() == 2 && is_here).then_some(all)
        })
    };
    let of = |all: &[Value]| -> Vec<(Value, Value)> {
        all.iter().map(|one| (one["queue"].clone(), one["job"].clone())).collect()
    };
    let before = of(&both_here(&dispatcher.access()));
    dispatcher.kill();
    dispatcher.start();
    let access = dispatcher.access();
    assert_eq!(of(&both_here(&access)), before);
    assert_eq!(slurm.jobs().len(), 2);
    // One queue's end is not the other's.
    access.run("provision", &["remove", "aa"]).exits(0);
    dispatcher.service().wait_for("queue aa: is removed");
    let left = allocations(&access);
    assert_eq!((left.len(), &left[0]["queue"]), (1, &Value::from("bb")), "{left:?}");
    access.run("provision", &["remove", "bb"]).exits(0);
    dispatcher.service().wait_for("queue bb: is removed");
    slurm.wait_for_no_jobs();
}

#[trial]
fn a_job_that_slurm_leaves_out_of_its_lists_is_not_forgotten() {
    let mut slurm = Slurm::start("1");
    // While a file is there squeue knows of no job at all.
    let bin = slurm.site.path("bin");
    std::fs::create_dir(&bin).unwrap();
    let denies = slurm.site.text("denies");
    let script = format!(
        "#!/bin/sh\n[ -e '{denies}' ] || exec /usr/bin/squeue \"$@\"\n\
         case \"$*\" in *--jobs=*) echo 'Invalid job id specified' >&2; exit 1 ;; esac\n"
    );
    std::fs::write(bin.join("squeue"), script).unwrap();
    std::fs::set_permissions(bin.join("squeue"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    slurm.site.set("PATH", &path);
    let site = &slurm.site;
    let queue = slurm.queue("q.toml", "");
    let dispatcher = site.dispatcher("d", &["--provision", &queue]);
    let access = dispatcher.access();
    // A job that waits behind somebody else's.
    slurm.run("sbatch", &["--exclusive", "--output=/dev/null", "--wrap=sleep 1000"]);
    access.run("provision", &["once", "q", "--nodes", "1"]).exits(0);
    let job = poll_for("it waits", || {
        let all = allocations(&access);
        all.iter().find(|one| !one["reason"].is_null()).map(|one| one["job"].clone())
    });
    std::fs::write(&denies, "").unwrap();
    dispatcher.service().wait_for("ended: the scheduler does not know it");
    std::fs::remove_file(&denies).unwrap();
    let again = poll_for("it is known again", || allocations(&access).into_iter().next());
    assert_eq!((&again["job"], &again["fixed"]), (&job, &Value::Bool(true)));
    access.run("provision", &["remove", "q"]).exits(0);
    dispatcher.service().wait_for("queue q: is removed");
    assert_eq!(slurm.jobs().len(), 1);
}
