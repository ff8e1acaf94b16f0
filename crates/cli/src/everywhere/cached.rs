//! `falkon everywhere --cached`: objects that executors have in their caches, divided over
//! those executors.
//!
//! An object is given to one executor, whoever else has it: of several, to the one that was
//! given the fewest bytes so far. Objects that fewer executors have come first.

use super::EverywhereArgs;
use crate::exit::Exit;
use crate::plan::{HeldVersions, has_value, is_pattern, name_matches};
use crate::query::named_instance;
use crate::results::staged::bytes_text;

use falkon_core::dispatch::{FoundObject, ObjectStatus};
use falkon_core::task::{ExecutorId, InstanceId};
use falkon_net::client::{Client, ClientError};
use falkon_wire::declared::is_inner_name;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Questions to the dispatcher that are not answered yet.
const ASKED_MAX: usize = 64;

const CACHE: &str = "cache:";

/// A folder of the tasks, and which objects they find there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cached {
    folder: String,
    /// With `cache:`.
    pattern: String,
}

/// Why a word says no folder and no objects.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CachedError {
    #[error("a folder and a pattern are wanted, as in parts=cache:part.*")]
    NoPattern,
    #[error("{0} is no folder within the task's: give a name, as in parts=cache:part.*")]
    Folder(String),
}

/// Reads `DIR=cache:PATTERN`.
pub(super) fn cached(text: &str) -> Result<Cached, CachedError> {
    let (folder, pattern) = text.split_once('=').ok_or(CachedError::NoPattern)?;
    let folder = folder.strip_suffix('/').unwrap_or(folder);
    if pattern.strip_prefix(CACHE).is_none_or(str::is_empty) {
        return Err(CachedError::NoPattern);
    }
    if !is_inner_name(folder.as_bytes()) || has_value(folder.as_bytes()) {
        return Err(CachedError::Folder(folder.to_owned()));
    }
    Ok(Cached { folder: folder.to_owned(), pattern: pattern.to_owned() })
}

impl Cached {
    fn means(&self, url: &str) -> bool {
        match is_pattern(self.pattern.as_bytes()) {
            true => name_matches(self.pattern.as_bytes(), url.as_bytes()),
            false => self.pattern == url,
        }
    }

    /// What the URLs of all that is meant begin with.
    fn prefix(&self) -> &str {
        let literal = self.pattern.find(['*', '?', '[', '\\']).unwrap_or(self.pattern.len());
        &self.pattern[..literal]
    }

    /// The input of a task that reads this object in the folder.
    fn input(&self, url: &str) -> OsString {
        format!("{}/{}={url}", self.folder, url.strip_prefix(CACHE).unwrap_or(url)).into()
    }
}

/// What one executor is to read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) name: String,
    /// As `--input` has them.
    pub(super) inputs: Vec<OsString>,
    pub(super) versions: HeldVersions,
    pub(super) bytes: u64,
}

impl Share {
    pub(super) fn text(&self) -> String {
        let objects = crate::query::counted(self.inputs.len() as u64, "object");
        format!("{}: {objects}, {}", self.name, bytes_text(self.bytes))
    }
}

/// An object that is to be read, in a folder, and who has it.
struct Wanted<'a> {
    cached: &'a Cached,
    object: ObjectStatus,
    holders: Vec<ExecutorId>,
}

/// What is in caches, divided.
pub(super) struct Division {
    pub(super) shares: BTreeMap<ExecutorId, Share>,
    /// How many objects are meant that are in no cache, and one of them.
    pub(super) lost: Option<(u64, Arc<str>)>,
}

/// Divides what is in caches.
///
/// # Errors
/// Nothing is there, or something that is meant cannot be read.
pub(super) async fn divide(client: &Client, args: &EverywhereArgs) -> Result<Division, Exit> {
    let instance = match &args.cached_of {
        Some(text) => Some(named_instance(client, text).await.map_err(Exit::client)??),
        None => None,
    };
    let mut wanted = Vec::new();
    for cached in &args.cached {
        let meant = meant(client, instance, cached).await.map_err(Exit::client)?;
        check_names(cached, &meant)?;
        let meant = meant.into_iter();
        let none = |object| Wanted { cached, object, holders: Vec::new() };
        wanted.extend(meant.map(none));
    }
    find_holders(client, instance, &mut wanted).await.map_err(Exit::client)?;
    let executors = client.status(None).await.map_err(Exit::client)?.executors;
    let relays: BTreeSet<ExecutorId> =
        executors.iter().filter(|one| one.nodes.is_some()).map(|one| one.id).collect();
    let mut lost = None;
    for Wanted { object, holders, .. } in &mut wanted {
        let is_anywhere = !holders.is_empty();
        holders.retain(|id| !relays.contains(id));
        if is_anywhere && holders.is_empty() {
            return Err(Exit::usage(format!(
                "{} is in caches below a relay alone: run falkon everywhere with the access file \
                 of that relay",
                object.url
            )));
        }
        if !is_anywhere {
            let (count, _) = lost.get_or_insert_with(|| (0, Arc::clone(&object.url)));
            *count += 1;
        }
    }
    let names = executors.into_iter().map(|one| (one.id, one.name)).collect();
    Ok(Division { shares: shares(wanted, &names), lost })
}

/// The objects that a pattern means.
async fn meant(
    client: &Client,
    instance: Option<InstanceId>,
    cached: &Cached,
) -> Result<Vec<ObjectStatus>, ClientError> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let (objects, next) = client.objects(instance, None, cached.prefix(), after).await?;
        all.extend(objects.into_iter().filter(|object| cached.means(&object.url)));
        match next {
            Some(next) => after = Some(next),
            None => return Ok(all),
        }
    }
}

