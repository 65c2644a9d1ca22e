//! A server that throws keys away when it has no room loses votes without a trace.

use quorlock::{Dialect, Error};
use quorlock_testkit::{Logs, RedisServer, Reply, eventually_async as eventually, test};

use crate::NAME;
use crate::world::{World, assert_both_hold, is_held};

/// What a server needs by itself, and some room.
pub(crate) const BYTES: u64 = 3_000_000;

fn evicting() -> RedisServer {
    RedisServer::builder().own_clock().maxmemory(BYTES, "volatile-lru").start()
}

#[test]
async fn it_is_refused() {
    let mut world = World::unused(Dialect::Strict, |server| server);
    world.servers[1] = RedisServer::builder().own_clock().maxmemory(BYTES, "noeviction").start();
    world.mark(world.builder(), world.options()).await;
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

/// How many keys a server has thrown away.
pub(crate) fn thrown_away(server: &RedisServer) -> u64 {
    let count = server.info("stats", "evicted_keys").expect("a count");
    count.parse().expect("a number")
}

pub(crate) fn set_policy(server: &RedisServer, policy: &str) {
    let set = server.command(&["CONFIG", "SET", "maxmemory-policy", policy]);
    assert_eq!(set, Reply::Simple("OK".into()));
}

/// Has a server throw away many times as many keys as it has room for.
pub(crate) async fn press(server: &RedisServer) {
    let (mut filler, before) = (0, thrown_away(server));
    eventually("keys are thrown away", async || {
        for _ in 0..100 {
            filler += 1;
            let (key, value) = (format!("filler {filler}"), "x".repeat(10_000));
            server.command(&["SET", &key, &value, "PX", "3600000"]);
        }
        thrown_away(server) > before + 1_000
    })
    .await;
}

/// After the greeting, for a moment, while somebody needs the room: what is held has no end by the server's
/// clock, and is none of the keys that it may throw away.
#[test]
async fn a_policy_that_is_switched_for_a_moment_takes_away_nothing_that_is_held() {
    let world = World::with(Dialect::Strict, |it| it.maxmemory(BYTES, "noeviction")).await;
    let (first, second) = (world.holder_of_two().await, world.client().await);
    let server = &world.servers[1];
    for policy in ["volatile-lru", "volatile-ttl", "volatile-random"] {
        set_policy(server, policy);
        press(server).await;
        set_policy(server, "noeviction");
        assert!(is_held(server), "thrown away by {policy}");
    }
    second.try_lock(NAME).await.expect_err("taken");
    assert!(first.guard.is_held());
}

#[test]
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
