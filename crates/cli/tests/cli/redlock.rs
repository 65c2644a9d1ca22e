//! The `redlock` dialect, in which locks are shared with every Redlock library.

use std::process::Command;

use quorlock_testkit::{RedisServer, Reply, eventually, test};

use crate::nodes::Nodes;
use crate::process::{Running, outcome};

/// The program under test, in this dialect.
fn redlock(nodes: &Nodes, subcommand: &str) -> Command {
    let mut command = nodes.quorlock(subcommand);
    command.env_remove("QUORLOCK_TRUST_NEW_NODES").args(["--dialect", "redlock"]);
    command
}

fn token_on(server: &RedisServer) -> Option<String> {
    match server.command(&["GET", "x"]) {
        Reply::Bulk(token) => token.map(|token| String::from_utf8(token).expect("a token")),
        other => panic!("no token: {other:?}"),
    }
}

#[test]
fn a_lock_is_a_key_with_the_token_and_an_expiry() {
    let nodes = Nodes::start(3);
    let script = "echo in; read _; exit 3";
    let args = ["--ttl", "900ms", "x", "--", "sh", "-c", script];
    let mut run = Running::start(redlock(&nodes, "run").args(args));
    assert_eq!(run.line(), "in");
    eventually("every node has it", || nodes.0.iter().all(|server| token_on(server).is_some()));
    let tokens: Vec<_> = nodes.0.iter().map(token_on).collect();
    assert!(tokens[0].as_ref().is_some_and(|token| token.starts_with("ql:")), "{tokens:?}");
    assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
    let left = |server: &RedisServer| match server.command(&["PTTL", "x"]) {
        Reply::Int(left) => left,
        other => panic!("no time: {other:?}"),
    };
    for server in &nodes.0 {
        let mut before = left(server);
        assert!((1..=900).contains(&before), "{before}");
        eventually("it is extended", || {
            let now = left(server);
            let extended = now > before;
            before = now;
            extended
        });
    }
    run.close_stdin();
    let run = run.end();
    assert_eq!((run.code, run.stderr.as_str()), (Some(3), ""), "{run:?}");
    eventually("every node lets go", || nodes.0.iter().all(|server| token_on(server).is_none()));
    for server in &nodes.0 {
        assert_eq!(server.command(&["EXISTS", ":quorlock:set"]), Reply::Int(0), "no marker");
    }
}

#[test]
fn a_lock_of_another_library_is_taken_and_waited_for() {
    let nodes = Nodes::start(3);
    for server in &nodes.0 {
        server.command(&["SET", "x", "another library", "NX", "PX", "600000"]);
    }
    let taken = outcome(redlock(&nodes, "run").args(["-n", "x", "--", "true"]));
    assert_eq!(taken.code, Some(75), "{taken:?}");
    let status = outcome(redlock(&nodes, "status").arg("x"));
    assert!(status.stdout.starts_with("x is held by #"), "{status:?}");
    let listed = outcome(&mut redlock(&nodes, "list"));
    assert_eq!(listed.stdout, "no lock is held\n", "its key looks like any other: {listed:?}");

    let waiting = Running::start(redlock(&nodes, "run").args(["x", "--", "echo", "in"]));
    nodes.wait_for_clients();
    for server in &nodes.0 {
        server.command(&["DEL", "x"]);
    }
    assert_eq!(waiting.line(), "in");
    assert_eq!(waiting.end().code, Some(0));
}

#[test]
fn scripts_take_extend_and_give_back() {
    let nodes = Nodes::start(3);
    let acquired = outcome(redlock(&nodes, "acquire").args(["--ttl", "10s", "x"]));
    let token = acquired.stdout.trim().to_owned();
    assert!(nodes.0.iter().filter(|server| token_on(server).as_ref() == Some(&token)).count() >= 2);
    for verb in ["extend", "release"] {
        let done = outcome(redlock(&nodes, verb).arg("x").env("QUORLOCK_TOKEN", &token));
        assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""), "{verb}: {done:?}");
    }
    eventually("every node lets go", || nodes.0.iter().all(|server| token_on(server).is_none()));
}

#[test]
fn a_lock_of_the_other_dialect_is_not_mistaken_for_a_free_one() {
    let nodes = Nodes::start(1);
    let acquired = outcome(redlock(&nodes, "acquire").arg("x"));
    assert_eq!(acquired.code, Some(0), "{acquired:?}");
    let strict = outcome(nodes.quorlock("run").args(["-n", "x", "--", "true"]));
    assert_eq!(strict.code, Some(78), "{strict:?}");
    let acquired = outcome(nodes.quorlock("acquire").arg("y"));
    assert_eq!(acquired.code, Some(0), "{acquired:?}");
    let redlock = outcome(redlock(&nodes, "run").args(["-n", "y", "--", "true"]));
    assert_eq!(redlock.code, Some(78), "{redlock:?}");
}
