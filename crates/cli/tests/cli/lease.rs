//! The lock while the command runs: held, extended, lost.

use std::io::{self, PipeReader, PipeWriter, Write};
use std::time::{Duration, Instant};

use quorlock_testkit::{DEADLINE, Proxy, RedisServer, eventually, test};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Signal;

use crate::nodes::{Nodes, Record, quorlock};
use crate::process::{Running, is_alive};

/// Prints its own process id and that of another process, and goes on until it is ended.
const TWO_PROCESSES: &str = "sleep 60 & echo $$ $!; wait";

/// The same, but nothing less than SIGKILL ends them.
const TWO_STUBBORN_PROCESSES: &str = "trap '' TERM; sleep 60 & echo $$ $!; wait";

/// Of these the first heeds SIGTERM, and the second does not.
const ONE_STUBBORN_PROCESS: &str =
    "sh -c 'trap \"\" TERM; echo $PPID $$; while :; do sleep 1; done' & wait";

#[test]
fn the_lock_is_held_on_every_node_while_the_command_runs() {
    for count in [1, 3] {
        let nodes = Nodes::start(count);
        let args = ["x", "--", "sh", "-c", "echo in; read _; exit 3"];
        let mut run = Running::start(nodes.quorlock("run").args(args));
        assert_eq!(run.line(), "in");
        // A majority is enough to begin with; the others follow.
        eventually("every node has the lock", || nodes.holding("x") == count);
        run.close_stdin();
        assert_eq!(run.end().code, Some(3));
        nodes.all_released("x");
    }
}

#[test]
fn a_command_that_takes_longer_than_the_ttl_keeps_the_lock() {
    const TTL: Duration = Duration::from_millis(1_500);
    let nodes = Nodes::start(3);
    let args = ["--ttl", "1500ms", "x", "--", "sh", "-c", "echo in; read _; exit 3"];
    let mut run = Running::start(nodes.quorlock("run").args(args));
    assert_eq!(run.line(), "in");
    eventually("every node has the lock", || nodes.holding("x") == 3);
    let token = |server: &RedisServer| Record::on(server, "x").map(|record| record.token);
    let first = token(&nodes.0[0]);
    assert!(first.is_some());
    let since = Instant::now();
    eventually("the lock outlives its TTL three times", || {
        assert!(nodes.0.iter().all(|server| token(server) == first), "it must never be gone");
        since.elapsed() > 3 * TTL
    });
    run.close_stdin();
    let run = run.end();
    assert_eq!(run.code, Some(3), "{run:?}");
    nodes.all_released("x");
}

#[test]
fn a_node_that_dies_in_the_middle_changes_nothing() {
    let nodes = Nodes::start(3);
    let args = ["--ttl", "1500ms", "x", "--", "sh", "-c", "echo in; read _; exit 3"];
    let mut run = Running::start(nodes.quorlock("run").args(args));
    assert_eq!(run.line(), "in");
    eventually("every node has the lock", || nodes.holding("x") == 3);
    nodes.0[2].kill();
    let lives_on = |server: &RedisServer| {
        let expiry = || Record::on(server, "x").expect("it is held").expiry_us;
        let before = expiry();
        eventually("it is extended", || expiry() > before);
    };
    lives_on(&nodes.0[0]);
    lives_on(&nodes.0[1]);
    run.close_stdin();
    let run = run.end();
    assert_eq!(run.code, Some(3), "{run:?}");
    assert!(run.stderr.starts_with("quorlock: warning: node "), "{run:?}");
}

#[test]
fn a_lost_lock_ends_the_command_and_everything_it_started() {
    for script in [TWO_PROCESSES, TWO_STUBBORN_PROCESSES, ONE_STUBBORN_PROCESS] {
        let nodes = Nodes::start(3);
        let args = ["--ttl", "2s", "x", "--", "sh", "-c", script];
        let run = Running::start(nodes.quorlock("run").args(args));
        let pids = run.pids();
        assert!(pids.len() == 2 && pids.iter().all(|pid| is_alive(*pid)), "{pids:?}");
        nodes.delete("x");
        let run = run.end();
        assert_eq!(run.code, Some(76), "{script}: {run:?}");
        assert!(run.stderr.starts_with("quorlock: the lock x is lost"), "{run:?}");
        assert!(run.stderr.ends_with("the command was ended\n"), "{run:?}");
        assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
        assert!(!pids.iter().any(|pid| is_alive(*pid)), "{script}: {pids:?}");
    }
}

#[test]
fn a_command_may_clean_up_when_the_lock_is_lost() {
    let nodes = Nodes::start(1);
    let script = "trap 'echo cleaned; exit 0' TERM; sleep 60 & echo in; wait";
    let args = ["--ttl", "2s", "x", "--", "sh", "-c", script];
    let run = Running::start(nodes.quorlock("run").args(args));
    assert_eq!(run.line(), "in");
    nodes.delete("x");
    let run = run.end();
    assert_eq!((run.code, run.stdout.as_str()), (Some(76), "cleaned\n"), "{run:?}");
}

