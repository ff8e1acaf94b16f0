//! The options that say how functions are called.

use clap::Args;
use falkon_executor::WorkerOptions;

/// How language workers are started and kept.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Functions")]
pub(crate) struct WorkerArgs {
    /// Load a module when a worker starts, before its first call; may be repeated
    #[arg(long, value_name = "MODULE")]
    preload: Vec<String>,
    /// Command that starts a language's workers; may be repeated
    ///
    /// For python it is the interpreter [default: python3]; for any other
    /// language a program that speaks the protocol of docs/workers.md. Words
    /// are separated by spaces.
    #[arg(long, value_name = "LANGUAGE=COMMAND", value_parser = worker)]
    worker: Vec<(String, Vec<String>)>,
    /// Replace a worker after N calls; 0 is never
    #[arg(long, value_name = "N", default_value_t = 0)]
    worker_calls_max: u64,
    /// Replace a worker that holds more memory than SIZE after a call
    #[arg(long, value_name = "SIZE", value_parser = crate::plan::memory_bytes)]
    worker_memory_max: Option<u64>,
    /// Let workers run calls of all instances
    ///
    /// By default a worker runs calls of one instance only, so that the state that its calls
    /// leave behind (modules and their variables, open files) is invisible to other clients.
    /// Shared workers start once for all.
    #[arg(long)]
    share_workers: bool,
}

impl WorkerArgs {
    /// The options for the executor.
    pub(crate) fn options(&self) -> WorkerOptions {
        WorkerOptions {
            commands: self.worker.clone(),
            preload: self.preload.clone(),
            calls_max: self.worker_calls_max,
            memory_bytes_max: self.worker_memory_max.unwrap_or(0),
            shared: self.share_workers,
            objects: None,
            foreseen: None,
            scratch: None,
        }
    }
}

fn worker(text: &str) -> Result<(String, Vec<String>), String> {
    let wrong = || format!("`{text}` starts no worker: write LANGUAGE=COMMAND");
    let (language, command) = text.split_once('=').ok_or_else(wrong)?;
    let words: Vec<String> = command.split_ascii_whitespace().map(str::to_owned).collect();
    if language.is_empty() || words.is_empty() {
        return Err(wrong());
    }
    Ok((language.to_owned(), words))
}
