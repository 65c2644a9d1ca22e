//! `quorlock bench` on servers of the test's own.

use std::process::Command;
use std::time::Duration;

use quorlock_testkit::{Proxy, RedisServer, Reply, eventually, test};
use rustix::process::Signal;
use serde_json::Value;

use crate::nodes::{Nodes, quorlock};

use crate::process::{Running, outcome};
use crate::terminal::Terminal;

/// The program under test, with a time limit that a busy machine keeps too.
fn bench(nodes: &Nodes, args: &[&str]) -> Command {
    let mut command = nodes.quorlock("bench");
    command.env("QUORLOCK_NODE_LIMIT", "500ms").args(args);
    command
}

fn measured(command: &mut Command, code: i32) -> Value {
    let run = outcome(command.arg("--json"));
    assert_eq!((run.code, run.stderr.as_str()), (Some(code), ""), "{run:?}");
    serde_json::from_str(&run.stdout).expect("JSON")
}

/// All keys but the mark of a server.
fn left_on(server: &RedisServer) -> Vec<String> {
    let Reply::Array(keys) = server.command(&["KEYS", "*"]) else { panic!("no keys") };
    let keys = keys.into_iter().map(|key| match key {
        Reply::Bulk(Some(key)) => String::from_utf8_lossy(&key).into_owned(),
        other => panic!("no key: {other:?}"),
    });
    keys.filter(|key| ![":quorlock:set", ":quorlock:sweep"].contains(&key.as_str())).collect()
}

fn nothing_is_left(nodes: &Nodes) {
    for server in &nodes.0 {
        assert_eq!(left_on(server), [""; 0], "{}", server.addr());
    }
}

#[test]
fn nodes_are_measured_and_nothing_is_left_on_them() {
    let nodes = Nodes::start(3);
    let found = measured(&mut bench(&nodes, &["--time", "600ms", "--concurrency", "8"]), 0);
    nothing_is_left(&nodes);
    assert_eq!(found["left"], Value::Null);
    assert_eq!((&found["failed"], &found["error"]), (&0.into(), &Value::Null), "{found:#}");
    assert_eq!(found["needed"], 2);
    for (server, node) in nodes.0.iter().zip(found["nodes"].as_array().expect("nodes")) {
        assert_eq!(node["node"], format!("redis://{}", server.addr()));
        assert_eq!(node["usable"], true);
        assert!(node["round_trip_us"].as_f64() > Some(0.0), "{node:#}");
        assert!(node["cpu_share"].as_f64() > Some(0.0), "{node:#}");
    }
    let (one, many) = (&found["one_at_a_time"], &found["many_at_a_time"]);
    let number =
        |of: &Value, key: &str| of[key].as_f64().unwrap_or_else(|| panic!("{key}: {of:#}"));
    assert!(number(one, "lock_p50_us") <= number(one, "lock_p99_us"), "{found:#}");
    let trips = number(one, "lock_p50_us") / number(&found, "round_trip_us");
    assert!((number(one, "lock_round_trips") - trips).abs() < 1e-6, "{found:#}");
    let rate = number(many, "locks") / number(many, "seconds");
    assert!((number(many, "locks_per_s") - rate).abs() < 1e-6, "{found:#}");
    assert_eq!(many["concurrency"], 8);
    assert!(number(many, "client_cpu_share") > 0.0 && number(many, "client_cpu_us") > 0.0);
    let limit = found["limit"].as_str().expect("a limit");
    assert!(["client", "server", "network"].contains(&limit), "{limit}");
    let verdict = found["verdict"].as_str().expect("a verdict");
    assert!(verdict.contains("is the limit"), "{verdict}");
}

#[test]
fn people_get_sentences() {
    let nodes = Nodes::start(1);
    let run = outcome(&mut bench(&nodes, &["--time", "200ms"]));
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    for part in ["1 node, of which", "round trip", "one at a time: a lock takes", "64 at a time: "]
    {
        assert!(run.stdout.contains(part), "no {part:?}: {run:?}");
    }
}

