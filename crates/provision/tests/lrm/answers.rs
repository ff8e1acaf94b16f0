//! What schedulers answer, as their programs print it, and what they are told.
//!
//! The answers of Slurm 22.05 and Grid Engine 8.1.9 were taken from the real
//! programs, as the tests beside this one start them. The others have the form
//! that the programs' makers document: PBS Professional Reference Guide
//! (`qstat -F json`; OpenPBS prints the same), the Torque Administrator Guide
//! (`qstat -x`), IBM Spectrum LSF Command Reference (`bjobs -o`, `bsub`),
//! flux-jobs(1) and flux-batch(1) of flux-core, and the HTCondor Manual
//! (`condor_q -json`, `condor_submit -terse`).

use crate::cluster::Site;
use falkon_provision::lrm::{Description, Job, KINDS, Request, State, jobs};
use falkon_trials::trial;
use std::time::Duration;

fn description(kind: &str) -> Description {
    Description::of(kind, &toml::Table::new()).unwrap()
}

#[track_caller]
fn read(kind: &str, answer: &str) -> Vec<Job> {
    let description = description(kind);
    jobs(answer, &description.query, &description.states).unwrap()
}

/// Checks numbers, names and states of the jobs of an answer.
#[track_caller]
fn check(kind: &str, answer: &str, expected: &[(&str, &str, State)]) {
    let found = read(kind, answer);
    let found: Vec<(&str, &str, State)> =
        found.iter().map(|job| (job.job.as_str(), job.name.as_str(), job.state)).collect();
    assert_eq!(found, expected);
}

#[trial]
fn answers_of_slurm() {
    let answer = "\
1|COMPLETED|2|9:59|None|falkon-ab-1\n\
3|PENDING|99|1:00:00|PartitionConfig|a|b\n\
2|RUNNING|1|1-00:59:50|None|falkon-ab-2\n\
7|MARVELLOUS|1|UNLIMITED|None|falkon-ab-7\n";
    check(
        "slurm",
        answer,
        &[
            ("1", "falkon-ab-1", State::Ended),
            ("3", "a|b", State::TooLarge),
            ("2", "falkon-ab-2", State::Running),
            ("7", "falkon-ab-7", State::Unknown),
        ],
    );
    let found = read("slurm", answer);
    assert_eq!((found[2].nodes, found[2].left), (Some(1), Some(Duration::from_secs(89_990))));
    assert_eq!((found[3].left, found[1].words.as_str()), (None, "PENDING, PartitionConfig"));
    assert_eq!(description("slurm").submit.job.find("4711;cluster\n"), Some("4711"));
    check("slurm", "", &[]);
}

#[trial]
fn answers_of_grid_engine() {
    let answer = r#"<?xml version='1.0'?>
<job_info  xmlns:xsd="http://arc.liv.ac.uk/repos/darcs/sge/source/dist/util/resources/schemas/qstat/qstat.xsd">
  <queue_info>
    <job_list state="running">
      <JB_job_number>1</JB_job_number>
      <JAT_prio>0.50000</JAT_prio>
      <JB_name>falkon-ab-1</JB_name>
      <JB_owner>root</JB_owner>
      <state>r</state>
      <JAT_start_time>2026-11-21T17:24:55</JAT_start_time>
      <queue_name>all.q@vm</queue_name>
      <slots>2</slots>
    </job_list>
  </queue_info>
  <job_info>
    <job_list state="pending">
      <JB_job_number>2</JB_job_number>
      <JB_name>a &lt;&amp;gt; b</JB_name>
      <state>Eqw</state>
      <queue_name></queue_name>
      <slots>1</slots>
    </job_list>
  </job_info>
</job_info>
"#;
    let expected = [("1", "falkon-ab-1", State::Running), ("2", "a <&gt; b", State::Dead)];
    check("gridengine", answer, &expected);
    let description = description("gridengine");
    let broken = &answer[..answer.len() - 20];
    assert!(jobs(broken, &description.query, &description.states).is_err());
    assert_eq!(description.submit.job.find("17\n"), Some("17"));
}

