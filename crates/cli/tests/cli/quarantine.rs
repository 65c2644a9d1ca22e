//! Nodes that may have forgotten locks, and cast no vote until all of them have ended.

use std::process::Command;
use std::time::{Duration, Instant};

use quorlock_testkit::{RedisServer, Reply, eventually, test};
use serde_json::Value;

use crate::nodes::Nodes;
use crate::process::{Outcome, Running, outcome};
use crate::terminal::Terminal;

/// As short as it can be, and then half a second for clocks.
const MAX_TTL: &str = "1s";
const QUIET: Duration = Duration::from_millis(1_500);

/// The program under test, which trusts no server by itself.
fn distrusting(nodes: &Nodes, subcommand: &str) -> Command {
    let mut command = nodes.quorlock(subcommand);
    command.env_remove("QUORLOCK_TRUST_NEW_NODES").env("QUORLOCK_MAX_TTL", MAX_TTL);
    // So that a busy machine, too, asks all nodes.
    command.env("QUORLOCK_NODE_LIMIT", "200ms");
    command
}

fn init(nodes: &Nodes) {
    let init = outcome(distrusting(nodes, "init").arg("--yes"));
    assert_eq!(init.code, Some(0), "{init:?}");
}

fn is_marked(server: &RedisServer) -> bool {
    server.command(&["EXISTS", ":quorlock:set"]) == Reply::Int(1)
}

/// What is said of nodes that wait: which they are, for how long, and what to do.
fn assert_reported(said: &str, nodes: &Nodes) {
    for server in &nodes.0 {
        assert!(said.contains(&format!("redis://{}", server.addr())), "{said}");
    }
    assert!(said.contains("the lock x cannot be taken for another 1."), "{said}");
    assert!(said.contains("the set of nodes is new, or too many of them were started"), "{said}");
    assert!(said.contains("run quorlock init if no lock was ever taken on them"), "{said}");
}

#[test]
fn the_first_use_of_new_nodes_waits_and_says_so_once() {
    for (verb, args) in [("run", &["x", "--", "true"][..]), ("acquire", &["x"])] {
        let nodes = Nodes::start(3);
        let began = Instant::now();
        let waited = outcome(distrusting(&nodes, verb).args(args));
        assert_eq!(waited.code, Some(0), "{waited:?}");
        assert!(began.elapsed() >= QUIET, "{:?}", began.elapsed());
        assert_eq!(waited.stderr.lines().count(), 1, "{waited:?}");
        assert!(waited.stderr.starts_with("quorlock: warning: the lock x "), "{waited:?}");
        assert_reported(&waited.stderr, &nodes);
        // And not the second time.
        let again = outcome(distrusting(&nodes, "run").args(["-n", "y", "--", "true"]));
        assert_eq!((again.code, again.stderr.as_str()), (Some(0), ""), "{again:?}");
    }
}

#[test]
fn who_does_not_wait_or_not_long_enough_gets_69_and_the_remedy() {
    for verb in ["run", "acquire"] {
        for patience in ["-n", "-w300ms"] {
            let nodes = Nodes::start(3);
            let mut command = distrusting(&nodes, verb);
            command.env("QUORLOCK_MAX_TTL", "1h").args([patience, "x"]);
            if verb == "run" {
                command.args(["--", "echo", "in"]);
            }
            let Outcome { code, stdout, stderr, .. } = outcome(&mut command);
            assert_eq!((code, stdout.as_str()), (Some(69), ""), "{verb} {patience}: {stderr}");
            assert!(stderr.contains("the lock x cannot be taken for another 3600"), "{stderr}");
            assert!(
                stderr.contains("run quorlock init if no lock was ever taken on them"),
                "{stderr}"
            );
        }
    }
}

#[test]
fn a_terminal_shows_how_long_it_takes() {
    let nodes = Nodes::start(3);
    let mut run = Terminal::start(distrusting(&nodes, "run").args(["x", "--", "echo", "in"]));
    run.sees("Mark them as new? [y/N] ");
    run.types("n\n");
    let warned = run.sees("was ever taken on them");
    assert!(warned.contains("cannot be taken for another 1."), "{warned}");
    let mut seen = Vec::new();
    while seen.len() < 5 {
        run.sees("waiting for the lock x, no votes for another ");
        let left = run.sees("s");
        let millis = left.strip_suffix('m').map(|millis| millis.parse().expect("ms"));
        seen.push(millis.unwrap_or_else(|| left.parse::<f64>().expect("seconds") * 1e3));
    }
    assert!(seen.is_sorted_by(|a, b| a >= b) && seen[4] < seen[0], "{seen:?}");
    let before = run.sees("in\r\n");
    assert!(before.ends_with("\r\x1b[K"), "{before:?}");
    let (code, screen) = run.end();
    assert_eq!(code, Some(0), "{screen}");
    assert_eq!(screen.matches("warning").count(), 1, "{screen}");
}

