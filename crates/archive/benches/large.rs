//! An archive with a member of 100 GB, between one of 5 GB that cannot be made smaller and
//! a small one: sizes and offsets beyond four bytes. Written, listed, each found and read,
//! by Falkon and, if it is there, by `bsdtar`: `cargo bench -p falkon-archive --bench large`.
//!
//! The member of 100 GB is a sparse file, which is deflated to a thousandth; the archive
//! takes 5 GB. `FALKON_LARGE_GB` is another size of it. `FALKON_BENCH_DIR` is where files
//! are, else the temporary directory.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use falkon_archive::{Archive, Scratch, Source, WriteOptions, Writer};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

const GB: u64 = 1_000_000_000;
const NOISE_BYTES: u64 = 5 * GB;
const LAST: &[u8] = b"the last one";

fn main() {
    let gigabytes: u64 = std::env::var("FALKON_LARGE_GB").map_or(100, |text| text.parse().unwrap());
    let site = match std::env::var_os("FALKON_BENCH_DIR") {
        Some(place) => tempfile::tempdir_in(place).unwrap(),
        None => tempfile::tempdir().unwrap(),
    };
    let path = site.path().join("large.zip");
    let (noise, sparse) = (site.path().join("noise"), site.path().join("sparse"));
    fill(&noise);
    File::create(&sparse).unwrap().set_len(gigabytes * GB).unwrap();
    timed("written and synced", || {
        let mut writer = Writer::create(&path, WriteOptions::default()).unwrap();
        writer.add(b"noise".to_vec(), Source::File(noise.clone())).unwrap();
        writer.add(b"sparse".to_vec(), Source::File(sparse.clone())).unwrap();
        let data = LAST.to_vec();
        let last = Source::Bytes { data, modified: 1_700_000_000, permissions: 0o644 };
        writer.add(b"last".to_vec(), last).unwrap();
        assert_eq!(writer.finish().unwrap().len(), 1);
    });
    for used in [noise, sparse] {
        std::fs::remove_file(used).unwrap();
    }
    println!("  {:>10.3} GB  the archive", std::fs::metadata(&path).unwrap().len() as f64 / 1e9);
    let sizes = [("noise", NOISE_BYTES), ("sparse", gigabytes * GB), ("last", LAST.len() as u64)];
    for (name, size) in sizes {
        timed(&format!("{name} found and read"), || assert_eq!(length(&path, name), size));
    }
    if Command::new("bsdtar").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("  bsdtar is not there");
        return;
    }
    for (name, size) in sizes {
        timed(&format!("{name} read by bsdtar"), || {
            let mut bsdtar = Command::new("bsdtar");
            bsdtar.arg("-xOf").arg(&path).arg(name).stdout(Stdio::piped());
            let mut bsdtar = bsdtar.spawn().unwrap();
            let mut read = bsdtar.stdout.take().unwrap();
            assert_eq!(std::io::copy(&mut read, &mut std::io::sink()).unwrap(), size);
            assert!(bsdtar.wait().unwrap().success());
        });
    }
}

/// Fills a file with bytes that cannot be made smaller.
fn fill(path: &Path) {
    let mut noise = File::open("/dev/urandom").unwrap().take(NOISE_BYTES);
    let mut file = File::create(path).unwrap();
    assert_eq!(std::io::copy(&mut noise, &mut file).unwrap(), NOISE_BYTES);
    file.flush().unwrap();
}

/// The bytes of a member, which are checked.
fn length(path: &Path, name: &str) -> u64 {
    let archive = Archive::open(path).unwrap();
    let (part, member) = archive.find(name.as_bytes()).unwrap();
    let mut length = 0;
    let mut take = |bytes: &[u8]| {
        length += bytes.len() as u64;
        Ok(())
    };
    Scratch::default().read(part, &member, &mut take).unwrap();
    length
}

fn timed(what: &str, work: impl FnOnce()) {
    let start = Instant::now();
    work();
    println!("  {:>10.3} s   {what}, {} MiB of memory", start.elapsed().as_secs_f64(), memory());
}

/// The most memory that the program has had, in MiB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
}
