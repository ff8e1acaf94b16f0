//! The journal: an append-only log with checksums and group commit.
