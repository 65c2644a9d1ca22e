//! A test that lacks a program is skipped and says so, unless the program is required.

use std::process::{Command, Output};

use quorlock_testkit::skipping::{self, REQUIRED};
use quorlock_testkit::test;

const PROGRAM: &str = "no-such-program";

#[test]
#[ignore = "lacks a program"]
fn lacks_a_program() {
    let path = skipping::program(PROGRAM);
    panic!("it is at {}", path.display());
}

#[test(start_paused = true)]
#[ignore = "lacks a program"]
async fn lacks_a_program_later() {
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    let path = skipping::program(PROGRAM);
    panic!("it is at {}", path.display());
}

#[test]
#[ignore = "fails"]
fn fails() {
    panic!("a failure of its own");
}

/// Runs one of the tests above in a process of its own.
fn run(test: &str, required: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--ignored", "--exact", test]).env(REQUIRED, required);
    command.output().expect("this program runs")
}

#[test]
fn a_test_that_lacks_a_program_is_skipped_aloud() {
    for test in ["lacks_a_program", "lacks_a_program_later"] {
        let output = run(test, "another-program");
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stderr).expect("text");
        let expected = format!(
            "skipped (1 so far): skipping::{test}: no `{PROGRAM}` is on the PATH: `cargo xtask test` installs it\n"
        );
        assert_eq!(said, expected);
    }
}

#[test]
fn a_test_that_lacks_what_is_required_fails() {
    for test in ["lacks_a_program", "lacks_a_program_later"] {
        let output = run(test, &format!("another-program,{PROGRAM}"));
        assert!(!output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stdout).expect("text");
        assert!(said.contains("no `no-such-program` is on the PATH"), "{said}");
    }
}

#[test]
fn other_failures_are_failures() {
    let output = run("fails", "");
    assert!(!output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("a failure of its own"), "{output:?}");
}
