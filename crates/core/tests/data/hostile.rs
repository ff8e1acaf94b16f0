//! Events that make no sense are survived, and leave the state sound.

use crate::cases;
use crate::world::{key, object};
use falkon_core::data::cache::{CacheOptions, Eviction, TierId};
use falkon_core::data::object::{ObjectId, Sources};
use falkon_core::data::stage::{
    Event, FetchError, FetchId, Input, PartialId, ServeId, Stage, StageOptions, UnpackError,
    UnpackId, WriteError,
};
use falkon_core::task::{ExecutorId, Time};
use proptest::collection::vec;
use proptest::prelude::*;

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![6 => 0..60u64, 1 => any::<u64>(), 1 => (0..3u64).prop_map(|back| u64::MAX - back)]
}

fn id() -> impl Strategy<Value = ObjectId> {
    (0..6u128).prop_map(ObjectId)
}

fn any_object() -> impl Strategy<Value = std::sync::Arc<falkon_core::data::object::Object>> {
    (id(), prop_oneof![4 => Just("1"), 1 => Just("")], proptest::option::of(number()))
        .prop_map(|(id, version, size)| object(id.0, version, size))
}

fn sources(peers: Vec<u64>, store: bool, coming: Option<u64>) -> Sources {
    let peers = peers.into_iter().map(ExecutorId).collect();
    Sources { peers, store, coming: coming.map(ExecutorId), ..Sources::default() }
}

fn input() -> impl Strategy<Value = Input> {
    let coming = proptest::option::of(0..4u64);
    let is_unpacked = prop::bool::weighted(0.3);
    (any_object(), vec(0..4u64, 0..3), prop::bool::weighted(0.8), coming, is_unpacked).prop_map(
        |(object, peers, store, coming, is_unpacked)| {
            let sources = sources(peers, store, coming);
            Input { object, sources, is_unpacked, may_mount: true }
        },
    )
}

fn write() -> impl Strategy<Value = Result<(), WriteError>> {
    prop_oneof![
        3 => Just(Ok(())),
        1 => Just(Err(WriteError::Full)),
        1 => Just(Err(WriteError::Wrong("w".into()))),
        1 => Just(Err(WriteError::Failed("f".into()))),
    ]
}

fn unpacked() -> impl Strategy<Value = Result<u64, UnpackError>> {
    prop_oneof![
        4 => number().prop_map(Ok),
        1 => Just(Err(UnpackError::Full)),
        1 => Just(Err(UnpackError::Lost)),
        1 => Just(Err(UnpackError::Refused("r".into()))),
        1 => Just(Err(UnpackError::Failed("f".into()))),
    ]
}

fn why() -> impl Strategy<Value = FetchError> {
    prop_oneof![
        Just(FetchError::Gone),
        Just(FetchError::Busy),
        Just(FetchError::Coming),
        Just(FetchError::Unreachable("u".into())),
        Just(FetchError::Refused("r".into())),
        Just(FetchError::Wrong("w".into())),
        any_object().prop_map(FetchError::Changed),
        Just(FetchError::Write(WriteError::Full)),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let task = || (0..5u64).prop_map(key);
    let fetch = || (0..20u64).prop_map(FetchId);
    let partial = || (0..12u64).prop_map(PartialId);
    prop_oneof![
        6 => (task(), vec(input(), 0..4)).prop_map(|(task, inputs)| Event::Want { requester: task, inputs }),
        2 => task().prop_map(Event::Needed),
        1 => (id(), vec(0..4u64, 0..3)).prop_map(|(object, peers)| Event::Hints {
            object,
            sources: sources(peers, false, None),
        }),
        2 => task().prop_map(Event::Started),
        2 => task().prop_map(Event::Ended),
        2 => (task(), any_object(), any::<bool>())
            .prop_map(|(task, object, only_here)| Event::Keep { requester: task, object, only_here }),
        3 => (partial(), write()).prop_map(|(partial, result)| Event::Adopted { partial, result }),
        1 => vec(id(), 0..3).prop_map(Event::Release),
        1 => vec(id(), 0..3).prop_map(Event::Drop),
        1 => vec((id(), number()), 0..3).prop_map(Event::Demand),
        2 => (fetch(), number()).prop_map(|(fetch, size)| Event::Sized { fetch, size }),
        2 => (fetch(), number()).prop_map(|(fetch, until)| Event::Arriving { fetch, until }),
        6 => (fetch(), number()).prop_map(|(fetch, bytes)| Event::Fetched { fetch, bytes }),
        6 => (fetch(), number(), why())
            .prop_map(|(fetch, bytes, why)| Event::FetchFailed { fetch, bytes, why }),
        6 => (partial(), write()).prop_map(|(partial, result)| Event::Sealed { partial, result }),
        6 => (0..12u64, unpacked())
            .prop_map(|(unpack, result)| Event::Unpacked { unpack: UnpackId(unpack), result }),
        4 => (id(), prop_oneof![any_object().prop_map(Ok), why().prop_map(Err)])
            .prop_map(|(object, now)| Event::Resolved { object, now }),
        2 => (0..4u64, id(), number(), prop::option::of(number())).prop_map(
            |(serve, object, from, length)| Event::Ask { serve: ServeId(serve), object, range: (from, length) }
        ),
        2 => (id(), vec((0..4u64).prop_map(ExecutorId), 0..4))
            .prop_map(|(object, parents)| Event::Parents { object, parents }),
        2 => (fetch(), number()).prop_map(|(fetch, bytes)| Event::Written { fetch, bytes }),
        2 => (0..4u64).prop_map(|serve| Event::Served(ServeId(serve))),
        1 => id().prop_map(Event::Lost),
        1 => (0..3u8).prop_map(|tier| Event::Full(TierId(tier))),
        1 => Just(Event::Connected),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases(60)) })]

    #[test]
    fn senseless_events_are_survived(
        capacity in prop_oneof![Just(100), Just(u64::MAX)],
        events in vec((event(), 0..4u64), 0..150),
    ) {
        let tiers_bytes = vec![capacity, 50];
        let cache = CacheOptions { tiers_bytes, eviction: Eviction::Lru, seed: 1 };
        let mut stage = Stage::new(&StageOptions::new(cache, 1));
        let mut now = Time(0);
        for (event, wait) in events {
            stage.handle(now, event);
            if wait == 0 && let Some((at, _)) = stage.poll_timeout() {
                now = now.max(at);
                stage.handle_timeout(now);
            }
            while stage.poll_action().is_some() {}
            stage.changes();
            prop_assert!(stage.check().is_ok(), "{}", stage.check().unwrap_err());
        }
    }
}
