//! Locks that change hands by their token, or are taken away; notes and lists.

use std::time::Duration;

use quorlock::runtime::Runtime;
use quorlock::{Error, Locker, Loss, MAX_NOTE_BYTES, NodeReleaseState, Owner, Verdict};
use quorlock_testkit::{
    Asked, RedisServer, Reply, StillWorld, eventually_async as eventually, redlock_locker, servers,
    test, urls,
};

const TTL: Duration = StillWorld::TTL;

async fn locker(servers: &[RedisServer]) -> Locker {
    redlock_locker(urls(servers)).await
}

fn key(server: &RedisServer, name: &str) -> Reply {
    server.command(&["GET", name])
}

#[test(start_paused = true)]
async fn a_kept_lock_is_neither_extended_nor_released_and_ends_with_its_time() {
    let world = StillWorld::new();
    let (locker, other) = (world.locker().await, world.locker().await);
    let guard = locker.lock("x").await.expect("free");
    let lost = guard.lost();
    let token = guard.into_token().expect("held");
    assert_eq!(format!("{token:?}"), "TokenText(secret)");
    assert!(token.as_str().starts_with("ql:"));
    let loss = tokio::time::timeout(TTL / 2, lost).await.expect("the watcher is told");
    assert_eq!(loss, Loss::Released);
    locker.shutdown().await;
    drop(locker);
    world.time.pass(TTL - Duration::from_secs(1)).await;
    assert_eq!((world.count(Asked::Extend), world.count(Asked::Release)), (0, 0));
    other.try_lock("x").await.expect_err("it is kept");
    world.time.pass(Duration::from_secs(1)).await;
    drop(other.try_lock("x").await.expect("its time is over"));
}

#[test(start_paused = true)]
async fn those_of_the_process_who_wait_go_on_waiting() {
    let world = StillWorld::new();
    let locker = world.locker().await;
    let guard = locker.lock("x").await.expect("free");
    let waiter = tokio::spawn(locker.lock("x").into_future());
    world.time.pass(Duration::from_secs(1)).await;
    let token = guard.into_token().expect("held");
    world.time.pass(Duration::from_secs(1)).await;
    assert!(!waiter.is_finished());
    let guard = locker.resume("x", token).await.expect("still held");
    world.time.pass(2 * TTL).await;
    assert!(guard.is_held() && !waiter.is_finished());
    assert!(guard.release().await.expect("released").is_freed());
    let turn = tokio::time::timeout(TTL, waiter).await.expect("nobody is in its way");
    drop(turn.expect("no panic").expect("its turn"));
}

#[test(start_paused = true)]
async fn a_resumed_lock_is_extended_and_released_like_any_other() {
    let world = StillWorld::new();
    let (first, second) = (world.locker().await, world.locker().await);
    let token = first.lock("x").fixed().await.expect("free").into_token().expect("held");
    world.time.pass(TTL / 2).await;
    let guard = second.resume("x", token).await.expect("still held");
    assert!(guard.remaining() > TTL * 3 / 4, "{:?}", guard.remaining());
    world.time.pass(5 * TTL).await;
    assert!(guard.is_held());
    first.try_lock("x").await.expect_err("held elsewhere");
    drop(guard);
    drop(first.try_lock("x").await.expect("a dropped guard releases"));
    let lost = second.resume("x", token).await.expect_err("it is released");
    assert!(matches!(lost, Error::Lost { reason: Loss::Gone, .. }), "{lost}");
}

#[test]
async fn a_process_that_has_the_token_can_release_the_lock_and_nobody_sees_it() {
    let servers = servers(1);
    let (first, second) = (locker(&servers).await, locker(&servers).await);
    let guard = first.lock("x").await.expect("free");
    let token = guard.token();
    assert_eq!(key(&servers[0], "x"), Reply::bulk(&*token));
    assert!(!format!("{guard:?} {token:?}").contains(token.as_str()));
    second.resume("x", token).await.expect("held").release().await.expect("released");
    let lost = guard.extend().await.expect_err("it is released");
    assert!(matches!(lost, Error::Lost { reason: Loss::Gone, .. }), "{lost}");
    let again = first.lock("x").await.expect("free");
    assert_ne!(again.token().as_str(), token.as_str(), "one token, two acquisitions");
}

