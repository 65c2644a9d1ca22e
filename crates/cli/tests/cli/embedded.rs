//! With no node named: a lock between the processes of one machine, in a file.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::nodes::quorlock;
use crate::process::{Running, outcome};

/// The program, with a state directory of its own.
fn at_home(home: &tempfile::TempDir) -> Command {
    let mut command = quorlock();
    command.env("XDG_STATE_HOME", home.path());
    command
}

#[test]
fn a_command_runs_without_any_set_up() {
    let home = tempfile::tempdir().unwrap();
    let run = outcome(at_home(&home).args(["run", "demo", "--", "echo", "hello"]));
    assert_eq!((run.code, run.stdout.trim()), (Some(0), "hello"), "{run:?}");
    assert_eq!(run.stderr, "");
    let file = home.path().join("quorlock/locks.db");
    let mode = std::fs::metadata(file).expect("the file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn two_processes_exclude_each_other_until_the_first_has_ended() {
    let home = tempfile::tempdir().unwrap();
    let mut first =
        Running::start(at_home(&home).args(["run", "demo", "--", "sh", "-c", "echo in; read _"]));
    assert_eq!(first.line(), "in");
    let second = outcome(at_home(&home).args(["run", "-n", "demo", "--", "echo", "out"]));
    assert_eq!((second.code, second.stdout.as_str()), (Some(75), ""), "{second:?}");
    let status = outcome(at_home(&home).args(["status", "demo"]));
    assert!(status.stdout.contains("held"), "{status:?}");
    let other = outcome(at_home(&home).args(["run", "-n", "another", "--", "echo", "out"]));
    assert_eq!(other.code, Some(0), "{other:?}");
    first.close_stdin();
    first.end();
    let second = outcome(at_home(&home).args(["run", "-n", "demo", "--", "echo", "out"]));
    assert_eq!(second.code, Some(0), "{second:?}");
}

#[test]
fn no_place_for_the_file_is_said() {
    let run =
        outcome(quorlock().env_remove("XDG_STATE_HOME").env_remove("HOME").args(["status", "x"]));
    assert_eq!(run.code, Some(78), "{run:?}");
    assert!(run.stderr.contains("XDG_STATE_HOME"), "{run:?}");
}
