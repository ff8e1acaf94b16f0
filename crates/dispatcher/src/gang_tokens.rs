//! The secrets of gangs, from the system's random source.

use super::Log;
use falkon_core::gang::GangToken;

/// Draws as many secrets as are wanted; fewer if the system has no random source, so that
/// no gang is formed with a secret that others could guess.
pub(super) fn draw(count: u32, log: &Log) -> Vec<GangToken> {
    let mut tokens = Vec::new();
    for _ in 0..count {
        let mut token = GangToken::default();
        if let Err(error) = getrandom::fill(&mut token.0) {
            log(&format!("no secrets for tasks on several nodes, which wait: {error}"));
            break;
        }
        tokens.push(token);
    }
    tokens
}
