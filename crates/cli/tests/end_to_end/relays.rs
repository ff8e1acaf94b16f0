//! Relays: dispatchers that lend their executors to another one.

mod collected;
mod killed;
mod objects;
mod outputs;
mod reached;
mod tails;
mod tree;

use crate::fixture::{Access, Dispatcher, Random, Running, Site, indices, json_lines, poll_for};
use crate::network::{address, preamble, read_to_end};
use falkon_trials::trial;
use falkon_wire::message::PROTOCOL_VERSION;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// How often a relay is killed if `FALKON_ROUNDS` does not say.
const ROUNDS: u64 = 2;
/// Results between two kills.
const ROUND_RESULTS: u64 = 1500;

/// A relay with its directory.
struct Relay<'a> {
    site: &'a Site,
    name: &'static str,
    upstream: String,
    running: Option<Running>,
}

impl<'a> Relay<'a> {
    fn start(site: &'a Site, name: &'static str, upstream: &str) -> Relay<'a> {
        let running = Relay::process(site, name, upstream);
        Relay { site, name, upstream: upstream.to_owned(), running: Some(running) }
    }

    fn process(site: &Site, name: &str, upstream: &str) -> Running {
        let dir = site.text(name);
        let args = ["relay", "--upstream", upstream, "--dir", &dir, "--name", name];
        let running = site.start(args);
        running.wait_for("dispatcher at ");
        running
    }

    fn kill_and_restart(&mut self) {
        self.take().kill();
        self.start_again();
    }

    fn start_again(&mut self) {
        self.running = Some(Relay::process(self.site, self.name, &self.upstream));
    }

    fn take(&mut self) -> Running {
        self.running.take().expect("the relay runs")
    }

    fn access(&self) -> Access<'a> {
        Access::at(self.site, &self.site.path(self.name).join("access.json"))
    }

    fn executor(&self, name: &str, slots: &str) -> Running {
        let executor = self.access().start("executor", &["--name", name, "--slots", slots]);
        let running = self.running.as_ref().expect("the relay runs");
        running.wait_for(&format!("executor {name} joined"));
        executor
    }
}

/// Waits until the executors that a dispatcher has offer so many nodes below relays.
fn wait_for_nodes(dispatcher: &Dispatcher<'_>, expected: &[(&str, u64)]) {
    poll_for("the nodes below relays", || {
        let status = dispatcher.access().status();
        let executors = status["executors"].as_array().unwrap();
        let is_there = |(name, nodes): &(&str, u64)| {
            executors.iter().any(|found| found["name"] == *name && found["nodes"] == *nodes)
        };
        expected.iter().all(is_there).then_some(())
    });
}

#[trial]
fn a_queue_is_done_by_two_clusters_though_relays_are_killed() {
    let rounds = std::env::var("FALKON_ROUNDS").map_or(ROUNDS, |text| text.parse().unwrap());
    let mut random = Random::seeded("a_queue_is_done_by_two_clusters_though_relays_are_killed");
    let tasks = 10_000.max(rounds * ROUND_RESULTS * 3 / 2);
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let upstream = dispatcher.access().file().to_owned();
    let mut left = Relay::start(&site, "left", &upstream);
    let mut right = Relay::start(&site, "right", &upstream);
    let _executors = [
        left.executor("left-1", "2"),
        left.executor("left-2", "1"),
        right.executor("right-1", "2"),
    ];
    wait_for_nodes(&dispatcher, &[("left", 2), ("right", 1)]);
    let text = dispatcher.access().run("status", &[]).exits(0).text().to_owned();
    assert!(text.contains("3 cpus") && text.contains("a relay to 2 nodes"), "{text}");

    let range = format!("0-{}", tasks - 1);
    let submit = ["--wait", "--json", "--range", &range, "--", "echo", "{}"];
    let client = dispatcher.access().start("submit", &submit);
    for round in 1..=rounds {
        client.wait_for_lines((round * ROUND_RESULTS) as usize);
        let victim = if random.below(2) == 0 { &mut left } else { &mut right };
        victim.kill_and_restart();
    }
    let ran = client.finish().exits(0);
    let expected: Vec<u64> = (0..tasks).collect();
    assert_eq!(indices(ran.text()), expected, "results are missing, or there twice");
    let results = json_lines(ran.text());
    for result in &results {
        assert_eq!(result["status"], "done", "{result}");
        assert_eq!(result["stdout"], format!("{}\n", result["index"]), "{result}");
    }
    for name in ["left", "right"] {
        assert!(results.iter().any(|result| result["executor"] == name), "{name} ran nothing");
    }
    // Below, nothing is left.
    for relay in [&left, &right] {
        poll_for("the end of all tasks below", || {
            let status = relay.access().status();
            let instance = &status["instances"][0];
            (instance["ready"] == 0 && instance["dispatched"] == 0).then_some(())
        });
    }
}

