//! Giving a lock back when nodes are away, or when it is not ours any more.

use std::sync::Arc;
use std::time::Duration;

use quorlock::node::memory::MemoryNode;
use quorlock::node::{self, Answer, ClientId, Node};
use quorlock::runtime::{Runtime, TokioRuntime};
use quorlock::{Dialect, Error, Locker, Loss, NodeReleaseState, Settings};
use quorlock_testkit::conformance::owner;
use quorlock_testkit::{
    Proxy, RedisServer, Reply, eventually_async as eventually, redlock_locker as locker, servers,
    test,
};

const TTL: Duration = Duration::from_secs(30);

fn value(server: &RedisServer, name: &str) -> Reply {
    server.command(&["GET", name])
}

/// The first sending ran, its answer was lost, and the connection broke: the node finds nothing
/// when it is asked again, which is what was wanted.
#[test]
async fn a_release_that_is_sent_again_after_its_answer_was_lost_succeeds() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(server.addr());
    let runtime: std::sync::Arc<dyn Runtime> = std::sync::Arc::new(TokioRuntime::current());
    let settings = Settings::default();
    let options = quorlock::RedisOptions::default().dialect(Dialect::Redlock).into();
    let nodes =
        node::open([proxy.url()], &settings, &options, &runtime, ClientId::random(&*runtime));
    let nodes = nodes.expect("a node");
    nodes[0].ready().await.expect("up");
    let owner = owner("twice");
    assert!(owner.acquire(&nodes[0], TTL).is_done().await);
    proxy.lose_replies(true);
    let release = owner.release(&nodes[0]);
    eventually("it ran", async || value(&server, "twice") == Reply::Bulk(None)).await;
    eventually("its answer was lost", async || proxy.lost() > 0).await;
    proxy.lose_replies(false);
    proxy.cut();
    assert!(matches!(release.answer().await, Answer::Done));
}

#[test]
async fn a_lock_that_somebody_else_holds_by_now_cannot_be_released() {
    let servers = servers(3);
    let urls = || servers.iter().map(RedisServer::url);
    let (locker, other) = (locker(urls()).await, locker(urls()).await);
    let late = locker.lock("theirs").await.expect("free");
    for server in &servers {
        eventually("gone", async || server.command(&["DEL", "theirs"]) == Reply::Int(1)).await;
    }
    let holder = other.lock("theirs").await.expect("free");
    let error = late.release().await.expect_err("not ours");
    assert!(matches!(error, Error::Lost { reason: Loss::Gone, .. }), "{error}");
    assert!(error.to_string().contains("no record of it"), "{error}");
    locker.inspect("theirs").await.expect("a status").holder().expect("still held");
    holder.extend().await.expect("nothing was changed");
    holder.release().await.expect("released");
}

#[test]
async fn a_release_tells_which_nodes_may_keep_the_name_and_for_how_long() {
    let servers = servers(3);
    let locker = locker(servers.iter().map(RedisServer::url)).await;
    let guard = locker.lock("partly").await.expect("free");
    eventually("all have it", async || value(&servers[2], "partly") != Reply::Bulk(None)).await;
    servers[2].kill();
    let released = guard.release().await.expect("two of three are enough");
    eventually("the third is known to be away", async || {
        matches!(
            &released.nodes()[2].state,
            NodeReleaseState::Taken { why: Some(_), at_most } if *at_most <= TTL
        )
    })
    .await;
    let nodes = released.nodes();
    assert_eq!(nodes[2].node, servers[2].url());
    for node in &nodes[..2] {
        assert!(matches!(node.state, NodeReleaseState::Released), "{node:?}");
    }
}

#[test]
async fn a_release_without_a_majority_is_an_error_that_names_the_nodes() {
    let servers = servers(3);
    let locker = locker(servers.iter().map(RedisServer::url)).await;
    let guard = locker.lock("stuck").await.expect("free");
    for server in &servers {
        eventually("all have it", async || value(server, "stuck") != Reply::Bulk(None)).await;
    }
    servers[0].pause();
    servers[1].pause();
    let error = guard.release().await.expect_err("two of three are silent");
    let text = error.to_string();
    assert!(matches!(error, Error::NoQuorum { have: 0..=1, need: 2, .. }), "{text}");
    assert!(text.contains(&servers[0].url()) && text.contains(&servers[1].url()), "{text}");
    assert!(text.contains("at most"), "{text}");
    // The release waits for them: they carry it out when they are back.
    servers[0].resume();
    servers[1].resume();
    for server in &servers {
        eventually("free", async || value(server, "stuck") == Reply::Bulk(None)).await;
    }
}

