//! Frames: over real TCP at every level, and over streams that cut, change and
//! mix them.

#![allow(clippy::unwrap_used, reason = "a test or a benchmark fails by panicking")]

use std::sync::Arc;

use falkon_net::secure::{
    Acceptor, FRAME_BYTES_MAX, FrameReader, FrameWriter, Identity, Level, QueueError, ReadError,
    Role, Session, WRITE_QUEUE_BYTES_MAX, connect, connect_over, plain,
};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, copy_bidirectional, duplex};
use tokio::net::TcpListener;

const LEVELS: [Level; 3] = [Level::None, Level::Authenticate, Level::Encrypt];
const VERSION: u16 = 3;

fn run<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn acceptor(level: Level) -> (Arc<Identity>, Acceptor) {
    let dir = tempfile::tempdir().unwrap();
    let identity = Arc::new(Identity::open(dir.path()).unwrap());
    let acceptor = Acceptor::new(Arc::clone(&identity), level, VERSION).unwrap();
    (identity, acceptor)
}

/// A client's and a server's session over TCP.
async fn tcp_sessions(level: Level) -> (Session, Session) {
    let (identity, acceptor) = acceptor(level);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let access = identity.access_file(level, &[address], &[Role::Executor]);
    let (client, server) = tokio::join!(connect(&access, Role::Executor, VERSION), async {
        let (stream, _) = listener.accept().await.unwrap();
        acceptor.accept(stream, |_| false).await
    });
    (client.unwrap(), server.unwrap())
}

/// A client's and a server's session whose streams end in the caller's hands:
/// what the client sends arrives at the first, and what is written to the second
/// arrives at the server.
async fn tapped_sessions(level: Level) -> (Session, Session, DuplexStream, DuplexStream) {
    let (identity, acceptor) = acceptor(level);
    let access = identity.access_file(level, &["tap".to_owned()], &[Role::Client]);
    let (near_client, mut from_client) = duplex(1 << 20);
    let (near_server, mut to_server) = duplex(1 << 20);
    let handshakes = async {
        tokio::join!(
            connect_over(near_client, "tap".to_owned(), &access, Role::Client, VERSION),
            acceptor.accept_over(near_server, "tap".to_owned(), |_| false),
        )
    };
    let (client, server) = tokio::select! {
        sessions = handshakes => sessions,
        copied = copy_bidirectional(&mut from_client, &mut to_server) => {
            panic!("the streams ended early: {copied:?}")
        }
    };
    (client.unwrap(), server.unwrap(), from_client, to_server)
}

/// A body that differs from others of the same length and at every place.
fn body(index: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(31) ^ (at >> 8) ^ index) as u8).collect()
}

async fn send_all(writer: &mut FrameWriter, sizes: &[usize], per_flush: usize) {
    for (index, size) in sizes.iter().enumerate() {
        let body = body(index, *size);
        if index % 2 == 0 {
            writer.queue(&body).unwrap();
        } else {
            writer.queue_with(|buffer| buffer.extend_from_slice(&body)).unwrap();
        }
        if index % per_flush == per_flush - 1 || writer.queued_bytes() > 1 << 20 {
            writer.flush().await.unwrap();
            assert_eq!(writer.queued_bytes(), 0);
        }
    }
    writer.flush().await.unwrap();
}

async fn receive_all(reader: &mut FrameReader, sizes: &[usize]) {
    let mut index = 0;
    while index < sizes.len() {
        let batch = reader.read_batch().await.unwrap().expect("more frames were sent");
        assert!(batch.len() > 0);
        let (announced, first) = (batch.len(), index);
        for frame in batch {
            assert!(frame == body(index, sizes[index]), "frame {index} of {sizes:?}");
            index += 1;
        }
        assert_eq!(index - first, announced);
    }
}

async fn next_error(reader: &mut FrameReader) -> ReadError {
    reader.read_batch().await.map(|batch| batch.map(|b| b.len())).unwrap_err()
}

