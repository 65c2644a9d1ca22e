//! A server that has forgotten a vote casts no other before the first one has ended.
//!
//! The first client holds the lock on two servers, one of which forgets it. The second client finds
//! that one and the third free, which would be a majority.

use std::time::Duration;

use quorlock::Dialect;
use quorlock_testkit::{
    AppendFsync, Proxy, RedisServer, RedisServerBuilder, Reply, eventually_async as eventually,
    test,
};

use crate::world::{QUARANTINE, TTL, World, assert_both_hold, marker};
use crate::{BOTH, NAME};

/// `prepare` is done before the first client has the lock, `forget` after it.
async fn is_distinguished<T>(
    options: impl Fn(RedisServerBuilder) -> RedisServerBuilder,
    prepare: impl Fn(&RedisServer) -> T,
    forget: impl Fn(&RedisServer, T),
) {
    for dialect in BOTH {
        let world = World::with(dialect, &options).await;
        let forgetful = &world.servers[1];
        let prepared = prepare(forgetful);
        let (first, second) = (world.holder_of_two().await, world.client().await);
        forget(forgetful, prepared);
        world.all_reached_by(&second).await;

        let taken = second.try_lock(NAME).await;
        if dialect == Dialect::Redlock {
            assert_both_hold(&first.guard, taken);
            continue;
        }
        let error = taken.expect_err("no majority");
        assert!(first.guard.is_held(), "all the while");
        let status = second.inspect(NAME).await.expect("a status");
        let [kept, forgot, other] = &status.nodes[..] else { panic!("{status:?}") };
        assert!(matches!(kept.record, Ok(Some(_))), "{error}, {kept:?}");
        assert!(matches!(forgot.record, Ok(None)), "{error}, {forgot:?}");
        let quiet = forgot.quarantine.expect("it casts no vote");
        assert!(quiet > TTL - Duration::from_secs(10) && quiet < 2 * TTL, "{quiet:?}");
        assert!(matches!(other.record, Ok(None)) && other.quarantine.is_none(), "{other:?}");
    }
}

#[test]
async fn killed_and_started_with_nothing() {
    is_distinguished(|server| server, |_| {}, |server, ()| server.restart_empty()).await;
}

#[test]
async fn emptied_while_it_runs() {
    let flush = |server: &RedisServer, ()| {
        assert_eq!(server.command(&["FLUSHALL"]), Reply::Simple("OK".into()));
    };
    is_distinguished(|server| server, |_| {}, flush).await;
}

#[test]
async fn swapped_for_a_database_without_locks() {
    let swap = |server: &RedisServer, ()| {
        assert_eq!(server.command(&["SWAPDB", "0", "1"]), Reply::Simple("OK".into()));
    };
    is_distinguished(|server| server, |_| {}, swap).await;
}

/// It comes back with the mark of its former start, which alone would prove nothing.
#[test]
async fn started_from_a_file_that_lacks_its_end() {
    let lose = |server: &RedisServer, mark| {
        let before = marker(server);
        server.crash_losing_since(mark);
        assert_eq!(marker(server), before, "the mark was written before the vote");
    };
    let options = |server: RedisServerBuilder| server.appendfsync(AppendFsync::EverySecond);
    is_distinguished(options, RedisServer::aof_mark, lose).await;
}

/// The replica had got everything but the vote when its primary died.
#[test]
async fn replaced_by_a_replica_that_lags_behind() {
    let follow = |primary: &RedisServer| {
        let way = Proxy::in_front_of(primary.addr());
        let replica = RedisServer::builder().replica_of(way.addr().port()).start();
        let link = ["EVAL", "return redis.call('INFO', 'replication')", "0"];
        quorlock_testkit::eventually("the replica has caught up", || {
            let Reply::Bulk(Some(info)) = replica.command(&link) else { panic!("no answer") };
            String::from_utf8_lossy(&info).contains("master_link_status:up")
                && marker(&replica) == marker(primary)
        });
        way.hang(true);
        (way, replica)
    };
    for dialect in BOTH {
        let world = World::new(dialect).await;
        let (_way, replica) = follow(&world.servers[1]);
        let (first, second) = (world.holder_of_two().await, world.client().await);
        let port = world.servers[1].port().to_string();
        world.servers[1].kill();
        for command in [&["REPLICAOF", "NO", "ONE"][..], &["CONFIG", "SET", "port", &port]] {
            assert_eq!(replica.command(command), Reply::Simple("OK".into()));
        }
        world.all_reached_by(&second).await;
        let taken = second.try_lock(NAME).await;
        if dialect == Dialect::Redlock {
            assert_both_hold(&first.guard, taken);
            continue;
        }
        taken.expect_err("no majority");
        let status = second.inspect(NAME).await.expect("a status");
        assert!(status.nodes[1].quarantine.is_some(), "{status:?}");
        let marked = marker(&replica).expect("a mark");
        assert!(marked.contains(&replica.run_id()), "by its own start: {marked}");
    }
}

/// What a server has forgotten is over when it votes again.
#[test]
async fn it_votes_again_once_all_that_it_may_have_granted_has_ended() {
    let world = World::new(Dialect::Strict).await;
    let (first, second) = (world.holder_of_two().await, world.client().await);
    world.servers[1].restart_empty();
    world.all_reached_by(&second).await;
    second.try_lock(NAME).await.expect_err("no majority");
    world.pass(QUARANTINE);
    assert!(!first.guard.is_held(), "its time is over");
    eventually("a majority", async || second.try_lock(NAME).await.is_ok()).await;
    let status = second.inspect(NAME).await.expect("a status");
    assert!(status.nodes.iter().all(|node| node.quarantine.is_none()), "{status:?}");
}

/// Another set has its locks there, by the address with the other number.
#[test]
async fn swapped_for_a_database_with_locks_of_its_own() {
    let world = World::new(Dialect::Strict).await;
    let others = world.urls().into_iter().map(|url| format!("{url}/1"));
    let options = world.options().trust_new_nodes(true);
    let builder = world.builder().redis(options).nodes(others);
    let other = builder.connect().await.expect("servers that are up");
    eventually("a lock", async || other.try_lock(NAME).await.is_ok()).await;
    let (first, second) = (world.holder_of_two().await, world.client().await);
    for server in &world.servers {
        assert_eq!(server.command(&["SWAPDB", "0", "1"]), Reply::Simple("OK".into()));
    }
    let error = second.try_lock(NAME).await.expect_err("no votes for another set");
    assert!(first.guard.is_held() && error.to_string().contains("/1"), "{error}");
}
