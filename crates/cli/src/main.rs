//! The command line `falkon`.

use std::process::ExitCode;

fn main() -> ExitCode {
    falkon_cli::main()
}
