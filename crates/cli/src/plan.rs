//! Plans: what the sources on a command line expand to.
