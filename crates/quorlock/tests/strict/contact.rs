//! The time for which a server casts no vote that may have forgotten some begins with any contact, not with the
//! first who wants a lock.

use quorlock::Dialect;
use quorlock::admin::examine::Severity;
use quorlock_testkit::{RedisServer, Reply, eventually_async as eventually, test};

use crate::NAME;
use crate::world::{QUARANTINE, TTL, World, marker, server_us};

fn forgets(server: &RedisServer) {
    assert_eq!(server.command(&["FLUSHALL"]), Reply::Simple("OK".into()));
}

/// Whether the time without votes runs on the server, and ends in the time that it has to take.
fn counts(server: &RedisServer) -> bool {
    let Some(marker) = marker(server) else { return false };
    let parts: Vec<_> = marker.split(' ').collect();
    if !matches!(parts[0], "formed" | "forming") {
        return false;
    }
    let from_us: u64 = parts[3].parse().expect("a time");
    let left = std::time::Duration::from_micros(from_us.saturating_sub(server_us(server)));
    assert!(left < QUARANTINE, "{marker}");
    // One that has been voting all the time has a moment of long ago.
    left > TTL / 2
}

/// A client that was connected before, and only looks at a lock.
#[test]
async fn a_look_at_a_lock_begins_it() {
    let world = World::new(Dialect::Strict).await;
    let locker = world.client().await;
    world.all_reached_by(&locker).await;
    forgets(&world.servers[1]);
    locker.inspect(NAME).await.expect("a status");
    eventually("it counts", async || counts(&world.servers[1])).await;
    let begun = marker(&world.servers[1]);
    for _ in 0..3 {
        let status = locker.inspect(NAME).await.expect("a status");
        assert!(status.nodes[1].quarantine.is_some_and(|left| left < QUARANTINE), "{status:?}");
    }
    assert_eq!(marker(&world.servers[1]), begun, "what has begun is left alone");
}

/// A client that holds a lock and asks for nothing else, or for nothing at all.
#[test]
async fn a_client_that_asks_for_nothing_begins_it() {
    let world = World::new(Dialect::Strict).await;
    let locker = world.client().await;
    world.all_reached_by(&locker).await;
    let _guard = locker.try_lock(NAME).await.expect("free");
    world.hurry();
    forgets(&world.servers[2]);
    eventually("it counts", async || counts(&world.servers[2])).await;
}

/// A client that connects, and is gone at once.
#[test]
async fn a_connection_begins_it() {
    let world = World::new(Dialect::Strict).await;
    for server in &world.servers {
        server.restart();
    }
    drop(world.client().await);
    for server in &world.servers {
        assert!(counts(server), "{:?}", marker(server));
    }
    // Nobody has to be there while it passes.
    world.pass(QUARANTINE);
    let locker = world.client().await;
    locker.try_lock(NAME).await.expect("they vote").release().await.expect("released");
}

#[test]
async fn the_doctor_begins_it_and_says_when_it_ends() {
    let world = World::with(Dialect::Strict, |server| server.appendonly(true)).await;
    let examine = async || {
        let checkup =
            world.builder().nodes(world.urls()).admin().examine(NAME).await.expect("settings");
        let of = |node: usize| {
            let findings = &checkup.nodes[node].findings;
            let found = findings.iter().find(|finding| finding.check == "marker");
            let found = found.expect("a finding");
            (found.severity, found.text.clone())
        };
        [of(0), of(1), of(2)]
    };
    world.servers[0].restart();
    forgets(&world.servers[1]);
    let [restarted, emptied, votes] = examine().await;
    assert_eq!((restarted.0, emptied.0, votes.0), (Severity::Error, Severity::Error, Severity::Ok));
    for (_, text) in [&restarted, &emptied] {
        assert!(text.contains("it votes in 2") && text.contains("begin with this look"), "{text}");
    }
    assert!(counts(&world.servers[0]) && counts(&world.servers[1]));
    let begun = marker(&world.servers[1]);
    let [_, emptied, _] = examine().await;
    assert!(emptied.1.contains("its set of nodes is new"), "{}", emptied.1);
    assert_eq!(marker(&world.servers[1]), begun, "what has begun is left alone");
}

/// Who may only look is told so, and sees all the rest.
#[test]
async fn a_reader_begins_nothing_and_sees_everything() {
    let world = World::new(Dialect::Strict).await;
    forgets(&world.servers[1]);
    let urls = world.servers.iter().map(|server| {
        let rights = ["~*", "&*", "+@all", "-@write", "+evalsha", "+eval"];
        let mut command = vec!["ACL", "SETUSER", "reader", "reset", "on", ">looks"];
        command.extend(rights);
        assert_eq!(server.command(&command), Reply::Simple("OK".into()));
        format!("redis://reader:looks@{}", server.addr())
    });
    let urls: Vec<_> = urls.collect();
    let locker = world.builder().nodes(&urls).connect().await.expect("rights to look");
    world.all_reached_by(&locker).await;
    let status = locker.inspect(NAME).await.expect("a status");
    assert!(status.nodes[1].quarantine.is_some() && status.nodes[0].quarantine.is_none());
    assert_eq!(locker.list().await.expect("a list").len(), 0);
    let checkup = world.builder().nodes(&urls).admin().examine(NAME).await.expect("settings");
    let found = checkup.nodes[1].findings.iter().find(|finding| finding.check == "marker");
    let text = &found.expect("a finding").text;
    assert!(text.contains("nothing counts yet") && text.contains("give the user"), "{text}");
    assert_eq!(marker(&world.servers[1]), None);
}
