//! The ways that data objects take, in words: of one object, and of all objects
//! of a plan, as `--dry-run` prints them.

use crate::access::connect;
use crate::objects::Resolver;
use crate::plan::Plan;
use crate::results::staged::bytes_text;
use falkon_core::data::declared::{Declared, Lists};
use falkon_core::data::limits::BROADCAST_OBJECT_BYTES_MIN;
use falkon_core::data::object::Object;
use falkon_core::data::way::{Chosen, Input, Lent, Way, Why, of_output, spreads};
use falkon_net::client::ClientError;
use falkon_net::secure::AccessFile;
use falkon_wire::message::ExecutorStatus;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

/// Objects of each group that are named.
const OBJECTS_NAMED_MAX: usize = 3;
/// Objects that a dispatcher is asked about.
const OBJECTS_ASKED_MAX: usize = 64;
/// The longest time for that.
const ASKING_MS_MAX: u64 = 5_000;
/// Characters of a URL that are shown.
const URL_CHARS_MAX: usize = 200;

/// The readers of what a task on each executor reads.
const EACH_EXECUTOR: u64 = u64::MAX;

/// What is known of where a plan would run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Destination {
    /// Its task runs on each executor.
    pub(crate) is_everywhere: bool,
    /// Its policy looks at no cache.
    pub(crate) ignores_places: bool,
    /// How many executors there would be.
    pub(crate) executors: Option<u64>,
    /// What the largest directory of a cache takes.
    pub(crate) cache_bytes: Option<u64>,
    /// What executors lend to what is larger.
    pub(crate) lent: Lent,
}

impl Destination {
    /// Where executors are there: what the largest cache takes, and what they lend.
    fn learn(&mut self, executors: &[ExecutorStatus]) {
        for cache in executors.iter().filter_map(|executor| executor.cache) {
            if cache.object_bytes > 0 {
                self.cache_bytes = self.cache_bytes.max(Some(cache.object_bytes));
            }
            self.lent.bytes = self.lent.bytes.saturating_add(cache.lent_bytes);
            self.lent.most = self.lent.most.max(cache.lent_bytes);
            self.lent.mounts |= cache.mounts;
        }
    }
}

/// A way, for people and programs.
pub(crate) fn name(way: Way) -> &'static str {
    match way {
        Way::Cache => "cache",
        Way::Broadcast => "broadcast",
        Way::Store => "store",
        Way::Striped => "striped",
        Way::Nowhere => "nowhere",
        Way::Kept => "kept",
        Way::Collected => "collected",
        Way::Written => "written",
    }
}

/// Why an object takes its way.
pub(crate) fn reason(chosen: Chosen, cache_bytes: Option<u64>) -> String {
    let large = bytes_text(BROADCAST_OBJECT_BYTES_MIN);
    match chosen.why {
        Why::Small => format!("smaller than {large}"),
        Why::OneReader => "no more than one task reads it".to_owned(),
        Why::OneExecutor => "there is one executor".to_owned(),
        Why::ManyReaders => format!("at least {large}, and several tasks read it"),
        Why::Remembered => {
            format!("at least {large}, and earlier tasks read it on several executors")
        }
        Why::NoSize => "its size is not known beforehand".to_owned(),
        Why::NoVersion => "its source has no version, so it is read anew each time".to_owned(),
        Why::NoPlaces => "the policy first-available looks at no other cache".to_owned(),
        Why::TooLarge => match cache_bytes {
            Some(bytes) => {
                format!("larger than any cache ({}): its tasks would fail", bytes_text(bytes))
            }
            None => "larger than any cache: its tasks would fail".to_owned(),
        },
        Why::Lent => "larger than any cache, and executors lend room for it".to_owned(),
        Why::InPlace => {
            "larger than any cache and all room that is lent: its tasks read the parts \
                         that they need"
                .to_owned()
        }
        Why::NoTarget => "it stays in the caches, for other tasks".to_owned(),
        Why::Member => "its target is a member of an archive".to_owned(),
        Why::Target => "it has a target of its own".to_owned(),
    }
}

/// The objects of a plan, and who reads them.
#[derive(Debug, Default)]
struct Objects {
    read: HashMap<Arc<str>, (Object, u64)>,
    written: HashMap<Arc<str>, Object>,
    /// On how many executors earlier tasks read objects of these names.
    earlier: HashMap<Arc<str>, u64>,
    /// The inputs of one task, each once.
    inputs: Vec<u32>,
}

/// Objects that take one way for one reason.
#[derive(Debug, Default)]
struct Group {
    objects: u64,
    /// The bytes of those whose size is known.
    bytes: u64,
    sized: u64,
    /// The largest, with their readers.
    largest: Vec<(Option<u64>, u64, Arc<str>)>,
}

