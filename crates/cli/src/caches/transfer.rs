//! `falkon data put`, `get` and `rm`: between here and executors, past the
//! dispatcher, and below relays through it.

pub(super) mod fetch;
mod file;

use super::find::{find, find_one};
use super::list::json_line;
use super::{Asking, BELOW_MS_MAX, Caches, HEARD_MS_MAX, through, until_heard};
use crate::access::AccessArgs;
use crate::exit::{Exit, say};
use crate::query::print;
use crate::results::staged::bytes_text;
use clap::Args;
use falkon_core::data::object::Object;
use falkon_core::dispatch::{Access, FoundObject, HolderStatus, Purpose};
use falkon_core::task::ExecutorId;
use falkon_data::peer::{Peer, PeerError, VisitError, Visitor};
use falkon_net::client::ClientError;
use falkon_net::ids::object_id;
use falkon_wire::declared::CACHE_SCHEME;
use falkon_wire::message::Refusal;
use serde::Serialize;
use std::fs::File;
use std::path::{Path, PathBuf};

/// `falkon data put`
#[derive(Args, Debug)]
pub(super) struct PutArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// Files
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// KEY of cache:KEY; for one file [default: its name without folders]
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// On how many executors
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    replicas: u16,
    /// Print a line of JSON per object, with its id and version
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct JsonPut<'a> {
    id: String,
    url: &'a str,
    version: &'a str,
    size: Option<u64>,
}