#[trial]
fn one_run_uses_several_clusters_of_which_one_is_killed_and_comes_back() {
    let site = Site::new();
    let mut left = site.dispatcher("left", &[]);
    let right = site.dispatcher("right", &[]);
    let _executors =
        [left.executor("left-1", &["--slots", "2"]), right.executor("right-1", &["--slots", "2"])];
    let (one, other) = (left.access().file().to_owned(), right.access().file().to_owned());
    let out = site.text("out");
    let args = ["run", "--access", &one, "--access", &other, "--out", &out, "--quiet"];
    let args = args.iter().chain(&["--range", "0-3999", "--", "echo", "{}"]);
    let run = site.start(args);
    poll_for("the first results", || {
        let lines = std::fs::read_to_string(site.path("out").join("results.jsonl")).ok()?;
        (lines.lines().count() > 500).then_some(())
    });
    left.kill();
    left.start();
    run.finish().exits(0);
    let lines = std::fs::read_to_string(site.path("out").join("results.jsonl")).unwrap();
    let expected: Vec<u64> = (0..4000).collect();
    assert_eq!(indices(&lines), expected, "results are missing, or there twice");
    let results = json_lines(&lines);
    let names: BTreeSet<&str> =
        results.iter().map(|result| result["executor"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    for dispatcher in [&left, &right] {
        let status = dispatcher.access().status();
        assert!(status["instances"].as_array().unwrap().is_empty(), "{status}");
    }
    let waiting = site.start(["run", "--access", &one, "--cpus", "100", "--", "true"]);
    waiting.wait_for("1 task waits for an executor that offers 100 cpus: none does");
    waiting.signal(Signal::INT);
    waiting.finish().exits(1);
    let args = ["run", "--access", &one, "--access", &one, "--", "true"];
    site.run(args).exits(2).says("of the same dispatcher");
    let args = ["submit", "--access", &one, "--access", &other, "--", "true"];
    site.run(args).exits(2).says("falkon run --access A --access B");
    let executors = site.path("right").join("access-executor.json");
    site.run(["run", "--access", executors.to_str().unwrap(), "--", "true"]).exits(2).says("owner");
}

#[trial]
fn a_relay_lends_the_executors_of_a_dispatcher_that_others_use_too() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let mut below = site.dispatcher("below", &[]);
    let _executor = below.executor("node", &["--slots", "2"]);
    let (upstream, access) =
        (dispatcher.access().file().to_owned(), below.access().file().to_owned());
    let dir = site.text("relay");
    let args = ["relay", "--upstream", &upstream, "--access", &access, "--dir", &dir];
    let _relay = site.start(args.iter().chain(&["--name", "lent"]));
    wait_for_nodes(&dispatcher, &[("lent", 1)]);
    let submit = ["--wait", "--json", "--range", "0-1999", "--", "echo", "{}"];
    let client = dispatcher.access().start("submit", &submit);
    client.wait_for_lines(200);
    let own = below.access().run("submit", &["--wait", "--json", "--", "echo", "own"]);
    assert_eq!(own.results()[0]["executor"], "node");
    below.kill();
    below.start();
    let ran = client.finish().exits(0);
    assert_eq!(indices(ran.text()), (0..2000).collect::<Vec<u64>>());
    let same = ["relay", "--upstream", &access, "--access", &access, "--dir", &site.text("other")];
    site.run(same).exits(2).says("the same dispatcher");
    let role = site.path("d").join("access-client.json");
    let unfit = ["relay", "--upstream", role.to_str().unwrap(), "--dir", &site.text("other")];
    site.run(unfit).exits(2).says("executor");
}

/// Starts an HTTP proxy; returns its address.
fn http_proxy() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                client.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).unwrap();
            let target = head.split(' ').nth(1).unwrap();
            let mut server = TcpStream::connect(target).unwrap();
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            let (mut up, mut down) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut up, &mut down));
            std::thread::spawn(move || std::io::copy(&mut server, &mut client));
        }
    });
    address
}

#[trial]
fn a_relay_connects_through_a_proxy() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &["--security", "encrypt"]);
    let (upstream, dir) = (dispatcher.access().file().to_owned(), site.text("r"));
    let relay = ["relay", "--upstream", &upstream, "--dir", &dir, "--name", "r"];
    let proxy = format!("http://{}", http_proxy());
    let _relay = site.start(relay.iter().chain(&["--proxy", &proxy]));
    wait_for_nodes(&dispatcher, &[("r", 0)]);
    let args = relay.iter().chain(&["--proxy", "proxy:3128"]);
    site.run(args).exits(2).says("http://HOST:PORT");
}

