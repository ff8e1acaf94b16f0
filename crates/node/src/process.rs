//! Running processes: spawn, capture, limits, and no orphan left behind.
