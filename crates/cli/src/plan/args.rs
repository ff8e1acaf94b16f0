//! The options that say what to run: shared by `falkon run` and
//! `falkon submit`.

use super::options::ClassOptions;
use super::placeholder::has_value;
use super::range::Numbers;
use super::setup::SetupArgs;
use super::source_args::{SourceArg, SourceArgs, command_words};
use clap::Args;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The tasks to run.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct PlanArgs {
    /// Where the values come from.
    #[command(flatten)]
    pub(crate) sources: SourceArgs,
    /// Options of every task.
    #[command(flatten)]
    pub(crate) options: TaskOptions,
    /// Call a function instead of running a program: MODULE:FUNCTION, or
    /// FILE.py:FUNCTION
    ///
    /// The words after `--` are its arguments, as strings. A worker process loads the module
    /// once and runs many calls; it also looks for modules in the working directory. A FILE.py
    /// is sent to the workers. With --json, results have the returned value: `value`, or
    /// `value_repr` if JSON cannot represent it.
    #[arg(long, value_name = "FUNCTION")]
    pub(crate) call: Option<String>,
    /// The language of --call, for which executors have a --worker
    /// [default: python]
    #[arg(long, value_name = "NAME", requires = "call")]
    pub(crate) language: Option<String>,
    /// The program to run and its arguments, or a builtin: @noop, @sleep SECONDS
    ///
    /// Each combination of the sources' values is a task. In the arguments (and in --env,
    /// --cwd, --stdin, --input, --unpack, --output) these stand for the value: {} all of it, {/} its base
    /// name, {.} without extension, {/.} base name without extension, {//} its directory; {1},
    /// {2/}, … for the first, second, … of several sources, {NAME}, {NAME/}, … for a column of
    /// --rows; {#} is the task's number. Other
    /// braces are plain text. If neither the command nor a data object (NAME=SOURCE) uses any
    /// of them, the values are appended as the last arguments; with --shell nothing is
    /// appended. As with GNU parallel, values may follow the command: `::: VALUE…` is a source
    /// as --value is, `:::: FILE…` as --each-line with each FILE, and `:::+`, `::::+` add
    /// values to those of the source before them, one to one.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) words: Vec<OsString>,
}

impl PlanArgs {
    /// Tasks run where they were submitted, as they do with batch schedulers, unless
    /// they have a directory of their own.
    pub(crate) fn run_where_submitted(&mut self) {
        if self.sources.workflow.is_none() {
            self.options.home = std::env::current_dir().ok().map(PathBuf::into_os_string);
        }
    }

    /// The program and its arguments, without values that follow them.
    pub(crate) fn command(&self) -> &[OsString] {
        command_words(&self.words)
    }

    /// Whether lines of standard input are values: there is no other source,
    /// and a placeholder asks for one. Otherwise standard input is somebody
    /// else's, such as the loop's in `while read x; do falkon run …; done`.
    pub(crate) fn wants_lines(&self) -> bool {
        let TaskOptions { env, cwd, stdin, input, unpack, output, stage, .. } = &self.options;
        let words = self.command().iter().chain(env).chain(cwd).chain(stdin).chain(input);
        let mut words = words.chain(unpack).chain(output);
        self.has_no_source() && !stage && words.any(|word| has_value(word.as_bytes()))
    }

    /// Makes a task of each of the files `1` to `count` in `directory`, which it reads as its
    /// standard input.
    pub(crate) fn read_blocks(&mut self, directory: &Path, count: u64) {
        self.sources.sources.push(SourceArg::Range(Numbers::up_to(count)).into());
        self.options.stdin = Some(directory.join("{}").into_os_string());
    }

    /// Whether nothing on the command line gives values or tasks.
    pub(crate) fn has_no_source(&self) -> bool {
        let SourceArgs { sources, tasks, workflow, .. } = &self.sources;
        sources.is_empty() && tasks.is_none() && workflow.is_none()
    }
}

