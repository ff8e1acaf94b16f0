//! `falkon restart`: another program in the place of a dispatcher that runs.

use super::{Reconnect, print, with_access};
use crate::access::AccessArgs;
use crate::exit::Exit;
use clap::Args;
use falkon_net::client::{Client, ClientError};
use falkon_net::secure::AccessFile;
use falkon_wire::message::RestartAsk;
use std::path::PathBuf;
use std::time::Duration;

/// How long the new program may take to read the journal and answer.
const ANSWER_SECONDS_MAX: u64 = 120;

/// `falkon restart`
#[derive(Args, Debug)]
pub(crate) struct RestartArgs {
    #[command(flatten)]
    access: AccessArgs,
    /// The dispatcher's directory, whose access.json is used
    #[arg(long, value_name = "DIR", conflicts_with = "access")]
    dir: Option<PathBuf>,
    /// The program, on the dispatcher's machine [default: where the running one was started from]
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
}

/// Runs the command.
pub(crate) fn restart(args: RestartArgs) -> Exit {
    let program = match args.binary.map(|path| std::path::absolute(&path).unwrap_or(path)) {
        None => None,
        Some(path) => match path.to_str() {
            Some(text) => Some(text.to_owned()),
            None => {
                return Exit::usage(format_args!(
                    "--binary {}: the path is not UTF-8; make a link to the program that is",
                    path.display()
                ));
            }
        },
    };
    let access = match args.dir {
        Some(dir) => AccessArgs { access: Some(dir.join("access.json")) },
        None => args.access,
    };
    with_access(&access, None, async |client: Client, access: &AccessFile| {
        let (was, next) = client.program(RestartAsk::Replace { program }).await?;
        drop(client);
        let next = next.ok_or(ClientError::Protocol)?;
        let limit = Duration::from_secs(ANSWER_SECONDS_MAX);
        let answered = tokio::time::timeout(limit, version(access)).await;
        let why = match answered {
            Ok(Ok(is)) if is == next => {
                let text = format!("restarted: was falkon {was}, is falkon {is}\n");
                return Ok(print(&text).unwrap_or(Exit::Success));
            }
            Ok(Ok(is)) => {
                return Ok(Exit::failure(format_args!(
                    "falkon {next} could not be executed, and falkon {is} goes on: the \
                     dispatcher's log says why"
                )));
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer for {ANSWER_SECONDS_MAX} s"),
        };
        Ok(Exit::failure(format_args!(
            "falkon {next} has taken the place of falkon {was}, and does not answer ({why}): its \
             log says why; if it has ended, falkon start with the same directory continues"
        )))
    })
}

/// The version of the dispatcher, once it answers.
async fn version(access: &AccessFile) -> Result<String, ClientError> {
    let mut reconnect = Reconnect::new(true);
    loop {
        let answered = async {
            let (client, _deliveries) = reconnect.connect(access, None).await?;
            client.program(RestartAsk::Version).await
        };
        match answered.await {
            Ok((version, _)) => return Ok(version),
            Err(error) if error.is_transient() => {}
            Err(error) => return Err(error),
        }
    }
}