#[test]
fn as_many_locks_as_were_asked_for_are_enough() {
    let nodes = Nodes::start(1);
    let args = ["--time", "1h", "--count", "50", "--concurrency", "4"];
    let found = measured(&mut bench(&nodes, &args), 0);
    assert_eq!(found["one_at_a_time"]["locks"], 50, "{found:#}");
    assert_eq!(found["many_at_a_time"]["locks"], 50, "{found:#}");
}

#[test]
fn names_of_the_redlock_dialect_are_cleared_away_too() {
    let nodes = Nodes::start(3);
    let args = ["--time", "200ms", "--concurrency", "300", "--dialect", "redlock"];
    let found = measured(&mut bench(&nodes, &args), 0);
    assert_eq!(found["failed"], 0, "{found:#}");
    nothing_is_left(&nodes);
}

#[test]
fn names_that_cannot_be_cleared_away_are_told() {
    let nodes = Nodes::start(1);
    let user = ["ACL", "SETUSER", "default", "-del"];
    assert_eq!(nodes.0[0].command(&user), Reply::Simple("OK".into()));
    let found = measured(&mut bench(&nodes, &["--time", "200ms"]), 0);
    assert_eq!(found["failed"], 0, "{found:#}");
    let left = found["left"].as_str().expect("something is left");
    assert!(left.starts_with(&nodes.0[0].url()) && left.contains("+del"), "{left}");
    assert!(found["verdict"].as_str().expect("words").contains("go by themselves"), "{found:#}");
    // Those of the locks, and of the two that were tried out.
    assert_eq!(left_on(&nodes.0[0]).len(), 64 + 1 + 2);
}

#[test]
fn what_is_too_short_has_no_limit() {
    let nodes = Nodes::start(1);
    let found = measured(&mut bench(&nodes, &["--time", "1h", "--count", "1"]), 0);
    assert_eq!((&found["limit"], &found["nodes"][0]["cpu_share"]), (&Value::Null, &Value::Null));
    assert!(found["verdict"].as_str().expect("words").contains("too short"), "{found:#}");
}

#[test]
fn a_node_that_casts_no_vote_says_why() {
    let nodes = Nodes::start(1);
    let run = outcome(bench(&nodes, &[]).env_remove("QUORLOCK_TRUST_NEW_NODES"));
    assert_eq!((run.code, run.stderr.as_str()), (Some(69), ""), "{run:?}");
    assert!(
        run.stdout.contains("it has no mark") && run.stdout.contains("quorlock init"),
        "{run:?}"
    );
}

#[test]
fn nodes_that_hang_meanwhile_are_named_and_too_many_of_them_are_a_failure() {
    let nodes = Nodes::start(3);
    let run = Running::start(
        bench(&nodes, &["--time", "6s", "--json"]).env("QUORLOCK_CONNECT_LIMIT", "500ms"),
    );
    // Of the six seconds, three are left to see it.
    eventually("many are taken", || left_on(&nodes.0[0]).iter().any(|key| key.contains(":many:")));
    nodes.0[1].pause();
    nodes.0[2].pause();
    let end = run.end();
    nodes.0[1].resume();
    nodes.0[2].resume();
    assert_eq!(end.code, Some(69), "{end:?}");
    let found: Value = serde_json::from_str(&end.stdout).expect("JSON");
    let usable = |index: usize| found["nodes"][index]["usable"].as_bool().expect("known");
    assert_eq!([usable(0), usable(1), usable(2)], [true, false, false], "{found:#}");
    assert_eq!(found["one_at_a_time"]["locks"], 0, "{found:#}");
    let verdict = found["verdict"].as_str().expect("words");
    assert!(verdict.contains("locks failed, the first one thus"), "{verdict}");
    assert!(!verdict.contains("is the limit"), "{verdict}");
    let left = found["left"].as_str().expect("something is left");
    assert!(left.contains(&nodes.0[1].url()) && !left.contains(&nodes.0[0].url()), "{left}");
    assert_eq!(left_on(&nodes.0[0]), [""; 0]);
}