#[trial]
fn nodes_are_got_below_relays_for_tasks_that_wait_above() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let middle = Relay::start(&site, "middle", dispatcher.access().file());
    let (dir, upstream) = (site.text("below"), middle.access().file().to_owned());
    let args = ["relay", "--upstream", &upstream, "--dir", &dir, "--listen", "127.0.0.1:0"];
    let below = site.start(args.iter().chain(&["--provision", "local"]));
    below.wait_for("dispatcher at ");
    let submit = ["--wait", "--json", "--range", "1-20", "--", "echo", "{}"];
    let results = dispatcher.access().run("submit", &submit).results();
    assert_eq!(results.len(), 20);
    assert!(results.iter().all(|result| result["executor"] == "middle"));
    // The nodes leave with the dispatcher that has asked for them.
    let access = Access::at(&site, &site.path("below").join("access.json"));
    access.run("provision", &["remove", "local"]).exits(0);
    poll_for("the end of the nodes", || {
        let status = access.status();
        status["executors"].as_array().unwrap().is_empty().then_some(())
    });
}

#[trial]
fn relays_stand_behind_one_another() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let upper = Relay::start(&site, "upper", dispatcher.access().file());
    let lower = Relay::start(&site, "lower", upper.access().file());
    let _executors = [lower.executor("small", "1"), lower.executor("large", "3")];
    wait_for_nodes(&dispatcher, &[("upper", 2)]);
    let access = dispatcher.access();
    let tree = access.run("status", &["--tree"]).exits(0);
    assert!(tree.text().contains("  lower") && !tree.text().contains("small"), "{}", tree.text());
    let args = ["--wait", "--json", "--range", "1-200", "--", "sh", "-c", "exit $(({} % 2))"];
    let results = access.run("submit", &args).results();
    assert_eq!(results.len(), 200);
    for result in results {
        let exit = (result["index"].as_u64().unwrap() + 1) % 2;
        assert_eq!(result["exit_code"], exit, "{result}");
    }
    // No node below has four slots, though all together have.
    let instance = access.submit(&["--cpus", "4", "--", "true"]);
    let status = access.run("status", &[&instance]).exits(0);
    assert!(status.text().contains("1 task needs 4 cpus: no executor"), "{status}");
    let task = &access.run("tasks", &[&instance, "--json"]).results()[0];
    assert_eq!(task["state"], "ready");
    access.run("cancel", &[&instance]).exits(0);
    // What runs is cancelled through both.
    let instance = access.submit(&["--", "sleep", "1000"]);
    poll_for("a running task", || {
        let status = lower.access().status();
        (status["instances"][0]["running"] == 1).then_some(())
    });
    access.run("cancel", &[&instance]).exits(0);
    access.run("wait", &[&instance]);
    let counts = access.instance(&instance);
    assert_eq!((&counts["cancelled"], &counts["dispatched"]), (&1.into(), &0.into()));
}

#[trial]
fn attempts_below_relays_are_counted_above() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let upper = Relay::start(&site, "upper", dispatcher.access().file());
    let lower = Relay::start(&site, "lower", upper.access().file());
    let _executor = lower.executor("node", "1");
    wait_for_nodes(&dispatcher, &[("upper", 1)]);
    let script = "echo $FALKON_ATTEMPT; exit $((3 - FALKON_ATTEMPT))";
    let args = ["--wait", "--json", "--retries", "5", "--", "sh", "-c", script];
    let result = &dispatcher.access().run("submit", &args).exits(0).results()[0];
    assert_eq!((&result["attempts"], &result["stdout"]), (&3.into(), &"3\n".into()));
}

#[trial]
fn tasks_have_the_same_numbers_below_relays() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let relay = Relay::start(&site, "relay", dispatcher.access().file());
    let _executor = relay.executor("node", "1");
    wait_for_nodes(&dispatcher, &[("relay", 1)]);
    let access = dispatcher.access();
    // Below, the first of the others follow these.
    access.run("submit", &["--wait", "--range", "1-3", "--", "true"]).exits(0);
    let command = ["--", "echo", "{#}-{}"];
    for values in [&["--range", "5-9"][..], &["--value", "5", "6", "7", "8", "9"]] {
        let args = [&["--wait", "--json"][..], values, &command[..]].concat();
        let results = access.run("submit", &args).exits(0).results();
        assert_eq!(results.len(), 5);
        for result in results {
            let index = result["index"].as_u64().unwrap();
            assert_eq!(result["stdout"], format!("{}-{}\n", index + 1, index + 5), "{result}");
        }
    }
}

