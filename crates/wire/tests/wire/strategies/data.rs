//! Arbitrary data objects, and what is said of them.

use super::{bytes, executor, number, small, text, time};
use falkon_core::collect::Unwritten;
use falkon_core::data::declared::{
    AssignedData, CacheRoom, Collects, DataOrder, Declared, Lend, Lists, Located, Pace, Peer,
    Serving,
};
use falkon_core::data::object::{Object, ObjectId, Sources};
use falkon_core::data::stage::{CacheState, Changes, Count, Usage};
use falkon_core::data::way::{Chosen, Way, Why};
use falkon_core::dispatch::diffusion::{
    POLICIES, PolicyError, PolicyName, PolicyOption, PolicyOptions,
};
use falkon_core::dispatch::{
    Access, AccessError, Earlier, FoundObject, HolderStatus, ObjectStatus, Purpose, RequestError,
};
use falkon_core::task::Time;
use falkon_wire::hidden::Hidden;
use falkon_wire::message::{CacheStatus, FromClient, Ticket, ToClient};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::sync::Arc;

pub(super) fn object_id() -> impl Strategy<Value = ObjectId> {
    any::<u128>().prop_map(ObjectId)
}

pub(super) fn shared_text() -> impl Strategy<Value = Arc<str>> {
    text().prop_map(Arc::from)
}

pub(super) fn object() -> impl Strategy<Value = Object> {
    (object_id(), shared_text(), shared_text(), option::of(number()))
        .prop_map(|(id, url, version, size)| Object { id, url, version, size })
}

pub(super) fn lists() -> impl Strategy<Value = Lists> {
    let numbers = || vec(small(), 0..70);
    prop_oneof![
        numbers().prop_map(Lists::Same),
        (numbers(), numbers())
            .prop_map(|(items, ends)| Lists::Each { items: Arc::new(items), ends: Arc::new(ends) }),
    ]
}

pub(super) fn declared() -> impl Strategy<Value = Arc<Declared>> {
    (vec(object(), 0..4), lists(), lists()).prop_map(|(objects, inputs, outputs)| {
        Arc::new(Declared { objects: Arc::new(objects), inputs, outputs })
    })
}

fn located() -> impl Strategy<Value = Located> {
    let sources = (vec(executor(), 0..5), any::<bool>(), option::of(executor()), any::<bool>());
    let sources = sources.prop_map(|(peers, store, coming, forwarded)| Sources {
        peers,
        store,
        coming,
        forwarded,
    });
    (object(), sources).prop_map(|(object, sources)| Located { object, sources })
}

pub(super) fn assigned_data() -> impl Strategy<Value = Box<AssignedData>> {
    (vec(located(), 0..4), lists(), lists(), vec(any::<u32>(), 0..4)).prop_map(
        |(objects, inputs, outputs, read)| {
            Box::new(AssignedData { objects, inputs, outputs, read })
        },
    )
}

pub(super) fn cache_room() -> impl Strategy<Value = CacheRoom> {
    (number(), number(), any::<bool>()).prop_map(|(object_bytes, lent_bytes, mounts)| CacheRoom {
        object_bytes,
        lent_bytes,
        mounts,
    })
}

pub(super) fn serving() -> impl Strategy<Value = Serving> {
    (text(), bytes()).prop_map(|(address, fingerprint)| Serving { address, fingerprint })
}

fn ids() -> impl Strategy<Value = Vec<ObjectId>> {
    vec(object_id(), 0..20)
}

