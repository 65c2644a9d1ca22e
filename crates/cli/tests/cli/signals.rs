//! Signals: passed on to the command, or the end of the waiting for the lock.

use std::process::Command;

use quorlock_testkit::{eventually, test};
use rustix::process::Signal;

use crate::nodes::Nodes;
use crate::process::{Running, is_alive, outcome};

const PASSED_ON: [(Signal, &str); 6] = [
    (Signal::INT, "INT"),
    (Signal::TERM, "TERM"),
    (Signal::HUP, "HUP"),
    (Signal::QUIT, "QUIT"),
    (Signal::USR1, "USR1"),
    (Signal::USR2, "USR2"),
];

#[test]
fn signals_reach_the_command_which_ends_as_it_likes() {
    let nodes = Nodes::start(1);
    for (signal, name) in PASSED_ON {
        // A shell that waits for a process heeds a signal at once; one that reads may miss it.
        let script = format!(
            "trap 'echo {name}; read _; kill -KILL $!; exit 5' {name}; sleep 60 & echo in; wait"
        );
        let mut run = Running::start(nodes.quorlock("run").args(["x", "--", "sh", "-c", &script]));
        assert_eq!(run.line(), "in");
        run.signal(signal);
        assert_eq!(run.line(), name);
        assert_eq!(nodes.holding("x"), 1, "the lock is held for as long as the command runs");
        assert!(run.is_running());
        run.close_stdin();
        assert_eq!(run.end().code, Some(5));
        nodes.all_released("x");
    }
}

#[test]
fn a_signal_that_ends_the_command_ends_the_run_too() {
    let nodes = Nodes::start(1);
    for (signal, name) in PASSED_ON {
        let args = ["x", "--", "sh", "-c", "echo in; read _"];
        let run = Running::start(nodes.quorlock("run").args(args));
        assert_eq!(run.line(), "in");
        run.signal(signal);
        let run = run.end();
        assert_eq!((run.code, run.signal), (None, Some(signal.as_raw())), "SIG{name}: {run:?}");
        nodes.all_released("x");
    }
}

#[test]
fn signals_reach_what_the_command_started() {
    let nodes = Nodes::start(1);
    // A shell cannot take back what it was started with orders to ignore: `env` can.
    let script = "trap '' TERM; \
        env --default-signal=TERM sh -c 'echo $$; exec sleep 60' & wait; exit 6";
    let run = Running::start(nodes.quorlock("run").args(["x", "--", "sh", "-c", script]));
    let pids = run.pids();
    run.signal(Signal::TERM);
    assert_eq!(run.end().code, Some(6));
    eventually("the process is gone", || !is_alive(pids[0]));
}

#[test]
fn a_signal_ends_the_waiting_and_the_command_never_starts() {
    for (signal, name) in PASSED_ON {
        let nodes = Nodes::start(3);
        nodes.take("x");
        let run = Running::start(nodes.quorlock("run").args(["x", "--", "echo", "out"]));
        nodes.wait_for_clients();
        run.signal(signal);
        let run = run.end();
        assert_eq!((run.signal, run.stdout.as_str()), (Some(signal.as_raw()), ""), "{run:?}");
        assert_eq!(run.stderr, "", "SIG{name}");
        assert_eq!(nodes.holding("x"), 3, "what is somebody else's stays");
    }
}

#[test]
fn a_command_that_stands_still_can_be_ended() {
    let nodes = Nodes::start(1);
    let script = "echo $$; kill -STOP $$; read _";
    let run = Running::start(nodes.quorlock("run").args(["x", "--", "sh", "-c", script]));
    let pids = run.pids();
    eventually("it stands still", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pids[0])).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('T')
    });
    run.signal(Signal::TERM);
    assert_eq!(run.end().signal, Some(Signal::TERM.as_raw()));
}

#[test]
fn a_command_that_does_not_heed_a_signal_is_killed_when_that_was_asked_for() {
    let nodes = Nodes::start(1);
    let script = "trap '' TERM USR1; echo $$; while :; do sleep 1; done";
    let args = ["--kill-after", "100ms", "x", "--", "sh", "-c", script];
    let run = Running::start(nodes.quorlock("run").args(args));
    let pids = run.pids();
    run.signal(Signal::USR1);
    run.signal(Signal::TERM);
    let run = run.end();
    assert_eq!(run.code, Some(137), "{run:?}");
    assert!(!is_alive(pids[0]));
}

#[test]
fn what_was_ignored_stays_ignored() {
    let nodes = Nodes::start(1);
    let args = ["x", "--", "sh", "-c", "echo in; read line; echo $line"];
    let mut run = Running::start(ignoring("HUP", &nodes.quorlock("run")).args(args));
    assert_eq!(run.line(), "in");
    run.signal(Signal::HUP);
    run.write("alive\n");
    let run = run.end();
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "alive\n"), "{run:?}");
}

#[test]
fn the_exit_code_is_found_by_the_child_of_one_who_ignores_children() {
    let nodes = Nodes::start(1);
    let args = ["x", "--", "sh", "-c", "exit 3"];
    let run = outcome(ignoring("CHLD", &nodes.quorlock("run")).args(args));
    assert_eq!(run.code, Some(3), "{run:?}");
}

/// The same command, started with orders to ignore a signal.
fn ignoring(signal: &str, command: &Command) -> Command {
    // It is started by `env` already, whose later options go before the earlier ones.
    let mut args = command.get_args();
    let mut env = Command::new(command.get_program());
    env.args(args.next()).arg(format!("--ignore-signal={signal}")).args(args);
    env.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    env
}