fn sizes() -> impl Strategy<Value = Vec<usize>> {
    let size = prop_oneof![
        4 => Just(0),
        20 => 1usize..200,
        4 => 200usize..70_000,
        1 => 200_000usize..600_000,
    ];
    prop::collection::vec(size, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn frames_arrive_whole_and_in_order_both_ways(
        there in sizes(), back in sizes(), per_flush in 1usize..20, level in 0usize..3,
    ) {
        run(async {
            let (mut client, mut server) = tcp_sessions(LEVELS[level]).await;
            tokio::join!(
                send_all(&mut client.writer, &there, per_flush),
                receive_all(&mut server.reader, &there),
                send_all(&mut server.writer, &back, per_flush),
                receive_all(&mut client.reader, &back),
            );
            let (closed, end) = tokio::join!(client.writer.close(), server.reader.read_batch());
            closed.unwrap();
            assert!(end.unwrap().is_none());
        });
    }

    /// Whatever the pieces in which bytes arrive, the same frames come out, and
    /// what is left over is an end in mid-frame.
    #[test]
    fn framing_does_not_depend_on_how_bytes_arrive(
        sizes in prop::collection::vec(0usize..50, 0..40), piece in 1usize..80, cut in 0usize..60,
    ) {
        run(async {
            let mut bytes = Vec::new();
            let mut ends = Vec::new();
            for (index, size) in sizes.iter().enumerate() {
                bytes.extend_from_slice(&(*size as u32).to_le_bytes());
                bytes.extend_from_slice(&body(index, *size));
                ends.push(bytes.len());
            }
            bytes.truncate(bytes.len().saturating_sub(cut));
            let whole = ends.iter().filter(|end| **end <= bytes.len()).count();
            let at_boundary = bytes.len() == whole.checked_sub(1).map_or(0, |last| ends[last]);

            let (near, mut far) = duplex(piece);
            let (mut reader, _writer) = plain(near);
            let sending = async move { far.write_all(&bytes).await.unwrap() };
            let receiving = async {
                receive_all(&mut reader, &sizes[..whole]).await;
                match reader.read_batch().await {
                    Ok(None) => assert!(at_boundary),
                    Err(ReadError::CutShort) => assert!(!at_boundary),
                    other => panic!("{other:?}"),
                }
            };
            tokio::join!(sending, receiving);
        });
    }

    /// One bit flipped anywhere in the stream: the frames before it arrive, no
    /// frame from it on does.
    #[test]
    fn a_flipped_bit_is_noticed(
        sizes in prop::collection::vec(0usize..60, 1..8), place: prop::sample::Index, bit in 0u8..8,
    ) {
        run(async {
            let (mut client, mut server, mut from_client, mut to_server) =
                tapped_sessions(Level::Authenticate).await;
            send_all(&mut client.writer, &sizes, usize::MAX).await;
            let mut bytes = vec![0; sizes.iter().map(|size| size + 20).sum()];
            from_client.read_exact(&mut bytes).await.unwrap();
            let place = place.index(bytes.len());
            bytes[place] ^= 1 << bit;
            to_server.write_all(&bytes).await.unwrap();
            drop(to_server);

            let mut end = 0;
            let good = sizes.iter().take_while(|size| { end += **size + 20; end <= place }).count();
            receive_all(&mut server.reader, &sizes[..good]).await;
            // A changed length may also point past the end.
            let error = next_error(&mut server.reader).await;
            assert!(!matches!(error, ReadError::Io(_)), "{error}");
            let again = next_error(&mut server.reader).await;
            assert_eq!(error.to_string(), again.to_string());
        });
    }

    /// Any other sequence of the same sealed frames (a replay, a swap, an
    /// omission) is cut off where it leaves the true one.
    #[test]
    fn frames_out_of_their_place_are_noticed(picks in prop::collection::vec(0usize..5, 1..8)) {
        run(async {
            let (mut client, mut server, mut from_client, mut to_server) =
                tapped_sessions(Level::Authenticate).await;
            let sizes = [30; 5];
            send_all(&mut client.writer, &sizes, 2).await;
            let mut bytes = vec![0; 50 * 5];
            from_client.read_exact(&mut bytes).await.unwrap();
            for pick in &picks {
                to_server.write_all(&bytes[pick * 50..][..50]).await.unwrap();
            }
            drop(to_server);
            let good = picks.iter().enumerate().take_while(|(at, pick)| at == *pick).count();
            receive_all(&mut server.reader, &sizes[..good]).await;
            match server.reader.read_batch().await {
                Ok(None) => assert_eq!(good, picks.len()),
                Err(ReadError::Tampered { number }) => assert_eq!(number as usize, good),
                other => panic!("{other:?}"),
            };
        });
    }
}

/// Some frames sealed, others not, in one stream of bytes; and where each ends.
async fn sealed_stream(
    client: &mut Session,
    from_client: &mut DuplexStream,
    sealed: &[bool],
) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for (index, sealed) in sealed.iter().enumerate() {
        let body = body(index, BODY_BYTES);
        let encode = |buffer: &mut Vec<u8>| buffer.extend_from_slice(&body);
        match sealed {
            true => client.writer.queue_sealed_with(encode).unwrap(),
            false => client.writer.queue_with(encode).unwrap(),
        }
        let mut frame = vec![0; client.writer.queued_bytes()];
        client.writer.flush().await.unwrap();
        from_client.read_exact(&mut frame).await.unwrap();
        frames.push(frame);
    }
    frames
}

