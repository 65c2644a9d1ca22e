//! What clients see to while they are connected: names that nobody uses go by themselves, and a server that is
//! set up otherwise than at its greeting is noticed.

use std::time::Duration;

use quorlock::{Dialect, Locker};
use quorlock_testkit::{Logs, RedisServer, Reply, eventually_async as eventually, test};

use crate::NAME;
use crate::evicting::{BYTES, press, set_policy, thrown_away};
use crate::running_full::fill;
use crate::world::{AHEAD, World, is_held, marker, server_us, text};

const HOUR: Duration = Duration::from_secs(60 * 60);

fn exists(server: &RedisServer, key: &str) -> bool {
    server.command(&["EXISTS", key]) == Reply::Int(1)
}

/// How often it was tended.
fn tended(server: &RedisServer) -> u64 {
    let calls = server.info("commandstats", "cmdstat_eval").expect("it was");
    let calls = calls.strip_prefix("calls=").and_then(|calls| calls.split(',').next());
    calls.expect("a count").parse().expect("a number")
}

/// Waits until clients have tended every server several times more.
async fn all_tended(world: &World) {
    let before: Vec<_> = world.servers.iter().map(tended).collect();
    eventually("they are tended", async || {
        world.servers.iter().zip(&before).all(|(server, before)| tended(server) > before + 3)
    })
    .await;
}

/// Waits until clients have gone through all keys of every server since.
async fn all_swept(world: &World) {
    let sweep = |server| text(server, ":quorlock:sweep");
    let mut before: Vec<_> = world.servers.iter().map(sweep).collect();
    for _ in 0..2 {
        eventually("they are swept", async || {
            world.servers.iter().zip(&before).all(|(server, before)| sweep(server) != *before)
        })
        .await;
        before = world.servers.iter().map(sweep).collect();
    }
}

async fn taken_and_released(locker: &Locker, name: &str) {
    locker.try_lock(name).await.expect("free").release().await.expect("released");
}

async fn on_all(world: &World, name: &str) {
    eventually("all have it", async || world.servers.iter().all(|it| exists(it, name))).await;
}

#[test]
async fn names_that_nobody_has_used_for_a_day_go_and_no_others() {
    let world = World::new(Dialect::Strict).await;
    world.hurry();
    let locker = world.client().await;
    world.all_reached_by(&locker).await;
    taken_and_released(&locker, "freed").await;
    // As if its holder had crashed.
    locker.try_lock("left").await.expect("free").into_token().expect("a token");
    for name in ["freed", "left"] {
        on_all(&world, name).await;
    }
    let ahead = "quorlock 9000000000000000-x 0 0 0";
    for (key, value) in [("ahead", ahead), ("story", "quorlock 17 is no lock"), ("other", "x")] {
        world.servers[0].command(&["SET", key, value]);
    }

    world.pass(23 * HOUR);
    all_swept(&world).await;
    for name in ["freed", "left"] {
        assert!(
            world.servers.iter().all(|server| exists(server, name)),
            "{name} has not had its day"
        );
    }

    world.pass(2 * HOUR);
    // One that has been held and extended for longer than a day: its fence is old, and its end is not.
    let now_us = server_us(&world.servers[0]);
    let (fence, seconds) = (now_us - 25 * 3_600_000_000, now_us / 1_000_000);
    let long = format!("quorlock {fence} ql:long {seconds} 0 20000");
    world.servers[0].command(&["SET", "long", &long]);
    taken_and_released(&locker, "recent").await;
    let held = locker.try_lock("held").fixed().await.expect("free");
    on_all(&world, "recent").await;
    on_all(&world, "held").await;
    for name in ["freed", "left"] {
        let gone = async || !world.servers.iter().any(|server| exists(server, name));
        eventually(&format!("{name} is gone"), gone).await;
    }
    all_swept(&world).await;
    for name in ["recent", "held"] {
        assert!(world.servers.iter().all(|server| exists(server, name)), "{name} is in use");
    }
    assert!(exists(&world.servers[0], "long"), "somebody holds it");
    for key in ["ahead", "story", "other"] {
        assert!(exists(&world.servers[0], key), "{key} is nobody's business");
    }
    assert!(held.is_held());
}

