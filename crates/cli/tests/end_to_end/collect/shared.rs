//! An executor that collects the outputs of others.

use super::members;
use crate::fixture::{Dispatcher, Gate, Running, Signals, Site, poll};
use falkon_trials::trial;
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;

/// Tasks with an output each.
const TASKS: u64 = 20;

/// An executor that collects, and is held busy by a task, and one that has run tasks and
/// handed their outputs to it.
struct Scene<'a> {
    site: &'a Site,
    dispatcher: Dispatcher<'a>,
    collector: Option<Running>,
    maker: Running,
    id: String,
    started: Signals,
    gate: Gate,
}

/// An executor with a slot for tasks that need this; outputs wait there until it has
/// nothing to do.
fn executor(site: &Site, dispatcher: &Dispatcher<'_>, name: &str, offers: &str) -> Running {
    let scratch = site.text(name);
    let args = ["--slots", "1", "--resource", offers, "--collect-delay", "1h"];
    dispatcher.executor(name, &[&args[..], &["--scratch", &scratch]].concat())
}

/// Whether an executor has something staged.
fn has_staged(scratch: &Path) -> bool {
    let entries = std::fs::read_dir(scratch).into_iter().flatten().flatten();
    let staged =
        entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"staged-"));
    staged.filter_map(|entry| std::fs::read_dir(entry.path()).ok()).flatten().next().is_some()
}

impl<'a> Scene<'a> {
    fn new(site: &'a Site) -> Scene<'a> {
        let dispatcher = site.dispatcher("d", &["--collectors", "1"]);
        let access = dispatcher.access();
        let mut started = site.signals("started");
        let gate = site.gate("gate");
        let collector = executor(site, &dispatcher, "collector", "holds=1");
        let held = format!("echo held > {}; read line < {}", started.path(), gate.path());
        access.submit(&["--resource", "holds=1", "--", "sh", "-c", &held]);
        started.next();
        let maker = executor(site, &dispatcher, "maker", "makes=1");
        let range = format!("1-{TASKS}");
        let args = ["--range", &range, "--resource", "makes=1", "--output", "out=a.zip!{}", "--"];
        let id = access.submit(&[&args[..], &["sh", "-c", "echo {} > out"]].concat());
        poll("outputs are handed over", || has_staged(&site.path("collector")));
        assert!(!site.path("a.zip").exists(), "nothing was written");
        Scene { site, dispatcher, collector: Some(collector), maker, id, started, gate }
    }

    fn have_succeeded(&self) {
        let results = self.dispatcher.access().results(&self.id);
        assert_eq!(results.len() as u64, TASKS);
        for result in &results {
            let found = (&result["status"], &result["executor"], &result["attempts"]);
            let (done, maker) = (Value::from("done"), Value::from("maker"));
            assert_eq!(found, (&done, &maker, &1.into()), "{result}");
            let place = result["outputs"][0].as_str().unwrap();
            let found = self.site.run(["archive", "cat", place]).exits(0);
            let number = result["index"].as_u64().unwrap() + 1;
            assert_eq!(found.text(), format!("{number}\n"), "{result}");
        }
        let names = || (1..=TASKS).map(|at| at.to_string());
        let expected: Vec<String> = names().map(|name| name + "\n").collect();
        assert_eq!(members(self.site, "a.zip", names()), expected);
    }
}

fn end(executors: impl IntoIterator<Item = Running>) {
    for executor in executors {
        executor.signal(Signal::TERM);
        executor.finish().exits(0);
    }
}

#[trial]
fn outputs_that_another_executor_collects_are_safe_when_that_has_written_them() {
    let site = Site::new();
    let mut scene = Scene::new(&site);
    scene.gate.let_through(1);
    scene.have_succeeded();
    end(scene.collector.into_iter().chain([scene.maker]));
}

#[trial]
fn outputs_stay_with_their_maker_until_they_are_safe() {
    let site = Site::new();
    let mut scene = Scene::new(&site);
    scene.collector.take().unwrap().kill();
    // Nothing runs again: the maker has them still.
    scene.have_succeeded();
    // The task that held the collector runs elsewhere.
    let heir = executor(&site, &scene.dispatcher, "heir", "holds=1");
    scene.started.next();
    scene.gate.let_through(1);
    end([heir, scene.maker]);
}
