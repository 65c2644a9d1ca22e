//! `quorlock init`: nodes are new where an operator says so.

use std::process::Command;

use quorlock_testkit::{RedisServer, Reply, eventually, test};
use serde_json::Value;

use crate::nodes::{Nodes, quorlock};
use crate::process::{Outcome, outcome};
use crate::terminal::Terminal;

/// The program under test, which trusts no server by itself.
fn on(nodes: &Nodes, args: &[&str]) -> Command {
    let mut command = nodes.quorlock(args[0]);
    // A busy machine keeps this limit too.
    command.env("QUORLOCK_NODE_LIMIT", "2s").env_remove("QUORLOCK_TRUST_NEW_NODES");
    command.args(&args[1..]);
    command
}

fn init(nodes: &Nodes, args: &[&str]) -> Outcome {
    outcome(&mut on(nodes, &[&["init", "--yes"], args].concat()))
}

/// The states that were told, in the order of the nodes.
fn states(nodes: &Nodes, args: &[&str], code: i32) -> Vec<String> {
    let run = init(nodes, &[&["--json"], args].concat());
    assert_eq!((run.code, run.stderr.as_str()), (Some(code), ""), "{run:?}");
    let printed: Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert_eq!(printed["exit_code"], code, "{printed}");
    let of_nodes = printed["nodes"].as_array().expect("nodes").iter().zip(&nodes.0);
    let state = |(node, server): (&Value, &RedisServer)| {
        assert_eq!(node["node"], format!("redis://{}", server.addr()));
        let state = node["state"].as_str().expect("a state").to_owned();
        let is_wrong = ["refused", "failed"].contains(&&*state);
        assert_eq!(node["error"].is_string(), is_wrong, "{node}");
        state
    };
    of_nodes.map(state).collect()
}

fn marked(server: &RedisServer) -> bool {
    server.command(&["EXISTS", ":quorlock:set"]) == Reply::Int(1)
}

const TRY: [&str; 5] = ["run", "-n", "x", "--", "true"];

#[test]
fn new_nodes_vote_at_once() {
    let nodes = Nodes::start(3);
    let init = init(&nodes, &[]);
    assert_eq!((init.code, init.stderr.as_str()), (Some(0), ""), "{init:?}");
    let lines: Vec<_> = init.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{init:?}");
    for (line, server) in lines.iter().zip(&nodes.0) {
        assert!(line.starts_with(&format!("redis://{}", server.addr())), "{init:?}");
        assert!(line.ends_with("is marked as new, and votes from now on"), "{init:?}");
    }
    let run = outcome(&mut on(&nodes, &TRY));
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    assert_eq!(states(&nodes, &[], 0), ["voting"; 3]);
    let again = outcome(&mut on(&nodes, &["init", "--yes"]));
    assert_eq!(again.stdout.matches("votes already, and is left alone").count(), 3, "{again:?}");
}

#[test]
fn without_a_terminal_it_has_to_be_confirmed() {
    let nodes = Nodes::start(1);
    let unsure = outcome(&mut on(&nodes, &["init"]));
    assert_eq!((unsure.code, unsure.stdout.as_str()), (Some(78), ""), "{unsure:?}");
    assert!(unsure.stderr.contains("no lock that any client still believes in"), "{unsure:?}");
    assert!(unsure.stderr.contains("--yes"), "{unsure:?}");
    assert!(!marked(&nodes.0[0]));
}

#[test]
fn on_a_terminal_it_is_asked() {
    let nodes = Nodes::start(1);
    for (answer, code) in [("\n", 78), ("n\n", 78), ("y\n", 0)] {
        assert!(!marked(&nodes.0[0]), "before {answer:?}");
        let mut init = Terminal::start(&on(&nodes, &["init"]));
        let asked = init.sees("[y/N] ");
        assert!(asked.contains("these nodes are new: no lock that any client"), "{asked}");
        init.types(answer);
        let (ended, screen) = init.end();
        assert_eq!(ended, Some(code), "{screen}");
    }
    assert!(marked(&nodes.0[0]));
}

#[test]
fn a_lock_that_is_held_speaks_against_it() {
    let nodes = Nodes::start(3);
    assert_eq!(states(&nodes, &[], 0), ["marked"; 3]);
    assert_eq!(outcome(&mut on(&nodes, &["acquire", "held"])).code, Some(0));
    eventually("every node has it", || nodes.holding("held") == 3);
    nodes.0[0].restart();
    let refused = init(&nodes, &[]);
    assert_eq!((refused.code, refused.stderr.as_str()), (Some(1), ""), "{refused:?}");
    assert_eq!(refused.stdout.matches("somebody holds the lock held").count(), 2, "{refused:?}");
    assert!(refused.stdout.contains("it was emptied"), "{refused:?}");
    assert!(!marked(&nodes.0[0]));
    assert_eq!(states(&nodes, &[], 1), ["refused"; 3]);
    assert_eq!(states(&nodes, &["--force"], 0), ["marked", "voting", "voting"]);
}

#[test]
fn a_restarted_node_and_other_settings_need_force() {
    let server = RedisServer::builder().appendonly(true).start();
    let nodes = Nodes(vec![server]);
    assert_eq!(states(&nodes, &[], 0), ["marked"]);
    let refused = init(&nodes, &["--max-ttl", "20s"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stdout.contains("a max_ttl of 30.0s"), "{refused:?}");
    assert_eq!(states(&nodes, &["--max-ttl", "20s", "--force"], 0), ["marked"]);
    nodes.0[0].restart();
    let refused = init(&nodes, &["--max-ttl", "20s"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stdout.contains("was restarted") && refused.stdout.contains("--force"));
    assert_eq!(states(&nodes, &["--max-ttl", "20s", "--force"], 0), ["marked"]);
}

#[test]
fn nodes_that_are_away_are_named_and_give_69() {
    let nodes = Nodes::start(3);
    nodes.0[1].kill();
    let few = init(&nodes, &[]);
    assert_eq!((few.code, few.stderr.as_str()), (Some(69), ""), "{few:?}");
    let line = few.stdout.lines().nth(1).expect("a line for each");
    assert!(line.starts_with(&format!("redis://{}", nodes.0[1].addr())), "{few:?}");
    assert!(line.contains("cannot connect"), "{few:?}");
    assert_eq!(states(&nodes, &[], 69), ["left", "failed", "left"]);
    assert!(!marked(&nodes.0[0]), "nothing was changed");
    assert_eq!(states(&nodes, &["--force"], 69), ["marked", "failed", "marked"]);
    let run = outcome(on(&nodes, &TRY).env("QUORLOCK_LOG", "off"));
    assert_eq!(run.code, Some(0), "two of three vote: {run:?}");
}

#[test]
fn a_file_and_the_redlock_dialect_have_nothing_to_be_told() {
    let home = tempfile::tempdir().unwrap();
    let file = outcome(quorlock().env("XDG_STATE_HOME", home.path()).arg("init"));
    assert_eq!((file.code, file.stderr.as_str()), (Some(0), ""), "{file:?}");
    assert!(file.stdout.contains("needs no mark"), "{file:?}");
    let nodes = Nodes::start(1);
    let redlock = outcome(&mut on(&nodes, &["init", "--dialect", "redlock"]));
    assert_eq!((redlock.code, redlock.stderr.as_str()), (Some(0), ""), "{redlock:?}");
    assert!(redlock.stdout.contains("needs no mark"), "{redlock:?}");
    assert!(!marked(&nodes.0[0]));
}