pub(super) fn data_order() -> impl Strategy<Value = Box<DataOrder>> {
    let peer = (executor(), serving()).prop_map(|(executor, serves)| Peer { executor, serves });
    let demand = vec((object_id(), number()), 0..20);
    let parents = vec((object_id(), vec(executor(), 0..3)), 0..4);
    let lend = (located(), vec(any::<u32>(), 0..4), any::<u32>());
    let lend = lend.prop_map(|(located, stripes, of)| Lend { located, stripes, of });
    let striped = vec((object_id(), vec(executor(), 0..5)), 0..4);
    let stripes = (vec(lend, 0..4), ids(), striped);
    let collects = prop_oneof![Just(Collects::Itself), executor().prop_map(Collects::Other),];
    let last = (option::of(collects), any::<bool>());
    let lists = (vec(executor(), 0..4), ids(), ids(), ids(), parents, last);
    (vec(peer, 0..4), vec(located(), 0..4), demand, lists, stripes).prop_map(
        |(peers, fetch, demand, lists, (lend, take_back, striped))| {
            let (gone, drop, hold, release, parents, (collects, may_leave)) = lists;
            Box::new(DataOrder {
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
            })
        },
    )
}

pub(super) fn changes() -> impl Strategy<Value = Box<Changes>> {
    let silent = vec((object_id(), executor()), 0..4);
    let moved = vec((executor(), number()), 0..4);
    let held = (vec((object_id(), number()), 0..20), ids(), ids(), silent, moved);
    (any::<bool>(), held, vec(object(), 0..4), option::of(cache_state())).prop_map(
        |(anew, (added, removed, unobtainable, silent, moved), named, state)| {
            Box::new(Changes { anew, added, removed, named, state, unobtainable, silent, moved })
        },
    )
}

fn cache_state() -> impl Strategy<Value = CacheState> {
    (number(), number(), usage()).prop_map(|(capacity, used, usage)| CacheState {
        capacity,
        used,
        usage,
    })
}

pub(super) fn cache_status() -> impl Strategy<Value = CacheStatus> {
    let lent = (number(), number(), number(), any::<bool>());
    (number(), cache_state(), lent).prop_map(
        |(objects, state, (object_bytes, lent_bytes, lent_used_bytes, mounts))| CacheStatus {
            objects,
            state,
            object_bytes,
            lent_bytes,
            lent_used_bytes,
            mounts,
        },
    )
}

pub(super) fn object_status() -> impl Strategy<Value = ObjectStatus> {
    let counts = (number(), number(), number());
    (object(), counts).prop_map(|(object, (holders, coming, waiting))| {
        let Object { id, url, version, size } = object;
        ObjectStatus { id, url, version, size, holders, coming, waiting }
    })
}

pub(super) fn earlier() -> impl Strategy<Value = Option<Earlier>> {
    let earlier = (number(), number(), number());
    option::of(earlier.prop_map(|(readers, executors, size)| Earlier { readers, executors, size }))
}

pub(super) fn found_object() -> impl Strategy<Value = FoundObject> {
    let holder = (executor(), text(), any::<bool>(), any::<bool>(), number()).prop_map(
        |(executor, name, holds, connected, lends)| HolderStatus {
            executor,
            name,
            holds,
            connected,
            lends,
        },
    );
    let known = (chosen(), option::of(number()));
    (object_status(), number(), known, vec(holder, 0..5)).prop_map(
        |(object, readers, (chosen, cache_bytes), holders)| FoundObject {
            object,
            readers,
            chosen,
            cache_bytes,
            holders,
        },
    )
}

fn chosen() -> impl Strategy<Value = Chosen> {
    let way = prop::sample::select(vec![
        Way::Cache,
        Way::Broadcast,
        Way::Store,
        Way::Nowhere,
        Way::Kept,
        Way::Collected,
        Way::Written,
        Way::Striped,
    ]);
    let why = prop::sample::select(vec![
        Why::Small,
        Why::OneReader,
        Why::OneExecutor,
        Why::ManyReaders,
        Why::NoSize,
        Why::NoVersion,
        Why::NoPlaces,
        Why::TooLarge,
        Why::NoTarget,
        Why::Member,
        Why::Target,
        Why::Remembered,
        Why::Lent,
        Why::InPlace,
    ]);
    (way, why).prop_map(|(way, why)| Chosen { way, why })
}