#[test]
fn init_ends_the_waiting() {
    let nodes = Nodes::start(3);
    let patient = |subcommand| {
        let mut command = distrusting(&nodes, subcommand);
        command.env("QUORLOCK_MAX_TTL", "1h");
        command
    };
    let run = Running::start(patient("run").args(["x", "--", "echo", "in"]));
    let is_forming = |server: &RedisServer| match server.command(&["GET", ":quorlock:set"]) {
        Reply::Bulk(Some(marker)) => marker.starts_with(b"forming "),
        _ => false,
    };
    eventually("all wait", || nodes.0.iter().all(is_forming));
    let refused = outcome(patient("init").arg("--yes"));
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert_eq!(refused.stdout.matches("casts no vote for another").count(), 3, "{refused:?}");
    let init = outcome(patient("init").args(["--yes", "--force"]));
    assert_eq!(init.code, Some(0), "{init:?}");
    assert_eq!(run.line(), "in");
    assert_eq!(run.end().code, Some(0));
}

#[test]
fn a_node_that_was_restarted_among_others_is_warned_about_once() {
    let nodes = Nodes::start(3);
    init(&nodes);
    nodes.0[1].restart();
    let args = ["x", "-c", "echo in; read _; exit 0"];
    let mut run = Running::start(distrusting(&nodes, "run").args(args));
    assert_eq!(run.line(), "in");
    eventually("all are asked", || nodes.0.iter().all(is_marked));
    run.write("\n");
    let run = run.end();
    assert_eq!(run.code, Some(0), "{run:?}");
    let said = format!(
        "quorlock: warning: node redis://{}: casts no vote for another 1.",
        nodes.0[1].addr()
    );
    assert!(run.stderr.starts_with(&said) && run.stderr.lines().count() == 1, "{run:?}");
}

#[test]
fn nodes_for_clients_with_other_settings_are_told_of_at_once() {
    let nodes = Nodes::start(1);
    init(&nodes);
    let mut other = distrusting(&nodes, "run");
    other.env("QUORLOCK_MAX_TTL", "2s").args(["-w", "500ms", "x", "--", "true"]);
    let run = outcome(&mut other);
    assert_eq!(run.code, Some(78), "{run:?}");
    assert!(run.stderr.contains("a max_ttl of 1s"), "{run:?}");
    assert!(run.stderr.contains("a max_ttl of 2s"), "{run:?}");
}

/// Nobody waits for what cannot come: not if some nodes have forgotten it, nor if others are away.
#[test]
fn settings_that_differ_are_an_error_for_who_would_wait_without_end() {
    let nodes = Nodes::start(3);
    init(&nodes);
    let other = || {
        let mut command = distrusting(&nodes, "run");
        command.env("QUORLOCK_MAX_TTL", "2s").args(["x", "--", "true"]);
        outcome(&mut command)
    };
    let assert_refused = |run: &Outcome| {
        assert_eq!(run.code, Some(78), "{run:?}");
        assert!(run.stderr.contains("a max_ttl of 1s"), "{run:?}");
        assert!(run.stderr.contains("a max_ttl of 2s"), "{run:?}");
        assert!(run.stderr.contains("run quorlock init --force once"), "{run:?}");
    };
    assert_refused(&other());
    nodes.0[0].command(&["FLUSHALL"]);
    assert_refused(&other());
    nodes.0[1].kill();
    assert_refused(&other());
}

#[test]
fn status_and_list_show_who_does_not_vote_and_for_how_long() {
    let nodes = Nodes::start(3);
    let patient = |args: &[&str]| {
        let mut command = distrusting(&nodes, args[0]);
        outcome(command.env("QUORLOCK_MAX_TTL", "1h").args(&args[1..]))
    };
    assert_eq!(patient(&["init", "--yes"]).code, Some(0));
    nodes.0[1].restart();
    let looked = |code| -> Value {
        let status = patient(&["status", "--json", "x"]);
        assert_eq!((status.code, status.stderr.as_str()), (Some(code), ""), "{status:?}");
        serde_json::from_str(&status.stdout).expect("JSON")
    };
    let one = looked(0);
    let left = one["nodes"][1]["quarantine_ms"].as_u64().expect("a time");
    assert!((3_600_000..=3_600_500).contains(&left), "{one}");
    assert!(one["nodes"][0]["quarantine_ms"].is_null(), "{one}");
    assert!(one["quarantine_ms"].is_null(), "the others are enough: {one}");
    let said = patient(&["status", "x"]).stdout;
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines.len(), 4, "{said}");
    assert!(lines[2].ends_with("free  casts no vote for another 1h0m"), "{said}");
    let list = patient(&["list"]);
    assert_eq!((list.code, list.stdout.as_str()), (Some(0), "no lock is held\n"), "{list:?}");
    let node = format!("node redis://{} casts no vote for another 1h0m\n", nodes.0[1].addr());
    assert_eq!(list.stderr, format!("quorlock: warning: {node}"));

    nodes.0[2].restart();
    let two = looked(69);
    assert!(two["quarantine_ms"].as_u64() >= Some(3_600_000), "{two}");
    let said = patient(&["status", "x"]).stdout;
    assert!(
        said.contains("\nvotes:   too few nodes cast one for another 1h0m, and may have"),
        "{said}"
    );
}

