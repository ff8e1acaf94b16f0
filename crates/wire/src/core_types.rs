//! How the core's types travel. Field order is the protocol: whoever changes
//! it raises [`crate::message::PROTOCOL_VERSION`], and the format version of journals.

use crate::codec::{
    DecodeError, Decoder, Wire, put_array, put_uint, wire_enum, wire_list, wire_number, wire_struct,
};
use falkon_core::collect::Unwritten;
use falkon_core::data::declared::{
    AssignedData, CacheRoom, Collects, DataOrder, Declared, Lend, Lists, Located, Pace, Peer,
    Serving,
};
use falkon_core::data::object::{Object, ObjectId, Sources};
use falkon_core::data::stage::{CacheState, Changes, Count, Usage};
use falkon_core::data::way::{Chosen, Way, Why};
use falkon_core::dispatch::diffusion::{PolicyError, PolicyName, PolicyOption, PolicyOptions};
use falkon_core::dispatch::{
    Access, AccessError, Assigned, Attempts, BatchId, Delivery, Earlier, Explained, FoundObject,
    Held, HeldAlternative, HolderStatus, Holdings, Idle, IdleReason, InstanceOptions, Join, Keep,
    Lease, LetGo, NodeClass, ObjectStatus, Obstacle, Offering, Order, Page, PagePlace, PagedOutput,
    Prepare, Purpose, Record, Remembered, RequestError, Selection, Site, Standing, StoredPage,
    Subtree, Survey, Update, UserLimits, UserUse,
};
use falkon_core::gang::{
    GangKey, GangOrder, GangReport, GangToken, GangUsage, Member, NodeUsage, RankUsage,
};
use falkon_core::part::{PartAnswer, PartQuestion};
use falkon_core::provision::Waiting;
use falkon_core::relay::Note;
use falkon_core::result::{
    Captured, Cause, Counts, Detail, Finished, Outcome, Overflow, Report, ResourceUsage, Stream,
    Tries,
};
use falkon_core::tail::{KeptQuestion, Tail, TailQuestion, TailState};
use falkon_core::task::{
    After, AllocationId, Everywhere, ExecutorId, InstanceId, Kind, Range, Resources, Rows,
    Submission, SubmissionError, SubmissionPart, TaskClass, TaskId, TaskKey, Time, UserId,
};

macro_rules! wire_newtype {
    ($($type:ident),* $(,)?) => {$(
        impl Wire for $type {
            fn encode(&self, out: &mut Vec<u8>) {
                self.0.encode(out);
            }
            fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                Wire::decode(from).map($type)
            }
        }
    )*};
}
wire_newtype!(
    AllocationId,
    InstanceId,
    TaskId,
    ExecutorId,
    Time,
    BatchId,
    ObjectId,
    GangToken,
    UserId,
);

