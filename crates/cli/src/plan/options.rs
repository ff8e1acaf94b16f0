//! The options that say what a task needs and how it is treated: one table.
//!
//! The command line's options, the fields of a task file, what `--dry-run`
//! shows, the options of Python's calls and clients, and the table in
//! `docs/task-files.md` follow from it. Whoever adds an option adds
//! 1. the field to [`TaskClass`], its default, and its place in the list of what
//!    travels (`crates/core/src/task.rs`);
//! 2. a row here;
//! 3. what it does.
//!
//! CONTRIBUTING.md has the commands that write anew what follows from it: the
//! page, Python's module, the lists of the protocol's page and its golden bytes.

mod alternatives;
mod kinds;

use super::texts::once;
use alternatives::Alternatives;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use falkon_core::task::{Resources, TaskClass};
use kinds::OptionKind;
pub(crate) use kinds::{
    Copies, Count, Cpus, Custom, Disk, Duration, Estimate, Flag, Memory, MemoryLimit, Nodes,
    Priority, Ranks,
};
use serde::de::{self, MapAccess};

/// The tasks that an option is for.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Given {
    /// Tasks and calls.
    Everywhere,
    /// Tasks that run programs: a call from Python leaves nothing that the
    /// option is about.
    ToPrograms,
}

/// A row of the table, for what is generated from it.
#[cfg(test)]
pub(crate) struct OptionRow {
    /// The field of a task file; the option of Python's calls.
    pub(crate) field: &'static str,
    /// The option of the command line.
    pub(crate) flag: &'static str,
    /// The name of its reader in Python.
    pub(crate) python: &'static str,
    /// The path to its place in the class.
    pub(crate) place: &'static [&'static str],
    pub(crate) given: Given,
    /// The values that a task file may have.
    pub(crate) page: &'static str,
    /// The default, for people.
    pub(crate) otherwise: String,
    /// The default, as the class has it.
    pub(crate) default: String,
}