#[test(start_paused = true)]
async fn what_cannot_be_known_is_left_as_it_is() {
    let world = StillWorld::new();
    let (first, second) = (world.locker().await, world.locker().await);
    let token = first.lock("x").fixed().await.expect("free").into_token().expect("held");
    for node in &world.nodes[..2] {
        node.hang(true);
    }
    let unknown = second.resume("x", token).await.expect_err("two of three hang");
    assert!(matches!(unknown, Error::NoQuorum { .. }), "{unknown}");
    for node in &world.nodes {
        node.hang(false);
    }
    let extensions = world.count(Asked::Extend);
    world.time.pass(TTL / 2).await;
    assert_eq!(world.count(Asked::Release), 0);
    assert_eq!(world.count(Asked::Extend), extensions, "nobody keeps what nobody holds");
    // Nor does a caller that goes away in the middle.
    world.nodes[1].hang(true);
    world.nodes[2].hang(true);
    let resuming = tokio::time::timeout(Duration::from_millis(70), second.resume("x", token));
    resuming.await.expect_err("gone before the second answer");
    for node in &world.nodes {
        node.hang(false);
    }
    let extensions = world.count(Asked::Extend);
    world.time.pass(2 * TTL).await;
    assert_eq!((world.count(Asked::Release), world.count(Asked::Extend)), (0, extensions));
}

#[test(start_paused = true)]
async fn a_guard_that_is_not_alone_cannot_be_kept() {
    let world = StillWorld::new();
    let (locker, other) = (world.locker().await, world.locker().await);
    let me = locker.new_owner();
    let one = locker.lock("x").owner(&me).await.expect("free");
    let two = locker.lock("x").owner(&me).await.expect("mine");
    let error = two.into_token().expect_err("the owner has another guard");
    assert!(error.to_string().contains("release those first"), "{error}");
    let me_elsewhere = Owner::from_id(&me.id()).expect("an id");
    let borrowed = other.lock("x").owner(&me_elsewhere).await.expect("the same owner");
    let error = borrowed.into_token().expect_err("another process has taken it");
    assert!(error.to_string().contains("keep it there"), "{error}");
    assert!(one.is_held());
    let token = one.into_token().expect("alone now");
    other.resume("x", token).await.expect("kept").release().await.expect("released");
}

#[test(start_paused = true)]
async fn who_gives_up_on_a_lock_of_its_owner_does_not_keep_it_for_ever() {
    let world = StillWorld::new();
    let (locker, other) = (world.locker().await, world.locker().await);
    let me = locker.new_owner();
    let guard = locker.lock("x").owner(&me).fixed().await.expect("free");
    let me = Owner::from_id(&me.id()).expect("an id");
    let nodes = world.nodes.clone();
    world.nodes[0].at_next(Asked::Extend, move || nodes.iter().for_each(|node| node.hang(true)));
    let borrowing = other.lock("x").owner(&me).into_future();
    tokio::time::timeout(Duration::from_millis(20), borrowing).await.expect_err("they hang");
    world.nodes.iter().for_each(|node| node.hang(false));
    std::mem::forget(guard);
    let extensions = world.count(Asked::Extend);
    world.time.pass(3 * TTL).await;
    assert_eq!(world.count(Asked::Extend), extensions, "nobody of the owner is left");
}

#[test(start_paused = true)]
async fn a_lock_without_a_note_costs_nothing_more() {
    let world = StillWorld::new();
    let locker = world.locker().await;
    let guard = locker.lock("x").await.expect("free");
    world.time.pass(TTL / 2).await;
    guard.release().await.expect("released");
    assert_eq!(world.nodes[0].asked(), [Asked::Acquire, Asked::Extend, Asked::Release]);
}

#[test(start_paused = true)]
async fn a_note_is_told_kept_and_taken_away() {
    let world = StillWorld::new();
    let (locker, other) = (world.locker().await, world.locker().await);
    let other_guard = other.lock("x").await.expect("free");
    let waiting = tokio::spawn(locker.lock("x").note("Anna on web-3").into_future());
    world.time.pass(Duration::from_secs(100)).await;
    // As it lies on the nodes, without what is below a millisecond.
    let taken = world.time.wall() - Duration::from_millis(1);
    other_guard.release().await.expect("released");
    let guard = waiting.await.expect("no panic").expect("its turn");
    for passed in [0, 1, 10] {
        world.time.pass(TTL * passed).await;
        let status = other.inspect("x").await.expect("a status");
        let note = status.note().expect("a note");
        assert_eq!(note.text, "Anna on web-3", "after {passed} TTLs");
        let since = note.since.expect("a time").duration_since(taken).expect("not before");
        assert!(since < Duration::from_secs(1), "{since:?}");
        assert_eq!(status.waiters(), Some(0));
    }
    guard.release().await.expect("released");
    locker.shutdown().await;
    assert_eq!(world.nodes[0].asked().last(), Some(&Asked::Release), "the note goes before it");
    let status = other.inspect("x").await.expect("a status");
    assert_eq!((status.verdict(), status.note()), (Verdict::Free, None));
    assert!(world.nodes.iter().all(|node| node.is_empty()), "something is left");
}

