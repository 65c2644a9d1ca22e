//! How long the lock is held: no longer than this, no shorter than that.

use std::time::{Duration, Instant};

use quorlock_testkit::{eventually, test};
use rustix::process::Signal;

use crate::nodes::Nodes;
use crate::process::{Running, is_alive, outcome};

#[test]
fn a_command_is_ended_before_the_lock_is_as_old_as_it_may_become() {
    let nodes = Nodes::start(3);
    for script in ["echo $$; exec sleep 60", "trap '' TERM; echo $$; while :; do sleep 1; done"] {
        for options in [&["--max-hold", "1500ms"][..], &["--max-hold", "1500ms", "-k", "500ms"]] {
            let args = ["x", "--", "sh", "-c", script];
            let run = Running::start(nodes.quorlock("run").args(options).args(args));
            let pids = run.pids();
            let run = run.end();
            assert_eq!(run.code, Some(76), "{run:?}");
            assert!(run.stderr.contains("held for 1.5s at the most (--max-hold)"), "{run:?}");
            assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
            assert!(!is_alive(pids[0]));
        }
    }
}

#[test]
fn a_command_is_ended_by_the_signal_and_in_the_time_that_were_asked_for() {
    let nodes = Nodes::start(1);
    let script = "trap 'kill $!; sleep 1; echo quit; exit' QUIT; trap 'echo term; exit' TERM; \
        sleep 60 & wait";
    let args = ["--max-hold", "6s", "-k", "4s", "-s", "QUIT", "x", "-c", script];
    let run = outcome(nodes.quorlock("run").args(args));
    assert_eq!((run.code, run.stdout.as_str()), (Some(76), "quit\n"), "{run:?}");
}

#[test]
fn a_command_that_ends_early_is_not_touched_by_a_longest_time() {
    let nodes = Nodes::start(1);
    let args = ["--max-hold", "1h", "x", "--", "sh", "-c", "exit 3"];
    assert_eq!(outcome(nodes.quorlock("run").args(args)).code, Some(3));
}

#[test]
fn the_lock_is_kept_for_a_while_after_a_short_command() {
    let nodes = Nodes::start(1);
    let began = Instant::now();
    let args = ["--hold-at-least", "1200ms", "x", "--", "sh", "-c", "exit 3"];
    assert_eq!(outcome(nodes.quorlock("run").args(args)).code, Some(3));
    assert!(began.elapsed() >= Duration::from_millis(1_200));
    nodes.all_released("x");
}

#[test]
fn a_signal_ends_the_keeping_and_the_exit_code_stays() {
    let nodes = Nodes::start(1);
    let args = ["--hold-at-least", "1h", "x", "--", "sh", "-c", "echo $$; exit 3"];
    let mut run = Running::start(nodes.quorlock("run").args(args));
    let pids = run.pids();
    eventually("the command has ended", || !is_alive(pids[0]));
    assert_eq!(nodes.holding("x"), 1);
    eventually("the run ends", || {
        let ended = !run.is_running();
        if !ended {
            run.signal(Signal::TERM);
        }
        ended
    });
    assert_eq!(run.end().code, Some(3));
    nodes.all_released("x");
}

#[test]
fn a_lock_that_is_lost_after_the_command_is_warned_about() {
    let nodes = Nodes::start(1);
    let args = ["--ttl", "1s", "--hold-at-least", "1h", "x", "--", "sh", "-c", "echo $$; exit 3"];
    let run = Running::start(nodes.quorlock("run").args(args));
    let pids = run.pids();
    eventually("the command has ended and was collected", || {
        !std::path::Path::new(&format!("/proc/{}", pids[0])).exists()
    });
    nodes.delete("x");
    let run = run.end();
    assert_eq!(run.code, Some(3), "{run:?}");
    assert!(run.stderr.contains("the lock x was not kept for as long as was asked"), "{run:?}");
}
