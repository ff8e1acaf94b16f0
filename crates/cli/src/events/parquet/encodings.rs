//! Encodings of values: runs, bits and differences.
//!
//! The encodings are those of <https://parquet.apache.org/docs/file-format/data-pages/encodings/>.

/// Numbers of `width` bits as runs of equal ones and, in groups of eight, as bits.
pub(super) fn hybrid(numbers: &[u32], width: u8, out: &mut Vec<u8>) {
    let mut rest = numbers;
    let mut apart: Vec<u32> = Vec::new();
    while let Some(first) = rest.first() {
        let equal = rest.iter().take_while(|other| *other == first).count();
        // A run begins where the groups before it are full.
        let missing = (8 - apart.len() % 8) % 8;
        if equal >= missing + 8 {
            apart.extend_from_slice(&rest[..missing]);
            packed(&mut apart, width, out);
            run((equal - missing) as u64, *first, width, out);
            rest = &rest[equal..];
        } else {
            apart.extend_from_slice(&rest[..equal]);
            rest = &rest[equal..];
        }
    }
    packed(&mut apart, width, out);
}

/// A run of equal numbers.
pub(super) fn run(count: u64, number: u32, width: u8, out: &mut Vec<u8>) {
    varint(count << 1, out);
    out.extend_from_slice(&number.to_le_bytes()[..usize::from(width.div_ceil(8))]);
}

/// Numbers as bits, the last group filled with zeros.
fn packed(numbers: &mut Vec<u32>, width: u8, out: &mut Vec<u8>) {
    if numbers.is_empty() {
        return;
    }
    numbers.resize(numbers.len().next_multiple_of(8), 0);
    varint((numbers.len() as u64 / 8) << 1 | 1, out);
    let (mut bits, mut held) = (0_u64, 0);
    for number in numbers.drain(..) {
        bits |= u64::from(number) << held;
        held += u32::from(width);
        while held >= 8 {
            out.push(bits as u8);
            bits >>= 8;
            held -= 8;
        }
    }
}

/// Numbers in a block of differences, and in each of the parts that have a width of their own.
const BLOCK_NUMBERS: usize = 128;
const PART_NUMBERS: usize = 32;

/// Numbers of 64 or of 32 bits as differences to the number before. A block states its smallest
/// difference; each part of it has the width of its largest, less that smallest one.
pub(super) fn differences(numbers: &[i64], is_narrow: bool, out: &mut Vec<u8>) {
    let parts = (BLOCK_NUMBERS / PART_NUMBERS) as u64;
    varint(BLOCK_NUMBERS as u64, out);
    varint(parts, out);
    varint(numbers.len() as u64, out);
    let mut before = numbers.first().copied().unwrap_or(0);
    if is_narrow {
        before = i64::from(before as i32);
    }
    varint(folded(before), out);
    let mut block = [0_u64; BLOCK_NUMBERS];
    for numbers in numbers.get(1..).unwrap_or_default().chunks(BLOCK_NUMBERS) {
        let mut least = i64::MAX;
        for (difference, number) in block.iter_mut().zip(numbers) {
            let mut by = number.wrapping_sub(before);
            if is_narrow {
                // Readers add modulo 2^32.
                by = i64::from(by as i32);
            }
            least = least.min(by);
            *difference = by as u64;
            before = *number;
        }
        let block = &mut block[..numbers.len()];
        block.iter_mut().for_each(|difference| *difference = difference.wrapping_sub(least as u64));
        varint(folded(least), out);
        let widths = out.len();
        out.resize(widths + parts as usize, 0);
        for (at, part) in block.chunks(PART_NUMBERS).enumerate() {
            let all = part.iter().fold(0, |all, difference| all | difference);
            let width = (u64::BITS - all.leading_zeros()) as u8;
            out[widths + at] = width;
            bits(part, width, out);
        }
    }
}

/// A part of a block of differences, filled up with zeros.
fn bits(part: &[u64], width: u8, out: &mut Vec<u8>) {
    let (mut word, mut held) = (0_u64, 0_u32);
    let end = out.len() + PART_NUMBERS / 8 * usize::from(width);
    for difference in part {
        word |= difference << held;
        let more = held + u32::from(width);
        if more < u64::BITS {
            held = more;
            continue;
        }
        out.extend_from_slice(&word.to_le_bytes());
        // Bits that had no place in the word.
        word = difference.checked_shr(u64::BITS - held).unwrap_or(0);
        held = more - u64::BITS;
    }
    out.extend_from_slice(&word.to_le_bytes());
    out.resize(end, 0);
}

