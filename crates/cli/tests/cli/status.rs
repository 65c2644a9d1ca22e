//! `quorlock status`, as it is read by people and scripts.

use quorlock_testkit::test;
use rustix::process::Signal;
use serde_json::Value;

use crate::nodes::{Nodes, Record};
use crate::process::{Outcome, Running, outcome};
use crate::terminal::Terminal;

/// The first line, and what is said of each node. What is said of the holder is left out.
fn read(status: &Outcome, nodes: &Nodes) -> (String, Vec<String>) {
    let mut lines = status.stdout.lines().map(str::to_owned);
    let first = lines.next().expect("a first line");
    let mut lines =
        lines.filter(|line| !["holder:", "since:", "fence:"].iter().any(|it| line.starts_with(it)));
    let said = nodes.0.iter().map(|server| {
        let line = lines.next().expect("a line for each node");
        let node = format!("redis://{}", server.addr());
        line.strip_prefix(&node).expect("the node comes first").to_owned()
    });
    let said: Vec<String> = said.collect();
    assert_eq!(lines.next(), None, "{status:?}");
    (first, said)
}

/// Where the text after the spaces begins.
fn column(said: &str) -> usize {
    said.len() - said.trim_start().len()
}

#[test]
fn a_free_lock() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let status = outcome(nodes.quorlock("status").arg("x"));
        assert_eq!((status.code, status.stderr.as_str()), (Some(0), ""), "{status:?}");
        let (first, said) = read(&status, &nodes);
        assert_eq!(first, "x is free");
        assert!(said.iter().all(|said| said.trim() == "free"), "{status:?}");
    }
}

#[test]
fn a_held_lock() {
    let nodes = Nodes::start(3);
    let args = ["--prefix", "job:", "x", "--", "sh", "-c", "echo in; read _; exit 0"];
    let mut run = Running::start(nodes.quorlock("run").args(args));
    assert_eq!(run.line(), "in");
    quorlock_testkit::eventually("every node has the lock", || nodes.holding("job:x") == 3);

    let status = outcome(nodes.quorlock("status").args(["--prefix", "job:", "x"]));
    assert_eq!((status.code, status.stderr.as_str()), (Some(0), ""), "{status:?}");
    let (first, said) = read(&status, &nodes);
    let holder = first.strip_prefix("x is held by ").expect("it is held").split(',').next();
    let holder = holder.unwrap();
    assert!(holder.starts_with('#') && holder.len() == 9, "{status:?}");
    assert!(first.contains("for another ") && first.ends_with("s unless renewed"), "{status:?}");
    for said in &said {
        let (by, left) = said.trim().split_once("  ").unwrap();
        assert_eq!(by, holder);
        assert!(left.ends_with('s'), "{status:?}");
    }

    run.close_stdin();
    assert_eq!(run.end().code, Some(0));
    let status = outcome(nodes.quorlock("status").args(["--prefix", "job:", "x"]));
    assert!(status.stdout.starts_with("x is free\n"), "{status:?}");
}

#[test]
fn columns_are_aligned() {
    let nodes = Nodes::start(1);
    let socket = quorlock_testkit::RedisServer::builder().unix_socket().start();
    let third = Nodes::start(1);
    let urls = [nodes.0[0].url(), socket.url(), third.0[0].url()].join(",");
    let status = outcome(nodes.quorlock("status").env("QUORLOCK_NODES", urls).arg("x"));
    assert_eq!(status.code, Some(0), "{status:?}");
    let columns: Vec<_> = status
        .stdout
        .lines()
        .skip(1)
        .map(|line| line.find("  ").map(|at| at + column(&line[at..])))
        .collect();
    assert!(columns.len() == 3 && columns.iter().all(|column| *column == columns[0]), "{status:?}");
}

#[test]
fn a_dead_node_has_its_line_and_the_others_decide() {
    let nodes = Nodes::start(3);
    nodes.0[1].kill();
    let free = outcome(nodes.quorlock("status").arg("x"));
    assert_eq!(free.code, Some(0), "{free:?}");
    let (first, said) = read(&free, &nodes);
    assert_eq!(first, "x is free");
    assert_eq!((said[0].trim(), said[2].trim()), ("free", "free"));
    assert!(said[1].contains("connect"), "{free:?}");

    Record::write(&nodes.0[0], "x", "somebody");
    Record::write(&nodes.0[2], "x", "somebody");
    let held = outcome(nodes.quorlock("status").arg("x"));
    assert_eq!(held.code, Some(0), "{held:?}");
    assert!(held.stdout.starts_with("x is held by #"), "{held:?}");
}