/// A client that comes for one lock alone, as commands do, clears names away too.
#[test]
async fn a_client_that_does_not_stay_clears_them_away_as_well() {
    let world = World::new(Dialect::Strict).await;
    let locker = world.client().await;
    world.all_reached_by(&locker).await;
    taken_and_released(&locker, "freed").await;
    on_all(&world, "freed").await;
    locker.shutdown().await;
    drop(locker);
    world.pass(25 * HOUR);
    eventually("it is gone", async || {
        let locker = world.client().await;
        taken_and_released(&locker, "another").await;
        locker.shutdown().await;
        !world.servers.iter().any(|server| exists(server, "freed"))
    })
    .await;
}

/// A clock that is wrong by more than a day for a moment takes away nothing that is held.
#[test]
async fn a_clock_that_jumps_ahead_by_days_and_back_takes_nothing_away() {
    let world = World::new(Dialect::Strict).await;
    world.hurry();
    let (holder, second) = (world.holder_of_two().await, world.client().await);
    world.all_reached_by(&second).await;
    let server = &world.servers[1];
    server.clock().jump_ms(3 * 24 * 3_600_000);
    all_tended(&world).await;
    server.clock().jump_ms(-3 * 24 * 3_600_000);
    all_tended(&world).await;
    assert!(is_held(server));
    second.try_lock(NAME).await.expect_err("taken");
    assert!(holder.guard.is_held());
}

/// Waits until a client finds a server unfit, with this in the reason.
async fn refused(locker: &Locker, why: &str) {
    eventually("it is refused", async || {
        let status = locker.inspect(NAME).await.expect("a status");
        status.nodes[1].record.as_ref().is_err_and(|failure| failure.to_string().contains(why))
    })
    .await;
}

#[test]
async fn a_server_that_may_throw_locks_away_from_now_on_is_refused_until_it_may_not() {
    let world = World::with(Dialect::Strict, |it| it.maxmemory(1 << 30, "noeviction")).await;
    world.hurry();
    let locker = world.client().await;
    world.all_reached_by(&locker).await;
    for policy in ["allkeys-lru", "volatile-ttl"] {
        set_policy(&world.servers[1], policy);
        refused(&locker, policy).await;
        set_policy(&world.servers[1], "noeviction");
        world.all_reached_by(&locker).await;
    }
}

#[test]
async fn a_server_that_has_become_a_replica_is_refused() {
    for dialect in crate::BOTH {
        let world = World::new(dialect).await;
        world.hurry();
        let locker = world.client().await;
        world.all_reached_by(&locker).await;
        let nobody = world.servers[0].port().to_string();
        world.servers[0].kill();
        let became = world.servers[1].command(&["REPLICAOF", "127.0.0.1", &nobody]);
        assert_eq!(became, Reply::Simple("OK".into()));
        refused(&locker, "name its primary instead").await;
        assert_eq!(
            world.servers[1].command(&["REPLICAOF", "NO", "ONE"]),
            Reply::Simple("OK".into())
        );
        world.reached_by(&locker, |reached| reached == [false, true, true]).await;
    }
}

/// Nobody knows which keys they were: it counts as emptied.
#[test]
async fn a_server_that_has_thrown_keys_away_casts_no_vote_for_a_while() {
    throws_away(true).await;
}

#[test]
async fn a_server_that_has_thrown_keys_away_unseen_casts_no_vote_for_a_while() {
    throws_away(false).await;
}

/// Has a client connect anew, which looks at once, and knows what was thrown away before.
fn connect_anew(server: &RedisServer) {
    assert_eq!(server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]), Reply::Int(1));
}

/// Under pressure, for a moment in which it may.
async fn throw_keys_away(server: &RedisServer) {
    set_policy(server, "volatile-random");
    press(server).await;
    set_policy(server, "noeviction");
}

