//! `release --force`: a lock is taken away from its holder.

use quorlock_testkit::test;

use crate::nodes::{Nodes, quorlock};
use crate::process::{Running, outcome};
use crate::terminal::Terminal;

const HOLD: [&str; 5] = ["x", "--", "sh", "-c", "echo in; read _; exit 0"];

#[test]
fn without_a_terminal_it_has_to_be_confirmed() {
    let nodes = Nodes::start(3);
    let mut run = Running::start(nodes.quorlock("run").args(HOLD));
    assert_eq!(run.line(), "in");
    quorlock_testkit::eventually("every node has the lock and its note", || {
        nodes.holding("x") == 3 && nodes.holding("x:quorlock:holder") == 3
    });
    let asked = outcome(nodes.quorlock("release").args(["--force", "x"]));
    assert_eq!((asked.code, &*asked.stdout), (Some(78), ""), "{asked:?}");
    assert!(asked.stderr.contains("--yes") && asked.stderr.contains(", sh, since "), "{asked:?}");
    assert_eq!(nodes.holding("x"), 3, "nothing has changed");

    let broken = outcome(nodes.quorlock("release").args(["--force", "--yes", "x"]));
    assert_eq!((broken.code, &*broken.stderr), (Some(0), ""), "{broken:?}");
    assert!(broken.stdout.starts_with("broke the lock x, held by #"), "{broken:?}");
    assert!(broken.stdout.contains(", sh, since ") && broken.stdout.contains("3 of 3 nodes"));
    for server in &nodes.0 {
        assert_eq!(server.kept(), 0, "the note goes too");
    }
    run.close_stdin();
    let lost = run.end();
    assert_eq!(lost.code, Some(76), "its holder is told in the end: {lost:?}");

    let free = outcome(nodes.quorlock("release").args(["--force", "x"]));
    assert_eq!((free.code, &*free.stdout), (Some(0), "x is free\n"), "{free:?}");
}

#[test]
fn a_waiter_gets_it() {
    let nodes = Nodes::start(3);
    nodes.take("x");
    let waiting = Running::start(nodes.quorlock("run").args(["x", "--", "echo", "in"]));
    quorlock_testkit::eventually("it waits", || nodes.holding("x:quorlock:queue") == 3);
    let broken = outcome(nodes.quorlock("release").args(["--force", "--yes", "x"]));
    assert_eq!(broken.code, Some(0), "{broken:?}");
    assert_eq!(waiting.line(), "in");
    assert_eq!(waiting.end().code, Some(0));
}

#[test]
fn on_a_terminal_it_is_asked() {
    let home = tempfile::tempdir().unwrap();
    let at_home = |args: &[&str]| {
        let mut command = quorlock();
        command.env("XDG_STATE_HOME", home.path()).args(args);
        command
    };
    let taken = outcome(&mut at_home(&["acquire", "x"]));
    assert_eq!(taken.code, Some(0), "{taken:?}");
    let state = || outcome(&mut at_home(&["status", "x"])).stdout;
    for (answer, code) in [("\n", 78), ("no\n", 78), ("\u{4}", 78), ("y\n", 0)] {
        assert!(state().starts_with("x is held"), "before {answer:?}");
        let mut force = Terminal::start(&at_home(&["release", "--force", "x"]));
        quorlock_testkit::eventually("it asks", || force.screen().contains("[y/N]"));
        assert!(force.screen().contains("break the lock x, held by #"), "{}", force.screen());
        force.types(answer);
        let (ended, screen) = force.end();
        assert_eq!(ended, Some(code), "{screen}");
        assert_eq!(screen.contains("broke the lock x"), code == 0, "{screen}");
    }
    assert!(state().starts_with("x is free"));
}

#[test]
fn a_token_and_force_exclude_each_other() {
    for args in [["--token", "x"], ["--token-file", "x"]] {
        let both = outcome(quorlock().args(["release", "--force", "x"]).args(args));
        assert_eq!(both.code, Some(78), "{both:?}");
    }
    let yes = outcome(quorlock().args(["release", "--yes", "x"]));
    assert_eq!(yes.code, Some(78), "{yes:?}");
}

/// What no holder can have been given is forgotten, where it lies, once somebody says so.
#[test]
fn a_fence_that_is_none_is_forgotten() {
    let nodes = Nodes::start(3);
    let run = || {
        outcome(nodes.quorlock("run").args([
            "--wait",
            "0s",
            "x",
            "--",
            "sh",
            "-c",
            "echo $QUORLOCK_FENCE",
        ]))
    };
    let before: u64 = run().stdout.trim().parse().expect("a fence");
    for server in &nodes.0[..2] {
        server.command(&["SET", "x", "quorlock 9007199254740992-x 0 0 0"]);
    }
    let refused = run();
    assert_eq!(refused.code, Some(69), "{refused:?}");
    assert!(refused.stderr.contains("9007199254740992"), "{refused:?}");
    assert!(refused.stderr.contains("quorlock release --force --yes"), "{refused:?}");
    let asked = outcome(nodes.quorlock("release").args(["--force", "x"]));
    assert_eq!((asked.code, &*asked.stdout), (Some(0), "x is free\n"), "{asked:?}");
    assert_eq!(run().code, Some(69), "nothing has changed");
    let cured = outcome(nodes.quorlock("release").args(["--force", "--yes", "x"]));
    assert!(cured.stdout.contains("2 of the nodes have forgotten"), "{cured:?}");
    let after: u64 = run().stdout.trim().parse().expect("a fence");
    assert!(after > before, "{after} {before}");
}
