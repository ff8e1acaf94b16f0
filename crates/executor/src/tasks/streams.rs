//! Tasks whose output streams are members of archives: their ends name these.

use super::{Prepared, Tasks};
use falkon_core::archive::split_member;
use falkon_core::execute::{CollectAction, CollectEvent, Event, Start, TaskKey};
use falkon_core::limits::URL_BYTES_MAX;
use falkon_core::result::{Captured, Detail, Outcome, Stream};
use falkon_core::task::{Kind, TaskId};
use falkon_wire::command::Template;
use falkon_wire::declared::is_inner_name;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where the streams of started tasks go: `ARCHIVE!NAME`.
pub(super) type StreamPlaces = BTreeMap<TaskKey, Vec<u8>>;

impl Tasks {
    /// Notes where the streams of tasks go that are to start.
    pub(super) fn note_streams(&mut self, start: &Start) {
        if !matches!(start.class.kind, Kind::Process | Kind::Function) {
            return;
        }
        let Some(Ok(Prepared { template, .. })) = self.templates.get(&start.template) else {
            return;
        };
        let differ = matches!(template, Template::Each);
        let first = (start.key, start.count, &start.rows, start.row);
        let more = start.more.iter().map(|more| (more.key, more.count, &more.rows, more.row));
        for (first, count, rows, row) in std::iter::once(first).chain(more) {
            for at in 0..count {
                let number = first.task.0 + at;
                // A command that cannot be read ends its task when it is to start.
                match template.streams(rows, row + at, number + 1) {
                    Ok(Some(place)) => {
                        let key = TaskKey { task: TaskId(number), ..first };
                        self.stream_places.insert(key, place);
                    }
                    Ok(None) if !differ => return,
                    Ok(None) | Err(_) => {}
                }
            }
        }
    }

    /// Carries out what is to be done with outputs that are collected.
    pub(crate) fn collect(&mut self, action: CollectAction) {
        match &mut self.objects {
            Some(objects) => {
                let answer = objects.collect(action);
                self.events.extend(answer.map(Event::Collect));
            }
            None => self.not_collected(&action),
        }
    }

    /// An output is not staged, as this executor has no place for it.
    fn not_collected(&mut self, action: &CollectAction) {
        if let CollectAction::Stage { item, .. } | CollectAction::StageStream { item, .. } = action
        {
            let error = "this executor has no place for outputs that are collected".to_owned();
            let event = CollectEvent::Staged { item: *item, result: Err(error) };
            self.events.push_back(Event::Collect(event));
        }
    }

    /// An event for the core, with the places of the streams of a task that has
    /// ended.
    pub(crate) fn with_stream_places(&mut self, event: Event) -> Event {
        self.answer_visitors(&event);
        if self.stream_places.is_empty() {
            return event;
        }
        match event {
            Event::Ended { key, mut outcome, started, ended, mut detail } => {
                if let Some(place) = self.stream_places.remove(&key)
                    && let Some(said) = detail.take()
                {
                    let mut said = Arc::unwrap_or_clone(said);
                    if let Err(error) = name_members(&mut said, &place) {
                        said.error = error;
                        if outcome == Outcome::Exit(0) {
                            outcome = Outcome::NoOutput;
                        }
                    }
                    detail = Some(Arc::new(said));
                }
                Event::Ended { key, outcome, started, ended, detail }
            }
            event => {
                match &event {
                    Event::TakenBack(key) => self.forget_streams(*key, 1),
                    Event::Returned { key, count } => self.forget_streams(*key, *count),
                    Event::Unstarted(start) => self.forget_streams(start.key, start.count),
                    _ => {}
                }
                event
            }
        }
    }

    /// Tasks do not begin.
    fn forget_streams(&mut self, first: TaskKey, count: u64) {
        let until = TaskKey { task: TaskId(first.task.0.saturating_add(count)), ..first };
        let keys: Vec<TaskKey> =
            self.stream_places.range(first..until).map(|(key, _)| *key).collect();
        for key in keys {
            self.stream_places.remove(&key);
        }
    }
}

/// Names the members that a task's streams are to be; there is none for an empty
/// stream.
fn name_members(detail: &mut Detail, place: &[u8]) -> Result<(), String> {
    for (stream, captured) in
        [(Stream::Stdout, &mut detail.stdout), (Stream::Stderr, &mut detail.stderr)]
    {
        if captured.total_bytes == 0 {
            continue;
        }
        let member = member(place, stream).ok_or_else(|| {
            let place = String::from_utf8_lossy(place);
            format!(
                "what it has printed cannot be a member of an archive at `{place}`: give an \
                 absolute path that ends in .zip, and a name without `..` behind it"
            )
        })?;
        *captured = Captured { member: Some(member.into()), ..std::mem::take(captured) };
    }
    Ok(())
}

fn member(place: &[u8], stream: Stream) -> Option<String> {
    let member = format!("{}/{}", std::str::from_utf8(place).ok()?, stream.name());
    let (archive, name) = split_member(&member)?;
    let is_sound = archive.starts_with('/') && is_inner_name(name.as_bytes());
    (is_sound && member.len() <= URL_BYTES_MAX).then_some(member)
}
