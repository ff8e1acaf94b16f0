//! `falkon user`: the users of a dispatcher.

mod totals;

use crate::access::AccessArgs;
use crate::exit::Exit;
use crate::plan::memory_bytes;
use crate::query::{print, printable, with_access, with_client};
use crate::results::staged::bytes_text;
use clap::{Args, Subcommand};
use falkon_core::dispatch::UserLimits;
use falkon_net::client::{Client, ClientError};
use falkon_net::secure::{AccessFile, Secret};
use falkon_wire::message::{QuotaChange, Status, UserAsk, UserChange, UserStatus};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

pub(crate) use totals::{Totals, totals};

/// `falkon user`
#[derive(Args, Debug)]
pub(crate) struct UserArgs {
    #[command(subcommand)]
    command: UserCommand,
}

#[derive(Subcommand, Debug)]
enum UserCommand {
    /// Add a user, and write the access file to hand out
    Add(AddArgs),
    /// Change what a user may have, at once
    Set(SetArgs),
    /// Write a user's access file again, with the dispatcher's current address
    Access(WriteArgs),
    /// Remove a user: the user's connections end at once, and the access file opens nothing
    Revoke(RevokeArgs),
    /// List users with what they may have and have
    List(ListArgs),
}

/// The file that is written.
#[derive(Args, Debug)]
struct WriteArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// Who
    #[arg(value_name = "NAME")]
    name: String,
    /// The file to write [default: access-user-NAME.json beside the owner's access file]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Args, Debug)]
struct AddArgs {
    #[command(flatten)]
    write: WriteArgs,
    /// Share of the executors beside other users, whose own is 1 unless it was set
    #[arg(long, value_name = "W", default_value_t = 1)]
    share: u32,
    /// Most tasks that are queued and run at a time
    #[arg(long, value_name = "N")]
    tasks_max: Option<u64>,
    /// Most CPUs that tasks use at a time
    #[arg(long, value_name = "N")]
    slots_max: Option<u64>,
    /// Most bytes of results that are held, and of queued tasks
    #[arg(long, value_name = "SIZE", value_parser = memory_bytes)]
    bytes_max: Option<u64>,
    /// Most instances that are there at a time [default: 1000]
    #[arg(long, value_name = "N")]
    instances_max: Option<u64>,
    /// Let the user see how everybody's instances and tasks are, without results
    #[arg(long)]
    sees_all: bool,
}

#[derive(Args, Debug)]
#[group(id = "change", required = true, multiple = true, args = [
    "share", "tasks_max", "slots_max", "bytes_max", "instances_max", "sees_all",
])]
struct SetArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// Who
    #[arg(value_name = "NAME")]
    name: String,
    /// Share of the executors beside other users
    #[arg(long, value_name = "W")]
    share: Option<u32>,
    /// Most tasks that are queued and run at a time
    #[arg(long, value_name = "N|none", value_parser = quota)]
    tasks_max: Option<QuotaChange>,
    /// Most CPUs that tasks use at a time
    #[arg(long, value_name = "N|none", value_parser = quota)]
    slots_max: Option<QuotaChange>,
    /// Most bytes of results that are held, and of queued tasks
    #[arg(long, value_name = "SIZE|none", value_parser = quota_of_bytes)]
    bytes_max: Option<QuotaChange>,
    /// Most instances that are there at a time; none is the default again
    #[arg(long, value_name = "N|none", value_parser = quota)]
    instances_max: Option<QuotaChange>,
    /// Whether the user sees how everybody's instances and tasks are, without results
    #[arg(long, value_name = "true|false")]
    sees_all: Option<bool>,
}

/// The word for a quota that is lifted.
const NONE: &str = "none";

fn quota(text: &str) -> Result<QuotaChange, String> {
    match text {
        NONE => Ok(QuotaChange::Lift),
        number => number
            .parse()
            .map(QuotaChange::Set)
            .map_err(|error| format!("{error}; it takes a number, or {NONE} for no quota")),
    }
}

fn quota_of_bytes(text: &str) -> Result<QuotaChange, String> {
    match text {
        NONE => Ok(QuotaChange::Lift),
        size => memory_bytes(size).map(QuotaChange::Set).map_err(|error| error.to_string()),
    }
}

#[derive(Args, Debug)]
struct RevokeArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// Who
    #[arg(value_name = "NAME")]
    name: String,
    /// Let the user's tasks go on [default: those that have not ended are cancelled]
    #[arg(long)]
    keep: bool,
}

#[derive(Args, Debug)]
struct ListArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// Print a line of JSON per user
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn user(args: UserArgs) -> Exit {
    match args.command {
        UserCommand::Add(args) => {
            let AddArgs { write, share, .. } = args;
            let AddArgs { tasks_max, slots_max, bytes_max, instances_max, sees_all, .. } = args;
            let limits = UserLimits { share, tasks_max, slots_max, bytes_max, instances_max };
            let name = write.name.clone();
            write.ask(UserAsk::Add { name, limits, sees_all })
        }
        UserCommand::Set(args) => {
            let SetArgs { access, name, share, sees_all, .. } = args;
            let change = UserChange {
                share,
                tasks_max: args.tasks_max.unwrap_or_default(),
                slots_max: args.slots_max.unwrap_or_default(),
                bytes_max: args.bytes_max.unwrap_or_default(),
                instances_max: args.instances_max.unwrap_or_default(),
                sees_all,
            };
            with_client(&access, None, async |client: Client| {
                client.set_user(name, change).await?;
                Ok(Exit::Success)
            })
        }
        UserCommand::Access(write) => {
            let name = write.name.clone();
            write.ask(UserAsk::Access { name })
        }
        UserCommand::Revoke(RevokeArgs { access, name, keep }) => {
            with_client(&access, None, async |client: Client| {
                client.revoke_user(name, keep).await?;
                Ok(Exit::Success)
            })
        }
        UserCommand::List(ListArgs { access, json }) => {
            with_client(&access, None, async |client: Client| {
                let users = client.users().await?;
                let text = match json {
                    true => users.iter().map(|user| format!("{}\n", as_json(user))).collect(),
                    false if users.is_empty() => {
                        "no users: falkon user add NAME adds one\n".to_owned()
                    }
                    false => table(&users),
                };
                Ok(print(&text).unwrap_or(Exit::Success))
            })
        }
    }
}

