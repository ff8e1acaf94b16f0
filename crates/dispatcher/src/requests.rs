//! Requests of clients: some go to the core as events, the others are answered
//! at once.

use super::permission::Viewer;
use super::{Driver, answers, permission};
use falkon_core::data::object::Object;
use falkon_core::dispatch::{AckEvent, ConnectionId, Event, Purpose};
use falkon_core::limits::URL_BYTES_MAX;
use falkon_core::tail::{OutputQuestion, TailQuestion};
use falkon_core::task::{TaskKey, Time};
use falkon_net::ids::object_id;
use falkon_provision::AskError;
use falkon_wire::message::{FromClient, Refusal, ToClient};
use falkon_wire::provision::{ProvisionAsk, ProvisionStatus};

/// A refusal if one of the objects goes by another id than that of its URL and
/// version: the core compares ids alone, and would take one for another. The
/// core refuses URLs that are too long, and these are not repeated here.
fn wrong_id<'a>(objects: impl IntoIterator<Item = &'a Object>) -> Option<Refusal> {
    let is_misnamed = |object: &&Object| {
        object.url.len() <= URL_BYTES_MAX && object_id(&object.url, &object.version) != object.id
    };
    let object = objects.into_iter().find(is_misnamed)?;
    Some(Refusal::WrongId { id: object.id, url: object.url.clone() })
}

impl Driver {
    fn ask_provisioner(&mut self, now: Time, request: u64, ask: ProvisionAsk) -> ToClient {
        let sites = match &ask {
            ProvisionAsk::Status { queue: None, .. } => self.core.sites_below().cloned().collect(),
            _ => Vec::new(),
        };
        let asked = match &mut self.provision {
            Some(provision) => provision.ask(now, ask),
            None if !sites.is_empty() => Ok(Some(ProvisionStatus { now, ..Default::default() })),
            None => Err(AskError::NoProvisioner),
        };
        match asked {
            Ok(Some(status)) => {
                let status = ProvisionStatus { sites, ..status };
                ToClient::Provision { request, status }
            }
            Ok(None) => ToClient::Done { request },
            Err(error) => {
                ToClient::Refused { request, reason: Refusal::Provision(error.to_string()) }
            }
        }
    }

