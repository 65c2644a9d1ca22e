//! Marking real servers as new.

use std::time::Duration;

use quorlock::node::FailureKind;
use quorlock::{Builder, Dialect, Error, InitState, Locker, NodeInit, Refusal};
use quorlock_testkit::{DEADLINE, RedisServer, Reply, eventually_async, servers};

const MARKER: &str = ":quorlock:set";
const MAX_TTL: Duration = Duration::from_secs(20);

fn builder(servers: &[RedisServer]) -> Builder {
    Locker::builder()
        .nodes(servers.iter().map(RedisServer::url))
        .max_ttl(MAX_TTL)
        .node_limit(Duration::from_secs(2))
        .connect_limit(DEADLINE)
}

async fn init(servers: &[RedisServer], force: bool) -> Vec<NodeInit> {
    builder(servers).init(force).await.expect("the settings are right")
}

fn marker(server: &RedisServer) -> Option<String> {
    match server.command(&["GET", MARKER]) {
        Reply::Bulk(marker) => marker.map(|marker| String::from_utf8(marker).expect("a text")),
        other => panic!("no marker: {other:?}"),
    }
}

fn of_a_new(server: &RedisServer) -> Option<String> {
    Some(format!("{} {} 300000 0", server.run_id(), MAX_TTL.as_micros()))
}

fn states(nodes: &[NodeInit]) -> Vec<&'static str> {
    let word = |node: &NodeInit| match &node.state {
        InitState::Marked => "marked",
        InitState::Voting => "voting",
        InitState::NotNeeded => "not needed",
        InitState::Refused(Refusal::HoldsLocks(_)) => "holds locks",
        InitState::Refused(Refusal::Restarted) => "restarted",
        InitState::Refused(Refusal::OtherSettings { .. }) => "other settings",
        InitState::Left => "left",
        InitState::Failed(_) => "failed",
        other => panic!("{other:?}"),
    };
    nodes.iter().map(word).collect()
}

#[tokio::test]
async fn new_servers_vote_at_once_and_stay_as_they_are() {
    let servers = servers(3);
    let nodes = init(&servers, false).await;
    assert_eq!(states(&nodes), ["marked"; 3]);
    assert_eq!(nodes[1].node, format!("redis://{}", servers[1].addr()));
    for server in &servers {
        assert_eq!(marker(server), of_a_new(server));
    }
    let locker = builder(&servers).connect().await.expect("three nodes");
    let guard = locker.try_lock("x").await.expect("no quarantine");
    // With a lock that is held, and by force.
    assert_eq!(states(&init(&servers, false).await), ["voting"; 3]);
    assert_eq!(states(&init(&servers, true).await), ["voting"; 3]);
    guard.release().await.expect("it was not touched");
}

#[tokio::test]
async fn servers_that_wait_already_are_let_off() {
    let servers = servers(3);
    let locker = builder(&servers).connect().await.expect("three nodes");
    let error = locker.try_lock("x").await.expect_err("they are new");
    assert!(matches!(error, Error::Quarantined { .. }), "{error}");
    // Not only a word that is still to be repeated: one that changes meanwhile is not marked.
    let waits = |node| marker(node).is_some_and(|marker| !marker.contains('?'));
    eventually_async("every node has a marker", async || servers.iter().all(waits)).await;
    assert_ne!(marker(&servers[0]), of_a_new(&servers[0]));
    assert_eq!(states(&init(&servers, false).await), ["marked"; 3]);
    drop(locker.try_lock("x").await.expect("no quarantine"));
}