const BODY_BYTES: usize = 40;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// At the levels that leave other frames readable, nobody in between reads
    /// a sealed one, changes it, or has it count at another place.
    #[test]
    fn sealed_frames_are_read_by_the_peer_alone_and_at_their_place_alone(
        sealed in prop::collection::vec(any::<bool>(), 1..8),
        which: prop::sample::Index,
        place: prop::sample::Index,
        other: prop::sample::Index,
        bit in 0u8..8,
        codes: bool,
    ) {
        run(async {
            let level = if codes { Level::Authenticate } else { Level::None };
            let sizes = vec![BODY_BYTES; sealed.len()];
            let (mut client, mut server, mut from_client, mut to_server) =
                tapped_sessions(level).await;
            let frames = sealed_stream(&mut client, &mut from_client, &sealed).await;
            for (index, (frame, sealed)) in frames.iter().zip(&sealed).enumerate() {
                let body = body(index, BODY_BYTES);
                let shows = frame.windows(8).any(|part| body.windows(8).any(|of| of == part));
                assert_eq!(shows, !sealed);
            }
            // As they are, they arrive.
            to_server.write_all(&frames.concat()).await.unwrap();
            receive_all(&mut server.reader, &sizes).await;

            // A bit of a sealed one, or another frame in its place.
            let which = which.index(sealed.len());
            if !sealed[which] {
                return;
            }
            let other = other.index(frames.len());
            for change in 0..2 {
                // Without codes, a frame that is not sealed says what it likes.
                if change == 1 && !codes && !sealed[other] {
                    continue;
                }
                let (mut client, mut server, mut from_client, mut to_server) =
                    tapped_sessions(level).await;
                let mut changed = sealed_stream(&mut client, &mut from_client, &sealed).await;
                match change {
                    // Behind the length, which says how much is to come.
                    0 => {
                        let at = 4 + place.index(changed[which].len() - 4);
                        changed[which][at] ^= 1 << bit;
                    }
                    // What was sent over another connection, at this place or another.
                    _ => changed[which] = frames[other].clone(),
                }
                to_server.write_all(&changed.concat()).await.unwrap();
                receive_all(&mut server.reader, &sizes[..which]).await;
                let error = next_error(&mut server.reader).await;
                let is_noticed =
                    matches!(error, ReadError::Tampered { number } if number as usize == which);
                assert!(is_noticed, "{error}");
            }
        });
    }
}

#[test]
fn a_sealed_frame_does_not_count_in_the_other_direction() {
    for level in [Level::None, Level::Authenticate] {
        run(async {
            let (mut client, server, mut from_client, to_server) = tapped_sessions(level).await;
            let frames = sealed_stream(&mut client, &mut from_client, &[true]).await;
            from_client.write_all(&frames[0]).await.unwrap();
            let error = next_error(&mut client.reader).await;
            assert!(matches!(error, ReadError::Tampered { number: 0 }), "{error}");
            drop((server, to_server));
        });
    }
}

