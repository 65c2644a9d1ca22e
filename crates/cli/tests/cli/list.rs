//! `quorlock list`, as it is read by people and programs.

use quorlock_testkit::test;
use serde_json::Value;

use crate::nodes::{Nodes, quorlock};
use crate::process::{Outcome, Running, outcome};

fn parsed(list: &Outcome) -> Vec<Value> {
    assert_eq!((list.code, &*list.stderr), (Some(0), ""), "{list:?}");
    serde_json::from_str(&list.stdout).expect("an array")
}

#[test]
fn what_is_held_is_listed_with_who_and_how_long() {
    let nodes = Nodes::start(3);
    let none = outcome(&mut nodes.quorlock("list"));
    assert_eq!((none.code, &*none.stdout), (Some(0), "no lock is held\n"), "{none:?}");
    assert_eq!(parsed(&outcome(nodes.quorlock("list").arg("--json"))), [] as [Value; 0]);

    for name in ["nightly", "a much longer name"] {
        assert_eq!(outcome(nodes.quorlock("acquire").arg(name)).code, Some(0));
    }
    assert_eq!(outcome(nodes.quorlock("acquire").args(["--no-note", "quiet"])).code, Some(0));
    for server in &nodes.0 {
        server.command(&["SET", "foreign", "no lock of this dialect"]);
    }
    let waiting = Running::start(nodes.quorlock("acquire").arg("nightly"));
    quorlock_testkit::eventually("it waits", || nodes.holding("nightly:quorlock:queue") == 3);

    let list = outcome(&mut nodes.quorlock("list"));
    assert_eq!((list.code, &*list.stderr), (Some(0), ""), "{list:?}");
    let lines: Vec<&str> = list.stdout.lines().collect();
    let starts = ["NAME ", "a much longer name ", "nightly ", "quiet "];
    assert_eq!(lines.len(), starts.len(), "{list:?}");
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start) && !line.ends_with(' '), "{list:?}");
    }
    let column = |title: &str| lines[0].find(title).expect("a title");
    let cell = |line: &str, title| line[column(title)..].split("  ").next().unwrap().to_owned();
    let pid = format!("pid {}", std::process::id());
    assert!(cell(lines[2], "HOLDER").contains(&pid), "{list:?}");
    assert!(cell(lines[2], "SINCE").ends_with(" UTC"), "{list:?}");
    assert!(cell(lines[2], "LEFT").ends_with('s'), "{list:?}");
    assert_eq!((&*cell(lines[2], "WAITING"), &*cell(lines[1], "WAITING")), ("1", "0"));
    assert!(cell(lines[3], "HOLDER").starts_with('#'), "{list:?}");
    assert_eq!(cell(lines[3], "SINCE"), "?");

    let json = parsed(&outcome(nodes.quorlock("list").arg("--json")));
    let names: Vec<_> = json.iter().map(|lock| lock["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a much longer name", "nightly", "quiet"]);
    let status = outcome(nodes.quorlock("status").args(["--json", "nightly"]));
    let status: Value = serde_json::from_str(&status.stdout).expect("JSON");
    let fence = status["fence"].as_u64().expect("a number").to_string();
    assert_eq!(cell(lines[2], "FENCE"), fence);
    for field in ["state", "holder", "by", "since", "waiting", "fence"] {
        assert_eq!(json[1][field], status[field], "{field}");
    }
    waiting.signal(rustix::process::Signal::TERM);
    waiting.end();
}