#[test(start_paused = true)]
async fn everybody_has_a_note_of_its_own() {
    let world = StillWorld::new();
    let (locker, looker) = (world.locker().await, world.locker().await);
    let anna = locker.lock("x").note("Anna").await.expect("free");
    let waiting = ["Bert", ""].map(|note| tokio::spawn(locker.lock("x").note(note).into_future()));
    world.time.pass(Duration::from_secs(1)).await;
    let [bert, nobody] = waiting;
    let note =
        async || looker.inspect("x").await.expect("a status").note().map(|note| note.text.clone());
    assert_eq!(note().await.as_deref(), Some("Anna"));
    let refused = looker.try_lock("x").await.expect_err("taken");
    assert!(
        refused.to_string().contains("x is taken by #") && refused.to_string().contains(" (Anna)")
    );
    let Error::Taken { note: Some(found), .. } = refused else { panic!("{refused}") };
    assert!(found.text == "Anna" && found.since.is_some());
    anna.release().await.expect("released");
    let bert = bert.await.expect("no panic").expect("its turn");
    assert_eq!(note().await.as_deref(), Some("Bert"));
    bert.release().await.expect("released");
    let nobody = nobody.await.expect("no panic").expect("its turn");
    assert_eq!(note().await, None, "it has none");
    drop(nobody);
}

#[test(start_paused = true)]
async fn a_note_goes_on_with_its_lock() {
    let world = StillWorld::new();
    let (first, second) = (world.locker().await, world.locker().await);
    let guard = first.lock("x").note("Anna").fixed().await.expect("free");
    let since = first.inspect("x").await.expect("a status").note().expect("a note").since;
    let token = guard.into_token().expect("held");
    world.time.pass(TTL / 2).await;
    let guard = second.resume("x", token).await.expect("kept");
    world.time.pass(10 * TTL).await;
    let status = first.inspect("x").await.expect("a status");
    assert_eq!(status.note().map(|note| (&*note.text, note.since)), Some(("Anna", since)));
    guard.release().await.expect("released");
    assert!(world.nodes.iter().all(|node| node.is_empty()), "something is left");
}

#[test(start_paused = true)]
async fn what_cannot_work_is_refused_and_says_why() {
    let world = StillWorld::new();
    let locker = world.locker().await;
    drop(locker.lock("x").note("ä".repeat(MAX_NOTE_BYTES / 2)).await.expect("short enough"));
    let long = locker.lock("x").note("ä".repeat(MAX_NOTE_BYTES)).await.expect_err("too long");
    assert!(long.to_string().contains("1024") && long.to_string().contains("512"), "{long}");
    let secret = "ql:0123456789abcdef";
    let error = locker.resume("x", secret).await.expect_err("no token").to_string();
    assert!(!error.contains(secret) && error.contains("19 bytes"), "{error}");
    let guard = locker.lock("x").await.expect("free");
    let token = guard.into_token().expect("held");
    locker.shutdown().await;
    let closed = locker.resume("x", token).await.expect_err("shut down");
    assert!(matches!(closed, Error::Misuse { .. }), "{closed}");
}

#[test]
async fn a_lock_goes_from_process_to_process_on_real_servers() {
    let servers = servers(3);
    let (first, second) = (locker(&servers).await, locker(&servers).await);
    let token = first.lock("x").note("Anna").await.expect("free").into_token().expect("held");
    first.shutdown().await;
    drop(first);
    for server in &servers {
        eventually("kept", async || key(server, "x") == Reply::bulk(token.as_str().as_bytes()))
            .await;
        server.command(&["PEXPIRE", "x", "5000"]);
    }
    let guard = second.resume("x", token.as_str()).await.expect("kept");
    for server in &servers {
        eventually(
            "extended",
            async || matches!(server.command(&["PTTL", "x"]), Reply::Int(left) if left > 5_000),
        )
        .await;
    }
    guard.release().await.expect("released");
    second.shutdown().await;
    for server in &servers {
        assert_eq!(server.kept(), 0, "a note or a record is left");
    }
    let lost = second.resume("x", token).await.expect_err("shut down");
    assert!(matches!(lost, Error::Misuse { .. }), "{lost}");
}

#[test]
async fn a_token_of_somebody_else_changes_nothing() {
    let servers = servers(3);
    let (first, second) = (locker(&servers).await, locker(&servers).await);
    let other = first.lock("other").await.expect("free").into_token().expect("held");
    let guard = first.lock("x").await.expect("free");
    for server in &servers {
        eventually("all have it", async || key(server, "x") != Reply::Bulk(None)).await;
    }
    let before: Vec<_> = servers.iter().map(|server| key(server, "x")).collect();
    let lost = second.resume("x", other).await.expect_err("not of this lock");
    assert!(matches!(lost, Error::Lost { reason: Loss::Gone, .. }), "{lost}");
    second.shutdown().await;
    assert_eq!(servers.iter().map(|server| key(server, "x")).collect::<Vec<_>>(), before);
    assert!(guard.is_held());
}

