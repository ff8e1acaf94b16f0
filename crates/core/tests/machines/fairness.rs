//! What share of the executors each instance gets, in numbers: random worlds
//! against the max-min fair shares of what was served.

use crate::faults::cases;
use crate::floor::{Floor, Group, Load};
use crate::rng::Rng;
use falkon_core::task::{Resources, TaskClass, Time, UserId};
use proptest::prelude::*;

/// Over this long, shares are right within this part of all that was served.
const WINDOW_MICROS: u64 = 60_000_000;
const PART_MAX: f64 = 0.05;
/// When the window begins: all that are to be there throughout have come.
const FROM_MICROS: u64 = 10_000_000;
const UNTIL_MICROS: u64 = FROM_MICROS + WINDOW_MICROS;
/// Memory of executors that are small, and of those that are large.
const SMALL_BYTES: u64 = 1 << 30;
const LARGE_BYTES: u64 = 1 << 40;

/// Which executors some tasks can use, a bit each.
type Places = u32;

#[derive(Debug)]
struct Setting {
    capacities: Vec<Resources>,
    loads: Vec<Load>,
}

fn micros(rng: &mut Rng) -> u64 {
    // As many of some 50 ms as of a second.
    let octave = 40_000 << rng.below(5);
    octave + rng.below(octave)
}

/// Tasks of a need, of as much work as so many slots do in the window.
fn group(rng: &mut Rng, is_large: bool, slots: u64) -> Group {
    // Many needs, and none that memory alone would bound.
    let memory_bytes = rng.below(8) << 20;
    let memory_bytes = if is_large { memory_bytes + 2 * SMALL_BYTES } else { memory_bytes };
    let micros = micros(rng);
    let class = TaskClass {
        priority: rng.below(19) as i32 - 9,
        resources: Resources { memory_bytes, ..Resources::cpus(1) },
        estimate_micros: *rng.pick(&[0, 0, micros]),
        ..TaskClass::default()
    };
    Group { count: 1 + slots * WINDOW_MICROS / micros, class, micros }
}

impl Setting {
    /// Executors of several sizes; instances that are there throughout, and
    /// others that come and go.
    fn random(rng: &mut Rng) -> Setting {
        let executors = 1 + rng.below(4);
        let capacities: Vec<Resources> = (0..executors)
            .map(|number| {
                let is_large = number == 0 || rng.percent(50);
                let memory_bytes = if is_large { LARGE_BYTES } else { SMALL_BYTES };
                Resources { memory_bytes, ..Resources::cpus(1 + rng.below(6) as u32) }
            })
            .collect();
        let steady = 2 + rng.below(4);
        let passing = rng.below(3);
        let loads = (0..steady + passing).map(|number| {
            let is_steady = number < steady;
            let comes = if is_steady { FROM_MICROS / 2 } else { UNTIL_MICROS };
            let slots = if is_steady { 1_000 } else { rng.below(4) };
            // One that comes while needs restrict where tasks run may have more
            // for a while: it begins where those are served that have least.
            let is_large = passing == 0 && rng.percent(30);
            Load {
                user: UserId::OWNER,
                comes: Time(rng.below(comes)),
                groups: (0..1 + rng.below(3)).map(|_| group(rng, is_large, slots)).collect(),
            }
        });
        let loads = loads.collect();
        Setting { capacities, loads }
    }

    /// The executors that an instance can use.
    fn places(&self, load: &Load) -> Places {
        let fits =
            |one: &Resources| load.groups.iter().any(|group| one.fits(&group.class.resources));
        let bits =
            self.capacities.iter().enumerate().map(|(at, one)| Places::from(fits(one)) << at);
        bits.sum()
    }
}

