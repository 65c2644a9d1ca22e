//! In a container: processes that become children of the run, which are not its command.

use std::path::Path;
use std::process::{Command, Stdio};

use quorlock_testkit::{eventually, test};

use crate::nodes::{Nodes, quorlock};
use crate::process::{Outcome, Running, outcome};

/// Makes a process the one that others are left to, and then the program.
const SUBREAPER: &str = "import ctypes, os, sys
assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])";

/// The ways to be the one that others are left to. The first process of a namespace can be had with
/// the rights for it only.
fn ways() -> Vec<&'static [&'static str]> {
    let mut ways: Vec<&[&str]> = vec![&["python3", "-c", SUBREAPER]];
    let first: &[&str] = &["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let mut probe = Command::new(first[0]);
    probe.args(&first[1..]).arg("true").stderr(Stdio::null());
    if probe.status().is_ok_and(|status| status.success()) {
        ways.push(first);
    }
    ways
}

/// A command with the settings of another.
fn like(settings: &Command, args: &[&str]) -> Command {
    let mut command = Command::new(args[0]);
    command.args(&args[1..]);
    for (name, value) in settings.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// Runs a script under the lock, by a run that was started in that way.
fn run(way: &[&str], nodes: &Nodes, script: &str) -> Outcome {
    let command = nodes.quorlock("run");
    let mut started = like(&command, way);
    started.arg(command.get_program()).args(command.get_args()).args(["x", "-c", script]);
    outcome(&mut started)
}

#[test]
fn the_dead_among_them_are_collected() {
    let nodes = Nodes::start(1);
    for way in ways() {
        for moved in ["", "setsid"] {
            // The shell in brackets ends, and what it has started is left to the run.
            let script = format!(
                "left=$(sh -c '{moved} sleep 0.05 >/dev/null & echo $!'); \
                 while [ -e /proc/$left ]; do sleep 0.01; done; echo gone; exit 7"
            );
            let run = run(way, &nodes, &script);
            assert_eq!((run.code, &*run.stdout), (Some(7), "gone\n"), "{way:?}: {run:?}");
        }
    }
}

#[test]
fn they_are_collected_while_the_lock_is_waited_for() {
    let nodes = Nodes::start(1);
    nodes.take("x");
    // Started by the one who becomes the run: its child, and not its command.
    let script = "sleep 0.2 & echo $!; exec \"$QUORLOCK\" run x -- echo in";
    let mut sh = like(&nodes.quorlock("run"), &["python3", "-c", SUBREAPER, "sh", "-c", script]);
    let run = Running::start(&mut sh);
    let child = format!("/proc/{}", run.pids()[0]);
    eventually("it is collected", || !Path::new(&child).exists());
    nodes.delete("x");
    assert_eq!(run.line(), "in");
    assert_eq!(run.end().code, Some(0));
}

#[test]
fn the_exit_code_of_the_command_is_not_lost_among_many() {
    let nodes = Nodes::start(1);
    for way in ways() {
        for _ in 0..5 {
            let script = "for _ in 1 2 3 4 5 6 7 8 9; do (true & true &); done; exit 7";
            let run = run(way, &nodes, script);
            assert_eq!((run.code, &*run.stderr), (Some(7), ""), "{way:?}: {run:?}");
        }
    }
}

#[test]
fn a_run_that_cannot_end_by_a_signal_ends_with_its_code() {
    // Nobody can end the first process of a container from inside, not even itself.
    let nodes = Nodes::start(1);
    let script = "kill -TERM $PPID; sleep 60";
    for way in ways() {
        let run = run(way, &nodes, script);
        match way[0] {
            "unshare" => assert_eq!((run.code, run.signal), (Some(143), None), "{run:?}"),
            _ => assert_eq!((run.code, run.signal), (None, Some(15)), "{run:?}"),
        }
    }
    assert_eq!(outcome(quorlock().arg("__end")).code, Some(78), "not for use by hand");
}
