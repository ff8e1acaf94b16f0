//! Every bound of a node's data, by name, with its unit last.

/// Directories of one cache.
pub const TIERS_MAX: usize = 16;
/// Fetches in progress on one executor, unless told otherwise.
pub const FETCHES_MAX: usize = 32;
/// Fetches in progress from one source, unless told otherwise.
pub const SOURCE_FETCHES_MAX: usize = 8;
/// Objects being served to peers at a time, unless told otherwise.
pub const SERVES_MAX: usize = 32;
/// Waiting tasks that are looked through for one that fits when the first does
/// not.
pub const ADMIT_SEARCH_TASKS_MAX: usize = 32;
/// How many later tasks may be admitted before one that waits for room.
pub const ADMIT_PASSES_MAX: u32 = 64;
/// How long a task may wait for room that nothing in progress will free.
pub const ROOM_WAIT_MICROS: u64 = 60_000_000;
/// Size from which an object is fetched in ranges if several peers hold it.
pub const RANGES_OBJECT_BYTES_MIN: u64 = 32 << 20;
/// One range of such an object.
pub const RANGE_BYTES: u64 = 8 << 20;
/// Ranges of one object that are fetched at a time.
pub const RANGES_MAX: usize = 4;
/// Size from which an object that several executors fetch is broadcast.
pub const BROADCAST_OBJECT_BYTES_MIN: u64 = 16 << 20;
/// The least number of chunks of such an object, unless they were smaller or larger
/// than these. Each level of the trees takes the time of a chunk longer.
pub const BROADCAST_CHUNKS_MIN: u64 = 256;
/// The smallest chunk.
pub const BROADCAST_CHUNK_BYTES_MIN: u64 = 128 << 10;
/// The largest chunk.
pub const BROADCAST_CHUNK_BYTES_MAX: u64 = 1 << 20;
/// Chunks that are asked for at a time in each tree of a broadcast. A parent sends
/// them one after another, so its link has no pauses between them.
pub const BROADCAST_ASKED_CHUNKS_MAX: usize = 4;
/// One unit of an object that is striped: the units lie with its lenders in turn. It
/// is as long as several chunks, because a lender reads each from the store by itself.
pub const STRIPE_BYTES: u64 = 4 << 20;
/// Units that are asked for at a time of each lender: the next, once half of one has
/// come.
pub const STRIPE_ASKED_UNITS_MAX: usize = 2;
/// Broadcasts of which an executor remembers who its parents are.
pub const BROADCASTS_MAX: usize = 1024;
/// How long a request for a chunk that is on its way waits for it.
pub const CHUNK_WAIT_MICROS: u64 = 500_000;
/// Requests that wait for chunks at a time.
pub const CHUNK_WAITS_MAX: usize = 256;
/// The pause before a parent that had not got a chunk is asked again.
pub const CHUNK_PAUSE_MICROS: u64 = 10_000;
/// How long a parent in a broadcast may say nothing before its children turn to
/// others. It answers requests, or says that it waits as well, in less.
pub const PARENT_SILENCE_MICROS: u64 = 1_000_000;
/// Bytes that a parent may take longer to send, at its pace, and say nothing meanwhile.
pub const PARENT_SILENCE_BYTES: u64 = 4 << 20;
/// The longest such time.
pub const PARENT_SILENCE_MICROS_MAX: u64 = 30_000_000;
/// Bytes of a parent after which its pace is measured anew.
pub const PACE_BYTES: u64 = 1 << 20;
/// How long a child without a parent waits for the dispatcher to name another
/// before it goes to other sources.
pub const PARENT_WAIT_MICROS: u64 = 1_000_000;
/// The time after which the progress of an object that is broadcast is told where less
/// than a chunk has come.
pub const PROGRESS_MICROS: u64 = 250_000;
/// Sources of one object that are remembered.
pub const OBJECT_SOURCES_MAX: usize = 64;
/// The first pause when every source is busy; each in a row doubles it.
pub const BUSY_PAUSE_MICROS: u64 = 10_000;
/// The longest pause when every source is busy.
pub const BUSY_PAUSE_MICROS_MAX: u64 = 1_000_000;
/// Pauses in a row because every source is busy, before a fetch has failed.
pub const BUSY_PAUSES_MAX: u32 = 1_000;
/// The shortest pause before an executor that is still fetching an object
/// itself is asked for it again; later ones are an eighth of the time waited.
pub const COMING_PAUSE_MICROS: u64 = 4_000;
/// The longest such pause.
pub const COMING_PAUSE_MICROS_MAX: u64 = 500_000;
/// How long an executor that is said to fetch an object may not know of it: it
/// is told so at the same time.
pub const COMING_ORDER_MICROS: u64 = 200_000;
/// How long an executor that is still fetching an object is waited for before
/// the store is asked, beside the time for its bytes.
pub const COMING_WAIT_MICROS: u64 = 10_000_000;
/// How long one that waits for another to get an object is waited for, beside the time
/// for its bytes.
pub const COMING_CHAIN_MICROS: u64 = 2_000_000;
/// Bytes per second at which an object is expected to come there at least.
pub const COMING_SECOND_BYTES: u64 = 1_000_000;
/// The first pause when a source cannot be reached; each in a row doubles it.
pub const UNREACHABLE_PAUSE_MICROS: u64 = 100_000;
/// The longest pause when a source cannot be reached.
pub const UNREACHABLE_PAUSE_MICROS_MAX: u64 = 10_000_000;
/// Pauses in a row because a source cannot be reached, before a fetch has
/// failed.
pub const UNREACHABLE_PAUSES_MAX: u32 = 8;
/// Times a fetch may make no headway in other ways, before it has failed.
pub const FETCH_RESTARTS_MAX: u32 = 16;
/// Versions that one input of a task may turn out to have in a row.
pub const REDIRECTS_MAX: u32 = 8;
/// Full disks that one task may meet before it has failed.
pub const DISK_FULL_TRIES_MAX: u32 = 8;
/// How long a directory that was full offers no more than it then held. Where nothing
/// else goes on that could free its disk, as many tries as above take
/// [`ROOM_WAIT_MICROS`] in all.
pub const DISK_FULL_MICROS: u64 = 60_000_000;
/// Sources that gave a wrong object and are not asked for it again.
pub const WRONG_SOURCES_MAX: usize = 65_536;
/// Additions and removals in one report.
pub const CHANGES_OBJECTS_MAX: usize = 65_536;
/// Executors that one report names as those that bytes came from.
pub const MOVED_EXECUTORS_MAX: usize = 1024;
/// Objects whose demand is remembered.
pub const DEMANDS_OBJECTS_MAX: usize = 1 << 20;