impl Objects {
    fn add(&mut self, data: &Declared, count: u64) {
        match &data.inputs {
            Lists::Same(items) => self.add_read(data, items, count),
            each @ Lists::Each { .. } => {
                (0..count).for_each(|at| self.add_read(data, each.of(at), 1));
            }
        }
        let mut write = |items: &[u32]| {
            for object in items.iter().filter_map(|item| data.objects.get(*item as usize)) {
                if !self.written.contains_key(&object.url) {
                    self.written.insert(object.url.clone(), object.clone());
                }
            }
        };
        match &data.outputs {
            Lists::Same(items) => write(items),
            each @ Lists::Each { .. } => (0..count).for_each(|at| write(each.of(at))),
        }
    }

    fn add_read(&mut self, data: &Declared, items: &[u32], tasks: u64) {
        self.inputs.clear();
        self.inputs.extend_from_slice(items);
        self.inputs.sort_unstable();
        self.inputs.dedup();
        for object in self.inputs.iter().filter_map(|item| data.objects.get(*item as usize)) {
            match self.read.get_mut(&object.url) {
                Some((_, readers)) => *readers = readers.saturating_add(tasks),
                None => {
                    self.read.insert(object.url.clone(), (object.clone(), tasks));
                }
            }
        }
    }

    /// Asks a dispatcher what its executors have room for, and what it remembers of the
    /// objects on whose way that may have an effect: the largest first, no more than a few.
    async fn ask(&mut self, access: &AccessFile, to: &mut Destination) -> Result<(), ClientError> {
        if !self.read.values().any(|(object, _)| spreads(object)) {
            return Ok(());
        }
        let (client, _deliveries) = connect(access, None).await?;
        to.learn(&client.status(None).await?.executors);
        let changes = |object: &Object| {
            let input = Input::new(object, 1).ignoring_places(to.ignores_places);
            input.earlier_on_executors(u64::MAX).way().why == Why::Remembered
        };
        let read = self.read.values().filter(|(object, readers)| *readers == 1 && changes(object));
        let mut asked: Vec<(Option<u64>, Arc<str>)> =
            read.map(|(object, _)| (object.size, object.url.clone())).collect();
        if asked.is_empty() || to.is_everywhere {
            return Ok(());
        }
        asked.sort_unstable_by(|one, other| other.cmp(one));
        for (_, url) in asked.into_iter().take(OBJECTS_ASKED_MAX) {
            if let (_, Some(earlier)) = client.find(None, &url).await? {
                self.earlier.insert(url, earlier.executors);
            }
        }
        Ok(())
    }

    /// Inputs and outputs, by their ways.
    fn groups(&self, to: Destination) -> [BTreeMap<Chosen, Group>; 2] {
        let mut inputs: BTreeMap<Chosen, Group> = BTreeMap::new();
        for (object, readers) in self.read.values() {
            let readers = if to.is_everywhere { EACH_EXECUTOR } else { *readers };
            let mut input = Input::new(object, readers).ignoring_places(to.ignores_places);
            if let Some(executors) = to.executors {
                input = input.on_executors(executors);
            }
            if let Some(bytes) = to.cache_bytes {
                input = input.in_caches_of(bytes).with_lent(to.lent);
            }
            if let Some(executors) = self.earlier.get(&object.url) {
                input = input.earlier_on_executors(*executors);
            }
            inputs.entry(input.way()).or_default().add(object, readers);
        }
        let mut outputs: BTreeMap<Chosen, Group> = BTreeMap::new();
        for object in self.written.values() {
            let readers = self.read.get(&object.url).map_or(0, |(_, readers)| *readers);
            outputs.entry(of_output(object)).or_default().add(object, readers);
        }
        [inputs, outputs]
    }
}

impl Group {
    fn add(&mut self, object: &Object, readers: u64) {
        self.objects += 1;
        self.bytes = self.bytes.saturating_add(object.size.unwrap_or(0));
        self.sized += u64::from(object.size.is_some());
        // The largest first; of those alike, the one that most tasks read, and by name.
        let one = (object.size, readers, object.url.clone());
        let rank = |(size, readers, _): &(Option<u64>, u64, Arc<str>)| (*size, *readers);
        let precedes =
            |other: &(Option<u64>, u64, Arc<str>)| (rank(other), &one.2) > (rank(&one), &other.2);
        let at = self.largest.partition_point(precedes);
        if at < OBJECTS_NAMED_MAX {
            self.largest.insert(at, one);
            self.largest.truncate(OBJECTS_NAMED_MAX);
        }
    }

    fn write(
        &self,
        (chosen, noun): (Chosen, &str),
        to: Destination,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let s = if self.objects == 1 { "" } else { "s" };
        let size = match self.sized {
            0 => String::new(),
            sized if sized == self.objects => format!(", {}", bytes_text(self.bytes)),
            sized => format!(", {} in {sized} of them", bytes_text(self.bytes)),
        };
        let (way, reason) = (name(chosen.way), reason(chosen, to.cache_bytes));
        writeln!(out, "# {way}: {} {noun}{s}{size}: {reason}", self.objects)?;
        for (size, readers, url) in &self.largest {
            let mut facts: Vec<String> = size.iter().map(|size| bytes_text(*size)).collect();
            match readers {
                0 => {}
                &EACH_EXECUTOR => facts.push("a task on each executor reads it".to_owned()),
                1 => facts.push("1 task reads it".to_owned()),
                readers => facts.push(format!("{readers} tasks read it")),
            }
            let facts =
                if facts.is_empty() { String::new() } else { format!(": {}", facts.join(", ")) };
            writeln!(out, "#   {}{facts}", shown(url))?;
        }
        match self.objects.saturating_sub(self.largest.len() as u64) {
            0 => Ok(()),
            more => writeln!(out, "#   and {more} more"),
        }
    }
}

