//! Executors' caches in the status.

use super::{EXECUTORS_LISTED_MAX, HOST_CHARS_MIN, printable, width};
use crate::results::staged::{JsonCount, bytes_text, percent};
use falkon_core::data::stage::Usage;
use falkon_wire::message::{CacheStatus, ExecutorStatus};
use serde_json::{Value, json};

/// A line for each cache that has been used, and one for all of them; nothing
/// if none has. `all` lists every one.
pub(super) fn table(executors: &[ExecutorStatus], all: bool) -> String {
    let is_used = |cache: &CacheStatus| cache.objects > 0 || cache.state.usage != Usage::default();
    let used: Vec<(&ExecutorStatus, CacheStatus)> = executors
        .iter()
        .filter_map(|executor| Some((executor, executor.cache.filter(is_used)?)))
        .collect();
    if used.is_empty() {
        return String::new();
    }
    let listed_max = if all { usize::MAX } else { EXECUTORS_LISTED_MAX };
    let names = used.iter().take(listed_max).map(|(executor, _)| executor.name.as_str());
    let wide = width(names, HOST_CHARS_MIN);
    let mut text = format!(
        "\n{:>5}  {:<wide$} {:>10} {:>10} {:>8} {:>9}  FROM OWN, PEERS, STORES\n",
        "ID", "CACHE OF", "SIZE", "USED", "OBJECTS", "INPUTS"
    );
    for (executor, cache) in used.iter().take(listed_max) {
        text.push_str(&line(&executor.id.0.to_string(), &printable(&executor.name), cache, wide));
    }
    if used.len() > 1 {
        let mut sum = CacheStatus::default();
        for (_, cache) in &used {
            sum.objects += cache.objects;
            sum.state.capacity = sum.state.capacity.saturating_add(cache.state.capacity);
            sum.state.used = sum.state.used.saturating_add(cache.state.used);
            sum.state.usage.add(&cache.state.usage);
        }
        text.push_str(&line("", &format!("all {}", used.len()), &sum, wide));
    }
    text
}

fn line(id: &str, name: &str, cache: &CacheStatus, wide: usize) -> String {
    let usage = &cache.state.usage;
    let inputs = usage.all().objects;
    let part = |objects: u64| percent(objects, inputs);
    format!(
        "{id:>5}  {name:<wide$} {:>10} {:>10} {:>8} {inputs:>9}  {}, {}, {}\n",
        bytes_text(cache.state.capacity),
        bytes_text(cache.state.used),
        cache.objects,
        part(usage.local.objects),
        part(usage.peer.objects),
        part(usage.store.objects),
    )
}

/// A cache, for programs.
pub(super) fn json(cache: &CacheStatus) -> Value {
    let usage = &cache.state.usage;
    json!({
        "objects": cache.objects,
        "capacity_bytes": cache.state.capacity,
        "used_bytes": cache.state.used,
        "local": JsonCount::of(usage.local),
        "peer": JsonCount::of(usage.peer),
        "store": JsonCount::of(usage.store),
    })
}
