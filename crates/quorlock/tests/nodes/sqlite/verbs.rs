//! What a file says when it is asked for locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use quorlock::node::{self, Answer, ClientId, Holder, Node, NodeOptions, Proposal};
use quorlock::runtime::{BoxFuture, Moment, Runtime, TokioRuntime};
use quorlock::{Error, Settings};
use quorlock_testkit::conformance::owner;
use quorlock_testkit::eventually;

use super::{LONG, Place};

/// A clock that moves only when it is told to.
#[derive(Debug)]
struct SetClock {
    nanos: AtomicU64,
    rest: TokioRuntime,
}

impl SetClock {
    fn pass(&self, time: Duration) {
        self.nanos
            .fetch_add(u64::try_from(time.as_nanos()).expect("not for ever"), Ordering::SeqCst);
    }
}

impl Runtime for SetClock {
    fn now(&self) -> Moment {
        Moment::from_nanos(self.nanos.load(Ordering::SeqCst))
    }

    fn wall(&self) -> SystemTime {
        self.rest.wall()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.rest.sleep(duration)
    }

    fn spawn(&self, future: BoxFuture<'static, ()>) {
        self.rest.spawn(future);
    }

    fn random(&self, bytes: &mut [u8]) {
        self.rest.random(bytes);
    }
}

async fn node_with_clock(place: &Place) -> (Arc<dyn Node>, Arc<SetClock>) {
    let rest = TokioRuntime::current();
    let clock = Arc::new(SetClock { nanos: AtomicU64::new(rest.now().as_nanos()), rest });
    let runtime = Arc::clone(&clock) as Arc<dyn Runtime>;
    let nodes = node::open(
        [place.url()],
        &Settings::default(),
        &NodeOptions::default(),
        &runtime,
        ClientId::random(&*runtime),
    );
    let node = nodes.expect("a good URL").remove(0);
    node.ready().await.expect("a file that keeps locks");
    (node, clock)
}

#[tokio::test]
async fn a_record_ends_at_its_nanosecond() {
    let place = Place::new();
    let (node, clock) = node_with_clock(&place).await;
    let (first, second) = (owner("a"), owner("a"));
    let tick = Duration::from_nanos(1);

    assert!(first.acquire(&node, LONG).is_done().await);
    assert_eq!(first.seen(&node).await.unwrap().remaining, Some(LONG));
    clock.pass(LONG - tick);
    assert!(!second.acquire(&node, LONG).is_done().await);
    assert_eq!(first.seen(&node).await.unwrap().remaining, Some(tick));
    clock.pass(tick);
    assert!(first.seen(&node).await.is_none());
    assert!(!first.extend(&node, LONG).is_done().await);
    assert!(!first.release(&node).is_done().await);
    assert!(second.acquire(&node, LONG).is_done().await);
}

#[tokio::test]
async fn an_extension_counts_from_now_and_never_shortens() {
    let place = Place::new();
    let (node, clock) = node_with_clock(&place).await;
    let owner = owner("a");
    assert!(owner.acquire(&node, LONG).is_done().await);
    clock.pass(LONG / 2);
    assert!(owner.extend(&node, LONG).is_done().await);
    assert_eq!(owner.seen(&node).await.unwrap().remaining, Some(LONG));
    assert!(owner.extend(&node, LONG / 2).is_done().await);
    assert_eq!(owner.seen(&node).await.unwrap().remaining, Some(LONG));
}

