//! Servers that go away and come back, and what they may and may not do then.

use std::time::Duration;

use quorlock::{Error, Locker};
use quorlock_testkit::{
    DEADLINE, Proxy, RedisServer, Reply, eventually_async as eventually, servers, test, urls,
};

use super::turnpike::Turnpike;
use super::{connections, exists, hasty, patient, trouble, works};

async fn is_up(locker: &Locker, node: usize) -> bool {
    trouble(locker, node).await.is_none()
}

/// Whether the connection has been given up. While it is only late, it is not.
async fn is_given_up(locker: &Locker, node: usize) -> bool {
    let trouble = trouble(locker, node).await.unwrap_or_default();
    trouble.contains("no answer for") || trouble.contains("no greeting")
}

#[test]
async fn a_node_that_is_started_again_votes_again() {
    let servers = servers(3);
    let locker = patient().nodes(urls(&servers)).connect().await.expect("a locker");
    servers[1].kill();
    eventually("noticed", async || !is_up(&locker, 1).await).await;
    drop(locker.try_lock("meanwhile").await.expect("two of three"));
    servers[1].restart();
    eventually("back", async || is_up(&locker, 1).await).await;
    assert_eq!(connections(&servers[1]).len(), 1);

    // Its vote is needed now.
    servers[0].kill();
    eventually("noticed", async || !is_up(&locker, 0).await).await;
    let guard = locker.try_lock("after").await.expect("two of three");
    assert!(exists(&servers[1], "after"));
    guard.release().await.expect("two of three");
}

/// A server numbers its connections anew when it starts: the number that a locker's connection had
/// before is somebody else's now.
#[test]
async fn a_locker_that_comes_back_ends_nobody_elses_connection() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(server.addr());
    // So that the server needs fewer numbers for starting than the locker's connection has.
    let earlier: Vec<_> = (0..50).map(|_| server.connect().expect("a connection")).collect();
    let locker = hasty().nodes([proxy.url()]).connect().await.expect("a locker");
    let number = connections(&server)[0];
    drop(earlier);

    proxy.refuse(true);
    server.restart();
    let mut others = Vec::new();
    let mut namesake = loop {
        let mut other = server.connect().expect("a connection");
        match other.command(&["CLIENT", "ID"]).expect("a number") {
            Reply::Int(id) if id < number => others.push(other),
            Reply::Int(id) if id == number => break other,
            reply => panic!("{reply:?}, which is past {number}"),
        }
    };
    proxy.refuse(false);
    eventually("back", async || is_up(&locker, 0).await).await;
    assert_eq!(namesake.command(&["PING"]).expect("alive"), Reply::Simple("PONG".into()));
}

/// The pause is longer than the locker's patience, so that the release waits for a new connection.
#[test]
async fn a_node_that_was_paused_for_long_votes_again_and_carries_out_what_it_owes() {
    let servers = servers(3);
    let locker = hasty().nodes(urls(&servers)).connect().await.expect("a locker");
    let guard = locker.lock("owed").wait(DEADLINE).await.expect("free");
    eventually("all have it", async || exists(&servers[2], "owed")).await;
    servers[2].pause();
    drop(guard);
    eventually("given up", async || is_given_up(&locker, 2).await).await;
    drop(locker.lock("owed").wait(DEADLINE).await.expect("two of three"));
    servers[2].resume();
    eventually("back", async || is_up(&locker, 2).await).await;
    assert!(!exists(&servers[2], "owed"), "what was owed comes before anything new");
    eventually("one connection", async || connections(&servers[2]).len() == 1).await;
}

