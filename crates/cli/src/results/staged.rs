//! Where the data objects that tasks read came from, for people and programs.

use falkon_core::data::stage::{Count, Usage};
use falkon_core::result::Detail;
use serde::Serialize;

/// Units of bytes, each 1,024 of the one before.
const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
const UNIT: f64 = 1024.0;
const MICROS: f64 = 1e6;

/// The data objects of a task in a result's line.
#[derive(Debug, Serialize)]
pub(crate) struct JsonData {
    /// From the executor's own cache.
    local: JsonCount,
    /// From caches of other executors.
    peer: JsonCount,
    /// From the persistent store.
    store: JsonCount,
    /// For how long the task waited for them.
    staging_seconds: f64,
}

/// Objects and bytes, for programs.
#[derive(Debug, Serialize)]
pub(crate) struct JsonCount {
    objects: u64,
    bytes: u64,
}

impl JsonCount {
    pub(crate) fn of(count: Count) -> JsonCount {
        JsonCount { objects: count.objects, bytes: count.bytes }
    }
}

impl JsonData {
    /// Of a result's detail; `None` if the task read no data objects.
    pub(crate) fn of(detail: &Detail) -> Option<JsonData> {
        let Usage { local, peer, store } = detail.usage;
        (detail.usage != Usage::default()).then(|| JsonData {
            local: JsonCount::of(local),
            peer: JsonCount::of(peer),
            store: JsonCount::of(store),
            staging_seconds: detail.staging_micros as f64 / MICROS,
        })
    }
}

/// A run's data in one line: the hit ratios, in count and in bytes; `None` if
/// no task read data objects.
pub(crate) fn summary(usage: &Usage) -> Option<String> {
    let Usage { local, peer, store } = *usage;
    let Count { objects, bytes: all_bytes } = usage.all();
    if objects == 0 {
        return None;
    }
    let part = |count: Count, from: &str| {
        format!(
            "{} ({} of bytes) from {from}",
            percent(count.objects, objects),
            percent(count.bytes, all_bytes)
        )
    };
    Some(format!(
        "data: {objects} input{}, {}: {}, {}, {}",
        if objects == 1 { "" } else { "s" },
        bytes_text(all_bytes),
        part(local, "own caches"),
        part(peer, "peers"),
        part(store, "stores"),
    ))
}

/// A part of a whole, in per cent.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "0 %".to_owned(),
        whole => format!("{:.1} %", part as f64 * 100.0 / whole as f64),
    }
}

/// Bytes as people say them: `1.5 MiB`.
pub(crate) fn bytes_text(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= UNIT && unit + 1 < UNITS.len() {
        value /= UNIT;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// The same of a sum, which may be larger than any number of bytes there is.
pub(crate) fn byte_sum_text(bytes: u128) -> String {
    bytes_text(u64::try_from(bytes).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_gives_ratios_in_count_and_bytes() {
        let count = |objects, bytes| Count { objects, bytes };
        assert_eq!(summary(&Usage::default()), None);
        let mut sum = Usage::default();
        sum.add(&Usage { local: count(2, 3072), peer: count(0, 0), store: count(1, 1024) });
        sum.add(&Usage { local: count(0, 0), peer: count(1, 4096), store: count(0, 0) });
        assert_eq!(
            summary(&sum).unwrap(),
            "data: 4 inputs, 8.0 KiB: 50.0 % (37.5 % of bytes) from own caches, 25.0 % (50.0 % of \
             bytes) from peers, 25.0 % (12.5 % of bytes) from stores"
        );
        // Empty files are objects too.
        let empty = Usage { local: count(0, 0), peer: count(0, 0), store: count(1, 0) };
        assert!(summary(&empty).unwrap().starts_with("data: 1 input, 0 B: 0.0 % (0 % of bytes)"));
        assert_eq!(bytes_text(5 << 40), "5.0 TiB");
        assert_eq!(bytes_text(6000 << 40), "6000.0 TiB");
    }
}