#[trial]
fn everything_that_runs_everywhere_runs_below_relays_and_names_the_executors() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let upper = Relay::start(&site, "upper", dispatcher.access().file());
    let lower = Relay::start(&site, "lower", upper.access().file());
    let _executors = [
        dispatcher.executor("own", &["--slots", "1"]),
        upper.executor("near", "1"),
        lower.executor("small", "1"),
    ];
    let victim = lower.executor("large", "3");
    wait_for_nodes(&dispatcher, &[("upper", 3)]);
    let access = dispatcher.access();
    let all = ["own", "upper/lower/large", "upper/lower/small", "upper/near"];
    let names = |results: &[serde_json::Value]| {
        let mut names: Vec<String> =
            results.iter().map(|result| result["executor"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    // All slots are taken, and more is queued than is ever done here.
    let others = access.submit(&["--range", "1-100000", "--", "sleep", "0.05"]);
    let args = ["--json", "--retries", "2", "--", "sh", "-c", "exit $((2 - FALKON_ATTEMPT))"];
    let results = access.run("everywhere", &args).exits(0).results();
    assert_eq!(names(&results), all);
    access.run("cancel", &[&others]).exits(0);
    let ran = access.run("everywhere", &["--", "sh", "-c", "exit 7"]).exits(1);
    for name in all {
        assert!(ran.err.contains(&format!("{name}: exited with 7")), "no {name} in\n{ran}");
    }

    let source = site.write("source", "for all");
    access.run_sub(&["data", "broadcast"], &[&source]).exits(0).says("on 4 of 4 executors");

    // One that is killed ends its own alone.
    let gate = site.text("gate");
    let script =
        format!("echo begun >> {}; until test -e {gate}; do sleep 0.05; done", site.text("begun"));
    let running = access.start("everywhere", &["--json", "--", "sh", "-c", &script]);
    poll_for("it runs everywhere", || {
        let begun = std::fs::read_to_string(site.path("begun")).unwrap_or_default();
        (begun.lines().count() == 4).then_some(())
    });
    victim.kill();
    site.write("gate", "");
    let results = running.finish().exits(1).results();
    assert_eq!(names(&results), all);
    for result in &results {
        let is_victim = result["executor"] == "upper/lower/large";
        assert_eq!(result["status"], if is_victim { "failed" } else { "done" }, "{result}");
        assert_eq!(result["cause"] == "executor_left", is_victim, "{result}");
    }
}

#[trial]
fn executors_of_a_relay_that_is_gone_for_good_go_where_their_access_file_says() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let upstream = site.path("d").join("access-executor.json").to_str().unwrap().to_owned();
    let dir = site.text("relay");
    let relay = site.start([
        "relay",
        "--upstream",
        &upstream,
        "--dir",
        &dir,
        "--name",
        "relay",
        "--fallback",
        &upstream,
    ]);
    relay.wait_for("dispatcher at ");
    let below = Access::at(&site, &site.path("relay").join("access-executor.json"));
    let executor = below.start("executor", &["--name", "node", "--fall-back-after", "500ms"]);
    relay.wait_for("executor node joined");
    wait_for_nodes(&dispatcher, &[("relay", 1)]);
    let (begun, gate) = (site.text("begun"), site.text("gate"));
    let script =
        format!("echo {{}} >> {begun}; until test -e {gate}; do sleep 0.05; done; echo {{}}");
    let submit = ["--wait", "--json", "--range", "1-5", "--shell", "--", &script];
    let client = dispatcher.access().start("submit", &submit);
    poll_for("a task that has begun", || std::fs::metadata(&begun).ok().map(|_| ()));
    relay.kill();
    executor.wait_for("going to the dispatcher at ");
    dispatcher.service().wait_for("executor node joined");
    site.write("gate", "");
    let results = client.finish().exits(0).results();
    assert_eq!(results.len(), 5);
    assert!(results.iter().all(|result| result["executor"] == "node"), "{results:?}");

    // Nobody is there, and nobody is waited for.
    let other = Dispatcher::access_of(&dispatcher, "access-client.json");
    let args = ["relay", "--upstream", &upstream, "--dir", &site.text("other"), "--fallback"];
    site.run(args.iter().chain(&[other.file()])).exits(2).says("no secret for role executor");
}

#[trial]
fn an_executor_of_several_dispatchers_goes_to_the_next_one_and_gives_up_when_none_is_there() {
    let site = Site::new();
    let mut first = site.dispatcher("first", &[]);
    let mut second = site.dispatcher("second", &[]);
    let (one, other) = (first.access().file().to_owned(), second.access().file().to_owned());
    let args = ["executor", "--access", &one, "--access", &other, "--name", "node"];
    let limits = ["--fall-back-after", "300ms", "--give-up", "4s"];
    let executor = site.start(args.iter().chain(&limits));
    first.service().wait_for("executor node joined");
    first.kill();
    second.service().wait_for("executor node joined");
    let ran = second.access().run("submit", &["--wait", "--json", "--", "echo", "here"]);
    assert_eq!(ran.exits(0).results()[0]["stdout"], "here\n");
    // Back where it was first.
    first.start();
    second.kill();
    first.service().wait_for("executor node joined");
    let ran = first.access().run("submit", &["--wait", "--json", "--", "echo", "there"]);
    assert_eq!(ran.exits(0).results()[0]["stdout"], "there\n");
    first.kill();
    executor.finish().exits(3);
}

#[trial]
fn tasks_read_and_write_stored_objects_below_relays() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let upper = Relay::start(&site, "upper", dispatcher.access().file());
    let lower = Relay::start(&site, "lower", upper.access().file());
    let _executors = [lower.executor("one", "2"), lower.executor("other", "2")];
    wait_for_nodes(&dispatcher, &[("upper", 2)]);
    let source = site.write("source", "read-only");
    let (input, output) = (format!("in={source}"), format!("out={}/{{}}", site.text("made")));
    let args = ["--wait", "--json", "--range", "1-40", "--input", &input, "--output", &output];
    let args = args.iter().chain(&["--", "sh", "-c", "cat in > out; echo {} >> out"]);
    let args: Vec<&str> = args.copied().collect();
    let results = dispatcher.access().run("submit", &args).exits(0).results();
    assert_eq!(results.len(), 40);
    let mut from_stores = 0;
    for result in results {
        assert_eq!(result["executor"], "upper", "{result}");
        from_stores += result["data"]["store"]["objects"].as_u64().unwrap();
        let task = result["index"].as_u64().unwrap() + 1;
        assert_eq!(site.read(&format!("made/{task}")), format!("read-only{task}\n"));
    }
    assert!(from_stores < 3, "{from_stores} reads of the source by two executors");
}