/// Max-min fair shares of what executors have, among instances that each can
/// use some of them. The instances that together can have least each, have that;
/// what is left is for the others.
fn shares(mut capacities: Vec<f64>, places: &[Option<Places>]) -> Vec<f64> {
    let mut shares = vec![0.0; places.len()];
    let mut open: Vec<usize> = (0..places.len()).filter(|at| places[*at].is_some()).collect();
    while !open.is_empty() {
        let mut least: Option<(f64, u32, Places)> = None;
        for chosen in 1_u32..1 << open.len() {
            let of = open.iter().enumerate().filter(|(bit, _)| chosen & (1 << bit) != 0);
            let union = of.fold(0, |all, (_, at)| all | places[*at].unwrap_or(0));
            let room = capacities.iter().enumerate().filter(|(bit, _)| union & (1 << bit) != 0);
            let each = room.map(|(_, has)| *has).sum::<f64>() / f64::from(chosen.count_ones());
            // Of those that are equal the largest.
            let is_less = least.is_none_or(|(other, by, _)| {
                each < other - 1e-6
                    || (each < other + 1e-6 && chosen.count_ones() > by.count_ones())
            });
            if is_less {
                least = Some((each, chosen, union));
            }
        }
        let Some((each, chosen, union)) = least else { break };
        let (bound, free): (Vec<_>, Vec<_>) =
            open.iter().enumerate().partition(|(bit, _)| chosen & (1 << bit) != 0);
        bound.into_iter().for_each(|(_, at)| shares[*at] = each);
        for (bit, has) in capacities.iter_mut().enumerate() {
            if union & (1 << bit) != 0 {
                *has = 0.0;
            }
        }
        open = free.into_iter().map(|(_, at)| *at).collect();
    }
    shares
}

/// What each instance was served and what its fair share is, in microseconds of
/// a processor; and all that was served.
#[derive(Debug)]
struct Account {
    served: Vec<f64>,
    fair: Vec<f64>,
    all: f64,
}

fn account(setting: &Setting, floor: &Floor) -> Account {
    let count = setting.loads.len();
    // When each has tasks that have not started.
    let mut waits: Vec<(u64, u64)> =
        setting.loads.iter().map(|load| (load.comes.0, load.comes.0)).collect();
    let mut started = vec![0; count];
    for run in &floor.runs {
        let wait = &mut waits[run.instance];
        wait.1 = wait.1.max(run.from.0);
        started[run.instance] += 1;
    }
    for (at, wait) in waits.iter_mut().enumerate() {
        let tasks: u64 = setting.loads[at].groups.iter().map(|group| group.count).sum();
        if started[at] < tasks {
            wait.1 = u64::MAX;
        }
    }
    let mut cuts: Vec<u64> = waits.iter().flat_map(|wait| [wait.0, wait.1]).collect();
    cuts.retain(|at| (FROM_MICROS..UNTIL_MICROS).contains(at));
    cuts.extend([FROM_MICROS, UNTIL_MICROS]);
    cuts.sort_unstable();
    let (mut served, mut fair) = (vec![0.0; count], vec![0.0; count]);
    for cut in cuts.windows(2) {
        let (from, until) = (cut[0], cut[1]);
        let mut capacities = vec![0.0; setting.capacities.len()];
        let mut of_idle = vec![0.0; count];
        for run in &floor.runs {
            let part = run.until.0.min(until).saturating_sub(run.from.0.max(from)) as f64;
            served[run.instance] += part;
            let (comes, goes) = waits[run.instance];
            if comes <= from && goes >= until {
                capacities[run.node] += part;
            } else {
                of_idle[run.instance] += part;
            }
        }
        let places: Vec<Option<Places>> = (0..count)
            .map(|at| {
                let is_there = waits[at].0 <= from && waits[at].1 >= until;
                is_there.then(|| setting.places(&setting.loads[at]))
            })
            .collect();
        let more = shares(capacities, &places);
        for at in 0..count {
            fair[at] += more[at] + of_idle[at];
        }
    }
    Account { all: served.iter().sum(), served, fair }
}

impl Account {
    /// How far the worst of these is from its share, as a part of all.
    fn worst(&self) -> f64 {
        let off = self.served.iter().zip(&self.fair).map(|(has, fair)| (has - fair).abs());
        off.fold(0.0, f64::max) / self.all
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases(12)) })]

    #[test]
    fn instances_get_their_shares(seed: u64) {
        let setting = Setting::random(&mut Rng::new(seed));
        let mut floor = Floor::new(seed, &setting.capacities, setting.loads.clone());
        floor.run_until(Time(UNTIL_MICROS));
        let account = account(&setting, &floor);
        let worst = account.worst();
        prop_assert!(worst <= PART_MAX, "{worst:.3} of all: {account:?} of {setting:?}");
    }
}