impl WriteArgs {
    /// Asks for a user's secret, and writes the access file with it.
    fn ask(self, ask: UserAsk) -> Exit {
        let WriteArgs { access, name, out } = self;
        with_access(&access, None, async |client: Client, access: &AccessFile| {
            let Some(path) = out.or_else(|| beside(access.path(), &name)) else {
                return Ok(Exit::usage("say where the access file goes: --out FILE"));
            };
            let (user, secret) = client.user_access(ask).await?;
            let secret: [u8; 32] = secret.try_into().map_err(|_| ClientError::Protocol)?;
            let own = access.for_user(user.0, Secret::from_bytes(secret));
            if let Err(error) = own.write(&path) {
                return Ok(Exit::failure(format_args!(
                    "the user is there, and the access file is not: {error}; falkon user access \
                     {name} writes it elsewhere with --out"
                )));
            }
            Ok(print(&format!("{}\n", path.display())).unwrap_or(Exit::Success))
        })
    }
}

/// A user's access file beside the owner's, unless that came from elsewhere.
fn beside(owner: Option<&Path>, name: &str) -> Option<PathBuf> {
    let owner = owner.filter(|path| path.is_file())?;
    // A name that is none is refused, and is not to lead elsewhere.
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "._-".contains(char);
    let name = name.replace(|char| !is_plain(char), "_");
    Some(owner.with_file_name(format!("access-user-{name}.json")))
}

/// What users may have and have, a line for each.
fn table(users: &[UserStatus]) -> String {
    let wide = users.iter().map(|user| user.name.len()).max().unwrap_or(0).max(16);
    let mut text = format!(
        "{:<wide$} {:>7} {:>11} {:>15} {:>15} {:>21} {:>5}  STATE\n",
        "NAME", "SHARE", "INSTANCES", "TASKS", "CPUS", "BYTES", "CONN"
    );
    for user in users {
        let (limits, has) = (&user.limits, &user.has);
        let number = |most: Option<u64>| most.map(|most| most.to_string());
        let state = match (user.is_revoked, user.sees_all) {
            (true, _) => "revoked",
            (false, true) => "sees all",
            (false, false) => "",
        };
        let line = format!(
            "{:<wide$} {:>7} {:>11} {:>15} {:>15} {:>21} {:>5}  {state}",
            printable(&user.name),
            limits.share,
            of(has.instances.to_string(), number(limits.instances_max)),
            of(has.tasks.to_string(), number(limits.tasks_max)),
            cpus_text(user),
            of(bytes_text(has.bytes), limits.bytes_max.map(bytes_text)),
            user.connections,
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// How much there is, and how much there may be.
fn of(has: String, most: Option<String>) -> String {
    match most {
        Some(most) => format!("{has}/{most}"),
        None => has,
    }
}

/// The CPUs that a user's tasks ask for, and may.
pub(crate) fn cpus_text(user: &UserStatus) -> String {
    let has = user.has.slots_milli as f64 / 1000.0;
    of(has.to_string(), user.limits.slots_max.map(|most| most.to_string()))
}

/// The users in a status, and how their tasks are.
pub(crate) fn status_table(status: &Status) -> String {
    let all = totals(status);
    if all.is_empty() {
        return String::new();
    }
    let wide = all.iter().map(|one| one.name.len()).max().unwrap_or(0).max(16);
    let mut text = format!(
        "\n{:<wide$} {:>7} {:>11} {:>9} {:>9} {:>9} {:>9} {:>11}\n",
        "USER", "SHARE", "INSTANCES", "QUEUED", "RUNNING", "DONE", "FAILED", "CPUS"
    );
    for Totals { name, user, instances, queued, running, done, failed } in all {
        let most = user.and_then(|user| user.limits.instances_max);
        text.push_str(&format!(
            "{:<wide$} {:>7} {:>11} {queued:>9} {running:>9} {done:>9} {failed:>9} {:>11}\n",
            printable(name),
            user.map_or(1, |user| user.limits.share),
            of(instances.to_string(), most.map(|most| most.to_string())),
            user.map(cpus_text).unwrap_or_default(),
        ));
    }
    text
}

/// A user, for programs.
fn as_json(user: &UserStatus) -> Value {
    let (limits, has) = (&user.limits, &user.has);
    json!({
        "name": user.name,
        "share": limits.share,
        "tasks_max": limits.tasks_max,
        "slots_max": limits.slots_max,
        "bytes_max": limits.bytes_max,
        "instances_max": limits.instances_max,
        "sees_all": user.sees_all,
        "revoked": user.is_revoked,
        "instances": has.instances,
        "tasks": has.tasks,
        "cpus": has.slots_milli as f64 / 1000.0,
        "bytes": has.bytes,
        "connections": user.connections,
    })
}

/// A user in a status, for programs; `None` for the owner.
pub(crate) fn totals_json(totals: &Totals<'_>) -> Option<Value> {
    let mut told = as_json(totals.user?);
    let counts = [
        ("queued", totals.queued),
        ("running", totals.running),
        ("done", totals.done),
        ("failed", totals.failed),
    ];
    for (name, count) in counts {
        told[name] = count.into();
    }
    Some(told)
}