#[test]
fn a_prefix_and_a_file_have_their_own_locks() {
    let nodes = Nodes::start(1);
    let acquired = outcome(nodes.quorlock("acquire").args(["--prefix", "a*:", "x"]));
    assert_eq!(acquired.code, Some(0), "{acquired:?}");
    let names = |args: &[&str]| -> Vec<Value> {
        let list = outcome(nodes.quorlock("list").arg("--json").args(args));
        parsed(&list).into_iter().map(|lock| lock["name"].clone()).collect()
    };
    assert_eq!(names(&["--prefix", "a*:"]), ["x"]);
    assert_eq!(names(&["--prefix", "a"]), ["*:x"]);
    assert_eq!(names(&["--prefix", "ab:"]), [] as [Value; 0]);

    let home = tempfile::tempdir().unwrap();
    let at_home = |args: &[&str]| outcome(quorlock().env("XDG_STATE_HOME", home.path()).args(args));
    assert_eq!(at_home(&["acquire", "one"]).code, Some(0));
    assert_eq!(at_home(&["acquire", "two"]).code, Some(0));
    let list = parsed(&at_home(&["list", "--json"]));
    let names: Vec<_> = list.iter().map(|lock| lock["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(list[0]["by"]["pid"], std::process::id());
    assert_eq!(list[0]["waiting"], 0, "a file keeps a queue, and nobody is in it");
}

/// Nor do keys that lie beside a lock become locks by what somebody has put there.
#[test]
fn what_no_name_can_be_is_not_listed() {
    let nodes = Nodes::start(1);
    let token = format!("ql:{}", "0".repeat(40));
    for key in ["x", "a:quorlock:fence", ":quorlock:node"] {
        nodes.0[0].command(&["SET", key, &token, "PX", "60000"]);
    }
    let names = |prefix: &str| -> Vec<Value> {
        let args = ["--json", "--dialect", "redlock", "--prefix", prefix];
        let list = outcome(nodes.quorlock("list").args(args));
        parsed(&list).into_iter().map(|lock| lock["name"].clone()).collect()
    };
    assert_eq!(names(""), ["x"]);
    assert_eq!(names("a:"), [] as [Value; 0]);
    assert_eq!(names(":"), [] as [Value; 0]);
}

#[test]
fn too_few_nodes_give_69() {
    let nodes = Nodes::start(3);
    assert_eq!(outcome(nodes.quorlock("acquire").arg("x")).code, Some(0));
    nodes.0[0].kill();
    let two = outcome(nodes.quorlock("list").arg("--json"));
    let two: Value = serde_json::from_str(&two.stdout).expect("JSON");
    assert_eq!(two[0]["name"], "x", "two of three know");
    nodes.0[1].kill();
    let one = outcome(&mut nodes.quorlock("list"));
    assert_eq!(one.code, Some(69), "{one:?}");
    let line = one.stdout.lines().nth(1).expect("a line for the lock");
    assert!(line.starts_with("x ") && line.contains("  unknown; "), "{one:?}");
    assert!(line.contains(&format!("pid {}", std::process::id())), "{one:?}");
    assert!(one.stderr.contains("locks may be missing"), "{one:?}");
    for away in &nodes.0[..2] {
        let said = format!("warning: node redis://{} cannot be asked: ", away.addr());
        assert_eq!(one.stderr.matches(&said).count(), 1, "{one:?}");
    }
    assert_eq!(one.stderr.lines().count(), 3, "{one:?}");

    let json = outcome(nodes.quorlock("list").arg("--json"));
    assert_eq!(json.code, Some(69), "{json:?}");
    let locks: Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!((&locks[0]["name"], &locks[0]["state"]), (&"x".into(), &"unknown".into()));
    assert!(locks[0]["nodes"][0]["error"].is_string(), "{locks}");

    // What was free before is not what may be held.
    nodes.0[2].command(&["DEL", "x"]);
    let free = outcome(&mut nodes.quorlock("list"));
    assert_eq!(free.code, Some(69), "{free:?}");
    assert!(free.stdout.starts_with("no lock is held as far as"), "{free:?}");
    nodes.0[2].kill();
    let none = outcome(nodes.quorlock("list").arg("--json"));
    assert_eq!((none.code, &*none.stdout), (Some(69), "[]\n"), "{none:?}");
    assert_eq!(none.stderr.matches("cannot be asked").count(), 4, "{none:?}");
}
