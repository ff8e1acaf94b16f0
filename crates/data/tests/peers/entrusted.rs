//! Outputs that executors hand to one that collects.

use super::{LEVELS, Rig, pattern, run};
use falkon_core::execute::OfferId;
use falkon_data::peer::{EntrustError, FromPeers};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use tokio::sync::oneshot;

type End = oneshot::Sender<Result<Arc<str>, String>>;

/// Takes in what is handed over.
#[derive(Clone, Default)]
pub(super) struct Collector(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    open: BTreeMap<OfferId, (PathBuf, u64, End)>,
    taken: Vec<(Vec<u8>, u64)>,
    /// Nothing is answered.
    is_slow: bool,
    withdrawn: u64,
}

impl Collector {
    pub(super) fn take(&self, message: FromPeers, folder: &Path) {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap();
        match message {
            FromPeers::Entrust { archive, end, .. } if archive == "/full.zip" => {
                end.send(Err("no room".to_owned())).unwrap();
            }
            FromPeers::Entrust { offer, waited_micros, place, end, .. } => {
                let path = folder.join(offer.0.to_string());
                place.send(path.clone()).unwrap();
                state.open.insert(offer, (path, waited_micros, end));
            }
            FromPeers::Received { offer, result } => {
                if result.is_err() {
                    // Who hands it over went away in the midst of it.
                    assert!(state.is_slow, "{result:?}");
                    state.open.remove(&offer);
                } else if !state.is_slow {
                    let (path, waited_micros, end) = state.open.remove(&offer).unwrap();
                    state.taken.push((fs::read(path).unwrap(), waited_micros));
                    end.send(Ok("/a.part3.zip".into())).unwrap();
                }
            }
            FromPeers::Withdrawn(offer) => {
                state.withdrawn += u64::from(state.open.remove(&offer).is_some());
            }
            _ => panic!("that is nothing about outputs"),
        }
        changed.notify_all();
    }

    fn wait_until(&self, is_so: impl Fn(&State) -> bool) {
        let (state, changed) = &*self.0;
        let _state = changed.wait_while(state.lock().unwrap(), |state| !is_so(state)).unwrap();
    }
}

#[test]
fn outputs_are_handed_over_refused_and_taken_back_at_every_level() {
    for level in LEVELS {
        let rig = Rig::new(level);
        let (fetcher, peer) = (rig.fetcher(), rig.peer());
        let path = rig.dir.path().join("handed.zip");
        for bytes in [0, 1, 3_000_000] {
            fs::write(&path, pattern(bytes)).unwrap();
            let file = File::open(&path).unwrap();
            let entrust = |archive| fetcher.entrust(&peer, archive, 7, &file, bytes as u64);
            let written = run(entrust("/a.zip")).unwrap();
            assert_eq!(&*written, "/a.part3.zip", "{level}");
            let taken = rig.collector.0.0.lock().unwrap().taken.pop().unwrap();
            assert!(taken == (pattern(bytes), 7), "{level}: {bytes}");
            let refused = run(entrust("/full.zip"));
            assert!(matches!(&refused, Err(EntrustError::Refused(why)) if why == "no room"));
        }
        rig.collector.0.0.lock().unwrap().is_slow = true;
        let file = File::open(&path).unwrap();
        run(async {
            let entrusted = fetcher.entrust(&peer, "/a.zip", 7, &file, 3_000_000);
            let collector = rig.collector.clone();
            let come = tokio::task::spawn_blocking(move || {
                collector.wait_until(|state| !state.open.is_empty());
            });
            tokio::select! {
                ended = entrusted => panic!("{level}: {ended:?}"),
                come = come => come.unwrap(),
            }
        });
        rig.collector.wait_until(|state| state.withdrawn == 1 || state.open.is_empty());
    }
}
