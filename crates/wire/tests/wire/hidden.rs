//! Messages with secrets in them can be printed; their secrets are not.

use crate::strategies;
use falkon_wire::codec::Wire;
use falkon_wire::hidden::Hidden;
use falkon_wire::message::{Ticket, ToClient, ToExecutor};
use proptest::prelude::*;

proptest! {
    #[test]
    fn secrets_are_not_printed(bytes: [u8; 32], request: u64, now in strategies::time()) {
        let ticket = Ticket { number: 1, secret: Hidden(bytes), expires: now };
        let instance = falkon_core::task::InstanceId(1);
        let created = ToClient::Created { request, instance, secret: Hidden(bytes.to_vec()) };
        let reached = ToClient::Reached { request, ticket, access: Vec::new() };
        let welcome = ToExecutor::Welcome { now, peer_secret: Some(Hidden(bytes)) };
        prop_assert!(created.has_secret() && reached.has_secret() && welcome.has_secret());
        let printed = [format!("{bytes:?}"), format!("{bytes:x?}"), format!("{bytes:#?}")];
        for text in [format!("{created:?}"), format!("{reached:?}"), format!("{welcome:?}")] {
            prop_assert!(text.contains("(hidden)"), "{}", text);
            prop_assert!(!printed.iter().any(|secret| text.contains(secret)), "{}", text);
        }
        // They travel all the same.
        prop_assert_eq!(Hidden(bytes).to_bytes(), bytes.to_bytes());
        prop_assert_eq!(Hidden::<[u8; 32]>::from_bytes(&bytes.to_bytes()), Ok(Hidden(bytes)));
    }
}
