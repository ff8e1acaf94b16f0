//! Every bound of the core, by name, with its unit last.

use crate::data::limits::CHANGES_OBJECTS_MAX;
use crate::encoded::HELD_BYTES_MAX;

/// The longest message that a connection carries.
pub const MESSAGE_BYTES_MAX: u64 = 16 << 20;
/// The longest record of the journal.
pub const RECORD_BYTES_MAX: u64 = 17 << 20;
/// What a message or a record takes beside the one long thing that it is about:
/// a submission, a template, a task.
pub const ENVELOPE_BYTES_MAX: u64 = 512;
/// One submission as it is encoded: it arrives in a message, it is one record
/// of the journal, and its template goes to executors in one order.
pub const SUBMISSION_BYTES_MAX: u64 = MESSAGE_BYTES_MAX - ENVELOPE_BYTES_MAX;
/// One task in an order: its row and its data objects.
pub const TASK_BYTES_MAX: u64 = SUBMISSION_BYTES_MAX;
/// The name of an instance, an executor, a custom resource or a queue of the provisioner.
pub const NAME_BYTES_MAX: usize = 256;
/// Classes of nodes that a relay tells apart; the smallest beyond that are counted as one.
pub const NODE_CLASSES_MAX: usize = 64;
/// Submissions of a relay that the dispatcher below has not answered.
pub const RELAY_SUBMISSIONS_MAX: usize = 16;
/// Bytes of rows from several orders that a relay submits together.
pub const RELAY_SUBMISSION_BYTES_MAX: u64 = 4 << 20;
/// Pause before a relay sends a submission again that was refused for now.
pub const RELAY_RETRY_MICROS: u64 = 1_000_000;
/// How long a task stays below a relay where no node is large enough for it any more.
pub const RELAY_UNOFFERED_MICROS: u64 = 10_000_000;
/// How often relays are told what waits for nodes that they can get, at most.
pub const UNMET_MICROS: u64 = 500_000;
/// How long that counts below a relay without a session above: a request for nodes
/// that waits for hours is not worth less because a connection is lost.
pub const RELAY_UNMET_MICROS: u64 = 600_000_000;
/// Relays below one another and side by side that one dispatcher knows of.
pub const SUBTREE_RELAYS_MAX: usize = 4096;
/// How often a relay sends a survey of what is below it, at most.
pub const RELAY_SURVEY_MICROS: u64 = 2_000_000;
/// How long after a restart of the dispatcher executors may take to come back that keep output
/// of tasks that ended before it.
pub const OUTPUT_AWAITED_MICROS: u64 = 60_000_000;
/// How long a relay is shown that lost its connection and does not come back.
pub const RELAY_AWAY_MICROS: u64 = 3_600_000_000;
/// Relays that are shown though they are away; those beyond that which left first are not.
pub const AWAY_RELAYS_MAX: usize = 64;
/// Queues of batch schedulers in a survey.
pub const SURVEY_QUEUES_MAX: usize = 64;
/// The names of the relays on the way to such a queue.
pub const SITE_NAME_BYTES_MAX: usize = 1024;
/// The reason for what is requested of it.
pub const SITE_REASON_BYTES_MAX: usize = 1024;
/// Requests to it that a survey lists.
pub const SITE_REQUESTS_MAX: usize = 64;
/// Objects that executors hold of which a relay tells the dispatcher above.
pub const HOLDINGS_OBJECTS_MAX: usize = 1 << 14;
/// Objects whose first holder has come or last one has gone since a relay asked; beyond
/// that, the relay is told all anew.
pub const HELD_CHANGE_OBJECTS_MAX: usize = 4 * HOLDINGS_OBJECTS_MAX;
/// The address where an executor serves what it caches, and what it is known by there.
pub const ADDRESS_BYTES_MAX: usize = 512;
/// See [`ADDRESS_BYTES_MAX`].
pub const FINGERPRINT_BYTES_MAX: usize = 64;
/// The user's name for a task.
pub const TASK_NAME_BYTES_MAX: usize = 4096;
/// Custom resources that one task or one executor names.
pub const CUSTOM_NAMES_MAX: usize = 64;
/// Requests for resources that one task may be placed with, the first counted.
pub const ALTERNATIVES_MAX: usize = 4;
/// The URL of a data object.
pub const URL_BYTES_MAX: usize = 16 << 10;
/// The version of a data object.
pub const VERSION_BYTES_MAX: usize = 1 << 10;
/// The ranges that computed rows are the product of: they go with each of their tasks.
pub const RANGES_BYTES_MAX: u64 = 64 << 10;
/// Runs of an instance's tasks that were retried.
pub const RETRIED_RUNS_MAX: usize = 1 << 20;
/// Executors that run one task together, as a gang.
pub const GANG_NODES_MAX: u32 = 4096;
/// Nodes of a gang that a result lists with what each used: of more, it has the sums.
pub const GANG_USAGE_NODES_MAX: usize = 256;
/// Ranks of a gang that a result lists likewise: of more, none.
pub const GANG_USAGE_RANKS_MAX: usize = 1024;
/// Processes that launchers start on each node of a gang.
pub const NODE_RANKS_MAX: u32 = 65_535;
/// Questions about what tasks below relays write that have no answer yet.
pub const TAIL_REQUESTS_MAX: usize = 4096;
/// Questions about what tasks write that one connection has asked and that have no answer yet.
pub const PEER_TAIL_REQUESTS_MAX: usize = 64;
/// How long a relay may take for an answer, beside the time that the question waits for
/// something new.
pub const TAIL_ANSWER_MICROS_MAX: u64 = 30_000_000;
/// Parts of objects that are passed on and have not come yet.
pub const PART_REQUESTS_MAX: usize = 512;
/// Parts of objects that one connection has asked for, or is to give, and that have not come yet.
pub const PEER_PART_REQUESTS_MAX: usize = 32;
/// Parts of objects that one client has asked for and that have not come yet.
pub const CLIENT_PART_REQUESTS_MAX: usize = 16;
/// Parts of objects that all clients have asked for and that have not come yet: the rest of
/// [`PART_REQUESTS_MAX`] is for tasks.
pub const CLIENTS_PART_REQUESTS_MAX: usize = 128;
/// How long a holder may take for a part of an object.
pub const PART_ANSWER_MICROS_MAX: u64 = 20_000_000;
/// Gangs for which secrets are drawn at once.
pub const TOKEN_GANGS_MAX: usize = 64;
/// How long room is kept for a gang before other executors are looked for that may have it
/// earlier.
pub const GANG_LOOK_MICROS: u64 = 1_000_000;
/// How much later a gang may begin so that all of its executors are of one allocation.
pub const GANG_GATHER_MICROS: u64 = 1_000_000;
/// The least by which a gang may begin later than expected, so that others of about that length
/// run meanwhile.
pub const GANG_SLACK_MICROS_MIN: u64 = 10_000;
/// Waiting after which room is kept for a gang whether it is its turn or not.
pub const GANG_PATIENCE_MICROS: u64 = 60_000_000;
/// Gangs that an executor holds at a time.
pub const HELD_GANGS_MAX: usize = 1024;
/// Runs of tasks in one record of the journal.
pub const RECORD_RUNS_MAX: usize = 65_536;
/// Least growth of the journal since the last snapshot that makes another worth
/// while, where the disk has room.
pub const SNAPSHOT_AFTER_BYTES_MIN: u64 = 64 << 20;
/// The same in sizes of the last snapshot.
pub const SNAPSHOT_AFTER_SNAPSHOTS: u64 = 2;
/// Bytes that a snapshot leaves free on the journal's disk, for what the journal takes while it
/// is written; with less than a snapshot and these no task is dispatched.
pub const SNAPSHOT_RESERVE_BYTES: u64 = 16 << 20;
/// Microseconds for which the part of a snapshot that executors and their tasks take is not
/// counted again, while there is much room.
pub const EXECUTORS_COUNTED_MICROS: u64 = 1_000_000;
/// Bytes free beyond those with which submissions are accepted: room for the
/// results of tasks that were.
pub const SUBMISSION_RESERVE_BYTES: u64 = 16 << 20;
/// Bytes that pages of results leave free on the journal's disk at least.
pub const PAGES_RESERVE_BYTES: u64 = 64 << 20;
/// What a new instance takes in the journal at most, about.
pub const INSTANCE_BYTES: u64 = 4 << 10;
/// Bytes that are set aside on the journal's disk: records that free room have
/// half of them, and a snapshot has the rest, which the log never takes.
pub const BALLAST_BYTES: u64 = 16 << 20;
/// What a snapshot may give back, or what was written since the last one, that
/// makes it worth while on a disk that is short of room.
pub const COMPACTION_GAIN_BYTES_MIN: u64 = 4 << 20;

