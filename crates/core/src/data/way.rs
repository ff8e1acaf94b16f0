//! By which way a data object gets to the tasks that read it, and from the task
//! that writes it to where it stays (collective-io §5.1): decided from its size
//! and its readers, in this one place, for those who stage objects and those who
//! ask.
//!
//! What is decided before the readers run is what is expected. When an executor
//! is to fetch an object, [`spreads_now`] decides by who fetches and holds it at
//! that moment.

use super::limits::BROADCAST_OBJECT_BYTES_MIN;
use super::object::Object;

/// The way of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// An input: into the cache of each executor that runs a task that reads it,
    /// from an executor that holds it, or else from its store.
    Cache,
    /// An input: in chunks through all executors that fetch it; one of them reads
    /// the store.
    Broadcast,
    /// An input: from its store, by each executor that runs a task that reads it.
    Store,
    /// An input: its parts into the room that executors lend; a task reads it from
    /// several of them at once.
    Striped,
    /// An input: nowhere, and its tasks fail.
    Nowhere,
    /// An output: stays in the cache of the executor that ran its task.
    Kept,
    /// An output: to the executor's staging directory, and with others into an
    /// archive.
    Collected,
    /// An output: to its target in a persistent store, before its task ends.
    Written,
}

/// Why an object takes its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// It is smaller than what is broadcast.
    Small,
    /// No more than one task reads it.
    OneReader,
    /// There is no more than one executor that could hold it.
    OneExecutor,
    /// It is large, and several tasks read it.
    ManyReaders,
    /// It is large, and earlier tasks read objects of the same name on several
    /// executors.
    Remembered,
    /// Nobody could tell its size when its tasks were submitted.
    NoSize,
    /// Its source has no version, so it is another object at each read.
    NoVersion,
    /// The policy of its tasks looks at no cache.
    NoPlaces,
    /// It is larger than any cache.
    TooLarge,
    /// It is larger than any cache, and executors lend room for it.
    Lent,
    /// It is larger than any cache and all room that is lent, and an executor can mount
    /// file systems.
    InPlace,
    /// It has no target in a store.
    NoTarget,
    /// Its target is a member of an archive.
    Member,
    /// It has a target of its own.
    Target,
}

/// A way, with the reason for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Chosen {
    /// The way.
    pub way: Way,
    /// The reason.
    pub why: Why,
}

/// What executors do for objects that are larger than any cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lent {
    /// The bytes that they lend in all.
    pub bytes: u64,
    /// Those that one of them lends at most.
    pub most: u64,
    /// One of them can mount file systems.
    pub mounts: bool,
}

/// What is known of an object that tasks read, as far as its way depends on it.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    object: &'a Object,
    readers: u64,
    executors: Option<u64>,
    earlier_executors: u64,
    cache_bytes: Option<u64>,
    lent: Lent,
    ignores_places: bool,
}

impl<'a> Input<'a> {
    /// An object that so many tasks read.
    #[must_use]
    pub fn new(object: &'a Object, readers: u64) -> Input<'a> {
        Input {
            object,
            readers,
            executors: None,
            earlier_executors: 0,
            cache_bytes: None,
            lent: Lent::default(),
            ignores_places: false,
        }
    }

    /// Earlier tasks read objects of its name on so many executors.
    #[must_use]
    pub fn earlier_on_executors(self, earlier_executors: u64) -> Input<'a> {
        Input { earlier_executors, ..self }
    }

