use super::*;
use falkon_core::task::{Kind, Rows, Submission, TaskId};
use proptest::prelude::*;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStringExt;

/// The plan of a command line, with this piped into standard input.
fn plan_from(words: &[OsString], stdin: Option<&[u8]>) -> Result<Plan, PlanError> {
    use clap::Parser;
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        plan: PlanArgs,
    }
    let line = Line::try_parse_from(std::iter::once(&OsString::from("falkon")).chain(words));
    let surroundings = Surroundings {
        stdin: &mut stdin.unwrap_or_default(),
        stdin_is_piped: stdin.is_some(),
        current_dir: Path::new("/here"),
    };
    Plan::new(&line.unwrap().plan, surroundings)
}

fn plan(words: &[&str], stdin: Option<&str>) -> Result<Plan, PlanError> {
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    plan_from(&words, stdin.map(str::as_bytes))
}

fn argvs(plan: &Plan) -> Vec<String> {
    (0..plan.count())
        .map(|at| String::from_utf8(plan.command(at).unwrap().argv.join(&b'|')).unwrap())
        .collect()
}

fn message(words: &[&str], stdin: Option<&str>) -> String {
    plan(words, stdin).unwrap_err().to_string()
}

/// Checks that submissions are sound, and together the plan.
fn check_submissions(plan: &Plan) {
    let mut next = 0;
    for submission in plan.submissions() {
        submission.check().unwrap();
        let is_computed = matches!(submission.rows, Rows::Computed { .. });
        assert!(submission.count <= listed::SUBMISSION_TASKS_MAX || is_computed);
        check_submission(plan, &submission, next);
        next += submission.count;
    }
    assert_eq!(next, plan.count());
}

fn check_submission(plan: &Plan, submission: &Submission, first: u64) {
    let template = Template::from_bytes(&submission.template).unwrap();
    let mut class_of = Vec::new();
    for (count, class) in &submission.class_runs {
        class_of.extend(std::iter::repeat_n(*class as usize, *count as usize));
    }
    let mut after = submission.after.iter().peekable();
    for offset in 0..submission.count {
        let position = first + offset;
        // Below a relay, a task's own number is another one: where there are values, it does
        // not matter.
        let number = match &submission.rows {
            Rows::Computed { factors, .. } if factors.is_empty() => position + 1,
            _ => u64::MAX,
        };
        let expanded = template.expand(&submission.rows, offset, number).unwrap();
        assert_eq!(Some(expanded), plan.command(position));
        let class = &submission.classes[class_of[offset as usize]];
        assert_eq!(Some(class), plan.class(position));
        let name = submission.names.as_ref().and_then(|names| names.at(offset));
        let name = name.filter(|name| !name.is_empty());
        assert_eq!(name, plan.name(position).map(str::as_bytes));
        let on: Vec<TaskId> = plan.after(position).into_iter().map(TaskId).collect();
        match after.next_if(|after| after.offset == offset) {
            Some(after) => assert_eq!(after.tasks, on),
            None => assert!(on.is_empty()),
        }
    }
}

#[test]
fn sources_combine_with_the_last_fastest() {
    let plan =
        plan(&["--range", "1-2", "--each-line", "-", "--", "p", "{2}{1}", "{}"], Some("a\nb"));
    let plan = plan.unwrap();
    assert_eq!(argvs(&plan), ["p|a1|1 a", "p|b1|1 b", "p|a2|2 a", "p|b2|2 b"]);
    check_submissions(&plan);
}

