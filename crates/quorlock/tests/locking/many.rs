//! Several locks by one call: all or none, in one order, within one waiting time.

use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::{Duration, SystemTime};

use quorlock::node::Node;
use quorlock::node::memory::MemoryNode;
use quorlock::runtime::{Moment, Runtime};
use quorlock::{Error, Guard, Locker, LockingMany, Loss};
use quorlock_testkit::{
    Asked, RedisServer, Reply, VirtualTime, Witness, eventually_async as eventually, servers, test,
};

const TTL: Duration = Duration::from_secs(10);
const LEAD: Duration = Duration::from_millis(500);
const LIMIT: Duration = Duration::from_millis(50);
/// The grain of timers: what is slept is never shorter, and longer by this at the most.
const GRAIN: Duration = Duration::from_millis(1);
const NONE: [&str; 0] = [];

/// Nodes that answer at once, two clients of them, and a clock that only waiting moves.
struct World {
    time: Arc<VirtualTime>,
    nodes: Vec<Arc<Witness>>,
    ours: Locker,
    other: Locker,
    start: Moment,
}

impl World {
    async fn new() -> Self {
        let time = Arc::new(VirtualTime::new(SystemTime::now()));
        let runtime = Arc::clone(&time) as Arc<dyn Runtime>;
        let nodes: Vec<_> = (0..3).map(|_| Witness::new(Arc::clone(&runtime), LIMIT)).collect();
        let client = async || {
            Locker::builder()
                .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
                .with_nodes(nodes.iter().map(|node| Arc::clone(node) as Arc<dyn Node>))
                .ttl(TTL)
                .node_limit(LIMIT)
                .loss_lead(LEAD)
                .runtime(Arc::clone(&time) as Arc<dyn Runtime>)
                .connect()
                .await
                .expect("a locker")
        };
        let (ours, other) = (client().await, client().await);
        let start = time.now();
        Self { time, nodes, ours, other, start }
    }

    fn elapsed(&self) -> Duration {
        self.time.now().since(self.start)
    }

    /// The other client has these for good.
    async fn others(&self, names: &[&str]) -> Vec<Guard> {
        let mut guards = Vec::new();
        for name in names {
            guards.push(self.other.try_lock(name).await.expect("free"));
        }
        guards
    }

    async fn is_free(&self, name: &str) -> bool {
        let status = self.other.inspect(name).await.expect("a status");
        status.nodes.iter().all(|node| matches!(node.record, Ok(None)))
    }

