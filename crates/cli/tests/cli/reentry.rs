//! Runs inside a run.

use std::fs;

use quorlock_testkit::{eventually, test};

use crate::nodes::Nodes;
use crate::process::{Running, outcome};

#[test]
fn a_run_of_the_same_name_takes_part_in_the_lock_and_leaves_it() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let script =
            r#""$QUORLOCK" run -n x -- sh -c 'echo inner; exit 5'; echo $?; read _; exit 3"#;
        let mut run = Running::start(nodes.quorlock("run").args(["x", "-c", script]));
        assert_eq!((run.line(), run.line()), ("inner".into(), "5".into()));
        assert!(nodes.holding("x") > count / 2, "the outer run still holds it");
        let other = outcome(nodes.quorlock("run").args(["-n", "x", "--", "echo", "out"]));
        assert_eq!((other.code, other.stdout.as_str()), (Some(75), ""), "{other:?}");
        run.close_stdin();
        let run = run.end();
        assert_eq!((run.code, run.stderr.as_str()), (Some(3), ""));
        nodes.all_released("x");
    }
}

#[test]
fn a_run_of_another_name_is_a_lock_of_its_own() {
    let nodes = Nodes::start(1);
    let script = r#""$QUORLOCK" run -n y -- sh -c 'echo in; read _'"#;
    let mut run = Running::start(nodes.quorlock("run").args(["x", "-c", script]));
    assert_eq!(run.line(), "in");
    assert_eq!((nodes.holding("x"), nodes.holding("y")), (1, 1));
    run.close_stdin();
    run.end();
    assert_eq!((nodes.holding("x"), nodes.holding("y")), (0, 0));
}

#[test]
fn the_outermost_lock_is_known_inside_of_others() {
    let nodes = Nodes::start(1);
    let script = r#""$QUORLOCK" run -n y -- "$QUORLOCK" run -n x -- echo deep"#;
    let run = outcome(nodes.quorlock("run").args(["x", "-c", script]));
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "deep\n"), "{run:?}");
}

#[test]
fn two_runs_of_another_name_side_by_side_exclude_each_other() {
    let nodes = Nodes::start(1);
    let script = r#"
        "$QUORLOCK" run y -- sh -c 'echo in; exec sleep 60' &
        read _
        "$QUORLOCK" run -n y -- echo out
        echo $?
        kill $!; wait"#;
    let mut run = Running::start(nodes.quorlock("run").args(["x", "-c", script]));
    assert_eq!(run.line(), "in");
    run.write("\n");
    assert_eq!(run.line(), "75");
    assert_eq!(run.end().stdout, "");
}

#[test]
fn an_owner_that_is_named_takes_part_as_well() {
    let nodes = Nodes::start(1);
    let script = "echo $QUORLOCK_OWNER; read _";
    let mut run = Running::start(nodes.quorlock("run").args(["x", "-c", script]));
    let owner = run.line();
    let other =
        outcome(nodes.quorlock("run").args(["-n", "--owner", &owner, "x", "-c", "echo in"]));
    assert_eq!((other.code, other.stdout.as_str()), (Some(0), "in\n"), "{other:?}");
    assert_eq!(nodes.holding("x"), 1);
    run.close_stdin();
    run.end();
    let wrong = outcome(nodes.quorlock("run").args(["--owner", "me", "x", "-c", "echo in"]));
    assert_eq!((wrong.code, wrong.stdout.as_str()), (Some(78), ""), "{wrong:?}");
}

/// It has left the group of the outer command, which therefore ends without waiting for it.
#[test]
fn a_run_that_outlives_the_one_around_it_keeps_the_lock() {
    for (count, dialect) in [(1, "strict"), (3, "strict"), (3, "redlock")] {
        let nodes = Nodes::start(count);
        let directory = tempfile::tempdir().unwrap();
        let until = directory.path().join("until");
        let inner = r#"echo in; while [ ! -e "$UNTIL" ]; do sleep 0.05; done"#;
        let script = format!(r#"setsid "$QUORLOCK" run -n x -- sh -c '{inner}' & read _; exit 3"#);
        let quorlock = || {
            let mut command = nodes.quorlock("run");
            command.env("QUORLOCK_DIALECT", dialect).env("UNTIL", &until);
            command
        };
        let mut outer = Running::start(quorlock().args(["x", "-c", &script]));
        assert_eq!(outer.line(), "in");
        outer.close_stdin();
        eventually("the outer run has ended", || !outer.is_running());
        let other = outcome(quorlock().args(["-n", "x", "--", "echo", "out"]));
        assert_eq!((other.code, other.stdout.as_str()), (Some(75), ""), "{dialect}: {other:?}");
        fs::write(&until, "").unwrap();
        let outer = outer.end();
        assert_eq!((outer.code, outer.stderr.as_str()), (Some(3), ""), "{dialect}");
        let wait = ["--wait", "20s", "x", "--", "echo", "out"];
        let other = outcome(quorlock().args(wait));
        assert_eq!((other.code, other.stdout.as_str()), (Some(0), "out\n"), "{dialect}: {other:?}");
    }
}
