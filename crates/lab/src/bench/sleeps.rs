//! Campaigns of `@sleep` tasks, whose ideal time is known.

use super::campaign;
use super::error::BenchError;
use falkon_core::task::{Kind, Range, Resources, Rows, Submission, TaskClass, TaskId};
use falkon_net::client::{Client, Deliveries};
use falkon_wire::codec::Wire;
use falkon_wire::command::{CommandTemplate, Piece, Template};
use std::sync::Arc;
use std::time::Instant;

/// Runs `tasks` tasks that sleep for `seconds` each in a new instance. Returns
/// the time from their submission to the last result, in seconds.
pub(crate) async fn run(
    client: &Client,
    deliveries: &mut Deliveries,
    tasks: u64,
    seconds: f64,
) -> Result<f64, BenchError> {
    let instance = campaign::create(client).await?;
    client.subscribe(instance, 0).await?;
    let start = Instant::now();
    client.submit(instance, TaskId(0), submission(tasks, seconds)).await?.accepted().await?;
    client.seal(instance).await?;
    campaign::receive(client, deliveries, instance, tasks).await?;
    let taken = start.elapsed().as_secs_f64();
    client.destroy(instance).await?;
    Ok(taken)
}

fn submission(count: u64, seconds: f64) -> Submission {
    let words = ["@sleep".to_owned(), seconds.to_string()];
    let template = Template::Command(CommandTemplate {
        argv: words.into_iter().map(|word| vec![Piece::Literal(word.into())]).collect(),
        ..CommandTemplate::default()
    });
    let class =
        TaskClass { kind: Kind::Sleep, resources: Resources::cpus(1), ..TaskClass::default() };
    Submission {
        data: None,
        count,
        template: Arc::new(template.to_bytes()),
        rows: Rows::Computed { factors: vec![Range { start: 0, step: 1, count }], offset: 0 },
        classes: vec![class],
        class_runs: vec![(count, 0)],
        names: None,
        after: Vec::new(),
        everywhere: None,
    }
}
