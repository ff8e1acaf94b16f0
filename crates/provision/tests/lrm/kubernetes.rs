//! What Kubernetes answers. `kubernetes-1.33.json` is what `kubectl` 1.33.4
//! printed, a line for each item, of the control plane that
//! `tests/schedulers/kubernetes.sh` starts: jobs that have succeeded (1) and
//! failed (2), run (3), find no node (4) or no image (5), run with one pod of
//! two (6), have no quota for pods (7), and are being deleted (8); then the
//! events of jobs of which pods could not be made.

use crate::cluster::Site;
use falkon_provision::lrm::{Description, Job, Request, State, jobs};
use falkon_trials::trial;
use serde_json::{Value, json};
use std::time::Duration;

const ANSWER: &str = include_str!("kubernetes-1.33.json");

fn read(answer: &str) -> Vec<Job> {
    let description = Description::of("kubernetes", &toml::Table::new()).unwrap();
    jobs(answer, &description.query, &description.states).unwrap()
}

#[trial]
fn answers_of_kubernetes() {
    let found = read(ANSWER);
    let states: Vec<_> = found.iter().map(|job| (job.job.as_str(), job.state, job.nodes)).collect();
    let expected = [
        ("falkon-ab-1", State::Ended, Some(2)),
        ("falkon-ab-2", State::Ended, Some(1)),
        ("falkon-ab-3", State::Running, Some(1)),
        ("falkon-ab-4", State::Pending, Some(1)),
        ("falkon-ab-5", State::Dead, Some(1)),
        ("falkon-ab-6", State::Running, Some(2)),
        ("falkon-ab-7", State::Pending, Some(1)),
        ("falkon-ab-8", State::Ended, None),
    ];
    assert_eq!(states, expected);
    for (at, words) in [
        (1, "Failed, n1: there is no program /x/falkon: say in job.binary"),
        (3, "Unschedulable, 0/2 nodes are available: 2 Insufficient cpu."),
        (4, "ImagePullBackOff, Back-off pulling image \"example.org/nonesuch:1\""),
        (6, "FailedCreate, Error creating: pods \"falkon-ab-7-0-"),
        (6, " is forbidden: exceeded quota: none, requested: pods=1"),
    ] {
        assert!(found[at].has_reason && found[at].words.contains(words), "{:?}", found[at]);
    }
    assert!(!found[2].has_reason && !found[5].has_reason, "{found:?}");
    let none = "{\"apiVersion\": \"v1\", \"items\": [], \"kind\": \"List\"}\n";
    assert_eq!(read(none), []);
    assert_eq!(read(""), []);
    let description = Description::of("kubernetes", &toml::Table::new()).unwrap();
    let broken = &ANSWER[..ANSWER.len() - 9];
    assert!(jobs(broken, &description.query, &description.states).is_err());
    assert_eq!(description.submit.job.find("falkon-ab-1\n"), Some("falkon-ab-1"));
}

/// The document in the submission of `settings` for two nodes of a queue.
#[track_caller]
fn document(queue: &str, settings: &str) -> (Vec<String>, String, Value) {
    let site = Site::new();
    let driver = site.driver("kubernetes", "", settings).named(queue);
    let request = Request { allocation: 3, nodes: 2, walltime: Some(Duration::from_secs(3600)) };
    let (words, input) = driver.submission(&request).unwrap();
    // What the script would give to the first kubectl, asked of a shell.
    let script = input.split("printf '%s' ").nth(1).unwrap();
    let (quoted, _) = script.split_once(" |\n").unwrap();
    let echo = std::process::Command::new("sh")
        .args(["-c", &format!("printf '%s' {quoted}")])
        .output()
        .unwrap();
    (words, input, serde_json::from_slice(&echo.stdout).unwrap())
}

#[trial]
fn a_job_is_what_its_queue_says_and_keeps_its_secret() {
    let (words, input, job) = document(
        "my-queue",
        "image = \"example.org/falkon:1\"\ncpus = 4\ngpus = 2\nmemory_mib = 512\n\
         settings = { namespace = \"tasks\", service_account = \"runner\" }\n\
         [manifest.spec.template.spec]\nnodeSelector = { pool = \"big\" }\n\
         [[manifest.spec.template.spec.containers]]\nname = \"executor\"\n\
         securityContext = { runAsUser = 1000 }\n\
         env = [{ name = \"MORE\", value = \"1\" }]\n",
    );
    assert_eq!(words, ["sh", "-s", "--", "--request-timeout=30s", "--namespace=tasks"]);
    assert_eq!(job["metadata"]["name"], "falkon-test-q4e9abde142-3");
    let labels = json!({
        "app.kubernetes.io/managed-by": "falkon", "falkon-dispatcher": "falkon-test",
        "falkon-queue": "my-queue", "falkon-job": "falkon-test-q4e9abde142-3",
    });
    assert_eq!(job["metadata"]["labels"], labels);
    assert_eq!(job["spec"]["template"]["metadata"]["labels"], labels);
    assert_eq!((&job["spec"]["completions"], &job["spec"]["parallelism"]), (&json!(2), &json!(2)));
    let pod = &job["spec"]["template"]["spec"];
    assert!(pod["activeDeadlineSeconds"].as_u64().unwrap() > 3600 + 600, "{pod}");
    assert_eq!(pod["serviceAccountName"], "runner");
    assert_eq!(pod["nodeSelector"], json!({ "pool": "big" }));
    let [container] = pod["containers"].as_array().unwrap().as_slice() else { panic!("{pod}") };
    assert_eq!(container["securityContext"], json!({ "runAsUser": 1000 }));
    assert_eq!(container["image"], "example.org/falkon:1");
    let limits = json!({ "cpu": "4", "memory": "512Mi", "nvidia.com/gpu": "2" });
    assert_eq!(container["resources"]["limits"], limits);
    let names: Vec<&Value> =
        container["env"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names.len(), 4);
    assert!(names.contains(&&json!("MORE")), "{names:?}");
    // The access file is in the Secret that the script makes, and nowhere else.
    assert!(!job.to_string().contains("the access"), "{job}");
    assert_eq!(input.matches("the access").count(), 1);
}

#[trial]
fn what_is_not_said_is_left_out_or_little() {
    let (words, _, job) = document("-no label-", "image = \"i\"\n");
    // No value of a label could be that.
    assert_eq!(job["metadata"]["labels"].get("falkon-queue"), None);
    assert_eq!(words, ["sh", "-s", "--", "--request-timeout=30s"]);
    let pod = &job["spec"]["template"]["spec"];
    assert_eq!(pod.get("serviceAccountName"), None);
    let little = json!({ "cpu": "1", "memory": "1024Mi" });
    assert_eq!(pod["containers"][0]["resources"]["limits"], little);
}