#[test]
async fn a_request_that_a_paused_server_had_not_read_leaves_nothing_behind() {
    let server = RedisServer::start();
    let locker = hasty().nodes([server.url()]).connect().await.expect("a locker");
    server.pause();
    // It lies in the server's socket until the server goes on.
    let error = locker.try_lock("late").await.expect_err("no answer");
    assert!(matches!(error, Error::NoQuorum { .. }), "{error}");
    eventually("given up", async || is_given_up(&locker, 0).await).await;
    server.resume();
    eventually("back", async || is_up(&locker, 0).await).await;
    assert!(!exists(&server, "late"));
    // With the old connection gone nothing of it can come after this.
    eventually("one connection", async || connections(&server).len() == 1).await;
    assert!(!exists(&server, "late"));
}

/// The request is still on its way when its connection has been given up, its release has run, and
/// the new connection is in use.
#[test]
async fn a_request_that_arrives_after_its_release_does_not_run() {
    let server = RedisServer::start();
    let turnpike = Turnpike::in_front_of(server.addr());
    let locker = hasty().nodes([turnpike.url()]).connect().await.expect("a locker");
    let old = connections(&server);
    turnpike.stop_first();
    locker.try_lock("stray").await.expect_err("no answer");
    eventually("a new connection", async || is_up(&locker, 0).await).await;
    assert!(turnpike.held().contains("stray"), "{}", turnpike.held());
    eventually("the server has ended the old one", async || {
        let now = connections(&server);
        now.len() == 1 && now != old
    })
    .await;
    // The server has hung up: whether the bytes can be sent off makes no difference.
    let _ = turnpike.let_through();
    drop(locker.lock("after").wait(DEADLINE).await.expect("free"));
    assert!(!exists(&server, "stray"));
}

#[test]
async fn a_black_hole_is_left_by_a_new_connection() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(server.addr());
    let locker = hasty().nodes([proxy.url()]).connect().await.expect("a locker");
    let other = patient().nodes([server.url()]).connect().await.expect("a locker");
    let guard = locker.lock("held").wait(DEADLINE).await.expect("free");
    proxy.hang(true);
    locker.try_lock("swallowed").await.expect_err("no answer");
    drop(guard);
    eventually("given up", async || is_given_up(&locker, 0).await).await;
    proxy.cut();
    proxy.hang(false);
    eventually("back", async || is_up(&locker, 0).await).await;
    assert!(!exists(&server, "swallowed"));
    assert!(!exists(&server, "held"), "its release was swallowed, and is owed before anything new");
    drop(locker.lock("after").wait(DEADLINE).await.expect("free"));
    works(&other, &server).await;
    eventually("one connection for each", async || connections(&server).len() == 2).await;
}

#[test]
async fn a_connection_with_tls_that_is_cut_is_made_anew() {
    let server = RedisServer::builder().tls().start();
    let proxy = Proxy::in_front_of(server.addr());
    let ca = server.tls_ca().display();
    let url = format!("rediss://localhost:{}?ca={ca}", proxy.addr().port());
    let locker = patient().nodes([url]).connect().await.expect("a locker");
    for _ in 0..3 {
        let guard = locker.try_lock("held over").await.expect("free");
        let connections = proxy.connections();
        proxy.cut();
        eventually("noticed", async || proxy.connections() > connections).await;
        eventually("back", async || is_up(&locker, 0).await).await;
        guard.extend().await.expect("extended over another connection");
        guard.release().await.expect("released over another connection");
    }
    eventually("one connection", async || connections(&server).len() == 1).await;
}

/// A node that was late once is told of releases all the same, and they have a time limit of their
/// own: they do not wait until the connection is given up.
#[test]
async fn a_release_waits_no_longer_because_something_else_is_late_already() {
    let server = RedisServer::start();
    let locker = patient()
        .nodes([server.url()])
        .node_limit(Duration::from_millis(500))
        .connect()
        .await
        .expect("a locker");
    let guard = locker.try_lock("slow").await.expect("free");
    server.pause();
    guard.extend().await.expect_err("no answer");
    let text = guard.release().await.expect_err("no answer").to_string();
    server.resume();
    // The connection would be given up after four time limits.
    assert!(text.contains("has not answered") && !text.contains("broke"), "{text}");
    eventually("released in the end", async || !exists(&server, "slow")).await;
}