#[test]
fn values_are_appended_where_the_program_would_not_see_them() {
    let argv = |words: &[&str]| argvs(&plan(words, None).unwrap())[0].clone();
    assert_eq!(argv(&["--range", "7-7", "--range", "8-8", "--", "p", "x"]), "p|x|7|8");
    assert_eq!(argv(&["--range", "7-7", "--stdin", "{}", "--", "p"]), "p");
    assert_eq!(argv(&["--range", "7-7", "--env", "A={}", "--", "p"]), "p");
    assert_eq!(argv(&["--range", "7-7", "--output", "{}", "--", "p"]), "p|7");
    assert_eq!(argv(&["--range", "7-7", "--output", "o=d/{}", "--", "p"]), "p");
    assert_eq!(argv(&["--range", "7-7", "--input", "{}", "--output", "o=d/1", "--", "p"]), "p|7");
    let script = argv(&["--range", "7-7", "--output", "b=d/{}", "--shell", "--", "tr x y < a > b"]);
    assert!(script.ends_with("|tr x y < a > b|falkon"), "{script}");
    assert_eq!(argv(&["--range", "7-7", "--", "p", "{#}"]), "p|1");
    assert_eq!(argv(&["--range", "7-7", "--", "@sleep"]), "@sleep|7");
    assert_eq!(argv(&["--range", "7-7", "--", "@sleep", "0.5"]), "@sleep|0.5");
    assert_eq!(argv(&["--range", "7-7", "--", "@noop"]), "@noop");
}

#[test]
fn values_combine_every_one_with_every_other_or_one_to_one() {
    let given = |words: &[&str]| {
        let plan = plan(words, None).unwrap();
        check_submissions(&plan);
        argvs(&plan)
    };
    let all = ["p|1|a", "p|1|b", "p|2|a", "p|2|b"];
    assert_eq!(given(&["--value", "1", "2", "--value", "a", "b", "--", "p"]), all);
    assert_eq!(given(&["p", ":::", "1", "2", ":::", "a", "b"]), all);
    assert_eq!(given(&["--zip", "p", ":::", "1", "2", ":::", "a", "b"]), ["p|1|a", "p|2|b"]);
    let zipped = ["--zip", "--range", "1-2", "--value", "a", "b", "--", "p", "{2}{1}"];
    assert_eq!(given(&zipped), ["p|a1", "p|b2"]);
    // As GNU parallel has it: the longer one's rest is left out.
    let linked = ["p", "{1}{2}{3}", ":::", "1", "2", ":::+", "a", "b", "c", ":::", "x", "y"];
    assert_eq!(given(&linked), ["p|1ax", "p|1ay", "p|2bx", "p|2by"]);
    assert_eq!(given(&["p", ":::+", "a", "b"]), ["p|a", "p|b"]);
    assert_eq!(
        message(&["--zip", "p", ":::", "1", "2", ":::", "a"], None),
        "--zip combines values one to one, and one source has 2 and another 1: give all equally \
         many (`:::+` leaves out the rest of the longer one)"
    );
    assert_eq!(message(&["p", ":::"], None), "there is nothing in `:::`");
    let list = message(&["--tasks", "-", "--value", "1"], None);
    assert_eq!(list, "--tasks names a list of complete tasks and cannot be combined with --value");
}

#[test]
fn columns_stay_together() {
    let lines = Some("a,1\nb,2\n");
    let found = plan(&["--colsep", ",", "p", "{2}", "{1}", "{3}", "::::", "-", ":::", "x"], lines);
    let found = found.unwrap();
    assert_eq!(argvs(&found), ["p|1|a|x", "p|2|b|x"]);
    check_submissions(&found);
    let piped = plan(&["--colsep", "\\t", "--", "p", "{}"], Some("a\t1\nb\t2\n")).unwrap();
    assert_eq!(argvs(&piped), ["p|a 1", "p|b 2"]);
    let uneven = message(&["--colsep", ",", "p", "::::", "-"], Some("a,1\nb\n"));
    assert_eq!(uneven, "line 2 of standard input has 1 columns, and the first one has 2");
    assert!(message(&["--colsep", "", "p", ":::", "x"], None).contains("--colsep needs"));
}

#[test]
fn rows_of_a_table_are_known_by_their_names() {
    let table = Some("name,path\n\"a, b\",d/x.fits\nc,y.fits\n");
    let words = ["--rows", "-", "p", "{path/.}", "{name}={2}", ":::", "1", "2"];
    let found = plan(&words, table).unwrap();
    assert_eq!(argvs(&found)[..2], ["p|x|a, b=d/x.fits", "p|x|a, b=d/x.fits"]);
    assert_eq!(argvs(&found)[3], "p|y|c=y.fits");
    check_submissions(&found);
    let script = plan(&["--rows", "-", "--shell", "p '{name}' {path//}"], table).unwrap();
    assert_eq!(script.command(0).unwrap().argv[4..], [b"a, b".to_vec(), b"d".to_vec()]);
    // Without a placeholder, all columns follow.
    assert_eq!(argvs(&plan(&["--rows", "-", "p"], table).unwrap())[1], "p|c|y.fits");
    assert_eq!(
        message(&["--rows", "-", "p"], Some("a,b\n")),
        "there is nothing in `standard input`"
    );
}

