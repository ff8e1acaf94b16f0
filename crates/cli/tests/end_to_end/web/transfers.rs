//! Transfers between executors: who had data from whom.

use super::{Page, with_page};
use crate::fixture::{Dispatcher, Running, Site, json_lines};
use falkon_trials::trial;

const BYTES: u64 = 300_000;

/// Two executors, one of which has an object from the other.
pub(super) fn exchange(site: &Site, dispatcher: &Dispatcher<'_>) -> [Running; 2] {
    let executors = ["one", "two"].map(|name| {
        let cache = format!("{}=1MiB", site.text(&format!("cache-{name}")));
        let offer = format!("{name}=1");
        let own = ["--slots", "1", "--cache", &cache, "--resource", &offer, "--no-mount"];
        dispatcher.executor(name, &own)
    });
    let tasks = [
        serde_json::json!({
            "command": ["sh", "-c", format!("head -c {BYTES} /dev/zero > out")],
            "outputs": ["out=cache:made"],
            "resources": {"one": 1},
        }),
        serde_json::json!({
            "command": ["cksum", "in"],
            "inputs": ["in=cache:made"],
            "resources": {"two": 1},
        }),
    ];
    let file = site.write("tasks.jsonl", format!("{}\n{}\n", tasks[0], tasks[1]));
    dispatcher.access().run("submit", &["--wait", "--tasks", &file]).exits(0);
    executors
}

#[trial]
fn the_page_says_who_had_how_many_bytes_from_whom() {
    let site = Site::new();
    let dispatcher = with_page(&site);
    let access = dispatcher.access();
    let page = Page::of(&access);
    let mut updates = page.updates();
    let executors = exchange(&site, &dispatcher);
    let update = updates.wait("a matrix", |update| {
        update["transfers"]["executors"].as_array().is_some_and(|all| !all.is_empty())
    });
    let matrix = &update["transfers"];
    let names: Vec<&str> =
        matrix["executors"].as_array().unwrap().iter().filter_map(|one| one.as_str()).collect();
    let place = |name| names.iter().position(|one| *one == name).unwrap();
    let (one, two) = (place("one"), place("two"));
    assert_eq!(matrix["rows"][two][one], BYTES, "{matrix}");
    assert_eq!(matrix["rows"][one][two], 0, "{matrix}");
    assert_eq!((&matrix["elsewhere"], &matrix["others"][two]), (&0.into(), &0.into()), "{matrix}");
    let ran = access.run("log", &["--kind", "transfers", "--json"]).exits(0);
    let moved: Vec<_> = json_lines(ran.text());
    assert_eq!(moved.len(), 1, "{moved:?}");
    assert_eq!(
        (&moved[0]["executor_name"], &moved[0]["from_name"]),
        (&"two".into(), &"one".into())
    );
    assert_eq!(moved[0]["bytes"], BYTES);
    drop(executors);
}
