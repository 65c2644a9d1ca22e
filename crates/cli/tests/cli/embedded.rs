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

/// As docs/operations/configuration.md sets it up.
#[test]
fn users_of_one_group_share_a_file_of_the_machine() {
    const GROUP: u32 = 4_242;
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can become two users");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    // Where every user can run it.
    let program = place.path().join("quorlock");
    std::fs::copy(env!("CARGO_BIN_EXE_quorlock"), &program).unwrap();
    let directory = place.path().join("lib");
    let file = directory.join("locks.db");
    let group = GROUP.to_string();
    for (args, path) in [
        (["-d", "-m", "2770", "-g", &group], &directory),
        (["-T", "-m", "660", "-g", &group], &file),
    ] {
        let mut install = Command::new("install");
        install.args(args);
        if args[0] == "-T" {
            install.arg("/dev/null");
        }
        assert!(install.arg(path).status().unwrap().success());
    }
    let of = |user: u32| {
        let mut command = Command::new("setpriv");
        let (user, group) = (user.to_string(), GROUP.to_string());
        command.args(["--reuid", &user, "--regid", &user, "--groups", &group, "--inh-caps=-all"]);
        command.arg("env").arg("-i").arg(format!("QUORLOCK_NODES=sqlite:{}", file.display()));
        command.arg("PATH=/usr/bin:/bin").arg(&program);
        command
    };
    let script = ["run", "demo", "--", "sh", "-c", "echo in; read _; exit 0"];
    let mut first = Running::start(of(4_001).args(script));
    assert_eq!(first.line(), "in");
    let second = outcome(of(4_002).args(["run", "-n", "demo", "--", "true"]));
    assert_eq!(second.code, Some(75), "{second:?}");
    // A waiter is notified, whichever process holds it.
    let waits = Running::start(of(4_002).args(["run", "demo", "--", "echo", "mine"]));
    quorlock_testkit::eventually("it waits", || {
        outcome(of(4_003).args(["status", "demo"])).stdout.contains("waiting: 1")
    });
    first.close_stdin();
    assert_eq!(first.end().code, Some(0));
    assert_eq!(waits.line(), "mine");
    assert_eq!(waits.end().code, Some(0));
    let doctor = outcome(of(4_003).arg("doctor"));
    assert_eq!(doctor.code, Some(0), "{doctor:?}");
    assert!(doctor.stdout.contains("its owner and its group can take locks"), "{doctor:?}");
}

#[test]
fn no_place_for_the_file_is_said() {
    let run =
        outcome(quorlock().env_remove("XDG_STATE_HOME").env_remove("HOME").args(["status", "x"]));
    assert_eq!(run.code, Some(78), "{run:?}");
    assert!(run.stderr.contains("XDG_STATE_HOME"), "{run:?}");
}