#[test]
fn ctrl_c_ends_it_and_leaves_nothing() {
    let nodes = Nodes::start(3);
    let run = Running::start(&mut bench(&nodes, &["--time", "1h"]));
    // Many are held at this moment, and many more were.
    eventually("locks are taken", || left_on(&nodes.0[0]).len() > 10);
    run.signal(Signal::INT);
    let end = run.end();
    assert_eq!((end.code, end.stdout.as_str()), (Some(130), ""), "{end:?}");
    assert!(end.stderr.contains("nothing is left on the nodes"), "{end:?}");
    nothing_is_left(&nodes);
}

#[test]
fn a_slow_node_is_named() {
    let nodes = Nodes::start(3);
    let proxy = Proxy::in_front_of(nodes.0[2].addr());
    // Slow beside any machine that the tests may run on.
    proxy.delay(Duration::from_millis(150));
    let urls = format!("{},{},{}", nodes.0[0].url(), nodes.0[1].url(), proxy.url());
    let mut command = bench(&nodes, &["--time", "200ms"]);
    let found = measured(command.env("QUORLOCK_NODES", urls), 0);
    let slow = |index: usize| found["nodes"][index]["slow"].as_bool().expect("known");
    assert_eq!([slow(0), slow(1), slow(2)], [false, false, true], "{found:#}");
    let verdict = found["verdict"].as_str().expect("a verdict");
    assert!(verdict.contains(&format!("redis://{} is slow", proxy.addr())), "{verdict}");
}

#[test]
fn a_dead_node_is_named_and_too_many_of_them_are_the_end() {
    let nodes = Nodes::start(3);
    nodes.0[1].kill();
    let found = measured(&mut bench(&nodes, &["--time", "200ms"]), 0);
    let dead = format!("redis://{} cannot be used", nodes.0[1].addr());
    assert!(found["verdict"].as_str().expect("words").contains(&dead), "{found:#}");
    assert_eq!(found["nodes"][1]["round_trip_us"], Value::Null);
    assert_eq!(found["left"], Value::Null, "nothing came to it");
    nodes.0[2].kill();
    let found = measured(&mut bench(&nodes, &["--time", "1h"]), 69);
    assert_eq!((&found["limit"], &found["many_at_a_time"]["locks"]), (&Value::Null, &0.into()));
    let verdict = found["verdict"].as_str().expect("words");
    assert!(verdict.starts_with("1 of 3 nodes can be used, and 2 are needed"), "{verdict}");
}

#[test]
fn the_file_of_this_machine_can_be_measured_as_well() {
    let home = tempfile::tempdir().expect("a directory");
    let mut command = quorlock();
    command.env("XDG_STATE_HOME", home.path()).args(["bench", "--time", "200ms"]);
    let found = measured(&mut command, 0);
    assert_eq!((&found["needed"], &found["round_trip_us"]), (&1.into(), &Value::Null));
    assert!(found["many_at_a_time"]["locks"].as_u64() > Some(0), "{found:#}");
    assert_eq!((&found["limit"], &found["left"]), (&"file".into(), &Value::Null));
}

#[test]
fn a_terminal_sees_how_far_it_is() {
    let nodes = Nodes::start(1);
    // The bar is for the foreground only: a session of its own has one.
    let mut command = Command::new("setsid");
    let bench = bench(&nodes, &["--time", "1s"]);
    command.args(["--ctty", "--wait"]).arg(bench.get_program()).args(bench.get_args());
    for (name, value) in bench.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let run = Terminal::start(command.env("TERM", "xterm"));
    let (code, screen) = run.end();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("64 at a time  ") && screen.contains('░'), "{screen}");
    assert!(screen.contains("one at a time: a lock takes"), "{screen}");
}

#[test]
fn mistakes_are_told() {
    for args in
        [&["--concurrency", "0"][..], &["--count", "0"], &["--time", "soon"], &["--time", "0s"]]
    {
        let run = outcome(quorlock().arg("bench").args(args));
        assert_eq!((run.code, run.stdout.as_str()), (Some(78), ""), "{run:?}");
        assert!(run.stderr.contains(args[0]), "{run:?}");
    }
}
