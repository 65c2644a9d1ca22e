//! Servers that are broken or mean harm, and users who do: the command ends, stays small, and writes
//! nothing to a terminal that would do anything there.

use std::process::Command;

use quorlock_testkit::{Conversation, HostileServer, Reply, eventually, test};
use rustix::process::Signal;

use crate::nodes::{Nodes, quorlock};
use crate::process::{Outcome, Running, outcome};

/// So much memory, in KiB, that the program itself starts, and what a server sends does not fit in.
const MEMORY_KIB: u32 = 200_000;

/// The program under test with these nodes, in the dialect that asks least of them, with limits that no
/// machine is too slow for.
fn with(url: &str, args: &[&str]) -> Command {
    let mut command = quorlock();
    command.env("QUORLOCK_NODES", url).env("QUORLOCK_DIALECT", "redlock").args(args);
    command.env("QUORLOCK_NODE_LIMIT", "2s").env("QUORLOCK_CONNECT_LIMIT", "8s");
    command
}

/// The same with little memory.
fn small(command: &Command) -> Command {
    let mut sh = Command::new("sh");
    sh.args(["-c", &format!("ulimit -v {MEMORY_KIB}; exec \"$0\" \"$@\"")]);
    sh.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => sh.env(name, value),
            None => sh.env_remove(name),
        };
    }
    sh
}

/// Strings in an array: each is whole, the one around them would take a gigabyte.
fn strings() -> Vec<u8> {
    [&b"$250000\r\n"[..], &[b'x'; 250_000], b"\r\n"].concat()
}

/// Messages as fast as they can be read, and faster.
fn flood() -> Vec<u8> {
    [&b">4000\r\n"[..], &b"_\r\n".repeat(4_000)].concat().repeat(100)
}

#[test]
fn what_a_server_sends_without_end_takes_no_memory() {
    let in_greeting = |mut client: Conversation| {
        if client.command().is_some() && client.say("*4096\r\n").is_ok() {
            client.say_for_ever(strings());
        }
    };
    let after_it = |mut client: Conversation| {
        if client.greet().is_some() && client.say("*4096\r\n").is_ok() {
            client.say_for_ever(strings());
        }
    };
    for server in [
        HostileServer::start(in_greeting),
        HostileServer::start_with_tls(in_greeting),
        HostileServer::start(after_it),
        HostileServer::start_with_tls(after_it),
    ] {
        for args in [&["status", "x"][..], &["list"], &["run", "--wait", "0", "x", "--", "true"]] {
            let run = outcome(&mut small(&with(&server.url(), args)));
            assert_eq!(run.code, Some(69), "{args:?}: {run:?}");
            let text = format!("{}{}", run.stdout, run.stderr);
            assert!(text.contains("too long"), "{args:?}: {run:?}");
        }
    }
}

/// Signals it until it has ended, which it must do soon.
fn ends_by(run: Running, signal: Signal) -> Outcome {
    run.signal(signal);
    run.end()
}

#[test]
fn a_greeting_without_end_does_not_outlive_a_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let server = HostileServer::start(|mut client| client.say_for_ever(flood()));
        let mut command = with(&server.url(), &["run", "x", "--", "true"]);
        // Longer than a test may take: it is not this that ends it.
        let run = Running::start(command.env("QUORLOCK_CONNECT_LIMIT", "100s"));
        eventually("it has connected", || server.connections() > 0);
        let run = ends_by(run, signal);
        assert_eq!(run.signal, Some(signal.as_raw()), "{run:?}");
    }
}

/// The holder's node sends without end from the moment on at which the lock was granted.
#[test]
fn a_stream_without_end_does_not_outlive_a_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let server = HostileServer::start(|mut client| {
            // The script that takes the lock, and the note about it.
            while let Some(command) = client.greet() {
                let takes = command.len() == 7;
                if client.say(":1\r\n").is_err() || takes {
                    break;
                }
            }
            client.say_for_ever(flood());
        });
        let mut command =
            with(&server.url(), &["run", "x", "--", "sh", "-c", "echo $$; exec sleep 100"]);
        let run = Running::start(command.env("QUORLOCK_NODE_LIMIT", "200ms"));
        run.pids();
        let run = ends_by(run, signal);
        assert_eq!(run.signal, Some(signal.as_raw()), "{run:?}");
        assert!(run.stderr.contains("released"), "{run:?}");
    }
}

