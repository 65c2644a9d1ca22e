//! All clients of a server have to agree on the longest TTL, for which it casts no vote when it has forgotten
//! some, and on how far its clock may be ahead, which each takes off its lease for all others.

use std::time::Duration;

use quorlock::{Builder, Dialect, Error};
use quorlock_testkit::{RedisServer, test};

use crate::NAME;
use crate::world::{AHEAD, BEHIND, TTL, World};

async fn is_refused(world: &World, other: Builder, says: &[&str]) {
    let locker = other.nodes(world.urls()).connect().await.expect("servers that are up");
    let error = locker.try_lock(NAME).await.expect_err("other settings");
    assert!(matches!(error, Error::Misuse { .. }), "{error:?}");
    for part in says {
        assert!(error.to_string().contains(part), "no {part:?} in: {error}");
    }
}

#[test]
async fn a_client_with_other_settings_is_refused_and_told_both() {
    let world = World::new(Dialect::Strict).await;
    let second = Duration::from_secs(1);
    let shorter = world.builder().ttl(10 * second).max_ttl(10 * second);
    is_refused(&world, shorter, &["max_ttl of 20s", "max_ttl of 10s"]).await;
    let longer = world.builder().max_ttl(40 * second);
    is_refused(&world, longer, &["max_ttl of 20s", "max_ttl of 40s"]).await;
    for ahead in [3, 5] {
        let says = ["at most 4s ahead", &format!("at most {ahead}s ahead")];
        let options = world.options().clock_window(BEHIND, ahead * second);
        is_refused(&world, world.builder().redis(options), &says).await;
    }
    // How far it may be behind is each one's own affair.
    let builder =
        world.builder().redis(world.options().clock_window(second, AHEAD)).nodes(world.urls());
    let guard = builder.connect().await.expect("up").try_lock(NAME).await.expect("free");
    guard.release().await.expect("released");
}

/// Those who come first after a server has forgotten may have a shorter TTL than those it has served.
#[test]
async fn a_server_that_was_started_again_counts_by_the_longer_ttl() {
    let world = World::with(Dialect::Strict, |server| server.appendonly(true)).await;
    world.servers.iter().for_each(RedisServer::restart);
    let short = Duration::from_secs(10);
    let builder = world.builder().ttl(short).max_ttl(short).nodes(world.urls());
    builder.connect().await.expect("up").try_lock(NAME).await.expect_err("another max_ttl");
    let status = world.client().await.inspect(NAME).await.expect("a status");
    for node in &status.nodes {
        assert!(node.quarantine.expect("no vote yet") > TTL, "{node:?}");
    }
}
