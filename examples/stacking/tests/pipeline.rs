//! The whole application as Falkon would run it: each task a process of its own, joined by files.

#![expect(clippy::unwrap_used, reason = "in a test, a failure is to be a panic")]

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_stacking");

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("stacking-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn stacking(folder: &Path, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
    Command::new(PROGRAM).args(args).current_dir(folder).output().unwrap()
}

/// Runs the program, which must fail with `status`; returns what it says.
fn refused<const N: usize>(folder: &Path, status: i32, args: [&str; N]) -> String {
    let output = stacking(folder, args);
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{args:?}: {message}");
    assert_eq!(message.lines().count(), 1, "{message}");
    message
}

fn generate(folder: &Path, images: &str) {
    let args =
        ["generate", ".", "--images", images, "--objects", "4", "--size", "192", "--seed", "5"];
    let output = stacking(folder, args);
    assert!(output.status.success(), "{output:?}");
}

/// The texts of a list in a line of the task file; none of them needs an escape here.
fn list<'a>(task: &'a str, key: &str) -> Vec<&'a str> {
    let (_, rest) = task.split_once(&format!("\"{key}\":[")).unwrap();
    let (items, _) = rest.split_once(']').unwrap();
    items.split(',').map(|item| item.trim_matches('"')).collect()
}

/// The name of each data object in a list of a task, and where it is kept: what goes to caches is
/// in the folder itself, under its key.
fn objects<'a>(folder: &Path, task: &'a str, key: &str) -> Vec<(&'a str, PathBuf)> {
    let place = |object: &'a str| {
        let (name, place) = object.split_once('=').unwrap();
        (name, folder.join(place.strip_prefix("cache:").unwrap_or(place)))
    };
    list(task, key).into_iter().map(place).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::copy(from, to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
}

/// Runs a task as an executor would: in a directory that has its inputs and nothing else.
fn run_task(folder: &Path, task: &str) -> Output {
    let sandbox = folder.join("sandbox");
    fs::create_dir(&sandbox).unwrap();
    for (name, place) in objects(folder, task, "inputs") {
        copy(&place, &sandbox.join(name));
    }
    let output = stacking(&sandbox, list(task, "args"));
    if output.status.success() {
        for (name, place) in objects(folder, task, "outputs") {
            copy(&sandbox.join(name), &place);
        }
    }
    fs::remove_dir_all(&sandbox).unwrap();
    output
}

#[test]
fn tasks_come_to_the_same_stack_as_a_serial_run() {
    let folder = Folder::new("pipeline");
    let folder = folder.0.as_path();
    generate(folder, "160");
    let text = fs::read_to_string(folder.join("tasks.jsonl")).unwrap();
    let tasks: Vec<&str> = text.lines().collect();
    let (last, cuts) = tasks.split_last().unwrap();
    assert!(cuts.len() > 120, "only {} cut-outs", cuts.len());
    for task in cuts {
        let output = run_task(folder, task);
        assert!(output.status.success(), "{task}: {output:?}");
    }

    let output = run_task(folder, last);
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{report}");
    assert!(report.contains("ok     S/N grows as n^0."), "{report}");
    assert!(!report.contains("FAILED"), "{report}");
    for output in ["stack.fits", "stack.png", "sn.csv"] {
        assert!(folder.join(output).metadata().unwrap().len() > 0, "{output}");
    }
    let table = fs::read_to_string(folder.join("sn.csv")).unwrap();
    let total: usize = table.lines().last().unwrap().split(',').next().unwrap().parse().unwrap();
    assert_eq!(total, cuts.len());

    let output = stacking(folder, ["serial", "."]);
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && report.contains("are the same bytes"), "{report}");
    for name in ["stack.png", "sn.csv"] {
        let [task, serial] = [name, &format!("serial/{name}")].map(|path| folder.join(path));
        assert_eq!(fs::read(task).unwrap(), fs::read(serial).unwrap(), "{name}");
    }

    // A folder of cut-outs does as well as a list.
    let mut args = list(last, "args");
    args[2] = "cuts";
    args[6] = "again.fits";
    assert!(stacking(folder, args).status.success());
    let [first, again] =
        ["stack.fits", "again.fits"].map(|name| fs::read(folder.join(name)).unwrap());
    assert_eq!(first, again);

    wrong_results_are_told(folder, &list(last, "args"), cuts.len());
}

