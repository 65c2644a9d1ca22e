//! How a run ends: the command's own way.

use quorlock_testkit::test;
use std::fs;
use std::io::Write;
use std::process::Stdio;

use crate::nodes::{Nodes, Record};
use crate::process::outcome;

#[test]
fn the_commands_exit_code_is_passed_on() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        for code in [0, 3, 255] {
            let script = format!("exit {code}");
            let run = outcome(nodes.quorlock("run").args(["x", "--", "sh", "-c", &script]));
            assert_eq!(run.code, Some(code), "{count} nodes: {run:?}");
            assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("", ""));
            nodes.all_released("x");
        }
    }
}

#[test]
fn a_command_that_a_signal_ended_gives_128_and_its_number() {
    let nodes = Nodes::start(1);
    for (signal, code) in [("KILL", 137), ("TERM", 143), ("USR1", 138)] {
        let script = format!("kill -{signal} $$");
        let run = outcome(nodes.quorlock("run").args(["x", "--", "sh", "-c", &script]));
        assert_eq!(run.code, Some(code), "{run:?}");
    }
}

#[test]
fn a_command_that_cannot_start_gives_126_or_127_and_the_lock_back() {
    let nodes = Nodes::start(3);
    let missing = outcome(nodes.quorlock("run").args(["x", "--", "no-such-command"]));
    assert_eq!(missing.code, Some(127), "{missing:?}");
    assert!(missing.stderr.contains("no-such-command was not found"), "{missing:?}");
    nodes.all_released("x");

    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    fs::write(&script, "exit 0").unwrap();
    let unfit = outcome(nodes.quorlock("run").args(["x", "--"]).arg(&script));
    assert_eq!(unfit.code, Some(126), "{unfit:?}");
    assert!(unfit.stderr.starts_with("quorlock: the command "), "{unfit:?}");
    nodes.all_released("x");
}

#[test]
fn stdin_and_stdout_are_the_commands_own() {
    let nodes = Nodes::start(1);
    let bytes = b"no\0text\xff without end of line";
    let mut child = nodes
        .quorlock("run")
        .args(["x", "--", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(output.stdout, bytes);
}

#[test]
fn a_command_finds_everything_as_it_would_without_the_lock() {
    let nodes = Nodes::start(1);
    let dir = tempfile::tempdir().unwrap();
    // Its name and arguments, folder, open files, and the signals it ignores or blocks.
    let script = r#"printf '%s|' "$0" "$@"; pwd; \
        for file in /proc/$$/fd/*; do printf '%s ' "${file##*/}"; done; \
        grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status"#;
    let args = ["-c", script, "na me", "-n", "--", "", "__exec"];
    let here = |mut command: std::process::Command| {
        outcome(command.current_dir(dir.path()).args(args)).stdout
    };
    let mut bare = std::process::Command::new("env");
    bare.args(["--default-signal", "sh"]);
    let mut locked = nodes.quorlock("run");
    locked.args(["x", "--", "sh"]);
    let bare = here(bare);
    assert!(bare.starts_with("na me|-n|--||__exec|/"), "{bare}");
    assert_eq!(here(locked), bare);
}

#[test]
fn a_line_is_run_by_the_shell() {
    let nodes = Nodes::start(1);
    let line = "echo a 'b  c' | cat; exit 4";
    let run = outcome(nodes.quorlock("run").args(["x", "-c", line]));
    assert_eq!((run.code, run.stdout.as_str()), (Some(4), "a b  c\n"), "{run:?}");
}

#[test]
fn the_command_finds_the_name_in_its_environment() {
    let nodes = Nodes::start(1);
    let print = ["--", "printenv", "QUORLOCK_NAME"];
    let run = outcome(nodes.quorlock("run").arg("orders/42 ü").args(print));
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "orders/42 ü\n"));
}

#[test]
fn a_minority_of_dead_nodes_is_warned_about_and_changes_nothing() {
    let nodes = Nodes::start(3);
    nodes.0[1].kill();
    let run = outcome(nodes.quorlock("run").args(["x", "--", "sh", "-c", "echo out; exit 3"]));
    assert_eq!((run.code, run.stdout.as_str()), (Some(3), "out\n"), "{run:?}");
    let dead = format!("quorlock: warning: node redis://{}: ", nodes.0[1].addr());
    assert!(run.stderr.lines().all(|line| line.starts_with(&dead)), "{run:?}");
    assert!(!run.stderr.is_empty());
    for alive in [0, 2] {
        assert_eq!(Record::on(&nodes.0[alive], "x"), None);
    }
}

#[test]
fn warnings_can_be_switched_off() {
    let nodes = Nodes::start(2);
    let run = |log: &str| {
        outcome(nodes.quorlock("run").env("QUORLOCK_LOG", log).args(["x", "--", "true"]))
    };
    let loud = run("");
    assert!(loud.stderr.starts_with("quorlock: warning: 2 nodes survive"), "{loud:?}");
    assert_eq!(loud.stderr.lines().count(), 1, "{loud:?}");
    assert_eq!(run("off").stderr, "");
    let wrong = run("x=y=z");
    assert_eq!(wrong.code, Some(78), "{wrong:?}");
    assert!(wrong.stderr.contains("QUORLOCK_LOG"), "{wrong:?}");
}

#[test]
fn too_few_nodes_give_69_and_no_run() {
    let nodes = Nodes::start(3);
    for (dead, code) in [(0, 0), (1, 0), (2, 69), (3, 69)] {
        if dead > 0 {
            nodes.0[dead - 1].kill();
        }
        let args = ["-n", "--votes-within", "0", "x", "--", "echo", "out"];
        let run = outcome(nodes.quorlock("run").args(args));
        assert_eq!(run.code, Some(code), "{dead} dead: {run:?}");
        assert_eq!(run.stdout.is_empty(), code != 0, "{run:?}");
    }
}
