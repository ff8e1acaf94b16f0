//! Which CPUs of a node are whose, for executors that pin their tasks.
//!
//! A task gets CPUs that no other one has, on one NUMA node where one has enough, and whole
//! cores where it can use them. Parts of a CPU share one. Tasks may need less than a CPU each and
//! end in any order, so that what is free lies in parts: then a task gets several parts.

use crate::dispatch::CheckError;
use crate::dispatch::check::ensure;
use crate::seldom::Empty;
use crate::task::MILLI;
use std::collections::BTreeMap;

/// A CPU that an executor may use, as the system knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpu {
    /// The NUMA node that it is on.
    pub node: u32,
    /// Its core, which may have several CPUs: numbers are those of the whole machine.
    pub core: u32,
    /// Its number.
    pub number: u32,
}

/// Part of a CPU that a task has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuShare {
    /// The CPU's number.
    pub number: u32,
    /// Thousandths of it.
    pub milli: u32,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Pins {
    /// The CPUs, by NUMA node and core.
    cpus: Vec<Cpu>,
    /// What is free of each, in thousandths.
    free: BTreeMap<u32, u32>,
}

impl Empty for Pins {
    const EMPTY: &'static Pins = &Pins { cpus: Vec::new(), free: BTreeMap::new() };
}

impl Pins {
    pub(super) fn new(mut cpus: Vec<Cpu>) -> Pins {
        cpus.sort_unstable();
        cpus.dedup_by_key(|cpu| cpu.number);
        let free = cpus.iter().map(|cpu| (cpu.number, MILLI)).collect();
        Pins { cpus, free }
    }

    /// Whether tasks are not pinned.
    pub(super) fn is_empty(&self) -> bool {
        self.cpus.is_empty()
    }

    /// Takes CPUs; none if tasks are not pinned. No more is taken than is free.
    pub(super) fn take(&mut self, milli: u32) -> Vec<CpuShare> {
        let mut taken = Vec::new();
        if self.is_empty() {
            return taken;
        }
        let whole = (milli / MILLI) as usize;
        for number in self.whole(whole) {
            taken.push(self.take_of(number, MILLI));
        }
        let mut rest = milli - (taken.len() as u32) * MILLI;
        while rest > 0 {
            let Some((number, free)) = self.part(rest, &taken) else { break };
            let share = self.take_of(number, rest.min(free));
            rest -= share.milli;
            taken.push(share);
        }
        taken
    }

    fn take_of(&mut self, number: u32, milli: u32) -> CpuShare {
        if let Some(free) = self.free.get_mut(&number) {
            *free -= milli;
        }
        CpuShare { number, milli }
    }

    /// Gives CPUs back.
    pub(super) fn give(&mut self, shares: &[CpuShare]) {
        for share in shares {
            if let Some(free) = self.free.get_mut(&share.number) {
                *free += share.milli;
            }
        }
    }

    fn free_of(&self, cpu: &Cpu) -> u32 {
        self.free.get(&cpu.number).copied().unwrap_or(0)
    }

    /// So many CPUs of which nothing is taken, as far as there are some: of the NUMA node that
    /// has the fewest, and enough; else of those that have the most.
    fn whole(&self, count: usize) -> Vec<u32> {
        if count == 0 {
            return Vec::new();
        }
        let mut nodes: BTreeMap<u32, Vec<Cpu>> = BTreeMap::new();
        for cpu in self.cpus.iter().filter(|cpu| self.free_of(cpu) == MILLI) {
            nodes.entry(cpu.node).or_default().push(*cpu);
        }
        let enough = nodes.iter().filter(|(_, cpus)| cpus.len() >= count);
        if let Some((_, cpus)) = enough.min_by_key(|(_, cpus)| cpus.len()) {
            return self.of_node(cpus, count);
        }
        let mut most: Vec<&Vec<Cpu>> = nodes.values().collect();
        most.sort_by_key(|cpus| std::cmp::Reverse(cpus.len()));
        let mut chosen = Vec::new();
        for cpus in most {
            chosen.extend(self.of_node(cpus, count - chosen.len()));
        }
        chosen
    }

    /// At most so many of these CPUs of one NUMA node: whole cores as far as that goes, then those
    /// whose cores have the fewest others free.
    fn of_node(&self, cpus: &[Cpu], count: usize) -> Vec<u32> {
        let mut cores: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for cpu in cpus {
            cores.entry(cpu.core).or_default().push(cpu.number);
        }
        let mut cores: Vec<Vec<u32>> = cores.into_values().collect();
        // The largest first, and among equal ones in the order of their numbers.
        cores.sort_by_key(|core| std::cmp::Reverse(core.len()));
        let mut chosen = Vec::new();
        while chosen.len() < count {
            let left = count - chosen.len();
            // A core that is used up, else the one that leaves the least.
            let fits = cores.iter().position(|core| core.len() <= left);
            let least = || (0..cores.len()).min_by_key(|at| cores[*at].len());
            let Some(at) = fits.or_else(least) else { break };
            let core = cores.remove(at);
            chosen.extend(core.into_iter().take(left));
        }
        chosen
    }

