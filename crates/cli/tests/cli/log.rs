//! What is said on stderr while a lock is waited for and held: what matters, once, and that it is over.

use std::io::{self, BufRead, BufReader, PipeReader};
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use quorlock_testkit::{DEADLINE, Proxy, RedisServer, eventually, test};
use serde_json::Value;

use crate::nodes::{Nodes, quorlock};
use crate::process::{Running, outcome};

/// The lines of a stderr, as they come.
struct Log {
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Log {
    fn new(stderr: PipeReader) -> Self {
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { lines, seen: Vec::new() }
    }

    /// Waits for a line with this text.
    fn sees(&mut self, text: &str) -> String {
        loop {
            let Ok(line) = self.lines.recv_timeout(DEADLINE) else {
                panic!("no line with {text:?}: {:#?}", self.seen)
            };
            self.seen.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }

    /// All lines, when the program has ended.
    fn end(mut self) -> Vec<String> {
        self.seen.extend(self.lines.iter());
        self.seen
    }
}

/// Starts it, and reads its stderr line by line.
fn start(command: &mut Command) -> (Running, Log) {
    let (stderr, writer) = io::pipe().expect("a pipe");
    let run = Running::start_with_stderr(command, writer);
    // The writing end of the test itself.
    command.stderr(io::stderr());
    (run, Log::new(stderr))
}

fn count(lines: &[String], text: &str) -> usize {
    lines.iter().filter(|line| line.contains(text)).count()
}

#[test]
fn a_lock_in_doubt_is_told_of_once_and_that_it_is_extended_again() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(server.addr());
    let mut command = quorlock();
    let args = ["--ttl", "6s", "x", "--", "sh", "-c", "echo in; read _; exit 0"];
    command.env("QUORLOCK_LOG", "debug").args(["run", "--node", &proxy.url()]).args(args);
    let (mut run, mut log) = start(&mut command);
    assert_eq!(run.line(), "in");
    proxy.hang(true);
    let warned = log.sees("the lock x is not extended yet");
    assert!(warned.starts_with("quorlock: warning: the lock x "), "{warned}");
    proxy.hang(false);
    let over = log.sees("the lock x is extended again");
    assert_eq!(over, "quorlock: the lock x is extended again", "as loud as the warning");
    // The same once more: somebody who looks for every detail sees it.
    proxy.hang(true);
    log.sees("debug: the lock x is not extended yet");
    proxy.hang(false);
    run.close_stdin();
    assert_eq!(run.end().code, Some(0));
    let lines = log.end();
    assert_eq!(count(&lines, "warning: the lock x is not extended yet"), 1, "{lines:#?}");
    assert_eq!(count(&lines, "the lock x is extended again"), 1, "{lines:#?}");
}

#[test]
fn a_node_that_is_away_is_told_of_once_and_that_it_is_back() {
    let nodes = Nodes::start(3);
    let mut command = nodes.quorlock("run");
    let (mut run, mut log) =
        start(command.args(["x", "--", "sh", "-c", "echo in; read _; exit 0"]));
    assert_eq!(run.line(), "in");
    eventually("every node has the lock", || nodes.holding("x") == 3);
    nodes.0[1].kill();
    let node = format!("node redis://{}: ", nodes.0[1].addr());
    let away = log.sees(&node);
    assert!(away.starts_with(&format!("quorlock: warning: {node}cannot be used: ")), "{away}");
    nodes.0[1].restart();
    assert_eq!(log.sees(&node), format!("quorlock: {node}connected again"));
    run.close_stdin();
    assert_eq!(run.end().code, Some(0));
    let lines = log.end();
    assert_eq!(count(&lines, "cannot be used"), 1, "{lines:#?}");
}

#[test]
fn a_connection_that_breaks_again_and_again_is_told_of_once_in_a_while() {
    let nodes = Nodes::start(3);
    let proxy = Proxy::in_front_of(nodes.0[2].addr());
    let urls = [nodes.0[0].url(), nodes.0[1].url(), proxy.url()].join(",");
    let mut command = quorlock();
    command.env("QUORLOCK_NODES", urls).env("QUORLOCK_LOG", "debug");
    let script = "echo in; read _; exit 0";
    let (mut run, mut log) = start(command.args(["run", "x", "--", "sh", "-c", script]));
    assert_eq!(run.line(), "in");
    eventually("every node has the lock", || nodes.holding("x") == 3);
    proxy.cut();
    log.sees("cannot be used");
    log.sees("connected again");
    proxy.cut();
    let again = log.sees("cannot be used");
    assert!(again.starts_with("quorlock: debug: node "), "{again}");
    run.close_stdin();
    assert_eq!(run.end().code, Some(0));
    let lines = log.end();
    assert_eq!(count(&lines, "connected again"), 1, "{lines:#?}");
}

#[test]
fn nodes_that_are_away_from_the_start_are_named_once_each() {
    let nodes = Nodes::start(3);
    nodes.0.iter().for_each(RedisServer::kill);
    for (verb, args) in
        [("run", &["-n", "--votes-within", "0", "x", "--", "true"][..]), ("acquire", &["-n", "x"])]
    {
        let run = outcome(nodes.quorlock(verb).args(args));
        assert_eq!(run.code, Some(69), "{run:?}");
        for server in &nodes.0 {
            let node = format!("redis://{}", server.addr());
            assert_eq!(run.stderr.matches(&node).count(), 1, "{run:?}");
        }
    }
}

#[test]
fn off_a_terminal_it_is_said_whom_a_lock_is_waited_for_and_that_it_was_got() {
    let nodes = Nodes::start(3);
    let holds = ["x", "--", "sh", "-c", "echo in; read _; exit 0"];
    let mut holder = Running::start(nodes.quorlock("run").args(holds));
    assert_eq!(holder.line(), "in");
    for verb in ["run", "acquire"] {
        let mut command = nodes.quorlock(verb);
        command.env("QUORLOCK_LOG", "info").arg("x");
        if verb == "run" {
            command.args(["--", "true"]);
        }
        let (run, mut log) = start(&mut command);
        let waits = log.sees("waiting for the lock x");
        assert!(waits.starts_with("quorlock: info: waiting for the lock x, held by "), "{waits}");
        // The name of the command that the holder runs.
        assert!(waits.contains(", sh, lease "), "{waits}");
        holder.close_stdin();
        let got = log.sees("got the lock x after ");
        assert!(got.starts_with("quorlock: info: ") && got.contains(", fence "), "{got}");
        let run = run.end();
        assert_eq!(run.code, Some(0), "{run:?}");
        if verb == "run" {
            assert_eq!(count(&log.end(), "released the lock x"), 1);
            let next = Running::start(nodes.quorlock("run").args(holds));
            assert_eq!(next.line(), "in");
            holder = next;
        }
    }
    // Nobody is told who has not asked for it.
    let quiet = outcome(nodes.quorlock("run").args(["y", "--", "true"]));
    assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(0), ""), "{quiet:?}");
}

