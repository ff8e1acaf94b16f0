//! Bytes from a stranger, taken for everything that travels.

use falkon_core::dispatch::Record;
use falkon_core::task::{Rows, Submission};
use falkon_wire::codec::Wire;
use falkon_wire::command::{Command, Template, unpack_row};
use falkon_wire::message::{FromClient, FromExecutor, ToClient, ToExecutor};
use std::fmt::Debug;

/// Decodes `bytes` as every message and record there is. What decodes must
/// come back unchanged when it is encoded again, and must stand what is done
/// with it next.
pub fn decode_anything(bytes: &[u8]) {
    if let Some(FromClient::Submit { submission, .. }) = round(bytes) {
        use_submission(&submission);
    }
    if let Some(Record::Submitted { submission, .. }) = round(bytes) {
        use_submission(&submission);
    }
    round::<ToClient>(bytes);
    round::<FromExecutor>(bytes);
    if let Some(ToExecutor::Order(order)) = round(bytes) {
        for assigned in &order.assign {
            let template = order.prepare.first().map(|prepare| &prepare.template[..]);
            use_rows(template.unwrap_or_default(), &assigned.rows, assigned.count);
            let Some(data) = &assigned.data else { continue };
            for lists in [&data.inputs, &data.outputs] {
                let is_sound = lists.is_sound(assigned.count, data.objects.len());
                for index in [0, assigned.count / 2, assigned.count.wrapping_sub(1), u64::MAX] {
                    let there = |item: &u32| data.objects.get(*item as usize).is_some();
                    let found = lists.of(index).iter().all(there);
                    assert!(found || !is_sound, "a sound list names what is not there");
                }
            }
        }
    }
    round::<Template>(bytes);
    round::<Command>(bytes);
    // Rows are taken apart where they lie; nothing is to be encoded again.
    let _ = unpack_row(bytes);
}

/// Decodes, and checks that the value comes back.
fn round<T: Wire + PartialEq + Debug>(bytes: &[u8]) -> Option<T> {
    let value = T::from_bytes(bytes).ok()?;
    let again = value.to_bytes();
    assert_eq!(T::from_bytes(&again).as_ref(), Ok(&value), "it does not come back");
    Some(value)
}

/// What a dispatcher and an executor do with a submission.
fn use_submission(submission: &Submission) {
    if submission.check().is_ok() {
        if let Some(data) = &submission.data {
            for index in [0, submission.count / 2, submission.count - 1, u64::MAX] {
                let _ = data.inputs_of(index).chain(data.outputs_of(index)).count();
            }
        }
        use_rows(&submission.template, &submission.rows, submission.count);
    }
}

fn use_rows(template: &[u8], rows: &Rows, count: u64) {
    let _ = rows.slice(count / 2, 1).len();
    let Ok(template) = Template::from_bytes(template) else { return };
    for index in [0, 1, count / 2, count.saturating_sub(1), u64::MAX] {
        // A template that does not fit its rows is an error, not a panic.
        let _ = template.expand(rows, index, index.saturating_add(1));
    }
}