    /// The CPU of which the least is free that has `rest`, else the one of which the most is free:
    /// what is free of it. One that is not `taken` for the same task already.
    fn part(&self, rest: u32, taken: &[CpuShare]) -> Option<(u32, u32)> {
        let is_other = |cpu: &&Cpu| taken.iter().all(|share| share.number != cpu.number);
        let free: Vec<(u32, u32)> = (self.cpus.iter().filter(is_other))
            .map(|cpu| (cpu.number, self.free_of(cpu)))
            .filter(|(_, free)| *free > 0)
            .collect();
        let enough = free.iter().filter(|(_, free)| *free >= rest).min_by_key(|(_, free)| *free);
        enough.or_else(|| free.iter().max_by_key(|(_, free)| *free)).copied()
    }

    /// What is free and what is held make all CPUs.
    pub(super) fn check<'a>(
        &self,
        held: impl Iterator<Item = &'a CpuShare>,
    ) -> Result<(), CheckError> {
        let mut free = self.free.clone();
        for share in held {
            let left = free.get_mut(&share.number);
            ensure!(left.is_some(), "a task has cpu {}, which is not there", share.number);
            if let Some(left) = left {
                *left += share.milli;
            }
        }
        let is_whole = free.values().all(|milli| *milli == MILLI);
        ensure!(is_whole, "cpus are given out twice, or to nobody: {free:?}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// A machine with so many NUMA nodes, cores on each, and CPUs of each core, numbered as
    /// systems do: first one of each core.
    fn machine(nodes: u32, cores: u32, threads: u32) -> Vec<Cpu> {
        let all = nodes * cores;
        let of = |number: u32| Cpu { node: number % all / cores, core: number % all, number };
        (0..all * threads).map(of).collect()
    }

    fn numbers(shares: &[CpuShare]) -> Vec<u32> {
        shares.iter().map(|share| share.number).collect()
    }

    #[test]
    fn tasks_get_whole_cores_of_one_numa_node() {
        // Node 0 has cores 0 to 3 with CPUs 0 to 3 and 8 to 11.
        let mut pins = Pins::new(machine(2, 4, 2));
        assert_eq!(numbers(&pins.take(2 * MILLI)), [0, 8]);
        let six = numbers(&pins.take(6 * MILLI));
        assert_eq!(six, [1, 9, 2, 10, 3, 11], "the node that has just enough");
        let one = pins.take(MILLI);
        assert_eq!(numbers(&one), [4]);
        assert_eq!(numbers(&pins.take(MILLI)), [12], "the rest of that core");
        let rest = numbers(&pins.take(6 * MILLI));
        assert_eq!(rest, [5, 13, 6, 14, 7, 15]);
        pins.give(&one);
        assert_eq!(numbers(&pins.take(MILLI)), [4]);
        assert_eq!(pins.take(MILLI), [], "all are taken");
    }

    #[test]
    fn parts_share_a_cpu_and_what_lies_in_parts_is_given_in_parts() {
        let mut pins = Pins::new(machine(1, 2, 1));
        let halves: Vec<_> = (0..4).map(|_| pins.take(MILLI / 2)).collect();
        let on: Vec<_> = halves.iter().map(|half| half[0].number).collect();
        assert_eq!(on, [0, 0, 1, 1]);
        pins.give(&halves[0]);
        pins.give(&halves[2]);
        let parts = pins.take(MILLI);
        let half = |number| CpuShare { number, milli: MILLI / 2 };
        assert_eq!(parts, [half(1), half(0)]);
    }

    proptest! {
        #[test]
        fn no_cpu_is_anothers_and_all_come_back(
            nodes in 1..4_u32,
            cores in 1..5_u32,
            threads in 1..3_u32,
            steps in proptest::collection::vec((any::<bool>(), 1..5000_u32, any::<usize>()), 1..60),
        ) {
            let cpus = machine(nodes, cores, threads);
            let all = cpus.len() as u32 * MILLI;
            let mut pins = Pins::new(cpus.clone());
            let mut held: Vec<Vec<CpuShare>> = Vec::new();
            for (takes, milli, which) in steps {
                let used: u32 = held.iter().flatten().map(|share| share.milli).sum();
                if takes && milli <= all - used {
                    let whole: BTreeSet<u32> = (cpus.iter())
                        .filter(|cpu| held.iter().flatten().all(|one| one.number != cpu.number))
                        .map(|cpu| cpu.number)
                        .collect();
                    let of_node = |node| cpus.iter().filter(move |cpu| cpu.node == node)
                        .filter(|cpu| whole.contains(&cpu.number)).count() as u32;
                    let taken = pins.take(milli);
                    prop_assert_eq!(taken.iter().map(|share| share.milli).sum::<u32>(), milli);
                    let different: BTreeSet<u32> = taken.iter().map(|one| one.number).collect();
                    prop_assert_eq!(different.len(), taken.len());
                    let want = milli / MILLI;
                    let have = taken.iter().filter(|share| share.milli == MILLI).count() as u32;
                    prop_assert!(have >= want.min(whole.len() as u32));
                    if milli % MILLI == 0 && (0..nodes).any(|node| of_node(node) >= want) {
                        let on: BTreeSet<u32> = cpus.iter()
                            .filter(|cpu| different.contains(&cpu.number))
                            .map(|cpu| cpu.node).collect();
                        prop_assert_eq!(on.len(), 1, "one node has enough");
                    }
                    held.push(taken);
                } else if !held.is_empty() {
                    let one = held.swap_remove(which % held.len());
                    pins.give(&one);
                }
                pins.check(held.iter().flatten()).map_err(|error| TestCaseError::fail(format!("{error:?}")))?;
            }
        }
    }
}