/// `field: kind at place in the class = "flag"`; the comment is the help of the
/// command line. `page` is what the page of task files says of the value,
/// `note` what the dry run puts before it ("" where resources are shown
/// together), `without` what a task has that nothing is said of.
macro_rules! class_options {
    ($(
        $(#[doc = $help:literal])+
        $field:ident: $kind:ident at $($place:ident).+ = $flag:literal {
            page: $page:literal,
            note: $note:literal,
            without: $without:literal,
            given: $given:ident,
        }
    )+) => {
        /// Options that are given on the command line, or for one task.
        #[derive(Debug, Clone, Default)]
        pub(crate) struct ClassOptions {
            $(pub(crate) $field: Option<$kind>,)+
        }

        /// The fields of a task file.
        pub(crate) const CLASS_FIELDS: &[&str] = &[$(stringify!($field)),+];

        /// The options of the command line.
        pub(crate) const CLASS_FLAGS: &[&str] = &[$($flag),+];

        impl ClassOptions {
            /// Puts what is given into a class.
            pub(crate) fn put(&self, class: &mut TaskClass) {
                $(if let Some(value) = &self.$field {
                    value.put(&mut class.$($place).+);
                })+
            }

            /// Reads the value of the field `name` of a task file.
            pub(crate) fn read<'de, M: MapAccess<'de>>(
                &mut self,
                name: &'static str,
                map: &mut M,
            ) -> Result<(), M::Error> {
                match name {
                    $(stringify!($field) => once(&mut self.$field, name, map),)+
                    other => Err(de::Error::unknown_field(other, CLASS_FIELDS)),
                }
            }
        }

        /// Values of a class that differ from the default, for people.
        pub(crate) fn notes(class: &TaskClass) -> Vec<String> {
            let default = TaskClass::default();
            let mut notes = Vec::new();
            if class.resources != Resources::cpus(1) {
                notes.push(class.resources.to_string());
            }
            $(if !$note.is_empty() && class.$($place).+ != default.$($place).+ {
                let shown = $kind::shown(&class.$($place).+).unwrap_or_default();
                notes.push(format!("{} {shown}", $note));
            })+
            notes
        }

        impl Args for ClassOptions {
            fn augment_args(command: Command) -> Command {
                let default = TaskClass::default();
                command$(.arg({
                    let help = concat!($($help),+).trim();
                    let help = match $kind::shown(&default.$($place).+) {
                        Some(shown) => format!("{help} [default: {shown}]"),
                        None => help.to_owned(),
                    };
                    $kind::arg(Arg::new($flag).long($flag).help(help))
                }))+
            }

            fn augment_args_for_update(command: Command) -> Command {
                Self::augment_args(command)
            }
        }

        impl FromArgMatches for ClassOptions {
            fn from_arg_matches(matches: &ArgMatches) -> Result<ClassOptions, clap::Error> {
                Ok(ClassOptions { $($field: $kind::given(matches, $flag)),+ })
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
                *self = Self::from_arg_matches(matches)?;
                Ok(())
            }
        }

        /// The table.
        #[cfg(test)]
        pub(crate) fn rows() -> Vec<OptionRow> {
            let default = TaskClass::default();
            vec![$(OptionRow {
                field: stringify!($field),
                flag: $flag,
                python: $kind::PYTHON,
                place: &[$(stringify!($place)),+],
                given: Given::$given,
                page: $page,
                otherwise: match $kind::shown(&default.$($place).+) {
                    Some(shown) => format!("else {shown}"),
                    None => $without.to_owned(),
                },
                default: format!("{:?}", default.$($place).+),
            }),+]
        }
    };
}

class_options! {
    /// CPUs a task holds while it runs, also a fraction; auto is as many as others have used
    cpus: Cpus at resources.cpus_milli = "cpus" {
        page: "number, also a fraction, or [`\"auto\"`](resources.md#cpus-by-themselves)",
        note: "",
        without: "",
        given: Everywhere,
    }
    /// GPUs a task holds while it runs
    gpus: Count at resources.gpus = "gpus" {
        page: "whole number; the task gets `CUDA_VISIBLE_DEVICES`, or `ROCR_VISIBLE_DEVICES` and \
               `HIP_VISIBLE_DEVICES` where its executor has those",
        note: "",
        without: "",
        given: Everywhere,
    }
    /// Memory a task holds while it runs, in bytes or as 512MiB, 2GiB; auto is as much as others
    /// have had
    memory: Memory at resources.memory_bytes = "memory" {
        page: "bytes, a text such as `\"2GiB\"`, or [`\"auto\"`](resources.md#memory-by-itself)",
        note: "",
        without: "else none",
        given: Everywhere,
    }
    /// Kill and fail a task whose processes have more memory together: 3GiB, or none for no limit
    /// [default: what --memory says]
    memory_limit: MemoryLimit at memory_limit_bytes = "memory-limit" {
        page: "bytes, a text such as `\"3GiB\"`, or `\"none\"`: a task whose processes have more \
               memory together [is killed and has failed](resources.md#memory)",
        note: "memory limit",
        without: "else as much as `memory`",
        given: ToPrograms,
    }
    /// Scratch disk space a task holds while it runs, in a directory of its own (FALKON_SCRATCH,
    /// TMPDIR): 20GiB. A task that has more there is killed and has failed
    disk: Disk at resources.custom = "disk" {
        page: "bytes, or a text such as `\"20GiB\"`: disk space for a [directory of the task's \
               own](resources.md#disk) (`FALKON_SCRATCH`, `TMPDIR`). A task that has more there is \
               killed and has failed",
        note: "",
        without: "else none",
        given: ToPrograms,
    }
    /// How much of a custom resource a task holds while it runs; may be repeated
    resources: Custom at resources.custom = "resource" {
        page: "table of custom resources and how many",
        note: "",
        without: "added to",
        given: Everywhere,
    }
    /// What a task may hold instead, if an executor has no room for the above: cpus=16 or
    /// cpus=8,memory=32GiB, with all that is not named as by default; may be repeated, the preferred
    /// first
    alternatives: Alternatives at alternatives = "or" {
        page: "list of at most 3 tables such as `{ cpus = 16 }`: what the task may hold [instead of \
               all of the above](resources.md#alternatives), the preferred first. A table has `cpus`, \
               `gpus`, `memory`, `disk` and names of custom resources",
        note: "or",
        without: "else none",
        given: Everywhere,
    }
    /// How many executors run each task together, as an MPI program does: all else that a task
    /// holds, it holds on each of them
    nodes_per_task: Nodes at nodes = "nodes-per-task" {
        page: "how many executors run the task together, at most 4096, as an MPI program does: all \
               else that it holds, it holds on each of them",
        note: "nodes",
        without: "",
        given: ToPrograms,
    }
    /// How many processes of a task launchers such as mpiexec start on each of its nodes
    /// [default: one for each whole CPU that it holds there]
    ranks_per_node: Ranks at ranks_per_node = "ranks-per-node" {
        page: "how many processes of the task launchers such as `mpiexec` start on each of its \
               nodes, at most 65535",
        note: "ranks per node",
        without: "else one for each whole CPU there",
        given: ToPrograms,
    }
    /// Kill and fail a task that runs longer: 30, 30s, 5m, 1h30m; 0 is no limit
    timeout: Duration at timeout_micros = "timeout" {
        page: "seconds, or a text such as `\"5m\"`; 0 is none",
        note: "timeout",
        without: "else none",
        given: Everywhere,
    }
    /// About how long a task runs: helps to spread tasks evenly, and none starts where it could not
    /// end before its executor leaves; auto finds out how long others took
    runtime_estimate: Estimate at estimate_micros = "estimate" {
        page: "seconds, a text such as `\"5m\"`, or [`\"auto\"`](resources.md#time-by-itself): \
               helps to spread tasks evenly, and the task does not start where it could not end \
               before its executor leaves",
        note: "about",
        without: "else unknown",
        given: Everywhere,
    }
    /// Number of retries of a failed task
    retries: Count at retries = "retries" {
        page: "how many more times the task is run if it fails",
        note: "retries",
        without: "",
        given: Everywhere,
    }
    /// Run the last tasks that take far longer than their like a second time, on another node,
    /// and take the first result: for tasks that write nothing but standard output and declared
    /// outputs (NAME=TARGET)
    speculate: Flag at speculate = "speculate" {
        page: "`true`: where the task is among the last and takes far longer than others like it, \
               it runs [a second time](cluster.md#stragglers) on another node, and the first \
               result counts. It may write nothing but its standard output and outputs \
               `NAME=TARGET` in stores",
        note: "a second try",
        without: "else `false`",
        given: Everywhere,
    }
    /// How many executors hold each object that a task writes to caches (cache:KEY), and each
    /// stripe of an input that is too large for a cache
    replicas: Copies at replicas = "replicas" {
        page: "how many executors hold each object that the task writes to caches (`cache:KEY`), \
               and each stripe of an input that is too large for a cache",
        note: "replicas",
        without: "",
        given: ToPrograms,
    }
    /// How many executors lend room to each input that is too large for a cache: no more than
    /// there are; 0 is by demand
    lenders: Count at lenders = "lenders" {
        page: "how many executors lend room to each input that is too large for a cache: no more \
               than there are; 0 is by demand",
        note: "lenders",
        without: "",
        given: ToPrograms,
    }
    /// Tasks with a higher number go first
    priority: Priority at priority = "priority" {
        page: "higher runs first, among the tasks of one instance. Instances share the executors' \
               processor time evenly, whatever their priorities; an instance that cannot use all \
               executors goes first on those it can use",
        note: "priority",
        without: "",
        given: Everywhere,
    }
}

#[cfg(test)]
mod tests;
