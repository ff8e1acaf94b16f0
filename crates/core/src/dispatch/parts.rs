//! Orders that are too long for one message.

use super::{Assigned, Order, Prepare};
use crate::limits::ORDER_BYTES_MAX;
use crate::task::Rows;

impl Order {
    /// Whether its templates and rows are too long for one message.
    pub(super) fn is_long(&self) -> bool {
        let prepared: u64 = self.prepare.iter().map(Prepare::bytes).sum();
        prepared + self.assign.iter().map(Assigned::bytes).sum::<u64>() > ORDER_BYTES_MAX
    }

    /// The order as several, in order, each of which has at most
    /// [`ORDER_BYTES_MAX`] of templates and rows, or one template or one
    /// assignment. Tasks come after their templates and where their data is,
    /// and all that may be about them comes after them.
    pub(super) fn parts(mut self) -> Vec<Order> {
        let mut parts = vec![Order { data: self.data.take(), ..Order::default() }];
        let mut used = 0;
        for prepare in std::mem::take(&mut self.prepare) {
            next(&mut parts, &mut used, prepare.bytes()).prepare.push(prepare);
        }
        for assigned in std::mem::take(&mut self.assign) {
            next(&mut parts, &mut used, assigned.bytes()).assign.push(assigned);
        }
        parts.push(self);
        parts
    }
}

/// The part that has room for so many bytes more.
fn next<'a>(parts: &'a mut Vec<Order>, used: &mut u64, bytes: u64) -> &'a mut Order {
    let at = match *used > 0 && *used + bytes > ORDER_BYTES_MAX {
        true => {
            *used = 0;
            parts.push(Order::default());
            parts.len() - 1
        }
        false => parts.len() - 1,
    };
    *used += bytes;
    &mut parts[at]
}

impl Prepare {
    fn bytes(&self) -> u64 {
        self.template.len() as u64
    }
}

impl Assigned {
    fn bytes(&self) -> u64 {
        match &self.rows {
            Rows::Computed { .. } => 0,
            Rows::Packed(rows) => rows.blob.len() as u64,
        }
    }
}
