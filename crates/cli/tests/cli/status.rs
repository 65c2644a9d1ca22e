//! `quorlock status`, as it is read by people and scripts.

use crate::nodes::Nodes;
use crate::process::{Outcome, Running, outcome};

/// The first line, and what is said of each node.
fn read(status: &Outcome, nodes: &Nodes) -> (String, Vec<String>) {
    let mut lines = status.stdout.lines().map(str::to_owned);
    let first = lines.next().expect("a first line");
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

    nodes.0[0].command(&["SET", "x", "somebody", "PX", "600000"]);
    nodes.0[2].command(&["SET", "x", "somebody", "PX", "600000"]);
    let held = outcome(nodes.quorlock("status").arg("x"));
    assert_eq!(held.code, Some(0), "{held:?}");
    assert!(held.stdout.starts_with("x is held by #"), "{held:?}");
}

#[test]
fn too_few_nodes_to_tell_give_69() {
    let nodes = Nodes::start(3);
    nodes.0[1].kill();
    // One of two that answer: the third may be the other half of a majority.
    nodes.0[0].command(&["SET", "x", "somebody", "PX", "600000"]);
    let open = outcome(nodes.quorlock("status").arg("x"));
    assert_eq!(open.code, Some(69), "{open:?}");
    assert!(open.stdout.starts_with("x may be held or free: 2 of 3 nodes answered"), "{open:?}");

    nodes.0[2].kill();
    let few = outcome(nodes.quorlock("status").arg("x"));
    assert_eq!(few.code, Some(69), "{few:?}");
    assert!(few.stderr.contains("1 of 3 nodes can be used"), "{few:?}");
}

#[test]
fn a_split_vote_is_nobodys_and_yet_not_free() {
    let nodes = Nodes::start(3);
    nodes.0[0].command(&["SET", "x", "somebody", "PX", "600000"]);
    nodes.0[1].command(&["SET", "x", "another", "PX", "600000"]);
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
