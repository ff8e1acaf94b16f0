use super::*;
use proptest::prelude::*;

/// An action of a thread between two looks.
#[derive(Debug, Clone, Copy)]
enum Step {
    Turns(u64),
    Enters,
    Waits,
    Nothing,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (1..5u64).prop_map(Step::Turns),
        1 => Just(Step::Enters),
        1 => Just(Step::Waits),
        4 => Just(Step::Nothing),
    ]
}

proptest! {
    /// A thread stands still when it was in the same turn at the look before,
    /// and is given up when it was for longer than the limit.
    #[test]
    fn a_turn_that_does_not_end_is_seen(
        steps in proptest::collection::vec(step(), 1..200),
        looks_max in 1..6u32,
    ) {
        let position = Position::new();
        let mut watch = Watch::new(LOOK * looks_max);
        let mut in_turn = false;
        // Looks since the turn began, the first one left out.
        let mut same = None;
        for step in steps {
            match step {
                Step::Turns(times) => {
                    for _ in 0..times {
                        position.leave();
                        position.enter();
                    }
                    (in_turn, same) = (true, None);
                }
                Step::Enters => {
                    position.enter();
                    if !in_turn {
                        (in_turn, same) = (true, None);
                    }
                }
                Step::Waits => {
                    position.leave();
                    (in_turn, same) = (false, None);
                }
                Step::Nothing => {}
            }
            if in_turn {
                same = Some(same.map_or(0, |looks: u32| looks + 1));
            }
            let expected = match same {
                None | Some(0) => Verdict::Moves,
                Some(1) => Verdict::Stands,
                Some(looks) if looks <= looks_max => Verdict::StandsStill,
                Some(_) => Verdict::GivenUp,
            };
            let verdict = watch.look(position.turns.load(Ordering::Acquire));
            prop_assert_eq!(verdict, expected);
        }
    }
}

#[test]
fn a_thread_is_at_a_place_until_it_returns() {
    let position = Position::new();
    for place in [WaitPoint::Cache, WaitPoint::Sandboxes, WaitPoint::Overflow, WaitPoint::Host] {
        let at = position.at(place);
        assert_eq!(position.place(), Some(place));
        drop(at);
        assert_eq!(position.place(), None);
    }
}
