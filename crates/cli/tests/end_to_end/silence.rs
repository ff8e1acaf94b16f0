//! File systems that never answer: the tasks that need them end with an error
//! that names the path, and nobody else notices.

use crate::fixture::{Access, DEAD, Dispatcher, Gate, Running, STUCK, Signals, Site};
use falkon_trials::trial;
use serde_json::Value;
use std::path::PathBuf;

/// An executor for which paths with `/dead/` in them do not answer, with tasks
/// that run.
struct Scene<'a> {
    dispatcher: Dispatcher<'a>,
    executor: Running,
    gate: Gate,
    others: String,
}

/// Tasks that know nothing of it.
const OTHERS: usize = 3;

impl<'a> Scene<'a> {
    fn new(site: &'a Site, args: &[&str]) -> Scene<'a> {
        Scene::with(site, site.library("dead", DEAD), args)
    }

    /// With an executor whose own directories hang on demand.
    fn with_stuck(site: &'a Site, file_timeout: &str) -> Scene<'a> {
        let (cache, scratch) = (site.text("cache=64MiB"), site.text("stuck"));
        std::fs::create_dir(&scratch).unwrap();
        let args = ["--cache", &cache, "--scratch", &scratch, "--file-timeout", file_timeout];
        Scene::with(site, site.library("stuck", STUCK), &args)
    }

    /// With another library, which finds in the environment what it needs.
    fn with(site: &'a Site, library: PathBuf, args: &[&str]) -> Scene<'a> {
        let dispatcher = site.dispatcher("d", &[]);
        let access = dispatcher.access();
        let mut started: Signals = site.signals("started");
        let gate = site.gate("gate");
        let file = access.file.to_str().unwrap().to_owned();
        let mut command = site.falkon(["executor", "--access", &file, "--name", "worker"]);
        command.args(["--slots", "8"]).args(args);
        command.env("LD_PRELOAD", library).env("STUCK_WHILE", site.path("stuck-now"));
        let executor = Running::start(command);
        dispatcher.service().wait_for("executor worker joined");
        let script = format!("echo on > {}; read line < {}", started.path(), gate.path());
        let count = format!("1-{OTHERS}");
        let others = access.submit(&["--range", &count, "--", "sh", "-c", &script]);
        started.take(OTHERS);
        Scene { dispatcher, executor, gate, others }
    }

    fn access(&self) -> Access<'a> {
        self.dispatcher.access()
    }

    /// The result of a task that needs what does not answer.
    fn result_of(&self, args: &[&str]) -> Value {
        let access = self.access();
        let id = access.submit(args);
        access.results(&id).remove(0)
    }

    /// Tasks that had nothing to do with it went on, on the same executor.
    fn check(mut self) {
        let access = self.access();
        access.run("submit", &["--wait", "--", "true"]).exits(0);
        self.gate.let_through(OTHERS);
        let results = access.results(&self.others);
        for result in &results {
            assert_eq!((&result["status"], &result["attempts"]), (&"done".into(), &1.into()));
        }
        let said = self.dispatcher.service().said();
        assert!(!said.contains("silent") && !said.contains("closed"), "{said}");
        drop(self.executor);
    }
}

#[track_caller]
fn check_error(result: &Value, path: &str) {
    assert_eq!(result["status"], "failed", "{result}");
    let error = result["error"].as_str().unwrap();
    assert!(error.contains(path) && error.contains("not answer"), "{error}");
}

/// How long file systems have to answer.
const LIMIT: &[&str] = &["--file-timeout", "2s"];

#[trial]
fn a_task_with_a_file_that_does_not_answer_fails_and_says_which() {
    let site = Site::new();
    let scene = Scene::new(&site, LIMIT);
    let path = site.text("dead/x");
    check_error(&scene.result_of(&["--input", &path, "--", "true"]), &path);
    check_error(&scene.result_of(&["--output", &path, "--", "true"]), &path);
    scene.check();
}

#[trial]
fn a_task_whose_directory_or_program_does_not_answer_fails_and_says_which() {
    let site = Site::new();
    let scene = Scene::new(&site, LIMIT);
    let path = site.text("dead/x");
    let task = serde_json::json!({"command": ["true"], "cwd": path});
    let file = site.write("task.jsonl", format!("{task}\n"));
    check_error(&scene.result_of(&["--tasks", &file]), &path);
    check_error(&scene.result_of(&["--", &path]), &path);
    scene.check();
}

#[trial]
fn a_call_with_a_file_that_does_not_answer_fails_and_says_which() {
    let site = Site::new();
    let scene = Scene::new(&site, LIMIT);
    let path = site.text("dead/x");
    check_error(
        &scene.result_of(&["--input", &path, "--call", "posixpath:basename", "--", "a/b"]),
        &path,
    );
    check_error(
        &scene.result_of(&["--output", &path, "--call", "posixpath:basename", "--", "a/b"]),
        &path,
    );
    scene.check();
}

#[trial]
fn a_task_that_waits_for_a_file_system_can_be_ended() {
    let site = Site::new();
    let scene = Scene::new(&site, &[]);
    let access = scene.access();
    let path = site.text("dead/x");
    let task = serde_json::json!({"command": ["true"], "cwd": path});
    let file = site.write("task.jsonl", format!("{task}\n"));
    for args in [&["--input", path.as_str(), "--", "true"][..], &["--tasks", &file]] {
        let result = scene.result_of(&[&["--timeout", "1"][..], args].concat());
        assert!(result["error"].as_str().unwrap().contains("timeout"), "{result}");
        let id = access.submit(args);
        access.run("cancel", &[&id]).exits(0);
        assert_eq!(access.results(&id)[0]["status"], "cancelled");
    }
    scene.check();
}

#[trial]
fn more_tasks_than_threads_may_wait_for_file_systems() {
    let site = Site::new();
    let scene = Scene::new(&site, &["--file-timeout", "1s"]);
    let access = scene.access();
    let path = site.text("dead/{}");
    // Each keeps a thread of the executor; the last find none.
    let id = access.submit(&["--range", "1-80", "--cpus", "0.05", "--input", &path, "--", "true"]);
    let results = access.results(&id);
    for result in &results {
        check_error(result, "/dead/");
    }
    let unlooked = |one: &&Value| one["error"].as_str().unwrap().contains("cannot be looked at");
    assert!(results.iter().filter(unlooked).count() >= 80 - 64);
    // Files that answer are not looked at here any more, and it is said why.
    let input = site.write("input", "");
    check_error(&scene.result_of(&["--input", &input, "--", "true"]), "/dead/");
    scene.executor.wait_for("does not answer");
    scene.check();
}

#[trial]
fn a_data_object_that_does_not_answer_fails_its_task_and_says_which() {
    let site = Site::new();
    let cache = site.text("cache=64MiB");
    let scene = Scene::new(&site, &[LIMIT, &["--cache", &cache]].concat());
    std::fs::create_dir(site.path("dead")).unwrap();
    let path = site.write("dead/x", "content");
    let input = format!("in={path}");
    check_error(&scene.result_of(&["--input", &input, "--", "cat", "in"]), &path);
    scene.check();
}

#[trial]
fn an_executor_whose_own_directory_does_not_answer_for_a_while_keeps_its_tasks() {
    let site = Site::new();
    let scene = Scene::with_stuck(&site, "600s");
    let access = scene.access();
    site.write("stuck-now", "");
    // Its directory is made by the thread that owes the heartbeats.
    let input = format!("in={}", site.write("x", "content"));
    let id = access.submit(&["--input", &input, "--", "cat", "in"]);
    scene.executor.wait_for("tasks' directories");
    // Somebody else's work takes longer than the dispatcher bears silence.
    site.run(["run", "--", "sleep", "13"]).exits(0);
    std::fs::remove_file(site.path("stuck-now")).unwrap();
    let result = access.results(&id).remove(0);
    assert_eq!((&result["status"], &result["attempts"]), (&"done".into(), &1.into()), "{result}");
    scene.check();
}

#[trial]
fn an_executor_whose_own_directory_never_answers_is_lost() {
    let site = Site::new();
    let scene = Scene::with_stuck(&site, "1s");
    site.write("stuck-now", "");
    let input = format!("in={}", site.write("x", "content"));
    scene.access().submit(&["--input", &input, "--", "cat", "in"]);
    scene.executor.wait_for("take this executor for lost");
    scene.dispatcher.service().wait_for("silent");
    std::fs::remove_file(site.path("stuck-now")).unwrap();
}
