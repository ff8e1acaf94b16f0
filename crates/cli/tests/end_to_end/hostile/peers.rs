//! What executors serve each other, asked for by somebody who means ill.

use super::mangler::Ledger;
use crate::fixture::Random;
use falkon_core::data::object::ObjectId;
use falkon_data::object::Landing;
use falkon_data::peer::{Fetcher, Peer, Piece};
use falkon_net::secure::{Level, Secret};
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Connections that say nothing, or half of what they should, kept at a time.
const HALF_OPEN_MAX: usize = 300;
/// How long one fetch may take before it is given up in its midst.
const FETCH_MS_MAX: u64 = 500;

/// Visits the executors until the test is over: asks for what is not there,
/// beyond the end, and gives up half-way; sends garbage; says nothing.
pub(super) fn visit(mut random: Random, ledger: &Arc<Ledger>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut half_open = Vec::new();
    while !ledger.over.load(Ordering::Relaxed) {
        random.moment(20_000);
        let addresses = ledger.peers.lock().unwrap().clone();
        if addresses.is_empty() {
            continue;
        }
        let address = addresses[random.below(addresses.len() as u64) as usize].clone();
        if random.below(3) > 0 {
            let Ok(mut stream) = TcpStream::connect(&address) else { continue };
            let start = [&b""[..], b"FALKON\r\n", b"\x16\x03\x01", b"GET / HTTP/1.1\r\n\r\n"];
            let mut bytes = start[random.below(4) as usize].to_vec();
            bytes.extend((0..random.below(500)).map(|_| random.next() as u8));
            // The other side may hang up in the midst of it.
            let _ = stream.write_all(&bytes);
            if half_open.len() == HALF_OPEN_MAX {
                half_open.swap_remove(random.below(HALF_OPEN_MAX as u64) as usize);
            }
            half_open.push(stream);
            continue;
        }
        let fetcher = Fetcher::new(Level::None, Secret::from_bytes(ledger.peer_secret));
        let edges = [0, 1, u64::MAX, u64::MAX - 1, 1 << 40];
        let mut edge = || edges[random.below(5) as usize];
        let piece = Piece {
            object: ObjectId(u128::from(edge()) << 64 | u128::from(edge())),
            offset: edge(),
            length: [None, Some(edge())][edge() as usize % 2],
            size: [None, Some(edge())][edge() as usize % 2],
        };
        let target = std::fs::File::create(dir.path().join("target")).unwrap();
        let landing = Landing::new(Arc::new(target), 0, |_| ());
        let peer = Peer { address, fingerprint: None };
        runtime.block_on(async {
            let limit = Duration::from_millis(FETCH_MS_MAX);
            // Whatever comes of it: the executor must go on.
            let _ = tokio::time::timeout(limit, fetcher.fetch(&peer, &piece, &landing)).await;
        });
    }
}
