//! One example of everything that is asked about a dispatcher's program, and of the answer.

use falkon_wire::message::{FromClient, RestartAsk, ToClient};

pub(super) fn asked() -> Vec<(&'static str, FromClient)> {
    let ask = |ask| FromClient::Restart { request: 9, ask };
    let program = Some("/opt/falkon-0.2/bin/falkon".to_owned());
    vec![
        ("program_version", ask(RestartAsk::Version)),
        ("restart", ask(RestartAsk::Replace { program })),
    ]
}

pub(super) fn answer() -> (&'static str, ToClient) {
    let (version, next) = ("0.1.0".to_owned(), Some("0.2.0".to_owned()));
    ("program", ToClient::Program { request: 9, version, next })
}