    pub(super) fn client_says(
        &mut self,
        now: Time,
        connection: ConnectionId,
        mut message: FromClient,
    ) {
        self.note_action(now, connection, permission::request_of(&message), &message);
        let Some(peer) = self.peers.get(&connection) else { return };
        let whose = |instance| self.core.user_of(instance);
        let viewer = Viewer::of(peer.role, |user| self.users.sees_all(user));
        if let Err(reason) = permission::judge(viewer, peer, whose, &message) {
            let line = format!("refused a request of {}: {reason}", peer.name);
            self.log_refused(now, peer.role, line);
            if let Some(request) = permission::request_of(&message) {
                self.push(connection, ToClient::Refused { request, reason });
            }
            return;
        }
        // One that another user has is as one that there is not.
        permission::hide(viewer, whose, &mut message);
        if answers::is_question(&message) && !self.may_ask(connection) {
            if let Some(request) = permission::request_of(&message) {
                self.push(connection, ToClient::Refused { request, reason: Refusal::Busy });
            }
            return;
        }
        let Some(peer) = self.peers.get_mut(&connection) else { return };
        let event = match message {
            FromClient::Create { request, options } => {
                Event::Create { connection, request, options }
            }
            FromClient::Submit { request, instance, first, client, submission } => {
                let objects = submission.data.iter().flat_map(|data| data.objects.iter());
                if let Some(reason) = wrong_id(objects) {
                    self.push(connection, ToClient::Refused { request, reason });
                    return;
                }
                Event::Submit { connection, request, instance, first, client, submission }
            }
            FromClient::Seal { request, instance } => Event::Seal { connection, request, instance },
            FromClient::Forget { request, name } => Event::Forget { connection, request, name },
            FromClient::Subscribe { request, instance, from } => {
                self.acks.handle(now, AckEvent::Subscribed(connection));
                Event::Subscribe { connection, request, instance, from }
            }
            FromClient::Acknowledge { instance, upto } => {
                Event::Acknowledge { connection, instance, upto }
            }
            FromClient::Cancel { request, instance, selection } => {
                Event::Cancel { connection, request, instance, selection }
            }
            FromClient::Retry { request, instance, selection } => {
                Event::Retry { connection, request, instance, selection }
            }
            FromClient::Destroy { request, instance } => {
                if self.core.instance_view(instance).is_some() {
                    self.doors.shut_instance(instance);
                }
                Event::Destroy { connection, request, instance }
            }
            FromClient::Status { request, instance, from } => {
                if self.refuses_expired(now, connection, request, instance) {
                    return;
                }
                let status = self.status(viewer, instance, from);
                self.answer_question(connection, request, ToClient::Status { request, status });
                return;
            }
            FromClient::Events { request, from } => {
                self.ask_for_events(connection, request, from);
                return;
            }
            FromClient::Tasks { request, instance, first, count } => {
                if self.refuses_expired(now, connection, request, Some(instance)) {
                    return;
                }
                let tasks = self.tasks(instance, first, count);
                self.answer_question(connection, request, ToClient::Tasks { request, tasks });
                return;
            }
            FromClient::ExplainIdle { request } => {
                let idle = self.core.explain_idle();
                self.answer_question(connection, request, ToClient::Idle { request, idle });
                return;
            }
            FromClient::Explain { request, instance, task } => {
                if self.refuses_expired(now, connection, request, Some(instance)) {
                    return;
                }
                let mut explained = self.core.explain(instance, task);
                permission::hide_turns(viewer, |id| self.core.user_of(id), &mut explained);
                let answer = ToClient::Explained { request, explained };
                self.answer_question(connection, request, answer);
                return;
            }
            FromClient::Objects { request, instance, executor, prefix, after } => {
                let scope = permission::scope(viewer, peer.role, instance);
                let (objects, next) = self.core.objects(scope, executor, &prefix, after);
                let answer = ToClient::Objects { request, objects, next };
                self.answer_question(connection, request, answer);
                return;
            }
            FromClient::Find { request, instance, name } => {
                let scope = permission::scope(viewer, peer.role, instance);
                let found = self.core.find_objects(scope, &name);
                let earlier = self.core.earlier(scope, &name, &found);
                let answer = ToClient::Found { request, found, earlier };
                self.answer_question(connection, request, answer);
                return;
            }
            FromClient::Reach { request, instance, object, purpose } => {
                let scope = permission::reach_scope(peer.role, instance);
                // An object that is put goes by the request's own words, all others
                // by those that are known under the id.
                let wrong_id = (purpose == Purpose::Put).then(|| wrong_id([&object])).flatten();
                let answer = match wrong_id {
                    Some(reason) => ToClient::Refused { request, reason },
                    None => self.reach(request, scope, &object, purpose),
                };
                self.answer_question(connection, request, answer);
                return;
            }
            FromClient::Below { request, instance, ask } => {
                let scope = permission::reach_scope(peer.role, instance);
                match self.below(connection, request, scope, ask) {
                    Ok(event) => event,
                    Err(reason) => {
                        let answer = ToClient::Refused { request, reason };
                        self.answer_question(connection, request, answer);
                        return;
                    }
                }
            }
            FromClient::ReachOutput { request, instance, task, stream } => {
                let answer = self.reach_output(request, instance, task, stream);
                self.answer_question(connection, request, answer);
                return;
            }
            FromClient::ReachTail { request, instance, task, stream } => {
                let answer = self.reach_tail(request, instance, task, stream);
                self.answer_question(connection, request, answer);
                return;
            }
            FromClient::AskTail { request, instance, task, stream, from, patience_ms } => {
                let task = TaskKey { instance, task };
                let question = TailQuestion { task, stream, from, patience_ms };
                Event::AskTail { connection, request, question }
            }
            FromClient::ReadOutput { request, instance, task, stream, from, count } => {
                let task = TaskKey { instance, task };
                let question = OutputQuestion { task, stream, from, count };
                Event::ReadOutput { connection, request, question }
            }
            FromClient::ReleaseOutput { request, instance, runs } => {
                Event::ReleaseOutput { connection, request, instance, runs }
            }
            FromClient::ReadPart { request, question } => {
                Event::ReadPartBelow { connection, request, question }
            }
            FromClient::AwaitParts { request } => Event::AwaitParts { connection, request },
            FromClient::TellPart { number, answer } => {
                Event::PartTold { connection, number, answer }
            }
            FromClient::LetGo { request, objects } => Event::LetGo { connection, request, objects },
            FromClient::Pause { request, instance, is_paused } => {
                Event::Pause { connection, request, instance, is_paused }
            }
            FromClient::Prioritize { request, instance, priority } => {
                Event::Prioritize { connection, request, instance, priority }
            }
            FromClient::Drain { request, executor, is_drained } => {
                Event::Drain { connection, request, executor, is_drained }
            }
            FromClient::Withdraw { request, instance, count } => {
                Event::Withdraw { connection, request, instance, count }
            }
            FromClient::AwaitStaged { request, instance } => {
                Event::AwaitStaged { connection, request, instance }
            }
            FromClient::Unmet { waiting } => Event::Unmet { connection, waiting },
            FromClient::Subtree { request, relay, since } => {
                let (subtree, holdings) = (self.core.subtree(relay), self.core.holdings(since));
                let provision = self.provision.as_ref();
                let sites = || provision.map_or_else(Vec::new, |own| own.sites(now));
                let survey = Box::new(self.core.survey(now, sites));
                let answer = ToClient::Subtree { request, subtree, holdings, survey };
                self.answer_question(connection, request, answer);
                return;
            }
            FromClient::Provision { request, ask } => {
                let answer = self.ask_provisioner(now, request, ask);
                self.answer_question(connection, request, answer);
                return;
            }
            FromClient::User { request, ask } => {
                self.ask_about_users(connection, request, ask);
                return;
            }
            FromClient::Restart { request, ask } => {
                self.ask_about_program(connection, request, ask);
                return;
            }
            FromClient::Stop { request } => {
                self.begin_stop(connection, request);
                return;
            }
        };
        self.core.handle(now, event);
    }
}