pub(super) fn purpose() -> impl Strategy<Value = Purpose> {
    prop_oneof![
        Just(Purpose::Get),
        Just(Purpose::Put),
        any::<bool>().prop_map(|force| Purpose::Drop { force })
    ]
}

pub(super) fn access() -> impl Strategy<Value = Access> {
    (executor(), text(), serving()).prop_map(|(executor, name, serves)| Access {
        executor,
        name,
        serves,
    })
}

pub(super) fn access_error() -> impl Strategy<Value = AccessError> {
    prop_oneof![
        Just(AccessError::NotHeld),
        object_id().prop_map(AccessError::Taken),
        number().prop_map(|tasks| AccessError::Needed { tasks }),
        Just(AccessError::NoCache),
        Just(AccessError::NotKept),
        Just(AccessError::ExecutorGone),
        Just(AccessError::NotPlaceable),
        Just(AccessError::NoTask),
        Just(AccessError::NotSent),
        Just(AccessError::Ended),
        text().prop_map(AccessError::Below),
        (text(), text()).prop_map(|(executor, why)| AccessError::Unreached { executor, why }),
        text().prop_map(AccessError::Away),
        Just(AccessError::OfOthers),
    ]
}

pub(super) fn ticket() -> impl Strategy<Value = Ticket> {
    (any::<u64>(), any::<[u8; 32]>(), number()).prop_map(|(number, secret, expires)| Ticket {
        number,
        secret: Hidden(secret),
        expires: Time(expires),
    })
}

pub(super) fn usage() -> impl Strategy<Value = Usage> {
    let count = || (number(), number()).prop_map(|(objects, bytes)| Count { objects, bytes });
    (count(), count(), count()).prop_map(|(local, peer, store)| Usage { local, peer, store })
}

pub(super) fn policy_name() -> impl Strategy<Value = PolicyName> {
    prop::sample::select(POLICIES.map(|(policy, _)| policy).to_vec())
}

pub(super) fn policy() -> impl Strategy<Value = PolicyOptions> {
    (policy_name(), number(), small(), small()).prop_map(
        |(policy, window, utilization_threshold_milli, replication_max)| PolicyOptions {
            policy,
            window,
            utilization_threshold_milli,
            replication_max,
        },
    )
}

pub(super) fn policy_error() -> impl Strategy<Value = PolicyError> {
    let options = vec![
        PolicyOption::Window,
        PolicyOption::UtilizationThreshold,
        PolicyOption::ReplicationMax,
    ];
    prop_oneof![
        text().prop_map(PolicyError::Unknown),
        small().prop_map(|milli| PolicyError::Threshold { milli }),
        (prop::sample::select(options), policy_name())
            .prop_map(|(option, policy)| PolicyError::NotWith { option, policy }),
    ]
}

pub(super) fn pace() -> impl Strategy<Value = Pace> {
    prop::sample::select(vec![Pace::Behind, Pace::Ahead])
}

pub(super) fn unwritten() -> impl Strategy<Value = Vec<Unwritten>> {
    let one = (text(), time(), text()).prop_map(|(archive, since, error)| Unwritten {
        archive: archive.into(),
        since,
        error: error.into(),
    });
    vec(one, 0..3)
}

pub(super) fn lenders() -> impl Strategy<Value = RequestError> {
    (any::<u32>(), any::<u32>()).prop_map(|(wanted, there)| RequestError::Lenders { wanted, there })
}

pub(super) fn forget() -> impl Strategy<Value = FromClient> {
    (number(), option::of(shared_text()))
        .prop_map(|(request, name)| FromClient::Forget { request, name })
}

pub(super) fn found() -> impl Strategy<Value = ToClient> {
    let found = (number(), vec(found_object(), 0..5), earlier())
        .prop_map(|(request, found, earlier)| ToClient::Found { request, found, earlier });
    let forgotten =
        (number(), number()).prop_map(|(request, names)| ToClient::Forgotten { request, names });
    prop_oneof![found, forgotten]
}
