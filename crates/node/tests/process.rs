//! The process host with real processes. The test executes itself again as the host and as
//! executors that are killed, so it has a `main` of its own:
//! `cargo test --test process [-- NAME_PART…]`.

#![allow(clippy::unwrap_used, reason = "a test may fail at once")]

mod process {
    pub(crate) mod copies;
    pub(crate) mod ends;
    pub(crate) mod orphans;
    pub(crate) mod outputs;
    pub(crate) mod rig;
}

use std::panic::catch_unwind;
use std::process::ExitCode;

use falkon_node::process::{HOST_ARGUMENT, host_main};

type Test = (&'static str, fn());

macro_rules! tests {
    ($($module:ident :: $name:ident),* $(,)?) => {
        [$((concat!(stringify!($module), "::", stringify!($name)), process::$module::$name)),*]
    };
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        Some(HOST_ARGUMENT) => return host_main(),
        Some(process::orphans::EXECUTOR_ARGUMENT) => process::orphans::executor(&arguments[1..]),
        _ => {}
    }
    let tests: &[Test] = &tests![
        ends::exit_codes_and_signals_are_told_apart,
        ends::programs_that_cannot_run_say_which_step_failed,
        ends::arguments_that_cannot_be_passed_are_refused,
        ends::bytes_that_are_not_text_pass_unchanged,
        ends::the_search_path_is_followed_as_execvp_does,
        ends::a_program_that_moves_along_the_search_path_is_found_again,
        ends::a_file_without_an_interpreter_is_run_by_the_shell,
        ends::a_task_starts_with_a_clean_process_state,
        ends::the_environment_is_the_inherited_one_with_changes,
        ends::five_thousand_tasks_come_back_exactly_once,
        ends::more_tasks_than_slots_all_run,
        ends::a_task_after_another_starts_in_its_place_or_is_taken_back,
        ends::a_task_whose_file_the_one_before_it_changes_does_not_start,
        ends::an_end_is_told_while_a_long_task_runs_in_its_place,
        ends::a_key_in_use_is_refused_and_nothing_of_its_batch_runs,
        copies::a_copy_is_a_task_like_any_other,
        copies::a_copy_and_what_it_leaves_end_together,
        copies::copies_go_on_without_their_template,
        copies::a_template_that_refuses_ends_or_hangs_starts_nothing,
        copies::a_killed_host_leaves_no_copy,
        outputs::both_streams_come_back_byte_for_byte,
        outputs::standard_input_is_a_file_or_empty,
        outputs::a_long_stream_is_cut_and_counted,
        outputs::a_long_stream_goes_to_a_file_in_full,
        outputs::a_spill_that_fails_is_reported_and_holds_nobody_up,
        outputs::two_hundred_megabytes_take_little_memory,
        outputs::a_child_that_holds_the_pipe_does_not_delay_the_end,
        outputs::what_was_used_is_reported,
        orphans::a_killed_task_gets_its_grace,
        orphans::children_of_a_task_end_with_it,
        orphans::a_daemon_of_a_task_is_found_and_killed,
        orphans::a_daemon_without_the_variable_is_found_and_killed,
        orphans::dropping_the_host_kills_everything,
        orphans::a_killed_executor_leaves_nothing,
        orphans::a_killed_host_leaves_nothing_and_is_reported,
        orphans::executor_and_host_killed_together_leave_no_task,
        orphans::a_killed_host_leaves_nothing_in_a_container_either,
    ];
    let wanted: Vec<&String> = arguments.iter().filter(|one| !one.starts_with('-')).collect();
    let mut failed = Vec::new();
    for (name, test) in tests {
        if !wanted.is_empty() && !wanted.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        let passed = catch_unwind(test).is_ok();
        println!("test process::{name} ... {}", if passed { "ok" } else { "FAILED" });
        if !passed {
            failed.push(name);
        }
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("failed: {failed:?}");
    ExitCode::FAILURE
}