#[test]
fn the_largest_frame_can_be_sealed_at_every_level_and_no_larger_one() {
    for level in LEVELS {
        run(async {
            let (mut client, mut server) = tcp_sessions(level).await;
            let largest = body(0, FRAME_BYTES_MAX);
            let send = async {
                let encode = |buffer: &mut Vec<u8>| buffer.extend_from_slice(&largest);
                let over =
                    |buffer: &mut Vec<u8>| buffer.resize(buffer.len() + largest.len() + 1, 0);
                let too_large = QueueError::TooLarge { bytes: FRAME_BYTES_MAX + 1 };
                assert_eq!(client.writer.queue_sealed_with(over), Err(too_large));
                client.writer.queue_sealed_with(encode).unwrap();
                client.writer.flush().await.unwrap();
                client.writer.queue(&body(1, 5)).unwrap();
                client.writer.queue_sealed_with(|_| ()).unwrap();
                client.writer.flush().await.unwrap();
            };
            tokio::join!(send, receive_all(&mut server.reader, &[FRAME_BYTES_MAX, 5, 0]));
        });
    }
}

#[test]
fn the_largest_frame_passes_at_every_level_and_small_ones_after_it() {
    for level in LEVELS {
        run(async {
            let (mut client, mut server) = tcp_sessions(level).await;
            let mut sizes = vec![5, FRAME_BYTES_MAX, 0];
            // Enough rounds for both buffers to be given back.
            sizes.extend([7; 200]);
            sizes.push(1 << 20);
            tokio::join!(
                send_all(&mut client.writer, &sizes, 1),
                receive_all(&mut server.reader, &sizes),
            );
        });
    }
}

#[test]
fn a_body_over_the_largest_is_not_queued_and_the_queue_stays_as_it_was() {
    run(async {
        let (mut client, mut server) = tcp_sessions(Level::Authenticate).await;
        client.writer.queue(b"before").unwrap();
        let queued = client.writer.queued_bytes();
        let over = vec![0; FRAME_BYTES_MAX + 1];
        let too_large = Err(QueueError::TooLarge { bytes: over.len() });
        assert_eq!(client.writer.queue(&over), too_large);
        assert_eq!(client.writer.queue_with(|buffer| buffer.extend_from_slice(&over)), too_large);
        assert_eq!(client.writer.queued_bytes(), queued);
        client.writer.queue(b"after").unwrap();
        client.writer.flush().await.unwrap();
        let mut received = Vec::new();
        while received.len() < 2 {
            let batch = server.reader.read_batch().await.unwrap().unwrap();
            received.extend(batch.map(<[u8]>::to_vec));
        }
        assert_eq!(received, [b"before".to_vec(), b"after".to_vec()]);
    });
}

#[test]
fn the_queue_is_bounded() {
    run(async {
        let (near, mut far) = duplex(1 << 16);
        let (_reader, mut writer) = plain(near);
        let body = vec![1; 1 << 20];
        let mut frames = 0;
        while writer.queue(&body).is_ok() {
            frames += 1;
        }
        assert_eq!(writer.queue(b""), Err(QueueError::Full));
        let queued = writer.queued_bytes();
        assert!((WRITE_QUEUE_BYTES_MAX..WRITE_QUEUE_BYTES_MAX + body.len() + 4).contains(&queued));

        // A flush that is given up half-way loses and repeats nothing.
        let mut received = vec![0; 3 << 20];
        tokio::select! {
            biased;
            _ = far.read_exact(&mut received) => {}
            flushed = writer.flush() => panic!("{flushed:?}"),
        }
        assert!(writer.queued_bytes() < queued);
        writer.queue(&body).unwrap();
        let mut rest = vec![0; (frames + 1) * (body.len() + 4) - received.len()];
        let (flushed, read) = tokio::join!(writer.flush(), far.read_exact(&mut rest));
        flushed.unwrap();
        read.unwrap();
        received.extend(rest);
        for frame in received.chunks(body.len() + 4) {
            assert_eq!(frame[..4], (body.len() as u32).to_le_bytes());
            assert!(frame[4..] == body);
        }
    });
}

