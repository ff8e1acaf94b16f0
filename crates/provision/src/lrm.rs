//! Local resource managers (LRMs): the batch schedulers that nodes come from.
//!
//! The differences between LRMs are data, a [`Description`]: how a job is
//! submitted, which command lists the jobs and how its answer is read, how a
//! job is cancelled. The descriptions of the well-known ones are files in
//! `lrm/kinds`; a site can replace each of their fields. The common parts are
//! here once: a command runs with a time limit and bounded output
//! ([`command`]), templates are filled so that no value breaks out of its place
//! ([`template`]), and one query answers for all jobs of a queue.
//!
//! An allocation is one job of several nodes, with one executor on each. The
//! job's name is [`Driver::job_name`]: it names the dispatcher, the queue and
//! the allocation, so that a provisioner that lost the jobs' numbers finds them
//! again.

mod answer;
mod command;
mod description;
mod document;
mod driver;
mod granted;
mod job;
mod own_job;
mod request;
mod script;
mod settings;
mod stage_binary;
mod template;

pub use answer::{AnswerError, jobs};
pub use command::CommandError;
pub use description::{
    AboutJob, Cancel, Description, DescriptionError, Format, Found, Free, KINDS, Places, Query,
    Send, States, Submit, Word, detect,
};
pub use document::Document;
pub use driver::{Driver, JobStatus, LrmError, Size, Submission, user_name};
pub use granted::{Granted, copies, ends_at, granted, visible_gpus};
pub use job::{Job, State};
pub use own_job::{Launch, OwnJobError, launches};
pub use request::Request;
pub use script::Executor;
pub use settings::{Settings, SettingsError};
pub use template::{FillError, Quoting, Template, TemplateError, Value, Values, quoted};