/// Connections of a process whose peers have sent nothing yet.
pub const SILENT_CONNECTIONS_MAX: usize = 4096;
/// Connections of a process whose handshakes are under way; further peers wait for a place.
pub const HANDSHAKE_CONNECTIONS_MAX: usize = 1024;
/// Connections of a process whose peers wait for a place; further ones are turned away.
pub const WAITING_CONNECTIONS_MAX: usize = 16_384;

/// Tasks in one submission (one message, one journal record). Packed rows are
/// further bounded by the frame they arrive in.
pub const SUBMISSION_TASKS_MAX: u64 = 1_000_000_000_000;
/// Tasks in one instance, so that ids and sums stay far from overflow.
pub const INSTANCE_TASKS_MAX: u64 = 1 << 62;
/// Instances on one dispatcher.
pub const INSTANCES_MAX: usize = 65_536;
/// Instances that a user may have for whom nothing else was set.
pub const UNSET_INSTANCES_MAX: u64 = 1000;
/// The most instances that a user may be allowed: no single user takes all that a dispatcher keeps.
pub const USER_INSTANCES_MAX: u64 = 16_384;
/// How long an instance stays without a task and without a client when there are
/// as many as there may be.
pub const VACANT_INSTANCE_MICROS: u64 = 60_000_000;
/// Different needs (resources, priority, data) that unfinished tasks of one
/// instance have at a time; more are refused for now.
pub const INSTANCE_NEEDS_MAX: usize = 1 << 20;
/// Needs without unfinished tasks that an instance remembers, with what was
/// measured of them.
pub const IDLE_NEEDS_MAX: usize = 64;
/// Different needs of which tasks are sent ahead to one executor.
pub const AHEAD_NEEDS_MAX: usize = 16_384;
/// Queues of an instance that are looked at for one executor although none of
/// their tasks fits its free room: whether to send tasks ahead, or to have the
/// executor emptied.
pub const LOOK_NEEDS_MAX: usize = 8;
/// Needs of an instance that no executor offers, as many as status shows; and those of
/// which it is explained why tasks wait.
pub const OBSTACLE_NEEDS_MAX: usize = 64;
/// Needs of ready tasks that are looked at to say why executors are idle.
pub const EXPLAINED_NEEDS_MAX: usize = 4096;
/// Tasks, executors or instances that an explanation names.
pub const EXPLAINED_NAMES_MAX: usize = 8;
/// Instances looked at for one that has less than its share and waits.
pub const DUE_INSTANCES_MAX: usize = 8;
/// How long an instance with less than its share waits before tasks of others
/// that were sent ahead are taken back for it.
pub const DUE_WAIT_MICROS: u64 = 100_000;
/// Tasks sent ahead of free slots to one executor, or to a relay for one of its nodes.
pub const PREFETCH_TASKS_MAX: u64 = 65_536;
/// Tasks sent ahead of free slots to a relay, however many nodes are below it: with so many, what
/// a round trip costs no longer counts.
pub const RELAY_PREFETCH_TASKS_MAX: u64 = 32 * PREFETCH_TASKS_MAX;
/// Runs of tasks on a relay before it is sent no more: it says all of them when it connects
/// again ([`JOIN_RUNS_MAX`]).
pub const RELAY_RUNS_MAX: usize = JOIN_RUNS_MAX / 2;
/// Work sent ahead of free slots to one executor, per slot.
pub const PREFETCH_WORK_MICROS: u64 = 50_000;
/// Mean run time up to which one task is sent ahead for each slot all the
/// same: then no slot is idle while its next task is on its way, and a task
/// sent ahead waits no longer than this for one that it could have preceded.
pub const PREFETCH_TASK_MICROS_MAX: u64 = 2_000_000;
/// The same for relays. A dispatcher above a million slots takes seconds to hear of as many tasks
/// that end together, and a relay gives back at once what another one has room for.
pub const RELAY_PREFETCH_TASK_MICROS_MAX: u64 = 30_000_000;
/// The longest run time that estimates count: no sum of them overflows.
pub const RUN_MICROS_MAX: u64 = 1 << 50;
/// One order to an executor, unless one entry alone is longer; the rest
/// follows in the next.
pub const ORDER_BYTES_MAX: u64 = 4 << 20;
/// Runs of results in one message to a client.
pub const DELIVERY_RUNS_MAX: usize = 16_384;
/// Captured output in one message to a client, beyond the first result.
pub const DELIVERY_BYTES_MAX: u64 = 4 << 20;
/// Runs of results that a client has not acknowledged before no more are sent.
pub const DELIVERY_WINDOW_RUNS_MAX: u64 = 131_072;
/// Captured output that a client has not acknowledged before no more is sent.
pub const DELIVERY_WINDOW_BYTES_MAX: u64 = 32 << 20;
/// Results handed to the shell for one connection and not written to it, before
/// it is sent no more, whatever it subscribes to and acknowledges. One message
/// may go over it by its own size.
pub const UNWRITTEN_BYTES_MAX: u64 = 16 << 20;
/// Unacknowledged results one instance may hold before no more of its tasks are
/// dispatched, if acknowledged ones are forgotten.
pub const RESULTS_HELD_BYTES_MAX: u64 = 1 << 30;
/// Results in memory, of all instances, beyond which the oldest are moved to
/// disk where there is a place for them.
pub const RESULTS_PAGED_BYTES_MIN: u64 = 48 << 20;
/// Results in memory, of all instances, beyond which no more tasks are
/// dispatched: the disk does not take them as fast as they come.
pub const RESULTS_MEMORY_BYTES_MAX: u64 = 192 << 20;
/// Results in one page on disk, beyond the first.
pub const PAGE_BYTES_MAX: u64 = 2 << 20;
/// Runs of results in one page.
pub const PAGE_RUNS_MAX: usize = 8192;
/// Pages that are being written at a time.
pub const STORING_PAGES_MAX: usize = 4;
/// Pages that are being read at a time.
pub const LOADING_PAGES_MAX: usize = 4;
/// Pause before a page is written again after one could not be; each time in a
/// row doubles it.
pub const PAGE_RETRY_MICROS_MIN: u64 = 1_000_000;
/// The longest such pause.
pub const PAGE_RETRY_MICROS_MAX: u64 = 60_000_000;
/// Submissions all of whose tasks have ended and whose results are kept, of all
/// instances, before what tasks of the oldest were is forgotten.
pub const ENDED_SUBMISSIONS_BYTES_MAX: u64 = 64 << 20;
/// Names of their tasks, by which people know their results, of submissions of
/// which nothing else is known any more, before those of the oldest are forgotten.
pub const ENDED_NAMES_BYTES_MAX: u64 = 64 << 20;
/// Names of executors that come before those that nobody mentions any more are
/// looked for, and forgotten.
pub const FORGOTTEN_NAMES_MIN: usize = 1024;
/// Values of tasks that one instance holds for those that take them. What does
/// not fit is not held, and those that take it fail.
pub const VALUES_HELD_BYTES_MAX: u64 = 4 << 30;
/// A task's row with the values that it takes: with an order's other rows they
/// fit one frame.
pub const ROW_WITH_VALUES_BYTES_MAX: u64 = 11 << 20;
/// Tasks that a submission may become which is to run everywhere: one for each executor,
/// those below relays included.
pub const EVERYWHERE_TASKS_MAX: u64 = 1 << 20;
/// Queued submissions one instance may hold before it refuses more for now.
pub const QUEUED_BYTES_MAX: u64 = 16 << 30;
/// Messages with reports that a relay sends ahead of the answer of the dispatcher above.
pub const UNANSWERED_MESSAGES_MAX: usize = 2;
/// How long an acceptance waits for the results that it can go with.
pub const COALESCE_MICROS: u64 = 1_000;
/// How long an executor waits for the word that its reports were taken in, and
/// which templates to forget, if there is no order that it can come with.
pub const TELL_MICROS: u64 = 10_000;
/// How often an executor is heard from at least.
pub const HEARTBEAT_MICROS: u64 = 2_000_000;
/// Executors that a dispatcher hears from so often. Where there are more, their heartbeats are
/// further apart, so that it hears from no more at a time.
pub const HEARTBEAT_EXECUTORS_MAX: u64 = 20_000;
/// How often [`HEARTBEAT_MICROS`] and the silences that follow from it are doubled at most.
pub const HEARTBEAT_DOUBLINGS_MAX: u8 = 4;
/// Silence after which an executor is given no more tasks until it is heard:
/// where many are out of reach, none of them takes over what another one had.
pub const HEARTBEAT_MISSED_MICROS: u64 = 5_000_000;
/// Silence after which an executor is lost.
pub const HEARTBEAT_LOST_MICROS: u64 = 10_000_000;
/// How long a disconnected executor may take to come back before its tasks
/// run elsewhere.
pub const RECONNECT_GRACE_MICROS: u64 = 3_000_000;
/// How long executors that were there before a restart are waited for at most,
/// while others of them keep coming.
pub const RECOVERY_MICROS_MAX: u64 = 120_000_000;
/// How many times a task may be lost with its executor before it has failed:
/// a task that takes its node down must not go round for ever.
pub const LOSSES_MAX: u32 = 5;
/// How often stragglers are looked for among the last tasks of an instance.
pub const SPECULATION_LOOK_MICROS: u64 = 1_000_000;
/// A straggler has run for so long, however short its like are.
pub const SPECULATION_LEAST_MICROS: u64 = 1_000_000;
/// Tasks of a kind that have to have ended before one is taken for a straggler; three times as
/// many as still run, besides.
pub const SPECULATION_ENDED_TASKS_MIN: u64 = 5;
/// Classes of tasks, of all templates, whose run times are remembered for that.
pub const SPECULATION_CLASSES_MAX: usize = 4096;
/// One of so many executors may have a copy of a straggler.
pub const COPY_OF_EXECUTORS: u64 = 4;
/// Tasks that have a copy at a time.
pub const SPECULATION_TASKS_MAX: u64 = 1024;
/// Executors that one attempt at a task is copied to, one after another.
pub const COPY_EXECUTORS_MAX: usize = 3;
/// Executors that are looked at for one with room for a copy.
pub const SPECULATION_SEARCH_EXECUTORS_MAX: usize = 256;
/// Queues with ready tasks beyond which no copies are made.
pub const SPECULATION_NEEDS_MAX: usize = 64;
/// Kinds of tasks of which an executor remembers how much memory and how many CPUs they used.
pub const AUTO_NEEDS_MAX: usize = 256;
/// Memory that a task gets beyond what others had: the system counts page tables and the like
/// towards a limit, which nobody measures.
pub const AUTO_HEADROOM_BYTES: u64 = 16 << 20;
/// Tasks of a kind that have to end before others get memory by what they had.
pub const AUTO_TASKS_MIN: u64 = 10;
/// Tasks of a kind that have to end before others get CPUs by what they used: one after the other,
/// as each has the node's share.
pub const AUTO_CPUS_TASKS_MIN: u64 = 3;
/// Tasks in a row that an executor could not start before it is suspended.
pub const FAULTS_MAX: u32 = 3;
/// How long an executor is suspended the first time; each time in a row
/// doubles it.
pub const SUSPENSION_MICROS: u64 = 10_000_000;
/// How often a suspension is doubled.
pub const SUSPENSION_DOUBLINGS_MAX: u32 = 5;
/// Time after which processor time that an instance was given counts half, when
/// it is decided whose turn it is.
pub const SHARE_HALF_MICROS: u64 = 60_000_000;
/// Waiting after which a task too large for any free room has an executor
/// emptied for it.
pub const RESERVE_AFTER_MICROS: u64 = 1_000_000;
/// Work below which prefetched tasks are not worth taking back.
pub const RECALL_WORK_MICROS: u64 = 5_000;
/// Silence after which prefetched tasks are taken back whatever their work.
pub const RECALL_SILENCE_MICROS: u64 = 50_000;
/// Silence after which tasks are taken back that may wait for executors which hold their data.
pub const RECALL_PLACED_MICROS: u64 = 10_000_000;
/// Executors that are looked at in one go for prefetched tasks to take back,
/// and for room for them.
pub const RECALL_EXECUTORS_MAX: usize = 64;
/// How long a relay that had no tasks to give back is not asked again, unless it reports.
pub const RELAY_SPENT_MICROS: u64 = 500_000;
/// Executors of a relay that are asked in one go for tasks to give back to the dispatcher
/// above.
pub const WITHDRAWAL_EXECUTORS_MAX: usize = 1024;
/// How long their answers are waited for.
pub const WITHDRAWAL_MICROS_MAX: u64 = 1_000_000;
/// Reports in one message from an executor.
pub const UPDATE_REPORTS_MAX: usize = 16_384;
/// Reports in one message from an executor, unless one alone is longer.
pub const UPDATE_BYTES_MAX: u64 = 4 << 20;
/// Runs of tasks that one message from an executor gives back.
pub const UPDATE_RUNS_MAX: usize = 32_768;
/// Objects put into a cache by hand, with their names, in one message from an
/// executor.
pub const UPDATE_NAMED_BYTES_MAX: u64 = 1 << 20;
/// Runs of tasks that an executor has when it connects, in that message; of more,
/// tasks that wait are dropped, and come again with an order.
pub const JOIN_RUNS_MAX: usize = 1 << 18;
/// Runs of tasks of which an executor that connects says which alternative they have; for those of
/// more runs, a dispatcher that does not know takes the first.
pub const JOIN_ALTERNATIVES_MAX: usize = 1 << 14;
/// Reports an executor may hold unacknowledged before it starts nothing more.
pub const HELD_REPORTS_MAX: usize = JOIN_RUNS_MAX / 2;
/// Tasks that run on an executor, or are put away, before it starts nothing more.
pub const RUNNING_TASKS_MAX: usize = JOIN_RUNS_MAX / 4;
/// Executors of which each collects its own outputs; of more, groups share collectors,
/// so many in all or one for [`COLLECT_GROUP_EXECUTORS_MAX`].
pub const COLLECT_EXECUTORS_MIN: usize = 16;
/// Executors that share a collector.
pub const COLLECT_GROUP_EXECUTORS_MAX: usize = 64;
/// What others have staged that waits at a collector for room to come there.
pub const COLLECT_OFFERED_ARCHIVES_MAX: usize = 1024;
/// How long an executor has nothing to do before the outputs that wait there are
/// written to their archives.
pub const COLLECT_IDLE_MICROS: u64 = 100_000;
/// How often that time doubles while more outputs come each time.
pub const COLLECT_IDLE_DOUBLINGS_MAX: u32 = 5;
/// Outputs that wait on an executor together before some are written.
pub const COLLECT_MEMBERS_MAX: usize = 32_768;
/// Tasks of an executor whose outputs are staged and not safe before it starts
/// nothing more.
pub const COLLECT_TASKS_MAX: usize = JOIN_RUNS_MAX / 4;
/// What their reports say, before it starts nothing more.
pub const COLLECT_REPORTS_BYTES_MAX: u64 = 128 << 20;
/// Archives that an executor writes at a time.
pub const COLLECT_ARCHIVES_MAX: usize = 2;
/// How long an archive that cannot be written is tried again, unless the user says
/// otherwise, before the tasks fail whose outputs it was to have.
pub const COLLECT_PATIENCE_MICROS: u64 = 2 * 3600 * 1_000_000;
/// Archives that cannot be written of which an executor tells.
pub const UNWRITTEN_ARCHIVES_MAX: usize = 4;
/// Bytes of why one of them cannot be.
pub const UNWRITTEN_ERROR_BYTES_MAX: usize = 1 << 10;
/// Pause before it is tried again; each time in a row doubles it.
pub const COLLECT_RETRY_MICROS_MIN: u64 = 1_000_000;
/// The longest such pause.
pub const COLLECT_RETRY_MICROS_MAX: u64 = 60_000_000;
/// How long what a cancelled task has staged may take to be written.
pub const COLLECT_CANCEL_MICROS_MAX: u64 = 10_000_000;
/// What one report says: output, value and error.
pub const REPORT_BYTES_MAX: u64 = 12 << 20;
/// Bytes kept of one output stream of a task.
pub const CAPTURE_BYTES_MAX: u64 = 4 << 20;
/// What a function may return.
pub const VALUE_BYTES_MAX: u64 = 8 << 20;
/// Bytes of an error's text; of a longer one the beginning and the end stay.
pub const ERROR_BYTES_MAX: u64 = 64 << 10;
/// The names of an executor below relays and of the relays on the way to it, in a result.
pub const EXECUTOR_PATH_BYTES_MAX: usize = 1 << 10;
/// Where the collected outputs of one task are: as many as fit are named.
pub const OUTPUTS_BYTES_MAX: u64 = 64 << 10;
/// How long the end of a task by a signal is held back in a batch scheduler's
/// job: the scheduler may be ending the job, this executor next.
pub const DOUBT_MICROS: u64 = 250_000;
/// How far apart an executor's updates are at least that tell of nothing but
/// tasks that ended, while it has no room for others and enough of them.
pub const REPORTS_APART_MICROS: u64 = 5_000;
/// Reports an executor may hold unacknowledged before it starts nothing more.
pub const REPORTS_HELD_BYTES_MAX: u64 = 256 << 20;
/// Queued runs an executor looks through for one that fits its free room.
pub const BACKFILL_RUNS_MAX: usize = 64;
/// Calls of functions handed to one worker at once.
pub const BUNDLE_TASKS_MAX: u64 = 4096;
/// Queued runs of calls that are looked through to divide them among workers.
pub const BUNDLE_SEARCH_RUNS_MAX: usize = 4096;
/// Work handed to one worker at once, by what calls took before.
pub const BUNDLE_WORK_MICROS: u64 = 5_000;
/// Tasks of one executor that are started to come after others.
pub const AHEAD_TASKS_MAX: usize = 4096;
/// Tasks that are started to come one after the other behind one that runs.
pub const AHEAD_CHAIN_TASKS_MAX: usize = 16;
/// Work that these may be together, if they are more than one.
pub const AHEAD_WORK_MICROS: u64 = 10_000;
/// Running tasks an executor looks through for one to start another after.
pub const AHEAD_SEARCH_TASKS_MAX: usize = 64;
/// Objects that one executor is known to hold. Of what it holds besides, tasks are
/// not sent to it, and nobody fetches that from it.
pub const EXECUTOR_OBJECTS_MAX: usize = 1 << 20;
/// Holders of an object looked at for the least loaded, or for a free one.
pub const HINT_EXECUTORS_MAX: usize = 64;
/// Executors to which one is named that fetches an object which nobody holds yet.
pub const READER_EXECUTORS_MAX: usize = 8;
/// Holders of an object that find the tasks waiting for it through an index of
/// their own; the others find them near the head of the queue.
pub const INDEXED_EXECUTORS_MAX: usize = 32;
/// Waiting tasks looked at one by one in a decision.
pub const SCAN_TASKS_MAX: usize = 64;
/// Waiting tasks remembered per executor because it holds some of their inputs.
pub const PARTIAL_TASKS_MAX: usize = 64;
/// Times a task that has ended is run again because what it left in caches was
/// lost, before those that read it have failed: something destroys it each
/// time.
pub const RECOMPUTE_RUNS_MAX: u32 = 8;
/// Waiting tasks with several inputs that one decision looks at for what would
/// make them run.
pub const COLOCATE_TASKS_MAX: usize = 1024;
/// Waiting tasks that one decision looks at to count anew what objects are worth.
pub const RECOUNT_TASKS_MAX: usize = 4096;
/// Objects read from the store at a time, ahead of tasks with several inputs,
/// before it is known how many it serves well.
pub const READS_FIRST_OBJECTS: usize = 16;
/// Objects that may be read from the store at a time, however slow it is.
pub const READS_OBJECTS_MIN: usize = 4;
/// Objects that an executor has not, and whose worth to it is remembered.
pub const GAINS_OBJECTS_MAX: usize = 4096;
/// Waiting tasks all of whose inputs an executor has, before it fetches no more
/// for others.
pub const WHOLE_TASKS_MAX: usize = 256;
/// Transfers from an executor before others are told, ahead of their tasks, to
/// fetch from it.
pub const SENDS_OBJECTS_MAX: u64 = 2;
/// Objects that an executor got from nobody and that it tells again when it has
/// lost its connection.
pub const UNOBTAINABLE_OBJECTS_MAX: usize = 1024;
/// Objects that executors are asked to copy in one go.
pub const COPY_OBJECTS_MAX: usize = 256;
/// Executors that are looked at in one go for one that could copy an object.
pub const COPY_SEARCH_EXECUTORS_MAX: usize = 64;
/// Times executors are asked in vain to copy an object before nobody is.
pub const COPY_LOSSES_MAX: u32 = 4;
/// How long an executor that leaves waits until what only it holds is held by
/// others: less than batch systems give it before they kill.
pub const LEAVE_MICROS_MAX: u64 = 20_000_000;
/// How long an executor that leaves, with nothing running, waits for a
/// dispatcher that is away before it goes with what it has not handed over.
pub const LEAVE_ALONE_MICROS_MAX: u64 = 10_000_000;
/// Time between a task's SIGTERM and its SIGKILL.
pub const KILL_GRACE_MICROS: u64 = 2_000_000;