#[test]
fn too_few_nodes_to_tell_give_69() {
    let nodes = Nodes::start(3);
    nodes.0[1].kill();
    // One of two that answer: the third may be the other half of a majority.
    Record::write(&nodes.0[0], "x", "somebody");
    let open = outcome(nodes.quorlock("status").arg("x"));
    assert_eq!(open.code, Some(69), "{open:?}");
    assert!(open.stdout.starts_with("x may be held or free: 2 of 3 nodes know"), "{open:?}");

    nodes.0[2].kill();
    let few = outcome(nodes.quorlock("status").arg("x"));
    assert_eq!((few.code, few.stderr.as_str()), (Some(69), ""), "{few:?}");
    assert!(few.stdout.starts_with("x may be held or free: 1 of 3 nodes know"), "{few:?}");
    let (_, said) = read(&few, &nodes);
    assert!(said[0].trim().starts_with('#'), "{few:?}");
    assert!(said[1].contains("cannot connect") && said[2].contains("cannot connect"), "{few:?}");
}

#[test]
fn in_an_outage_programs_get_what_is_known_and_why_it_is_not_all() {
    let nodes = Nodes::start(3);
    assert_eq!(outcome(nodes.quorlock("acquire").arg("x")).code, Some(0));
    quorlock_testkit::eventually("every node has the lock", || nodes.holding("x") == 3);
    let looked = || {
        let status = outcome(nodes.quorlock("status").args(["--json", "x"]));
        assert_eq!((status.code, status.stderr.as_str()), (Some(69), ""), "{status:?}");
        json(&status)
    };
    nodes.0[1].kill();
    // One that hangs is as much away as one that is gone.
    nodes.0[2].pause();
    let one = looked();
    assert_eq!((&one["state"], &one["holder"]), (&"unknown".into(), &Value::Null), "{one}");
    let known = &one["nodes"][0];
    assert_eq!((&known["state"], &known["error"]), (&"held".into(), &Value::Null), "{one}");
    assert_eq!(known["by"]["pid"], std::process::id(), "{one}");
    for away in [1, 2] {
        assert_eq!(one["nodes"][away]["state"], "failed", "{one}");
        assert!(one["nodes"][away]["error"].is_string(), "{one}");
    }
    let people = outcome(nodes.quorlock("status").arg("x")).stdout;
    assert!(people.contains(&format!(", pid {}, ", std::process::id())), "{people}");

    nodes.0[0].kill();
    let none = looked();
    assert_eq!(none["state"], "unknown", "{none}");
    let failed = |node: &Value| node["state"] == "failed" && node["error"].is_string();
    assert!(none["nodes"].as_array().expect("nodes").iter().all(failed), "{none}");
}

#[test]
fn a_split_vote_is_nobodys_and_yet_not_free() {
    let nodes = Nodes::start(3);
    Record::write(&nodes.0[0], "x", "somebody");
    Record::write(&nodes.0[1], "x", "another");
    let status = outcome(nodes.quorlock("status").arg("x"));
    assert_eq!(status.code, Some(0), "{status:?}");
    assert!(
        status.stdout.starts_with("x is held by nobody, but not free for another 9m"),
        "{status:?}"
    );

    nodes.0[1].command(&["DEL", "x"]);
    let status = outcome(nodes.quorlock("status").arg("x"));
    assert!(status.stdout.starts_with("x is free\n"), "{status:?}");
}

fn json(status: &Outcome) -> Value {
    serde_json::from_str(&status.stdout).unwrap_or_else(|error| panic!("{error}: {status:?}"))
}

