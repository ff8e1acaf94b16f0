//! How what is wanted becomes requests (falkon-sc07 §3.1).

use super::AcquireName;

/// What a strategy looks at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish {
    /// Nodes that are wanted and not asked for yet.
    pub(super) nodes: u64,
    /// Requests made since there was last nothing wanted.
    pub(super) made: u64,
    /// Nodes that the LRM says it could give now, if it was asked.
    pub(super) free: Option<u64>,
}

/// How what is wanted becomes requests.
pub(super) trait Acquire {
    /// Nodes of the next request; 0 makes none for now.
    fn next(&self, wish: Wish) -> u64;

    /// Whether the LRM is to be asked first what is free.
    fn asks_free(&self) -> bool {
        false
    }
}

struct AllAtOnce;
struct OneAtATime;
struct Additive;
struct Exponential;
struct Available;

impl Acquire for AllAtOnce {
    fn next(&self, wish: Wish) -> u64 {
        wish.nodes
    }
}

impl Acquire for OneAtATime {
    fn next(&self, wish: Wish) -> u64 {
        wish.nodes.min(1)
    }
}

impl Acquire for Additive {
    fn next(&self, wish: Wish) -> u64 {
        wish.nodes.min(wish.made.saturating_add(1))
    }
}

impl Acquire for Exponential {
    fn next(&self, wish: Wish) -> u64 {
        let size = u32::try_from(wish.made).ok().and_then(|made| 1u64.checked_shl(made));
        wish.nodes.min(size.unwrap_or(u64::MAX))
    }
}

impl Acquire for Available {
    fn next(&self, wish: Wish) -> u64 {
        wish.free.map_or(wish.nodes, |free| wish.nodes.min(free))
    }

    fn asks_free(&self) -> bool {
        true
    }
}

/// The strategy of that name.
pub(super) fn strategy(name: AcquireName) -> &'static dyn Acquire {
    match name {
        AcquireName::AllAtOnce => &AllAtOnce,
        AcquireName::OneAtATime => &OneAtATime,
        AcquireName::Additive => &Additive,
        AcquireName::Exponential => &Exponential,
        AcquireName::Available => &Available,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: AcquireName, mut nodes: u64, free: Option<u64>) -> Vec<u64> {
        let mut requests = Vec::new();
        while nodes > 0 && requests.len() < 100 {
            let made = requests.len() as u64;
            let next = strategy(name).next(Wish { nodes, made, free });
            if next == 0 {
                break;
            }
            nodes -= next;
            requests.push(next);
        }
        requests
    }

    #[test]
    fn requests_are_as_the_paper_defines_them() {
        assert_eq!(series(AcquireName::AllAtOnce, 11, None), [11]);
        assert_eq!(series(AcquireName::OneAtATime, 3, None), [1, 1, 1]);
        assert_eq!(series(AcquireName::Additive, 11, None), [1, 2, 3, 4, 1]);
        assert_eq!(series(AcquireName::Exponential, 11, None), [1, 2, 4, 4]);
        assert_eq!(series(AcquireName::Available, 11, Some(0)), []);
        assert_eq!(series(AcquireName::Available, 11, None), [11]);
    }

    #[test]
    fn every_strategy_asks_for_what_is_wanted_and_no_more() {
        for name in AcquireName::ALL {
            for nodes in 1..90 {
                assert_eq!(series(name, nodes, None).iter().sum::<u64>(), nodes, "{name:?}");
            }
            let huge = Wish { nodes: 9, made: u64::MAX, free: None };
            assert!((1..=9).contains(&strategy(name).next(huge)), "{name:?}");
        }
    }
}