/// All machines were restarted, and then comes the job of the night.
#[test]
fn who_does_not_wait_for_a_holder_waits_for_votes_and_says_so() {
    let nodes = Nodes::start(3);
    init(&nodes);
    nodes.0.iter().for_each(RedisServer::restart);
    let job = ["-n", "-E", "0", "x", "--", "echo", "in"];
    let at_once = outcome(distrusting(&nodes, "run").args(["--votes-within", "0"]).args(job));
    assert_eq!((at_once.code, at_once.stdout.as_str()), (Some(69), ""), "{at_once:?}");
    let short = outcome(distrusting(&nodes, "run").args(["--votes-within", "100ms"]).args(job));
    assert_eq!((short.code, short.stdout.as_str()), (Some(69), ""), "{short:?}");

    nodes.0.iter().for_each(RedisServer::restart);
    let run = outcome(distrusting(&nodes, "run").args(job));
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "in\n"), "{run:?}");
    assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
    assert!(run.stderr.contains("the lock x cannot be taken for another 1."), "{run:?}");
    assert!(run.stderr.contains("; waiting 6.5s at the most for the votes"), "{run:?}");
    // And not behind somebody who has it.
    nodes.take("x");
    let taken = outcome(distrusting(&nodes, "run").args(["-n", "x", "--", "echo", "in"]));
    assert_eq!((taken.code, taken.stdout.as_str()), (Some(75), ""), "{taken:?}");
}

/// So that the first job after that finds nodes that vote.
#[test]
fn status_list_and_doctor_begin_the_time_without_votes() {
    for look in [&["status", "x"][..], &["list"], &["doctor"]] {
        let nodes = Nodes::start(3);
        init(&nodes);
        nodes.0.iter().for_each(RedisServer::restart);
        let looked = outcome(distrusting(&nodes, look[0]).args(&look[1..]));
        assert!(!looked.stdout.is_empty(), "{looked:?}");
        let began = Instant::now();
        let is_forming = |server: &RedisServer| match server.command(&["GET", ":quorlock:set"]) {
            Reply::Bulk(Some(marker)) => marker.starts_with(b"forming "),
            _ => false,
        };
        assert!(nodes.0.iter().all(is_forming), "{look:?}: {looked:?}");
        eventually("it is over", || began.elapsed() > QUIET);
        let job = ["--votes-within", "0", "-n", "x", "--", "echo", "in"];
        let run = outcome(distrusting(&nodes, "run").args(job));
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{look:?}: {run:?}");
    }
}

/// They have no record of what they may have forgotten.
#[test]
fn a_lock_that_may_be_forgotten_is_not_called_free() {
    let nodes = Nodes::start(3);
    init(&nodes);
    // Long enough for any machine.
    let looks = |subcommand: &str, args: &[&str]| {
        let mut command = distrusting(&nodes, subcommand);
        outcome(command.env("QUORLOCK_MAX_TTL", "1h").args(args))
    };
    let mark = outcome(
        distrusting(&nodes, "init").env("QUORLOCK_MAX_TTL", "1h").args(["--yes", "--force"]),
    );
    assert_eq!(mark.code, Some(0), "{mark:?}");
    let free = looks("status", &["--json", "x"]);
    let state =
        |status: &Outcome| serde_json::from_str::<Value>(&status.stdout).unwrap()["state"].clone();
    assert_eq!((free.code, state(&free)), (Some(0), "free".into()), "{free:?}");
    nodes.0.iter().for_each(RedisServer::restart);
    let status = looks("status", &["--json", "x"]);
    assert_eq!((status.code, state(&status)), (Some(69), "unknown".into()), "{status:?}");
    let said = looks("status", &["x"]);
    assert!(said.stdout.contains("x may be held or free: 0 of 3 nodes know"), "{said:?}");
    assert!(!said.stdout.contains("--force"), "{said:?}");
    let list = looks("list", &[]);
    assert_eq!(list.code, Some(69), "{list:?}");
    assert!(list.stderr.contains("may have forgotten locks"), "{list:?}");
    assert!(!list.stdout.contains("no lock is held\n"), "{list:?}");
}