#[test]
fn decimals_and_padded_numbers_are_computed() {
    let found = plan(&["--range", "0.1-0.3:0.1", "--range", "08-10", "p", "{}", "{1.}-{#}"], None);
    let found = found.unwrap();
    assert_eq!(argvs(&found)[..2], ["p|0.1 08|0-1", "p|0.1 09|0-2"]);
    assert_eq!(argvs(&found)[8], "p|0.3 10|0-9");
    check_submissions(&found);
    check_submissions(&found.select([1..3, 5..8]));
    assert_eq!(found.values(8), [b"0.3".to_vec(), b"10".to_vec()]);
    let huge = plan(&["--range", "0.000001-1000000:0.000001", "--shell", "p '{}'"], None).unwrap();
    let submissions: Vec<Submission> = huge.submissions().collect();
    assert_eq!((submissions.len(), submissions[0].count), (1, 1_000_000_000_000));
    assert!(submissions[0].bytes() < 1000);
    let last = huge.command(huge.count() - 1).unwrap();
    assert_eq!(last.argv.last().unwrap(), b"1000000.000000");
}

#[test]
fn a_script_in_the_place_of_a_program_is_named() {
    let text = message(&["echo {}", ":::", "a"], None);
    assert!(text.starts_with("`echo {}` is one word, and there is no program of that name: did"));
    assert!(plan(&["--shell", "echo {}", ":::", "a"], None).is_ok());
}