/// A node that is away while a lock is released, and comes back with its data.
#[test]
async fn a_node_that_was_away_is_asked_again() {
    let server = RedisServer::builder().appendonly(true).start();
    let others = servers(2);
    let urls = [server.url(), others[0].url(), others[1].url()];
    let locker = locker(urls).await;
    let guard = locker.lock("remembered").await.expect("free");
    eventually("it has it", async || value(&server, "remembered") != Reply::Bulk(None)).await;
    server.kill();
    eventually("noticed", async || {
        locker.inspect("x").await.expect("a status").nodes[0].record.is_err()
    })
    .await;
    guard.release().await.expect("two of three");
    server.restart();
    eventually("released after its return", async || {
        value(&server, "remembered") == Reply::Bulk(None)
    })
    .await;
}

#[test]
async fn a_shutdown_waits_for_releases_and_refuses_new_locks() {
    let servers = servers(3);
    let proxy = Proxy::in_front_of(servers[0].addr());
    proxy.delay(Duration::from_millis(5));
    let locker = locker([proxy.url(), servers[1].url(), servers[2].url()]).await;
    eventually("all are connected", async || {
        let guard = locker.lock("first").await.expect("free");
        let all = servers[0].kept() == 1;
        guard.release().await.expect("released");
        all
    })
    .await;
    let mut guards = Vec::new();
    for index in 0..20 {
        guards.push(locker.lock(format!("held/{index}")).await.expect("free"));
    }
    let kept = guards.pop().expect("one of them");
    drop(guards);
    locker.shutdown().await;
    for server in &servers {
        assert_eq!(server.kept(), 1, "only the one that is still held");
    }
    assert!(matches!(locker.lock("new").await, Err(Error::Misuse { .. })));
    assert!(kept.is_held());
    kept.release().await.expect("a held lock can be released after a shutdown");
}

#[test]
async fn connections_are_closed_with_the_last_locker_and_guard() {
    let server = RedisServer::start();
    let connected = || match server.command(&["CLIENT", "LIST"]) {
        Reply::Bulk(Some(list)) => String::from_utf8_lossy(&list).contains("name=quorlock"),
        other => panic!("{other:?}"),
    };
    let locker = locker([server.url()]).await;
    let guard = locker.lock("last").await.expect("free");
    drop(locker);
    tokio::task::yield_now().await;
    assert!(connected());
    drop(guard);
    eventually("closed", async || !connected()).await;
    assert_eq!(value(&server, "last"), Reply::Bulk(None));
}

/// What is known of a lock whose time is over does not depend on whether a node keeps records that have ended.
#[test]
async fn a_lock_whose_time_is_over_is_released_with_the_same_error_on_every_kind_of_node() {
    let servers = servers(3);
    let file = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", file.path().join("locks.db").display());
    let memory = || Arc::new(MemoryNode::new()) as Arc<dyn Node>;
    let urls = || servers.iter().map(RedisServer::url);
    let builder = || Locker::builder().ttl(Duration::from_secs(1));
    let strict =
        builder().redis(quorlock::RedisOptions::default().trust_new_nodes(true).prefix("strict:"));
    let redlock = builder()
        .redis(quorlock::RedisOptions::default().dialect(Dialect::Redlock).prefix("redlock:"));
    for (kind, builder) in [
        ("memory", builder().with_nodes([memory(), memory(), memory()])),
        ("file", builder().nodes([url])),
        ("strict", strict.nodes(urls())),
        ("redlock", redlock.nodes(urls())),
    ] {
        let locker = builder.connect().await.expect("a locker");
        let guard = locker.lock("over").fixed().await.expect("free");
        assert_eq!(guard.lost().await, Loss::Expired);
        // Its record has ended as well, which is a little later.
        eventually("it is over there", async || {
            let status = locker.inspect("over").await.expect("a status");
            status.nodes.iter().all(|node| matches!(node.record, Ok(None)))
        })
        .await;
        let released = guard.release().await;
        let Err(Error::Lost { reason, .. }) = &released else { panic!("{kind}: {released:?}") };
        assert_eq!(*reason, Loss::Expired, "{kind}");
        // And nothing of it is left.
        locker.try_lock("over").await.expect("free").release().await.expect("released");
    }
}