#[test]
fn programs_get_every_field_and_no_secret() {
    let nodes = Nodes::start(3);
    let looked = |code| {
        let status = outcome(nodes.quorlock("status").args(["--json", "x"]));
        assert_eq!((status.code, &*status.stderr), (Some(code), ""), "{status:?}");
        assert_eq!(status.stdout.lines().count(), 1, "{status:?}");
        assert!(!status.stdout.contains("ql:"), "{status:?}");
        json(&status)
    };
    let fields = ["by", "holder", "name", "nodes", "note", "remaining_ms", "since", "state"];
    let of_nodes = ["error", "holder", "node", "remaining_ms", "state", "waiting"];
    let of_nodes = of_nodes.iter().chain(&["fence", "quarantine_ms"]);
    let free = looked(0);
    for field in fields.iter().chain(&["waiting", "fence", "quarantine_ms"]) {
        assert!(free.get(field).is_some(), "{field}: {free}");
    }
    for field in of_nodes {
        assert!(free["nodes"][0].get(field).is_some(), "{field}: {free}");
    }
    assert_eq!((&free["name"], &free["state"]), (&"x".into(), &"free".into()));
    assert!(free["holder"].is_null() && free["by"].is_null() && free["since"].is_null());
    assert_eq!((&free["waiting"], &free["nodes"][2]["state"]), (&0.into(), &"free".into()));

    assert_eq!(outcome(nodes.quorlock("acquire").arg("x")).code, Some(0));
    let held = looked(0);
    assert_eq!(held["state"], "held");
    let holder = held["holder"].as_str().expect("a holder");
    assert!(holder.starts_with('#') && holder.len() == 9, "{held}");
    assert_eq!(held["nodes"][1]["holder"], holder);
    let left = held["remaining_ms"].as_u64().expect("a time");
    assert!((1..=30_000).contains(&left), "{held}");
    let since = held["since"].as_str().expect("a time");
    assert!(since.len() == 20 && since.ends_with('Z') && since.contains('T'), "{held}");

    nodes.0[2].kill();
    let dead = outcome(nodes.quorlock("status").args(["--json", "x"]));
    let dead = json(&dead);
    assert_eq!((&dead["state"], &dead["nodes"][2]["state"]), (&"held".into(), &"failed".into()));
    assert!(dead["nodes"][2]["error"].as_str().expect("an error").contains("connect"), "{dead}");
    assert!(dead["nodes"][0]["error"].is_null(), "{dead}");
    nodes.0[1].command(&["DEL", "x"]);
    let open = outcome(nodes.quorlock("status").args(["--json", "x"]));
    assert_eq!((open.code, &json(&open)["state"]), (Some(69), &"unknown".into()), "{open:?}");
}

#[test]
fn people_see_who_holds_it_since_when_and_how_many_wait() {
    let nodes = Nodes::start(3);
    assert_eq!(outcome(nodes.quorlock("acquire").arg("x")).code, Some(0));
    let alone = outcome(nodes.quorlock("status").arg("x")).stdout;
    assert!(!alone.contains("waiting"), "{alone}");
    let waiting = Running::start(nodes.quorlock("acquire").arg("x"));
    quorlock_testkit::eventually("it waits", || nodes.holding("x:quorlock:queue") == 3);
    let status = outcome(nodes.quorlock("status").arg("x"));
    let lines: Vec<_> = status.stdout.lines().collect();
    let pid = format!(", pid {}, ", std::process::id());
    assert!(lines[1].starts_with("holder:  ") && lines[1].contains(&pid), "{status:?}");
    assert!(lines[2].starts_with("since:   ") && lines[2].ends_with(" ago"), "{status:?}");
    let fence = Record::on(&nodes.0[0], "x").expect("it is held").fence;
    assert_eq!(lines[3], format!("fence:   {fence}"), "{status:?}");
    assert_eq!((lines[4], lines.len()), ("waiting: 1", 8), "{status:?}");
    waiting.signal(Signal::TERM);
    waiting.end();
}

#[test]
fn a_watched_lock_is_looked_at_again_and_again() {
    let nodes = Nodes::start(1);
    let watch = Running::start(nodes.quorlock("status").args(["--json", "--watch", "x"]));
    // Some lines may be older than what is waited for.
    let becomes = |state: &str| {
        (0..20).any(|_| {
            let line: Value = serde_json::from_str(&watch.line()).expect("one object in a line");
            line["state"] == state
        })
    };
    assert!(becomes("free"));
    nodes.take("x");
    assert!(becomes("held"));
    nodes.delete("x");
    assert!(becomes("free"));
    watch.signal(Signal::INT);
    let ended = watch.end();
    assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{ended:?}");
}

#[test]
fn a_terminal_is_redrawn() {
    let nodes = Nodes::start(1);
    let watch = Terminal::start(nodes.quorlock("status").args(["--watch", "x"]));
    let redrawn = |text: &str| watch.screen().contains(&format!("\x1b[H\x1b[J{text}"));
    quorlock_testkit::eventually("it is free", || redrawn("x is free"));
    nodes.take("x");
    quorlock_testkit::eventually("it is held", || redrawn("x is held by #"));
    watch.signal(Signal::INT);
    assert_eq!(watch.end().0, Some(0));
}