proptest! {
    /// Sources in groups, each group's values one to one, against nested loops.
    #[test]
    fn combinations_agree_with_nested_loops(
        groups in prop::collection::vec(prop::collection::vec(1usize..5, 1..3), 1..4),
    ) {
        let mut words: Vec<String> = vec!["p".into()];
        let mut expected: Vec<String> = vec!["p".into()];
        let mut source = 0;
        for group in &groups {
            let shortest = *group.iter().min().unwrap();
            let mut rows = vec![String::new(); shortest];
            for (at, length) in group.iter().enumerate() {
                words.push(if at == 0 { ":::" } else { ":::+" }.into());
                words.extend((0..*length).map(|value| format!("{source}.{value}")));
                for (value, row) in rows.iter_mut().enumerate() {
                    row.push_str(&format!("|{source}.{value}"));
                }
                source += 1;
            }
            expected = expected
                .iter()
                .flat_map(|before| rows.iter().map(move |row| format!("{before}{row}")))
                .collect();
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let found = plan(&words, None).unwrap();
        prop_assert_eq!(argvs(&found), expected);
        check_submissions(&found);
    }
}

#[test]
fn lines_of_standard_input_are_the_source_if_a_placeholder_asks_for_one() {
    let lines = Some("a b\n\nc\r\n");
    assert_eq!(argvs(&plan(&["--", "p", "{}"], lines).unwrap()), ["p|a b", "p|", "p|c"]);
    let shell = plan(&["--shell", "--", "p '{}'"], lines).unwrap();
    assert_eq!(shell.count(), 3);
    // Without a place for them they are somebody else's.
    assert_eq!(argvs(&plan(&["--", "p", "{#}", "{x}"], lines).unwrap()), ["p|1|{x}"]);
    assert_eq!(argvs(&plan(&["--", "p"], Some("")).unwrap()), ["p"]);
    assert_eq!(argvs(&plan(&["--", "p"], None).unwrap()), ["p"]);
    assert_eq!(argvs(&plan(&["--range", "1-1", "--", "p"], Some("a")).unwrap()), ["p|1"]);
    check_submissions(&plan(&["--", "p", "{#}"], None).unwrap());
}

#[test]
fn builtins_have_kinds() {
    let kind = |words: &[&str]| plan(words, None).unwrap().class(0).unwrap().kind;
    assert_eq!(kind(&["--", "@noop"]), Kind::Noop);
    assert_eq!(kind(&["--range", "0-3", "--", "@sleep", "{}.5"]), Kind::Sleep);
    assert_eq!(kind(&["--", "./@noop"]), Kind::Process);
    assert!(message(&["--", "@nop"], None).contains("write `./@nop`"));
    assert!(message(&["--shell", "--", "@noop"], None).contains("leave out --shell"));
    for words in [&["--", "@sleep"][..], &["--", "@sleep", "x"], &["--", "@sleep", "-1"]] {
        assert!(message(words, None).contains("@sleep takes one number of seconds"));
    }
    assert!(message(&["--range", "-3-5", "--", "@sleep", "{}"], None).contains("not `-3`"));
}

#[test]
fn a_huge_range_is_one_submission() {
    let plan = plan(&["--range", "1-1000000", "--range", "1-1000000", "--", "p", "{#}"], None);
    let plan = plan.unwrap();
    let submissions: Vec<Submission> = plan.submissions().collect();
    assert_eq!(submissions.len(), 1);
    submissions[0].check().unwrap();
    assert_eq!(submissions[0].count, 1_000_000_000_000);
    assert!(submissions[0].bytes() < 1000);
    let last = plan.count() - 1;
    assert_eq!(plan.command(last).unwrap().argv[1], b"1000000000000");
    assert_eq!(plan.command(last + 1), None);
    let few = plan.select([5..7, 10_000..20_000, last..last + 5]);
    assert_eq!(few.count(), 10_003);
    assert_eq!(few.index_of(10_002), last);
    check_submissions(&few);
}

#[test]
fn a_selection_keeps_computed_runs_where_it_can() {
    let plan = plan(&["--range", "0-99999", "--", "p", "{}"], None).unwrap();
    let some = plan.select([0..10, 100..50_000]);
    let submissions: Vec<Submission> = some.submissions().collect();
    assert_eq!(submissions.len(), 2);
    assert!(matches!(submissions[0].rows, Rows::Packed(_)));
    assert!(matches!(submissions[1].rows, Rows::Computed { .. }));
    check_submissions(&some);
    check_submissions(&some.select([9..101, 200..1500]));
}

#[test]
fn declared_files_give_dependencies_in_products() {
    let words = ["--range", "1-3", "--input", "{}.in", "--output", "{#}.out", "--", "p"];
    assert!(plan(&words, None).unwrap().after(1).is_empty());
    let words = ["--each-line", "-", "--input", "{}", "--output", "{.}", "--", "p"];
    let chain = plan(&words, Some("a.b.c\na.b\na")).unwrap_err();
    assert_eq!(chain.to_string(), "tasks `#2` and `#3` both declare the output `a`");
    let chain = plan(&words, Some("a.b.c.d\na.b\na.b.c")).unwrap();
    assert_eq!((chain.after(0), chain.after(1), chain.after(2)), (vec![], vec![2], vec![0]));
    check_submissions(&chain);
    let rest = chain.select(std::iter::once(1..3));
    assert_eq!((rest.after(0), rest.after(1)), (vec![1], vec![]));
    check_submissions(&rest);
    let words = ["--range", "1-2", "--output", "same", "--", "p"];
    assert!(message(&words, None).contains("both declare the output `same`"));
    let words = ["--range", "1-999999999", "--output", "{}", "--", "p"];
    assert!(matches!(plan(&words, None), Err(PlanError::TooManyOutputs { .. })));
}

#[test]
fn files_are_found_and_missing_ones_named() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name).to_str().unwrap().to_owned();
    for name in ["b.x", "a.x", "[a].x", "two words.x"] {
        std::fs::write(path(name), "").unwrap();
    }
    let odd = root.path().join(OsString::from_vec(b"odd\xff.x".to_vec()));
    std::fs::write(&odd, "").unwrap();
    let words = ["--each", &path("*.x"), "--", "p", "{/}"].map(OsString::from);
    let found = plan_from(&words, None).unwrap();
    let names: Vec<Vec<u8>> =
        (0..found.count()).map(|at| found.command(at).unwrap().argv.remove(1)).collect();
    let expected: [&[u8]; 5] = [b"[a].x", b"a.x", b"b.x", b"odd\xff.x", b"two words.x"];
    assert_eq!(names, expected);
    check_submissions(&found);

    let listed = plan(&["--each", &path("[a].x"), &path("b.x"), "--", "p", "{/.}"], None).unwrap();
    assert_eq!(argvs(&listed), ["p|[a]", "p|b"]);
    assert_eq!(
        message(&["--each", &path("*.y"), "--", "p"], None),
        format!("no file matches `{}`", path("*.y"))
    );
    assert_eq!(
        message(&["--each", &path("z"), "--", "p"], None),
        format!("no such file: `{}`", path("z"))
    );
    let swallowed = message(&["--each", &path("a.x"), "gzip"], None);
    assert_eq!(swallowed, "no such file: `gzip` (the command to run goes after `--`)");
    assert!(message(&["--each", &path("a.x")], None).contains("no command"));

    let folder = root.path().to_str().unwrap();
    for option in ["--each-line", "--tasks", "--workflow"] {
        let command: &[&str] = if option == "--each-line" { &["--", "p"] } else { &[] };
        let words = |file| [&[option, file], command].concat();
        let text = message(&words(folder), None);
        assert!(text.ends_with("is a directory, but a file is expected"), "{text}");
        assert!(message(&words("/no/such"), None).contains("cannot read `/no/such`: No such file"));
    }
    assert!(message(&["--each-line", &path("a.x"), "--", "p"], None).contains("nothing in"));
}

