//! How things are below, and when the dispatcher above is told.

use crate::dispatch::Survey;
use crate::limits::RELAY_SURVEY_MICROS;
use crate::task::Time;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Surveyed {
    survey: Survey,
    has_news: bool,
    /// When it was last told in this session.
    told: Option<Time>,
}

impl Surveyed {
    /// A session above begins: it is told anew.
    pub(super) fn connected(&mut self) {
        self.told = None;
        self.has_news = true;
    }

    /// The dispatcher below says how things are; the relay has this name.
    pub(super) fn take(&mut self, mut survey: Survey, name: &str) {
        survey.rename(name);
        if survey != self.survey {
            self.survey = survey;
            self.has_news = true;
        }
    }

    /// The survey that goes with an update, if it is time for one, or `has_changed` says that
    /// there are other nodes or relays. No update is sent for its sake: a heartbeat comes soon
    /// enough.
    pub(super) fn next(&mut self, now: Time, has_changed: bool) -> Option<Box<Survey>> {
        let is_due = self.told.is_none_or(|told| now.since(told) >= RELAY_SURVEY_MICROS);
        if !(is_due || has_changed) || !self.has_news {
            return None;
        }
        (self.told, self.has_news) = (Some(now), false);
        Some(Box::new(self.survey.clone()))
    }
}
