//! Results in the order of the plan, whatever order they come in.

use super::{Sink, SinkError, TaskResult};
use std::collections::BTreeMap;

/// Passes results on in the order of their indices. What comes early is held
/// in memory.
pub(crate) struct Ordered<S> {
    inner: S,
    /// Indices still to come, ascending.
    expected: Box<dyn Iterator<Item = u64>>,
    next: Option<u64>,
    early: BTreeMap<u64, TaskResult>,
}

impl<S: Sink> Ordered<S> {
    /// Expects exactly the indices that `expected` gives, ascending.
    pub(crate) fn new(inner: S, expected: impl Iterator<Item = u64> + 'static) -> Ordered<S> {
        let mut expected: Box<dyn Iterator<Item = u64>> = Box::new(expected);
        let next = expected.next();
        Ordered { inner, expected, next, early: BTreeMap::new() }
    }
}

impl<S: Sink> Sink for Ordered<S> {
    fn take(&mut self, result: &TaskResult) -> Result<(), SinkError> {
        if Some(result.index) != self.next {
            self.early.insert(result.index, result.clone());
            return Ok(());
        }
        self.inner.take(result)?;
        self.next = self.expected.next();
        while let Some(result) = self.next.and_then(|next| self.early.remove(&next)) {
            self.inner.take(&result)?;
            self.next = self.expected.next();
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Times;
    use falkon_core::result::Outcome;
    use proptest::prelude::*;

    #[derive(Default)]
    struct Seen(Vec<u64>);

    impl Sink for Seen {
        fn take(&mut self, result: &TaskResult) -> Result<(), SinkError> {
            self.0.push(result.index);
            Ok(())
        }
        fn flush(&mut self) -> Result<(), SinkError> {
            Ok(())
        }
    }

    fn result(index: u64) -> TaskResult {
        TaskResult {
            index,
            name: None,
            outcome: Outcome::Exit(0),
            executor: None,
            attempts: 1,
            times: Times::default(),
            detail: None,
            subject: None,
            what: None,
            digest: None,
            files: None,
            kept: [None, None],
            rests: Default::default(),
        }
    }

    proptest! {
        #[test]
        fn any_order_in_gives_the_plan_s_order_out(
            order in Just((0..40u64).map(|n| n * 3).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let expected: Vec<u64> = (0..40).map(|n| n * 3).collect();
            let mut ordered = Ordered::new(Seen::default(), expected.clone().into_iter());
            for index in order {
                ordered.take(&result(index)).unwrap();
            }
            prop_assert_eq!(ordered.inner.0, expected);
        }
    }
}
