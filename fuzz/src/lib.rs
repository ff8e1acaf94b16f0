//! What the fuzz targets call. The tests of `crates/wire` call the same over
//! the corpus, with any toolchain.

pub mod decoder;
