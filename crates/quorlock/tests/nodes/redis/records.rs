//! What lies on a Redis server in each dialect, and what each refuses.

use std::time::{Duration, SystemTime};

use quorlock::node::FailureKind;
use quorlock::{Builder, Dialect, Error, Guard, Locker, RedisOptions};
use quorlock_testkit::{DEADLINE, RedisServer, Reply, patient_options, test};

const TTL: Duration = Duration::from_secs(20);
/// How long a server keeps a fence that nobody uses.
const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// Time limits that no machine is too slow for.
fn patient(server: &RedisServer) -> Builder {
    quorlock_testkit::patient().nodes([server.url()]).ttl(TTL).redis(options())
}

fn options() -> RedisOptions {
    patient_options().trust_new_nodes(true)
}

async fn strict(server: &RedisServer) -> Locker {
    patient(server).connect().await.expect("a locker")
}

async fn redlock(server: &RedisServer) -> Locker {
    patient(server).redis(options().dialect(Dialect::Redlock)).connect().await.expect("a locker")
}

fn text(server: &RedisServer, key: &str) -> String {
    match server.command(&["GET", key]) {
        Reply::Bulk(Some(text)) => String::from_utf8(text).expect("text"),
        other => panic!("{key}: {other:?}"),
    }
}

fn keys(server: &RedisServer) -> Vec<String> {
    let Reply::Array(keys) = server.command(&["KEYS", "*"]) else { panic!("no keys") };
    let mut keys: Vec<_> = keys
        .into_iter()
        .map(|key| match key {
            Reply::Bulk(Some(key)) => String::from_utf8(key).expect("text"),
            other => panic!("{other:?}"),
        })
        .collect();
    keys.sort();
    keys
}

/// Fails unless the key goes by itself between these many ms from now.
fn assert_goes(server: &RedisServer, key: &str, between: [i64; 2]) {
    let Reply::Int(left) = server.command(&["PTTL", key]) else { panic!("no end") };
    assert!(left > between[0] && left <= between[1], "{key}: {left} ms, not {between:?}");
}

async fn taken_and_released(locker: &Locker, name: &str) -> u64 {
    let guard = locker.try_lock(name).await.expect("free");
    let fence = guard.fence();
    guard.release().await.expect("released");
    fence
}

#[test]
async fn a_strict_record_has_its_fence_its_end_and_its_token_in_one_key() {
    let server = RedisServer::start();
    let locker = strict(&server).await;
    let guard = locker.try_lock("orders/42").await.expect("free");
    let record = text(&server, "orders/42");
    let [word, fence, token, end @ ..]: [&str; 6] =
        record.split(' ').collect::<Vec<_>>().try_into().expect("six parts");
    assert_eq!(fence.len(), 16);
    let fence: u64 = fence.parse().expect("digits");
    let [seconds, micros, ttl_ms]: [u64; 3] = end.map(|digits| digits.parse().expect("digits"));
    let end = seconds * 1_000_000 + micros + ttl_ms * 1_000;
    assert_eq!(word, "quorlock");
    // The fences up to the last one are this process's.
    assert!(fence >= guard.fence() && fence < guard.fence() + 1_000, "{fence}");
    assert!(token.starts_with("ql:"));
    let Reply::Array(now) = server.command(&["TIME"]) else { panic!("no time") };
    let [Reply::Bulk(Some(seconds)), _] = &now[..] else { panic!("{now:?}") };
    let now_us = String::from_utf8_lossy(seconds).parse::<u64>().expect("digits") * 1_000_000;
    assert!(end > now_us && end <= now_us + 21_000_000, "{end} is not 20 s after {now_us}");
    assert_eq!(server.command(&["PTTL", "orders/42"]), Reply::Int(-1), "nothing takes it away");
    assert_eq!(keys(&server), [":quorlock:set", ":quorlock:sweep", "orders/42"]);
    assert!(text(&server, ":quorlock:set").starts_with(&format!("formed {} ", server.run_id())));

    guard.release().await.expect("released");
    let free = text(&server, "orders/42");
    assert!(free.starts_with(&format!("quorlock {fence}-")), "the fence stays: {free}");
    assert_eq!(server.command(&["PTTL", "orders/42"]), Reply::Int(-1), "nor when it is free");
    assert!(taken_and_released(&locker, "orders/42").await > fence);
}