/// A run of tasks, or of other numbers, as (first, count).
pub const RUN_BYTES_MAX: u64 = 19;
/// How a run of tasks stands ([`Attempts`](crate::dispatch::Attempts)), in a
/// record.
const ATTEMPTS_BYTES_MAX: u64 = 48;

const _: () = {
    assert!(HEARTBEAT_MISSED_MICROS >= 2 * HEARTBEAT_MICROS);
    // All that are cut off at once are missed before the first of them is lost.
    assert!(HEARTBEAT_LOST_MICROS > HEARTBEAT_MISSED_MICROS + HEARTBEAT_MICROS);
    assert!(RECONNECT_GRACE_MICROS < HEARTBEAT_LOST_MICROS);
    assert!(RECONNECT_GRACE_MICROS < RECOVERY_MICROS_MAX);
    assert!(RECALL_WORK_MICROS < PREFETCH_WORK_MICROS);
    assert!(PREFETCH_WORK_MICROS < DUE_WAIT_MICROS);
    assert!(PREFETCH_WORK_MICROS < PREFETCH_TASK_MICROS_MAX);
    assert!(2 * AHEAD_WORK_MICROS < PREFETCH_WORK_MICROS);
    assert!(4 * REPORTS_APART_MICROS < PREFETCH_WORK_MICROS);
    assert!((DELIVERY_RUNS_MAX as u64) < DELIVERY_WINDOW_RUNS_MAX);
    assert!(DELIVERY_BYTES_MAX < DELIVERY_WINDOW_BYTES_MAX);
    assert!(2 * DELIVERY_BYTES_MAX <= UNWRITTEN_BYTES_MAX);
    assert!(DELIVERY_WINDOW_BYTES_MAX < RESULTS_HELD_BYTES_MAX);
    assert!(PAGE_BYTES_MAX <= DELIVERY_BYTES_MAX);
    assert!(PAGE_RUNS_MAX <= DELIVERY_RUNS_MAX && PAGE_RUNS_MAX <= RECORD_RUNS_MAX);
    assert!(
        RESULTS_PAGED_BYTES_MIN + STORING_PAGES_MAX as u64 * PAGE_BYTES_MAX
            < RESULTS_MEMORY_BYTES_MAX / 2
    );
    assert!(PAGE_RETRY_MICROS_MIN < PAGE_RETRY_MICROS_MAX);
    assert!(SUBMISSION_TASKS_MAX < INSTANCE_TASKS_MAX);
    // An item is an object's id and size and its name.
    let item = EVENT_TEXT_BYTES_MAX + 64;
    assert!(EVENT_BLOCK_BYTES + EVENT_NEEDS_MAX * item <= EVENT_BLOCK_BYTES_MAX);
    assert!(SNAPSHOT_RESERVE_BYTES + SUBMISSION_RESERVE_BYTES < PAGES_RESERVE_BYTES);
    assert!(COMPACTION_GAIN_BYTES_MIN < SUBMISSION_RESERVE_BYTES / 2);
    assert!(COMPACTION_GAIN_BYTES_MIN <= BALLAST_BYTES / 2);
    assert!(COMPACTION_GAIN_BYTES_MIN < SNAPSHOT_AFTER_BYTES_MIN);
    assert!(MESSAGE_BYTES_MAX < RECORD_BYTES_MAX);
    assert!(SUBMISSION_BYTES_MAX + ENVELOPE_BYTES_MAX <= MESSAGE_BYTES_MAX);
    assert!(TASK_BYTES_MAX + ENVELOPE_BYTES_MAX <= MESSAGE_BYTES_MAX);
    assert!(ROW_WITH_VALUES_BYTES_MAX <= TASK_BYTES_MAX);
    assert!(ORDER_BYTES_MAX <= MESSAGE_BYTES_MAX);
    let streams = 2 * URL_BYTES_MAX as u64;
    let path = EXECUTOR_PATH_BYTES_MAX as u64 + crate::gang::GANG_USAGE_BYTES_MAX;
    let texts = ERROR_BYTES_MAX + OUTPUTS_BYTES_MAX + streams + path + ENVELOPE_BYTES_MAX;
    assert!(2 * CAPTURE_BYTES_MAX + texts <= REPORT_BYTES_MAX);
    assert!(VALUE_BYTES_MAX + texts <= REPORT_BYTES_MAX);
    // A report goes to the dispatcher, into the journal, to the client and, as
    // the value of a task, to executors.
    let mentioned = DELIVERY_RUNS_MAX as u64 * (NAME_BYTES_MAX as u64 + 16);
    assert!(REPORT_BYTES_MAX + NAME_BYTES_MAX as u64 + ENVELOPE_BYTES_MAX <= MESSAGE_BYTES_MAX);
    assert!(DELIVERY_BYTES_MAX + mentioned + ENVELOPE_BYTES_MAX <= MESSAGE_BYTES_MAX);
    assert!(REPORT_BYTES_MAX + ENVELOPE_BYTES_MAX <= RECORD_BYTES_MAX);
    let listed = LISTED_OBJECTS_MAX as u64 * (VERSION_BYTES_MAX as u64 + 128);
    assert!(LISTED_BYTES_MAX + URL_BYTES_MAX as u64 + listed <= MESSAGE_BYTES_MAX);
    let found = FOUND_OBJECTS_MAX * (URL_BYTES_MAX + VERSION_BYTES_MAX + 128);
    let holders = FOUND_EXECUTORS_MAX * (NAME_BYTES_MAX + 48);
    assert!((found + holders) as u64 <= MESSAGE_BYTES_MAX);
    let access = NAME_BYTES_MAX + ADDRESS_BYTES_MAX + FINGERPRINT_BYTES_MAX + 32;
    assert!((FOUND_EXECUTORS_MAX * access) as u64 <= MESSAGE_BYTES_MAX);
    let changes = CHANGES_OBJECTS_MAX as u64 * 28 + UPDATE_NAMED_BYTES_MAX;
    let returned = UPDATE_RUNS_MAX as u64 * HELD_BYTES_MAX;
    let resources = CUSTOM_NAMES_MAX * (NAME_BYTES_MAX + 16);
    let joins = resources + NAME_BYTES_MAX + ADDRESS_BYTES_MAX + FINGERPRINT_BYTES_MAX;
    let joins = joins as u64 + JOIN_ALTERNATIVES_MAX as u64 * (HELD_BYTES_MAX + 8);
    let joins = JOIN_RUNS_MAX as u64 * HELD_BYTES_MAX + UPDATE_BYTES_MAX + joins;
    assert!(joins + ENVELOPE_BYTES_MAX <= MESSAGE_BYTES_MAX);
    assert!(2 * PREFETCH_TASKS_MAX as usize <= JOIN_RUNS_MAX);
    let told = returned + UPDATE_KEPT_RUNS_MAX as u64 * RUN_BYTES_MAX;
    assert!(UPDATE_BYTES_MAX + changes + told + ENVELOPE_BYTES_MAX <= MESSAGE_BYTES_MAX);
    assert!(RUN_BYTES_MAX * RECORD_RUNS_MAX as u64 + ENVELOPE_BYTES_MAX <= RECORD_BYTES_MAX);
    assert!(ATTEMPTS_BYTES_MAX * RECORD_RUNS_MAX as u64 + ENVELOPE_BYTES_MAX <= RECORD_BYTES_MAX);
};
/// Results whose output executors keep, in all instances; output of further
/// ones is discarded beyond what was sent.
pub const OUTPUT_TASKS_MAX: u64 = 1 << 20;
/// Runs of discarded outputs that wait for one executor's next orders; further
/// ones are discarded when it connects again.
pub const DISCARDED_RUNS_MAX: usize = 1 << 17;
/// Runs of outputs that one order discards; further ones come with the next.
pub const ORDER_DISCARDED_RUNS_MAX: usize = 1 << 14;
/// Runs of outputs in one message in which an executor says what it keeps;
/// further ones come with the next.
pub const UPDATE_KEPT_RUNS_MAX: usize = 1 << 14;
const _: () = assert!(ORDER_DISCARDED_RUNS_MAX <= DISCARDED_RUNS_MAX);
/// Parents of which one executor has heard nothing in a broadcast before it is
/// at fault itself.
pub const BROADCAST_LOSSES_MAX: u32 = 2;
/// How long an executor of which others have heard nothing in a broadcast sends nothing
/// to anybody, the first time. Each time in a row is twice as long.
pub const BROADCAST_ASIDE_MICROS: u64 = 5_000_000;
/// The longest such time.
pub const BROADCAST_ASIDE_MICROS_MAX: u64 = 300_000_000;
/// Stripes that an object is divided into.
pub const STRIPES_MAX: usize = 64;
/// Stripes that an object is divided into for each task that reads it, if their
/// lenders have room.
pub const READER_STRIPES_MAX: u64 = 4;
/// Objects that are striped at a time.
pub const STRIPED_OBJECTS_MAX: usize = 1024;
/// Names of objects that are remembered, with what each takes; beyond that, the half
/// that was read last is kept.
pub const MEMORY_BYTES_MAX: u64 = 8 << 20;
/// What a name takes beside its bytes.
pub const MEMORY_NAME_BYTES: u64 = 256;
/// What a run of executors takes that read an object of a name.
pub const MEMORY_RUN_BYTES: u64 = 32;
/// How long a name is remembered after it was last read.
pub const MEMORY_MICROS_MAX: u64 = 30 * 24 * 3_600_000_000;
/// How long nobody reads a name between two uses of it.
pub const MEMORY_USE_MICROS: u64 = 600_000_000;
/// Archives of members that a task reads which decide about where it runs.
pub const PLACING_ARCHIVES_MAX: usize = 16;
/// Holders of an object that an executor is told of.
pub const HINT_HOLDERS_MAX: usize = 4;
/// Objects on their way to an executor before no more are sent ahead of tasks.
pub const AHEAD_OBJECTS_MAX: usize = 4;
/// What a read from the store may take beside the transfer, until it is known.
/// An executor reads no more at a time, ahead of tasks, than its link brings
/// meanwhile.
pub const READ_MICROS: u64 = 50_000;
/// Executors that are looked at in one go for one that should fetch ahead.
pub const FETCH_SEARCH_EXECUTORS_MAX: usize = 8;
/// What an executor receives from another, in bytes per second, as long as
/// nobody has measured it: a link of 1 Gb/s.
pub const PEER_SECOND_BYTES: u64 = 125_000_000;
/// Objects whose demand one order tells.
pub const ORDER_DEMAND_OBJECTS_MAX: usize = 4096;
/// Tasks with data objects in one assignment.
pub const DATA_TASKS_MAX: u64 = 4 * PREFETCH_TASKS_MAX;
/// Times one attempt at a task may find, when it is to begin, that its inputs
/// were deleted from the cache.
pub const INPUT_LOSSES_MAX: u32 = 8;
/// Tasks with data objects in one run of an order: each brings its objects
/// along.
pub const ORDER_DATA_TASKS_MAX: u64 = 1024;
/// What the least task with data takes in an order.
pub const DATA_TASK_BYTES: u64 = 256;
/// Names of objects below which none that nobody needs is swept out.
pub const CATALOG_OBJECTS_MIN: usize = 4096;
/// Objects in one answer to somebody who asks which there are.
pub const LISTED_OBJECTS_MAX: usize = 4096;
/// Bytes of their URLs, the last one's aside.
pub const LISTED_BYTES_MAX: u64 = 1 << 20;
/// Objects looked at for one such answer.
pub const EXAMINED_OBJECTS_MAX: usize = 16_384;
/// Objects, versions of one source, that one name is found to mean.
pub const FOUND_OBJECTS_MAX: usize = 256;
/// Holders of objects in one answer.
pub const FOUND_EXECUTORS_MAX: usize = 16_384;
/// Instances that have expired of which it is known when.
pub const EXPIRED_INSTANCES_MAX: usize = 1024;
/// How far apart looks at an instance are journaled; more often where it is not
/// kept for long.
pub const LOOK_JOURNAL_MICROS: u64 = 3_600_000_000;
/// Clients of one instance whose submissions are told from others'; those of the
/// one that was there first are forgotten for another.
pub const SUBMITTER_NAMES_MAX: usize = 1024;
/// Runs of tasks that one client submitted, in one record.
pub const SUBMITTER_RUNS_MAX: usize = 65_536;
/// Executors that are named for an object to be put there.
pub const PUT_EXECUTORS_MAX: usize = 256;
/// How often an executor tells how its cache stands, at most, if there is no
/// other news of the cache.
pub const CACHE_STATE_MICROS: u64 = 1_000_000;
/// Intervals in which a run is measured.
pub const METRIC_INTERVALS_MAX: usize = 256;

