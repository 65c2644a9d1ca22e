//! Fences that no holder can have been given: far above the time of day, or so large that the next one is
//! not higher. Whatever wrote them there, they do not spread.

use std::time::SystemTime;

use quorlock::node::{Answer, FailureKind, ParticipantId, Proposal, TicketNumber};
use quorlock::{Dialect, Error, Guard, Locker};
use quorlock_testkit::conformance::owner;
use quorlock_testkit::{RedisServer, Reply, eventually_async as eventually, test};

use crate::world::{TTL, World, server_us, text};
use crate::{BOTH, NAME};

const DAY_US: u64 = 86_400_000_000;

fn now_us() -> u64 {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    u64::try_from(wall.as_micros()).expect("a number")
}

/// The first fence that is not exact as a number of Lua, the last of SQLite, and a day years ahead.
fn poisons() -> [u64; 3] {
    [1 << 53, i64::MAX.unsigned_abs(), now_us() + 3_650 * DAY_US]
}

/// Where a server keeps the fence, and what is there.
fn last_fence(server: &RedisServer, dialect: Dialect) -> Option<u64> {
    let digits = match dialect {
        Dialect::Strict => {
            let record = text(server, NAME)?;
            record.strip_prefix("quorlock ")?.split([' ', '-', '+', '=']).next()?.to_owned()
        }
        _ => text(server, &format!("{NAME}:quorlock:fence"))?,
    };
    digits.parse().ok()
}

/// Whether somebody holds the lock there, however long the fence is.
fn is_taken(server: &RedisServer) -> bool {
    text(server, NAME).is_some_and(|record| match record.strip_prefix("quorlock ") {
        Some(record) => {
            record.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with([' ', '+'])
        }
        None => true,
    })
}

/// Puts a fence in the place of the one that a server has given out last.
fn poison(server: &RedisServer, dialect: Dialect, poison: u64) {
    let set = match dialect {
        Dialect::Strict => {
            let record = text(server, NAME).expect("a record");
            let rest = record.get(25..).expect("what follows the fence");
            server.command(&["SET", NAME, &format!("quorlock {poison:016}{rest}")])
        }
        _ => server.command(&["SET", &format!("{NAME}:quorlock:fence"), &poison.to_string()]),
    };
    assert_eq!(set, Reply::Simple("OK".into()));
}

async fn take(locker: &Locker) -> Guard {
    locker.lock(NAME).wait(TTL).await.expect("two of three are sound")
}

async fn next_fence(locker: &Locker) -> u64 {
    let guard = take(locker).await;
    let fence = guard.fence();
    guard.release().await.expect("released");
    fence
}

/// Three servers that know the lock.
async fn used(dialect: Dialect) -> (World, Locker, Locker) {
    let world = World::new(dialect).await;
    let (first, second) = (world.client().await, world.client().await);
    world.all_reached_by(&first).await;
    world.all_reached_by(&second).await;
    next_fence(&first).await;
    eventually("all know it, and it is free", async || {
        world
            .servers
            .iter()
            .all(|server| last_fence(server, dialect).is_some() && !is_taken(server))
    })
    .await;
    (world, first, second)
}

#[test]
async fn it_is_never_adopted_and_fences_grow_without_it() {
    for dialect in BOTH {
        for high in poisons() {
            let (world, first, second) = used(dialect).await;
            poison(&world.servers[1], dialect, high);
            let mut fences = Vec::new();
            for _ in 0..3 {
                fences.push(next_fence(&first).await);
                fences.push(next_fence(&second).await);
            }
            let sound = now_us() + DAY_US;
            assert!(
                fences.is_sorted_by(|one, other| one < other),
                "{dialect:?} {high}: {fences:?}"
            );
            assert!(fences.iter().all(|fence| *fence < sound), "{dialect:?} {high}: {fences:?}");
            for server in [&world.servers[0], &world.servers[2]] {
                let fence = last_fence(server, dialect);
                assert!(fence < Some(sound), "{dialect:?} {high} has spread: {fence:?}");
            }
        }
    }
}

