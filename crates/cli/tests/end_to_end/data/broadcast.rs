//! One large file that tasks on many executors read.

use crate::fixture::Site;
use falkon_trials::trial;

#[trial]
fn a_large_file_reaches_eight_executors_whole() {
    let site = Site::new();
    let dispatcher = site.dispatcher("d", &[]);
    let access = dispatcher.access();
    // Not a whole number of chunks, and no two alike.
    let bytes: Vec<u8> = (0..5_000_001_u32).flat_map(u32::to_le_bytes).collect();
    std::fs::write(site.path("big"), &bytes).unwrap();
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let executors = names.map(|name| {
        let cache = format!("{}=64MiB", site.text(&format!("cache-{name}")));
        dispatcher.executor(name, &["--slots", "1", "--cache", &cache])
    });
    let input = format!("in={}", site.text("big"));
    let script = "cat in | wc -c; cksum < in";
    let args = ["--range", "1-64", "--input", &input, "--shell", "--", script];
    let id = access.submit(&args);
    let results = access.results(&id);
    assert_eq!(results.len(), 64);
    for result in &results {
        assert_eq!(result["stdout"], results[0]["stdout"], "{result}");
    }
    drop(executors);
}
