//! The command line `falkon`.

#[allow(dead_code)]
mod plan;

fn main() {}
