//! The first minute on new servers.

use std::process::Command;

use quorlock_testkit::{RedisServer, Reply, test};

use crate::nodes::Nodes;
use crate::process::outcome;
use crate::terminal::Terminal;

/// The program under test, which trusts no server by itself, and waits long for those that forgot.
fn distrusting(nodes: &Nodes, args: &[&str]) -> Command {
    let mut command = nodes.quorlock(args[0]);
    command.env_remove("QUORLOCK_TRUST_NEW_NODES").env("QUORLOCK_NODE_LIMIT", "200ms");
    command.env("QUORLOCK_MAX_TTL", "1h").args(&args[1..]);
    command
}

fn is_marked(server: &RedisServer) -> bool {
    server.command(&["EXISTS", ":quorlock:set"]) == Reply::Int(1)
}

#[test]
fn at_a_terminal_they_are_shown_and_asked_about() {
    let nodes = Nodes::start(3);
    let mut run = Terminal::start(&distrusting(&nodes, &["run", "x", "--", "echo", "in", "it"]));
    let asked = run.sees("Mark them as new? [y/N] ");
    for server in &nodes.0 {
        assert!(asked.contains(&format!("redis://{}", server.addr())), "{asked}");
        assert!(!is_marked(server), "before anybody has answered");
    }
    assert!(asked.contains("two may hold one lock") && asked.contains("vote in 1h0m"), "{asked}");
    run.types("y\n");
    run.sees("the nodes are marked as new, and vote from now on");
    run.sees("in it\r\n");
    assert_eq!(run.end().0, Some(0));
    // And not the second time.
    let again = Terminal::start(&distrusting(&nodes, &["run", "x", "--", "echo", "again"]));
    let (code, screen) = again.end();
    assert_eq!((code, screen.contains("new")), (Some(0), false), "{screen}");
}

#[test]
fn a_client_that_does_not_know_waits_as_before() {
    let nodes = Nodes::start(3);
    let mut run = Terminal::start(&distrusting(&nodes, &["run", "-w", "1s", "x", "--", "true"]));
    run.sees("Mark them as new? [y/N] ");
    run.types("\n");
    run.sees("cannot be taken for another ");
    assert_eq!(run.end().0, Some(69));
}

#[test]
fn what_is_not_new_is_not_asked_about() {
    let nodes = Nodes::start(3);
    let init = outcome(&mut distrusting(&nodes, &["init", "--yes"]));
    assert_eq!(init.code, Some(0), "{init:?}");
    // Two were emptied, and one knows it.
    nodes.0[0].command(&["FLUSHALL"]);
    nodes.0[1].command(&["FLUSHALL"]);
    let run = Terminal::start(&distrusting(&nodes, &["run", "-w", "500ms", "x", "--", "true"]));
    let (code, screen) = run.end();
    assert_eq!((code, screen.contains("[y/N]")), (Some(69), false), "{screen}");
}

#[test]
fn elsewhere_there_is_a_line_to_paste() {
    let nodes = Nodes::start(3);
    let mut run =
        distrusting(&nodes, &["run", "-w", "300ms", "--prefix", "a b:", "x", "--", "true"]);
    let run = outcome(&mut run);
    assert_eq!((run.code, run.stdout.as_str()), (Some(69), ""), "{run:?}");
    let line = format!(
        "; to paste: quorlock init --node {} --prefix 'a b:' --max-ttl 3600000ms",
        nodes.urls()
    );
    assert!(run.stderr.trim_end().ends_with(&line), "{run:?}");
    // Pasted, it says what the time is for that has begun by now, and how to cut it short.
    let pasted = line.split_once("quorlock init").expect("the line").1;
    let init = |options: &str| {
        let script = format!("$QUORLOCK init --yes {options} {pasted}");
        let mut shell = Command::new("sh");
        shell.env("QUORLOCK", env!("CARGO_BIN_EXE_quorlock")).args(["-c", &script]);
        outcome(shell.env_remove("QUORLOCK_NODES"))
    };
    let refused = init("");
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stdout.contains("or use --force if no client believes in any lock"));
    let forced = init("--force");
    assert_eq!(forced.code, Some(0), "{forced:?}");
    let mut run = distrusting(&nodes, &["run", "-n", "--prefix", "a b:", "x", "--", "true"]);
    assert_eq!(outcome(&mut run).code, Some(0));
}

#[test]
fn the_line_names_the_file_and_shows_no_password() {
    let server = RedisServer::builder().requirepass("hunter2").start();
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("config.toml");
    std::fs::write(&file, format!("nodes = ['{}']\nmax_ttl = '1h'", server.url())).unwrap();
    let run = |command: &mut Command| {
        command.env_remove("QUORLOCK_TRUST_NEW_NODES").env("QUORLOCK_LOG", "off");
        let run = outcome(command.args(["run", "-n", "x", "--", "true"]));
        assert!(run.code == Some(69) && !run.stderr.contains("hunter2"), "{run:?}");
        run.stderr
    };
    let by_file = run(crate::nodes::quorlock().env("QUORLOCK_CONFIG", &file));
    let line = format!("quorlock init --config {}\n", file.display());
    assert!(by_file.ends_with(&line), "{by_file}");
    server.command(&["FLUSHALL"]);
    let said = run(crate::nodes::quorlock()
        .env("QUORLOCK_NODES", server.url())
        .env("QUORLOCK_MAX_TTL", "1h"));
    let line = format!("quorlock init --node redis://{} --max-ttl 3600000ms\n", server.addr());
    assert!(said.ends_with(&line), "{said}");
}
