//! Permissions: which role may ask for what.

use super::known::Known;
use super::peer::Peer;
use falkon_core::dispatch::{Explained, Obstacle, Purpose, RequestError, Scope};
use falkon_core::task::{InstanceId, UserId};
use falkon_net::secure::Role;
use falkon_wire::message::{BelowAsk, FromClient, Refusal};

/// The instance that a message is about, if it is about one.
fn instance_of(message: &FromClient) -> Option<InstanceId> {
    match message {
        FromClient::Submit { instance, .. }
        | FromClient::Seal { instance, .. }
        | FromClient::Subscribe { instance, .. }
        | FromClient::Acknowledge { instance, .. }
        | FromClient::Cancel { instance, .. }
        | FromClient::Retry { instance, .. }
        | FromClient::Destroy { instance, .. }
        | FromClient::Withdraw { instance, .. }
        | FromClient::AwaitStaged { instance, .. }
        | FromClient::Pause { instance, .. }
        | FromClient::Prioritize { instance, .. }
        | FromClient::ReachOutput { instance, .. }
        | FromClient::ReachTail { instance, .. }
        | FromClient::AskTail { instance, .. }
        | FromClient::ReadOutput { instance, .. }
        | FromClient::ReleaseOutput { instance, .. }
        | FromClient::Explain { instance, .. }
        | FromClient::Tasks { instance, .. } => Some(*instance),
        FromClient::Status { instance, .. }
        | FromClient::Objects { instance, .. }
        | FromClient::Find { instance, .. }
        | FromClient::Reach { instance, .. }
        | FromClient::Below { instance, .. } => *instance,
        FromClient::Create { .. }
        | FromClient::Forget { .. }
        | FromClient::Events { .. }
        | FromClient::ExplainIdle { .. }
        | FromClient::Stop { .. }
        | FromClient::Drain { .. }
        | FromClient::Provision { .. }
        | FromClient::Unmet { .. }
        | FromClient::ReadPart { .. }
        | FromClient::AwaitParts { .. }
        | FromClient::TellPart { .. }
        | FromClient::LetGo { .. }
        | FromClient::User { .. }
        | FromClient::Restart { .. }
        | FromClient::Subtree { .. } => None,
    }
}

/// The number under which an answer is awaited.
pub(super) fn request_of(message: &FromClient) -> Option<u64> {
    match message {
        FromClient::Create { request, .. }
        | FromClient::Submit { request, .. }
        | FromClient::Seal { request, .. }
        | FromClient::Subscribe { request, .. }
        | FromClient::Cancel { request, .. }
        | FromClient::Retry { request, .. }
        | FromClient::Destroy { request, .. }
        | FromClient::Status { request, .. }
        | FromClient::Tasks { request, .. }
        | FromClient::Explain { request, .. }
        | FromClient::Events { request, .. }
        | FromClient::ExplainIdle { request }
        | FromClient::Objects { request, .. }
        | FromClient::Find { request, .. }
        | FromClient::Forget { request, .. }
        | FromClient::Reach { request, .. }
        | FromClient::ReachOutput { request, .. }
        | FromClient::ReachTail { request, .. }
        | FromClient::AskTail { request, .. }
        | FromClient::ReadOutput { request, .. }
        | FromClient::ReleaseOutput { request, .. }
        | FromClient::ReadPart { request, .. }
        | FromClient::AwaitParts { request }
        | FromClient::LetGo { request, .. }
        | FromClient::Provision { request, .. }
        | FromClient::Subtree { request, .. }
        | FromClient::Withdraw { request, .. }
        | FromClient::AwaitStaged { request, .. }
        | FromClient::Pause { request, .. }
        | FromClient::Prioritize { request, .. }
        | FromClient::Drain { request, .. }
        | FromClient::User { request, .. }
        | FromClient::Restart { request, .. }
        | FromClient::Below { request, .. }
        | FromClient::Stop { request } => Some(*request),
        FromClient::Acknowledge { .. } | FromClient::Unmet { .. } | FromClient::TellPart { .. } => {
            None
        }
    }
}

/// Whether a peer of `role` that created `own` instances on this connection
/// may say `message`.
fn allows(role: Role, own: &Known, message: &FromClient) -> bool {
    let about = instance_of(message);
    let asks = matches!(message, FromClient::Objects { .. } | FromClient::Find { .. });
    let reaches = matches!(message, FromClient::Reach { .. } | FromClient::Below { .. });
    // An object that is put into a cache serves all who may submit.
    let puts = matches!(message, FromClient::Reach { purpose: Purpose::Put, .. });
    // To go before others is not for those others' peers to decide.
    let goes_before = matches!(message, FromClient::Prioritize { priority: 1.., .. });
    match role {
        Role::Client | Role::Instance(_) if goes_before => false,
        Role::Owner => !puts || about.is_none(),
        Role::Client => {
            matches!(message, FromClient::Create { .. })
                || ((asks || reaches) && about.is_none())
                || (!puts && about.is_some_and(|instance| own.contains(instance)))
        }
        Role::Instance(id) => !puts && about == Some(InstanceId(id)),
        Role::Observer => {
            // How tasks are, and why, is what events say of them: no result is among it.
            let looks = matches!(
                message,
                FromClient::Status { .. }
                    | FromClient::Events { .. }
                    | FromClient::ExplainIdle { .. }
                    | FromClient::Tasks { .. }
                    | FromClient::Explain { .. }
            );
            looks || asks
        }
        // Users are asked about by themselves.
        Role::User(_) | Role::Executor => false,
    }
}