#[test]
async fn a_lock_is_taken_away_on_all_nodes_and_passed_on() {
    let servers = servers(3);
    let (first, second) = (locker(&servers).await, locker(&servers).await);
    let stuck = first.lock("x").note("Anna").await.expect("free");
    // Otherwise the next one may be the first on a node.
    for server in &servers {
        eventually("all have it", async || key(server, "x") != Reply::Bulk(None)).await;
    }
    let waiter = tokio::spawn(second.lock("x").note("Bert").into_future());
    let seen = loop {
        let seen = first.inspect("x").await.expect("a status");
        if seen.waiters() == Some(1) && seen.nodes.iter().all(|node| node.waiters == Some(1)) {
            break seen;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(seen.note().map(|note| &*note.text), Some("Anna"));
    let nodes = first.force_release(&seen).await.expect("broken");
    assert_eq!(nodes.len(), 3);
    assert!(nodes.iter().all(|node| matches!(node.state, NodeReleaseState::Released)), "{nodes:?}");
    let next = waiter.await.expect("no panic").expect("its turn");
    let lost = stuck.extend().await.expect_err("taken away");
    assert!(matches!(lost, Error::Lost { .. }), "{lost}");

    let nodes = first.force_release(&seen).await.expect("nothing to do");
    assert!(nodes.iter().all(|node| matches!(node.state, NodeReleaseState::NotHeld)), "{nodes:?}");
    assert!(next.is_held());
    next.extend().await.expect("the next holder is left alone");
}

#[test]
async fn a_lock_of_another_library_can_be_taken_away_too() {
    let servers = servers(3);
    let locker = locker(&servers).await;
    for server in &servers[1..] {
        server.command(&["SET", "x", "somebody"]);
    }
    let seen = locker.inspect("x").await.expect("a status");
    assert_eq!((seen.remaining(), seen.note()), (None, None));
    servers[2].kill();
    let nodes = locker.force_release(&seen).await.expect("a majority has none any more");
    assert!(matches!(nodes[0].state, NodeReleaseState::NotHeld), "{nodes:?}");
    assert!(matches!(nodes[1].state, NodeReleaseState::Released), "{nodes:?}");
    assert!(matches!(nodes[2].state, NodeReleaseState::Taken { .. }), "{nodes:?}");
    assert_eq!(key(&servers[1], "x"), Reply::Bulk(None));

    servers[1].kill();
    let seen = locker.inspect("x").await.expect("a status");
    let few = locker.force_release(&seen).await.expect_err("one of three");
    assert!(matches!(few, Error::NoQuorum { have: 1, need: 2, .. }), "{few}");
}

#[test]
async fn a_list_shows_what_a_majority_holds() {
    let servers = servers(3);
    let locker = |prefix: &str| {
        let urls = servers.iter().map(RedisServer::url);
        Locker::builder()
            .redis(
                quorlock::RedisOptions::default()
                    .dialect(quorlock::Dialect::Redlock)
                    .prefix(prefix),
            )
            .nodes(urls)
            .ttl(TTL)
            .connect()
    };
    let (one, two) = (locker("[a]*:").await.expect("one"), locker("a:").await.expect("two"));
    let held = one.lock("held").note("Anna").await.expect("free");
    let also = one.lock("also").await.expect("free");
    let elsewhere = two.lock("elsewhere").await.expect("free");
    for server in &servers {
        server.command(&["SET", "[a]*:foreign", "somebody", "PX", "60000"]);
        server.command(&["SET", "[a]*:plain", "value"]);
        server.command(&["SADD", "[a]*:set", "value"]);
    }
    // Left over from an attempt that failed.
    let left_over =
        [&b"SET"[..], b"[a]*:left over", b"ql:0123456789012345678901234567890123456789"];
    servers[0].command(&left_over);
    let names = async |locker: &Locker| {
        let locks = locker.list().await.expect("a list");
        locks.iter().map(|status| status.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(&one).await, ["also", "held"]);
    assert_eq!(names(&two).await, ["elsewhere"]);
    let locks = one.list().await.expect("a list");
    assert_eq!(locks[1].note().map(|note| &*note.text), Some("Anna"));
    assert!(matches!(locks[1].verdict(), Verdict::Held(_)));

    servers[0].kill();
    assert_eq!(names(&one).await, ["also", "held"], "two of three know");
    servers[1].kill();
    let few = one.list().await.expect_err("a lock may be on the other two");
    assert!(matches!(few, Error::NoQuorum { have: 1, need: 2, .. }), "{few}");
    drop((held, also, elsewhere));
}
