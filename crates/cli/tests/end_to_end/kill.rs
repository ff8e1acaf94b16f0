//! `kill -9` at random moments: no task that was accepted is lost, no result
//! is there twice, and no process is left.
//!
//! `FALKON_ROUNDS` is how often something is killed; a failure prints its seed
//! and `FALKON_SEED` repeats the choices.

use crate::fixture::{Access, Dispatcher, Random, Running, Site, indices};
use falkon_trials::trial;
use rustix::process::Signal;

/// Rounds if `FALKON_ROUNDS` does not say.
const ROUNDS: u64 = 50;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    Executor,
    Dispatcher,
    Client,
    /// One of them, or two in quick succession.
    Any,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// While tasks are being sent.
    Submit,
    /// While tasks run.
    Run,
    /// While results are being read.
    Delivery,
}

/// Each goes on by itself, beside the others.
const LANES: [(Victim, Moment); 6] = [
    (Victim::Executor, Moment::Run),
    (Victim::Dispatcher, Moment::Submit),
    (Victim::Dispatcher, Moment::Run),
    (Victim::Dispatcher, Moment::Delivery),
    (Victim::Client, Moment::Submit),
    (Victim::Any, Moment::Run),
];

#[trial]
fn nothing_is_lost_and_nothing_comes_twice() {
    let rounds = std::env::var("FALKON_ROUNDS").map_or(ROUNDS, |text| text.parse().unwrap());
    let random = Random::seeded("nothing_is_lost_and_nothing_comes_twice");
    std::thread::scope(|scope| {
        let lanes = LANES.len() as u64;
        let running: Vec<_> = (0..lanes)
            .map(|number| {
                let random = random.lane(number);
                let rounds = rounds / lanes + u64::from(number < rounds % lanes);
                let (victim, moment) = LANES[number as usize];
                let lane = move || Lane::new(victim, moment, random).go(rounds);
                (number, std::thread::Builder::new().spawn_scoped(scope, lane).unwrap())
            })
            .collect();
        for (number, lane) in running {
            assert!(lane.join().is_ok(), "lane {:?} failed", LANES[number as usize]);
        }
    });
}

/// What a round submits.
struct Work {
    tasks: u64,
    args: Vec<String>,
    /// What each task writes is its number.
    writes: bool,
}

impl Work {
    /// Processes, some of which leave children behind.
    fn processes(random: &mut Random) -> Work {
        let tasks = 20 + random.below(80);
        let script = "test $(({} % 9)) != 0 || { sleep 1000 & }; \
                      test $(({} % 11)) != 0 || { setsid sleep 1000 & }; \
                      sleep 0.0$(({} % 4)); echo {}";
        let range = format!("0-{}", tasks - 1);
        let args = ["--range", &range, "--", "sh", "-c", script];
        Work { tasks, args: args.map(str::to_owned).to_vec(), writes: true }
    }

    /// So many that a bundle is always on its way: of one template, or each
    /// with its own argument.
    fn noops(site: &Site, random: &mut Random) -> Work {
        let tasks = 100_000 + random.below(100_000);
        let args = if random.below(2) == 0 {
            vec!["--range".to_owned(), format!("1-{tasks}")]
        } else {
            let lines: String = (0..tasks).map(|line| format!("value {line:040}\n")).collect();
            vec!["--each-line".to_owned(), site.write("lines", lines)]
        };
        Work {
            tasks,
            args: [args, vec!["--".to_owned(), "@noop".to_owned()]].concat(),
            writes: false,
        }
    }
}

struct Lane {
    site: Site,
    victim: Victim,
    moment: Moment,
    random: Random,
}

/// What runs in a lane.
struct Services<'a> {
    dispatcher: Dispatcher<'a>,
    executors: Vec<Running>,
    started: u64,
}

impl Services<'_> {
    fn add_executor(&mut self) {
        let name = format!("executor{}", self.started);
        self.started += 1;
        // The dispatcher may be away: it comes when it can.
        let executor =
            self.dispatcher.access().start("executor", &["--name", &name, "--slots", "3"]);
        self.executors.push(executor);
    }

    fn kill_executor(&mut self, random: &mut Random) {
        let at = random.below(self.executors.len() as u64) as usize;
        self.executors.swap_remove(at).kill();
        self.add_executor();
    }

    fn all(&self) -> Vec<&Running> {
        self.executors.iter().chain([self.dispatcher.service()]).collect()
    }
}

impl Lane {
    fn new(victim: Victim, moment: Moment, random: Random) -> Lane {
        Lane { site: Site::new(), victim, moment, random }
    }

    fn go(mut self, rounds: u64) {
        let site = std::mem::replace(&mut self.site, Site::new());
        let dispatcher = site.dispatcher("d", &[]);
        let mut services = Services { dispatcher, executors: Vec::new(), started: 0 };
        services.add_executor();
        services.add_executor();
        for round in 0..rounds {
            println!("{:?} during {:?}, round {round}", self.victim, self.moment);
            self.round(&site, &mut services, &format!("round{round}"));
        }
        let log = services.dispatcher.service().said();
        assert!(!log.contains("panic"), "{log}");
        drop(services);
        site.left().wait_for_none();
    }