#[test]
fn one_who_was_stopped_for_too_long_finds_the_lock_lost() {
    let nodes = Nodes::start(1);
    let args = ["--ttl", "1s", "x", "--", "sh", "-c", TWO_PROCESSES];
    let run = Running::start(nodes.quorlock("run").args(args));
    let pids = run.pids();
    run.signal(Signal::STOP);
    eventually("the lock expires", || nodes.holding("x") == 0);
    nodes.take("x");
    run.signal(Signal::CONT);
    let run = run.end();
    assert_eq!(run.code, Some(76), "{run:?}");
    assert!(!pids.iter().any(|pid| is_alive(*pid)), "{pids:?}");
    assert_eq!(nodes.holding("x"), 1, "what is somebody else's stays");
}

#[test]
fn a_loss_that_is_found_at_the_release_is_no_success() {
    let nodes = Nodes::start(3);
    // A TTL so long that no extension comes before the release.
    let args = ["--ttl", "30s", "x", "--", "sh", "-c", "echo in; read _; exit 0"];
    let mut run = Running::start(nodes.quorlock("run").args(args));
    assert_eq!(run.line(), "in");
    nodes.delete("x");
    run.close_stdin();
    let run = run.end();
    assert_eq!(run.code, Some(76), "{run:?}");
    assert!(run.stderr.contains("ended with code 0"), "{run:?}");
}

#[test]
fn a_command_is_gone_before_a_lock_that_cannot_be_extended() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(server.addr());
    for script in [TWO_PROCESSES, TWO_STUBBORN_PROCESSES, ONE_STUBBORN_PROCESS] {
        let args = ["--ttl", "3s", "x", "--", "sh", "-c", script];
        let run = Running::start(quorlock().args(["run", "--node", &proxy.url()]).args(args));
        let pids = run.pids();
        proxy.hang(true);
        let deadline = Instant::now() + DEADLINE;
        loop {
            // Looked at in this order, so that a command which outlives the key is seen to do so.
            let held = Record::on(&server, "x").is_some();
            let alive = pids.iter().any(|pid| is_alive(*pid));
            assert!(held || !alive, "{script}: the command runs without the lock");
            if !alive {
                break;
            }
            assert!(Instant::now() < deadline, "{script}: the command was not ended");
        }
        let run = run.end();
        assert_eq!(run.code, Some(76), "{script}: {run:?}");
        assert!(run.stderr.contains("warning: the lock x is not extended yet"), "{run:?}");
        assert!(run.stderr.contains("could not be extended"), "{run:?}");
        proxy.hang(false);
        server.command(&["DEL", "x"]);
    }
}

#[test]
fn a_command_is_told_as_long_before_the_end_as_was_asked_for() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(server.addr());
    let script = "trap 'echo told; read _; echo cleaned; exit 0' TERM; echo in; while :; do sleep 0.01; done";
    let args = ["--ttl", "6s", "--end-before", "2750ms", "x", "--", "sh", "-c", script];
    let mut run = Running::start(quorlock().args(["run", "--node", &proxy.url()]).args(args));
    assert_eq!(run.line(), "in");
    proxy.hang(true);
    assert_eq!(run.line(), "told");
    let record = Record::on(&server, "x").expect("it is still held");
    // Without it, it would be 1.5 s: a sixth of the TTL, and half a second that nobody counts on.
    let left = record.left_ms(&server);
    assert!((1_750..=3_500).contains(&left), "{left} ms");
    run.write("\n");
    assert_eq!(run.line(), "cleaned");
    let run = run.end();
    assert_eq!(run.code, Some(76), "{run:?}");
}

#[test]
fn a_release_that_no_node_hears_is_warned_about_and_keeps_the_exit_code() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(server.addr());
    let args = ["--ttl", "30s", "x", "--", "sh", "-c", "echo in; read _; exit 3"];
    let mut run = Running::start(quorlock().args(["run", "--node", &proxy.url()]).args(args));
    assert_eq!(run.line(), "in");
    proxy.hang(true);
    run.close_stdin();
    let run = run.end();
    assert_eq!(run.code, Some(3), "{run:?}");
    assert!(run.stderr.contains("warning: 0 of 1 nodes released the lock x"), "{run:?}");
    assert!(run.stderr.contains("30.0s"), "{run:?}");
}

#[test]
fn a_stderr_that_nobody_reads_does_not_keep_the_lock_from_being_extended() {
    const TTL: Duration = Duration::from_millis(1_500);
    let nodes = Nodes::start(3);
    let (_reader, writer) = full_pipe().unwrap();
    let args = ["--ttl", "1500ms", "x", "--", "sh", "-c", "echo in; read _; exit 3"];
    let mut run = Running::start_with_stderr(nodes.quorlock("run").args(args), writer);
    assert_eq!(run.line(), "in");
    eventually("every node has the lock", || nodes.holding("x") == 3);
    // There is something to be said from now on.
    nodes.0[2].kill();
    let since = Instant::now();
    eventually("the lock outlives its TTL three times", || {
        let held = |server: &RedisServer| Record::on(server, "x").is_some();
        assert!(nodes.0[..2].iter().all(held), "it must never be gone");
        since.elapsed() > 3 * TTL
    });
    run.close_stdin();
    assert_eq!(run.end().code, Some(3));
}

/// A process that writes to it stands still.
fn full_pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let (reader, mut writer) = io::pipe()?;
    let flags = fcntl_getfl(&writer)?;
    fcntl_setfl(&writer, flags | OFlags::NONBLOCK)?;
    while writer.write(b"x").is_ok() {}
    fcntl_setfl(&writer, flags)?;
    Ok((reader, writer))
}