/// Whether each object can be a file of its own.
fn check_names(cached: &Cached, meant: &[ObjectStatus]) -> Result<(), Exit> {
    let mut urls: Vec<&str> = meant.iter().map(|object| &*object.url).collect();
    urls.sort_unstable();
    if urls.is_empty() {
        return Err(Exit::usage(format!(
            "no object is called {}: falkon data ls shows what is in caches",
            cached.pattern
        )));
    }
    if let Some(pair) = urls.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Exit::usage(format!(
            "there are several objects called {}: say whose with --cached-of INSTANCE",
            pair[0]
        )));
    }
    for url in urls {
        let key = url.strip_prefix(CACHE).unwrap_or(url);
        if key.contains('=') || has_value(key.as_bytes()) || !is_inner_name(key.as_bytes()) {
            return Err(Exit::usage(format!(
                "{url} cannot be a file in the folder {}: give a pattern that leaves it out, \
                 and read it with --input NAME={url}",
                cached.folder
            )));
        }
    }
    Ok(())
}

/// Asks who has each object.
async fn find_holders(
    client: &Client,
    instance: Option<InstanceId>,
    wanted: &mut [Wanted<'_>],
) -> Result<(), ClientError> {
    let mut asked: JoinSet<Result<(usize, Vec<FoundObject>), ClientError>> = JoinSet::new();
    let mut next = 0;
    loop {
        while asked.len() < ASKED_MAX && next < wanted.len() {
            let (at, name) = (next, wanted[next].object.id.to_string());
            let client = client.clone();
            asked.spawn(async move {
                let (found, _) = client.find(instance, &name).await?;
                Ok((at, found))
            });
            next += 1;
        }
        let Some(answer) = asked.join_next().await else { return Ok(()) };
        let Ok(answer) = answer else { return Err(ClientError::Lost) };
        let (at, found) = answer?;
        let holders = found.iter().flat_map(|found| &found.holders);
        let there = holders.filter(|holder| holder.holds && holder.connected);
        wanted[at].holders = there.map(|holder| holder.executor).collect();
    }
}

fn shares(
    mut wanted: Vec<Wanted<'_>>,
    names: &BTreeMap<ExecutorId, String>,
) -> BTreeMap<ExecutorId, Share> {
    wanted.sort_by(|one, other| {
        let key = |of: &Wanted<'_>| (of.holders.len(), Arc::clone(&of.object.url));
        key(one).cmp(&key(other))
    });
    let mut shares: BTreeMap<ExecutorId, Share> = BTreeMap::new();
    for Wanted { cached, object, holders } in wanted {
        let given = |id: &ExecutorId| (shares.get(id).map_or(0, |share| share.bytes), *id);
        let Some(id) = holders.into_iter().min_by_key(given) else { continue };
        let share = shares.entry(id).or_insert_with(|| Share {
            name: names.get(&id).cloned().unwrap_or_else(|| id.to_string()),
            ..Share::default()
        });
        share.bytes = share.bytes.saturating_add(object.size.unwrap_or_default());
        share.inputs.push(cached.input(&object.url));
        share.versions.insert(object.url.as_bytes().to_vec(), (object.version, object.size));
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use falkon_core::data::object::ObjectId;

    #[test]
    fn a_folder_and_a_pattern_are_read() {
        let read = |text: &str| cached(text).map(|one| (one.folder, one.pattern));
        let given = |folder: &str, pattern: &str| Ok((folder.to_owned(), pattern.to_owned()));
        assert_eq!(read("parts=cache:part.*"), given("parts", "cache:part.*"));
        assert_eq!(read("a/b/=cache:x=y"), given("a/b", "cache:x=y"));
        for text in ["", "parts", "parts=", "parts=cache:", "parts=/etc/*", "=part.*"] {
            assert_eq!(read(text), Err(CachedError::NoPattern), "{text}");
        }
        for folder in ["", "/a", "../a", "a//b", ".", "{}"] {
            let error = Err(CachedError::Folder(folder.to_owned()));
            assert_eq!(read(&format!("{folder}=cache:x")), error, "{folder}");
        }
    }

    #[test]
    fn each_object_goes_to_one_of_its_holders_and_bytes_are_even() {
        let given = Cached { folder: "in".to_owned(), pattern: "cache:*".to_owned() };
        let wanted = |key: u64, holders: &[u64]| Wanted {
            cached: &given,
            object: ObjectStatus {
                id: ObjectId(key.into()),
                url: format!("cache:{key}").into(),
                version: "made:1".into(),
                size: Some(10),
                holders: holders.len() as u64,
                coming: 0,
                waiting: 0,
            },
            holders: holders.iter().copied().map(ExecutorId).collect(),
        };
        let all = vec![wanted(1, &[1, 2]), wanted(2, &[1, 2]), wanted(3, &[1]), wanted(4, &[1])];
        let names = BTreeMap::from([(ExecutorId(1), "one".to_owned())]);
        let shares = shares(all, &names);
        let of = |id: u64| (shares[&ExecutorId(id)].text(), shares[&ExecutorId(id)].inputs.clone());
        assert_eq!(of(1).0, "one: 2 objects, 20 B");
        assert_eq!(of(1).1, ["in/3=cache:3", "in/4=cache:4"]);
        assert_eq!(of(2).1, ["in/1=cache:1", "in/2=cache:2"]);
    }
}