/// `falkon data get`
#[derive(Args, Debug)]
pub(super) struct GetArgs {
    #[command(flatten)]
    asking: Asking,
    /// The object: a path, URL, cache:KEY, or an id as falkon data ls shows it
    #[arg(value_name = "OBJECT")]
    object: String,
    /// Where it is written, whole or not at all; - is standard output, the default
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

/// `falkon data rm`
#[derive(Args, Debug)]
pub(super) struct RemoveArgs {
    #[command(flatten)]
    asking: Asking,
    /// Objects: paths, URLs, cache:KEY, or ids as falkon data ls shows them
    #[arg(value_name = "OBJECT", required = true)]
    objects: Vec<String>,
    /// Even if it is in no store and unfinished tasks read it
    #[arg(long)]
    force: bool,
}

pub(super) fn put(args: &PutArgs) -> Exit {
    if args.key.is_some() && args.files.len() > 1 {
        return Exit::usage("--key names one file, and there are several: leave it out");
    }
    // The object is for all who may submit, and so of no instance.
    let asking = Asking { access: args.access.clone(), instance: None };
    asking.ask(async |caches: &Caches| {
        for path in &args.files {
            let key = key(args.key.as_deref(), path)?;
            let object = put_one(caches, path, &key, usize::from(args.replicas)).await?;
            let text = match args.json {
                true => json_line(&JsonPut {
                    id: object.id.to_string(),
                    url: &object.url,
                    version: &object.version,
                    size: object.size,
                })?,
                false => format!("{}\n", object.url),
            };
            if let Some(exit) = print(&text) {
                return Ok(exit);
            }
        }
        Ok(Exit::Success)
    })
}

/// The key under which a file is put.
fn key(given: Option<&str>, path: &Path) -> Result<String, Exit> {
    let name = || path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    let key = given.map(|key| key.strip_prefix("cache:").unwrap_or(key).to_owned()).or_else(name);
    key.filter(|key| !key.is_empty() && !key.contains(char::is_control)).ok_or_else(|| {
        Exit::usage(format!(
            "{} has no name that could be a key: give one with --key",
            path.display()
        ))
    })
}

async fn put_one(caches: &Caches, path: &Path, key: &str, replicas: usize) -> Result<Object, Exit> {
    let unreadable = |error| Exit::usage(format!("cannot read {}: {error}", path.display()));
    let file = File::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(Exit::usage(format!("{} is no plain file", path.display())));
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(&file).map_err(unreadable)?;
    let size = hasher.count();
    let url = format!("{}{key}", String::from_utf8_lossy(CACHE_SCHEME));
    let version = format!("blake3:{}", hasher.finalize().to_hex());
    let id = object_id(&url, &version);
    let object = Object { id, url: url.as_str().into(), version: version.into(), size: Some(size) };
    let asked = caches.client.reach(caches.instance, &object, Purpose::Put).await;
    let (ticket, access) = asked.map_err(|error| refused(&url, error))?;
    let visitor = Visitor::new(caches.level, Purpose::Put.into(), id, &ticket);
    let mut taken: Vec<ExecutorId> = Vec::new();
    let mut reasons = Vec::new();
    let mut is_far = false;
    for access in &access {
        if taken.len() >= replicas {
            break;
        }
        match visitor.put(&peer(access), &object, &file, size).await {
            Ok(()) => taken.push(access.executor),
            Err(VisitError::Local(error)) => return Err(unreadable(error)),
            Err(error) => {
                is_far |= is_unreached(&error);
                reasons.push(format!("executor {}: {error}", access.name));
            }
        }
    }
    let is_heard = async || {
        let (found, _) = caches.client.find(caches.instance, &id.to_string()).await?;
        let holders = found.first().map_or(&[][..], |found| &found.holders);
        let held = |id| holders.iter().any(|found| found.holds && found.executor == id);
        Ok(taken.iter().all(|id| held(*id)))
    };
    until_heard(HEARD_MS_MAX, is_heard).await.map_err(Exit::client)?;
    if taken.len() >= replicas {
        return Ok(object);
    }
    for reason in &reasons {
        say(format_args!("cannot put {url} on {reason}"));
    }
    advise(is_far);
    Err(Exit::failure(match taken.len() {
        0 => format!("no executor accepted {url}"),
        count => format!("{url} is on {count} of {replicas} executors"),
    }))
}

fn is_unreached(error: &VisitError) -> bool {
    matches!(error, VisitError::Peer(PeerError::Unreachable { .. }))
}

/// Prints advice if existing executors were not reached from here.
fn advise(is_far: bool) {
    if is_far {
        say("objects do not pass through the dispatcher: run this command where \
             the executors' addresses can be reached, such as the dispatcher's machine or a node");
    }
}

/// Where an executor listens.
pub(super) fn peer(access: &Access) -> Peer {
    let fingerprint = <[u8; 32]>::try_from(access.serves.fingerprint.as_slice()).ok();
    Peer { address: access.serves.address.clone(), fingerprint }
}

/// The error for an operation on an object that the dispatcher refused.
fn refused(name: &str, error: ClientError) -> Exit {
    match error {
        ClientError::Refused(Refusal::Access(error)) => Exit::usage(format!("{name}: {error}")),
        error => Exit::client(error),
    }
}

/// The object that the dispatcher described.
fn object_of(found: &FoundObject) -> Object {
    let object = &found.object;
    Object {
        id: object.id,
        url: object.url.clone(),
        version: object.version.clone(),
        size: object.size,
    }
}

pub(super) fn get(args: &GetArgs) -> Exit {
    args.asking.ask(async |caches: &Caches| {
        let found = find_one(caches, &args.object).await?;
        let object = object_of(&found);
        let (client, instance) = (&caches.client, caches.instance);
        let sources = fetch::sources(client, caches.level, instance, &object, &found.holders);
        let sources = sources.await.map_err(|error| refused(&args.object, error))?;
        let path = args.file.as_deref().filter(|path| *path != Path::new("-"));
        let target = file::Target::new(path)?;
        fetch::fetch(&sources, &object, target.file(), &args.object).await?;
        target.finish()
    })
}

pub(super) fn remove(args: &RemoveArgs) -> Exit {
    args.asking.ask(async |caches: &Caches| {
        let mut exit = Exit::Success;
        for name in &args.objects {
            let found = find(caches, name).await?;
            let held = found.iter().filter(|found| found.object.holders > 0);
            let mut any = false;
            for found in held {
                any = true;
                if let Err(other) = remove_one(caches, name, found, args.force).await {
                    exit = other;
                }
            }
            if !any {
                exit = Exit::usage(format!("no executor holds {name}"));
            }
        }
        Ok(exit)
    })
}

async fn remove_one(
    caches: &Caches,
    name: &str,
    found: &FoundObject,
    force: bool,
) -> Result<(), Exit> {
    let object = object_of(found);
    let purpose = Purpose::Drop { force };
    let asked = caches.client.reach(caches.instance, &object, purpose).await;
    let (visitor, access) = match asked {
        Ok((ticket, access)) => {
            let visitor = Visitor::new(caches.level, purpose.into(), object.id, &ticket);
            (Some(visitor), access)
        }
        Err(error) if through::is_not_held(&error) => (None, Vec::new()),
        Err(error) => return Err(refused(name, error)),
    };
    let reached = |id: ExecutorId| access.iter().any(|access| access.executor == id);
    let mut relays = through::relays(&found.holders, reached);
    let mut exit = Ok(());
    if !relays.is_empty() {
        match caches.client.drop_below(caches.instance, object.id, force).await {
            Ok(()) => {}
            // It may have gone by itself.
            Err(error) if through::is_not_held(&error) => {}
            Err(ClientError::Refused(Refusal::Access(error))) => {
                for relay in relays.drain(..) {
                    let at = format!("below the relay {}", relay.name);
                    exit = Err(stays(name, &object, &at, &error.to_string()));
                }
            }
            Err(error) => return Err(Exit::client(error)),
        }
    }
    let mut gone: Vec<ExecutorId> = Vec::new();
    let mut is_far = false;
    for (visitor, access) in visitor.iter().flat_map(|one| access.iter().map(move |to| (one, to))) {
        let result = match access.serves.address.is_empty() {
            true => Err("it is not connected, or cannot be reached".to_owned()),
            false => match visitor.drop_object(&peer(access)).await {
                // The object may be gone for other reasons.
                Ok(()) | Err(VisitError::Gone) => Ok(()),
                Err(error) => {
                    is_far |= is_unreached(&error);
                    Err(error.to_string())
                }
            },
        };
        match result {
            Ok(()) => gone.push(access.executor),
            Err(reason) => {
                let at = format!("on executor {}", access.name);
                exit = Err(stays(name, &object, &at, &reason));
            }
        }
    }
    advise(is_far);
    let holders = async || {
        let (found, _) = caches.client.find(caches.instance, &object.id.to_string()).await?;
        let holders = found.into_iter().next().map_or_else(Vec::new, |found| found.holders);
        let held = holders.into_iter().filter(|holder| holder.holds);
        Ok::<_, ClientError>(held.collect::<Vec<HolderStatus>>())
    };
    let is_heard = async || {
        let holders = holders().await?;
        Ok(!holders.iter().any(|holder| gone.contains(&holder.executor)))
    };
    until_heard(HEARD_MS_MAX, is_heard).await.map_err(Exit::client)?;
    if relays.is_empty() {
        return exit;
    }
    let is_relay = |holder: &HolderStatus| relays.iter().any(|one| one.executor == holder.executor);
    // A relay that is not connected hears of it later, or never.
    let is_heard = async || {
        let holders = holders().await?;
        Ok(!holders.iter().any(|holder| is_relay(holder) && holder.connected))
    };
    until_heard(BELOW_MS_MAX, is_heard).await.map_err(Exit::client)?;
    for holder in holders().await.map_err(Exit::client)?.iter().filter(|one| is_relay(one)) {
        let reason = match holder.connected {
            true => "it is in use there, or that it is gone is not known yet",
            false => "the relay is not connected",
        };
        exit = Err(stays(name, &object, &format!("below the relay {}", holder.name), reason));
    }
    exit
}

/// Says that a copy stays, and why.
fn stays(name: &str, object: &Object, at: &str, reason: &str) -> Exit {
    let size = object.size.map(bytes_text).unwrap_or_default();
    say(format_args!("{name} ({size}) stays {at}: {reason}"));
    Exit::Usage
}
