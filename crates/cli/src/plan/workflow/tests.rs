use super::*;
use crate::plan::{Plan, Surroundings, args::PlanArgs};
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn plan(path: &Path, edit: impl FnOnce(&mut PlanArgs)) -> Result<Plan, PlanError> {
    let mut args = PlanArgs::default();
    args.sources.workflow = Some(path.to_owned());
    edit(&mut args);
    let surroundings = Surroundings {
        stdin: &mut std::io::empty(),
        stdin_is_piped: false,
        current_dir: Path::new("/here"),
    };
    Plan::new(&args, surroundings)
}

fn position(plan: &Plan, name: &str) -> u64 {
    (0..plan.count()).find(|at| plan.name(*at) == Some(name)).unwrap()
}

fn text(words: &[Vec<u8>]) -> Vec<String> {
    words.iter().map(|word| String::from_utf8(word.clone()).unwrap()).collect()
}

#[test]
fn instances_of_both_versions_become_plans() {
    for (file, count) in [("blast-wfformat-1.5.json", 7), ("blast-wfformat-1.6.json", 8)] {
        let plan = plan(&fixture(file), |_| {}).unwrap();
        assert_eq!(plan.count(), count);
        let split = position(&plan, "split_fasta_00000001");
        let cat = position(&plan, "cat_blast_00000042");
        assert!(plan.after(split).is_empty());
        assert_eq!(plan.after(cat), (1..count - 2).collect::<Vec<_>>());
        let command = plan.command(split).unwrap();
        assert_eq!(
            text(&command.argv)[..5],
            ["wfbench", "--name", "split_fasta_00000001", "--percent-cpu", "0.6"]
        );
        let outputs = text(&command.argv).iter().position(|word| word == "--output-files");
        let value = &text(&command.argv)[outputs.unwrap() + 1];
        assert!(value.starts_with('{') && value.contains("': ") || value.contains("\": "));
        assert_eq!(text(&command.inputs), ["workflow_infile_0001"]);
        assert_eq!(text(&command.outputs), ["split_fasta_00000001_outfile_0001"]);
        let folder = fixture("");
        assert_eq!(Path::new(&text(&[command.cwd.unwrap()])[0]), folder);
    }
}

#[test]
fn what_was_recorded_gives_way_to_options() {
    let file = fixture("blast-wfformat-1.5.json");
    let recorded = plan(&file, |_| {}).unwrap();
    let class = recorded.class(0).unwrap();
    assert_eq!(class.resources.cpus_milli, 2000);
    assert!(class.estimate_micros.abs_diff(1_337_000) < 1_337_000 / 16);
    assert_eq!(recorded.class(2).unwrap().priority, 2);
    let asked = plan(&file, |args| {
        args.options.class.cpus = Some(Cpus(500));
        args.options.class.priority = Some(Priority(9));
        args.options.cwd = Some("/data".into());
    });
    let asked = asked.unwrap();
    assert_eq!(asked.class(0).unwrap().resources.cpus_milli, 500);
    assert_eq!(asked.class(2).unwrap().priority, 9);
    assert_eq!(asked.command(0).unwrap().cwd, Some(b"/data".to_vec()));
}

/// A workflow of two tasks, with pieces replaced.
fn broken(from: &str, to: &str) -> PlanError {
    let sound = r#"{"schemaVersion": "1.6", "name": "w", "workflow": {
        "specification": {"tasks": [
            {"id": "a", "name": "a", "parents": [], "children": ["b"]},
            {"id": "b", "name": "b", "parents": ["a"], "children": []}]},
        "execution": {"tasks": [
            {"id": "a", "runtimeInSeconds": 1, "command": {"program": "true"}},
            {"id": "b", "runtimeInSeconds": 1, "command": {"program": "true"}}]}}}"#;
    assert!(sound.contains(from), "{from}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.json");
    std::fs::write(&path, sound).unwrap();
    assert_eq!(plan(&path, |_| {}).unwrap().count(), 2);
    std::fs::write(&path, sound.replacen(from, to, 1)).unwrap();
    plan(&path, |_| {}).unwrap_err()
}

#[test]
fn unsound_workflows_are_refused_by_name() {
    for (from, to, message) in [
        ("\"1.6\"", "\"1.4\"", "this is WfFormat 1.4, but only 1.5 and 1.6"),
        ("\"schemaVersion\": \"1.6\", ", "", "no `schemaVersion`"),
        ("\"children\": [\"b\"]", "\"children\": []", "`a` does not have it among its children"),
        ("\"parents\": [\"a\"]", "\"parents\": []", "`b` does not have it among its parents"),
        ("[\"b\"]", "[\"x\"]", "task `a` names `x`"),
        ("{\"id\": \"b\", \"runtime", "{\"id\": \"c\", \"runtime", "`execution.tasks` names `c`"),
        ("{\"id\": \"b\", \"runtime", "{\"id\": \"a\", \"runtime", "the execution have the id `a`"),
        ("\"execution\"", "\"other\"", "no `execution` part"),
        ("{\"program\": \"true\"}", "{}", "task `a` has no command"),
        ("\"true\"", "\"@nop\"", "task `a`: there is no builtin `@nop`"),
        ("\"parents\": []", "\"parents\": 3", "line 3 column"),
        ("{\"id\": \"b\", \"name\"", "{\"id\": \"a\", \"name\"", "specification have the id `a`"),
    ] {
        let text = broken(from, to).to_string();
        assert!(text.contains(message), "{text}");
    }
    let cycle = broken(
        "\"parents\": [], \"children\": [\"b\"]",
        "\"parents\": [\"b\"], \"children\": [\"b\"]",
    );
    assert!(cycle.to_string().contains("does not have it among its children"));
}