/// Options of every task, unless its entry in a task file says otherwise.
#[derive(Args, Debug, Clone, Default)]
#[command(next_help_heading = "Tasks")]
pub(crate) struct TaskOptions {
    /// Run the command in /bin/sh; placeholders are quoted
    ///
    /// The command's words, joined by spaces, are a script. A placeholder stands for exactly
    /// its value, whatever characters the value has and whether or not the script quotes it;
    /// values never run as code.
    #[arg(long)]
    pub(crate) shell: bool,
    /// Options of the tasks' class.
    #[command(flatten)]
    pub(crate) class: ClassOptions,
    /// Set a variable in the tasks' environment, or pass NAME on as it is set here; may be
    /// repeated
    ///
    /// NAME alone takes the value that the variable has in the environment of this command, so
    /// that it stands on no command line. The dispatcher and its journal have it.
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub(crate) env: Vec<OsString>,
    /// Modules, environments and commands that come before each task.
    #[command(flatten)]
    pub(crate) setup: SetupArgs,
    /// Working directory of the tasks
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<OsString>,
    /// Working directory of tasks that are given none and need none.
    #[arg(skip)]
    pub(crate) home: Option<OsString>,
    /// Whether tasks may read what is in caches already, by its key.
    #[arg(skip)]
    pub(crate) reads_held: bool,
    /// File that a task reads as standard input [default: empty]
    #[arg(long, value_name = "FILE")]
    pub(crate) stdin: Option<OsString>,
    /// Stage the files of --each where their tasks run
    ///
    /// Each file is a data object, found under its base name in the task's own directory; {}
    /// stands for that name, in the command and in --output. The same as --input {/}={} with
    /// {/} in place of {}.
    #[arg(long)]
    pub(crate) stage: bool,
    /// What a task reads: a file, or NAME=SOURCE; may be repeated
    ///
    /// A file must exist before the task starts. NAME=SOURCE is a data object: it is copied to
    /// the machine where the task runs, once for all tasks there, and is a read-only file NAME
    /// in a directory of the task's own, in which the task runs. SOURCE is a path, an address
    /// (http://, https://, s3://), or cache:KEY for an object that another task writes as
    /// NAME=cache:KEY. (Write ./a=b for a file whose path has a =.) A task that reads what
    /// another writes runs after it.
    #[arg(long, value_name = "FILE|NAME=SOURCE")]
    pub(crate) input: Vec<OsString>,
    /// An archive that a task finds unpacked: NAME=ARCHIVE; may be repeated
    ///
    /// ARCHIVE is a data object (see --input): a .tar, .tar.gz or .tar.zst, or a directory
    /// (its path with a slash at the end), which is packed on the way. It is brought to
    /// each machine once and unpacked there once, for all tasks; NAME in a task's own directory
    /// leads to it, and nobody may write there. An environment that conda-pack has packed is
    /// told its place (bin/conda-unpack); one of venv-pack needs nothing.
    #[arg(long, value_name = "NAME=ARCHIVE")]
    pub(crate) unpack: Vec<OsString>,
    /// What a task writes: a file, or NAME=TARGET; may be repeated
    ///
    /// The file must exist after the task has succeeded. NAME=TARGET is a data object: NAME is
    /// copied from the task's directory to TARGET, a path or s3:// address; NAME=cache:KEY
    /// stays in the caches of executors, for tasks that read it. The files in a folder,
    /// DIR/=TARGET.zip, become members of one archive.
    #[arg(long, value_name = "FILE|NAME=TARGET")]
    pub(crate) output: Vec<OsString>,
    /// Write what tasks print into this archive instead of their results
    ///
    /// What task N (from 1) has written to standard output and standard error becomes the
    /// members N/stdout and N/stderr of the archive, a path that ends in .zip and that all
    /// executors see. There is no member for an empty one. A task that fails has its output
    /// in its result.
    #[arg(long, value_name = "ARCHIVE.zip")]
    pub(crate) collect_streams: Option<OsString>,
}

#[cfg(test)]
mod tests {
    use super::super::range::Numbers;
    use super::super::source_args::{Given, SourceArg};
    use super::*;
    use clap::Parser;
    use falkon_core::task::Range;
    use falkon_core::task::TaskClass;
    use std::os::unix::ffi::OsStringExt;

