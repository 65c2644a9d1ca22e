//! Marking real servers as new.

use std::time::Duration;

use quorlock::admin::{InitState, NodeInit, Refusal};
use quorlock::node::{FailureKind, NodeOptions};
use quorlock::{Builder, Dialect, Error, Locker, Settings};
use quorlock_testkit::{DEADLINE, Proxy, RedisServer, Reply, eventually_async, servers, test};

const MARKER: &str = ":quorlock:set";
const MAX_TTL: Duration = Duration::from_secs(20);

fn builder(servers: &[RedisServer]) -> Builder {
    builder_of(servers.iter().map(RedisServer::url).collect())
}

fn builder_of(urls: Vec<String>) -> Builder {
    Locker::builder()
        .nodes(urls)
        .max_ttl(MAX_TTL)
        .node_limit(Duration::from_secs(2))
        .connect_limit(DEADLINE)
}

async fn init(servers: &[RedisServer], force: bool) -> Vec<NodeInit> {
    builder(servers).admin().init(force).await.expect("the settings are right")
}

fn marker(server: &RedisServer) -> Option<String> {
    match server.command(&["GET", MARKER]) {
        Reply::Bulk(marker) => marker.map(|marker| String::from_utf8(marker).expect("a text")),
        other => panic!("no marker: {other:?}"),
    }
}

/// Whether it votes for the set of these servers.
fn votes_for(server: &RedisServer, set: &[RedisServer]) -> bool {
    votes_with(server, set, MAX_TTL)
}

fn votes_with(server: &RedisServer, set: &[RedisServer], max_ttl: Duration) -> bool {
    let mut settings = Settings::default();
    settings.max_ttl = max_ttl;
    let urls = set.iter().map(RedisServer::url);
    let members =
        quorlock::node::members(urls, &settings, &NodeOptions::default()).expect("good URLs");
    let (run_id, digest) = (server.run_id(), members.digest());
    let begins = format!("formed {run_id} {digest} 0000000000000000 ");
    let names = members.names().join(",");
    marker(server).is_some_and(|marker| marker.starts_with(&begins) && marker.ends_with(&names))
}

fn states(nodes: &[NodeInit]) -> Vec<&'static str> {
    let word = |node: &NodeInit| match &node.state {
        InitState::Marked => "marked",
        InitState::Voting => "voting",
        InitState::NotNeeded => "not needed",
        InitState::Refused(Refusal::HoldsLocks(_)) => "holds locks",
        InitState::Refused(Refusal::Restarted) => "restarted",
        InitState::Refused(Refusal::OtherSettings { .. }) => "other settings",
        InitState::Refused(Refusal::OtherSet { .. }) => "other set",
        InitState::Refused(Refusal::Emptied) => "emptied",
        InitState::Refused(Refusal::Quarantined(_)) => "quarantined",
        InitState::Left => "left",
        InitState::Failed(_) => "failed",
        other => panic!("{other:?}"),
    };
    nodes.iter().map(word).collect()
}

#[test]
async fn new_servers_vote_at_once_and_stay_as_they_are() {
    let servers = servers(3);
    let nodes = init(&servers, false).await;
    assert_eq!(states(&nodes), ["marked"; 3]);
    assert_eq!(nodes[1].node, format!("redis://{}", servers[1].addr()));
    for server in &servers {
        assert!(votes_for(server, &servers), "{:?}", marker(server));
    }
    let locker = builder(&servers).connect().await.expect("three nodes");
    let guard = locker.try_lock("x").await.expect("no quarantine");
    // With a lock that is held, and by force.
    assert_eq!(states(&init(&servers, false).await), ["voting"; 3]);
    assert_eq!(states(&init(&servers, true).await), ["voting"; 3]);
    guard.release().await.expect("it was not touched");
}

/// A server that was restarted looks the same once a client has found it: a script that marks it at every start
/// must not make it vote while somebody believes in what it has forgotten.
#[test]
async fn a_running_quarantine_is_not_cut_short() {
    let servers = servers(3);
    let locker = builder(&servers).connect().await.expect("three nodes");
    let error = locker.try_lock("x").await.expect_err("they are new");
    assert!(matches!(error, Error::Quarantined { .. }), "{error}");
    let waits = |node| marker(node).is_some_and(|marker| marker.starts_with("forming "));
    eventually_async("every node waits", async || servers.iter().all(waits)).await;
    assert_eq!(states(&init(&servers, false).await), ["quarantined"; 3]);
    assert!(servers.iter().all(waits), "nothing was changed");
    assert_eq!(states(&init(&servers, true).await), ["marked"; 3]);
    drop(locker.try_lock("x").await.expect("no quarantine"));

    servers[1].restart();
    let back = |node| marker(node).is_some_and(|marker| marker.starts_with("formed "));
    eventually_async("it is taken back", async || back(&servers[1])).await;
    let before = marker(&servers[1]);
    assert_eq!(states(&init(&servers, false).await), ["voting", "quarantined", "voting"]);
    assert_eq!(marker(&servers[1]), before, "nothing was changed");
}

/// One that is marked by itself would be a set of its own.
#[test]
async fn the_whole_set_is_looked_at() {
    let servers = servers(3);
    init(&servers, false).await;
    servers[1].restart();
    assert_eq!(states(&init(&servers, false).await), ["voting", "emptied", "voting"]);
    assert_eq!(marker(&servers[1]), None, "nothing was changed");
    assert_eq!(states(&init(&servers[..1], false).await), ["other set"]);
    assert!(votes_for(&servers[0], &servers), "nothing was changed");
}