/// Only then a release has to look for a queue.
#[test]
async fn a_strict_record_says_whether_somebody_may_wait() {
    let server = RedisServer::start();
    let (first, second) = (strict(&server).await, strict(&server).await);
    let state = || char::from(text(&server, "asked").as_bytes()[25]);
    let guard = first.try_lock("asked").await.expect("free");
    assert_eq!(state(), ' ');
    let waiter = tokio::spawn(second.lock("asked").wait(DEADLINE).into_future());
    quorlock_testkit::eventually_async("it queues", async || state() == '+').await;
    guard.extend().await.expect("extended");
    assert_eq!(state(), '+', "it still waits");
    guard.release().await.expect("released");
    let guard: Guard = waiter.await.expect("no panic").expect("passed on");
    assert_eq!(state(), ' ', "nobody is left");
    guard.release().await.expect("released");
    assert_eq!(state(), '-');
}

#[test]
async fn a_redlock_record_has_its_fence_beside_it() {
    let server = RedisServer::start();
    let locker = redlock(&server).await;
    let guard = locker.try_lock("orders/42").await.expect("free");
    assert!(text(&server, "orders/42").starts_with("ql:"));
    assert_goes(&server, "orders/42", [0, 20_000]);
    let fence: u64 = text(&server, "orders/42:quorlock:fence").parse().expect("digits");
    assert!(fence >= guard.fence() && fence < guard.fence() + 1_000, "{fence}");
    assert_goes(&server, "orders/42:quorlock:fence", [DAY_MS - 60_000, DAY_MS]);
    guard.release().await.expect("released");
    assert_eq!(keys(&server), ["orders/42:quorlock:fence"], "the fence stays");
}

/// Fences follow the clocks of clients. One whose clock is far ahead is followed by higher ones all
/// the same.
#[test]
async fn the_fence_that_lies_on_a_server_is_always_exceeded() {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let far_ahead = u64::try_from(wall.as_micros()).expect("a number") + 3_600_000_000;
    let server = RedisServer::start();
    let (first, second) = (strict(&server).await, strict(&server).await);
    server.command(&["SET", "ahead", &format!("quorlock {far_ahead}- 0 0 0")]);
    let before = taken_and_released(&first, "ahead").await;
    assert!(before > far_ahead);
    assert!(taken_and_released(&second, "ahead").await > before);

    let server = RedisServer::start();
    let (first, second) = (redlock(&server).await, redlock(&server).await);
    server.command(&["SET", "ahead:quorlock:fence", &far_ahead.to_string()]);
    let before = taken_and_released(&first, "ahead").await;
    assert!(before > far_ahead);
    assert!(taken_and_released(&second, "ahead").await > before);
}

#[test]
async fn a_lock_without_a_fence_is_one_plain_set() {
    let server = RedisServer::start();
    let builder = patient(&server).redis(options().dialect(Dialect::Redlock)).fences(false);
    let locker = builder.connect().await.expect("a locker");
    server.command(&["CONFIG", "RESETSTAT"]);
    let guard = locker.try_lock("plain").await.expect("free");
    let Reply::Bulk(Some(stats)) = server.command(&["INFO", "commandstats"]) else {
        panic!("no statistics");
    };
    let stats = String::from_utf8(stats).expect("text");
    assert!(stats.contains("cmdstat_set:calls=1,") && !stats.contains("eval"), "{stats}");
    assert_eq!(keys(&server), ["plain"]);
    let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| guard.fence()));
    assert!(asked.is_err(), "a fence that nobody gave it");
    guard.extend().await.expect("extended");
    guard.release().await.expect("released");
    assert_eq!(keys(&server), [""; 0]);

    // In its turn, and passed on.
    let other =
        patient(&server).redis(options().dialect(Dialect::Redlock)).fences(false).connect().await;
    let other = other.expect("a locker");
    let guard = locker.lock("plain").await.expect("free");
    let waiter = tokio::spawn(other.lock("plain").into_future());
    quorlock_testkit::eventually_async("it queues", async || keys(&server).len() == 3).await;
    guard.release().await.expect("released");
    let guard: Guard = waiter.await.expect("no panic").expect("passed on");
    assert_eq!(keys(&server), ["plain"]);
    drop(guard);
}