#[test]
fn a_list_without_end_ends() {
    let server = HostileServer::start(|mut client| {
        while client.greet().is_some() {
            if client.say("*2\r\n$2\r\n17\r\n$4\r\nname\r\n").is_err() {
                return;
            }
        }
    });
    let run = outcome(&mut with(&server.url(), &["list"]));
    assert_eq!(run.code, Some(69), "{run:?}");
    assert!(run.stderr.contains("does not end"), "{run:?}");
}

/// What would make a terminal do something, hide text or turn it around.
const EVIL: &str = "\x1b]0;owned\x07\x1b[2J\x08\r\x7f\u{9b}31m\u{202e}\u{2066}\u{feff}\u{e0041}";

fn is_harmless(run: &Outcome) {
    for text in [&run.stdout, &run.stderr] {
        let bad = |c: char| {
            c != '\n' && c.is_control() || "\u{202e}\u{2066}\u{feff}\u{e0041}".contains(c)
        };
        assert!(!text.contains(bad), "{run:?}");
        assert!(text.len() < 20_000, "{} bytes", text.len());
    }
}

#[test]
fn what_a_server_says_does_nothing_to_a_terminal() {
    for greets in [true, false] {
        let server = HostileServer::start(move |mut client| {
            let long = "x".repeat(100_000);
            while (if greets { client.greet() } else { client.command() }).is_some() {
                if client.say(format!("-ERR {EVIL}{long}\r\n")).is_err() {
                    return;
                }
            }
        });
        for args in [
            &["status", "x"][..],
            &["status", "--json", "x"],
            &["list"],
            &["list", "--json"],
            &["doctor"],
            &["doctor", "--json"],
            &["run", "--wait", "1s", "x", "--", "true"],
            &["acquire", "--wait", "0", "x"],
        ] {
            let run = outcome(with(&server.url(), args).env("QUORLOCK_LOG", "debug"));
            assert_ne!(run.code, Some(0), "{args:?}: {run:?}");
            assert!(run.stdout.len() + run.stderr.len() > 10, "{args:?}: {run:?}");
            is_harmless(&run);
        }
    }
}

/// A client that may write to a node gives a lock such a name and note.
#[test]
fn what_another_user_says_does_nothing_to_a_terminal() {
    let nodes = Nodes::start(1);
    let server = &nodes.0[0];
    let mut held = nodes.quorlock("run");
    let held = Running::start(held.args([EVIL, "--", "sh", "-c", "echo in; exec sleep 100"]));
    assert_eq!(held.line(), "in");
    let key = format!("{EVIL}:quorlock:holder");
    // Whose note it is stands before it.
    eventually("it has a note", || server.command(&["EXISTS", &key]) == Reply::Int(1));
    let Reply::Bulk(Some(note)) = server.command(&["GET", &key]) else { panic!("no note") };
    let note = String::from_utf8_lossy(&note).into_owned();
    let (holder, _) = note.split_once(' ').expect("a holder");
    server.command(&["SET", &key, &format!("{holder} 1790000000000 {EVIL}")]);
    for args in [
        &["status", EVIL][..],
        &["status", "--json", EVIL],
        &["list"],
        &["list", "--json"],
        &["run", "--wait", "0", EVIL, "--", "true"],
        &["acquire", "--wait", "0", EVIL],
    ] {
        let mut command = nodes.quorlock(args[0]);
        let run = outcome(command.args(&args[1..]));
        assert!(run.stdout.len() + run.stderr.len() > 10, "{args:?}: {run:?}");
        is_harmless(&run);
    }
    held.signal(Signal::TERM);
    assert!(held.end().signal.is_some());
}
