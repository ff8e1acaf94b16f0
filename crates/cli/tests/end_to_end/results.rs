//! Results that are more than a dispatcher's memory: they are on its disk, and
//! come back from there.

use crate::fixture::{Access, Dispatcher, Site, poll};
use crate::resume::SmallDisk;
use falkon_core::limits::RESULTS_MEMORY_BYTES_MAX;
use falkon_trials::trial;
use std::path::PathBuf;

const TASKS: usize = 5000;
const OUTPUT_BYTES: usize = 64_000;
/// A dispatcher's memory at any time: the results that it may have in memory,
/// however slow its disk is, and room for the rest of it.
const MEMORY_BYTES_MAX: u64 = RESULTS_MEMORY_BYTES_MAX + (64 << 20);
const _: () = assert!(MEMORY_BYTES_MAX < (TASKS * OUTPUT_BYTES) as u64);

/// Submits tasks that write much, each its number last. Returns the instance.
fn submit(site: &Site, access: &Access<'_>) -> String {
    site.write("much", vec![b'x'; OUTPUT_BYTES]);
    let range = format!("0-{}", TASKS - 1);
    access.submit(&["--range", &range, "--", "sh", "-c", "cat much; echo :{}"])
}

/// The numbers at the end of what tasks wrote, ascending.
fn numbers(text: &str) -> Vec<usize> {
    let mut numbers: Vec<usize> = text
        .lines()
        .map(|line| {
            let (output, number) = line.split_once(':').expect("a line ends with a number");
            assert_eq!(output.len(), OUTPUT_BYTES, "output of {number} is cut");
            number.parse().unwrap()
        })
        .collect();
    numbers.sort_unstable();
    numbers
}

fn judge(access: &Access<'_>, instance: &str) {
    let ran = access.run("results", &[instance]).exits(0);
    assert_eq!(numbers(ran.text()), (0..TASKS).collect::<Vec<_>>());
}

fn judge_memory(dispatcher: &Dispatcher<'_>) {
    let bytes = dispatcher.service().memory_max();
    assert!(bytes < MEMORY_BYTES_MAX, "the dispatcher took {bytes} bytes");
}

/// Files of pages in a dispatcher's directory, by number.
fn page_files(site: &Site) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(site.path("d/journal/pages")) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[trial]
fn output_beyond_memory_is_on_disk_and_complete_after_a_kill() {
    let site = Site::new();
    let mut dispatcher = site.dispatcher("d", &[]);
    let _executor = dispatcher.executor("one", &["--slots", "4"]);
    let access = dispatcher.access();
    let instance = submit(&site, &access);
    access.run("wait", &[&instance]).exits(0);
    judge(&access, &instance);
    judge_memory(&dispatcher);
    let status = access.instance(&instance);
    let in_memory = status["results_bytes"].as_u64().unwrap();
    let on_disk = status["results_stored_bytes"].as_u64().unwrap();
    assert!(in_memory + on_disk > (TASKS * OUTPUT_BYTES) as u64, "{status}");
    assert!(on_disk > 100_000_000, "{status}");

    dispatcher.kill();
    dispatcher.start();
    judge(&access, &instance);
    judge_memory(&dispatcher);

    // A file that is lost costs what was in it, and is said.
    dispatcher.kill();
    let file = page_files(&site).first().expect("there are pages").clone();
    std::fs::File::options().write(true).open(&file).unwrap().set_len(100_000).unwrap();
    dispatcher.start();
    let ran = access.run("results", &[&instance]);
    assert!(!ran.succeeded(), "results were lost");
    let rest = numbers(ran.text());
    assert!(rest.len() < TASKS && !rest.is_empty(), "{} results are left", rest.len());
    let ran = access.run("results", &[&instance, "--json"]);
    let told = ran.text().matches("its result is lost: ").count();
    assert_eq!(told, TASKS - rest.len(), "not all that is lost is told");
    assert!(dispatcher.service().said().contains("results of instance"), "the log is silent");

    // An instance that is destroyed leaves nothing on disk.
    access.run("destroy", &[&instance]).exits(0);
    poll("pages are removed", || page_files(&site).len() <= 1);
}

#[trial]
fn a_disk_that_is_full_delays_results_and_loses_none() {
    let site = Site::new();
    let _small = SmallDisk::mount(&site, "d", "180m");
    let mut dispatcher = site.dispatcher("d", &[]);
    let _executor = dispatcher.executor("one", &["--slots", "4"]);
    let access = dispatcher.access();
    let instance = submit(&site, &access);
    dispatcher.service().wait_for("nothing more is accepted until there is room");
    dispatcher.service().wait_for("results stay in memory");
    // Neither pages nor snapshots are tried in each round.
    let said = dispatcher.service().said();
    let count = |what: &str| said.lines().filter(|line| line.contains(what)).count();
    assert!((1..20).contains(&count("results stay in memory")), "{said}");
    assert!(count("compact") < 10, "{said}");
    // It starts without a byte to write to, and answers. The first start removes
    // pages that were not finished.
    for filler in ["d/filler", "d/more"] {
        dispatcher.kill();
        assert!(std::fs::write(site.path(filler), vec![0; 180 << 20]).is_err(), "there is room");
        dispatcher.start();
        access.run("status", &[]).exits(0);
    }
    let said = dispatcher.service().said();
    assert!(said.contains("last start's epoch"), "{said}");
    SmallDisk::resize(&site, "d", "1g");
    access.run("wait", &[&instance]).exits(0);
    judge(&access, &instance);
}
