//! Locks for programs without async: the holder's thread works, another one keeps the lock.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use quorlock::blocking::{Guard, Locker};
use quorlock::node::Node;
use quorlock::node::memory::MemoryNode;
use quorlock::{Error, GuardState, Loss};
use quorlock_testkit::{DEADLINE, RedisServer, Reply, eventually, servers, test};

const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(500);

fn memory() -> Locker {
    let node = Arc::new(MemoryNode::new()) as Arc<dyn Node>;
    Locker::builder()
        .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
        .with_nodes([node])
        .connect()
        .expect("a locker")
}

fn on(servers: &[RedisServer], ttl: Duration) -> Locker {
    let urls = servers.iter().map(RedisServer::url);
    Locker::builder()
        .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
        .nodes(urls)
        .ttl(ttl)
        .connect()
        .expect("a locker")
}

fn misuse<T>(result: Result<T, Error>) -> String {
    match result {
        Err(error @ Error::Misuse { .. }) => error.to_string(),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was done"),
    }
}

fn is_gone(server: &RedisServer, name: &str) -> bool {
    server.command(&["EXISTS", name]) == Reply::Int(0)
}

/// What is told of a guard's loss; the channel is closed when nothing will be any more.
fn losses_of(guard: &Guard) -> Receiver<Loss> {
    let (sender, receiver) = mpsc::channel();
    guard.on_lost(move |loss| sender.send(loss).expect("somebody listens"));
    receiver
}

#[test]
fn threads_and_clients_exclude_each_other() {
    let servers = servers(3);
    let busy = AtomicBool::new(false);
    let lockers = [on(&servers, LONG), on(&servers, LONG)];
    thread::scope(|scope| {
        for locker in lockers.iter().chain(&lockers) {
            scope.spawn(|| {
                for _ in 0..25 {
                    let guard = locker.lock("x").wait(LONG).acquire().expect("nobody keeps it");
                    assert!(!busy.swap(true, Ordering::SeqCst), "two at a time");
                    thread::yield_now();
                    busy.store(false, Ordering::SeqCst);
                    guard.release().expect("released");
                }
            });
        }
    });
}

#[test]
fn a_lock_is_extended_while_its_holder_does_something_else() {
    let servers = servers(3);
    let ttl = 4 * SHORT;
    let locker = on(&servers, ttl);
    let guard = locker.lock("x").acquire().expect("free");
    assert_eq!(guard.state(), GuardState::Held);
    assert_eq!(guard.wait_lost(Duration::from_millis(1)).expect("not async"), None);
    eventually("it is extended", || guard.state() == GuardState::Renewed);
    assert!(guard.is_held() && guard.remaining() > Duration::ZERO && guard.remaining() <= ttl);
    let released = guard.release().expect("released");
    assert!(released.is_freed());
}

#[test]
fn one_that_is_taken_is_not_waited_for_longer_than_said() {
    let (servers, other) = (servers(3), "other");
    let (ours, others) = (on(&servers, LONG), on(&servers, LONG));
    let guard = others.lock(other).acquire().expect("free");
    let error = ours.try_lock(other).acquire().expect_err("taken");
    assert!(matches!(error, Error::Taken { .. }), "{error}");
    let error = ours.lock(other).wait(Duration::from_millis(20)).acquire().expect_err("taken");
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    let status = ours.inspect(other).expect("a status");
    assert!(status.holder().is_some());
    assert_eq!(guard.name().as_bytes(), other.as_bytes());
}

#[test]
fn a_loss_is_told_though_every_node_hangs() {
    let servers = servers(3);
    let urls = servers.iter().map(RedisServer::url);
    let builder = Locker::builder()
        .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
        .nodes(urls)
        .ttl(2 * SHORT)
        .loss_lead(SHORT);
    let locker = builder.connect().expect("a locker");
    let guard = locker.lock("x").acquire().expect("free");
    let losses = losses_of(&guard);
    servers.iter().for_each(RedisServer::pause);
    assert_eq!(guard.wait_lost(DEADLINE).expect("not async"), Some(Loss::Expired));
    assert!(guard.grace() > Duration::ZERO, "too late to stop the work");
    assert_eq!(losses.recv_timeout(DEADLINE), Ok(Loss::Expired));
    assert!(!guard.is_held() && guard.remaining().is_zero());
    assert_eq!(guard.state(), GuardState::Lost(Loss::Expired));
    let error = guard.extend().expect_err("lost");
    assert!(matches!(error, Error::Lost { .. }), "{error}");
}