wire_enum!(Kind { 0 => Process, 1 => Noop, 2 => Sleep, 3 => Function });
falkon_core::submission_structs!(wire_struct);
wire_enum!(Rows { 0 => Computed { factors, offset }, 1 => Packed(packed) });
wire_enum!(Outcome {
    0 => Exit(code),
    1 => Signal(signal),
    2 => TimedOut,
    3 => NotRun,
    4 => Lost,
    5 => UpstreamFailed(task),
    6 => Unschedulable,
    7 => Cancelled,
    8 => NoOutput,
    9 => NoInput,
    10 => Unreadable,
});
wire_enum!(Cause {
    0 => Raised,
    1 => InitializerFailed,
    2 => VersionMismatch,
    3 => WorkerDied,
    4 => NoProgram,
    5 => NotExecutable,
    6 => NoFolder,
    7 => NoInputFile,
    8 => BadArguments,
    9 => NoProcess,
    10 => NoWorker,
    11 => FileSystemSilent,
    12 => ExecutorLeft,
    13 => OverMemory,
    14 => NodeOutOfMemory,
    15 => OverDisk,
});
wire_struct!(Captured { head, total_bytes, overflow, member });
wire_struct!(Overflow { incarnation, number });
wire_enum!(Stream { 0 => Stdout, 1 => Stderr });
wire_struct!(Object { id, url, version, size });
wire_struct!(Sources { peers, store, coming, forwarded });
wire_enum!(Lists { 0 => Same(items), 1 => Each { items, ends } });
wire_struct!(Located { object, sources });
wire_struct!(AssignedData { objects, inputs, outputs, read });
wire_struct!(Serving { address, fingerprint });
wire_struct!(Peer { executor, serves });
wire_struct!(CacheRoom { object_bytes, lent_bytes, mounts });
wire_struct!(Lend { located, stripes, of });
wire_struct!(DataOrder {
    peers,
    fetch,
    demand,
    gone,
    drop,
    hold,
    release,
    parents,
    lend,
    take_back,
    striped,
    collects,
    may_leave,
});
wire_struct!(Changes { anew, added, removed, named, state, unobtainable, silent, moved });
wire_struct!(CacheState { capacity, used, usage });
wire_struct!(ObjectStatus { id, url, version, size, holders, coming, waiting });
wire_struct!(HolderStatus { executor, name, holds, connected, lends });
wire_struct!(FoundObject { object, readers, chosen, cache_bytes, holders });
wire_struct!(Earlier { readers, executors, size });
wire_struct!(Chosen { way, why });
wire_number!(Way {
    0 => Cache,
    1 => Broadcast,
    2 => Store,
    3 => Nowhere,
    4 => Kept,
    5 => Collected,
    6 => Written,
    7 => Striped,
});
wire_number!(Why {
    0 => Small,
    1 => OneReader,
    2 => OneExecutor,
    3 => ManyReaders,
    4 => NoSize,
    5 => NoVersion,
    6 => NoPlaces,
    7 => TooLarge,
    8 => NoTarget,
    9 => Member,
    10 => Target,
    11 => Remembered,
    12 => Lent,
    13 => InPlace,
});
wire_enum!(Purpose { 0 => Get, 1 => Put, 2 => Drop { force } });
wire_struct!(Access { executor, name, serves });
wire_enum!(AccessError {
    0 => NotHeld,
    1 => Taken(other),
    2 => Needed { tasks },
    3 => NoCache,
    4 => NotKept,
    5 => ExecutorGone,
    6 => NotPlaceable,
    7 => NoTask,
    8 => NotSent,
    9 => Ended,
    10 => Below(relay),
    11 => Unreached { executor, why },
    12 => Away(name),
    13 => OfOthers,
});
wire_struct!(TaskKey { instance, task });
wire_struct!(TailQuestion { task, stream, from, patience_ms });
wire_struct!(PartQuestion { object, from, count });
wire_enum!(PartAnswer {
    0 => Here { whole, bytes },
    1 => Gone,
    2 => Busy,
    3 => Unreached,
});
wire_struct!(LetGo { release, drop });
wire_struct!(KeptQuestion { output, stream, from, count });
wire_struct!(Tail { state, is_cut, total_bytes, bytes });
wire_struct!(Explained { task, count, obstacles });
wire_struct!(Idle { reason, tasks, executors, cpus_milli, some });
wire_enum!(IdleReason {
    0 => Away,
    1 => Leaving,
    2 => Drained,
    3 => Suspended,
    4 => Emptied,
    5 => Soon,
    6 => Data,
    7 => Held,
    8 => Larger,
    9 => Short,
    10 => Unoffered,
    11 => Upstream,
    12 => NoTasks,
    13 => Kept,
});
wire_enum!(Obstacle {
    0 => Tasks { some, count },
    1 => Restart { micros, executors },
    2 => Storage,
    3 => Results { bytes },
    4 => NoExecutor { away },
    5 => Unoffered { need, cache, executors },
    6 => Taken(offering),
    7 => Own { executor, connected },
    8 => Emptied { executor },
    9 => Data { holders, some },
    10 => Behind { higher, earlier },
    11 => Turn { some, count },
    12 => Paused,
    13 => Nodes { nodes, need, offering, executors },
    14 => FewFree { nodes, free, kept, begins_micros },
    15 => Quota { used_milli, most_milli },
});
wire_struct!(Offering { executors, away, leaving, suspended, drained, short, emptied, full });
wire_struct!(Count { objects, bytes });
wire_struct!(Usage { local, peer, store });
wire_struct!(Detail {
    stdout,
    stderr,
    error,
    value,
    usage,
    staging_micros,
    cause,
    outputs,
    resources,
    executor,
} later { alternative, given_cpus_milli, given_memory_bytes, gang });
wire_struct!(GangUsage { nodes, missing, listed });
wire_struct!(NodeUsage { executor, used, is_missing } later { ranks });
wire_struct!(RankUsage { rank, used });