/// The data objects that a peer of `role` may know of, who asks about
/// `instance` or about all.
pub(super) fn scope(viewer: Viewer, role: Role, instance: Option<InstanceId>) -> Scope {
    match (role, viewer, instance) {
        (Role::User(_), Viewer::All | Viewer::Reads(_), None) => Scope::All,
        _ => reach_scope(role, instance),
    }
}

/// The data objects that a peer of `role` may go to executors with.
pub(super) fn reach_scope(role: Role, instance: Option<InstanceId>) -> Scope {
    match (role, instance) {
        (_, Some(instance)) => Scope::Of(instance),
        (Role::Owner | Role::Observer, None) => Scope::All,
        (Role::Client | Role::Instance(_) | Role::User(_) | Role::Executor, None) => Scope::Placed,
    }
}

/// Whose instances a peer may know of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Viewer {
    /// Those that its role says, whoever's they are.
    All,
    /// A user's own; of all others how they do.
    Reads(UserId),
    /// A user's own.
    Own(UserId),
}

impl Viewer {
    pub(super) fn of(role: Role, sees_all: impl FnOnce(UserId) -> bool) -> Viewer {
        let Role::User(number) = role else { return Viewer::All };
        let user = UserId(number);
        if sees_all(user) { Viewer::Reads(user) } else { Viewer::Own(user) }
    }

    /// Whether it may know of an instance of `user`.
    pub(super) fn sees(self, user: UserId) -> bool {
        match self {
            Viewer::All | Viewer::Reads(_) => true,
            Viewer::Own(own) => own == user,
        }
    }
}

/// Says why a peer may not say `message`, if it may not; `whose` says whose an instance is. What
/// is another user's is as if it were not there.
pub(super) fn judge(
    viewer: Viewer,
    peer: &Peer,
    whose: impl Fn(InstanceId) -> UserId,
    message: &FromClient,
) -> Result<(), Refusal> {
    let (user, reads) = match viewer {
        Viewer::All if allows(peer.role, &peer.instances, message) => return Ok(()),
        Viewer::All => return Err(Refusal::NotAllowed),
        Viewer::Reads(user) => (user, true),
        Viewer::Own(user) => (user, false),
    };
    let only_owner = |what: &str| Err(Refusal::OwnerOnly(what.to_owned()));
    if let Some(instance) = instance_of(message) {
        // Status has no answer that an instance is not there.
        let is_status = matches!(message, FromClient::Status { .. });
        let looks = matches!(
            message,
            FromClient::Tasks { .. }
                | FromClient::Explain { .. }
                | FromClient::Objects { .. }
                | FromClient::Find { .. }
        );
        return match message {
            _ if is_status => Ok(()),
            _ if whose(instance) != user && !(reads && looks) => {
                Err(Refusal::Request(RequestError::NoInstance(instance)))
            }
            FromClient::Prioritize { priority: 1.., .. } => {
                only_owner("have an instance go before others")
            }
            FromClient::Reach { purpose: Purpose::Put, .. } => Err(Refusal::NotAllowed),
            _ => Ok(()),
        };
    }
    match message {
        FromClient::Create { .. }
        | FromClient::Status { .. }
        | FromClient::Objects { .. }
        | FromClient::Find { .. }
        | FromClient::Reach { purpose: Purpose::Get | Purpose::Put, .. }
        | FromClient::Below { ask: BelowAsk::Read(_), .. } => Ok(()),
        FromClient::Reach { .. } | FromClient::Below { .. } => {
            only_owner("drop objects that were put into caches")
        }
        FromClient::Events { .. } | FromClient::ExplainIdle { .. } if reads => Ok(()),
        FromClient::Events { .. } | FromClient::ExplainIdle { .. } => {
            only_owner("see what happens to the tasks of all")
        }
        FromClient::Forget { .. } => only_owner("have it forgotten what tasks did with objects"),
        FromClient::Drain { .. } => only_owner("drain executors"),
        FromClient::Provision { .. } => only_owner("use the provisioner"),
        FromClient::Stop { .. } => only_owner("stop it"),
        FromClient::Restart { .. } => only_owner("restart it"),
        FromClient::User { .. } => only_owner("manage users"),
        FromClient::Unmet { .. } | FromClient::Subtree { .. } => only_owner("lend executors"),
        // All others are about an instance.
        _ => Err(Refusal::NotAllowed),
    }
}

/// An instance that no dispatcher ever has.
const NOBODYS: InstanceId = InstanceId(u64::MAX);

/// Has a question about an instance that the peer may not know of be one about none.
pub(super) fn hide(viewer: Viewer, whose: impl Fn(InstanceId) -> UserId, message: &mut FromClient) {
    if let FromClient::Status { instance: Some(instance), .. } = message
        && !viewer.sees(whose(*instance))
    {
        *instance = NOBODYS;
    }
}

/// Leaves the numbers of instances out that the peer may not know of.
pub(super) fn hide_turns(
    viewer: Viewer,
    whose: impl Fn(InstanceId) -> UserId,
    explained: &mut [Explained],
) {
    for obstacle in explained.iter_mut().flat_map(|one| one.obstacles.iter_mut()) {
        if let Obstacle::Turn { some, .. } = obstacle {
            some.retain(|instance| viewer.sees(whose(*instance)));
        }
    }
}
