use super::super::bundle::Imports;
use super::*;
use crate::workers::protocol::Answers;
use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;

/// Bytes of each answer's body: several fit the buffer, and it is full again and again at the same
/// places.
const BODY_BYTES: usize = 200_000;
const CALLS: u32 = 9_000;

/// A worker's side of the buffer: it writes answers as fast as it can, as `serving.py` does. The
/// body of the answer to call `n` is `n` again and again.
fn answer_all(buffer: impl AsFd, bundle: u64, calls: u32) {
    let write = |at: usize, bytes: &[u8]| {
        assert_eq!(rustix::io::pwrite(&buffer, bytes, at as u64), Ok(bytes.len()));
    };
    let count = |bytes: usize| write(0, &(bytes as u64).to_le_bytes());
    count(0);
    write(8, &bundle.to_le_bytes());
    let mut used = 0;
    for index in 0..calls {
        let body = index.to_le_bytes().repeat(BODY_BYTES / 4);
        let mut answer = (body.len() as u32).to_le_bytes().to_vec();
        answer.extend(index.to_le_bytes());
        answer.extend([0; RECORD_HEAD_BYTES - 8]);
        answer.extend(body);
        if used + answer.len() > BUFFER_BYTES - BUFFER_HEAD_BYTES {
            count(0);
            used = 0;
        }
        write(BUFFER_HEAD_BYTES + used, &answer);
        used += answer.len();
        count(used);
    }
}

fn worker(folder: &Path) -> Worker {
    let home = Home {
        language: "test".to_owned(),
        instance: None,
        cwd: None,
        env: Vec::new(),
        imports: Imports::default(),
        interpreter: None,
    };
    Worker::new(Arc::new(home), String::new().into(), Vec::new(), folder).unwrap()
}

#[test]
fn what_is_read_of_the_buffer_is_of_one_piece_while_the_worker_writes() {
    let mut worker = worker(Path::new("/nonexistent"));
    let buffer = worker.buffer.try_clone().unwrap();
    let over = AtomicBool::new(false);
    worker.number = 1;
    let (mut whole, mut refused) = (0, 0);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            answer_all(&buffer, 1, CALLS);
            over.store(true, Ordering::Relaxed);
        });
        while !over.load(Ordering::Relaxed) {
            let Some(bytes) = worker.buffered_bytes().filter(|bytes| *bytes > 0) else { continue };
            let Some(answers) = worker.buffered(bytes) else {
                refused += 1;
                continue;
            };
            whole += 1;
            let mut next = None;
            for answer in Answers::new(&answers) {
                let answer = answer.unwrap();
                assert_eq!(*next.get_or_insert(answer.index), answer.index);
                assert_eq!(answer.value, answer.index.to_le_bytes().repeat(BODY_BYTES / 4));
                next = Some(answer.index + 1);
            }
        }
    });
    println!("{whole} copies were whole, {refused} were not");
}

#[test]
fn a_worker_that_begins_calls_is_not_where_it_was_though_its_buffer_is_as_full() {
    let worker = worker(Path::new("/nonexistent"));
    rustix::io::write(&worker.claims_in, &[0; 3]).unwrap();
    let before = worker.progress();
    assert_eq!(worker.progress(), before);
    rustix::io::read(&worker.claims, &mut [0]).unwrap();
    assert_ne!(worker.progress(), before);
}