    /// So many executors could hold it.
    #[must_use]
    pub fn on_executors(self, executors: u64) -> Input<'a> {
        Input { executors: Some(executors), ..self }
    }

    /// The largest cache takes so many bytes.
    #[must_use]
    pub fn in_caches_of(self, cache_bytes: u64) -> Input<'a> {
        Input { cache_bytes: Some(cache_bytes), ..self }
    }

    /// Executors lend room beside their caches.
    #[must_use]
    pub fn with_lent(self, lent: Lent) -> Input<'a> {
        Input { lent, ..self }
    }

    /// Its tasks go wherever a slot is free, and no executor is told who holds it.
    #[must_use]
    pub fn ignoring_places(self, ignores_places: bool) -> Input<'a> {
        Input { ignores_places, ..self }
    }

    /// Its way.
    #[must_use]
    pub fn way(&self) -> Chosen {
        let Input { object, readers, executors, earlier_executors, .. } = *self;
        let Input { cache_bytes, ignores_places, .. } = *self;
        let chosen = |way, why| Chosen { way, why };
        match object.size {
            Some(size) if cache_bytes.is_some_and(|most| size > most) => {
                self.way_without_cache(size)
            }
            _ if object.is_stored() && object.is_unversioned() => {
                chosen(Way::Store, Why::NoVersion)
            }
            _ if ignores_places => chosen(Way::Store, Why::NoPlaces),
            None => chosen(Way::Cache, Why::NoSize),
            Some(_) if !spreads(object) => chosen(Way::Cache, Why::Small),
            Some(_) if readers <= 1 && earlier_executors <= 1 => chosen(Way::Cache, Why::OneReader),
            Some(_) if executors.is_some_and(|count| count <= 1) => {
                chosen(Way::Cache, Why::OneExecutor)
            }
            Some(_) if readers <= 1 => chosen(Way::Broadcast, Why::Remembered),
            Some(_) => chosen(Way::Broadcast, Why::ManyReaders),
        }
    }
}

impl Input<'_> {
    /// The way of an object that is larger than any cache.
    fn way_without_cache(&self, size: u64) -> Chosen {
        let Lent { bytes, most, mounts } = self.lent;
        let in_parts = self.object.is_stored() && spreads(self.object);
        match in_parts && (mounts || size <= most) {
            true if self.ignores_places => Chosen { way: Way::Store, why: Why::NoPlaces },
            true if size <= bytes => Chosen { way: Way::Striped, why: Why::Lent },
            true => Chosen { way: Way::Store, why: Why::InPlace },
            false => Chosen { way: Way::Nowhere, why: Why::TooLarge },
        }
    }
}

/// The way of an object that a task writes.
#[must_use]
pub fn of_output(object: &Object) -> Chosen {
    match object {
        _ if !object.is_stored() => Chosen { way: Way::Kept, why: Why::NoTarget },
        _ if object.member().is_some() => Chosen { way: Way::Collected, why: Why::Member },
        _ => Chosen { way: Way::Written, why: Why::Target },
    }
}

/// Whether an object is broadcast at a moment when so many executors fetch it,
/// and so many hold it.
#[must_use]
pub fn spreads_now(object: &Object, fetching: usize, holding: usize) -> bool {
    spreads(object) && fetching > holding.max(1)
}

/// Whether an object is broadcast where several executors fetch it: what they
/// receive in pieces is one version of it, and large enough for pieces.
#[must_use]
pub fn spreads(object: &Object) -> bool {
    object.size.is_some_and(|size| spreads_in(object, size))
}

/// The same of an object of so many bytes.
#[must_use]
pub fn spreads_in(object: &Object, size: u64) -> bool {
    size >= BROADCAST_OBJECT_BYTES_MIN && !object.is_unversioned()
}

#[cfg(test)]
mod tests {
    use super::super::object::ObjectId;
    use super::*;

    fn object(url: &str, version: &str, size: Option<u64>) -> Object {
        Object { id: ObjectId(1), url: url.into(), version: version.into(), size }
    }

    /// The table of docs/data.md, read from above.
    fn by_the_table(object: &Object, readers: u64, executors: u64, cache: u64) -> (Way, Why) {
        let size = object.size.unwrap_or(0);
        let rows = [
            (size > cache, (Way::Nowhere, Why::TooLarge)),
            (
                object.version.is_empty() && !object.url.starts_with("cache:"),
                (Way::Store, Why::NoVersion),
            ),
            (object.size.is_none(), (Way::Cache, Why::NoSize)),
            (size < 16 << 20 || object.version.is_empty(), (Way::Cache, Why::Small)),
            (readers < 2, (Way::Cache, Why::OneReader)),
            (executors < 2, (Way::Cache, Why::OneExecutor)),
            (true, (Way::Broadcast, Why::ManyReaders)),
        ];
        rows.into_iter().find(|(holds, _)| *holds).unwrap().1
    }

