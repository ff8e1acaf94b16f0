//! MessagePack as a tree, so that any part of any message can be replaced
//! without knowing what it means.

use crate::fixture::Random;
use falkon_trials::trial;

/// Lists and maps nest no deeper than this in what is taken apart.
const DEPTH_MAX: usize = 64;

/// A value of a message.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Nil,
    Bool(bool),
    /// Every integer; what does not fit 64 bits is written as its nearest.
    Int(i128),
    Text(Vec<u8>),
    Bytes(Vec<u8>),
    List(Vec<Value>),
    /// Bytes that are written as they are.
    Raw(Vec<u8>),
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

fn number(bytes: &mut &[u8], count: usize) -> Option<u64> {
    Some(take(bytes, count)?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

impl Value {
    /// Takes a message apart; `None` for what the protocol does not use.
    pub(super) fn read(mut bytes: &[u8]) -> Option<Value> {
        let value = Value::part(&mut bytes, 0)?;
        bytes.is_empty().then_some(value)
    }

    fn part(bytes: &mut &[u8], depth: usize) -> Option<Value> {
        if depth > DEPTH_MAX {
            return None;
        }
        let text = |bytes: &mut &[u8], length: u64| {
            Some(Value::Text(take(bytes, usize::try_from(length).ok()?)?.to_vec()))
        };
        let binary = |bytes: &mut &[u8], length: u64| {
            Some(Value::Bytes(take(bytes, usize::try_from(length).ok()?)?.to_vec()))
        };
        let list = |bytes: &mut &[u8], length: u64| {
            (0..length)
                .map(|_| Value::part(bytes, depth + 1))
                .collect::<Option<_>>()
                .map(Value::List)
        };
        let signed = |bytes: &mut &[u8], count: usize| {
            let shift = 64 - 8 * count as u32;
            Some(Value::Int(i128::from((number(bytes, count)? << shift) as i64 >> shift)))
        };
        match number(bytes, 1)? as u8 {
            head @ 0..=0x7f => Some(Value::Int(head.into())),
            head @ 0x90..=0x9f => list(bytes, u64::from(head & 0x0f)),
            head @ 0xa0..=0xbf => text(bytes, u64::from(head & 0x1f)),
            0xc0 => Some(Value::Nil),
            head @ (0xc2 | 0xc3) => Some(Value::Bool(head == 0xc3)),
            head @ 0xc4..=0xc6 => {
                let length = number(bytes, 1 << (head - 0xc4))?;
                binary(bytes, length)
            }
            head @ 0xcc..=0xcf => Some(Value::Int(number(bytes, 1 << (head - 0xcc))?.into())),
            head @ 0xd0..=0xd3 => signed(bytes, 1 << (head - 0xd0)),
            head @ 0xd9..=0xdb => {
                let length = number(bytes, 1 << (head - 0xd9))?;
                text(bytes, length)
            }
            head @ (0xdc | 0xdd) => {
                let length = number(bytes, 2 << (head - 0xdc))?;
                list(bytes, length)
            }
            head @ 0xe0..=0xff => Some(Value::Int(i128::from(head as i8))),
            _ => None,
        }
    }

    /// Writes the message; integers in nine bytes, which readers must take.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let head = |out: &mut Vec<u8>, marker: u8, length: usize| {
            out.push(marker);
            out.extend_from_slice(&(length as u32).to_be_bytes());
        };
        match self {
            Value::Nil => out.push(0xc0),
            Value::Bool(value) => out.push(0xc2 + u8::from(*value)),
            Value::Int(value @ 0..=0x7f) => out.push(*value as u8),
            Value::Int(value @ 0..) => {
                out.push(0xcf);
                out.extend_from_slice(&u64::try_from(*value).unwrap_or(u64::MAX).to_be_bytes());
            }
            Value::Int(value) => {
                out.push(0xd3);
                out.extend_from_slice(&i64::try_from(*value).unwrap_or(i64::MIN).to_be_bytes());
            }
            Value::Text(text) => {
                head(out, 0xdb, text.len());
                out.extend_from_slice(text);
            }
            Value::Bytes(bytes) => {
                head(out, 0xc6, bytes.len());
                out.extend_from_slice(bytes);
            }
            Value::List(values) => {
                head(out, 0xdd, values.len());
                for value in values {
                    value.write(out);
                }
            }
            Value::Raw(bytes) => out.extend_from_slice(bytes),
        }
    }

    /// Calls `visit` with every value in it, itself first.
    pub(super) fn each(&mut self, visit: &mut impl FnMut(&mut Value)) {
        visit(self);
        if let Value::List(values) = self {
            for value in values {
                value.each(visit);
            }
        }
    }

    /// Replaces one part, drawn at random, by something extreme of its kind,
    /// or now and then of another. Returns what was done.
    pub(super) fn mangle(&mut self, random: &mut Random) -> String {
        let mut parts = 0;
        self.each(&mut |_| parts += 1);
        // The tag decides what the message is at all, so it stays most often.
        let chosen = random.below(parts);
        let (mut at, mut done) = (0, String::new());
        self.each(&mut |value| {
            if at == chosen {
                let before = value.brief();
                *value = extreme(value, random);
                done = format!("part {chosen} of {parts}: {before} -> {}", value.brief());
            }
            at += 1;
        });
        done
    }

    fn brief(&self) -> String {
        match self {
            Value::Text(text) => format!("text of {} bytes", text.len()),
            Value::Bytes(bytes) => format!("{} bytes", bytes.len()),
            Value::List(values) => format!("list of {}", values.len()),
            other => format!("{other:?}"),
        }
    }
}

