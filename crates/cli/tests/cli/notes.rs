//! Who holds a lock, as others may know it.

use quorlock_testkit::{Reply, eventually, test};
use serde_json::Value;

use crate::nodes::{Nodes, quorlock};
use crate::process::{Running, outcome};

const SECRET: &str = "s3cret-argument";

fn noted(nodes: &Nodes) -> bool {
    nodes.holding("x:quorlock:holder") > 0
}

#[test]
fn a_run_tells_who_holds_the_lock_but_no_arguments() {
    let nodes = Nodes::start(3);
    let mut run = nodes.quorlock("run");
    run.args(["x", "--", "/bin/sh", "-c", "echo in; read _; exit 0", SECRET]);
    let mut run = Running::start(&mut run);
    assert_eq!(run.line(), "in");
    eventually("the note is there", || noted(&nodes));
    for server in &nodes.0 {
        let Reply::Bulk(Some(note)) = server.command(&["GET", "x:quorlock:holder"]) else {
            continue;
        };
        let note = String::from_utf8(note).unwrap();
        assert!(!note.contains(SECRET) && !note.contains("ql:"), "{note}");
    }
    let status = outcome(nodes.quorlock("status").args(["--json", "x"]));
    assert!(!status.stdout.contains(SECRET), "{status:?}");
    let status: Value = serde_json::from_str(&status.stdout).expect("JSON");
    let by = &status["by"];
    assert_eq!(by["command"], "sh", "{status}");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(by["host"], host.trim());
    let pid = by["pid"].as_u64().expect("a pid");
    let command = std::fs::read_to_string(format!("/proc/{pid}/comm")).expect("a live process");
    assert_eq!(command.trim(), "quorlock");
    assert!(!by["user"].as_str().expect("a user").is_empty());
    run.close_stdin();
    assert_eq!(run.end().code, Some(0));
    assert_eq!(nodes.holding("x:quorlock:holder"), 0, "it goes with the lock");
}

#[test]
fn the_note_of_a_script_is_about_the_script() {
    let nodes = Nodes::start(3);
    let acquired = outcome(nodes.quorlock("acquire").arg("x"));
    assert_eq!(acquired.code, Some(0), "{acquired:?}");
    let status = outcome(nodes.quorlock("status").args(["--json", "x"]));
    let status: Value = serde_json::from_str(&status.stdout).expect("JSON");
    assert_eq!(status["by"]["pid"], std::process::id(), "{status}");
}

#[test]
fn a_refused_caller_is_told_who_holds_the_lock() {
    let nodes = Nodes::start(3);
    let hold = ["x", "--", "sh", "-c", "echo in; read _; exit 0", SECRET];
    let mut run = Running::start(nodes.quorlock("run").args(hold));
    assert_eq!(run.line(), "in");
    eventually("the note is on every node", || nodes.holding("x:quorlock:holder") == 3);
    let status = outcome(nodes.quorlock("status").args(["--json", "x"])).stdout;
    let status: Value = serde_json::from_str(&status).expect("JSON");
    let by = |part: &str| status["by"][part].as_str().expect("a text").to_owned();
    let (pid, holder) = (status["by"]["pid"].as_u64(), status["holder"].as_str());
    let since = status["since"].as_str().expect("a time").replace('T', " ").replace('Z', " UTC");
    let expected = format!(
        "the lock x is taken by {}@{}, pid {}, sh ({}), since {since}, ",
        by("user"),
        by("host"),
        pid.expect("a pid"),
        holder.expect("a holder"),
    );
    let tried: [(&[&str], i32); 4] = [
        (&["run", "-n", "x", "--", "true"], 75),
        (&["run", "-w", "500ms", "x", "--", "true"], 124),
        (&["acquire", "-n", "x"], 75),
        (&["acquire", "-w", "500ms", "x"], 124),
    ];
    for (args, code) in tried {
        let refused = outcome(nodes.quorlock(args[0]).args(&args[1..]));
        assert_eq!((refused.code, &*refused.stdout), (Some(code), ""), "{refused:?}");
        assert!(refused.stderr.contains(&expected), "{refused:?} has no {expected}");
        assert!(refused.stderr.ends_with("s unless renewed\n"), "{refused:?}");
        assert_eq!(refused.stderr.contains("quorlock: waited "), code == 124, "{refused:?}");
        assert!(!refused.stderr.contains(SECRET), "{refused:?}");
    }
    run.close_stdin();
    assert_eq!(run.end().code, Some(0));
}

#[test]
fn a_note_can_be_turned_off() {
    let nodes = Nodes::start(1);
    let hold = ["x", "--", "sh", "-c", "echo in; read _; exit 0"];
    for (args, variable) in [(&["--no-note"][..], ""), (&[], "off")] {
        let mut run = nodes.quorlock("run");
        let mut run = Running::start(run.args(args).args(hold).env("QUORLOCK_NOTE", variable));
        assert_eq!(run.line(), "in");
        // The status comes after whatever the run has sent on its way.
        let status = outcome(nodes.quorlock("status").args(["--json", "x"]));
        let status: Value = serde_json::from_str(&status.stdout).expect("JSON");
        assert_eq!(status["state"], "held");
        assert!(status["by"].is_null() && status["note"].is_null() && status["since"].is_null());
        let refused = outcome(nodes.quorlock("run").args(["-n", "x", "--", "true"]));
        assert!(refused.stderr.contains("the lock x is taken by #"), "{refused:?}");
        assert!(!refused.stderr.contains("pid "), "{refused:?}");
        run.close_stdin();
        assert_eq!(run.end().code, Some(0));

        let mut acquire = nodes.quorlock("acquire");
        let acquired = outcome(acquire.arg("y").args(args).env("QUORLOCK_NOTE", variable));
        assert_eq!(acquired.code, Some(0), "{acquired:?}");
        assert_eq!(nodes.holding("y:quorlock:holder"), 0);
        nodes.delete("y");
    }
    let odd = outcome(quorlock().args(["acquire", "x"]).env("QUORLOCK_NOTE", "maybe"));
    assert_eq!(odd.code, Some(78), "{odd:?}");
    assert!(odd.stderr.contains("QUORLOCK_NOTE") && odd.stderr.contains("on nor off"), "{odd:?}");
}

#[test]
fn a_note_of_anybody_does_nothing_to_the_terminal() {
    let nodes = Nodes::start(1);
    let acquired = outcome(nodes.quorlock("acquire").args(["--no-note", "x"]));
    assert_eq!(acquired.code, Some(0), "{acquired:?}");
    let status = outcome(nodes.quorlock("status").args(["--json", "x"]));
    let status: Value = serde_json::from_str(&status.stdout).expect("JSON");
    let note = format!("{} 5 \x1b[31mred\u{7}", status["holder"].as_str().expect("a holder"));
    nodes.0[0].command(&["SET", "x:quorlock:holder", &note]);
    for command in [&["status", "x"][..], &["list"]] {
        let shown = outcome(nodes.quorlock(command[0]).args(&command[1..]));
        assert!(shown.stdout.contains("?[31mred?") && !shown.stdout.contains('\x1b'), "{shown:?}");
    }
    let refused = outcome(nodes.quorlock("run").args(["-n", "x", "--", "true"]));
    assert!(refused.stderr.contains("?[31mred?") && !refused.stderr.contains('\x1b'));
    let json = outcome(nodes.quorlock("status").args(["--json", "x"]));
    let json: Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!(json["note"], "\x1b[31mred\u{7}", "programs get it as it is");
}