pub(super) fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// A number whose sign is its last bit.
pub(super) fn folded(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn number(from: &mut &[u8]) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = from[0];
            *from = &from[1..];
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return number;
            }
            shift += 7;
        }
    }

    /// Reads runs and bits, as the specification says.
    fn read(mut from: &[u8], width: u8, count: usize) -> Vec<u32> {
        let mut numbers = Vec::new();
        while !from.is_empty() {
            let head = number(&mut from);
            if head & 1 == 0 {
                let bytes = usize::from(width.div_ceil(8));
                let mut word = [0; 4];
                word[..bytes].copy_from_slice(&from[..bytes]);
                from = &from[bytes..];
                numbers.extend(std::iter::repeat_n(u32::from_le_bytes(word), (head >> 1) as usize));
                continue;
            }
            for at in 0..(head >> 1) as usize * 8 {
                let mut number = 0;
                for bit in 0..usize::from(width) {
                    let place = at * usize::from(width) + bit;
                    number |= u32::from(from[place / 8] >> (place % 8) & 1) << bit;
                }
                numbers.push(number);
            }
            from = &from[(head >> 1) as usize * usize::from(width)..];
        }
        assert!(numbers.len() >= count && numbers.len() < count + 8);
        numbers.truncate(count);
        numbers
    }

    proptest! {
        #[test]
        fn runs_and_bits_read_back(
            runs in proptest::collection::vec((any::<u32>(), 1_usize..40), 0..20),
            width in 1_u8..=20,
        ) {
            let numbers: Vec<u32> = runs
                .into_iter()
                .flat_map(|(number, count)| vec![number & ((1 << width) - 1); count])
                .collect();
            let mut bytes = Vec::new();
            hybrid(&numbers, width, &mut bytes);
            prop_assert_eq!(read(&bytes, width, numbers.len()), numbers);
        }
    }

    /// Reads differences, as the specification says.
    fn added(mut from: &[u8], is_narrow: bool) -> Vec<i64> {
        let unfold = |number: u64| (number >> 1) as i64 ^ -((number & 1) as i64);
        let (block, parts) = (number(&mut from), number(&mut from) as usize);
        assert_eq!((block, parts), (128, 4));
        let count = number(&mut from) as usize;
        let mut last = unfold(number(&mut from));
        let mut numbers: Vec<i64> = (count > 0).then_some(last).into_iter().collect();
        while numbers.len() < count {
            let least = unfold(number(&mut from));
            let widths: [u8; 4] = from[..4].try_into().unwrap();
            from = &from[4..];
            for width in widths.map(usize::from) {
                assert!(!is_narrow || width <= 32);
                if numbers.len() == count {
                    assert_eq!(width, 0, "a part without numbers");
                    continue;
                }
                let part: Vec<u64> = (0..32)
                    .map(|at| {
                        let bit = |bit: usize| u64::from(from[bit / 8] >> (bit % 8) & 1);
                        (0..width).map(|place| bit(at * width + place) << place).sum()
                    })
                    .collect();
                from = &from[4 * width..];
                for difference in part.into_iter().take(count - numbers.len()) {
                    last = last.wrapping_add(least).wrapping_add(difference as i64);
                    last = if is_narrow { i64::from(last as i32) } else { last };
                    numbers.push(last);
                }
            }
        }
        assert!(from.is_empty());
        numbers
    }

    proptest! {
        #[test]
        fn differences_add_up(
            numbers in proptest::collection::vec(
                prop_oneof![any::<i64>(), -9..9_i64, any::<i16>().prop_map(i64::from),
                    Just(i64::MAX), Just(i64::MIN)],
                0..600,
            ),
            is_narrow: bool,
        ) {
            let narrow = |number: i64| if is_narrow { i64::from(number as i32) } else { number };
            let numbers: Vec<i64> = numbers.into_iter().map(narrow).collect();
            let mut bytes = Vec::new();
            differences(&numbers, is_narrow, &mut bytes);
            prop_assert_eq!(added(&bytes, is_narrow), numbers);
        }
    }
}
