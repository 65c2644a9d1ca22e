//! Records as version 0.1.0 wrote them, byte by byte: what it holds stays held, and its tokens are good.

use quorlock::{Builder, Dialect, Locker, RedisOptions};
use quorlock_testkit::{RedisServer, Reply, test};

use super::queue::LONG;
use crate::earlier_build::{TOKEN, is_honoured};

const WAITER: &str = "ql:3725aed7d5dca250a579cd7cadf821f6fc10fc8e:d606881b53470274b317ea5e";

fn set(server: &RedisServer, words: &[&str]) {
    let stored = server.command(words);
    assert!(matches!(stored, Reply::Simple(_) | Reply::Int(1)), "{words:?}: {stored:?}");
}

/// The time of day by the server's clock, in seconds and microseconds.
fn time(server: &RedisServer) -> (u64, u64) {
    let Reply::Array(parts) = server.command(&["TIME"]) else { panic!("no time") };
    let part = |index: usize| match &parts[index] {
        Reply::Bulk(Some(digits)) => String::from_utf8_lossy(digits).parse().expect("digits"),
        other => panic!("{other:?}"),
    };
    (part(0), part(1))
}

/// The settings of then. The set of nodes is one that is called `a`.
fn builder(server: &RedisServer, dialect: Dialect) -> Builder {
    let options = RedisOptions::default().dialect(dialect);
    let url = format!("{}?name=a", server.url());
    Locker::builder().nodes([url]).redis(options).ttl(LONG).node_limit(LONG / 5).connect_limit(LONG)
}

/// The marker of a server that votes, for the set of `a`, a `max_ttl` of 30 s and 300 ms ahead.
fn mark(server: &RedisServer) {
    let Reply::Bulk(Some(info)) = server.command(&["INFO", "server"]) else { panic!("no INFO") };
    let info = String::from_utf8_lossy(&info).into_owned();
    let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:")).expect("a run id");
    let marker = format!(
        "formed {run_id} 13d43f6a3009199f 0000000000000000 710cb6df421cd6fc - 30000000 300000 a"
    );
    set(server, &["SET", ":quorlock:set", &marker]);
}

#[test]
async fn a_lock_of_the_strict_dialect_is_honoured() {
    // As it is taken, extended or waited for, and after the holder was given it by a queue.
    for (state, ended_by_ttl) in [(' ', true), (' ', false), ('+', false)] {
        let server = RedisServer::start();
        mark(&server);
        let (seconds, micros) = time(&server);
        let fence = seconds * 1_000_000 + micros;
        let (from, ttl_ms) = if ended_by_ttl { (seconds, 25_000) } else { (seconds + 25, 0) };
        let record = format!("quorlock {fence:016}{state}{TOKEN} {from} {micros} {ttl_ms}");
        set(&server, &["SET", "held", &record]);
        let locker = builder(&server, Dialect::Strict).connect().await.expect("it votes");
        is_honoured(&locker, fence).await;
    }
}

#[test]
async fn a_fence_of_a_lock_that_was_released_is_not_given_out_again() {
    let server = RedisServer::start();
    mark(&server);
    let (seconds, micros) = time(&server);
    // Ahead of the clock, as one after another in a process has them.
    let fence = (seconds + 3_600) * 1_000_000 + micros;
    let record = format!("quorlock {fence:016}-{TOKEN} {seconds} {micros} 25000");
    set(&server, &["SET", "held", &record]);
    let locker = builder(&server, Dialect::Strict).connect().await.expect("it votes");
    let next = locker.try_lock("held").await.expect("it is free");
    assert!(next.fence() > fence, "{} after {fence}", next.fence());
}

/// A ticket of a client that is gone, in front of everybody else, is passed over.
#[test]
async fn a_ticket_whose_client_is_gone_keeps_nobody_waiting() {
    let server = RedisServer::start();
    mark(&server);
    let (seconds, micros) = time(&server);
    let fence = seconds * 1_000_000 + micros;
    let record = format!("quorlock {fence:016}+{TOKEN} {} {micros} 0", seconds + 25);
    set(&server, &["SET", "held", &record]);
    let place = fence.to_string();
    set(&server, &["ZADD", "held:quorlock:queue", &place, WAITER]);
    let secret = "0000000100000000bbdf5d1f61568e7bd6565ca0410ca8c5";
    let channel = ":quorlock:inbox:d7932fa5788d28aa";
    let ticket = format!("{channel} {secret} 10000 7906431674934 {fence} 1 {fence}");
    set(&server, &["HSET", "held:quorlock:waiters", WAITER, &ticket]);
    let locker = builder(&server, Dialect::Strict).connect().await.expect("it votes");
    is_honoured(&locker, fence).await;
}

#[test]
async fn a_lock_of_the_redlock_dialect_is_honoured() {
    let server = RedisServer::start();
    let (seconds, micros) = time(&server);
    let fence = seconds * 1_000_000 + micros;
    set(&server, &["SET", "held", TOKEN, "NX", "PX", "25000"]);
    set(&server, &["SET", "held:quorlock:fence", &fence.to_string(), "PX", "86400000"]);
    let locker = builder(&server, Dialect::Redlock).connect().await.expect("it is up");
    is_honoured(&locker, fence).await;
}
