//! The fuzz target's corpus, and a run of the target over it with seeded
//! mutations: what a fuzzer does, for a bounded time and with any toolchain.

use crate::decoder::decode_anything;
use crate::examples;
use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::path::PathBuf;

/// Mutated inputs per corpus file, unless `FALKON_FUZZ_ITERATIONS` says
/// otherwise.
const ITERATIONS_DEFAULT: u64 = 2_000;
/// Longest input made, in bytes.
const INPUT_BYTES_MAX: usize = 4096;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/decoder")
}

/// The inputs that are made: every example, each cut where its parts meet, and
/// lies about lengths.
pub(crate) fn seeds() -> Vec<examples::Example> {
    let mut seeds = examples::all();
    for (name, bytes) in examples::all() {
        if bytes.len() > 8 {
            seeds.push((format!("{name}.cut"), bytes[..bytes.len() * 2 / 3].to_vec()));
        }
    }
    let lies: [(&str, &[u8]); 16] = [
        ("empty", b""),
        ("nil", b"\xc0"),
        ("never_used_marker", b"\xc1"),
        ("array_of_none", b"\x90"),
        ("array_of_4g", b"\xdd\xff\xff\xff\xff"),
        ("array_of_64k_nils", b"\xdc\xff\xff\xc0\xc0\xc0\xc0"),
        ("binary_of_4g", b"\xc6\xff\xff\xff\xff"),
        ("text_of_4g", b"\xdb\xff\xff\xff\xff"),
        ("number_without_end", b"\xcf\xff\xff\xff"),
        ("unknown_tag", b"\x92\x7f\x00"),
        ("tag_too_large", b"\x92\xcf\xff\xff\xff\xff\xff\xff\xff\xff\x00"),
        // FromClient::Cancel of 4 thousand million runs.
        ("cancel_lie", b"\x94\x05\x01\x01\x92\x01\xdd\xff\xff\xff\xf0\x92\x00\x01"),
        // ToExecutor::Order that prepares 4 thousand million templates.
        ("order_lie", b"\x92\x01\x99\x00\xdd\xff\xff\xff\xf0\x93\x00\xc4\x00\x90"),
        // FromExecutor::Update with a cache of 4 thousand million objects.
        (
            "cache_lie",
            b"\x92\x01\x97\x01\x90\x90\xc2\xc2\x90\x96\xc3\xdd\xff\xff\xff\xf0\x92\xc4\x10",
        ),
        // A column of numbers that is no multiple of four bytes.
        (
            "numbers_lie",
            b"\x92\x01\x99\x00\x90\x91\x98\x00\x00\x00\x01\x00\x92\x00\x00\x93\x00\x90\x00\
              \x93\x90\x92\x00\xc4\x03\x00\x00\x00\x92\x00\xc4\x00",
        ),
        // A column whose lengths overflow 32 bits.
        ("column_lie", b"\x92\x01\x92\xc4\x00\xc4\x08\xff\xff\xff\xff\xff\xff\xff\xff"),
    ];
    seeds.extend(lies.map(|(name, bytes)| (format!("lie.{name}"), bytes.to_vec())));
    seeds
}

/// Writes the inputs that are made; what a fuzzer found besides stays.
pub(crate) fn write() {
    std::fs::create_dir_all(folder()).unwrap();
    for (name, bytes) in seeds() {
        std::fs::write(folder().join(name), bytes).unwrap();
    }
}

/// All inputs there are, by name.
pub(crate) fn read() -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap());
    files
        .map(|file| {
            let name = file.file_name().to_string_lossy().into_owned();
            (name, std::fs::read(file.path()).unwrap())
        })
        .collect()
}

/// xorshift64*: the same inputs on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Changes `input` in one of the ways in which messages go wrong; `other` is
/// where pieces are taken from.
fn mutate(input: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    /// Heads of all kinds of values, and lengths at their limits.
    const HEADS: [&[u8]; 12] = [
        b"\xc0",
        b"\x90",
        b"\x9f",
        b"\xdc\xff\xff",
        b"\xdd\xff\xff\xff\xff",
        b"\xc4\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xa0",
        b"\xdb\x7f\xff\xff\xff",
        b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\xd3\x80\x00\x00\x00\x00\x00\x00\x00",
        b"\xc3",
    ];
    let at = random.below(input.len());
    match random.below(8) {
        0 if !input.is_empty() => input[at] ^= 1 << random.below(8),
        1 if !input.is_empty() => input[at] = random.next() as u8,
        2 => input.truncate(at),
        3 => {
            let end = at + random.below(input.len() - at + 1).min(16);
            input.drain(at..end);
        }
        4 => {
            let head = HEADS[random.below(HEADS.len())];
            let end = (at + head.len()).min(input.len());
            input.splice(at..end, head.iter().copied());
        }
        5 => {
            let head = HEADS[random.below(HEADS.len())];
            input.splice(at..at, head.iter().copied());
        }
        6 => {
            let from = random.below(other.len());
            let end = from + random.below(other.len() - from + 1);
            input.splice(at.., other[from..end].iter().copied());
        }
        _ => {
            let byte = random.next() as u8;
            let count = random.below(32);
            input.splice(at..at, std::iter::repeat_n(byte, count));
        }
    }
    input.truncate(INPUT_BYTES_MAX);
}

#[test]
fn the_fuzz_target_holds_over_its_corpus_and_mutations_of_it() {
    let iterations = std::env::var("FALKON_FUZZ_ITERATIONS")
        .map_or(ITERATIONS_DEFAULT, |text| text.parse().expect("a number of iterations"));
    let corpus = read();
    assert!(corpus.len() >= seeds().len(), "the corpus is incomplete");
    let inputs: Vec<&Vec<u8>> = corpus.values().collect();
    for (place, (name, seed)) in corpus.iter().enumerate() {
        let run = |input: &[u8], iteration: u64| {
            if catch_unwind(|| decode_anything(input)).is_err() {
                panic!("{name}, iteration {iteration}: the target fails for {input:02x?}");
            }
        };
        run(seed, 0);
        let mut random = Random(place as u64 + 1);
        for iteration in 1..=iterations {
            let mut input = seed.clone();
            for _ in 0..=random.below(4) {
                let other = inputs[random.below(inputs.len())];
                mutate(&mut input, other, &mut random);
            }
            run(&input, iteration);
        }
    }
}