#[trial]
fn a_relay_above_itself_and_one_that_is_there_twice_are_refused() {
    let site = Site::new();
    let mut own = site.dispatcher("own", &[]);
    let (file, dir) = (own.access().file().to_owned(), site.text("own"));
    own.kill();
    site.run(["relay", "--upstream", &file, "--dir", &dir]).exits(3).says("in a circle");

    let dispatcher = site.dispatcher("d", &[]);
    let upstream = dispatcher.access().file().to_owned();
    site.run(["relay", "--upstream", &upstream, "--dir", &dir])
        .exits(3)
        .says("belongs to the relay of another dispatcher");
    let mut first = Relay::start(&site, "first", &upstream);
    wait_for_nodes(&dispatcher, &[("first", 0)]);
    first.take().kill();
    let (dir, copy) = (site.text("first"), site.text("copy"));
    assert!(site.program("cp").args(["-r", &dir, &copy]).status().unwrap().success());
    let mut first = Relay::start(&site, "first", &upstream);
    wait_for_nodes(&dispatcher, &[("first", 0)]);
    let listen = "127.0.0.1:0";
    let args = ["relay", "--upstream", &upstream, "--dir", &copy, "--listen", listen];
    let _second = site.start(args.iter().chain(&["--name", "second"]));
    first.take().finish().exits(3).says("has the identity of the relay");
    wait_for_nodes(&dispatcher, &[("second", 0)]);
}

#[trial]
fn a_relay_below_a_dispatcher_of_another_release_says_so_and_ends() {
    let site = Site::new();
    let mut above = site.dispatcher("above", &[]);
    let (file, other) = (above.access().file().to_owned(), PROTOCOL_VERSION + 1);
    above.kill();
    let listener = TcpListener::bind(address(file.as_ref())).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut answer = preamble(other);
            answer[11] = 1;
            stream.write_all(&answer).unwrap();
            let _ = stream.shutdown(std::net::Shutdown::Write);
            read_to_end(&mut stream);
        });
        let args = ["relay", "--upstream", &file, "--dir", &site.text("below")];
        let said = format!("speaks {other}: upgrade this falkon");
        site.run(args).exits(2).says(&said);
    });
}
