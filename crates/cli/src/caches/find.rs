//! `falkon data where`, and finding one object by its name.

use super::list::{JsonObject, json_line};
use super::name::dispatcher_name;
use super::{Asking, Caches};
use crate::exit::{Exit, say};
use crate::plan::HeldVersions;
use crate::query::print;
use crate::results::staged::bytes_text;
use crate::ways;
use clap::Args;
use falkon_core::data::object::CONTENT_PREFIX;
use falkon_core::dispatch::{Earlier, FoundObject, HolderStatus};
use falkon_data::store::{StoreUrl, Stores};
use falkon_net::client::Client;
use serde::Serialize;

/// `falkon data where`
#[derive(Args, Debug)]
pub(super) struct WhereArgs {
    #[command(flatten)]
    asking: Asking,
    /// Objects: paths, URLs, cache:KEY, or ids as falkon data ls shows them
    #[arg(value_name = "OBJECT", required = true)]
    objects: Vec<String>,
    /// Print a line of JSON per object
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct JsonFound<'a> {
    #[serde(flatten)]
    object: JsonObject<'a>,
    readers: u64,
    way: &'static str,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    earlier: Option<JsonEarlier>,
    executors: Vec<JsonHolder<'a>>,
}

#[derive(Debug, Serialize)]
struct JsonEarlier {
    readers: u64,
    executors: u64,
    size: u64,
}

impl From<Earlier> for JsonEarlier {
    fn from(Earlier { readers, executors, size }: Earlier) -> JsonEarlier {
        JsonEarlier { readers, executors, size }
    }
}

#[derive(Debug, Serialize)]
struct JsonUnheld<'a> {
    url: &'a str,
    earlier: JsonEarlier,
}

#[derive(Debug, Serialize)]
struct JsonHolder<'a> {
    id: u64,
    name: &'a str,
    state: &'static str,
    connected: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stripes_bytes: Option<u64>,
}

pub(super) fn locate(args: &WhereArgs) -> Exit {
    args.asking.ask(async |caches: &Caches| {
        let mut exit = Exit::Success;
        for name in &args.objects {
            let asked = dispatcher_name(name).map_err(Exit::usage)?;
            let (found, earlier) = ask(caches, &asked).await?;
            let mut all = String::new();
            for one in &found {
                all += &match args.json {
                    true => json_line(&json(one, earlier))?,
                    false => text(one, earlier),
                };
            }
            match earlier {
                Some(earlier) if found.is_empty() => {
                    all = match args.json {
                        true => json_line(&JsonUnheld { url: &asked, earlier: earlier.into() })?,
                        false => unheld(&asked, earlier),
                    }
                }
                None if found.is_empty() => exit = unknown(name),
                _ => {}
            }
            if let Some(exit) = print(&all) {
                return Ok(exit);
            }
        }
        Ok(exit)
    })
}

/// The objects that a name stands for, at the dispatcher.
pub(super) async fn find(caches: &Caches, name: &str) -> Result<Vec<FoundObject>, Exit> {
    let asked = dispatcher_name(name).map_err(Exit::usage)?;
    Ok(ask(caches, &asked).await?.0)
}

async fn ask(caches: &Caches, name: &str) -> Result<(Vec<FoundObject>, Option<Earlier>), Exit> {
    caches.client.find(caches.instance, name).await.map_err(Exit::client)
}

pub(super) fn unknown(name: &str) -> Exit {
    Exit::usage(format!("no executor holds {name}, and no task waits for it"))
}

/// The one object that a name stands for: if there are several versions of a
/// source, the present one.
pub(super) async fn find_one(caches: &Caches, name: &str) -> Result<FoundObject, Exit> {
    let mut found = find(caches, name).await?;
    found.retain(|found| found.object.holders > 0);
    if found.len() > 1
        && let Ok(url) = StoreUrl::parse(&found[0].object.url)
        && let Ok(now) = Stores::new(std::env::vars()).resolve(&url).await
        && let Some(at) = found.iter().position(|found| *found.object.version == *now.version)
    {
        return Ok(found.swap_remove(at));
    }
    match found.len() {
        0 => Err(Exit::usage(format!("no executor holds {name}"))),
        1 => Ok(found.swap_remove(0)),
        _ => {
            let ids: Vec<String> = found.iter().map(|found| found.object.id.to_string()).collect();
            Err(Exit::usage(format!(
                "there are several versions of {name}: name one by its id, {}",
                ids.join(" or ")
            )))
        }
    }
}