/// An array of the numbers that every version has, and of the disk space if that was measured:
/// version 8 of the protocol, and of journals, has none.
impl Wire for ResourceUsage {
    const FIELDS: &'static [&'static str] = &[
        "user_micros",
        "system_micros",
        "rss_max_bytes",
        "read_bytes",
        "written_bytes",
        "disk_max_bytes",
    ];

    fn encode(&self, out: &mut Vec<u8>) {
        let ResourceUsage {
            user_micros,
            system_micros,
            rss_max_bytes,
            read_bytes,
            written_bytes,
            disk_max_bytes,
        } = *self;
        put_array(out, Self::FIELDS.len() - usize::from(disk_max_bytes.is_none()));
        for number in [user_micros, system_micros, rss_max_bytes, read_bytes, written_bytes] {
            put_uint(out, number);
        }
        if let Some(bytes) = disk_max_bytes {
            put_uint(out, bytes);
        }
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let count = from.array()?;
        let all = Self::FIELDS.len();
        if count != all && count != all - 1 {
            return Err(DecodeError::Invalid("resource usage"));
        }
        Ok(ResourceUsage {
            user_micros: from.uint()?,
            system_micros: from.uint()?,
            rss_max_bytes: from.uint()?,
            read_bytes: from.uint()?,
            written_bytes: from.uint()?,
            disk_max_bytes: (count == all).then(|| from.uint()).transpose()?,
        })
    }
}

