//! Members of archives as inputs.

use super::{all_sources, nothing_is_left};
use crate::fixture::{Running, Site};
use falkon_trials::{skip, trial};
use rustix::process::Signal;

/// Puts files into an archive, and adds a file to its set if it exists.
fn create(site: &Site, archive: &str, members: &[(&str, &[u8])]) {
    let folder = site.path("packed");
    for (name, data) in members {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, data).unwrap();
    }
    site.run(["archive", "create", archive, "--append", "-C", "packed", "."]).exits(0);
    std::fs::remove_dir_all(folder).unwrap();
}

/// Runs a program that makes archives with Python's zipfile.
fn python(site: &Site, program: &str) {
    if std::process::Command::new("python3").arg("--version").output().is_err() {
        skip("python3 is not there");
    }
    let program = format!("import zipfile\n{program}");
    let output = site.program("python3").args(["-c", &program]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What a task prints that reads this member.
fn read(site: &Site, member: &str) -> String {
    let input = format!("in={member}");
    site.run(["run", "--input", &input, "--", "cat", "in"]).exits(0).text().to_owned()
}

/// What is said of a task whose member cannot be read.
fn refused(site: &Site, member: &str) -> String {
    let input = format!("in={member}");
    site.run(["run", "--input", &input, "--", "cat", "in"]).exits(1).err
}

#[trial]
fn a_task_finds_a_member_as_its_input() {
    let site = Site::new();
    let large = b"line of text\n".repeat(200_000);
    create(&site, "scores.zip", &[("7/energy.dat", b"-7.5\n"), ("8/energy.dat", &large)]);
    create(&site, "scores.zip", &[("9/energy.dat", b"-9.5\n"), ("7/energy.dat", b"-7.25\n")]);
    assert!(site.path("scores.part2.zip").exists());
    let tasks = site.write(
        "tasks.jsonl",
        r#"{"command": ["cat", "deep/energy"], "inputs": ["deep/energy=scores.zip!7/energy.dat"]}
{"command": ["wc", "-c", "e"], "inputs": ["e=scores.zip!8/energy.dat"]}
{"command": ["cat", "a", "b"], "inputs": ["a=./scores.zip!9/energy.dat", "b=scores.zip!7/energy.dat"]}
"#,
    );
    let args = ["run", "--json", "--tasks", &tasks];
    let results = site.run(args).exits(0).results();
    // The last member of a name counts.
    assert_eq!(results[0]["stdout"], "-7.25\n");
    assert_eq!(results[1]["stdout"], "2600000 e\n");
    assert_eq!(results[2]["stdout"], "-9.5\n-7.25\n");
    // Each member is an object of its own, which the cache has after its first use.
    assert_eq!(all_sources(&results), [1, 0, 3]);
    nothing_is_left(&site);
}

#[trial]
fn archives_of_other_tools_are_read() {
    let site = Site::new();
    python(
        &site,
        "
with zipfile.ZipFile('p.zip', 'w') as z:
    z.writestr('stored', 'as it is')
    z.writestr(zipfile.ZipInfo('deflated'), 'x' * 5000, zipfile.ZIP_DEFLATED)
    with z.open('wide', 'w', force_zip64=True) as member:
        member.write(b'64 bits')
    z.writestr('b/\\u00e4 \\u4e2d!x=1', 'odd')
    z.writestr('b/a.zip!c', 'divided once')
    z.writestr('twice', 'first')
    z.writestr('twice', 'last')
    z.writestr('bzip2', 'y' * 100, zipfile.ZIP_BZIP2)
    z.writestr('d/', '')
    z.comment = b'a comment'
with zipfile.ZipFile('with ! and %.zip', 'w') as z:
    z.writestr('m', 'mark')
",
    );
    assert_eq!(read(&site, "p.zip!stored"), "as it is");
    assert_eq!(read(&site, "p.zip!deflated"), "x".repeat(5000));
    assert_eq!(read(&site, "p.zip!wide"), "64 bits");
    assert_eq!(read(&site, "p.zip!b/ä 中!x=1"), "odd");
    assert_eq!(read(&site, "p.zip!b/a.zip!c"), "divided once");
    assert_eq!(read(&site, "p.zip!twice"), "last");
    assert_eq!(read(&site, "with ! and %.zip!m"), "mark");
    assert!(refused(&site, "p.zip!bzip2").contains("stored by method 12"));
    // A file whose name has what divides is named so that it has not.
    site.write("a.zip!b", "plain");
    assert_eq!(read(&site, "file:a.zip%21b"), "plain");
    assert!(refused(&site, "a.zip!b").contains("a.zip: is the name right?"));
    nothing_is_left(&site);
}

#[trial]
fn what_is_wrong_with_a_member_is_said() {
    let site = Site::new();
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    let noise: Vec<u8> = (0..100_000).map(|_| next()).collect();
    create(&site, "a.zip", &[("m/x", &noise), ("m/y", b"why")]);
    std::fs::create_dir(site.path("d.zip")).unwrap();
    for (member, parts) in [
        ("none.zip!m/x", ["the member `m/x` cannot be read: there is no", "none.zip"]),
        (
            "d.zip!m/x",
            ["the member `m/x` cannot be read", "d.zip cannot be used: it is a directory"],
        ),
        ("a.zip!m/z", ["a.zip has no member `m/z`", ""]),
    ] {
        let said = refused(&site, member);
        assert!(parts.iter().all(|part| said.contains(part)), "{member}: {said}");
    }
    for (member, part) in [
        ("a.zip!../x", "the member `../x` of the archive a.zip cannot be used: its name has `..`"),
        ("a.zip!/x", "its name is an absolute path"),
        ("a.zip!", "its name names no file"),
        ("a.zip!m/", "its name is a directory's"),
    ] {
        let input = format!("in={member}");
        site.run(["run", "--input", &input, "--", "cat", "in"]).exits(2).says(part);
    }
    // Some of the data are zeros; then the end is missing.
    let mut bytes = std::fs::read(site.path("a.zip")).unwrap();
    bytes[10_000..20_000].fill(0);
    site.write("a.zip", &bytes);
    let said = refused(&site, "a.zip!m/x");
    assert!(said.contains("a.zip: member `m/x` at byte 0: its data are damaged"), "{said}");
    assert_eq!(read(&site, "a.zip!m/y"), "why");
    site.write("a.zip", &bytes[..50_000]);
    let said = refused(&site, "a.zip!m/y");
    assert!(said.contains("the member `m/y` cannot be read"), "{said}");
    assert!(said.contains("its end is missing"), "{said}");
    nothing_is_left(&site);
}

#[trial]
fn executors_read_members_and_hand_them_on() {
    let site = Site::new();
    create(&site, "a.zip", &[("1", b"one"), ("2", b"two")]);
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    let executor = |name: &str| {
        let cache = format!("{}=64MiB", site.text(&format!("cache-{name}")));
        dispatcher.executor(name, &["--slots", "2", "--cache", &cache])
    };
    let executors = ["a", "b"].map(executor);
    let input = format!("in={}!{{}}", site.text("a.zip"));
    let id = access.submit(&["--range", "1-2", "--input", &input, "--", "cat", "in"]);
    let results = access.results(&id);
    assert_eq!((&results[0]["stdout"], &results[1]["stdout"]), (&"one".into(), &"two".into()));
    // Caches hold members, and nothing of the archive besides.
    let held = access.run_sub(&["data", "ls"], &["--json"]).exits(0).results();
    let mut urls: Vec<&str> = held.iter().map(|one| one["url"].as_str().unwrap()).collect();
    urls.sort_unstable();
    let archive = site.text("a.zip");
    assert_eq!(urls, [format!("{archive}!1"), format!("{archive}!2")]);
    // The archive is another one: so are its members.
    std::fs::remove_file(site.path("a.zip")).unwrap();
    create(&site, "a.zip", &[("1", b"another"), ("3", b"three")]);
    let id = access.submit(&["--range", "1-1", "--input", &input, "--", "cat", "in"]);
    assert_eq!(access.results(&id)[0]["stdout"], "another");
    for executor in executors {
        end(executor);
    }
}

fn end(executor: Running) {
    executor.signal(Signal::TERM);
    executor.finish().exits(0);
}

#[trial]
fn a_task_waits_for_the_task_that_writes_the_archive() {
    let site = Site::new();
    create(&site, "made.zip", &[("x", b"written by a task")]);
    std::fs::rename(site.path("made.zip"), site.path("source.zip")).unwrap();
    let tasks = site.write(
        "tasks.jsonl",
        r#"{"id": "reads", "command": ["cat", "in"], "inputs": ["in=new/made.zip!x"]}
{"id": "writes", "command": ["cp", "in", "out"], "inputs": ["in=source.zip"], "outputs": ["out=new/made.zip"]}
"#,
    );
    let results = site.run(["run", "--json", "--tasks", &tasks]).exits(0).results();
    let read = results.iter().find(|result| result["stdout"] == "written by a task");
    assert!(read.is_some(), "{results:?}");
}

#[trial]
fn each_member_that_matches_is_a_task() {
    let site = Site::new();
    let energies: Vec<(String, String)> =
        (1..=5).map(|number| (format!("{number}/energy.dat"), format!("-{number}\n"))).collect();
    let mut members: Vec<(&str, &[u8])> =
        energies.iter().map(|(name, energy)| (&**name, energy.as_bytes())).collect();
    members.extend([("1/log", &b"no energy"[..]), ("top", b"at the top")]);
    create(&site, "scores.zip", &members);
    create(&site, "scores.zip", &[("3/energy.dat", b"-3.5\n")]);
    let args = ["run", "--json", "--each", "scores.zip!*/energy.dat"];
    let command = ["--output", "{/.}.out=out/{#}", "--shell", "--", "ls; cat {} | tee {/.}.out"];
    let results = site.run(args.iter().chain(&command)).exits(0).results();
    let mut said: Vec<&str> =
        results.iter().map(|result| result["stdout"].as_str().unwrap()).collect();
    said.sort_unstable();
    // The first task is that of the first member; the third has the newest one.
    let all = ["-1", "-2", "-3.5", "-4", "-5"].map(|number| format!("energy.dat\n{number}\n"));
    assert_eq!(said, all);
    assert_eq!(site.read("out/1"), "-1\n");
    // An input that is given the value is the only one.
    let args = ["run", "--each", "scores.zip!top", "--input", "in={}", "--", "cat", "in"];
    assert_eq!(site.run(args).exits(0).text(), "at the top");
    let ran = site.run([
        "run",
        "--each",
        "scores.zip!t?p",
        "s*.zip!1/l*",
        "--keep-order",
        "--",
        "cat",
        "{/}",
    ]);
    assert_eq!(ran.exits(0).sorted(), ["at the topno energy"]);
    for (pattern, said) in [
        ("scores.zip!*.dat", "no member matches `scores.zip!*.dat`"),
        ("scores.zip!9/energy.dat", "no member matches"),
        ("none.zip!*", "there is no archive none.zip"),
    ] {
        site.run(["run", "--each", pattern, "--", "cat", "{}"]).exits(2).says(said);
    }
    nothing_is_left(&site);
}

#[trial]
fn many_members_are_looked_up_at_once() {
    let site = Site::new();
    let names: Vec<(String, String)> =
        (0..200).map(|number| (format!("m/{number}"), format!("{number}\n"))).collect();
    let members: Vec<(&str, &[u8])> =
        names.iter().map(|(name, data)| (&**name, data.as_bytes())).collect();
    create(&site, "a.zip", &members);
    python(
        &site,
        "
with zipfile.ZipFile('p.zip', 'w') as z:
    for number in range(100):
        z.writestr('m/%d' % number, '%d\\n' % number)
    z.writestr('bad/../x', '')
    z.writestr('d/', '')
",
    );
    let ran = site.run(["run", "--each", "a.zip!m/*", "--", "cat", "{}"]).exits(0);
    let mut numbers: Vec<u64> = ran.lines().iter().map(|line| line.parse().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..200).collect::<Vec<u64>>());
    let ran = site.run(["run", "--each", "p.zip!m/*", "--", "cat", "{}"]).exits(0);
    assert_eq!(ran.lines().len(), 100);
    let ran = site.run(["run", "--each", "p.zip!**", "--", "cat", "{}"]).exits(2);
    ran.says("the member `bad/../x` of p.zip cannot be an input of a task");
}
