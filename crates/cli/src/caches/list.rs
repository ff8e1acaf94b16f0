//! `falkon data ls`

use super::name::absolute_pattern;
use super::{Asking, Caches};
use crate::exit::Exit;
use crate::plan::{is_pattern, name_matches};
use crate::query::print;
use crate::results::staged::bytes_text;
use clap::Args;
use falkon_core::dispatch::ObjectStatus;
use falkon_core::task::ExecutorId;
use serde::Serialize;
use std::fmt::Write;

/// `falkon data ls`
#[derive(Args, Debug)]
pub(super) struct ListArgs {
    #[command(flatten)]
    asking: Asking,
    /// Only objects whose URL begins with PATTERN; with * ? [ ] it must match the whole URL,
    /// and * matches slashes too
    #[arg(value_name = "PATTERN")]
    pattern: Option<String>,
    /// Only objects that this executor holds: its name or number
    #[arg(long, value_name = "NAME")]
    executor: Option<String>,
    /// Print a line of JSON per object
    #[arg(long)]
    json: bool,
}

/// The totals of a list.
#[derive(Debug, Default)]
struct Totals {
    objects: u64,
    bytes: u64,
    unsized_objects: u64,
    copies: u64,
    copied_bytes: u64,
}

impl Totals {
    fn add(&mut self, object: &ObjectStatus) {
        self.objects += 1;
        self.copies += object.holders;
        match object.size {
            Some(size) => {
                self.bytes = self.bytes.saturating_add(size);
                let copied = size.saturating_mul(object.holders);
                self.copied_bytes = self.copied_bytes.saturating_add(copied);
            }
            None => self.unsized_objects += 1,
        }
    }

    fn line(&self) -> String {
        let objects = counted(self.objects, "object", "objects");
        let copies = counted(self.copies, "copy", "copies");
        let unknown = match self.unsized_objects {
            0 => String::new(),
            count => format!(" and {count} of unknown size"),
        };
        format!(
            "{objects} of {}{unknown}, {copies} of {}\n",
            bytes_text(self.bytes),
            bytes_text(self.copied_bytes)
        )
    }
}

pub(super) fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// An object, for programs.
#[derive(Debug, Serialize)]
pub(super) struct JsonObject<'a> {
    id: String,
    url: Option<&'a str>,
    version: Option<&'a str>,
    size: Option<u64>,
    holders: u64,
    coming: u64,
    waiting: u64,
}

impl<'a> JsonObject<'a> {
    pub(super) fn of(object: &'a ObjectStatus) -> JsonObject<'a> {
        let is_named = !object.url.is_empty();
        JsonObject {
            id: object.id.to_string(),
            url: is_named.then_some(&object.url),
            version: is_named.then_some(&object.version),
            size: object.size,
            holders: object.holders,
            coming: object.coming,
            waiting: object.waiting,
        }
    }
}

pub(super) fn list(args: ListArgs) -> Exit {
    let asking = args.asking.clone();
    asking.ask(async |caches: &Caches| list_from(&args, caches).await)
}

async fn list_from(args: &ListArgs, caches: &Caches) -> Result<Exit, Exit> {
    let executor = match &args.executor {
        Some(name) => Some(executor_called(caches, name).await?),
        None => None,
    };
    let pattern = absolute_pattern(args.pattern.as_deref().unwrap_or_default());
    let is_glob = is_pattern(pattern.as_bytes());
    // The longest literal beginning of the pattern, without a backslash.
    let literal = pattern.find(['*', '?', '[', '\\']).filter(|_| is_glob);
    let prefix = &pattern[..literal.unwrap_or(pattern.len())];
    let is_meant =
        |object: &ObjectStatus| !is_glob || name_matches(pattern.as_bytes(), object.url.as_bytes());
    let mut totals = Totals::default();
    let mut after = None;
    loop {
        let asked = caches.client.objects(caches.instance, executor, prefix, after);
        let (objects, next) = asked.await.map_err(Exit::client)?;
        let mut text = String::new();
        for object in objects.iter().filter(|object| is_meant(object)) {
            if !args.json && totals.objects == 0 {
                text.push_str("OBJECT                                 SIZE  HELD  WAITING  URL\n");
            }
            totals.add(object);
            match args.json {
                true => text.push_str(&json_line(&JsonObject::of(object))?),
                false => text.push_str(&row(object)),
            }
        }
        if let Some(exit) = print(&text) {
            return Ok(exit);
        }
        match next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    if args.json {
        return Ok(Exit::Success);
    }
    Ok(print(&totals.line()).unwrap_or(Exit::Success))
}

pub(super) fn json_line(value: &impl Serialize) -> Result<String, Exit> {
    let line = serde_json::to_string(value);
    line.map(|line| line + "\n").map_err(|error| Exit::failure(format!("cannot print: {error}")))
}

fn row(object: &ObjectStatus) -> String {
    let size = object.size.map_or_else(|| "?".to_owned(), bytes_text);
    let mut held = object.holders.to_string();
    if object.coming > 0 {
        // Writing to a string cannot fail.
        let _ = write!(held, "+{}", object.coming);
    }
    let url = match object.url.as_ref() {
        "" => "-".to_owned(),
        url => url.replace(char::is_control, " "),
    };
    format!("{} {size:>10} {held:>5} {:>8}  {url}\n", object.id, object.waiting)
}

/// The number of an executor with this name.
async fn executor_called(caches: &Caches, name: &str) -> Result<ExecutorId, Exit> {
    let status = caches.client.status(caches.instance).await.map_err(Exit::client)?;
    let mut named = status.executors.iter().filter(|executor| executor.name == name);
    match (named.next(), named.next()) {
        (Some(executor), None) => Ok(executor.id),
        (Some(_), Some(_)) => Err(Exit::usage(format!(
            "several executors are called `{name}`: give the number that falkon status shows"
        ))),
        (None, _) => {
            let number = name.parse().ok().map(ExecutorId);
            let known = |id: &ExecutorId| status.executors.iter().any(|found| found.id == *id);
            let number = number.filter(known);
            number.ok_or_else(|| Exit::usage(format!("there is no executor `{name}`")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use falkon_core::data::object::ObjectId;

    fn object(size: Option<u64>, holders: u64, coming: u64) -> ObjectStatus {
        ObjectStatus {
            id: ObjectId(1),
            url: "/data/a\nb".into(),
            version: "1-2".into(),
            size,
            holders,
            coming,
            waiting: 3,
        }
    }

    #[test]
    fn rows_and_totals_add_up() {
        let line = row(&object(Some(2048), 2, 1));
        assert!(
            line.starts_with("00000000000000000000000000000001    2.0 KiB   2+1        3"),
            "{line}"
        );
        assert!(line.ends_with("  /data/a b\n"), "{line}");
        let mut totals = Totals::default();
        assert_eq!(totals.line(), "0 objects of 0 B, 0 copies of 0 B\n");
        totals.add(&object(Some(2048), 3, 0));
        assert_eq!(totals.line(), "1 object of 2.0 KiB, 3 copies of 6.0 KiB\n");
        totals.add(&object(None, 1, 0));
        let text = "2 objects of 2.0 KiB and 1 of unknown size, 4 copies of 6.0 KiB\n";
        assert_eq!(totals.line(), text);
    }
}