wire_struct!(Tries { failures, losses });
wire_struct!(Report { instance, first, count, tries, outcome, started, ended, detail });
wire_struct!(Finished {
    first,
    count,
    outcome,
    executor,
    attempts,
    queued,
    dispatched,
    started,
    ended,
    detail,
});
wire_struct!(Counts { total, waiting, ready, dispatched, done, failed, cancelled, recomputed });
wire_enum!(PolicyName {
    0 => FirstAvailable,
    1 => FirstCacheAvailable,
    2 => MaxCacheHit,
    3 => MaxComputeUtil,
    4 => GoodCacheCompute,
    5 => QueueAware,
});
wire_struct!(PolicyOptions { policy, window, utilization_threshold_milli, replication_max });
wire_enum!(Keep { 0 => AsDispatcher, 1 => Forever, 2 => Micros(micros) });
wire_struct!(InstanceOptions {
    name,
    keep_results,
    fail_unschedulable_micros,
    fail_fast,
    policy,
    lease_micros,
    keep,
    keep_output,
});
wire_struct!(Assigned { batch, instance, first, count, class, tries, rows, data });
wire_struct!(Prepare { batch, template, classes, everywhere });
wire_struct!(Held { instance, first, count, tries });
wire_struct!(Order {
    acknowledged,
    prepare,
    assign,
    recall,
    cancel,
    disown,
    forget,
    discard,
    data,
    leave,
    heartbeat_micros,
    gangs,
});
wire_struct!(Lease { allocation, leaves_in_micros });
wire_struct!(Update {
    number,
    reports,
    returned,
    recalled,
    leaving,
    staged,
    unstaged,
    kept,
    cache,
    subtree,
    survey,
    unwritten,
    pace,
    gangs,
});
wire_enum!(Pace { 0 => Behind, 1 => Ahead });
wire_enum!(Collects { 0 => Itself, 1 => Other(executor) });
wire_struct!(Unwritten { archive, since, error });
wire_struct!(Subtree { process, relays, nodes, obtainable, is_unknown_obtainable });
wire_struct!(Holdings { anew, upto, added, removed });
wire_struct!(Survey { relays, sites });
wire_struct!(Standing {
    name,
    depth,
    nodes,
    cpus_milli,
    used_milli,
    running,
    ahead,
    ended,
    away_micros
});
wire_struct!(Site {
    relays,
    queue,
    node,
    held,
    nodes_max,
    delay_micros,
    walltime_micros,
    billing_micros,
    unmet,
    requests,
    reason
});
wire_struct!(Waiting { need, tasks, estimate_micros, lasts_micros, nodes });
wire_struct!(NodeClass { capacity, has_cache, count });
wire_enum!(Note {
    0 => Identity(identity),
    1 => Instance(instance),
    2 => Sent { below, held },
    3 => Gone { below, count },
    4 => Upstream { high, low },
    5 => Salt(salt),
    6 => Kept { first, count },
    7 => Released { first, count },
});
wire_struct!(Join { incarnation, name, capacity, held, reports, serves, cache, lease, gangs } later {
    alternatives,
});
wire_struct!(HeldAlternative { held, alternative });
wire_struct!(GangKey { instance, task, tries });
wire_struct!(Member { executor, name, serves });
wire_enum!(GangOrder {
    0 => Form { key, index, resources, ranks_per_node, token, members },
    1 => Disband { key },
});
wire_enum!(GangReport { 0 => Released { key, usage }, 1 => Broken { key } });
wire_enum!(Selection { 0 => All, 1 => Runs(runs) });
wire_struct!(Delivery { instance, from, results, executors, counts, complete, upto, again });
wire_struct!(PagePlace { file, offset, bytes });
wire_struct!(StoredPage { from, count, tasks, place });
wire_struct!(Page { results, executors });
wire_struct!(PagedOutput { position, task, stdout, stderr });
wire_enum!(Record {
    0 => Created { instance, created, options },
    1 => Submitted { instance, first, queued, client, submission },
    2 => Sealed { instance },
    3 => Finished { instance, from, results },
    4 => Acknowledged { instance, upto },
    5 => Cancelled { instance, runs },
    6 => Destroyed { instance },
    7 => ExecutorSeen { executor, incarnation, name },
    8 => ExecutorGone { incarnation },
    9 => Restored { instance, total, forgotten, finished, failed, cancelled, ended },
    10 => Recomputed { instance, task, times },
    11 => Values { instance, tasks, values },
    12 => Paged { instance, pages },
    13 => Expired { instance, at },
    14 => Heard { instance, at },
    15 => Submitters { instance, client, runs },
    16 => Attempts { runs },
    17 => Outputs { instance, outputs },
    18 => Joining { instance, first, client, submission },
    19 => Remembered(remembered),
    20 => Forgotten { name },
    21 => Paused { instance, is_paused },
    22 => Drained { incarnation, is_drained },
    23 => Prioritized { instance, priority },
    24 => Retried { instance, since, runs },
    25 => OutputReleased { instance, runs },
    26 => Owned { instance, user },
    27 => Lasted { instance, first, class, micros },
});

/// An array of what every version has, and of the quota of instances if one was set: version 8 of
/// the protocol has none.
impl Wire for UserLimits {
    const FIELDS: &'static [&'static str] =
        &["share", "tasks_max", "slots_max", "bytes_max", "instances_max"];

    fn encode(&self, out: &mut Vec<u8>) {
        let UserLimits { share, tasks_max, slots_max, bytes_max, instances_max } = self;
        put_array(out, Self::FIELDS.len() - usize::from(instances_max.is_none()));
        share.encode(out);
        for quota in [tasks_max, slots_max, bytes_max] {
            quota.encode(out);
        }
        if let Some(most) = instances_max {
            put_uint(out, *most);
        }
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let count = from.array()?;
        let all = Self::FIELDS.len();
        if count != all && count != all - 1 {
            return Err(DecodeError::Invalid("a user's limits"));
        }
        Ok(UserLimits {
            share: Wire::decode(from)?,
            tasks_max: Wire::decode(from)?,
            slots_max: Wire::decode(from)?,
            bytes_max: Wire::decode(from)?,
            instances_max: (count == all).then(|| from.uint()).transpose()?,
        })
    }
}