#[test]
async fn a_lock_on_any_of_them_keeps_all_from_being_marked() {
    let servers = servers(3);
    init(&servers, false).await;
    let locker = builder(&servers).connect().await.expect("three nodes");
    let guard = locker.try_lock("held").await.expect("no quarantine");
    // Nobody is there to take the server back.
    let token = guard.into_token().expect("held");
    drop(locker);
    servers[1].restart();
    let nodes = init(&servers, false).await;
    assert_eq!(states(&nodes), ["holds locks", "emptied", "holds locks"]);
    let InitState::Refused(Refusal::HoldsLocks(names)) = &nodes[0].state else { panic!() };
    assert_eq!(names.iter().map(ToString::to_string).collect::<Vec<_>>(), ["held"]);
    assert_eq!(marker(&servers[1]), None, "nothing was changed");

    // The word of somebody who insists counts, and those that vote are left alone.
    assert_eq!(states(&init(&servers, true).await), ["voting", "marked", "voting"]);
    assert!(votes_for(&servers[1], &servers));
    let locker = builder(&servers).connect().await.expect("three nodes");
    let guard = locker.resume("held", token.as_str()).await.expect("two nodes have it still");
    guard.release().await.expect("released");
}

#[test]
async fn a_server_that_was_restarted_is_not_new() {
    let durable = RedisServer::builder().appendonly(true).start();
    let servers = [durable, RedisServer::start(), RedisServer::start()];
    assert_eq!(states(&init(&servers, false).await), ["marked"; 3]);
    let before = marker(&servers[0]);
    servers.iter().for_each(RedisServer::restart);
    assert_eq!(states(&init(&servers, false).await), ["restarted", "left", "left"]);
    assert_eq!((marker(&servers[0]), marker(&servers[1])), (before, None), "nothing was changed");
    assert_eq!(states(&init(&servers, true).await), ["marked"; 3]);
    assert!(votes_for(&servers[0], &servers));
}

#[test]
async fn other_settings_are_not_changed_unless_that_is_meant() {
    let servers = servers(1);
    let other = Duration::from_secs(15);
    let init_other = |force| builder(&servers).max_ttl(other).admin().init(force);
    init(&servers, false).await;
    let nodes = init_other(false).await.expect("the settings are right");
    let InitState::Refused(Refusal::OtherSettings { max_ttl, clock_ahead }) = nodes[0].state else {
        panic!("{nodes:?}")
    };
    assert_eq!((max_ttl, clock_ahead), (MAX_TTL, Duration::from_millis(300)));
    assert!(votes_for(&servers[0], &servers));
    assert_eq!(states(&init_other(true).await.expect("the settings are right")), ["marked"]);
    assert!(votes_with(&servers[0], &servers, other));
}

#[test]
async fn nothing_is_changed_while_a_server_is_away() {
    let servers = servers(3);
    servers[2].kill();
    let nodes = init(&servers, false).await;
    assert_eq!(states(&nodes), ["left", "left", "failed"]);
    let InitState::Failed(failure) = &nodes[2].state else { panic!("{nodes:?}") };
    assert_eq!(failure.kind(), FailureKind::Unreachable, "{failure}");
    assert_eq!(marker(&servers[0]), None);
    assert_eq!(states(&init(&servers, true).await), ["marked", "marked", "failed"]);
}

#[test]
async fn one_server_behind_two_urls_is_a_mistake() {
    let servers = servers(1);
    let twice = builder(&servers).nodes([servers[0].url().replace("127.0.0.1", "localhost")]);
    let error = twice.admin().init(true).await.expect_err("it is the same");
    assert!(matches!(error, Error::Misuse { .. }), "{error}");
    assert_eq!(marker(&servers[0]), None);
}

#[test]
async fn the_redlock_dialect_has_no_marker() {
    let servers = servers(1);
    let nodes = builder(&servers)
        .redis(quorlock::RedisOptions::default().dialect(Dialect::Redlock))
        .admin()
        .init(false)
        .await;
    assert_eq!(states(&nodes.expect("the settings are right")), ["not needed"]);
    assert_eq!(marker(&servers[0]), None);
}

#[test]
async fn the_marker_is_that_of_the_prefix() {
    let servers = servers(1);
    let nodes = builder(&servers)
        .redis(quorlock::RedisOptions::default().prefix("app:"))
        .admin()
        .init(false)
        .await;
    assert_eq!(states(&nodes.expect("the settings are right")), ["marked"]);
    assert_eq!(servers[0].command(&["EXISTS", "app::quorlock:set"]), Reply::Int(1));
    assert_eq!(marker(&servers[0]), None);
}

/// Two operators with lists that share two nodes. Each comes first to one of those, and has a majority with the node
/// that is in its own list alone.
#[test]
async fn two_lists_that_are_marked_at_the_same_moment_do_not_both_vote() {
    let servers = servers(4);
    let (one, other) = (&servers[..3], &servers[1..]);
    let ways = [1, 2].map(|shared| Proxy::in_front_of(servers[shared].addr()));
    for way in &ways {
        way.delay(Duration::from_millis(30));
    }
    let late_to = |set: &[RedisServer], late: usize, way: &Proxy| {
        let mut urls: Vec<_> = set.iter().map(RedisServer::url).collect();
        urls[late] = way.url();
        builder_of(urls).admin().init(false)
    };
    for _ in 0..8 {
        let (first, second) = tokio::join!(late_to(one, 1, &ways[0]), late_to(other, 1, &ways[1]));
        let votes = |set: &[RedisServer]| set.iter().filter(|it| votes_for(it, set)).count();
        assert!(votes(one) < 2 || votes(other) < 2, "{first:?} and {second:?}");
        for server in &servers {
            assert_eq!(server.command(&["FLUSHALL"]), Reply::Simple("OK".into()));
        }
    }
}