#[trial]
fn answers_of_pbs_and_torque() {
    let answer = r#"{
    "timestamp":1618432467,
    "pbs_version":"20.0.1",
    "pbs_server":"head",
    "Jobs":{
        "1008.head":{
            "Job_Name":"falkon-ab-3",
            "Job_Owner":"me@head",
            "job_state":"R",
            "queue":"workq",
            "Resource_List":{ "ncpus":8, "nodect":2, "walltime":"01:00:00" }
        },
        "1009.head":{
            "Job_Name":"other",
            "job_state":"Q",
            "comment":"Not Running: Insufficient amount of resource: ncpus"
        }
    }
}"#;
    let expected =
        [("1008.head", "falkon-ab-3", State::Running), ("1009.head", "other", State::Pending)];
    check("pbs", answer, &expected);
    assert_eq!(read("pbs", answer)[0].nodes, Some(2));
    check(
        "pbs",
        "{\"timestamp\":1788909619,\"pbs_version\":\"2024.1.2\",\"pbs_server\":\"head\"}\n",
        &[],
    );
    let answer = "<Data><Job><Job_Id>12.head</Job_Id><Job_Name>falkon-ab-1</Job_Name>\
                  <job_state>C</job_state><Resource_List><nodect>1</nodect></Resource_List></Job>\
                  <Job><Job_Id>13.head</Job_Id><Job_Name>falkon-ab-2</Job_Name>\
                  <job_state>R</job_state></Job></Data>";
    let expected =
        [("12.head", "falkon-ab-1", State::Ended), ("13.head", "falkon-ab-2", State::Running)];
    check("torque", answer, &expected);
    check("torque", "", &[]);
}

#[trial]
fn answers_of_lsf_flux_and_htcondor() {
    check(
        "lsf",
        "101|RUN|2|falkon-ab-1\n102|PEND|-|falkon-ab-2\n99|EXIT|1|falkon-ab-0\n",
        &[
            ("101", "falkon-ab-1", State::Running),
            ("102", "falkon-ab-2", State::Pending),
            ("99", "falkon-ab-0", State::Ended),
        ],
    );
    let said = "Job <4711> is submitted to queue <normal>.\n";
    assert_eq!(description("lsf").submit.job.find(said), Some("4711"));
    check(
        "flux",
        "ƒ2aRt6TqhWb|RUN|2|16|falkon-ab-1\nƒ2aRt6TqhWc|SCHED|1|16|falkon-ab-2\n",
        &[
            ("ƒ2aRt6TqhWb", "falkon-ab-1", State::Running),
            ("ƒ2aRt6TqhWc", "falkon-ab-2", State::Pending),
        ],
    );
    assert_eq!(description("flux").submit.job.find("ƒ2aRt6TqhWb\n"), Some("ƒ2aRt6TqhWb"));
    let answer = r#"[
{ "ClusterId": 12, "JobBatchName": "falkon-ab-1", "JobStatus": 2, "ProcId": 0 }
,
{ "ClusterId": 13, "HoldReason": "no such file", "JobBatchName": "falkon-ab-2", "JobStatus": 5, "ProcId": 0 }
]
"#;
    let expected = [("12", "falkon-ab-1", State::Running), ("13", "falkon-ab-2", State::Dead)];
    check("htcondor", answer, &expected);
    check("htcondor", "", &[]);
    assert_eq!(description("htcondor").submit.job.find("12.0 - 12.0\n"), Some("12"));
}

/// What every kind would be told, with settings that try to break out.
#[trial]
fn no_setting_breaks_out_of_what_a_scheduler_is_told() {
    let site = Site::new();
    let evil = "x'; : >broken; echo \\\"";
    for (kind, _) in KINDS {
        let settings = format!(
            "environment = {{ A = \"{evil}$(: >broken)\" }}\nhosts = [\"{evil}\"]\n\
             modules = [\"{evil}\"]\nbinary = \"/x/{evil}\"\nscratch = \"{evil}\"\n\
             options = [\"{evil}\"]\nexecutor_options = [\"{evil}\"]\nlog = \"/{evil}\"\n"
        );
        let image = format!("image = \"{evil}\"\nmanifest = {{ kind = \"{evil}\" }}\n");
        let settings = if kind == "kubernetes" { settings + &image } else { settings };
        let driver = site.driver(kind, "", &settings);
        let request = Request { allocation: 3, nodes: 1, walltime: Some(Duration::from_secs(61)) };
        let (words, input) = driver.submission(&request).unwrap();
        assert!(words.iter().all(|word| !word.contains("{{")), "{kind}: {words:?}");
        if kind == "htcondor" {
            assert!(input.lines().all(|line| line == "queue" || line.contains(" = ")), "{input}");
            assert!(!input.contains("request_gpus"), "{input}");
            continue;
        }
        // A shell takes it for one program, whatever it would do.
        let checked = std::process::Command::new("sh")
            .current_dir(site.dir.path())
            .args(["-n", "-c", &input])
            .output()
            .unwrap();
        assert!(checked.status.success(), "{kind}: {checked:?}\n{input}");
        // Run as far as the scheduler's own programs, which are not there.
        let _ = std::process::Command::new("sh")
            .current_dir(site.dir.path())
            .env("PATH", "/nowhere")
            .args(["-c", &input])
            .output();
        assert!(!site.path("broken").exists(), "{kind}: {input}");
    }
}