    fn round(&mut self, site: &Site, services: &mut Services<'_>, name: &str) {
        let many = match self.moment {
            Moment::Submit => self.random.below(2) == 0,
            Moment::Run => false,
            Moment::Delivery => true,
        };
        let work = match many {
            true => Work::noops(site, &mut self.random),
            false => Work::processes(&mut self.random),
        };
        let access = services.dispatcher.access();
        let waits = self.moment == Moment::Delivery || self.random.below(2) == 0;
        let how: &[&str] =
            if waits { &["--name", name, "--wait", "--json"] } else { &["--name", name] };
        let args: Vec<&str> =
            how.iter().copied().chain(work.args.iter().map(String::as_str)).collect();
        let mut client = access.start("submit", &args);
        if self.moment == Moment::Delivery {
            client.wait_for_lines(1);
        }
        self.random.moment(if many { 150_000 } else { 400_000 });
        self.strike(services, &mut client);
        let ran = client.finish();

        let accepted = ran.status.success();
        let Some(id) = find(&access, name) else {
            assert!(!accepted, "the instance is gone\n{ran}");
            return;
        };
        if !accepted && !ran.was_killed() {
            // The dispatcher was away before anything was accepted.
            assert_eq!(access.instance(&id)["tasks"], 0, "{ran}");
        } else {
            self.check(&access, &id, &work, accepted);
        }
        if accepted && waits {
            let expected: Vec<u64> = (0..work.tasks).collect();
            assert!(
                indices(ran.text()) == expected,
                "the client missed results, or has some twice"
            );
        }
        site.left().wait_for_none_but(&services.all());
        access.run("destroy", &[&id]).exits(0);
    }

    /// Kills, and starts again what it has killed.
    fn strike(&mut self, services: &mut Services<'_>, client: &mut Running) {
        let strikes = if self.victim == Victim::Any { 1 + self.random.below(2) } else { 1 };
        for _ in 0..strikes {
            let victim = match self.victim {
                Victim::Any => [Victim::Executor, Victim::Dispatcher, Victim::Client]
                    [self.random.below(3) as usize],
                victim => victim,
            };
            match victim {
                Victim::Executor => services.kill_executor(&mut self.random),
                Victim::Dispatcher => {
                    services.dispatcher.kill();
                    self.random.moment(50_000);
                    services.dispatcher.start();
                }
                Victim::Client | Victim::Any => client.signal(Signal::KILL),
            }
            self.random.moment(100_000);
        }
    }

    /// Every task that was accepted ends, and is there once.
    fn check(&self, access: &Access<'_>, id: &str, work: &Work, whole: bool) {
        let mut tasks = access.instance(id)["tasks"].as_u64().unwrap();
        assert!(
            tasks <= work.tasks && (tasks == work.tasks || !whole),
            "{tasks} of {}",
            work.tasks
        );
        let text = loop {
            // An instance whose client is gone may be open for ever, so its
            // results have no end: as many are read as there are tasks.
            let reader = access.start("results", &[id, "--json"]);
            reader.wait_for_lines(tasks as usize);
            reader.signal(Signal::KILL);
            let text = String::from_utf8(reader.finish().out).unwrap();
            let now = access.instance(id)["tasks"].as_u64().unwrap();
            // What the client had sent before it was killed may come in late.
            if now == tasks {
                break text;
            }
            tasks = now;
        };
        let expected: Vec<u64> = (0..tasks).collect();
        assert!(indices(&text) == expected, "results are missing, or there twice");
        assert_eq!(text.matches("\"status\":\"done\"").count() as u64, tasks, "{text}");
        if work.writes {
            for line in crate::fixture::json_lines(&text) {
                assert_eq!(line["stdout"], format!("{}\n", line["index"]), "{line}");
            }
        }
        let instance = access.instance(id);
        assert_eq!((&instance["done"], &instance["tasks"]), (&tasks.into(), &tasks.into()));
        for state in ["waiting", "ready", "dispatched", "failed", "cancelled"] {
            assert_eq!(instance[state], 0, "{instance}");
        }
    }
}

/// A journal is replaced by a snapshot when it has grown enough; whatever of
/// the snapshot is there when the dispatcher dies, all is there afterwards.
#[trial]
fn a_dispatcher_killed_while_it_compacts_its_journal_keeps_everything() {
    const TASKS: u64 = 150_000;
    let mut random = Random::seeded("a_dispatcher_killed_while_it_compacts");
    let site = Site::new();
    let mut dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let lines: String = (0..TASKS).map(|line| format!("{line:0500}\n")).collect();
    site.write("lines", lines);
    let mut ids: Vec<String> = Vec::new();
    for _ in 0..3 {
        // A snapshot is written when the journal has grown by 64 MiB and is
        // three times as large as the last one.
        let mut compacted = site.watch("d/journal", "snapshot");
        for submitted in 0.. {
            assert!(submitted < 10, "the journal is never compacted");
            ids.push(access.submit(&["--each-line", "lines", "--", "@noop"]));
            if ids.len() > 2 {
                access.run("destroy", &[&ids.remove(0)]).exits(0);
            }
            if compacted.seen() {
                break;
            }
        }
        random.moment(500_000);
        dispatcher.kill();
        dispatcher.start();
        let status = access.status();
        assert_eq!(status["instances"].as_array().unwrap().len(), ids.len());
        for id in &ids {
            let instance = access.instance(id);
            assert_eq!((&instance["tasks"], &instance["ready"]), (&TASKS.into(), &TASKS.into()));
        }
    }
    let _executor = dispatcher.executor("worker", &[]);
    for id in &ids {
        access.run("wait", &[id]).exits(0).says(&format!("{TASKS} done"));
    }
}

/// The last instance of this name: a client that was cut off before it learned the
/// number of its instance has created another, and the first stays empty.
pub(crate) fn find(access: &Access<'_>, name: &str) -> Option<String> {
    let status = access.status();
    let instances = status["instances"].as_array().unwrap();
    instances.iter().rfind(|one| one["name"] == name).map(|one| one["id"].to_string())
}
