//! Names that nobody uses again, on real servers.

use quorlock::node::FailureKind;
use quorlock::{Builder, Dialect};
use quorlock_testkit::{RedisServer, Reply, patient, patient_options, servers, test, urls};

fn builder(servers: &[RedisServer], dialect: Dialect) -> Builder {
    let options = patient_options().dialect(dialect).trust_new_nodes(true);
    patient().nodes(urls(servers)).redis(options)
}

/// How many keys there are, without those that are about the server.
fn keys(server: &RedisServer) -> i64 {
    let own = ["EXISTS", ":quorlock:set", ":quorlock:sweep"];
    match (server.command(&["DBSIZE"]), server.command(&own)) {
        (Reply::Int(keys), Reply::Int(mark)) => keys - mark,
        other => panic!("{other:?}"),
    }
}

async fn use_and_forget(dialect: Dialect) {
    let servers = servers(3);
    let locker = builder(&servers, dialect).connect().await.expect("three nodes");
    for name in ["a", "b", "other"] {
        locker.try_lock(name).await.expect("free").release().await.expect("held");
    }
    locker.shutdown().await;
    assert_eq!(keys(&servers[0]), 3, "the fences stay");
    let names = ["a", "b", "never used"];
    let left = builder(&servers, dialect).admin().forget(names).await.expect("settings are right");
    assert!(left.0.is_empty(), "{left}");
    for server in &servers {
        assert_eq!(keys(server), 1, "of the other");
    }
}

#[test]
async fn numbers_are_forgotten_in_both_dialects() {
    use_and_forget(Dialect::Strict).await;
    use_and_forget(Dialect::Redlock).await;
}

async fn hold_and_forget(dialect: Dialect) {
    let servers = servers(1);
    let locker = builder(&servers, dialect).connect().await.expect("a node");
    let guard = locker.try_lock("held").await.expect("free");
    let left = builder(&servers, dialect).admin().forget(["held", "free"]).await.expect("right");
    let [node] = left.0.as_slice() else { panic!("{left}") };
    assert_eq!(node.node, servers[0].url());
    let failure = node.failure.as_ref().expect("a reason");
    assert_eq!(failure.kind(), FailureKind::Rejected);
    assert!(failure.to_string().starts_with("1 of them are held"), "{failure}");
    guard.extend().await.expect("it was left alone");
}

#[test]
async fn what_is_held_is_left_alone() {
    hold_and_forget(Dialect::Strict).await;
    hold_and_forget(Dialect::Redlock).await;
}

#[test]
async fn what_is_no_lock_or_waited_for_is_left_alone() {
    let servers = servers(1);
    let server = &servers[0];
    server.command(&["SET", "text", "of somebody else"]);
    server.command(&["ZADD", "wanted:quorlock:queue", "1", "a waiter"]);
    server.command(&["SET", "wanted:quorlock:fence", "7"]);
    let forgetting = builder(&servers, Dialect::Redlock).admin().forget(["text", "wanted"]);
    let left = forgetting.await.expect("right");
    assert!(left.to_string().contains("2 of them are held or waited for"), "{left}");
    assert_eq!(keys(server), 3);
    // Something that is no text at all.
    server.command(&["LPUSH", "list", "x"]);
    let left = builder(&servers, Dialect::Strict).admin().forget(["list"]).await.expect("right");
    assert!(left.to_string().contains("WRONGTYPE"), "{left}");
    assert_eq!(keys(server), 4);
}

#[test]
async fn a_node_that_is_away_keeps_no_other_from_forgetting() {
    let servers = servers(3);
    let locker = builder(&servers, Dialect::Strict).connect().await.expect("three nodes");
    locker.try_lock("a").await.expect("free").release().await.expect("held");
    locker.shutdown().await;
    servers[1].kill();
    let left = builder(&servers, Dialect::Strict).admin().forget(["a"]).await.expect("right");
    let [node] = left.0.as_slice() else { panic!("{left}") };
    assert_eq!(node.node, format!("redis://{}", servers[1].addr()));
    assert_eq!([keys(&servers[0]), keys(&servers[2])], [0, 0]);
}
