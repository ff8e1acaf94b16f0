use super::*;
use proptest::prelude::*;

fn stream() -> impl Strategy<Value = Captured> {
    let bytes = prop::collection::vec(any::<u8>(), 0..20);
    let file = prop::option::of(prop::collection::vec(1u8.., 1..20));
    (bytes, any::<u64>(), file).prop_map(|(head, total_bytes, spill)| Captured {
        head,
        total_bytes,
        spill,
        spill_error: None,
    })
}

fn answer() -> impl Strategy<Value = Answer> {
    let plain =
        (any::<u32>(), any::<u64>(), any::<u64>(), prop::collection::vec(any::<u8>(), 0..40));
    let left = prop::option::of(prop::collection::vec(any::<u8>(), 1..40));
    let causes = [Cause::Raised, Cause::InitializerFailed, Cause::VersionMismatch];
    let cause = prop::option::of(prop::sample::select(causes.to_vec()));
    (plain, 0..256i32, ".{0,20}", stream(), stream(), left, cause).prop_map(
        |((index, started, ended, value), code, error, stdout, stderr, left, cause)| Answer {
            index,
            started,
            ended,
            code,
            value,
            error,
            stdout,
            stderr,
            left,
            cause,
        },
    )
}

/// An answer's record, as `docs/workers.md` describes it.
fn put_record(answer: &Answer, out: &mut Vec<u8>) {
    let plain = answer.left.is_none()
        && answer.cause.is_none()
        && answer.code == 0
        && answer.error.is_empty()
        && answer.stdout == Captured::default()
        && answer.stderr == Captured::default();
    let mut body = Vec::new();
    if plain {
        body.extend_from_slice(&answer.value);
    } else {
        let more = if answer.cause.is_some() { 2 } else { usize::from(answer.left.is_some()) };
        put_array(&mut body, 9 + more);
        put_uint(&mut body, answer.code as u64);
        put_bytes(&mut body, &answer.value);
        answer.error.encode(&mut body);
        for stream in [&answer.stdout, &answer.stderr] {
            put_bytes(&mut body, &stream.head);
            put_uint(&mut body, stream.total_bytes);
            put_bytes(&mut body, stream.spill.as_deref().unwrap_or_default());
        }
        if more > 0 {
            put_bytes(&mut body, answer.left.as_deref().unwrap_or_default());
        }
        if let Some(cause) = answer.cause {
            put_uint(&mut body, cause as u64);
        }
    }
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&answer.index.to_le_bytes());
    out.push(u8::from(!plain));
    out.extend_from_slice(&answer.started.to_le_bytes());
    out.extend_from_slice(&answer.ended.to_le_bytes());
    out.extend_from_slice(&body);
}

proptest! {
    #[test]
    fn answers_are_read_as_they_were_written(answers in prop::collection::vec(answer(), 0..10)) {
        let mut bytes = Vec::new();
        for answer in &answers {
            put_record(answer, &mut bytes);
        }
        let read: Result<Vec<Answer>, _> = Answers::new(&bytes).collect();
        prop_assert_eq!(read, Ok(answers));
    }

    #[test]
    fn answers_that_are_cut_give_those_before(
        answers in prop::collection::vec(answer(), 1..10),
        cut in 1usize..1000,
    ) {
        let mut bytes = Vec::new();
        let mut ends = vec![0];
        for answer in &answers {
            put_record(answer, &mut bytes);
            ends.push(bytes.len());
        }
        let length = bytes.len().saturating_sub(cut);
        let whole = ends.iter().filter(|end| **end > 0 && **end <= length).count();
        let read: Vec<_> = Answers::new(&bytes[..length]).collect();
        prop_assert_eq!(read.iter().filter(|answer| answer.is_ok()).count(), whole);
        prop_assert_eq!(read.iter().filter(|answer| answer.is_err()).count(), usize::from(!ends.contains(&length)));
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = FromWorker::decode(&bytes);
        for _ in Answers::new(&bytes) {}
    }
}

#[test]
fn calls_are_columns() {
    let mut calls = Calls::default();
    calls.push(0, b"jab");
    calls.push(1, b"");
    let frame = calls.to_frame(7);
    let mut expected = vec![0x95, 2, 7];
    expected.extend_from_slice(&[0xc4, 8, 0, 0, 0, 0, 1, 0, 0, 0]);
    expected.extend_from_slice(&[0xc4, 8, 3, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend_from_slice(b"\xc4\x03jab");
    assert_eq!(frame[..4], (expected.len() as u32).to_le_bytes());
    assert_eq!(frame[4..], expected);
}
