//! The program of the tasks of `shuffle.py`: records of 100 bytes that begin with a key.
//!
//!     sort make SEED RECORDS FILE      random ones
//!     sort scatter FILE RANGES FOLDER  those of each range of keys to a file, sorted
//!     sort merge TARGET FILE...        sorted files to one
//!
//! `make` and `merge` print how many there are and a sum over all; `merge` also the first key
//! and the last.

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufWriter, Write};

const RECORD_BYTES: usize = 100;
const KEY_BYTES: usize = 10;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["make", seed, records, file] => make(seed.parse()?, records.parse()?, file),
        ["scatter", file, ranges, folder] => scatter(file, ranges.parse()?, folder),
        ["merge", target, ..] => merge(target, &words[2..]),
        _ => Err("sort make SEED RECORDS FILE, scatter FILE RANGES FOLDER, merge TARGET FILE...".into()),
    }
}

fn make(seed: u64, records: u64, file: &str) -> Result<(), Box<dyn Error>> {
    let mut out = BufWriter::with_capacity(1 << 20, File::create(file)?);
    let (mut state, mut sum) = (seed, 0u64);
    let mut record = [b'.'; RECORD_BYTES];
    for _ in 0..records {
        for place in record[..24].chunks_exact_mut(8) {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            place.copy_from_slice(&mixed(state).to_be_bytes());
        }
        sum = sum.wrapping_add(number_of(&record));
        out.write_all(&record)?;
    }
    out.flush()?;
    println!("{records} {sum}");
    Ok(())
}

/// SplitMix64's last step.
fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// A number for a record, of its first bytes.
fn number_of(record: &[u8]) -> u64 {
    let number = |at: usize| {
        record[at..at + 8].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    };
    mixed(number(0)) ^ number(8)
}

fn scatter(file: &str, ranges: u64, folder: &str) -> Result<(), Box<dyn Error>> {
    let bytes = fs::read(file)?;
    let mut parts: Vec<Vec<&[u8]>> = (0..ranges).map(|_| Vec::new()).collect();
    for record in bytes.chunks_exact(RECORD_BYTES) {
        let first = record[..4].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        parts[(first * ranges >> 32) as usize].push(record);
    }
    for (number, mut records) in parts.into_iter().enumerate() {
        records.sort_unstable_by_key(|record| &record[..KEY_BYTES]);
        write(&format!("{folder}/{number}"), &records)?;
    }
    Ok(())
}

fn merge(target: &str, files: &[String]) -> Result<(), Box<dyn Error>> {
    let inputs = files.iter().map(fs::read).collect::<Result<Vec<_>, _>>()?;
    let mut records: Vec<&[u8]> =
        inputs.iter().flat_map(|bytes| bytes.chunks_exact(RECORD_BYTES)).collect();
    // Runs that are sorted are found, and merged.
    records.sort_by_key(|record| &record[..KEY_BYTES]);
    write(target, &records)?;
    let sum = records.iter().fold(0u64, |sum, record| sum.wrapping_add(number_of(record)));
    let key = |record: Option<&&[u8]>| -> String {
        record.iter().flat_map(|record| &record[..KEY_BYTES]).map(|byte| format!("{byte:02x}")).collect()
    };
    println!("{} {sum} {} {}", records.len(), key(records.first()), key(records.last()));
    Ok(())
}

fn write(path: &str, records: &[&[u8]]) -> Result<(), Box<dyn Error>> {
    let mut out = BufWriter::with_capacity(1 << 18, File::create(path)?);
    for record in records {
        out.write_all(record)?;
    }
    Ok(out.flush()?)
}