/// A waiter gets the lock from the others, too, and the poisoned one passes it on to nobody.
#[test]
async fn a_waiter_gets_the_lock_from_the_others() {
    for dialect in BOTH {
        let (world, first, second) = used(dialect).await;
        let guard = take(&first).await;
        poison(&world.servers[1], dialect, poisons()[0]);
        let fence = guard.fence();
        let waiting = tokio::spawn(async move { take(&second).await });
        let queue = format!("{NAME}:quorlock:queue");
        eventually("it waits", async || {
            let waits = |server: &RedisServer| server.command(&["EXISTS", &queue]) == Reply::Int(1);
            waits(&world.servers[0]) && waits(&world.servers[2])
        })
        .await;
        guard.release().await.expect("released");
        let next = waiting.await.expect("no panic");
        assert!(next.fence() > fence && next.fence() < now_us() + DAY_US, "{}", next.fence());
        eventually("it passes the lock on to nobody", async || !is_taken(&world.servers[1])).await;
    }
}

#[test]
async fn the_server_is_named_with_the_fence_and_the_remedy() {
    for dialect in BOTH {
        for high in poisons() {
            let (world, first, _second) = used(dialect).await;
            poison(&world.servers[1], dialect, high);
            world.servers[2].kill();
            world.reached_by(&first, |reached| reached == [true, true, false]).await;
            let error = first.try_lock(NAME).await.expect_err("one of three is sound");
            assert!(matches!(error, Error::NoQuorum { have: 0 | 1, .. }), "{error:?}");
            let text = error.to_string();
            assert!(text.contains(&high.to_string()[..6]), "{high}: {text}");
            assert!(text.contains("time of day") && text.contains("release --force"), "{text}");
            // What was granted with it is given back.
            eventually("nothing is left", async || !world.servers[..2].iter().any(is_taken)).await;
        }
    }
}

/// A record that is held is looked at, extended and confirmed in vain there, and held by the others.
#[test]
async fn a_holder_goes_on_without_the_server_that_has_it() {
    for dialect in BOTH {
        for high in poisons() {
            let (world, first, second) = used(dialect).await;
            let guard = take(&first).await;
            eventually("all have it", async || world.servers.iter().all(is_taken)).await;
            poison(&world.servers[1], dialect, high);
            guard.extend().await.expect("two of three");
            let status = second.inspect(NAME).await.expect("a status");
            let failure = status.nodes[1].record.as_ref().expect_err("it cannot be relied upon");
            assert_eq!(failure.kind(), FailureKind::Fence, "{failure}");
            assert_eq!(status.fence().map(|fence| fence < now_us() + DAY_US), Some(true));
            let fence = guard.fence();
            let token = guard.into_token().expect("a token");
            let resumed = second.resume(NAME, token).await.expect("two of three");
            assert!((fence..now_us() + DAY_US).contains(&resumed.fence()), "{}", resumed.fence());
            resumed.release().await.expect("released");
            assert!(next_fence(&first).await > fence);
        }
    }
}

/// The record is what it was, and ends when it would have.
#[test]
async fn an_extension_that_is_refused_keeps_nothing() {
    let world = World::new(Dialect::Strict).await;
    let server = &world.servers[0];
    let node = world.node(&server.url()).await;
    let (holder, other) = (owner(NAME), ParticipantId::random(&*world.time()));
    holder.acquire(&node, TTL / 2).fence().await;
    poison(server, Dialect::Strict, poisons()[0]);
    let before = text(server, NAME);
    for asked in [holder.extend(&node, TTL), holder.take_part(&node, other, TTL)] {
        let Answer::Failed(failure) = asked.answer().await else { panic!("extended") };
        assert_eq!(failure.kind(), FailureKind::Fence, "{failure}");
        assert_eq!(text(server, NAME), before);
    }
}