wire_struct!(UserUse { instances, tasks, slots_milli, bytes });
wire_struct!(Remembered { url, readers, executors, read, size });
wire_struct!(Attempts { instance, first, count, tries, executor });
wire_enum!(RequestError {
    0 => NoInstance(instance),
    1 => Sealed(instance),
    2 => Gap { expected, found },
    3 => Submission(error),
    4 => Busy { queued_bytes },
    5 => Forgotten { first },
    6 => TooManyNeeds,
    7 => Policy(error),
    8 => LongName { bytes },
    9 => TooManyInstances { instances },
    10 => Expired { instance, at },
    11 => NoRoom { directory, free_bytes, wanted_bytes },
    12 => NoExecutors,
    13 => Joining(instance),
    14 => Lenders { wanted, there },
    15 => NoExecutor(executor),
    16 => ResultsNotKept(instance),
    17 => TooManyRetries { runs },
    18 => OverTasks { queued, wanted, tasks_max },
    19 => OverSlots { wanted, slots_max },
    20 => OverBytes { kept_bytes, bytes_max },
    21 => OverInstances { instances, instances_max },
});
wire_list!(
    TaskId,
    InstanceId,
    (u64, PartQuestion),
    Explained,
    Idle,
    Obstacle,
    BatchId,
    Range,
    After,
    TaskClass,
    Report,
    Finished,
    StoredPage,
    PagedOutput,
    Assigned,
    Attempts,
    Prepare,
    Held,
    HeldAlternative,
    GangKey,
    GangOrder,
    GangReport,
    NodeUsage,
    RankUsage,
    Member,
    Unwritten,
    (ExecutorId, String),
    Object,
    Lend,
    Located,
    Peer,
    ObjectId,
    (ObjectId, u64),
    (ExecutorId, u64),
    (ObjectId, ExecutorId),
    (ObjectId, Vec<ExecutorId>),
    ExecutorId,
    (Resources, u64),
    Resources,
    Site,
    Standing,
    Waiting,
    NodeClass,
    Note,
    ObjectStatus,
    HolderStatus,
    FoundObject,
    Access,
);

wire_number!(PolicyOption {
    0 => Window,
    1 => UtilizationThreshold,
    2 => ReplicationMax,
});
wire_enum!(PolicyError {
    0 => Unknown(name),
    1 => Threshold { milli },
    2 => NotWith { option, policy },
});

wire_number!(TailState { 0 => Waiting, 1 => Running, 2 => Ended, 3 => Gone });
wire_number!(SubmissionPart {
    0 => Rows,
    1 => ClassedTasks,
    2 => Names,
    3 => RowColumn,
    4 => ClassRun,
    5 => NameColumn,
    6 => DependencyOffset,
    7 => DependencyOnItself,
    8 => CustomResources,
    9 => DataObjects,
    10 => ValuesToTake,
    11 => Tasks,
    12 => Ranges,
    13 => ResourceName,
    14 => TaskName,
    15 => ObjectUrl,
    16 => ObjectVersion,
    17 => TaskWithData,
    18 => Everywhere,
    19 => Nodes,
    20 => Speculation,
    21 => Disk,
    22 => Alternatives,
});

/// All errors are arrays of four numbers, of which some need not all.
impl Wire for SubmissionError {
    fn encode(&self, out: &mut Vec<u8>) {
        let none = SubmissionPart::Rows;
        let (tag, part, first, second): (u64, _, _, _) = match *self {
            SubmissionError::Empty => (0, none, 0, 0),
            SubmissionError::CountMismatch { what, expected, found } => (1, what, expected, found),
            SubmissionError::Malformed(what) => (2, what, 0, 0),
            SubmissionError::TooMany => (3, none, 0, 0),
            SubmissionError::TooLong { what, bytes, bytes_max } => (4, what, bytes, bytes_max),
        };
        put_array(out, 4);
        put_uint(out, tag);
        part.encode(out);
        put_uint(out, first);
        put_uint(out, second);
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        from.array_of(4, "a submission error")?;
        let (tag, what) = (from.uint()?, SubmissionPart::decode(from)?);
        let (first, second) = (from.uint()?, from.uint()?);
        match tag {
            0 => Ok(SubmissionError::Empty),
            1 => Ok(SubmissionError::CountMismatch { what, expected: first, found: second }),
            2 => Ok(SubmissionError::Malformed(what)),
            3 => Ok(SubmissionError::TooMany),
            4 => Ok(SubmissionError::TooLong { what, bytes: first, bytes_max: second }),
            tag => Err(DecodeError::UnknownTag { of: "submission error", tag }),
        }
    }
}
