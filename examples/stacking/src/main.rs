//! Image stacking.
fn main() {}
