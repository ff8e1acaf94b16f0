//! Records as they are written and read.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const TAIL: Tail = Tail { key: 9, request: 3, is_error: true, from: 1 << 40 };

fn string() -> impl Strategy<Value = Vec<u8>> {
    vec(1..=255_u8, 0..20)
}

fn launches() -> impl Strategy<Value = Launch> {
    let name = string().prop_filter("a name", |name| !name.is_empty() && !name.contains(&b'='));
    let env = vec((name, string()), 0..5);
    let option = || proptest::option::of(string());
    (
        (any::<(u64, Option<u64>)>(), sources()),
        vec(string(), 1..5),
        env,
        option(),
        option(),
        any::<u64>(),
        option(),
        (
            vec(unchanged(), 0..3),
            proptest::option::of(any::<(u64, bool)>()),
            proptest::collection::btree_set(0..CPUS_MAX as u32, 0..4),
            vec(string(), 0..3),
            vec(string(), 0..3),
        ),
    )
        .prop_map(
            |(
                ((key, after), source),
                argv,
                env,
                cwd,
                stdin,
                capture_bytes_max,
                spill,
                (unchanged, memory, cpus, without, ranked_by),
            )| {
                let memory = memory.map(|(bytes, in_group)| MemoryLimit { bytes, in_group });
                Launch {
                    key,
                    after,
                    argv,
                    env,
                    cwd,
                    stdin,
                    capture_bytes_max,
                    spill,
                    unchanged,
                    source,
                    memory,
                    cpus: cpus.into_iter().collect(),
                    without,
                    ranked_by,
                }
            },
        )
}

fn sources() -> impl Strategy<Value = Source> {
    let copy = any::<u64>().prop_map(|of| Source::Copy { of });
    prop_oneof![Just(Source::Program), Just(Source::Template), copy, Just(Source::Forked)]
}

fn unchanged() -> impl Strategy<Value = Unchanged> {
    (string(), any::<(u64, u64, (i64, i64))>()).prop_map(|(path, (bytes, inode, modified))| {
        Unchanged { path, mark: FileMark { bytes, inode, modified } }
    })
}

fn read_launch(record: &[u8]) -> Launch {
    let mut order = LaunchRecord::read(record).unwrap().unwrap();
    let mut unchanged = Vec::new();
    let file = |path: &CStr, mark| {
        unchanged.push(Unchanged { path: path.to_bytes().to_vec(), mark });
    };
    order.unchanged(file).unwrap();
    let owned = |text: Option<&CStr>| text.map(|text| text.to_bytes().to_vec());
    let mut launch = Launch {
        key: order.key,
        cwd: owned(order.cwd),
        stdin: owned(order.stdin),
        capture_bytes_max: order.capture_bytes_max as u64,
        spill: order.spill.map(<[u8]>::to_vec),
        unchanged,
        source: order.source,
        memory: order.memory,
        cpus: order.cpus.map_or_else(Vec::new, |set| {
            (0..CPUS_MAX as u32)
                .filter(|at| set.0[*at as usize / 64] >> (at % 64) & 1 == 1)
                .collect()
        }),
        ranked_by: order.ranked_by.clone(),
        ..Launch::default()
    };
    let (argv, env) = (&mut launch.argv, &mut launch.env);
    let split = |variable: Variable<'_>| {
        let value = &variable.setting.to_bytes()[variable.name.len() + 1..];
        env.push((variable.name.to_vec(), value.to_vec()));
    };
    let without = &mut launch.without;
    order
        .strings(
            |prefix| without.push(prefix.to_vec()),
            |argument| argv.push(argument.to_bytes().to_vec()),
            split,
        )
        .unwrap();
    launch
}

