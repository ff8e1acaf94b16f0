//! Updates to the dispatcher: what is to be sent, and what is sent and not
//! acknowledged.

use super::Executor;
use crate::collect::Unwritten;
use crate::data::declared::Pace;
use crate::data::stage::Changes;
use crate::dispatch::check::ensure;
use crate::dispatch::{CheckError, Held, Update};
use crate::gang::GangReport;
use crate::limits::{
    HELD_GANGS_MAX, HELD_REPORTS_MAX, REPORTS_APART_MICROS, REPORTS_HELD_BYTES_MAX,
    UNANSWERED_MESSAGES_MAX, UPDATE_BYTES_MAX, UPDATE_REPORTS_MAX, UPDATE_RUNS_MAX,
};
use crate::result::Report;
use crate::task::Time;
use std::collections::VecDeque;

impl Executor {
    /// The update to send now, if there is one.
    pub(super) fn next_update(&mut self) -> Option<Update> {
        if self.reports_held_until().is_some() {
            return None;
        }
        let changes = self.cache_changes();
        let kept = match self.overflows.is_telling() {
            true => self.overflows.next(),
            false => Vec::new(),
        };
        let staged = Staged { now: self.collecting.next(), lost: Vec::new() };
        let unwritten = self.collecting.unwritten();
        let pace = self.entrusted.take_pace();
        self.updates.next_update(changes, kept, staged, (unwritten, pace))
    }

    /// Until when reports wait for those that follow them, if they do. The
    /// dispatcher wakes for each update, the client behind it, and then this
    /// executor for the answer. While all room here is taken and more tasks
    /// are queued, none of them can change what runs next; so they are told
    /// together, the first after a pause at once.
    pub(super) fn reports_held_until(&self) -> Option<Time> {
        let until = self.heartbeats.last_spoke().after(REPORTS_APART_MICROS);
        let held = self.connected
            && !self.is_leaving()
            && until > self.now
            && self.room.is_full()
            && !self.queue.is_empty()
            && !self.updates.is_full()
            && !self.overflows.is_telling()
            && !self.collecting.has_news()
            && !self.entrusted.has_pace()
            && self.updates.has_only_reports(self.collecting.is_telling());
        held.then_some(until)
    }
}

/// What an update says of tasks whose outputs are staged.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    /// They are.
    pub(crate) now: Vec<Held>,
    /// They were, below a relay, and are lost.
    pub(crate) lost: Vec<Held>,
}