fn wrong_results_are_told(folder: &Path, stack: &[&str], cuts: usize) {
    // Objects said to be three times as bright as they are.
    let catalogue = fs::read_to_string(folder.join("catalogue.csv")).unwrap();
    let brighter = catalogue.lines().map(|line| match line.rsplit_once(',') {
        Some((rest, peak)) if rest != "id,ra_deg,dec_deg" => {
            format!("{rest},{}\n", 3.0 * peak.parse::<f64>().unwrap())
        }
        _ => format!("{line}\n"),
    });
    fs::write(folder.join("catalogue.csv"), brighter.collect::<String>()).unwrap();
    let output = stacking(folder, stack);
    assert_eq!(output.status.code(), Some(1));
    let report = String::from_utf8(output.stdout).unwrap();
    assert!(report.contains("FAILED peak:"), "{report}");
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("the result is not what it must be"), "{message}");

    fs::remove_file(folder.join(format!("cuts/cut-{:05}.fits", cuts - 1))).unwrap();
    let output = stacking(folder, stack);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("cannot open"));
}

#[test]
fn the_same_seed_writes_the_same_files() {
    let (one, two) = (Folder::new("seed-one"), Folder::new("seed-two"));
    for folder in [&one, &two] {
        generate(&folder.0, "6");
    }
    let mut names: Vec<String> = (0..6).map(|k| format!("images/img-{k:04}.fits")).collect();
    names.extend(["catalogue.csv", "cuts.csv"].map(str::to_owned));
    for name in names {
        let [one, two] = [&one, &two].map(|folder| fs::read(folder.0.join(&name)).unwrap());
        assert!(one == two, "{name} differs");
    }
}

#[test]
fn bad_input_is_refused_with_one_clear_line() {
    let folder = Folder::new("bad");
    let folder = folder.0.as_path();
    generate(folder, "6");
    let image = "images/img-0000.fits";
    let whole = fs::read(folder.join(image)).unwrap();
    fs::write(folder.join("short.fits"), &whole[..whole.len() / 2]).unwrap();
    fs::write(folder.join("headless.fits"), &whole[..1000]).unwrap();
    let (ra, dec) = ("150.1163", "2.2058");

    let cut =
        |status, image, dec, size, out| refused(folder, status, ["cut", image, ra, dec, size, out]);
    assert!(cut(1, "catalogue.csv", dec, "41", "o.fits").contains("not a FITS file"));
    assert!(cut(1, "short.fits", dec, "41", "o.fits").contains("truncated"));
    assert!(cut(1, "headless.fits", dec, "41", "o.fits").contains("no END card"));
    assert!(cut(1, "none.fits", dec, "41", "o.fits").contains("cannot open none.fits"));
    assert!(cut(1, "images", dec, "41", "o.fits").contains("cannot read images"));
    assert!(cut(1, image, "-45.5", "41", "o.fits").contains("outside the image"));
    assert!(cut(1, image, "91", "41", "o.fits").contains("no direction"));
    assert!(cut(1, image, dec, "40", "o.fits").contains("odd number"));
    assert!(cut(2, image, "north", "41", "o.fits").contains("DEC must be a number"));
    assert!(!folder.join("o.fits").exists());

    // An output that cannot be written: its folder is a file.
    let planned = fs::read_to_string(folder.join("cuts.csv")).unwrap();
    let fields: Vec<&str> = planned.lines().nth(1).unwrap().split(',').collect();
    let args = ["cut", fields[1], fields[2], fields[3], fields[4], "catalogue.csv/o.fits"];
    assert!(refused(folder, 1, args).contains("cannot make the folder catalogue.csv"));

    assert!(refused(folder, 2, []).contains("no command"));
    assert!(refused(folder, 1, ["generate", "catalogue.csv"]).contains("catalogue.csv"));
    assert!(
        refused(folder, 1, ["generate", ".", "--size", "3"]).contains("--size 3 is out of range")
    );
    assert!(refused(folder, 1, ["serial", "images"]).contains("cannot read images/cuts.csv"));
    fs::create_dir(folder.join("empty")).unwrap();
    let stack = |cuts| {
        let [catalogue, out] = ["catalogue.csv", "o"];
        let args = ["--catalogue", catalogue, "--out", out, "--png", out, "--table", out];
        let [a, b, c, d, e, f, g, h] = args;
        refused(folder, 1, ["stack", "--cuts", cuts, a, b, c, d, e, f, g, h])
    };
    assert!(stack("empty").contains("too few"));
    assert!(stack("images").contains("no cut-out"));
    assert!(stack("catalogue.csv").contains("the first line must be 'cut,image,"));
}