/// The versions of objects that a plan reads and that were put into caches
/// before.
///
/// # Errors
/// One of them does not exist; the error names it.
pub(crate) async fn held_versions(
    client: &Client,
    urls: impl Iterator<Item = &[u8]>,
) -> Result<HeldVersions, Exit> {
    let mut versions = HeldVersions::new();
    let mut exit = None;
    for url in urls {
        let name = String::from_utf8_lossy(url);
        let (mut found, _) = client.find(None, &name).await.map_err(Exit::client)?;
        found.retain(|found| {
            found.object.holders > 0 && found.object.version.starts_with(CONTENT_PREFIX)
        });
        match found.as_slice() {
            [one] => {
                let object = &one.object;
                versions.insert(url.to_vec(), (object.version.clone(), object.size));
            }
            [] => {
                say(format_args!(
                    "{name} is written by no other task, and is not in the executors' caches: \
                     falkon data put puts a file there"
                ));
                exit = Some(Exit::Usage);
            }
            _ => {
                say(format_args!(
                    "there are several objects called {name}: falkon data where {name} shows \
                     them, falkon data rm ID drops one"
                ));
                exit = Some(Exit::Usage);
            }
        }
    }
    exit.map_or(Ok(versions), Err)
}

fn state(holder: &HolderStatus) -> &'static str {
    match holder {
        HolderStatus { holds: true, .. } => "held",
        HolderStatus { lends: 1.., .. } => "stripes",
        HolderStatus { holds: false, .. } => "coming",
    }
}

fn json(found: &FoundObject, earlier: Option<Earlier>) -> JsonFound<'_> {
    JsonFound {
        object: JsonObject::of(&found.object),
        readers: found.readers,
        way: ways::name(found.chosen.way),
        reason: ways::reason(found.chosen, found.cache_bytes),
        earlier: earlier.map(JsonEarlier::from),
        executors: found
            .holders
            .iter()
            .map(|each| JsonHolder {
                id: each.executor.0,
                name: &each.name,
                state: state(each),
                connected: each.connected,
                stripes_bytes: Some(each.lends).filter(|bytes| *bytes > 0),
            })
            .collect(),
    }
}

/// A name of which nothing is held, but something is remembered.
fn unheld(url: &str, earlier: Earlier) -> String {
    let url = url.replace(char::is_control, " ");
    format!("{url}: no executor holds it, and no task waits for it\n{}", earlier_text(earlier))
}

fn earlier_text(Earlier { readers, executors, size }: Earlier) -> String {
    let s = |count: u64| if count == 1 { "" } else { "s" };
    let (readers_s, executors_s) = (s(readers), s(executors));
    let size = bytes_text(size);
    format!(
        "         earlier: {size}, {readers} task{readers_s} on {executors} executor{executors_s}\n"
    )
}

fn text(found: &FoundObject, earlier: Option<Earlier>) -> String {
    let object = &found.object;
    let shown = |text: &str| text.replace(char::is_control, " ");
    let size = object.size.map_or_else(|| "size unknown".to_owned(), bytes_text);
    let readers = match found.readers {
        0 => String::new(),
        1 => ", 1 task to read it".to_owned(),
        readers => format!(", {readers} tasks to read it"),
    };
    let name = match object.url.as_ref() {
        "" => "(the dispatcher does not know its name)".to_owned(),
        url => format!("{} ({})", shown(url), shown(&object.version)),
    };
    let mut text = format!("{} {name}: {size}{readers}\n", object.id);
    let (way, reason) =
        (ways::name(found.chosen.way), ways::reason(found.chosen, found.cache_bytes));
    text.push_str(&format!("         way: {way} ({reason})\n"));
    text.extend(earlier.map(earlier_text));
    for holder in &found.holders {
        let away = if holder.connected { "" } else { " (disconnected)" };
        let lends = match holder.lends {
            0 => String::new(),
            bytes => format!(", {}", bytes_text(bytes)),
        };
        text.push_str(&format!(
            "{:>7}  {:<24} {}{lends}{away}\n",
            holder.executor.0,
            shown(&holder.name),
            state(holder)
        ));
    }
    let told = found.holders.iter().filter(|holder| holder.lends == 0).count() as u64;
    let all = object.holders + object.coming;
    if all > told {
        text.push_str(&format!("         and {} more\n", all - told));
    }
    text
}