impl Staged {
    fn is_empty(&self) -> bool {
        self.now.is_empty() && self.lost.is_empty()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Updates {
    /// Not sent yet.
    pending: VecDeque<Report>,
    /// Sent in this session under a number, not acknowledged.
    sent: VecDeque<(u64, Vec<Report>)>,
    sent_reports: usize,
    next_number: u64,
    returned: Vec<Held>,
    recalled: bool,
    leaving: bool,
    heartbeat: bool,
    gangs: Vec<GangReport>,
    bytes: u64,
}

fn size(report: &Report) -> u64 {
    size_of::<Report>() as u64 + report.detail.as_ref().map_or(0, |detail| detail.bytes())
}

impl Updates {
    /// Gives memory back that is kept for reports to come.
    pub(super) fn give_memory_back(&mut self) {
        if self.pending.is_empty() {
            self.pending = VecDeque::new();
        }
        if self.sent.is_empty() {
            self.sent = VecDeque::new();
        }
    }

    pub(crate) fn push(&mut self, mut report: Report) {
        report.bound();
        self.bytes += size(&report);
        // Instant tasks of one run that was cut up come together again.
        if report.detail.is_none()
            && let Some(last) = self.pending.back_mut()
            && last.first.0 + last.count == report.first.0
            && (Report { first: last.first, count: last.count, ..report.clone() }) == *last
        {
            last.count += report.count;
            self.bytes -= size(&report);
            return;
        }
        self.pending.push_back(report);
    }

    pub(crate) fn give_back(&mut self, held: Held) {
        self.returned.push(held);
    }

    pub(crate) fn recalled(&mut self) {
        self.recalled = true;
    }

    pub(crate) fn leaving(&mut self) {
        self.leaving = true;
    }

    pub(crate) fn heartbeat(&mut self) {
        self.heartbeat = true;
    }

    pub(super) fn gang(&mut self, report: GangReport) {
        self.gangs.push(report);
    }

    /// The dispatcher is so far behind that nothing more should start.
    pub(crate) fn is_full(&self) -> bool {
        let reports = self.pending.len() + self.sent_reports;
        self.bytes > REPORTS_HELD_BYTES_MAX || reports >= HELD_REPORTS_MAX
    }

    /// Whether the dispatcher has as many messages with reports to take in as go ahead of its
    /// answer, and the reports that follow fit in one more. They are told together then: one
    /// that hears of a thousand relays at once takes in few long messages sooner than many
    /// short ones.
    pub(crate) fn is_awaited(&self) -> bool {
        self.sent.len() >= UNANSWERED_MESSAGES_MAX
            && self.pending.len() < UPDATE_REPORTS_MAX
            && self.bytes < UPDATE_BYTES_MAX
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
            && self.sent.is_empty()
            && self.returned.is_empty()
            && self.gangs.is_empty()
    }

    /// Whether there are reports to send, or tasks to tell of whose outputs are
    /// staged, and nothing else.
    pub(crate) fn has_only_reports(&self, is_staged_told: bool) -> bool {
        (!self.pending.is_empty() || is_staged_told)
            && self.returned.is_empty()
            && self.gangs.is_empty()
            && !self.recalled
            && !self.leaving
            && !self.heartbeat
    }

    /// The next message, if there is anything to say.
    pub(crate) fn next_update(
        &mut self,
        cache: Option<Box<Changes>>,
        kept: Vec<(u64, u64)>,
        staged: Staged,
        (unwritten, pace): (Option<Vec<Unwritten>>, Option<Pace>),
    ) -> Option<Update> {
        if cache.is_none()
            && kept.is_empty()
            && staged.is_empty()
            && unwritten.is_none()
            && pace.is_none()
            && self.pending.is_empty()
            && self.returned.is_empty()
            && self.gangs.is_empty()
            && !self.recalled
            && !self.leaving
            && !self.heartbeat
        {
            return None;
        }
        let returned = self.returned.len().min(UPDATE_RUNS_MAX);
        let returned: Vec<Held> = self.returned.drain(..returned).collect();
        let gives_back_more = !self.returned.is_empty();
        let gangs = self.gangs.len().min(HELD_GANGS_MAX);
        let gangs: Vec<GangReport> = self.gangs.drain(..gangs).collect();
        let alone = cache.is_none() && kept.is_empty() && staged.is_empty() && returned.is_empty();
        let reports = self.take_pending(alone);
        self.next_number += 1;
        if !reports.is_empty() {
            self.sent_reports += reports.len();
            self.sent.push_back((self.next_number, reports.clone()));
        }
        self.heartbeat = false;
        Some(Update {
            subtree: None,
            survey: None,
            gangs,
            unwritten,
            pace,
            cache,
            kept,
            staged: staged.now,
            unstaged: staged.lost,
            number: self.next_number,
            reports,
            returned,
            // Both say that nothing more is given back.
            recalled: !gives_back_more && std::mem::take(&mut self.recalled),
            leaving: !gives_back_more && std::mem::take(&mut self.leaving),
        })
    }

    /// The reports of the next message. One that is longer than a message's
    /// worth of reports goes if the message has nothing else in it.
    fn take_pending(&mut self, alone: bool) -> Vec<Report> {
        let mut bytes = 0;
        let mut reports = Vec::new();
        while let Some(report) = self.pending.front() {
            bytes += size(report);
            if reports.len() >= UPDATE_REPORTS_MAX
                || (bytes > UPDATE_BYTES_MAX && !(alone && reports.is_empty()))
            {
                break;
            }
            reports.extend(self.pending.pop_front());
        }
        reports
    }

    /// The dispatcher has taken in the updates up to this number. Gives their
    /// reports.
    pub(crate) fn acknowledged(&mut self, number: u64) -> Vec<Report> {
        let mut acknowledged = Vec::new();
        while let Some((sent, reports)) = self.sent.front_mut() {
            if *sent > number {
                break;
            }
            self.bytes -= reports.iter().map(size).sum::<u64>();
            self.sent_reports -= reports.len();
            match acknowledged.is_empty() {
                true => std::mem::swap(&mut acknowledged, reports),
                false => acknowledged.append(reports),
            }
            self.sent.pop_front();
        }
        acknowledged
    }

    /// What is held adds up.
    pub(crate) fn check(&self) -> Result<(), CheckError> {
        let sent = self.sent.iter().flat_map(|(_, reports)| reports);
        let count = sent.clone().count();
        ensure!(count == self.sent_reports, "{count} reports were sent, not {}", self.sent_reports);
        let bytes: u64 = sent.chain(&self.pending).map(size).sum();
        ensure!(bytes == self.bytes, "reports hold {bytes} bytes, not {}", self.bytes);
        Ok(())
    }

    /// The session is over: what was not acknowledged is to be sent again.
    pub(crate) fn disconnected(&mut self) {
        for (_, reports) in std::mem::take(&mut self.sent).into_iter().rev() {
            for report in reports.into_iter().rev() {
                self.pending.push_front(report);
            }
        }
        self.sent_reports = 0;
        self.next_number = 0;
        self.returned.clear();
        self.gangs.clear();
        self.recalled = false;
        self.leaving = false;
        self.heartbeat = false;
    }

    /// A session begins: the reports to register with, and the tasks whose
    /// reports follow later; all of them, if the dispatcher is to hear of
    /// something else first.
    pub(crate) fn connected(&mut self, all_later: bool) -> (Vec<Report>, Vec<Held>) {
        // A session begins with all that is held. What was given back since the one
        // before it ended is not among that, and must not be given back again: it may
        // have been sent here anew.
        self.returned.clear();
        self.gangs.clear();
        self.recalled = false;
        let reports = if all_later { Vec::new() } else { self.take_pending(false) };
        if !reports.is_empty() {
            self.sent_reports += reports.len();
            self.sent.push_back((0, reports.clone()));
        }
        let later = self
            .pending
            .iter()
            .map(|report| Held {
                instance: report.instance,
                first: report.first,
                count: report.count,
                tries: report.tries,
            })
            .collect();
        (reports, later)
    }
}