#[test]
fn an_oversized_frame_is_left_out_and_those_around_it_are_received() {
    run(async {
        let (near, mut far) = duplex(1 << 16);
        let (mut reader, _writer) = plain(near);
        let send = async move {
            let frame = |body: &[u8]| [&(body.len() as u32).to_le_bytes()[..], body].concat();
            for sent in [frame(b"ok"), frame(&vec![7; FRAME_BYTES_MAX + 1]), frame(b"so")] {
                far.write_all(&sent).await.unwrap();
            }
            // The announced length is taken for nothing but a length.
            far.write_all(&u32::MAX.to_le_bytes()).await.unwrap();
            far.write_all(&[9; 100]).await.unwrap();
        };
        let receive = async {
            let batch: Vec<_> = reader.read_batch().await.unwrap().unwrap().collect();
            assert_eq!(batch, [b"ok"]);
            let error = next_error(&mut reader).await;
            let ReadError::Skipped { bytes, head } = error else { panic!("{error}") };
            assert_eq!(bytes, FRAME_BYTES_MAX + 1);
            assert!(!head.is_empty() && head.iter().all(|byte| *byte == 7));
            let batch: Vec<_> = reader.read_batch().await.unwrap().unwrap().collect();
            assert_eq!(batch, [b"so"]);
            assert!(matches!(next_error(&mut reader).await, ReadError::CutShort));
        };
        tokio::join!(send, receive);
    });
}

#[test]
fn an_oversized_length_ends_a_connection_whose_frames_have_codes() {
    run(async {
        let (_client, mut server, _from_client, mut to_server) =
            tapped_sessions(Level::Authenticate).await;
        let over = FRAME_BYTES_MAX as u32 + 1;
        to_server.write_all(&over.to_le_bytes()).await.unwrap();
        for _ in 0..2 {
            let error = next_error(&mut server.reader).await;
            assert!(matches!(error, ReadError::TooLarge { bytes } if bytes == over as usize));
        }
    });
}

#[test]
fn a_connection_cut_without_farewell_is_an_error_inside_tls() {
    run(async {
        let (client, mut server) = tcp_sessions(Level::Encrypt).await;
        drop(client);
        assert!(matches!(next_error(&mut server.reader).await, ReadError::NoFarewell));
    });
}

#[test]
fn an_encrypted_stream_shows_nothing_of_its_frames_and_notices_changes() {
    run(async {
        let (mut client, mut server, mut from_client, mut to_server) =
            tapped_sessions(Level::Encrypt).await;
        let secret = [b'x'; 4000];
        client.writer.queue(&secret).unwrap();
        client.writer.flush().await.unwrap();
        let mut bytes = vec![0; secret.len() + 4];
        from_client.read_exact(&mut bytes).await.unwrap();
        let longest = bytes.split(|byte| *byte != b'x').map(<[u8]>::len).max();
        assert!(longest < Some(16), "{longest:?}");
        bytes[100] ^= 1;
        to_server.write_all(&bytes).await.unwrap();
        drop((from_client, to_server));
        let error = next_error(&mut server.reader).await;
        assert!(
            matches!(error, ReadError::CutShort | ReadError::NoFarewell | ReadError::Io(_)),
            "{error}"
        );
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn a_megabyte_of_noise_in_a_session_is_never_a_frame(seed: [u8; 32], level in 1usize..3) {
        run(async {
            let (_client, mut server, _from_client, mut to_server) =
                tapped_sessions(LEVELS[level]).await;
            let mut noise = vec![0; 1 << 20];
            blake3::Hasher::new_keyed(&seed).finalize_xof().fill(&mut noise);
            // The server may hang up before it has read all of it.
            let (_, error) = tokio::join!(
                async move { let _ = to_server.write_all(&noise).await; },
                next_error(&mut server.reader),
            );
            assert!(!error.to_string().is_empty());
        });
    }
}
