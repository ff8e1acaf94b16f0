//! The command line `falkon`.

mod plan;

fn main() {}