#[tokio::test]
async fn a_lock_on_any_of_them_keeps_all_from_being_marked() {
    let servers = servers(3);
    init(&servers, false).await;
    let locker = builder(&servers).connect().await.expect("three nodes");
    let guard = locker.try_lock("held").await.expect("no quarantine");
    servers[1].restart();
    let nodes = init(&servers, false).await;
    assert_eq!(states(&nodes), ["holds locks", "left", "holds locks"]);
    let InitState::Refused(Refusal::HoldsLocks(names)) = &nodes[0].state else { panic!() };
    assert_eq!(names.iter().map(ToString::to_string).collect::<Vec<_>>(), ["held"]);
    assert_eq!(marker(&servers[1]), None, "nothing was changed");

    // The word of somebody who insists counts, and those that vote are left alone.
    assert_eq!(states(&init(&servers, true).await), ["voting", "marked", "voting"]);
    assert_eq!(marker(&servers[1]), of_a_new(&servers[1]));
    guard.release().await.expect("two nodes have it still");
    servers[1].restart();
    let after = init(&servers, false).await;
    assert_eq!(
        states(&after),
        ["voting", "marked", "voting"],
        "a free lock stands in nobody's way"
    );
}

#[tokio::test]
async fn a_server_that_was_restarted_is_not_new() {
    let durable = RedisServer::builder().appendonly(true).start();
    let servers = [durable, RedisServer::start(), RedisServer::start()];
    assert_eq!(states(&init(&servers[..1], false).await), ["marked"]);
    let before = marker(&servers[0]);
    servers[0].restart();
    assert_eq!(states(&init(&servers, false).await), ["restarted", "left", "left"]);
    assert_eq!((marker(&servers[0]), marker(&servers[1])), (before, None), "nothing was changed");
    assert_eq!(states(&init(&servers, true).await), ["marked"; 3]);
    assert_eq!(marker(&servers[0]), of_a_new(&servers[0]));
}

#[tokio::test]
async fn other_settings_are_not_changed_unless_that_is_meant() {
    let servers = servers(1);
    let other = Duration::from_secs(15);
    let init_other = |force| builder(&servers).max_ttl(other).init(force);
    init(&servers, false).await;
    let nodes = init_other(false).await.expect("the settings are right");
    let InitState::Refused(Refusal::OtherSettings { max_ttl, clock_ahead }) = nodes[0].state else {
        panic!("{nodes:?}")
    };
    assert_eq!((max_ttl, clock_ahead), (MAX_TTL, Duration::from_millis(300)));
    assert_eq!(marker(&servers[0]), of_a_new(&servers[0]));
    assert_eq!(states(&init_other(true).await.expect("the settings are right")), ["marked"]);
    assert_eq!(marker(&servers[0]), Some(format!("{} 15000000 300000 0", servers[0].run_id())));
}

#[tokio::test]
async fn a_server_that_is_away_does_not_keep_the_others_from_being_marked() {
    let servers = servers(3);
    servers[2].kill();
    let nodes = init(&servers, false).await;
    assert_eq!(states(&nodes), ["marked", "marked", "failed"]);
    let InitState::Failed(failure) = &nodes[2].state else { panic!("{nodes:?}") };
    assert_eq!(failure.kind(), FailureKind::Unreachable, "{failure}");
}

#[tokio::test]
async fn one_server_behind_two_urls_is_a_mistake() {
    let servers = servers(1);
    let twice = builder(&servers).nodes([servers[0].url().replace("127.0.0.1", "localhost")]);
    let error = twice.init(true).await.expect_err("it is the same");
    assert!(matches!(error, Error::Misuse { .. }), "{error}");
    assert_eq!(marker(&servers[0]), None);
}

#[tokio::test]
async fn the_redlock_dialect_has_no_marker() {
    let servers = servers(1);
    let nodes = builder(&servers).dialect(Dialect::Redlock).init(false).await;
    assert_eq!(states(&nodes.expect("the settings are right")), ["not needed"]);
    assert_eq!(marker(&servers[0]), None);
}

#[tokio::test]
async fn the_marker_is_that_of_the_prefix() {
    let servers = servers(1);
    let nodes = builder(&servers).prefix("app:").init(false).await;
    assert_eq!(states(&nodes.expect("the settings are right")), ["marked"]);
    assert_eq!(servers[0].command(&["EXISTS", "app::quorlock:set"]), Reply::Int(1));
    assert_eq!(marker(&servers[0]), None);
}