const _: () = {
    assert!(RANGE_BYTES * 2 <= RANGES_OBJECT_BYTES_MIN);
    assert!(BUSY_PAUSE_MICROS < BUSY_PAUSE_MICROS_MAX);
    assert!(UNREACHABLE_PAUSE_MICROS < UNREACHABLE_PAUSE_MICROS_MAX);
    assert!(COMING_PAUSE_MICROS < COMING_PAUSE_MICROS_MAX);
    assert!(COMING_ORDER_MICROS < COMING_CHAIN_MICROS);
    assert!(COMING_CHAIN_MICROS < COMING_WAIT_MICROS);
    assert!(SOURCE_FETCHES_MAX <= FETCHES_MAX);
    assert!(BROADCAST_CHUNK_BYTES_MIN <= BROADCAST_CHUNK_BYTES_MAX);
    assert!(BROADCAST_CHUNK_BYTES_MAX * 2 <= BROADCAST_OBJECT_BYTES_MIN);
    // Other ranges are longer than chunks: those who ask for them do not wait.
    assert!(BROADCAST_CHUNK_BYTES_MAX < RANGE_BYTES);
    // One parent may send the chunks of all trees.
    assert!(BROADCAST_ASKED_CHUNKS_MAX * 2 <= SOURCE_FETCHES_MAX);
    assert!(STRIPE_BYTES * 2 <= BROADCAST_OBJECT_BYTES_MIN);
    assert!(CHUNK_WAIT_MICROS * 2 <= PARENT_SILENCE_MICROS);
    assert!(PROGRESS_MICROS * 2 <= PARENT_SILENCE_MICROS);
    assert!(PARENT_SILENCE_MICROS < PARENT_SILENCE_MICROS_MAX);
};