#[test]
fn combinations_that_make_no_sense_are_refused() {
    for (words, part) in [
        (
            &["--tasks", "f", "--", "p"][..],
            "--tasks names a list of complete tasks and cannot be combined with a command",
        ),
        (&["--tasks", "f", "--range", "1-2"], "cannot be combined with --range"),
        (
            &["--workflow", "f", "--each", "x"],
            "--workflow names a list of complete tasks and cannot be combined with --each",
        ),
        (&["--workflow", "f", "--tasks", "g"], "cannot be combined with --workflow"),
        (&["--workflow", "f", "--shell"], "cannot be combined with --shell"),
        (&["--each-line", "-", "--each-line", "-", "--", "p"], "can be read only once"),
        (&[], "there is no command"),
        (&["--", ""], "there is no command"),
        (&["--range", "1-2", "--range", "1-2", "--", "p", "{3}"], "there are 2"),
        (&["--range", "1-2", "--", "p", "{2/.}"], "there is only 1"),
        (&["--", "p", "{}"], "there is no source"),
        (&["--tasks", "-", "--cwd", "{}"], "there is no source"),
        (&["--env", "=x", "--", "p"], "`=x` is not a variable"),
        (&["--env", "", "--", "p"], "`` is not a variable"),
        (&["--env", "FALKON_NOT_SET", "--", "p"], "`FALKON_NOT_SET` is not set here"),
        (&["--range", "1-4000000000000000000", "--range", "1-9", "--", "p"], "too many tasks"),
        (&["--each-line", "-", "--", "p"], "nothing in `standard input`"),
    ] {
        let text = message(words, None);
        assert!(text.contains(part), "{words:?}: {text}");
    }
    assert!(
        message(&["--", "p", "{}"], Some("a\n\0")).contains("line 2 of `standard input` has a NUL")
    );
}

