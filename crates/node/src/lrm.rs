//! Local resource managers (LRMs): the batch schedulers that nodes come from.
//!
//! What differs from one LRM to the next is data, a [`Description`]: how a job
//! is submitted, which command lists the jobs and how its answer is read, how a
//! job is cancelled. The descriptions of the well-known ones are files in
//! `lrm/kinds`; each of their fields can be replaced by a site's own. What is
//! the same for all is here once: a command runs with a time limit and bounded
//! output ([`command`]), templates are filled so that no value breaks out of
//! its place ([`template`]), and one query answers for all jobs of a queue.
//!
//! One allocation is one job of so many nodes, with one executor on each. The
//! job's name is [`Driver::job_name`]: it names the dispatcher, the queue and the
//! allocation, so that jobs are found again by whoever lost their numbers.

mod answer;
mod bring;
mod command;
mod description;
mod document;
mod driver;
mod granted;
mod script;
mod settings;
mod template;

pub use answer::{AnswerError, Job, State, jobs};
pub use command::CommandError;
pub use description::{
    AboutJob, Cancel, Description, DescriptionError, Format, Found, Free, KINDS, Places, Query,
    Send, States, Submit, Word, detect,
};
pub use document::Document;
pub use driver::{Driver, LrmError, Request, Size, Submission, Told, user_name};
pub use granted::{Granted, copies, ends_at, granted, visible_gpus};
pub use script::Executor;
pub use settings::{Settings, SettingsError};
pub use template::{FillError, Quoting, Template, TemplateError, Value, Values, quoted};