    fn asked(&self, what: Asked) -> usize {
        self.nodes[0].asked().iter().filter(|asked| **asked == what).count()
    }
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn poll_once(locking: std::pin::Pin<&mut LockingMany>) -> bool {
    locking.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[test(start_paused = true)]
async fn all_of_them_are_held_in_the_order_of_their_names_and_each_once() {
    let world = World::new().await;
    let names = [&b"b"[..], b"a\xff", b"c", b"b", b"a"];
    let guards = world.ours.lock_many(names).wait(secs(1)).await.expect("free");
    let held: Vec<_> = guards.iter().map(|guard| guard.name().as_bytes()).collect();
    assert_eq!(held, [&b"a"[..], b"a\xff", b"b", b"c"]);
    assert_eq!((guards.len(), guards.is_empty(), guards.is_held()), (4, false, true));
    assert!(guards.get("b").is_some_and(Guard::is_held) && guards.get("d").is_none());
    assert_eq!(world.asked(Asked::Acquire), 4);
    let released = guards.release().await.expect("released");
    assert!(released.len() == 4 && released.iter().all(quorlock::Released::is_freed));
    for name in ["a", "b", "c"] {
        assert!(world.is_free(name).await, "{name}");
    }
}

#[test(start_paused = true)]
async fn no_names_and_bad_names_are_refused_before_anything_is_taken() {
    let world = World::new().await;
    let error = world.ours.lock_many(NONE).await.expect_err("nothing to do");
    assert!(matches!(error, Error::Misuse { .. }), "{error}");
    assert!(error.to_string().contains("no names were given"), "{error}");
    for names in [["a", ""], ["", "a"]] {
        let error = world.ours.lock_many(names).await.expect_err("no name");
        assert!(error.to_string().contains("is empty"), "{error}");
    }
    let error = world.ours.lock_many(["a"]).ttl(secs(60)).await.expect_err("too long");
    assert!(matches!(error, Error::Misuse { .. }), "{error}");
    assert_eq!(world.nodes[0].asked(), []);
}

/// Each would have its first name, and wait for something in between: if they took them as they name
/// them, each would then have what the other needs.
#[test(start_paused = true)]
async fn two_that_name_them_in_opposite_orders_both_finish() {
    let world = World::new().await;
    let between = world.others(&["m", "n"]).await;
    let third = Locker::builder()
        .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
        .with_nodes(world.nodes.iter().map(|node| Arc::clone(node) as Arc<dyn Node>))
        .runtime(Arc::clone(&world.time) as Arc<dyn Runtime>);
    let third = third.connect().await.expect("a locker");
    let client = |locker: Locker, names: [&'static str; 3]| {
        tokio::spawn(async move {
            let guards = locker.lock_many(names).wait(secs(60)).await?;
            guards.release().await
        })
    };
    let one = client(world.ours.clone(), ["a", "m", "z"]);
    let two = client(third, ["z", "n", "a"]);
    world.time.pass(secs(1)).await;
    drop(between);
    one.await.expect("no panic").expect("all three");
    two.await.expect("no panic").expect("all three");
    assert!(world.elapsed() <= secs(1) + GRAIN, "somebody waited: {:?}", world.elapsed());
}

#[test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_name_them_in_different_orders_exclude_each_other_and_finish() {
    let servers = servers(3);
    let busy = Arc::new(AtomicBool::new(false));
    let mut clients = Vec::new();
    for names in [["a", "b"], ["b", "a"]] {
        let urls = servers.iter().map(RedisServer::url);
        let locker = Locker::builder()
            .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
            .nodes(urls)
            .connect()
            .await
            .expect("a locker");
        for _ in 0..2 {
            let (locker, busy) = (locker.clone(), Arc::clone(&busy));
            clients.push(tokio::spawn(async move {
                for _ in 0..25 {
                    let lock = locker.lock_many(names).wait(secs(20));
                    let guards = lock.await.expect("nobody keeps them");
                    assert!(!busy.swap(true, Ordering::SeqCst), "two at a time");
                    tokio::task::yield_now().await;
                    busy.store(false, Ordering::SeqCst);
                    guards.release().await.expect("released");
                }
            }));
        }
    }
    for client in clients {
        client.await.expect("it finishes");
    }
}

fn exist(server: &RedisServer, names: &[&str]) -> i64 {
    match server.command(&[&["EXISTS"], names].concat()) {
        Reply::Int(count) => count,
        other => panic!("{other:?}"),
    }
}

#[test]
async fn one_that_is_taken_leaves_nothing_of_the_others() {
    let servers = servers(3);
    let client = async || {
        let urls = servers.iter().map(RedisServer::url);
        Locker::builder()
            .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
            .nodes(urls)
            .connect()
            .await
            .expect("a locker")
    };
    let (ours, other) = (client().await, client().await);
    let guard = other.lock("c").await.expect("free");
    let error = ours.lock_many(["a", "b", "c"]).wait(Duration::ZERO).await.expect_err("taken");
    assert!(matches!(&error, Error::Taken { name, .. } if name.as_bytes() == b"c"), "{error}");
    let error = ours.lock_many(["d", "c", "a"]).wait(LIMIT).await.expect_err("taken");
    assert!(matches!(&error, Error::TimedOut { name, .. } if name.as_bytes() == b"c"), "{error}");
    for server in &servers {
        eventually("all given back", async || exist(server, &["a", "b", "d"]) == 0).await;
    }
    assert!(guard.is_held());
    guard.release().await.expect("released");
    for server in &servers {
        eventually("no ticket is left", async || server.kept() == 0).await;
    }
}

#[test]
async fn dropped_in_the_middle_it_leaves_nothing() {
    let server = RedisServer::start();
    let client = async || {
        Locker::builder()
            .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
            .nodes([server.url()])
            .connect()
            .await
            .expect("a locker")
    };
    let (ours, other) = (client().await, client().await);
    let guard = other.lock("b").await.expect("free");
    {
        let mut locking = pin!(ours.lock_many(["c", "b", "a"]).into_future());
        eventually("it has the first, and waits for the second", async || {
            assert!(!poll_once(locking.as_mut()));
            // The other's record, ours, and a queue.
            exist(&server, &["a"]) == 1 && server.kept() != 2
        })
        .await;
        assert_eq!(exist(&server, &["c"]), 0, "out of order");
    }
    eventually("what it had is given back", async || exist(&server, &["a", "c"]) == 0).await;
    assert!(guard.is_held());
    guard.release().await.expect("released");
    eventually("no ticket is left", async || server.kept() == 0).await;
}

#[test(start_paused = true)]
async fn one_waiting_time_for_all_of_them() {
    let world = World::new().await;
    let mut others = world.others(&["a", "b"]).await;
    let free_the_first = async {
        world.time.pass(secs(2)).await;
        drop(others.remove(0));
    };
    let lock = async { world.ours.lock_many(["b", "a"]).wait(secs(5)).await };
    let (locked, ()) = tokio::join!(lock, free_the_first);
    match locked {
        Err(Error::TimedOut { name, waited, last }) => {
            assert_eq!(name.as_bytes(), b"b");
            assert!(waited >= secs(5) && waited < secs(5) + GRAIN, "{waited:?}");
            assert!(matches!(&*last, Error::Taken { name, .. } if name.as_bytes() == b"b"));
        }
        other => panic!("{other:?}"),
    }
    assert!(world.elapsed() < secs(5) + GRAIN, "{:?}", world.elapsed());
    assert!(world.is_free("a").await);
}

#[test(start_paused = true)]
async fn what_was_taken_is_extended_while_the_rest_is_waited_for() {
    let world = World::new().await;
    let others = world.others(&["b"]).await;
    let free_it_late = async {
        world.time.pass(secs(3_600)).await;
        assert!(!world.is_free("a").await, "it was not kept");
        drop(others);
    };
    let lock = world.ours.lock_many(["a", "b"]).into_future();
    let (locked, ()) = tokio::join!(lock, free_it_late);
    let guards = locked.expect("free in the end");
    assert!(guards.is_held() && guards.remaining() > TTL / 2);
    drop(guards);
    assert!(world.is_free("a").await && world.is_free("b").await, "a drop releases all");
}

#[test(start_paused = true)]
async fn one_that_is_lost_while_another_is_waited_for_fails_them_all() {
    let world = World::new().await;
    let others = world.others(&["c"]).await;
    let lock = world.ours.lock_many(["a", "b", "c"]).fixed().wait(secs(60));
    match lock.await {
        Err(Error::Lost { name, reason }) => {
            assert_eq!((name.as_bytes(), reason), (&b"a"[..], Loss::Expired));
        }
        other => panic!("{other:?}"),
    }
    // Told while there is time to stop.
    assert_eq!(world.elapsed(), TTL - LEAD);
    assert!(world.is_free("a").await && world.is_free("b").await);
    drop(others);
    assert!(world.is_free("c").await, "it did not wait any longer");
}

/// Two of three nodes are silent when the waiting time ends: what to tell the caller takes a while,
/// and keeps nobody else waiting.
#[test(start_paused = true)]
async fn what_was_taken_is_given_back_before_the_error_is_made() {
    let world = World::new().await;
    let _others = world.others(&["b"]).await;
    let releases = |count| {
        world.nodes.iter().all(|node| {
            node.asked().iter().filter(|asked| **asked == Asked::Release).count() == count
        })
    };
    let silence = async {
        world.time.pass(secs(2) - GRAIN).await;
        world.nodes[..2].iter().for_each(|node| node.hang(true));
        assert!(releases(0));
        world.time.pass(2 * GRAIN).await;
        assert!(releases(2), "the ticket, and what was taken");
    };
    let lock = async {
        let result = world.ours.lock_many(["a", "b"]).wait(secs(2)).await;
        (result, world.elapsed())
    };
    let ((result, after), ()) = tokio::join!(lock, silence);
    assert!(matches!(result, Err(Error::TimedOut { .. })), "{result:?}");
    assert!(after >= secs(2) + LIMIT, "the nodes answered: {after:?}");
}

#[test(start_paused = true)]
async fn the_one_that_ends_first_counts() {
    let world = World::new().await;
    let guards = world.ours.lock_many(["b", "a"]).fixed().await.expect("free");
    world.time.pass(secs(3)).await;
    guards.get("b").expect("there").extend().await.expect("extended");
    assert_eq!((guards.remaining(), guards.grace()), (secs(7), secs(7)));
    assert_eq!(guards.get("b").map(Guard::remaining), Some(TTL));
    assert_eq!(guards.run(async { 42 }).await.expect("done"), 42);
    match guards.run(std::future::pending::<()>()).await {
        Err(Error::Lost { name, reason: Loss::Expired }) => assert_eq!(name.as_bytes(), b"a"),
        other => panic!("{other:?}"),
    }
    assert_eq!(world.elapsed(), TTL - LEAD);
    let (name, reason) = guards.lost().await;
    assert_eq!((name.as_bytes(), reason), (&b"a"[..], Loss::Expired));
    assert!(!guards.is_held() && guards.remaining().is_zero());
    assert_eq!(guards.grace(), LEAD);
    assert!(guards.get("b").is_some_and(Guard::is_held));
}

#[test(start_paused = true)]
async fn all_are_extended_and_released_though_the_first_is_lost() {
    let world = World::new().await;
    let guards = world.ours.lock_many(["a", "b"]).fixed().await.expect("free");
    world.time.pass(secs(4)).await;
    guards.extend().await.expect("extended");
    assert_eq!(guards.remaining(), TTL);
    world.time.pass(secs(4)).await;
    guards.get("b").expect("there").extend().await.expect("extended");
    world.time.pass(secs(6)).await;
    assert!(world.is_free("a").await && !world.is_free("b").await);
    match guards.extend().await {
        Err(Error::Lost { name, .. }) => assert_eq!(name.as_bytes(), b"a"),
        other => panic!("{other:?}"),
    }
    assert_eq!(guards.get("b").map(Guard::remaining), Some(TTL), "it was not extended");
    match guards.release().await {
        Err(Error::Lost { name, .. }) => assert_eq!(name.as_bytes(), b"a"),
        other => panic!("{other:?}"),
    }
    assert!(world.is_free("b").await);
}

#[test(start_paused = true)]
async fn an_owner_gets_what_it_holds_already() {
    let world = World::new().await;
    let me = world.ours.new_owner();
    let held = world.ours.lock("b").owner(&me).await.expect("free");
    let error = world.ours.lock_many(["a", "b"]).wait(Duration::ZERO).await.expect_err("not mine");
    assert!(matches!(error, Error::Taken { .. }), "{error}");
    let guards = world.ours.lock_many(["a", "b"]).owner(&me).wait(secs(1)).await.expect("mine");
    drop(guards);
    assert!(world.is_free("a").await && !world.is_free("b").await);
    assert!(held.is_held());
}

#[test(start_paused = true)]
async fn each_of_them_has_the_note_of_the_holder() {
    let world = World::new().await;
    let note = async |name: &str| {
        let status = world.other.inspect(name).await.expect("a status");
        status.note().map(|note| (note.text.clone(), note.since.expect("a time")))
    };
    let held = world.others(&["b"]).await;
    let locking = world.ours.lock_many(["c", "b", "a"]).note("Anna on web-3").into_future();
    let locking = tokio::spawn(locking);
    world.time.pass(secs(100)).await;
    let (text, since) = note("a").await.expect("it is held while the next is waited for");
    assert_eq!((text.as_str(), note("b").await, note("c").await), ("Anna on web-3", None, None));
    drop(held);
    let guards = locking.await.expect("no panic").expect("free");
    for name in ["b", "c"] {
        let (text, later) = note(name).await.expect("a note");
        assert_eq!(text, "Anna on web-3", "{name}");
        assert!(later.duration_since(since).is_ok_and(|by| by >= secs(99)), "{name}");
    }
    guards.release().await.expect("released");
    assert_eq!((note("a").await, note("b").await, note("c").await), (None, None, None));
    assert!(world.nodes.iter().all(|node| node.is_empty()), "something is left");
    let long = "x".repeat(quorlock::MAX_NOTE_BYTES + 1);
    let refused = world.ours.lock_many(["a"]).note(long).await.expect_err("too long");
    assert!(matches!(refused, Error::Misuse { .. }), "{refused}");
}

#[test(start_paused = true)]
async fn guards_can_go_their_own_ways() {
    let world = World::new().await;
    let guards = world.ours.lock_many(["a", "b"]).max_extensions(1).await.expect("free");
    let mut each = guards.into_iter();
    let (a, b) = (each.next().expect("a"), each.next().expect("b"));
    drop(a);
    assert!(world.is_free("a").await && b.is_held());
    let lost = tokio::time::timeout(3 * TTL, b.lost()).await;
    assert_eq!(lost, Ok(Loss::Capped));
}

#[test]
async fn the_future_may_move_between_threads() {
    let node = Arc::new(MemoryNode::new()) as Arc<dyn Node>;
    let locker = Locker::builder()
        .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
        .with_nodes([node])
        .connect()
        .await
        .expect("a locker");
    let work = async move {
        let guards = locker.lock_many(["a", "b"]).await?;
        guards.extend().await?;
        guards.run(std::future::ready(())).await?;
        guards.release().await
    };
    tokio::spawn(work).await.expect("no panic").expect("released");
}
