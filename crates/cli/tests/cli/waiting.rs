//! Locks that are taken: waiting for them, or not.

use std::io::{self, BufRead};
use std::process::Command;

use quorlock_testkit::{RedisServer, Reply, test};
use rustix::process::Signal;

use crate::nodes::{Nodes, quorlock};
use crate::process::{Outcome, Running, outcome};

fn refused(command: &mut Command, code: i32) -> Outcome {
    let run = outcome(command.args(["x", "--", "echo", "out"]));
    assert_eq!(run.code, Some(code), "{run:?}");
    assert_eq!(run.stdout, "", "the command must not run");
    assert!(run.stderr.starts_with("quorlock: "), "{run:?}");
    run
}

#[test]
fn not_waiting_gives_75_or_the_code_that_was_asked_for() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        nodes.take("x");
        let run = refused(nodes.quorlock("run").arg("-n"), 75);
        assert!(run.stderr.contains("the lock x is taken by #"), "{run:?}");
        refused(nodes.quorlock("run").args(["--nonblock", "-E", "9"]), 9);
        refused(nodes.quorlock("run").args(["-n", "--conflict-exit-code", "0"]), 0);
        assert_eq!(nodes.holding("x"), count, "what is somebody else's stays");
    }
}

#[test]
fn a_free_lock_is_taken_without_waiting() {
    let nodes = Nodes::start(3);
    let run = outcome(nodes.quorlock("run").args(["-n", "x", "--", "echo", "out"]));
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "out\n"), "{run:?}");
}

#[test]
fn waiting_in_vain_gives_124() {
    let nodes = Nodes::start(3);
    nodes.take("x");
    let run = refused(nodes.quorlock("run").args(["-w", "300ms"]), 124);
    assert!(run.stderr.contains("for the lock x"), "{run:?}");
    refused(nodes.quorlock("run").args(["-w", "0.3", "-E", "9"]), 9);
}

#[test]
fn nodes_that_cannot_be_reached_are_waited_for() {
    let nodes = Nodes::start(3);
    nodes.0.iter().for_each(RedisServer::kill);
    let run = refused(nodes.quorlock("run").args(["-w", "0.5", "-E", "9"]), 69);
    assert_eq!(run.stderr.matches("trying again").count(), 1, "{run:?}");
    let last = run.stderr.lines().last().unwrap();
    assert!(last.starts_with("quorlock: waited 5") && last.contains("0 of 3 nodes"), "{run:?}");
    let at_once = refused(nodes.quorlock("run").args(["-n", "--votes-within", "0"]), 69);
    assert!(!at_once.stderr.contains("trying again"), "{at_once:?}");
    let soon = refused(nodes.quorlock("run").args(["-n", "--votes-within", "300ms"]), 69);
    assert!(
        soon.stderr.contains("trying again for ") && soon.stderr.contains("--votes-within"),
        "{soon:?}"
    );

    let (said, stderr) = io::pipe().unwrap();
    let args = ["x", "--", "echo", "in"];
    let run = Running::start_with_stderr(nodes.quorlock("run").args(args), stderr);
    let mut said = io::BufReader::new(said).lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains("trying again")));
    nodes.0[0].restart();
    nodes.0[2].restart();
    assert_eq!(run.line(), "in");
    assert_eq!(run.end().code, Some(0));
}

#[test]
fn a_password_that_is_wrong_is_not_waited_for() {
    let server = RedisServer::builder().requirepass("right").start();
    let url = server.url().replace("right", "wrong");
    let run = outcome(quorlock().args(["run", "--node", &url, "x", "--", "true"]));
    assert_eq!(run.code, Some(69), "{run:?}");
    assert!(!run.stderr.contains("trying again"), "{run:?}");
}