    #[test]
    fn the_way_of_an_input_is_the_first_row_that_holds() {
        const MIB: u64 = 1 << 20;
        let sizes = [None, Some(0), Some(16 * MIB - 1), Some(16 * MIB), Some(MIB << 20)];
        for url in ["/data/a", "https://host/a", "cache:a", "/data/a.zip!member"] {
            for version in ["", "1-2"] {
                for object in sizes.map(|size| object(url, version, size)) {
                    for (readers, executors) in [(0, 3), (1, 1), (2, 1), (2, 2), (10_000, 1000)] {
                        let cache = 1 << 30;
                        let input = Input::new(&object, readers).on_executors(executors);
                        let Chosen { way, why } = input.in_caches_of(cache).way();
                        let expected = by_the_table(&object, readers, executors, cache);
                        assert_eq!((way, why), expected, "{object:?} {readers} {executors}");
                        // What is expected to be broadcast is, as soon as it is fetched.
                        let spreads = spreads_now(&object, 2, 0);
                        assert!(way != Way::Broadcast || spreads);
                        // What is remembered changes the way of large objects alone.
                        let earlier = input.in_caches_of(cache).earlier_on_executors(7).way();
                        let changes = why == Why::OneReader && executors > 1;
                        let expected = match changes {
                            true => (Way::Broadcast, Why::Remembered),
                            false if why == Why::OneReader => (Way::Cache, Why::OneExecutor),
                            false => expected,
                        };
                        assert_eq!((earlier.way, earlier.why), expected, "{object:?}");
                        let ignoring = input.ignoring_places(true).way().way;
                        assert_ne!(ignoring, Way::Broadcast);
                    }
                }
            }
        }
    }

    #[test]
    fn what_no_cache_takes_goes_by_what_is_lent() {
        let large = object("/data/a", "1-2", Some(1 << 30));
        let way = |object: &Object, bytes, most, mounts| {
            let input = Input::new(object, 3).in_caches_of(1 << 20);
            input.with_lent(Lent { bytes, most, mounts }).way()
        };
        let nowhere = Chosen { way: Way::Nowhere, why: Why::TooLarge };
        let striped = Chosen { way: Way::Striped, why: Why::Lent };
        let in_place = Chosen { way: Way::Store, why: Why::InPlace };
        assert_eq!(way(&large, 0, 0, false), nowhere);
        assert_eq!(way(&large, 2 << 30, 1 << 20, false), nowhere, "nobody can read it");
        assert_eq!(way(&large, 2 << 30, 1 << 30, false), striped);
        assert_eq!(way(&large, 2 << 30, 1 << 20, true), striped);
        assert_eq!(way(&large, 1 << 20, 1 << 20, true), in_place);
        for other in [object("cache:a", "1-2", Some(1 << 30)), object("/data/a", "", Some(1 << 30))]
        {
            assert_eq!(way(&other, 2 << 30, 2 << 30, true), nowhere, "{other:?}");
        }
        let ignoring = Input::new(&large, 3).in_caches_of(1 << 20).ignoring_places(true);
        let lent = Lent { bytes: 2 << 30, most: 2 << 30, mounts: true };
        let from_store = Chosen { way: Way::Store, why: Why::NoPlaces };
        assert_eq!(ignoring.with_lent(lent).way(), from_store);
    }

    #[test]
    fn an_object_spreads_while_more_fetch_than_hold_it() {
        let large = object("/data/a", "1-2", Some(16 << 20));
        for (fetching, holding, expected) in
            [(0, 0, false), (1, 0, false), (2, 0, true), (2, 1, true), (2, 2, false), (9, 8, true)]
        {
            assert_eq!(spreads_now(&large, fetching, holding), expected, "{fetching} {holding}");
        }
        assert!(!spreads_now(&object("/data/a", "", Some(1 << 40)), 100, 0));
        assert!(!spreads_now(&object("/data/a", "1-2", None), 100, 0));
    }

    #[test]
    fn outputs_go_by_their_targets() {
        let ways = [
            ("cache:part/1", Way::Kept),
            ("/out/scores.zip!1/energy.dat", Way::Collected),
            ("/out/1.dat", Way::Written),
            ("s3://bucket/1.dat", Way::Written),
        ];
        for (target, way) in ways {
            assert_eq!(of_output(&object(target, "made:1", None)).way, way, "{target}");
        }
    }
}
