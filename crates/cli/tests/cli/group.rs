//! The command and what it started: one fate.

use std::io::{self, BufRead, BufReader};

use quorlock_testkit::{eventually, test};
use rustix::process::{Pid, Signal, kill_process};

use crate::nodes::Nodes;
use crate::process::{Running, is_alive, outcome};
use crate::standing_still::killer_of;

/// Ends at once, and leaves a process behind.
const LEAVES_ONE_BEHIND: &str = "sleep 60 & echo $$ $!; exit 3";

fn kill(pid: i32) {
    let pid = Pid::from_raw(pid).expect("it is not zero");
    kill_process(pid, Signal::KILL).expect("it is there");
}

#[test]
fn the_lock_is_held_until_the_last_process_of_the_command_has_ended() {
    let nodes = Nodes::start(1);
    let (said, stderr) = io::pipe().unwrap();
    let args = ["x", "--", "sh", "-c", LEAVES_ONE_BEHIND];
    let mut run = Running::start_with_stderr(nodes.quorlock("run").args(args), stderr);
    let pids = run.pids();
    let said = BufReader::new(said).lines().next().expect("it is said").unwrap();
    let expected =
        format!("waiting for a process that sh left behind, with the lock x held: {}", pids[1]);
    assert!(said.contains(&expected), "{said}");
    assert!(!is_alive(pids[0]) && is_alive(pids[1]));
    assert!(run.is_running());
    assert_eq!(nodes.holding("x"), 1);
    kill(pids[1]);
    assert_eq!(run.end().code, Some(3));
    nodes.all_released("x");
}

#[test]
fn what_was_left_behind_can_be_ended() {
    let nodes = Nodes::start(1);
    // A process in the background of a shell ignores SIGINT.
    for signal in [Signal::INT, Signal::TERM] {
        let args = ["x", "--", "sh", "-c", LEAVES_ONE_BEHIND];
        let run = Running::start(nodes.quorlock("run").args(args));
        let pids = run.pids();
        eventually("the command has ended", || !is_alive(pids[0]));
        eventually("what it left has ended", || {
            run.signal(signal);
            !is_alive(pids[1])
        });
        assert_eq!(run.end().code, Some(3), "{signal:?}");
    }
}

#[test]
fn what_was_left_behind_is_ended_when_the_lock_is_lost() {
    let nodes = Nodes::start(1);
    let script = "trap '' TERM; sleep 60 & echo $$ $!; exit 3";
    let args = ["--ttl", "1s", "x", "--", "sh", "-c", script];
    let run = Running::start(nodes.quorlock("run").args(args));
    let pids = run.pids();
    eventually("the command has ended", || !is_alive(pids[0]));
    nodes.delete("x");
    assert_eq!(run.end().code, Some(76));
    assert!(!is_alive(pids[1]));
}

#[test]
fn what_is_left_behind_on_purpose_holds_nothing_up() {
    let nodes = Nodes::start(1);
    for option in ["-o", "--leave-behind"] {
        // With its own stdout and stderr, for the test reads both to their ends.
        let script = "sleep 60 >/dev/null 2>&1 & echo $!; exit 3";
        let run = outcome(nodes.quorlock("run").args([option, "x", "--", "sh", "-c", script]));
        let left: i32 = run.stdout.trim().parse().unwrap();
        assert!(is_alive(left));
        assert_eq!((run.code, run.stderr.as_str()), (Some(3), ""));
        nodes.all_released("x");
        kill(left);
    }
}

#[test]
fn the_command_and_what_it_started_die_with_the_one_who_extends_their_lock() {
    let nodes = Nodes::start(1);
    let script = "trap '' TERM HUP INT; sleep 60 & echo $$ $!; while :; do sleep 1; done";
    let run = Running::start(nodes.quorlock("run").args(["x", "--", "sh", "-c", script]));
    let pids = run.pids();
    assert!(pids.len() == 2 && pids.iter().all(|pid| is_alive(*pid)));
    run.signal(Signal::KILL);
    for pid in pids {
        eventually("it is gone", || !is_alive(pid));
    }
}

#[test]
fn the_command_dies_though_nobody_is_left_to_end_its_group() {
    let nodes = Nodes::start(1);
    let script = "trap '' TERM HUP INT; echo $$; while :; do sleep 1; done";
    let run = Running::start(nodes.quorlock("run").args(["x", "--", "sh", "-c", script]));
    let pids = run.pids();
    kill(killer_of(pids[0]).as_raw_nonzero().get());
    run.signal(Signal::KILL);
    eventually("the command is gone", || !is_alive(pids[0]));
}

#[test]
fn a_run_inside_a_run_dies_with_it() {
    let nodes = Nodes::start(1);
    // The inner run is not the leader of the outer one's group.
    let script = r#""$QUORLOCK" run y -- sh -c 'echo $PPID $$; exec sleep 60'; exit 3"#;
    let run = Running::start(nodes.quorlock("run").args(["x", "-c", script]));
    let pids = run.pids();
    run.signal(Signal::KILL);
    for pid in pids {
        eventually("it is gone", || !is_alive(pid));
    }
}

#[test]
fn a_step_that_is_not_for_users_says_so() {
    let run = outcome(crate::nodes::quorlock().arg("__exec"));
    assert_eq!(run.code, Some(78), "{run:?}");
    // With a parent that is another's, the command is not run.
    let run = outcome(crate::nodes::quorlock().args(["__exec", "1", "as-it-is", "echo", "out"]));
    assert_eq!((run.code, run.stdout.as_str()), (Some(125), ""), "{run:?}");
}