async fn throws_away(look_meanwhile: bool) {
    let world = World::with(Dialect::Strict, |it| it.maxmemory(BYTES, "noeviction")).await;
    let logs = Logs::new();
    if look_meanwhile {
        world.hurry();
    }
    let locker = world.client().await;
    world.all_reached_by(&locker).await;
    let server = &world.servers[1];
    let before = marker(server).expect("it votes");
    // The marker itself is none of them.
    throw_keys_away(server).await;
    if !look_meanwhile {
        connect_anew(server);
    }
    eventually("it counts as emptied", async || {
        drop(locker.try_lock("asked").await);
        let status = locker.inspect("asked").await.expect("a status");
        status.nodes[1].quarantine.is_some() && marker(server).as_ref() != Some(&before)
    })
    .await;
    assert!(logs.warns_of("thrown away"), "{:?}", logs.lines());
}

/// The count begins anew with each start of a server. One that a file has brought back from an earlier start may
/// be the same, and is about other keys.
#[test]
async fn as_many_keys_as_an_earlier_start_has_thrown_away_are_noticed() {
    let world = World::with(Dialect::Strict, |it| it.maxmemory(BYTES, "noeviction")).await;
    let locker = world.client().await;
    world.all_reached_by(&locker).await;
    let server = &world.servers[1];
    let before = marker(server).expect("it votes");
    throw_keys_away(server).await;
    let known = format!("0 {} {} {}", server_us(server), thrown_away(server), "f".repeat(40));
    server.command(&["SET", ":quorlock:sweep", &known]);
    connect_anew(server);
    eventually("it counts as emptied", async || marker(server).as_ref() != Some(&before)).await;
    let seen = format!(" {} {}", thrown_away(server), server.run_id());
    let sweep = text(server, ":quorlock:sweep").expect("it is noted");
    assert!(sweep.ends_with(&seen), "{sweep}");
}

/// One whose set forms may have granted locks of an earlier set: it counts as emptied, and its quarantine begins anew.
#[test]
async fn a_server_that_has_thrown_keys_away_while_its_set_forms_counts_as_emptied() {
    let world = World::unused(Dialect::Strict, |it| it.maxmemory(BYTES, "noeviction"));
    let locker = world.client().await;
    world.all_reached_by(&locker).await;
    let forms = |server| marker(server).is_some_and(|marker| marker.starts_with("forming "));
    eventually("the set forms", async || {
        drop(locker.try_lock(NAME).await);
        world.servers.iter().all(forms)
    })
    .await;
    let server = &world.servers[1];
    let before = marker(server);
    throw_keys_away(server).await;
    connect_anew(server);
    eventually("it has forgotten", async || marker(server) != before).await;
}

/// A server that a change of the set has closed stays closed for good: without its marker it would count as empty, and
/// could be taken back into the set that was replaced.
#[test]
async fn a_closed_server_that_has_thrown_keys_away_stays_closed() {
    let world = World::with(Dialect::Strict, |it| it.maxmemory(BYTES, "noeviction")).await;
    let locker = world.client().await;
    world.all_reached_by(&locker).await;
    let server = &world.servers[1];
    let closed = marker(server).expect("it votes").replacen("formed ", "closed ", 1);
    server.command(&["SET", ":quorlock:set", &closed]);
    throw_keys_away(server).await;
    connect_anew(server);
    let counted = || text(server, SWEEP).is_some_and(|sweep| sweep.split(' ').nth(2) != Some("0"));
    eventually("it is noticed", async || counted()).await;
    assert_eq!(marker(server), Some(closed));
}