/// A text in an event: what went wrong, a command, a name.
pub const EVENT_TEXT_BYTES_MAX: usize = 256;
/// Objects that one event has, or runs of tasks that others wait for; those of a task
/// with more are in several events.
pub const EVENT_NEEDS_MAX: usize = 1024;
/// Events of one round that are in no record, beyond which they are only counted.
pub const ROUND_EVENTS_MAX: usize = 1 << 20;
/// Bytes of events after which they continue in another file.
pub const EVENT_FILE_BYTES_MAX: u64 = 64 << 20;
/// Bytes of events that a dispatcher keeps, unless its user says otherwise: the oldest
/// files go.
pub const EVENTS_BYTES_MAX: u64 = 4 << 30;
/// Bytes that events leave free on their disk; with less, they are left out.
pub const EVENTS_LEAVE_BYTES_MIN: u64 = 256 << 20;
/// Bytes of events in a block, about: what is read, checked and sent at a time.
pub const EVENT_BLOCK_BYTES: usize = 256 << 10;
/// Bytes of what waits to become events and be written; what comes beyond is left out.
pub const EVENTS_WAITING_BYTES_MAX: u64 = 64 << 20;
/// The longest block of events, with one event that is as long as it can be.
pub const EVENT_BLOCK_BYTES_MAX: usize = 1 << 20;
/// Bytes of blocks in one answer to who asks for events, beyond the last block.
pub const EVENTS_ANSWER_BYTES: usize = 1 << 20;
/// Intervals of one length in which a run's history is kept.
pub const HISTORY_INTERVALS: usize = 720;
/// Bytes of what watchers keep of how much ran on each executor over time, about.
pub const DENSITIES_BYTES_MAX: usize = 16 << 20;
/// Executors of which watchers keep that; of others, only events say it.
pub const DENSITY_EXECUTORS_MAX: usize = 32_768;
/// Classes of failures that are told apart, by what runs and how it ends.
pub const FAILURE_CLASSES_MAX: usize = 1_000;
/// Executors that are named for a class of failures.
pub const FAILURE_EXECUTORS_MAX: usize = 16;
/// Pairs of executors, one of which had bytes from the other, that watchers keep apart.
pub const TRANSFER_EXECUTORS_MAX: usize = 4_096;
/// Runs of failed tasks whose numbers are kept, of all instances together.
pub const FAILED_RUNS_MAX: usize = 262_144;
/// Runs of tasks with one command whose commands are kept, of all instances together.
pub const COMMAND_RUNS_MAX: usize = 262_144;
