//! Templates: what the dispatcher has announced, for as long as tasks at hand
//! refer to it.

use super::TemplateId;
use super::bundle::Pace;
use crate::dispatch::check::ensure;
use crate::dispatch::{BatchId, CheckError};
use crate::few::Few;
use crate::task::TaskClass;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug)]
struct Template {
    classes: Vec<Arc<TaskClass>>,
    /// Queued and running runs that refer to it.
    uses: u64,
    /// The dispatcher will not refer to it any more.
    forgotten: bool,
    /// How long its calls take.
    pace: Pace,
}

/// A template that nothing refers to any more.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gone(pub(super) TemplateId);

/// The templates of an executor.
#[derive(Debug, Default)]
pub(super) struct Templates {
    /// This session's numbers of templates → ours.
    batches: Few<BatchId, TemplateId>,
    templates: Few<TemplateId, Box<Template>>,
    next: u64,
}

impl Templates {
    /// The dispatcher announces a template; one that had its number may be gone.
    pub(super) fn prepare(
        &mut self,
        batch: BatchId,
        classes: Vec<TaskClass>,
    ) -> (TemplateId, Option<Gone>) {
        let id = TemplateId(self.next);
        self.next += 1;
        let before = self.batches.insert(batch, id);
        let gone = before.and_then(|before| self.set_forgotten(before));
        let mut classes: Vec<Arc<TaskClass>> = classes.into_iter().map(Arc::new).collect();
        classes.shrink_to_fit();
        let pace = Pace::default();
        let template = Template { classes, uses: 0, forgotten: false, pace };
        self.templates.insert(id, Box::new(template));
        (id, gone)
    }

    /// The dispatcher will not refer to a template any more.
    pub(super) fn forget(&mut self, batch: BatchId) -> Option<Gone> {
        let id = self.batches.remove(&batch)?;
        self.set_forgotten(id)
    }

    /// The dispatcher may be another one, to which these numbers mean nothing.
    pub(super) fn forget_all(&mut self) -> Vec<Gone> {
        let batches = std::mem::take(&mut self.batches);
        batches.into_values().filter_map(|id| self.set_forgotten(id)).collect()
    }

    /// The template and the class of tasks that are assigned, if they were
    /// announced.
    pub(super) fn find(&self, batch: BatchId, class: u32) -> Option<(TemplateId, &Arc<TaskClass>)> {
        let id = *self.batches.find(&batch)?;
        let class = self.template(id).classes.get(class as usize)?;
        Some((id, class))
    }

    /// So many runs more refer to a template.
    pub(super) fn add_uses(&mut self, id: TemplateId, runs: u64) {
        self.template_mut(id).uses += runs;
    }

    /// A run refers to its template no more.
    pub(super) fn release(&mut self, id: TemplateId) -> Option<Gone> {
        let template = self.template_mut(id);
        template.uses -= 1;
        self.remove_if_unused(id)
    }

    /// How long a template's calls take.
    pub(super) fn pace(&self, id: TemplateId) -> Pace {
        self.template(id).pace
    }

    /// A call took so long.
    pub(super) fn call_ended(&mut self, id: TemplateId, micros: u64) {
        self.template_mut(id).pace.ended(micros);
    }

    fn set_forgotten(&mut self, id: TemplateId) -> Option<Gone> {
        self.template_mut(id).forgotten = true;
        self.remove_if_unused(id)
    }

    fn remove_if_unused(&mut self, id: TemplateId) -> Option<Gone> {
        let template = self.template(id);
        if template.uses > 0 || !template.forgotten {
            return None;
        }
        self.templates.remove(&id);
        Some(Gone(id))
    }

    fn template(&self, id: TemplateId) -> &Template {
        self.templates.find(&id).unwrap_or_else(|| panic!("template {} is gone", id.0))
    }

    fn template_mut(&mut self, id: TemplateId) -> &mut Template {
        self.templates.find_mut(&id).unwrap_or_else(|| panic!("template {} is gone", id.0))
    }

    /// Every template is there while it is used, and no longer. `uses` has the
    /// template of each run.
    pub(super) fn check(&self, uses: impl Iterator<Item = TemplateId>) -> Result<(), CheckError> {
        let mut counts: BTreeMap<TemplateId, u64> = BTreeMap::new();
        for id in uses {
            *counts.entry(id).or_default() += 1;
        }
        for (id, template) in self.templates.iter() {
            let found = counts.remove(id).unwrap_or_default();
            ensure!(template.uses == found, "template {}: uses are miscounted", id.0);
            ensure!(found > 0 || !template.forgotten, "template {} outlives its uses", id.0);
            let named = self.batches.values().filter(|named| *named == id).count();
            ensure!(named == usize::from(!template.forgotten), "template {}: misnamed", id.0);
        }
        ensure!(counts.is_empty(), "a task's template is gone");
        let known = self.batches.values().all(|id| self.templates.contains_key(id));
        ensure!(known, "a batch's template is gone");
        Ok(())
    }
}
