//! Connections to real servers: the ways to them, what they carry, and how they come back.

mod connect;
mod dial;
mod driver;
mod earlier_records;
mod extending;
mod forged_grants;
mod hostile;
mod inbox;
mod large_messages;
mod queue;
mod records;
mod redlock_py;
mod redlock_records;
mod rights;
mod secrets;
mod sending;
mod shortcut;
mod turnpike;
mod verbs;

use std::time::Duration;

use quorlock::{Builder, Dialect, Locker, RedisOptions};
use quorlock_testkit::{RedisServer, Reply, patient_options};

const DIALECTS: [Dialect; 2] = [Dialect::Strict, Dialect::Redlock];

/// Time limits that no machine is too slow for.
fn patient() -> Builder {
    quorlock_testkit::patient().redis(options())
}

/// In the `redlock` dialect, and however slow the machine is in the other.
fn options() -> RedisOptions {
    patient_options().dialect(Dialect::Redlock)
}

/// A server that is silent for 500 ms is given up, but no lock runs out while a test waits.
fn hasty() -> Builder {
    Locker::builder()
        .redis(RedisOptions::default().dialect(Dialect::Redlock))
        .ttl(Duration::from_secs(30))
        .node_limit(Duration::from_millis(50))
        .connect_limit(Duration::from_secs(2))
}

/// Takes, extends, looks at and gives back a lock on the only node, and sees it done there.
async fn works(locker: &Locker, server: &RedisServer) {
    let guard = locker.try_lock("works").await.expect("free");
    assert!(is_held(server, "works"));
    guard.extend().await.expect("extended");
    let status = locker.inspect("works").await.expect("a status");
    assert!(status.holder().is_some(), "{status:?}");
    guard.release().await.expect("released");
    assert!(!is_held(server, "works"));
}

/// What stands in the way of the node with that index, if anything does.
async fn trouble(locker: &Locker, node: usize) -> Option<String> {
    let status = locker.inspect("looked").await.expect("a status");
    status.nodes[node].record.as_ref().err().map(ToString::to_string)
}

/// Whether somebody has the lock, be the record of the one dialect or of the other.
fn is_held(server: &RedisServer, name: &str) -> bool {
    match server.command(&["GET", name]) {
        // In the strict dialect the fence of the last holder stays.
        Reply::Bulk(Some(record)) => {
            !(record.starts_with(b"quorlock ") && matches!(record.get(25), Some(b'-' | b'=')))
        }
        Reply::Bulk(None) => false,
        other => panic!("{other:?}"),
    }
}

fn exists(server: &RedisServer, key: &str) -> bool {
    server.command(&["EXISTS", key]) == Reply::Int(1)
}

fn text(server: &RedisServer, command: &[&str]) -> String {
    match server.command(command) {
        Reply::Bulk(Some(text)) => String::from_utf8(text).expect("text"),
        other => panic!("{command:?}: {other:?}"),
    }
}

/// The numbers that the server has given to its connections from lockers.
fn connections(server: &RedisServer) -> Vec<i64> {
    text(server, &["CLIENT", "LIST"])
        .lines()
        .filter(|line| line.contains(" name=quorlock "))
        .map(|line| {
            let id = line.strip_prefix("id=").and_then(|line| line.split(' ').next());
            id.expect("a number").parse().expect("a number")
        })
        .collect()
}

/// A number from `INFO`, such as `calls` in the line `cmdstat_set:calls=3,usec=7`. A command that
/// was never called has no line.
fn info(server: &RedisServer, section: &str, line: &str, field: &str) -> u64 {
    let info = text(server, &["INFO", section]);
    let Some(values) = info.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(':')) else {
        return 0;
    };
    let value = match field {
        "" => Some(values),
        field => values.split(',').find_map(|value| value.strip_prefix(field)?.strip_prefix('=')),
    };
    value.expect("the field").parse().expect("a number")
}

fn calls(server: &RedisServer, command: &str) -> u64 {
    info(server, "commandstats", &format!("cmdstat_{command}"), "calls")
}
