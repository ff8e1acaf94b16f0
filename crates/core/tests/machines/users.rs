//! What users get of the executors, in numbers: random worlds against shares that water fills,
//! each user up to what the user may have.

use crate::faults::cases;
use crate::floor::{Floor, Group, Load};
use crate::rng::Rng;
use falkon_core::dispatch::UserLimits;
use falkon_core::task::{Resources, TaskClass, Time, UserId};
use proptest::prelude::*;

/// Over this long, users have what is theirs within this part of all that was served.
const WINDOW_MICROS: u64 = 60_000_000;
const PART_MAX: f64 = 0.05;
/// When the window begins: all have come by then.
const FROM_MICROS: u64 = 15_000_000;
const UNTIL_MICROS: u64 = FROM_MICROS + WINDOW_MICROS;

#[derive(Debug)]
struct User {
    user: UserId,
    limits: UserLimits,
    instances: u64,
}

#[derive(Debug)]
struct Setting {
    cpus: Vec<u32>,
    users: Vec<User>,
}

impl Setting {
    /// Users with different shares, quotas and numbers of instances, each of which has more work
    /// than all executors do.
    fn random(rng: &mut Rng) -> Setting {
        let cpus: Vec<u32> = (0..1 + rng.below(4)).map(|_| 2 + rng.below(7) as u32).collect();
        let users = (0..2 + rng.below(3)).map(|number| {
            let user = UserId(number);
            let is_owner = user == UserId::OWNER;
            let share = if is_owner { 1 } else { 1 + rng.below(4) as u32 };
            let is_bound = !is_owner && rng.percent(30);
            let slots_max = is_bound.then(|| 1 + rng.below(4));
            let limits = UserLimits { share, slots_max, ..UserLimits::default() };
            User { user, limits, instances: 1 + rng.below(10) }
        });
        let users = users.collect();
        Setting { cpus, users }
    }

    fn load(&self, rng: &mut Rng, user: UserId) -> Load {
        let micros = 200_000 << rng.below(3);
        let slots: u64 = self.cpus.iter().map(|cpus| u64::from(*cpus)).sum();
        let count = 1 + 2 * slots * UNTIL_MICROS / micros;
        let class = TaskClass {
            resources: Resources::cpus(1),
            estimate_micros: *rng.pick(&[0, micros]),
            ..TaskClass::default()
        };
        let groups = vec![Group { count, class, micros }];
        Load { comes: Time(rng.below(FROM_MICROS / 3)), groups, user }
    }

    /// The slots of each: in proportion to shares, as far as each may have them.
    fn expected(&self) -> Vec<f64> {
        let mut left = self.cpus.iter().map(|cpus| f64::from(*cpus)).sum::<f64>();
        let mut slots = vec![None; self.users.len()];
        loop {
            let open = || self.users.iter().zip(&slots).filter(|(_, has)| has.is_none());
            let weights: f64 = open().map(|(user, _)| f64::from(user.limits.share)).sum();
            let level = left / weights.max(1.0);
            let fair = |user: &User| f64::from(user.limits.share) * level;
            let most = |user: &User| user.limits.slots_max.map_or(f64::MAX, |most| most as f64);
            let bound = self.users.iter().enumerate();
            let bound = bound.filter(|(at, _)| slots[*at].is_none());
            let bound = bound.filter(|(_, user)| most(user) < fair(user));
            let bound: Vec<(usize, f64)> = bound.map(|(at, user)| (at, most(user))).collect();
            if bound.is_empty() {
                let all = self.users.iter().zip(&slots);
                return all.map(|(user, has)| has.unwrap_or_else(|| fair(user))).collect();
            }
            for (at, has) in bound {
                slots[at] = Some(has);
                left -= has;
            }
        }
    }
}

/// The processor time of runs in the window, by what `of` says of each.
fn served(floor: &Floor, count: usize, of: impl Fn(usize) -> usize) -> Vec<f64> {
    let mut served = vec![0.0; count];
    for run in &floor.runs {
        let until = run.until.0.min(UNTIL_MICROS);
        served[of(run.instance)] += until.saturating_sub(run.from.0.max(FROM_MICROS)) as f64;
    }
    served
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases(12)) })]

    #[test]
    fn users_get_their_shares_whatever_instances_they_have(seed: u64) {
        let mut rng = Rng::new(seed);
        let setting = Setting::random(&mut rng);
        let users = setting.users.iter().enumerate();
        let of_instance: Vec<usize> =
            users.flat_map(|(at, user)| vec![at; user.instances as usize]).collect();
        let loads = of_instance.iter().map(|at| setting.load(&mut rng, setting.users[*at].user));
        let loads = loads.collect();
        let capacities: Vec<Resources> =
            setting.cpus.iter().map(|cpus| Resources::cpus(*cpus)).collect();
        let mut floor = Floor::new(seed, &capacities, loads);
        for User { user, limits, .. } in &setting.users {
            floor.set_user(*user, *limits);
        }
        floor.run_until(Time(UNTIL_MICROS));
        let of_users = served(&floor, setting.users.len(), |instance| of_instance[instance]);
        let all: f64 = of_users.iter().sum();
        let expected = setting.expected();
        let slots: f64 = expected.iter().sum();
        for (at, has) in of_users.iter().enumerate() {
            let off = has / all - expected[at] / slots;
            prop_assert!(
                off.abs() <= PART_MAX,
                "{at}: {off:.3} of all: {of_users:?} for {expected:?} of {setting:?}"
            );
        }
        // A user's instances get the same.
        let of_instances = served(&floor, of_instance.len(), |instance| instance);
        for (instance, has) in of_instances.iter().enumerate() {
            let user = of_instance[instance];
            let fair = of_users[user] / setting.users[user].instances as f64;
            let off = (has - fair) / all;
            prop_assert!(off.abs() <= PART_MAX, "instance {instance}: {off:.3} of {setting:?}");
        }
    }
}