/// A client that proposes such a fence, by a bug, is refused by the server itself.
#[test]
async fn a_server_gives_out_no_fence_that_would_not_grow() {
    for dialect in BOTH {
        let world = World::new(dialect).await;
        let server = &world.servers[0];
        let client = world.waiting_client(&server.url(), |_| {}).await;
        let node = client.node();
        let (holder, waiter) = (owner(NAME), client.waiter(NAME, 1));
        let refused = |answer| match answer {
            quorlock::node::Answer::Failed(failure) => failure.kind() == FailureKind::Fence,
            other => panic!("{dialect:?}: {other:?}"),
        };
        let limit = 1 << 53;
        for proposal in
            [Proposal { least: limit, block: 1 }, Proposal { least: limit - 3, block: 4 }]
        {
            let asked = holder.acquire_fenced(node, TTL, proposal).answer().await;
            assert!(refused(asked), "{proposal:?}");
            let ticket = (waiter.ticket(TicketNumber::New(1)), false);
            let asked = waiter.owner().wait_fenced(node, TTL, ticket, proposal).answer().await;
            assert!(refused(asked), "{proposal:?}");
        }
        assert!(!is_taken(server), "nothing was changed");
        let fence = holder.acquire(node, TTL).fence().await;
        assert!(refused(holder.confirm(node, limit).answer().await));
        assert_eq!(holder.extend(node, TTL).fence().await, fence, "it stands where it stood");
        // Nor does it pass the lock on with one.
        waiter.wait(TicketNumber::New(1), TTL).queued().await;
        assert!(holder.release_to(node, limit).is_done().await);
        assert!(client.grant_messages().await.is_empty() && !is_taken(server));
        assert!(waiter.wait(TicketNumber::New(1), TTL).fence().await < limit);
    }
}

/// What stands in the place where a server keeps the fence of a lock, with this fence.
fn kept_fences(dialect: Dialect, fence: u64) -> Vec<(String, String)> {
    let key = format!("{NAME}:quorlock:fence");
    match dialect {
        Dialect::Strict => {
            [" ql:x 1 0 0", "+ql:x 1 0 0", "*ql:x maker 1 1 0 0", "- 0 0 0", "= 0 0 0"]
                .map(|rest| (NAME.to_owned(), format!("quorlock {fence:016}{rest}")))
                .into()
        }
        _ => vec![(key, fence.to_string())],
    }
}

/// What `release --force` does about it, to the microsecond.
#[test]
async fn a_fence_is_forgotten_only_if_nobody_can_have_been_given_it() {
    for dialect in BOTH {
        let world = World::new(dialect).await;
        world.stop_clocks();
        let most = server_us(&world.servers[0]) + DAY_US;
        let forget = async || {
            let builder = world.builder().nodes(world.urls());
            let (forgotten, failed) =
                builder.admin().forget_fence(NAME).await.expect("good settings");
            assert!(failed.0.is_empty(), "{failed}");
            forgotten
        };
        assert_eq!(forget().await, 0, "there is none");
        let fences = [(most, false), (most + 1, true), (1 << 53, true), (u64::MAX, true)];
        for (fence, goes) in fences {
            for (key, value) in kept_fences(dialect, fence) {
                for server in &world.servers[1..] {
                    server.command(&["SET", &key, &value]);
                }
                assert_eq!(forget().await, if goes { 2 } else { 0 }, "{dialect:?} {value}");
                let left = text(&world.servers[1], &key);
                assert_eq!(left, Some(value).filter(|_| !goes), "{dialect:?}");
                world.servers[2].command(&["DEL", &key]);
            }
        }
        // What is no number at all, beside something that is no lock.
        let key = format!("{NAME}:quorlock:fence");
        world.servers[0].command(&["RPUSH", NAME, "of somebody else"]);
        world.servers[0].command(&["SET", &key, "none"]);
        assert_eq!(forget().await, 1, "{dialect:?}");
        assert_eq!(text(&world.servers[0], &key), None);
        assert_eq!(world.servers[0].command(&["LLEN", NAME]), Reply::Int(1), "it is left alone");
    }
}