#[test]
fn a_release_is_no_loss() {
    let locker = memory();
    for drop_it in [true, false] {
        let guard = locker.lock("x").acquire().expect("free");
        let losses = losses_of(&guard);
        if drop_it {
            drop(guard);
        } else {
            guard.release().expect("released");
        }
        assert_eq!(losses.recv_timeout(DEADLINE), Err(mpsc::RecvTimeoutError::Disconnected));
    }
}

/// The lock goes to the next without a word to the nodes, and lives on.
#[test]
fn what_becomes_of_it_in_other_hands_is_not_told() {
    let locker = memory();
    let mut passed_on = None;
    // Once the other thread waits before this one lets go.
    eventually("it is passed on", || {
        let guard = locker.lock("x").acquire().expect("free");
        let losses = losses_of(&guard);
        let other = locker.clone();
        let next = thread::spawn(move || other.lock("x").acquire().expect("free or passed on"));
        thread::yield_now();
        let released = guard.release().expect("released");
        let next = next.join().expect("no panic");
        passed_on = released.is_passed_on().then_some((losses, next));
        passed_on.is_some()
    });
    let (losses, next) = passed_on.expect("it is");
    assert_eq!(losses.recv_timeout(DEADLINE), Err(mpsc::RecvTimeoutError::Disconnected));
    assert!(next.is_held());
}

#[test]
fn several_locks_by_one_call() {
    let servers = servers(3);
    let locker = on(&servers, LONG);
    let guards = locker.lock_many(["b", "a", "b"]).fixed().acquire().expect("free");
    assert!(guards.names().map(quorlock::Name::as_bytes).eq([b"a", b"b"]));
    assert_eq!((guards.len(), guards.is_empty(), guards.is_held()), (2, false, true));
    assert_eq!((guards.state("a"), guards.state("c")), (Some(GuardState::Held), None));
    guards.extend().expect("extended");
    assert_eq!(guards.state("b"), Some(GuardState::Renewed));
    assert_eq!(guards.wait_lost(Duration::ZERO).expect("not async"), None);
    let error = locker.lock_many(["c", "b"]).wait(Duration::ZERO).acquire().expect_err("taken");
    assert!(matches!(error, Error::Taken { .. }), "{error}");
    assert_eq!(guards.release().expect("released").len(), 2);
    for server in &servers {
        eventually("nothing is left", || server.kept() == 0);
    }
    let guards = locker.lock_many(["a", "b"]).ttl(4 * SHORT).fixed().acquire().expect("free");
    let (sender, losses) = mpsc::channel();
    guards.on_lost(move |(name, loss)| sender.send((name, loss)).expect("somebody listens"));
    let (name, loss) = losses.recv_timeout(DEADLINE).expect("in time");
    assert_eq!((name.as_bytes(), loss), (&b"a"[..], Loss::Expired));
    let first = guards.into_iter().next().expect("two");
    assert_eq!(first.name().as_bytes(), b"a");
}

#[test]
fn a_lock_is_kept_gone_on_with_listed_and_taken_away() {
    let locker = memory();
    let guard = locker.lock("x").note("Anna").fixed().acquire().expect("free");
    let losses = losses_of(&guard);
    let token = guard.into_token().expect("held");
    assert!(losses.recv_timeout(DEADLINE).is_err(), "to keep it is no loss");
    let guard = locker.resume("x", token).expect("kept");
    assert!(guard.is_held());
    let locks = locker.list().expect("a list");
    assert_eq!(locks.len(), 1);
    assert_eq!(locks[0].note().map(|note| &*note.text), Some("Anna"));
    assert_eq!(locker.force_release(&locks[0]).expect("taken away").len(), 1);
    assert!(matches!(guard.extend(), Err(Error::Lost { .. })));
    assert!(matches!(locker.resume("x", token), Err(Error::Lost { .. })));
}

#[test]
fn an_owner_enters_again_and_a_shut_down_locker_takes_nothing() {
    let locker = memory();
    let me = locker.new_owner();
    let outer = locker.lock("x").owner(&me).acquire().expect("free");
    let inner = locker.try_lock("x").owner(&me).acquire().expect("mine");
    assert!(outer.release().expect("released").is_still_held());
    locker.shutdown().expect("not async");
    assert!(inner.is_held());
    let refused = misuse(locker.lock("y").acquire());
    assert!(refused.contains("after the shutdown"), "{refused}");
}