#[test]
fn waiters_that_are_killed_in_the_queue_hold_nobody_up() {
    let nodes = Nodes::start(3);
    let args = ["--ttl", "30s", "x", "--", "sh", "-c", "echo in; read _"];
    let mut holder = Running::start(nodes.quorlock("run").args(args));
    assert_eq!(holder.line(), "in");
    let waiters: Vec<_> = (1..=4)
        .map(|place| {
            let args = ["--ttl", "30s", "x", "--", "echo", "served"];
            let run = Running::start(nodes.quorlock("run").args(args));
            nodes.wait_for_queue("x", place);
            run
        })
        .collect();
    let mut waiters = waiters.into_iter();
    let killed: Vec<_> = waiters.by_ref().take(3).collect();
    killed.iter().for_each(|run| run.signal(Signal::KILL));
    // One that is given the lock and dies then was not a waiter any more.
    nodes.wait_for_clients_to_go(2);
    holder.close_stdin();
    // A record of one that is gone would stand for 30 s, which is longer than any test waits.
    let last = waiters.next().unwrap();
    assert_eq!(last.line(), "served");
    assert_eq!(last.end().code, Some(0));
    for run in killed {
        assert_eq!(run.end().stdout, "");
    }
}

#[test]
fn waiting_for_nodes_that_die_gives_69() {
    // A waiter behind another library asks again and again, and behind this one waits for a grant message.
    let takes: [fn(&Nodes); 2] = [
        |nodes| nodes.take("x"),
        |nodes| assert_eq!(outcome(nodes.quorlock("acquire").arg("x")).code, Some(0)),
    ];
    let check = |nodes: &Nodes, take: fn(&Nodes), end: fn(&RedisServer)| {
        take(nodes);
        let args = ["-w", "2", "-E", "9", "x", "--", "echo", "out"];
        let run = Running::start(nodes.quorlock("run").args(args));
        nodes.wait_for_queue("x", 1);
        end(&nodes.0[0]);
        end(&nodes.0[1]);
        let run = run.end();
        assert_eq!((run.code, run.stdout.as_str()), (Some(69), ""), "{run:?}");
        let last = run.stderr.lines().last().expect("a reason");
        assert!(last.contains("for the lock x: ") && last.contains(" of 3 nodes"), "{run:?}");
    };
    std::thread::scope(|scope| {
        for take in takes {
            for end in [RedisServer::kill, RedisServer::pause] {
                let nodes = Nodes::start(3);
                scope.spawn(move || check(&nodes, take, end));
            }
        }
    });
}

#[test]
fn a_lock_that_becomes_free_is_taken() {
    for options in [&[][..], &["--wait", "1h"]] {
        let nodes = Nodes::start(3);
        nodes.take("x");
        let args = ["x", "--", "sh", "-c", "echo mine; read _; exit 4"];
        let mut run = Running::start(nodes.quorlock("run").args(options).args(args));
        nodes.wait_for_clients();
        assert!(run.is_running());
        nodes.delete("x");
        assert_eq!(run.line(), "mine");
        assert!(nodes.holding("x") >= 2);
        run.close_stdin();
        assert_eq!(run.end().code, Some(4));
        nodes.all_released("x");
    }
}

#[test]
fn a_prefix_makes_another_lock() {
    let nodes = Nodes::start(1);
    nodes.take("x");
    let script = "echo in; read _; exit 0";
    let args = ["-n", "--prefix", "job:", "x", "--", "sh", "-c", script];
    let mut run = Running::start(nodes.quorlock("run").args(args));
    assert_eq!(run.line(), "in");
    assert_eq!(nodes.holding("job:x"), 1);
    run.close_stdin();
    assert_eq!(run.end().code, Some(0));
    assert_eq!((nodes.holding("job:x"), nodes.holding("x")), (0, 1));
}

#[test]
fn a_name_that_is_in_use_for_something_else_gives_78() {
    let nodes = Nodes::start(1);
    assert_eq!(nodes.0[0].command(&["LPUSH", "x", "1"]), Reply::Int(1));
    let run = outcome(nodes.quorlock("run").args(["x", "--", "echo", "out"]));
    assert_eq!((run.code, run.stdout.as_str()), (Some(78), ""), "{run:?}");
}
