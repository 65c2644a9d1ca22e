//! A holder stores its record again on a server that has forgotten it, while its lease there lasts.

use quorlock::{Dialect, Error, Guard, Locker};
use quorlock_testkit::{Proxy, RedisServer, eventually_async as eventually, test};

use crate::world::{QUARANTINE, World, is_held};
use crate::{BOTH, NAME};

/// Takes the lock, and lets every server say that it keeps it.
async fn held_everywhere(locker: &Locker) -> Guard {
    let guard = locker.try_lock(NAME).fixed().await.expect("free");
    guard.extend().await.expect("extended");
    // Each server answers in order: what it said to the extension has come.
    let status = locker.inspect(NAME).await.expect("a status");
    assert!(status.nodes.iter().all(|node| matches!(node.record, Ok(Some(_)))), "{status:?}");
    guard
}

async fn holds(locker: &Locker, node: usize) -> bool {
    let status = locker.inspect(NAME).await.expect("a status");
    matches!(status.nodes[node].record, Ok(Some(_)))
}

/// Cuts a client off from the third server.
async fn cut_off(way: &Proxy, locker: &Locker) {
    way.refuse(true);
    way.cut();
    eventually("it is known to be away", async || {
        let status = locker.inspect(NAME).await.expect("a status");
        status.nodes[2].record.is_err()
    })
    .await;
}

#[test]
async fn the_next_extension_stores_it_and_no_vote_comes_of_it() {
    for dialect in BOTH {
        let world = World::new(dialect).await;
        let (first, second) = (world.client().await, world.client().await);
        let guard = held_everywhere(&first).await;
        world.servers[1].restart_empty();
        world.all_reached_by(&first).await;
        assert!(!is_held(&world.servers[1]));

        guard.extend().await.expect("two of three at least");
        assert_eq!(holds(&first, 1).await, dialect == Dialect::Strict);
        if dialect == Dialect::Redlock {
            continue;
        }
        // Now it stands on this server as well: it may lose another.
        world.servers[2].kill();
        guard.extend().await.expect("two of three, one of them healed");
        world.servers[2].restart();
        guard.release().await.expect("released");
        eventually("it is free there", async || !is_held(&world.servers[1])).await;

        // The third came back empty too, but for the first.
        world.all_reached_by(&second).await;
        let error = second.try_lock(NAME).await.expect_err("two that may have forgotten");
        assert!(matches!(error, Error::Quarantined { .. }), "{error:?}");
        world.pass(QUARANTINE);
        eventually("they vote again", async || second.try_lock(NAME).await.is_ok()).await;
    }
}

/// The server has its record back from its file, and casts no vote. The record counts for whose lease
/// there has not run out, and not for whose lease has been extended without it since: that one may be
/// somebody else's by right, and the file too old to know.
#[test]
async fn a_record_that_came_back_counts_only_for_a_holder_that_has_a_lease_on_it() {
    for (dialect, away) in
        BOTH.into_iter().flat_map(|dialect| [false, true].map(|away| (dialect, away)))
    {
        let world = World::with(dialect, |server| server.appendonly(true)).await;
        let way = Proxy::in_front_of(world.servers[2].addr());
        let urls = [world.servers[0].url(), world.servers[1].url(), way.url()];
        let first = world.builder().nodes(urls).connect().await.expect("servers that are up");
        let guard = held_everywhere(&first).await;
        if away {
            cut_off(&way, &first).await;
            guard.extend().await.expect("two of three");
        }
        world.servers[2].restart();
        assert!(is_held(&world.servers[2]), "it has it from its file");
        way.refuse(false);
        world.all_reached_by(&first).await;

        world.servers[1].kill();
        let extended = guard.extend().await;
        // The other dialect does not know what a server may have forgotten.
        let counts = !away || dialect == Dialect::Redlock;
        assert_eq!(extended.is_ok(), counts, "{dialect:?}, {away}: {extended:?}");
    }
}

/// Its lease has been extended without this server since: there, the old one does not count.
#[test]
async fn a_holder_without_a_lease_on_a_server_stores_nothing_there() {
    let world = World::new(Dialect::Strict).await;
    let way = Proxy::in_front_of(world.servers[2].addr());
    let urls = [world.servers[0].url(), world.servers[1].url(), way.url()];
    let first = world.builder().nodes(urls).connect().await.expect("servers that are up");
    let guard = held_everywhere(&first).await;

    cut_off(&way, &first).await;
    guard.extend().await.expect("two of three");
    assert!(is_held(&world.servers[2]), "it still has what it was told before");
    world.servers[2].restart_empty();
    way.refuse(false);
    world.all_reached_by(&first).await;

    guard.extend().await.expect("two of three");
    assert!(!holds(&first, 2).await, "nobody has looked after it there");
    let held: Vec<bool> =
        world.servers.iter().map(|server: &RedisServer| is_held(server)).collect();
    assert_eq!(held, [true, true, false]);
}
