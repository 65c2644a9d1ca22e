//! A server that throws keys away when it has no room loses votes without a trace.

use quorlock::{Dialect, Error};
use quorlock_testkit::{RedisServer, Reply, eventually_async as eventually};

use crate::NAME;
use crate::logs::Logs;
use crate::world::{World, assert_both_hold, is_held};

/// What a server needs by itself, and some room.
const BYTES: u64 = 3_000_000;

fn evicting() -> RedisServer {
    RedisServer::builder().own_clock().maxmemory(BYTES, "volatile-lru").start()
}

#[tokio::test]
async fn it_is_refused() {
    let mut world = World::unused(Dialect::Strict, |server| server);
    world.servers[1] = RedisServer::builder().own_clock().maxmemory(BYTES, "noeviction").start();
    world.mark(world.builder()).await;
    let set = |policy| {
        let command = ["CONFIG", "SET", "maxmemory-policy", policy];
        assert_eq!(world.servers[1].command(&command), Reply::Simple("OK".into()));
    };
    set("volatile-lru");
    let url = world.servers[1].url();
    let error = world.builder().nodes([&url]).connect().await.expect_err("it evicts");
    assert!(matches!(error, Error::NoQuorum { have: 0, .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("volatile-lru") && text.contains("set noeviction"), "{text}");

    let (first, second) = (world.client().await, world.client().await);
    let guard = first.try_lock(NAME).await.expect("two of three");
    assert!(!is_held(&world.servers[1]), "it was not asked");
    second.try_lock(NAME).await.expect_err("taken");
    let status = second.inspect(NAME).await.expect("a status");
    let failure = status.nodes[1].record.as_ref().expect_err("it evicts");
    assert!(failure.to_string().contains("volatile-lru"), "{failure}");
    guard.release().await.expect("two of three");

    set("noeviction");
    world.all_reached_by(&second).await;
}

#[tokio::test]
async fn in_the_redlock_dialect_it_is_warned_of_and_lets_both_in() {
    let mut world = World::new(Dialect::Redlock).await;
    world.servers[1] = evicting();
    let logs = Logs::new();
    let (first, second) = (world.holder_of_two().await, world.client().await);
    assert!(logs.warns_of("volatile-lru") && logs.warns_of("set noeviction"), "{:?}", logs.lines());
    assert!(is_held(&world.servers[1]));

    let mut filler = 0;
    eventually("the lock is thrown away", async || {
        for _ in 0..100 {
            filler += 1;
            let (key, value) = (format!("filler {filler}"), "x".repeat(10_000));
            world.servers[1].command(&["SET", &key, &value, "PX", "3600000"]);
        }
        !is_held(&world.servers[1])
    })
    .await;
    assert_both_hold(&first.guard, second.try_lock(NAME).await);
}