#[test]
async fn a_strict_lock_always_has_a_fence() {
    let server = RedisServer::start();
    let refused = patient(&server).fences(false).connect().await.expect_err("no fences");
    assert!(matches!(refused, Error::Misuse { .. }), "{refused:?}");
    assert!(refused.to_string().contains("use the redlock dialect"), "{refused}");
}

/// All clients of a lock have to use the same dialect. Those of the other never get it.
#[test]
async fn neither_dialect_takes_the_lock_of_the_other() {
    let server = RedisServer::start();
    let (strict, redlock) = (strict(&server).await, redlock(&server).await);
    let guard = redlock.try_lock("mixed").await.expect("free");
    let error = strict.try_lock("mixed").await.expect_err("taken");
    let Error::Node { failure, .. } = &error else { panic!("{error:?}") };
    assert_eq!(failure.kind(), FailureKind::WrongType);
    assert!(error.to_string().contains("a lock of the redlock dialect"), "{error}");
    guard.extend().await.expect("nothing was changed");
    guard.release().await.expect("released");

    let guard = strict.try_lock("mixed").await.expect("free");
    let error = redlock.try_lock("mixed").await.expect_err("taken");
    let Error::Node { failure, .. } = &error else { panic!("{error:?}") };
    assert_eq!(failure.kind(), FailureKind::WrongType);
    assert!(error.to_string().contains("dialect"), "{error}");
    guard.extend().await.expect("nothing was changed");
    guard.release().await.expect("released");
}

#[test]
async fn a_strict_lock_leaves_alone_what_is_no_lock() {
    let server = RedisServer::start();
    let locker = strict(&server).await;
    server.command(&["LPUSH", "list", "job"]);
    server.command(&["SET", "text", &"x".repeat(100_000)]);
    server.command(&["SET", "near", &format!("quorlock 1 {} 0 0 0", "x".repeat(100_000))]);
    // A free lock but for its first word.
    server.command(&["SET", "alike", "somebody 1700000000000000- 0 0 0"]);
    let says = [("list", "not a lock"), ("text", "100000 bytes"), ("near", "100017 bytes")];
    for (name, says) in says.into_iter().chain([("alike", "32 bytes")]) {
        for lock in [locker.try_lock(name), locker.lock(name).wait(DEADLINE)] {
            let error = lock.await.expect_err("no lock");
            let Error::Node { failure, .. } = &error else { panic!("{error:?}") };
            assert_eq!(failure.kind(), FailureKind::WrongType);
            let text = error.to_string();
            assert!(text.contains(says) && text.contains("another name or a prefix"), "{text}");
            assert!(!text.contains("xxx"), "{text}");
        }
        let status = locker.inspect(name).await.expect("a status");
        let failure = status.nodes[0].record.as_ref().expect_err("no lock");
        assert_eq!(failure.kind(), FailureKind::WrongType, "{failure}");
    }
    assert_eq!(server.command(&["LLEN", "list"]), Reply::Int(1));
    assert_eq!(server.command(&["STRLEN", "text"]), Reply::Int(100_000));
}

#[test]
async fn a_server_that_may_throw_locks_away_is_no_strict_node() {
    let server = RedisServer::builder().maxmemory(100 << 20, "allkeys-lru").start();
    let text = patient(&server).connect().await.expect_err("it evicts").to_string();
    assert!(text.contains("allkeys-lru") && text.contains("set noeviction"), "{text}");
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    patient(&server).connect().await.expect("it keeps what it is told");
}

/// How long a server has to stay quiet after it forgot something depends on the longest TTL of all.
#[test]
async fn strict_clients_have_to_agree_on_the_longest_ttl() {
    let server = RedisServer::start();
    let first = strict(&server).await;
    let other = patient(&server).max_ttl(Duration::from_secs(25)).connect().await;
    let other = other.expect("a locker");
    taken_and_released(&first, "agreed").await;
    let text = other.try_lock("agreed").await.expect_err("another longest TTL").to_string();
    assert!(text.contains("max_ttl of 30s") && text.contains("quorlock init"), "{text}");
    // The first is as good as before.
    taken_and_released(&first, "agreed").await;
}
