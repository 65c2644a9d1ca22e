//! A server whose memory is full takes no new locks. What it keeps it extends and releases.

use quorlock_testkit::{RedisServer, Reply, eventually_async as eventually, test};

use crate::world::{World, is_held};
use crate::{BOTH, NAME};

pub(crate) fn fill(server: &RedisServer) {
    let limit = server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(limit, Reply::Simple("OK".into()));
    let Reply::Error(full) = server.command(&["SET", "more", "of it"]) else { panic!("not full") };
    assert!(full.starts_with("OOM"), "{full}");
}

#[test]
async fn what_is_held_is_extended_and_released() {
    for dialect in BOTH {
        let world = World::new(dialect).await;
        let locker = world.client().await;
        let guard = locker.try_lock(NAME).fixed().await.expect("free");
        world.servers.iter().for_each(fill);
        let error = locker.try_lock("new").await.expect_err("no room").to_string();
        assert!(error.contains("raise maxmemory"), "{error}");
        guard.extend().await.expect("it takes no more room than before");
        guard.release().await.expect("nor does this");
        eventually("it is free everywhere", async || !world.servers.iter().any(is_held)).await;
    }
}
