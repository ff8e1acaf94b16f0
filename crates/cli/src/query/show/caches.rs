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
        return lent_table(executors, all);
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
    text + &lent_table(executors, all)
}

/// A line for each executor that lends room to stripes of objects, and one for all of
/// them; nothing if none does.
fn lent_table(executors: &[ExecutorStatus], all: bool) -> String {
    let lent = |executor: &ExecutorStatus| {
        let cache = executor.cache.filter(|cache| cache.lent_bytes > 0)?;
        Some((cache.lent_bytes, cache.lent_used_bytes))
    };
    let lenders: Vec<(&ExecutorStatus, (u64, u64))> =
        executors.iter().filter_map(|executor| Some((executor, lent(executor)?))).collect();
    if lenders.is_empty() {
        return String::new();
    }
    let listed_max = if all { usize::MAX } else { EXECUTORS_LISTED_MAX };
    let names = lenders.iter().take(listed_max).map(|(executor, _)| executor.name.as_str());
    let wide = width(names, HOST_CHARS_MIN);
    let line = |id: &str, name: &str, (bytes, used): (u64, u64)| {
        let (bytes, used) = (bytes_text(bytes), bytes_text(used));
        format!("{id:>5}  {name:<wide$} {bytes:>10} {used:>10}\n")
    };
    let mut text =
        format!("\n{:>5}  {:<wide$} {:>10} {:>10}\n", "ID", "LENT BY", "SIZE", "STRIPES");
    for (executor, lent) in lenders.iter().take(listed_max) {
        text += &line(&executor.id.0.to_string(), &printable(&executor.name), *lent);
    }
    if lenders.len() > 1 {
        let sum = lenders.iter().fold((0u64, 0u64), |(bytes, used), (_, lent)| {
            (bytes.saturating_add(lent.0), used.saturating_add(lent.1))
        });
        text += &line("", &format!("all {}", lenders.len()), sum);
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
        "lent_bytes": cache.lent_bytes,
        "lent_used_bytes": cache.lent_used_bytes,
        "local": JsonCount::of(usage.local),
        "peer": JsonCount::of(usage.peer),
        "store": JsonCount::of(usage.store),
    })
}
