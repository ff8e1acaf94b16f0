//! Queries of a driver, which change nothing at its LRM.

use super::super::answer;
use super::super::command::{self, CommandError};
use super::super::description::Word;
use super::super::job::Job;
use super::super::template::{Quoting, Template, Values};
use super::{COMMAND_S_MAX, Driver, LrmError, fill, holds_any};

/// The answer of an LRM about one job, by its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobStatus {
    /// The job is there, or has ended.
    Known(Job),
    /// There is no such job, or the LRM has no query by number.
    Gone,
}

/// How many nodes an LRM's queue has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Nodes that can be used, in use or not.
    pub nodes: u64,
    /// Nodes of one job at most, where there is such a limit.
    pub job_nodes: Option<u64>,
}

impl Driver {
    /// The output of a command of the LRM.
    async fn ask(
        &self,
        command: &[Word],
        input: &str,
        values: &Values,
    ) -> Result<String, LrmError> {
        let words = fill(command, values)?;
        let input = Template::new(input)?.text(values, Quoting::Shell)?;
        Ok(command::run(&words, &input, self.limit(COMMAND_S_MAX)).await?)
    }

    /// Asks about one job by its number.
    ///
    /// # Errors
    /// The LRM does not answer, or not understandably: nothing follows from it.
    pub async fn about(&self, job: &str) -> Result<JobStatus, LrmError> {
        // Where lists are files of our own they say it all.
        let Some(about) = &self.description.about else { return Ok(JobStatus::Gone) };
        let mut values = self.values();
        values.set("job", job);
        let answer = match self.ask(&about.command, &about.input, &values).await {
            Ok(answer) => answer,
            Err(LrmError::Command(error @ CommandError::Failed { .. }))
                if holds_any(&error.to_string(), &about.gone) =>
            {
                return Ok(JobStatus::Gone);
            }
            Err(error) => return Err(error),
        };
        if about.is_plain {
            return Ok(JobStatus::Known(Job::named(job)));
        }
        let query = &self.description.query;
        let jobs = answer::jobs(&answer, query, &self.description.states)?;
        let found = jobs.into_iter().find(|found| found.job == job);
        Ok(found.map_or(JobStatus::Gone, JobStatus::Known))
    }

    /// Lists this queue's jobs, all with one command.
    ///
    /// # Errors
    /// The LRM does not answer, or not understandably: nothing follows from it.
    pub async fn query(&self) -> Result<Vec<(u64, Job)>, LrmError> {
        let query = &self.description.query;
        let answer = match self.ask(&query.command, &query.input, &self.values()).await {
            Ok(answer) => answer,
            Err(LrmError::Command(error @ CommandError::Failed { .. }))
                if holds_any(&error.to_string(), &query.empty) =>
            {
                String::new()
            }
            Err(error) => return Err(error),
        };
        let jobs = answer::jobs(&answer, query, &self.description.states)?;
        let own = jobs.into_iter().filter_map(|job| Some((self.allocation_of(&job.name)?, job)));
        Ok(own.collect())
    }

    /// Nodes that the LRM could give now; `None` if it does not say.
    ///
    /// # Errors
    /// The query failed.
    pub async fn free(&self) -> Result<Option<u64>, LrmError> {
        let Some(free) = &self.description.free else { return Ok(None) };
        let said = self.ask(&free.command, &free.input, &self.values()).await?;
        Ok(Some(counted(&said)))
    }

    /// Nodes that there are at all; `None` if the LRM does not say.
    ///
    /// # Errors
    /// The query failed.
    pub async fn size(&self) -> Result<Option<Size>, LrmError> {
        let Some(size) = &self.description.size else { return Ok(None) };
        let said = self.ask(&size.command, &size.input, &self.values()).await?;
        let limit = |line: &str| line.split_whitespace().nth(1)?.parse::<u64>().ok();
        let job_nodes = said.lines().filter_map(limit).max();
        let is_said = said.lines().any(|line| !line.trim().is_empty());
        Ok(is_said.then(|| Size { nodes: counted(&said), job_nodes }))
    }
}

/// The numbers at the beginning of lines, together.
fn counted(said: &str) -> u64 {
    let number = |line: &str| line.split_whitespace().next()?.parse::<u64>().ok();
    said.lines().filter_map(number).fold(0, u64::saturating_add)
}