/// Lengths at which encodings, bounds and frames change.
fn length(random: &mut Random) -> usize {
    let lengths = [0, 1, 31, 32, 255, 256, 65_535, 65_536, 1 << 20];
    match random.below(40) {
        0 => 15 << 20,
        1 => 5 << 20,
        draw => lengths[draw as usize % lengths.len()],
    }
}

fn number_at_an_edge(random: &mut Random) -> i128 {
    let edges = [
        0,
        1,
        -1,
        i128::from(i32::MAX),
        i128::from(i32::MIN),
        i128::from(u32::MAX),
        i128::from(u32::MAX) + 1,
        i128::from(i64::MAX),
        i128::from(i64::MIN),
        i128::from(u64::MAX) - 1,
        i128::from(u64::MAX),
        1 << 53,
        1 << 40,
    ];
    match random.below(4) {
        0 => i128::from(random.below(100)),
        _ => edges[random.below(edges.len() as u64) as usize],
    }
}

fn extreme(value: &Value, random: &mut Random) -> Value {
    match (value, random.below(12)) {
        (_, 0) => Value::Nil,
        (_, 1) => Value::Int(number_at_an_edge(random)),
        (_, 2) => Value::List(Vec::new()),
        // A list that says it is longer than the message.
        (_, 3) => Value::Raw(vec![0xdd, 0xff, 0xff, 0xff, 0xff]),
        (Value::Int(value), 4) => Value::Int(value + 1),
        (Value::Int(value), 5) => Value::Int(value - 1),
        (Value::Int(_), _) => Value::Int(number_at_an_edge(random)),
        (Value::Bool(value), _) => Value::Bool(!value),
        (Value::Text(_), 4..8) => Value::Text(vec![b'x'; length(random)]),
        (Value::Text(_), 8) => Value::Text(vec![0xff; 9]),
        (Value::Text(_), _) => Value::Text("\u{202e}../../\0\n$(x)`".into()),
        (Value::Bytes(bytes), 4..6) if !bytes.is_empty() => {
            let mut bytes = bytes.clone();
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
            Value::Bytes(bytes)
        }
        (Value::Bytes(_), _) => Value::Bytes(vec![random.next() as u8; length(random)]),
        (Value::List(values), 4..8) if !values.is_empty() => {
            // The same many times, as far as a frame goes.
            let times = [2, 100, 10_000, 100_000][random.below(4) as usize];
            let mut one = Vec::new();
            values[0].write(&mut one);
            let times = times.min((15 << 20) / one.len());
            Value::List((0..times).flat_map(|_| values.first().cloned()).collect())
        }
        (Value::List(values), 8) => Value::List(values.iter().chain(values).cloned().collect()),
        (Value::List(values), _) => {
            let mut values = values.clone();
            values.reverse();
            Value::List(values)
        }
        (_, _) => Value::Int(number_at_an_edge(random)),
    }
}

#[trial]
fn what_is_not_mangled_is_written_as_it_was() {
    let value = Value::List(vec![
        Value::Nil,
        Value::Bool(true),
        Value::Int(i128::from(u64::MAX)),
        Value::Int(-40),
        Value::Int(5),
        Value::Text(b"text".to_vec()),
        Value::Bytes(vec![0; 300]),
        Value::List(Vec::new()),
    ]);
    let mut bytes = Vec::new();
    value.write(&mut bytes);
    assert_eq!(Value::read(&bytes), Some(value));
    for (bytes, number) in [(&[0xd0, 0x9c][..], -100), (&[0xe0], -32), (&[0xcd, 1, 0], 256)] {
        assert_eq!(Value::read(bytes), Some(Value::Int(number)));
    }
}
