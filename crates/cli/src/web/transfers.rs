//! The matrix of transfers, as the page has it: who had how many bytes from whom.

use super::watch::Known;
use falkon_core::task::ExecutorId;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Executors that the matrix has, those that moved most.
const MATRIX_EXECUTORS_MAX: usize = 12;

/// The matrix: a row for each executor that had bytes, with those of the store first, then a
/// column for each of the others, then one for the executors that have none.
pub(super) fn matrix(known: &Known) -> Value {
    let transfers = &known.transfers;
    let shown = transfers.busiest(MATRIX_EXECUTORS_MAX);
    let place = |id: ExecutorId| shown.binary_search(&id).ok();
    let caches = known.board.status.executors.iter().filter_map(|one| Some((one.id, one.cache?)));
    let stores: BTreeMap<ExecutorId, u64> =
        caches.map(|(id, cache)| (id, cache.state.usage.store.bytes)).collect();
    let mut rows = vec![vec![0_u64; shown.len()]; shown.len()];
    let mut others = vec![0_u64; shown.len()];
    let mut elsewhere = transfers.other_bytes();
    for (to, from, bytes) in transfers.pairs() {
        let sum = match (place(to), place(from)) {
            (Some(to), Some(from)) => &mut rows[to][from],
            (Some(to), None) => &mut others[to],
            (None, _) => &mut elsewhere,
        };
        *sum = sum.saturating_add(bytes);
    }
    let name =
        |id: &ExecutorId| known.names.executor(*id).map_or_else(|| id.0.to_string(), str::to_owned);
    let store = |id: &ExecutorId| stores.get(id).copied().unwrap_or(0);
    json!({
        "executors": shown.iter().map(name).collect::<Vec<_>>(),
        "store": shown.iter().map(store).collect::<Vec<_>>(),
        "rows": rows,
        "others": others,
        "elsewhere": elsewhere,
    })
}