#[tokio::test]
async fn two_lockers_exclude_each_other() {
    let place = Place::new();
    let (here, there) = (place.locker().await, place.locker().await);
    let guard = here.lock("orders/42").await.unwrap();
    let error = there.try_lock("orders/42").await.unwrap_err();
    let seen = here.inspect("orders/42").await.unwrap().holder();
    assert!(matches!(&error, Error::Taken { holder, .. } if *holder == seen), "{error}");
    assert!(seen.is_some());

    guard.extend().await.unwrap();
    guard.release().await.unwrap();
    there.try_lock("orders/42").await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn one_clock_needs_no_allowance() {
    let place = Place::new();
    let needs = place.node(&Settings::default()).await.capabilities();
    assert_eq!((needs.drift.of(LONG), needs.margin), (Duration::ZERO, Duration::ZERO));
}

#[tokio::test]
async fn many_callers_share_one_node() {
    let place = Place::new();
    let locker = place.locker().await;
    let inside = Arc::new(AtomicU64::new(0));
    let callers: Vec<_> = (0..200)
        .map(|caller| {
            let (locker, inside) = (locker.clone(), Arc::clone(&inside));
            tokio::spawn(async move {
                let own = locker.try_lock(format!("own/{caller}")).await.unwrap();
                let shared = locker.lock(format!("shared/{}", caller % 20)).await.unwrap();
                let bit = 1 << (caller % 20);
                assert_eq!(inside.fetch_or(bit, Ordering::SeqCst) & bit, 0, "two inside");
                tokio::task::yield_now().await;
                inside.fetch_and(!bit, Ordering::SeqCst);
                shared.release().await.unwrap();
                own.release().await.unwrap();
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    let left: i64 = place
        .sql()
        .query_row("SELECT count(*) FROM lock WHERE token != x''", [], |row| row.get(0))
        .unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn names_need_not_be_text() {
    let place = Place::new();
    let locker = place.locker().await;
    let names: [&[u8]; 4] = [b"\xff\xfe", b"\xff\xfe\0", b"a\0b", b"a"];
    let mut guards = Vec::new();
    for name in names {
        guards.push(locker.try_lock(name).await.unwrap());
    }
    for name in names {
        let error = locker.try_lock(name).await.unwrap_err();
        assert!(matches!(error, Error::Taken { .. }), "{error}");
    }
}

#[tokio::test]
async fn the_file_shows_whose_record_it_is() {
    let place = Place::new();
    let locker = place.locker().await;
    let _guard = locker.lock("a").await.unwrap();
    let token: Vec<u8> = place
        .sql()
        .query_row("SELECT token FROM lock WHERE name = ?1", [b"a"], |row| row.get(0))
        .unwrap();
    assert_eq!(locker.inspect("a").await.unwrap().holder(), Some(Holder::of(&token)));
}

/// How long a record that has ended stays for its fence.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[tokio::test]
async fn dead_records_do_not_pile_up() {
    let place = Place::new();
    let (node, clock) = node_with_clock(&place).await;
    let count = || -> i64 {
        place.sql().query_row("SELECT count(*) FROM lock", [], |row| row.get(0)).unwrap()
    };
    for index in 0..3_000 {
        let dead = owner(format!("dead/{index}"));
        assert!(dead.acquire(&node, LONG).is_done().await);
        if index % 2 == 0 {
            assert!(dead.release(&node).is_done().await);
        }
    }
    clock.pass(LONG + DAY);
    let mut before = count();
    for index in 0..3_000 {
        assert!(owner(format!("alive/{index}")).acquire(&node, LONG).is_done().await);
        let now = count();
        assert!(now + 512 >= before, "one lock paid for {} others", before - now);
        before = now;
    }
    assert_eq!(count(), 3_000);
}

/// A client that takes a single lock and goes does its share.
#[tokio::test]
async fn a_short_lived_process_leaves_fewer_dead_records_than_it_finds() {
    let place = Place::new();
    let count = || -> i64 {
        place.sql().query_row("SELECT count(*) FROM lock", [], |row| row.get(0)).unwrap()
    };
    let (node, _) = node_with_clock(&place).await;
    for index in 0..700 {
        assert!(owner(format!("dead/{index}")).acquire(&node, LONG).is_done().await);
    }
    for index in 0..2 {
        let (node, later) = node_with_clock(&place).await;
        later.pass(2 * LONG + DAY);
        assert!(owner(format!("single/{index}")).acquire(&node, LONG).is_done().await);
    }
    assert!(count() < 700 - 500, "{}", count());
}

/// Whatever else is swept out of the file meanwhile.
#[tokio::test]
async fn a_fence_is_remembered_for_a_day_and_never_fallen_below() {
    let place = Place::new();
    let (node, clock) = node_with_clock(&place).await;
    let first = Proposal { least: 1_000, block: 1 };
    let next = async |name| {
        let wants = Proposal { least: 1, block: 1 };
        owner(name).acquire_fenced(&node, LONG, wants).fence().await
    };
    for name in ["released", "run out"] {
        let fence = owner(name).acquire_fenced(&node, LONG, first).fence().await;
        assert_eq!(fence, 1_000);
    }
    let released = owner("released");
    clock.pass(LONG);
    assert_eq!(released.acquire_fenced(&node, LONG, first).fence().await, 1_001);
    assert!(released.release(&node).is_done().await);
    let many = async |what: &str| {
        for index in 0..600 {
            assert!(owner(format!("{what}/{index}")).acquire(&node, LONG).is_done().await);
        }
    };
    clock.pass(DAY - Duration::from_nanos(1));
    many("a day").await;
    assert_eq!([next("released").await, next("run out").await], [1_002, 1_001]);
    clock.pass(LONG + DAY);
    many("another day").await;
    // They are forgotten, and yet nobody gets a lower one.
    assert_eq!([next("released").await, next("run out").await, next("new").await], [1_003; 3]);
}

#[tokio::test]
async fn a_node_that_is_dropped_finishes_what_it_was_asked() {
    let place = Place::new();
    let node = place.node(&Settings::default()).await;
    let owners: Vec<_> = (0..100).map(|index| owner(format!("{index}"))).collect();
    let answers: Vec<_> = owners.iter().map(|owner| owner.acquire(&node, LONG)).collect();
    drop(node);
    for answer in answers {
        assert!(matches!(answer.answer().await, Answer::Granted { .. }));
    }
    eventually("the file is closed", || !place.is_open_here());
}

#[tokio::test]
async fn names_are_forgotten_unless_they_are_held_or_wanted() {
    let place = Place::new();
    let rows = || {
        let names = "SELECT CAST(group_concat(name) AS BLOB) FROM lock";
        let names = place.sql().query_row(names, [], |row| row.get::<_, Option<Vec<u8>>>(0));
        names.expect("a table of locks").unwrap_or_default()
    };
    let locker = place.locker().await;
    for name in ["free", "wanted"] {
        locker.try_lock(name).await.expect("free").release().await.expect("held");
    }
    let guard = locker.try_lock("held").await.expect("free");
    let ticket = "INSERT INTO ticket VALUES (CAST('wanted' AS BLOB), 1, x'00', 1, 1, 1, 1, 1, 1)";
    place.sql().execute(ticket, []).expect("a ticket");
    let names = ["free", "held", "wanted"];
    let forget = async || super::patient(&place.file).admin().forget(names).await.expect("right");
    let left = forget().await;
    assert!(left.to_string().contains("2 of them are held or waited for"), "{left}");
    assert_eq!(rows(), b"held,wanted");
    guard.release().await.expect("left alone");
    place.sql().execute("DELETE FROM ticket", []).expect("no ticket");
    let left = forget().await;
    assert!(left.0.is_empty(), "{left}");
    assert_eq!(rows(), b"");
    let checkup = super::patient(&place.file).admin().examine("trial").await.expect("right");
    assert!(checkup.nodes[0].usable, "{checkup:?}");
    assert_eq!(rows(), b"", "nothing is left of a trial");
}
