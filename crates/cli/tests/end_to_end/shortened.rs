//! A dispatcher's machine fails before the end of its journal is on stable
//! storage: the dispatcher comes back with less than it had acknowledged.

use crate::fixture::{Access, Dispatcher, Running, Site, json_lines, poll};
use falkon_trials::trial;
use std::path::{Path, PathBuf};

/// Starts tasks that are waited for, each of which waits for its gate.
fn wait_for_tasks(access: &Access<'_>, site: &Site, count: u32) -> Running {
    let script = format!("read line < {}$0", site.text("gate"));
    let (range, out) = (format!("0-{}", count - 1), site.text("o"));
    let args = ["--wait", "--out", &out, "--range", &range, "--", "sh", "-c", &script, "{}"];
    access.start("submit", &args)
}

fn accepted(access: &Access<'_>) -> u64 {
    counted(access, "tasks")
}

fn counted(access: &Access<'_>, kind: &str) -> u64 {
    let ran = access.run("status", &["--json"]).exits(0);
    let status: serde_json::Value = serde_json::from_str(ran.text()).unwrap();
    let total = |one: &serde_json::Value| one[kind].as_u64().unwrap_or(0);
    status["instances"].as_array().unwrap().iter().map(total).sum()
}

/// The indices of the results in the folder so far.
fn ended(site: &Site) -> Vec<u64> {
    let text = std::fs::read_to_string(site.path("o/results.jsonl")).unwrap_or_default();
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    json_lines(whole).iter().map(|one| one["index"].as_u64().unwrap()).collect()
}

/// The files of a dispatcher's journal, with their contents.
fn journal_of(site: &Site) -> Vec<(PathBuf, Vec<u8>)> {
    fn below(directory: &Path, found: &mut Vec<(PathBuf, Vec<u8>)>) {
        for entry in std::fs::read_dir(directory).unwrap().flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => below(&path, found),
                false => found.push((path.clone(), std::fs::read(&path).unwrap())),
            }
        }
    }
    let mut found = Vec::new();
    below(&site.path("d/journal"), &mut found);
    found
}

/// The machine fails: the journal is what it was before.
fn fail(dispatcher: &mut Dispatcher<'_>, journal: &[(PathBuf, Vec<u8>)]) {
    dispatcher.kill();
    for (path, bytes) in journal {
        std::fs::write(path, bytes).unwrap();
    }
    dispatcher.start();
}

#[trial]
fn tasks_that_the_journal_has_lost_are_submitted_again_by_who_waits_for_them() {
    let site = Site::new();
    let mut gates: Vec<_> = (0..2).map(|task| site.gate(&format!("gate{task}"))).collect();
    let mut dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let submitting = wait_for_tasks(&access, &site, 2);
    poll("all tasks are accepted", || accepted(&access) == 2);
    // It ends within the record of the tasks.
    let mut journal = journal_of(&site);
    journal.sort();
    let is_log =
        |(path, _): &&mut (PathBuf, Vec<u8>)| path.extension().is_some_and(|it| it == "log");
    let (_, log) = journal.iter_mut().rfind(is_log).unwrap();
    let text = b"read line";
    log.truncate(log.windows(text.len()).position(|part| part == text).unwrap());
    fail(&mut dispatcher, &journal);
    let _executor = dispatcher.executor("worker", &["--slots", "2"]);
    gates.iter_mut().for_each(|gate| gate.let_through(1));
    submitting.finish().exits(0).says("2 tasks submitted again");
    let mut indices = ended(&site);
    indices.sort_unstable();
    assert_eq!(indices, [0, 1]);
}

#[trial]
fn results_that_the_journal_has_lost_come_again_and_none_comes_twice() {
    let site = Site::new();
    let mut gates: Vec<_> = (0..3).map(|task| site.gate(&format!("gate{task}"))).collect();
    let mut dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let submitting = wait_for_tasks(&access, &site, 3);
    poll("all tasks are accepted", || accepted(&access) == 3);
    let journal = journal_of(&site);
    let executor = dispatcher.executor("worker", &["--slots", "3"]);
    gates[2].let_through(1);
    poll("the last task ends first", || ended(&site) == [2]);
    drop(executor.kill());
    // A task of it that still lives would take the next one's line.
    site.left().wait_for_none_but(&[dispatcher.service(), &submitting]);
    fail(&mut dispatcher, &journal);
    let _executor = dispatcher.executor("next", &["--slots", "3"]);
    for (gate, count) in gates.iter_mut().zip(1..) {
        gate.let_through(1);
        poll("one task after the other ends", || counted(&access, "done") == count);
    }
    submitting.finish().exits(0);
    let mut indices = ended(&site);
    indices.sort_unstable();
    assert_eq!(indices, [0, 1, 2]);
}

#[trial]
fn who_waits_for_an_instance_that_is_gone_with_the_journal_fails() {
    let site = Site::new();
    let mut dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let submitting = wait_for_tasks(&access, &site, 2);
    poll("all tasks are accepted", || accepted(&access) == 2);
    dispatcher.kill();
    std::fs::remove_dir_all(site.path("d/journal")).unwrap();
    dispatcher.start();
    let other = access.submit(&["--", "true"]);
    assert_eq!(other, "0", "it has the number of the one that is gone");
    submitting.finish().exits(2).says("the instance is gone");
    assert!(ended(&site).is_empty());
}