#[test]
fn a_dry_run_shows_what_can_be_pasted() {
    let words = [
        "--each-line",
        "-",
        "--env",
        "A=x y",
        "--cwd",
        "d e",
        "--stdin",
        "{}",
        "--output",
        "{}.o",
        "--memory",
        "1MiB",
        "--timeout",
        "5",
        "--",
        "p",
        "it's {#}",
    ];
    let plan = plan(&words, Some("v\n")).unwrap();
    let mut out = Vec::new();
    plan.write_dry_run(&mut out).unwrap();
    assert_eq!(
        String::from_utf8(out).unwrap(),
        "1\t\t(cd 'd e' && env A='x y' p 'it'\\''s 1' < v)  # 1 cpus, 1 MiB memory; timeout 5 s; writes v.o\n"
    );
    let tasks =
        "{\"id\":\"a b\",\"command\":\"x\"}\n{\"command\":[\"y\",\"\\n\"],\"after\":[\"a b\"]}";
    let plan = super::tests::plan(&["--tasks", "-"], Some(tasks)).unwrap();
    let mut out = Vec::new();
    plan.write_dry_run(&mut out).unwrap();
    let lines = "1\t'a b'\tx\n2\t\ty $'\\n'  # after 'a b'\n";
    assert_eq!(String::from_utf8(out).unwrap(), lines);
    assert_eq!((plan.label(0), plan.label(1)), ("a b (x)".to_owned(), "y $'\\n'".to_owned()));
}