/// A URL on one line.
fn shown(url: &str) -> String {
    let url = url.replace(char::is_control, " ");
    match url.char_indices().nth(URL_CHARS_MAX) {
        None => url,
        Some((end, _)) => format!("{}…", &url[..end]),
    }
}

/// Writes which ways the objects of a plan take, as comments of a shell. A dispatcher
/// says what it remembers of them, if one is there.
///
/// # Errors
/// Writing fails.
pub(crate) async fn write_ways(
    plan: &Plan,
    mut to: Destination,
    access: Option<&AccessFile>,
    out: &mut dyn Write,
) -> io::Result<()> {
    if !plan.has_objects() {
        return Ok(());
    }
    let mut objects = Objects::default();
    let mut resolver = Resolver::default();
    for submission in plan.submissions() {
        let Some(mut data) = submission.data else { continue };
        resolver.look_over(&mut data).await;
        objects.add(&data, submission.count);
    }
    if let Some(access) = access {
        let most = Duration::from_millis(ASKING_MS_MAX);
        let unknown = match tokio::time::timeout(most, objects.ask(access, &mut to)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("the dispatcher does not answer".to_owned()),
        };
        if let Some(why) = unknown {
            writeln!(
                out,
                "# what executors have room for, and what earlier tasks read, is not known: {}",
                shown(&why)
            )?;
        }
    }
    for (groups, noun) in objects.groups(to).iter().zip(["input", "output"]) {
        for (chosen, group) in groups {
            group.write((*chosen, noun), to, out)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use falkon_core::data::object::ObjectId;

    fn object(url: &str, size: Option<u64>) -> Object {
        Object { id: ObjectId(0), url: url.into(), version: "1-2".into(), size }
    }

    fn written(objects: &Objects, to: Destination) -> String {
        let mut out = Vec::new();
        for (groups, noun) in objects.groups(to).iter().zip(["input", "output"]) {
            for (chosen, group) in groups {
                group.write((*chosen, noun), to, &mut out).unwrap();
            }
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_million_objects_are_a_few_lines() {
        const TASKS: u32 = 100_000;
        let mut all = vec![object("/db", Some(12 << 30))];
        all.extend((0..TASKS).map(|at| object(&format!("/each/{at}"), Some(u64::from(at)))));
        all.extend((0..TASKS).map(|at| object(&format!("/out/{at}"), None)));
        all.push(object("cache:log", None));
        let inputs = Lists::Each {
            // The same twice is one reader.
            items: Arc::new((0..TASKS).flat_map(|at| [0, at + 1, 0]).collect()),
            ends: Arc::new((1..=TASKS).map(|at| 3 * at).collect()),
        };
        let outputs = Lists::Each {
            items: Arc::new((0..TASKS).flat_map(|at| [at + 1 + TASKS, 2 * TASKS + 1]).collect()),
            ends: Arc::new((1..=TASKS).map(|at| 2 * at).collect()),
        };
        let data = Declared { objects: Arc::new(all), inputs, outputs };
        let mut objects = Objects::default();
        objects.add(&data, u64::from(TASKS));
        let text = written(&objects, Destination::default());
        assert_eq!(
            text,
            "# cache: 100000 inputs, 4.7 GiB: smaller than 16.0 MiB\n\
             #   /each/99999: 97.7 KiB, 1 task reads it\n\
             #   /each/99998: 97.7 KiB, 1 task reads it\n\
             #   /each/99997: 97.7 KiB, 1 task reads it\n\
             #   and 99997 more\n\
             # broadcast: 1 input, 12.0 GiB: at least 16.0 MiB, and several tasks read it\n\
             #   /db: 12.0 GiB, 100000 tasks read it\n\
             # kept: 1 output: it stays in the caches, for other tasks\n\
             #   cache:log\n\
             # written: 100000 outputs: it has a target of its own\n\
             #   /out/0\n\
             #   /out/1\n\
             #   /out/10\n\
             #   and 99997 more\n"
        );
        let here =
            Destination { executors: Some(1), cache_bytes: Some(8 << 30), ..Default::default() };
        let text = written(&objects, here);
        let line =
            "# nowhere: 1 input, 12.0 GiB: larger than any cache (8.0 GiB): its tasks would fail\n";
        assert!(text.contains(line), "{text}");
        let wide = Destination { cache_bytes: None, ..here };
        assert!(written(&objects, wide).contains("1 input, 12.0 GiB: there is one executor\n"));
    }
}
