//! `cargo +nightly fuzz run decoder`

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| falkon_fuzz::decoder::decode_anything(bytes));