proptest! {
    #[test]
    fn launches_and_kills_arrive_however_the_stream_is_cut(
        launches in vec(launches(), 0..6),
        grace in any::<u32>(),
        cuts in vec(1..200_usize, 1..50),
    ) {
        let kill = Kill { key: 7, grace: Duration::from_millis(grace.into()) };
        let mut stream = Vec::new();
        for launch in &launches {
            put_launch(&mut stream, launch);
        }
        put_kill(&mut stream, kill);
        put_take_back(&mut stream, 8);
        put_tail(&mut stream, &TAIL);
        let (mut incoming, mut arrived, mut killed) = (Incoming::default(), vec![], None);
        let (mut taken_back, mut tailed) = (None, None);
        let mut cuts = cuts.into_iter().cycle();
        let mut rest = stream.as_slice();
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(cuts.next().unwrap()));
            incoming.room()[..now.len()].copy_from_slice(now);
            incoming.filled(now.len());
            rest = later;
            while let Some(record) = incoming.next().unwrap() {
                match read_for_host(record).unwrap() {
                    ForHost::Launch { key, after, .. } => {
                        arrived.push(Launch { after, ..read_launch(record) });
                        prop_assert_eq!(launch_key(record), key);
                    }
                    ForHost::Kill(kill) => killed = Some(kill),
                    ForHost::TakeBack(key) => taken_back = Some(key),
                    ForHost::Tail(tail) => tailed = Some(tail),
                }
            }
        }
        let bounded = launches.into_iter().map(|launch| Launch {
            capture_bytes_max: launch.capture_bytes_max.min(CAPTURE_BYTES_MAX),
            ..launch
        });
        prop_assert_eq!(arrived, bounded.collect::<Vec<_>>());
        prop_assert_eq!(killed, Some(kill));
        prop_assert_eq!(taken_back, Some(8));
        prop_assert_eq!(tailed, Some(TAIL));
    }

    #[test]
    fn ends_arrive(
        numbers in any::<[u64; 8]>(),
        had in proptest::option::of(any::<Option<u64>>()),
        which in 0..3_u8,
        ranks in vec(any::<u32>(), 0..3),
        number in any::<i32>(),
        stage in 0..9_u8,
        output in vec(any::<u8>(), 0..100),
        bound in 0..120_usize,
    ) {
        let outcome = match which {
            0 => Outcome::Exit(number),
            1 => Outcome::Signal(number),
            _ => {
                let stage = Stage::from_byte(stage).unwrap();
                Outcome::NotStarted { stage, errno: number }
            }
        };
        let [key, started, ended, user_us, system_us, rss_max_bytes, read_bytes, written_bytes] =
            numbers;
        let usage = Usage { user_us, system_us, rss_max_bytes, read_bytes, written_bytes };
        let mut stdout = Stream::default();
        // There is no such directory, so what is over the bound gives an error.
        stdout.begin(bound, Some(b"/proc/no/such"), "");
        stdout.take(&output);
        let mut bytes = Vec::new();
        let shortage = had.map(|had| match had {
            Some(had_bytes) => Shortage::OverLimit { had_bytes },
            None => Shortage::OfSystem,
        });
        let ranks = ranks.into_iter().map(|rank| RankUsage { rank, usage }).collect::<Vec<_>>();
        let report =
            Report { key, outcome, started, ended, usage, shortage, ranks: ranks.clone() };
        put_ended(&mut bytes, &report, [&stdout, &Stream::default()]);
        let (record, length) = split(&bytes).unwrap().unwrap();
        prop_assert_eq!(length, bytes.len());
        let stdout = Captured {
            head: output[..bound.min(output.len())].to_vec(),
            total_bytes: output.len() as u64,
            spill: None,
            spill_error: (output.len() > bound).then_some(libc::ENOENT),
        };
        let stderr = Captured::default();
        let expected =
            Ended { key, outcome, started, ended, stdout, stderr, usage, shortage, ranks };
        prop_assert_eq!(read_for_executor(record), Ok(ForExecutor::Ended(expected)));
    }

    #[test]
    fn garbled_records_are_errors(kind in 0..10_u8, bytes in vec(any::<u8>(), 0..200)) {
        let record = [&[kind], bytes.as_slice()].concat();
        let _ = read_for_executor(&record);
        let _ = read_for_host(&record);
        if let Ok(Ok(order)) = LaunchRecord::read(&record) {
            let _ = order.strings(|_| {}, |_| {}, |_| {});
        }
        let _ = split(&record);
    }
}

#[test]
fn a_record_of_impossible_length_is_an_error() {
    assert_eq!(split(&u32::MAX.to_le_bytes()), Err(Garbled));
    assert_eq!(split(&0_u32.to_le_bytes()), Err(Garbled));
    assert_eq!(split(&[1, 0, 0]), Ok(None));
}