#[test]
fn in_async_code_nothing_blocks_and_the_error_says_what_to_use() {
    let node = Arc::new(MemoryNode::new());
    let nodes = [Arc::clone(&node) as Arc<dyn Node>];
    let locker = Locker::builder()
        .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
        .with_nodes(nodes.clone())
        .connect()
        .expect("a locker");
    let guard = locker.lock("x").acquire().expect("free");
    let guards = locker.lock_many(["y", "z"]).acquire().expect("free");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let refused = [
            misuse(
                Locker::builder()
                    .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
                    .with_nodes(nodes)
                    .connect(),
            ),
            misuse(locker.lock("a").acquire()),
            misuse(locker.try_lock("a").acquire()),
            misuse(locker.lock_many(["a", "b"]).acquire()),
            misuse(locker.inspect("x")),
            misuse(locker.shutdown()),
            misuse(guard.extend()),
            misuse(guard.wait_lost(Duration::ZERO)),
            misuse(guards.extend()),
            misuse(guards.wait_lost(Duration::ZERO)),
        ];
        for text in refused {
            assert!(text.contains("blocking::") && text.contains("quorlock::Locker"), "{text}");
        }
        assert_eq!(guard.state(), GuardState::Held, "it was extended");
        assert_eq!(node.len(), 3, "something was taken");
        misuse(guard.release());
        misuse(guards.release());
    });
    eventually("released all the same", || node.is_empty());
    locker.lock("a").acquire().expect("it was not shut down").release().expect("released");
}

#[test]
fn dropped_in_async_code_it_neither_blocks_nor_panics() {
    let server = RedisServer::start();
    let locker = on(std::slice::from_ref(&server), LONG);
    let guard = locker.lock("x").acquire().expect("free");
    let guards = locker.lock_many(["y", "z"]).acquire().expect("free");
    let losses = losses_of(&guard);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    // One who waited for the server here would wait for ever.
    server.pause();
    runtime.block_on(async move {
        drop(locker);
        drop(guard);
        drop(guards);
    });
    server.resume();
    assert_eq!(losses.recv_timeout(DEADLINE), Err(mpsc::RecvTimeoutError::Disconnected));
    for name in ["x", "y", "z"] {
        eventually("released in the background", || is_gone(&server, name));
    }
}

/// Where a thread of this process can be seen while it lives.
fn here() -> PathBuf {
    PathBuf::from("/proc").join(std::fs::read_link("/proc/thread-self").expect("a thread"))
}

#[cfg(target_os = "linux")]
#[test]
fn the_thread_ends_with_the_last_of_locker_and_guards() {
    let server = RedisServer::start();
    let locker = on(std::slice::from_ref(&server), LONG);
    let (sender, answers) = mpsc::channel();
    let short = locker.lock("short").ttl(4 * SHORT).fixed().acquire().expect("free");
    let nested = locker.clone();
    short.on_lost(move |_| {
        let name = thread::current().name().map(str::to_owned);
        let refused = misuse(nested.lock("y").acquire());
        sender.send((name, here(), refused)).expect("somebody listens");
    });
    let (name, place, refused) = answers.recv_timeout(DEADLINE).expect("in time");
    assert_eq!(name.as_deref(), Some("quorlock"));
    assert!(refused.contains("blocking::Lock::acquire"), "{refused}");
    assert_ne!(place, here());
    drop(short);
    let clone = locker.clone();
    drop(locker);
    let guard = clone.lock("x").acquire().expect("free");
    drop(clone);
    // The guard keeps it.
    guard.extend().expect("extended");
    assert!(place.exists());
    drop(guard);
    eventually("the thread has ended", || !place.exists());
    assert!(is_gone(&server, "x"), "it ended before its work was done");
}

#[test]
fn threads_that_wait_are_woken_in_turn() {
    let locker = memory();
    let guard = locker.lock("x").acquire().expect("free");
    let (sender, served) = mpsc::channel();
    for _ in 0..3 {
        let (locker, sender) = (locker.clone(), sender.clone());
        thread::spawn(move || {
            for _ in 0..100 {
                let guard = locker.lock("x").wait(LONG).acquire().expect("in turn");
                thread::yield_now();
                guard.release().expect("released");
            }
            sender.send(()).expect("somebody listens");
        });
    }
    guard.release().expect("released");
    for _ in 0..3 {
        assert_eq!(served.recv_timeout(DEADLINE), Ok(()));
    }
    let status = locker.inspect("x").expect("a status");
    assert!(status.nodes.iter().all(|node| matches!(node.record, Ok(None))));
}
