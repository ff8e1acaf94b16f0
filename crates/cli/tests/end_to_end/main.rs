//! End to end: the program itself, with real processes, sockets and files.
//!
//! `FALKON_SEED` repeats the random choices of a run, `FALKON_ROUNDS` sets how
//! many times something is killed (see `kill`), `FALKON_LARGE` makes sizes the
//! full ones (see `input` and `kill_at_speed`). With `FALKON_CONCENTRATORS` all
//! dispatchers have so many processes hold their connections, unless a test says
//! otherwise: nothing must change by that.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod alternatives;
mod archive;
mod asked;
mod bench;
mod clock;
mod collect;
mod concentrators;
mod configuration;
mod container;
mod control;
mod data;
mod events;
mod everywhere;
mod examples;
mod explain;
mod fixture;
mod folders;
mod functions;
mod held;
mod host;
mod hostile;
mod input;
mod kill;
mod kill_at_speed;
mod lifetime;
mod listening;
mod mpi;
mod network;
mod overflow;
mod parallel;
mod prepared;
mod provision;
mod relays;
mod replay;
mod report;
mod restart;
mod results;
mod resume;
mod retry;
mod room;
mod run;
mod scratch;
mod security;
mod services;
mod shortened;
mod signals;
mod silence;
mod simulate;
mod sizes;
mod speculation;
mod stall;
mod strangers;
mod tail;
mod terminal;
mod tries;
mod tutorial;
mod usage;
mod users;
mod values;
mod versions;
mod web;

fn main() -> std::process::ExitCode {
    falkon_trials::while_others_wait()
}
