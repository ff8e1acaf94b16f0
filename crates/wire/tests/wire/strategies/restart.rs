//! Arbitrary things about a dispatcher's program.

use super::{number, text};
use falkon_wire::message::{FromClient, RestartAsk, ToClient};
use proptest::option;
use proptest::prelude::*;

pub(super) fn request() -> impl Strategy<Value = FromClient> {
    let ask = prop_oneof![
        Just(RestartAsk::Version),
        option::of(text()).prop_map(|program| RestartAsk::Replace { program }),
    ];
    (number(), ask).prop_map(|(request, ask)| FromClient::Restart { request, ask })
}

pub(super) fn answer() -> impl Strategy<Value = ToClient> {
    (number(), text(), option::of(text())).prop_map(|(request, version, next)| ToClient::Program {
        request,
        version,
        next,
    })
}