    #[derive(Parser, Debug)]
    struct Line {
        #[command(flatten)]
        plan: PlanArgs,
    }

    fn parse(words: &[&str]) -> Result<PlanArgs, clap::Error> {
        Line::try_parse_from(["falkon"].iter().chain(words)).map(|line| line.plan)
    }

    #[test]
    fn the_definition_is_sound() {
        use clap::CommandFactory;
        Line::command().debug_assert();
    }

    fn given(arg: SourceArg) -> Given {
        Given { arg, with_previous: false }
    }

    fn numbers(start: i64, step: i64, count: u64) -> Given {
        let range = Range { start, step, count };
        given(SourceArg::Range(Numbers { range, ..Numbers::default() }))
    }

    #[test]
    fn values_may_follow_the_command() {
        let args =
            parse(&["echo", "-n", "{}", ":::", "a", "-b", ":::+", "c", "d", "::::", "f", "g"]);
        let args = args.unwrap();
        assert_eq!(args.command(), ["echo", "-n", "{}"]);
        let values = |words: [&str; 2]| SourceArg::Values(words.map(OsString::from).into());
        assert_eq!(
            args.sources.sources,
            [
                given(values(["a", "-b"])),
                Given { arg: values(["c", "d"]), with_previous: true },
                given(SourceArg::Lines("f".into())),
                given(SourceArg::Lines("g".into())),
            ]
        );
        let args = parse(&["--value", "1", "2", "--", "echo", "--", ":::"]).unwrap();
        assert_eq!(args.command(), ["echo", "--"]);
        let none = given(SourceArg::Values(Vec::new()));
        assert_eq!(args.sources.sources, [given(values(["1", "2"])), none]);
    }

    #[test]
    fn sources_keep_their_order() {
        let args = parse(&[
            "--each",
            "a",
            "b",
            "--range",
            "-5--1:2",
            "--cpus",
            "0.5",
            "--each",
            "c",
            "--each-line",
            "-",
            "--range",
            "1-3",
            "--",
            "cmd",
            "--each",
            "x",
        ])
        .unwrap();
        assert_eq!(
            args.sources.sources,
            [
                given(SourceArg::Each(vec!["a".into(), "b".into()])),
                numbers(-5, 2, 3),
                given(SourceArg::Each(vec!["c".into()])),
                given(SourceArg::Lines("-".into())),
                numbers(1, 1, 3),
            ]
        );
        assert_eq!(args.command(), ["cmd", "--each", "x"]);
        let mut class = TaskClass::default();
        args.options.class.put(&mut class);
        assert_eq!(class.resources.cpus_milli, 500);
    }

    #[test]
    fn wrong_values_are_explained() {
        for (words, part) in [
            (&["--memory", "12Q"][..], "`12Q` is not an amount of memory"),
            (&["--timeout", "-5"], "`-5` is not a duration"),
            (&["--cpus", "-1"], "`-1` is not a number of cpus"),
            (&["--range", "1-"], "`1-` is not a range"),
            (&["--retries", "-1"], "-1 is not in 0.."),
            (&["--resource", "x"], "`x` is not a resource"),
        ] {
            let text = parse(words).unwrap_err().to_string();
            assert!(text.contains(part), "{text}");
        }
        let mut class = TaskClass::default();
        parse(&["--priority", "-5"]).unwrap().options.class.put(&mut class);
        assert_eq!(class.priority, -5);
    }

    #[test]
    fn words_need_not_be_utf8() {
        let odd = OsString::from_vec(b"\xff".to_vec());
        let words: Vec<OsString> =
            vec!["falkon".into(), "--each".into(), odd.clone(), "--".into(), odd.clone()];
        let args = Line::try_parse_from(words).unwrap().plan;
        assert_eq!(args.sources.sources, [given(SourceArg::Each(vec![odd.clone()]))]);
        assert_eq!(args.command(), [odd]);
    }
}