/// All clients together take one step a second, by the server's clock, to the microsecond.
#[test]
async fn a_step_is_taken_by_a_clock_that_is_right_and_the_next_is_due_a_second_later() {
    let world = World::new(Dialect::Strict).await;
    world.stop_clocks();
    let server = &world.servers[0];
    // Late in a second: a script that counts its microseconds wrongly is outside of the window.
    let ms = server_us(server) / 1_000 % 1_000;
    world.pass(Duration::from_millis(1_900 - ms));
    let sweep = || text(server, SWEEP).unwrap_or_default();
    // What is known of keys that were thrown away stays there.
    let due = |us: u64| format!("0 {us} 5 earlier");
    let now = server_us(server);
    // One that was written down long ago, and one by a clock that was ahead by far.
    for earlier in [now, now + 10_000_001] {
        server.command(&["SET", SWEEP, &due(earlier)]);
        tend_once(&world).await;
        eventually("a step is taken", async || sweep() == due(now + 1_000_000)).await;
    }
    for not_yet in [now + 1, now + 10_000_000] {
        server.command(&["SET", SWEEP, &due(not_yet)]);
        let before = tended(server);
        tend_once(&world).await;
        eventually("it is tended", async || tended(server) > before).await;
        assert_eq!(sweep(), due(not_yet), "it is not due");
    }
    // Each goes on where the last one has ended.
    for index in 0..2_000 {
        server.command(&["SET", &format!("of somebody else {index}"), "x"]);
    }
    let (mut cursors, mut after) = (Vec::new(), due(now));
    for _ in 0..3 {
        server.command(&["SET", SWEEP, &after]);
        tend_once(&world).await;
        eventually("a step is taken", async || sweep() != after).await;
        let cursor = sweep().split(' ').next().expect("a cursor").to_owned();
        after = format!("{cursor} {now} 5 earlier");
        assert!(!cursors.contains(&cursor), "{cursor} and before it {cursors:?}");
        cursors.push(cursor);
    }
}

const SWEEP: &str = ":quorlock:sweep";

/// A client comes and goes whose servers may be behind by a tenth of a second.
async fn tend_once(world: &World) {
    let builder =
        world.builder().redis(world.options().clock_window(Duration::from_millis(100), AHEAD));
    let locker = builder.nodes(world.urls()).connect().await.expect("servers that are up");
    world.all_reached_by(&locker).await;
}

/// A name goes when its end and its fence are more than a day old, to the microsecond.
#[test]
async fn a_name_has_its_whole_day() {
    let world = World::new(Dialect::Strict).await;
    world.stop_clocks();
    let server = &world.servers[0];
    let old = server_us(server) - 24 * 3_600_000_000;
    for (key, fence, end) in
        [("gone", old - 1, old - 1), ("fence", old, old - 1), ("end", old - 1, old)]
    {
        // By a TTL of an hour.
        let since = end - 3_600_000_000;
        let (seconds, micros) = (since / 1_000_000, since % 1_000_000);
        let record = format!("quorlock {fence:016} ql:x {seconds} {micros} 3600000");
        server.command(&["SET", key, &record]);
    }
    server.command(&["DEL", SWEEP]);
    tend_once(&world).await;
    eventually("one is gone", async || !exists(server, "gone")).await;
    assert!(exists(server, "fence") && exists(server, "end"));
}

/// A server whose memory is full needs the room of old names more than any other.
#[test]
async fn names_go_where_the_memory_is_full() {
    let world = World::new(Dialect::Strict).await;
    world.hurry();
    let locker = world.client().await;
    world.all_reached_by(&locker).await;
    taken_and_released(&locker, "freed").await;
    on_all(&world, "freed").await;
    world.servers.iter().for_each(fill);
    world.pass(25 * HOUR);
    let gone = async || !world.servers.iter().any(|server| exists(server, "freed"));
    eventually("it is gone", gone).await;
}

/// The next step comes soon if more than a quarter of what was looked at is cleared away.
#[test]
async fn the_next_step_is_due_soon_where_there_is_much_to_clear_away() {
    let world = World::new(Dialect::Strict).await;
    world.stop_clocks();
    let server = &world.servers[0];
    let now = server_us(server);
    for (others, due) in [(0, now + 100_000), (1, now + 1_000_000)] {
        // Beside the marker and where the walk goes on.
        server.command(&["DEL", "marks"]);
        for other in 0..others {
            server.command(&["SET", &format!("other {other}"), "x"]);
        }
        server.command(&["SET", "gone", "quorlock 0000000000000001-x 1 0 0"]);
        server.command(&["SET", SWEEP, &format!("0 {now} 5 earlier")]);
        tend_once(&world).await;
        eventually("it is gone", async || !exists(server, "gone")).await;
        assert_eq!(text(server, SWEEP), Some(format!("0 {due} 5 earlier")), "{others}");
    }
}