#[test]
fn a_dry_run_ends_when_nobody_reads() {
    /// Takes some bytes, and then fails.
    struct Short(usize, std::io::ErrorKind);
    impl Write for Short {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(self.1)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let plan = plan(&["--range", "1-1000000000000", "--", "p"], None).unwrap();
    for kind in [std::io::ErrorKind::BrokenPipe, std::io::ErrorKind::StorageFull] {
        let error = plan.write_dry_run(&mut Short(1000, kind)).unwrap_err();
        assert_eq!(error.kind(), kind);
    }
}

#[test]
fn labels_are_short() {
    let plan = plan(&["--", "p", &"é".repeat(100)], None).unwrap();
    assert_eq!(plan.label(0).chars().count(), 60);
    assert!(plan.label(0).ends_with('…'));
    assert_eq!(plan.label(1), "");
}

#[test]
fn digests_tell_commands_apart_and_nothing_else() {
    let digest = |words: &[&str]| plan(words, None).unwrap().digest(0).unwrap();
    let base = digest(&["--", "p", "a"]);
    assert_eq!(digest(&["--retries", "3", "--cpus", "2", "--", "p", "a"]), base);
    assert_eq!(digest(&["--range", "1-1", "--", "p", "a"]), digest(&["--", "p", "a", "1"]));
    for words in [
        &["--", "p", "b"][..],
        &["--env", "A=1", "--", "p", "a"],
        &["--cwd", "d", "--", "p", "a"],
        &["--stdin", "d", "--", "p", "a"],
        &["--", "pa"],
    ] {
        assert_ne!(digest(words), base, "{words:?}");
    }
    let whole = plan(&["--range", "1-9", "--", "p", "{#}"], None).unwrap();
    assert_eq!(whole.select(std::iter::once(4..5)).digest(0), whole.digest(4));
}

/// A random source: its option, and what is piped.
#[derive(Debug, Clone)]
enum Given {
    Range(i64, u64),
    Lines(Vec<String>),
}

fn given() -> impl Strategy<Value = Given> {
    prop_oneof![
        (-5i64..5, 1u64..9).prop_map(|(start, count)| Given::Range(start, count)),
        prop::collection::vec("[a-z./ ]{0,5}", 1..6).prop_map(Given::Lines),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn products_agree_with_nested_loops(
        sources in prop::collection::vec(given(), 1..4),
        picks in prop::collection::vec(0u64..400, 0..20),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut words: Vec<String> = Vec::new();
        let mut rows: Vec<Vec<String>> = vec![Vec::new()];
        for (at, source) in sources.iter().enumerate() {
            let values: Vec<String> = match source {
                Given::Range(start, count) => {
                    let last = start + *count as i64 - 1;
                    words.extend(["--range".to_owned(), format!("{start}-{last}")]);
                    (*start..=last).map(|value| value.to_string()).collect()
                }
                Given::Lines(lines) => {
                    let path = folder.path().join(at.to_string());
                    std::fs::write(&path, lines.iter().map(|line| format!("{line}\n")).collect::<String>()).unwrap();
                    words.extend(["--each-line".to_owned(), path.to_str().unwrap().to_owned()]);
                    lines.clone()
                }
            };
            rows = rows
                .iter()
                .flat_map(|row| values.iter().map(|value| [&row[..], std::slice::from_ref(value)].concat()))
                .collect();
        }
        words.extend(["--", "p", "{}", "{#}"].map(str::to_owned));
        let words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
        let plan = plan_from(&words, None).unwrap();
        let expected: Vec<String> =
            rows.iter().enumerate().map(|(at, row)| format!("p|{}|{}", row.join(" "), at + 1)).collect();
        prop_assert_eq!(argvs(&plan), &expected[..]);
        check_submissions(&plan);
        let some = plan.select(picks.iter().map(|at| *at..at + 2));
        let kept: Vec<String> = (0..some.count()).map(|at| expected[some.index_of(at) as usize].clone()).collect();
        prop_assert_eq!(argvs(&some), kept);
        check_submissions(&some);
    }

    #[test]
    fn lists_survive_selection(
        tasks in prop::collection::vec((0u32..3, any::<bool>(), prop::collection::vec(0usize..30, 0..3)), 1..30),
        picks in prop::collection::vec(0u64..30, 0..10),
    ) {
        let mut text = String::new();
        for (at, (priority, named, after)) in tasks.iter().enumerate() {
            let on: Vec<String> = after
                .iter()
                .filter(|on| **on < at && tasks[**on].1)
                .map(|on| format!("\"t{on}\""))
                .collect();
            let id = if *named { format!("\"id\":\"t{at}\",") } else { String::new() };
            text.push_str(&format!("{{{id}\"command\":[\"p\",{at}],\"priority\":{priority},\"after\":[{}]}}\n", on.join(",")));
        }
        let plan = plan(&["--tasks", "-"], Some(&text)).unwrap();
        check_submissions(&plan);
        let some = plan.select(picks.iter().map(|at| *at..at + 1));
        check_submissions(&some);
        for position in 0..some.count() {
            let index = some.index_of(position);
            prop_assert_eq!(some.command(position), plan.command(index));
            prop_assert_eq!(some.name(position), plan.name(index));
            prop_assert_eq!(some.class(position), plan.class(index));
            let on: Vec<u64> = some.after(position).iter().map(|on| some.index_of(*on)).collect();
            let expected: Vec<u64> = plan.after(index).into_iter().filter(|on| picks.contains(on)).collect();
            prop_assert_eq!(on, expected);
        }
    }
}

/// All pieces but the last have as many tasks as they may.
fn assert_full_pieces(plan: &Plan) {
    let counts: Vec<u64> = plan.submissions().map(|part| part.count).collect();
    let (last, full) = counts.split_last().unwrap();
    assert!(full.iter().all(|count| *count == listed::SUBMISSION_TASKS_MAX));
    assert_eq!(full.len() as u64 * listed::SUBMISSION_TASKS_MAX + last, plan.count());
}

#[test]
fn long_lists_go_out_in_bounded_pieces() {
    let lines: String = (0..150_000).map(|at| format!("value-{at}\n")).collect();
    let plan = plan(&["--each-line", "-", "--", "p"], Some(&lines)).unwrap();
    assert_full_pieces(&plan);
    check_submissions(&plan);
    let words = ["--", "p", "{}"].map(OsString::from);
    let many = plan_from(&words, Some(&b"v\n".repeat(1_000_000))).unwrap();
    assert_eq!(many.count(), 1_000_000);
    assert_eq!(many.command(999_999).unwrap().argv, [b"p", b"v"]);
    assert_eq!(many.submissions().map(|part| part.count).sum::<u64>(), 1_000_000);
    let long = format!("{}\n", "x".repeat(100_000)).repeat(100);
    let plan = super::tests::plan(&["--", "p", "{}"], Some(&long)).unwrap();
    assert!(plan.submissions().all(|part| part.bytes() < 5 << 20));
    check_submissions(&plan);
    let tasks: String = (0..70_000).map(|at| format!("{{\"command\":\"p{at}\"}}\n")).collect();
    let plan = super::tests::plan(&["--tasks", "-"], Some(&tasks)).unwrap();
    assert_full_pieces(&plan);
    check_submissions(&plan);
}