fn objects(stderr: &str) -> Vec<Value> {
    let object = |line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"));
    let objects: Vec<Value> = stderr.lines().map(object).collect();
    for object in &objects {
        let fields: Vec<_> = object.as_object().expect("an object").keys().collect();
        assert_eq!(fields, ["level", "lock", "message", "node", "time"], "{object}");
        let time = object["time"].as_str().expect("a time");
        assert!(time.len() == 24 && time.ends_with('Z'), "{object}");
    }
    objects
}

#[test]
fn programs_get_one_object_in_each_line() {
    let nodes = Nodes::start(3);
    nodes.0[2].kill();
    let mut command = nodes.quorlock("run");
    command.env("QUORLOCK_LOG", "info").args(["--log", "json", "x", "--", "true"]);
    let run = outcome(&mut command);
    assert_eq!(run.code, Some(0), "{run:?}");
    let said = objects(&run.stderr);
    let find = |text: &str| {
        let is_it = |object: &&Value| object["message"].as_str().unwrap().contains(text);
        said.iter().find(is_it).unwrap_or_else(|| panic!("no {text}: {said:#?}"))
    };
    let away = find("cannot be used");
    assert_eq!((&away["level"], &away["lock"]), (&"warn".into(), &"x".into()), "{away}");
    assert_eq!(away["node"], format!("redis://{}", nodes.0[2].addr()));
    assert!(away["message"].as_str().unwrap().starts_with("cannot be used: "), "{away}");
    let got = find("got the lock x");
    assert_eq!((&got["level"], &got["node"]), (&"info".into(), &Value::Null), "{got}");

    nodes.0[1].kill();
    for (args, code, says) in [
        (
            &["run", "--log=json", "-n", "--votes-within", "0", "x", "--", "true"][..],
            69,
            "1 of 3 nodes",
        ),
        (&["run", "--log", "json", "--ttl", "1d", "x", "--", "true"], 78, "no duration"),
        (&["status", "x", "y", "--log", "json"], 78, "unexpected argument"),
    ] {
        let run = outcome(nodes.quorlock(args[0]).args(&args[1..]));
        assert_eq!((run.code, run.stdout.as_str()), (Some(code), ""), "{run:?}");
        let said = objects(&run.stderr);
        assert_eq!((said.len(), &said[0]["level"]), (1, &"error".into()), "{run:?}");
        assert!(said[0]["message"].as_str().unwrap().contains(says), "{run:?}");
    }

    // What the command itself writes is its own.
    let home = tempfile::tempdir().unwrap();
    let mut at_home = quorlock();
    at_home.env("XDG_STATE_HOME", home.path());
    let run = outcome(at_home.args(["run", "--log", "json", "x", "--", "/nonexistent"]));
    assert_eq!(run.code, Some(127), "{run:?}");
    let said = objects(&run.stderr);
    assert_eq!((&said[0]["lock"], &said[0]["level"]), (&"x".into(), &"error".into()), "{run:?}");
}