#[trial]
fn what_a_scheduler_would_not_hear_of_is_refused() {
    let refused = |kind: &str, settings: &str| {
        let site = toml::Table::new();
        let settings = toml::from_str(settings).unwrap();
        let executor = falkon_provision::lrm::Executor {
            binary: "falkon".into(),
            access: String::new(),
            give_up: Duration::ZERO,
            leave_before: None,
        };
        let dir = std::path::Path::new("/nowhere");
        let driver =
            falkon_provision::lrm::Driver::new(kind, &site, settings, executor, "test", dir);
        driver.unwrap_err().to_string()
    };
    assert!(refused("pbs", "gpus = 2").contains("job.gpus has no place"));
    assert!(refused("gridengine", "qos = \"high\"").contains("job.qos has no place"));
    assert!(refused("ssh", "").contains("ssh needs job.hosts"));
}

/// A row of each scheduler for each of its states, and what is made of it.
#[trial]
fn every_state_of_every_scheduler_is_known() {
    #[track_caller]
    fn check(kind: &str, row: impl Fn(&str) -> String, states: &[(&str, State)]) {
        for (word, state) in states {
            let found = read(kind, &row(word));
            assert_eq!(found.len(), 1, "{kind}: {word}");
            assert_eq!(found[0].state, *state, "{kind}: {word}");
        }
    }
    use State::{Dead, Ended, Held, Never, Pending, Running, TooLarge, Unknown};

    // squeue(1), "JOB STATE CODES" and "JOB REASON CODES".
    let slurm = |word: &str| {
        let (state, reason) = word.split_once(' ').unwrap_or((word, "None"));
        format!("1|{state}|2|9:59|{reason}|falkon-ab-1\n")
    };
    check(
        "slurm",
        slurm,
        &[
            ("PENDING", Pending),
            ("PENDING Priority", Pending),
            ("PENDING Resources", Pending),
            ("PENDING ReqNodeNotAvail, UnavailableNodes:n[1-2]", Pending),
            ("PENDING Nodes required for job are DOWN, DRAINED or reserved", Pending),
            ("PENDING JobHeldUser", Held),
            ("PENDING JobHeldAdmin", Held),
            ("PENDING launch failed requeued held", Held),
            ("PENDING job requeued in held state", Held),
            ("PENDING PartitionNodeLimit", TooLarge),
            ("PENDING PartitionConfig", TooLarge),
            ("PENDING QOSMaxNodePerJobLimit", TooLarge),
            ("PENDING BadConstraints", TooLarge),
            ("PENDING PartitionTimeLimit", Never),
            ("PENDING InvalidAccount", Never),
            ("CONFIGURING", Pending),
            ("REQUEUED", Pending),
            ("REQUEUE_FED", Pending),
            ("REQUEUE_HOLD", Held),
            ("RESV_DEL_HOLD", Held),
            ("SPECIAL_EXIT", Held),
            ("RUNNING", Running),
            ("SUSPENDED", Running),
            ("STOPPED", Running),
            ("SIGNALING", Running),
            ("RESIZING", Running),
            ("STAGE_OUT", Running),
            ("COMPLETING", Ended),
            ("COMPLETED", Ended),
            ("CANCELLED", Ended),
            ("FAILED", Ended),
            ("TIMEOUT", Ended),
            ("NODE_FAIL", Ended),
            ("PREEMPTED", Ended),
            ("BOOT_FAIL", Ended),
            ("DEADLINE", Ended),
            ("OUT_OF_MEMORY", Ended),
            ("LAUNCH_FAILED", Ended),
            ("RECONFIG_FAIL", Ended),
            ("REVOKED", Ended),
            ("MARVELLOUS", Unknown),
        ],
    );
    // qstat(1) of Grid Engine, "state".
    let gridengine = |word: &str| {
        format!(
            "<job_info><job_list state=\"x\"><JB_job_number>1</JB_job_number>\
             <JB_name>falkon-ab-1</JB_name><state>{word}</state></job_list></job_info>"
        )
    };
    check(
        "gridengine",
        gridengine,
        &[
            ("qw", Pending),
            ("Rq", Pending),
            ("hqw", Held),
            ("hRwq", Held),
            ("r", Running),
            ("t", Running),
            ("hr", Running),
            ("s", Running),
            ("T", Running),
            ("Rr", Running),
            ("dr", Ended),
            ("dqw", Ended),
            ("Eqw", Dead),
        ],
    );
    // PBS Professional Reference Guide, "Job States".
    let pbs = |word: &str| {
        let (state, comment) = word.split_once(' ').unwrap_or((word, ""));
        format!(
            r#"{{"Jobs":{{"1.head":{{"Job_Name":"falkon-ab-1","job_state":"{state}","comment":"{comment}"}}}}}}"#
        )
    };
    check(
        "pbs",
        pbs,
        &[
            ("Q", Pending),
            ("Q Not Running: Insufficient amount of resource: ncpus", Pending),
            ("Q Can Never Run: Insufficient amount of resource: ncpus", TooLarge),
            ("W", Pending),
            ("T", Pending),
            ("B", Pending),
            ("H", Held),
            ("R", Running),
            ("S", Running),
            ("U", Running),
            ("E", Ended),
            ("F", Ended),
            ("X", Ended),
            ("M", Ended),
        ],
    );
    // The Torque Administrator Guide, qstat.
    let torque = |word: &str| {
        format!(
            "<Data><Job><Job_Id>1.head</Job_Id><Job_Name>falkon-ab-1</Job_Name>\
             <job_state>{word}</job_state></Job></Data>"
        )
    };
    let states = [
        ("Q", Pending),
        ("W", Pending),
        ("T", Pending),
        ("H", Held),
        ("R", Running),
        ("S", Running),
        ("E", Ended),
        ("C", Ended),
    ];
    check("torque", torque, &states);
    // bjobs(1) of LSF, STAT.
    let lsf = |word: &str| format!("1|{word}|-|falkon-ab-1\n");
    check(
        "lsf",
        lsf,
        &[
            ("PEND", Pending),
            ("PROV", Pending),
            ("WAIT", Pending),
            ("PSUSP", Held),
            ("UNKWN", Held),
            ("RUN", Running),
            ("USUSP", Running),
            ("SSUSP", Running),
            ("DONE", Ended),
            ("EXIT", Ended),
            ("ZOMBI", Ended),
        ],
    );
    // flux-jobs(1), with the urgency: 0 is held.
    let flux = |word: &str| {
        let (state, urgency) = word.split_once(' ').unwrap_or((word, "16"));
        format!("ƒ2aRt6TqhWb|{state}|2|{urgency}|falkon-ab-1\n")
    };
    let states = [
        ("DEPEND", Pending),
        ("PRIORITY", Pending),
        ("SCHED", Pending),
        ("SCHED 0", Held),
        ("PRIORITY 0", Held),
        ("RUN", Running),
        ("RUN 0", Running),
        ("CLEANUP", Ended),
        ("INACTIVE", Ended),
    ];
    check("flux", flux, &states);
    // The HTCondor Manual, JobStatus.
    let htcondor = |word: &str| {
        format!(r#"[{{"ClusterId": 1, "JobBatchName": "falkon-ab-1", "JobStatus": {word}}}]"#)
    };
    let states = [
        ("1", Pending),
        ("2", Running),
        ("6", Running),
        ("7", Running),
        ("3", Ended),
        ("4", Ended),
        ("5", Dead),
        ("8", Unknown),
    ];
    check("htcondor", htcondor, &states);
}

/// A queue knows its own jobs among all that a scheduler lists, and names that
/// not every scheduler takes are no names of jobs.
#[trial]
fn a_queue_knows_its_jobs_by_their_names() {
    let site = Site::new();
    let names = ["long", "longer", "", "qqqqqqqqqqq", "q0123456789", "big-mem_2.x", "Long"];
    let drivers: Vec<_> =
        names.iter().map(|name| site.driver("slurm", "", "").named(name)).collect();
    for (at, driver) in drivers.iter().enumerate() {
        let name = driver.job_name(41);
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(name.len() <= 40 && name.chars().all(plain), "{name}");
        for (other, driver) in drivers.iter().enumerate() {
            let found = driver.allocation_of(&name);
            assert_eq!(found, (at == other).then_some(41), "{name}");
        }
    }
    assert_eq!(drivers[0].job_name(7), "falkon-test-long-7");
    assert_eq!(drivers[0].allocation_of("falkon-test-long-07"), None);
}

/// What others can read says nothing that only executors may know, and jobs get
/// no more of the environment than they need.
#[trial]
fn no_secret_is_where_others_can_read_it() {
    let site = Site::new();
    // Slurm keeps scripts readable for their owners alone, Kubernetes has them in a secret, and
    // the others have no queue that others see.
    let is_private = |kind: &str| ["slurm", "kubernetes", "ssh", "local"].contains(&kind);
    for (kind, _) in KINDS.into_iter().filter(|(kind, _)| !is_private(kind)) {
        let driver = site.driver(kind, "", "environment = { TOKEN = \"a secret\" }\n");
        let request = Request { allocation: 3, nodes: 1, walltime: Some(Duration::from_secs(61)) };
        let (words, input) = driver.submission(&request).unwrap();
        for secret in ["the access", "a secret"] {
            assert!(!input.contains(secret), "{kind}: {input}");
            assert!(words.iter().all(|word| !word.contains(secret)), "{kind}: {words:?}");
        }
        assert!(!words.contains(&"-V".to_owned()), "{kind}: {words:?}");
    }
}
