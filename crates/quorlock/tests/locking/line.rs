//! Who gets a lock when many want it: in virtual time, on nodes that remember what they were asked.

use std::future::Future;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use quorlock::runtime::Runtime;
use quorlock::{Error, Guard, Locker, Locking, Loss};
use quorlock_testkit::{Asked, StillWorld};
use tokio::task::{JoinHandle, yield_now};

const TTL: Duration = StillWorld::TTL;
const LIMIT: Duration = StillWorld::LIMIT;
/// The grain of timers.
const GRAIN: Duration = Duration::from_millis(1);

struct World {
    still: StillWorld,
    /// Who has had the lock, in order.
    had: Arc<Mutex<Vec<&'static str>>>,
}

impl Deref for World {
    type Target = StillWorld;

    fn deref(&self) -> &StillWorld {
        &self.still
    }
}

impl World {
    fn new() -> Self {
        Self { still: StillWorld::new(), had: Arc::default() }
    }

    /// What each node was asked so far.
    fn asked(&self) -> Vec<Vec<Asked>> {
        self.nodes.iter().map(|node| node.asked()).collect()
    }

    /// A task that wants the lock, says so when it has it, and lets go.
    async fn wants(&self, who: &'static str, locker: &Locker) -> JoinHandle<()> {
        let (lock, had) = (locker.lock("x"), Arc::clone(&self.had));
        let task = tokio::spawn(async move {
            let guard = lock.await.expect("in the end");
            had.lock().expect("no panic").push(who);
            yield_now().await;
            guard.release().await.expect("released");
        });
        settled().await;
        task
    }

    fn had(&self) -> Vec<&'static str> {
        self.had.lock().expect("no panic").clone()
    }
}

/// Lets everything happen that needs no time.
async fn settled() {
    for _ in 0..64 {
        yield_now().await;
    }
}

/// A lock that is wanted from now on, without a task of its own.
fn wanted(locker: &Locker) -> Pin<Box<Locking>> {
    let mut locking = Box::pin(locker.lock("x").into_future());
    assert!(poll(&mut locking).is_none(), "somebody has it");
    locking
}

fn poll(locking: &mut Pin<Box<Locking>>) -> Option<Result<Guard, Error>> {
    match locking.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_hundred_waiters_ask_for_nothing_while_nothing_happens() {
    let world = World::new();
    let (holder, other) = (world.locker().await, world.locker().await);
    let guard = holder.lock("x").await.expect("free");
    let mut waiters: Vec<_> = (0..100).map(|_| wanted(&other)).collect();
    // One of them has tried, and taken a ticket: that is all.
    for asked in world.asked() {
        assert_eq!(asked, [Asked::Acquire, Asked::Acquire, Asked::Wait]);
    }
    // For ten minutes the holder renews the lock, and the one in front keeps its ticket alive,
    // about once in a TTL.
    world.time.pass(Duration::from_secs(600)).await;
    for asked in world.asked() {
        let waits = asked.iter().filter(|asked| **asked == Asked::Wait).count();
        assert!((2..=31).contains(&waits), "{waits} tickets in ten minutes");
        let others = asked.iter().filter(|asked| !matches!(asked, Asked::Wait | Asked::Extend));
        assert_eq!(others.count(), 2);
    }
    guard.release().await.expect("released");
    assert!(poll(&mut waiters[0]).expect("woken").is_ok());
    assert!(poll(&mut waiters[1]).is_some(), "the guard was dropped at once");
}

#[tokio::test(start_paused = true)]
async fn first_come_first_served_in_one_process_and_among_many() {
    let world = World::new();
    let lockers = [world.locker().await, world.locker().await, world.locker().await];
    let guard = lockers[0].lock("x").await.expect("free");
    let mut tasks = Vec::new();
    // Each process has one in front; the rest of a process follow it, behind one another.
    for (who, locker) in [("a1", 1), ("b1", 2), ("a2", 1), ("b2", 2), ("a3", 1)] {
        tasks.push(world.wants(who, &lockers[locker]).await);
    }
    guard.release().await.expect("released");
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_eq!(world.had(), ["a1", "a2", "a3", "b1", "b2"]);
}

#[tokio::test(start_paused = true)]
async fn a_lock_changes_hands_in_the_process_without_a_word_to_the_nodes() {
    let world = World::new();
    let locker = world.locker().await;
    let first = locker.lock("x").await.expect("free");
    let mut second = wanted(&locker);
    let before = world.asked();
    let released = first.release().await.expect("passed on");
    assert!(released.is_passed_on() && released.nodes().is_empty());
    let second = poll(&mut second).expect("at once").expect("passed on");
    assert!(second.is_held() && !second.remaining().is_zero());
    assert_eq!(world.asked(), before);
    let released = second.release().await.expect("released");
    assert!(released.is_freed());
    assert_eq!(released.nodes().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn others_wait_for_a_bounded_number_of_turns() {
    let world = World::new();
    let locker = world.builder().local_turns(3).connect().await.expect("a locker");
    let other = world.locker().await;
    let guard = locker.lock("x").await.expect("free");
    let mut tasks = Vec::new();
    for (who, locker) in
        [("a2", &locker), ("a3", &locker), ("a4", &locker), ("a5", &locker), ("b", &other)]
    {
        tasks.push(world.wants(who, locker).await);
    }
    guard.release().await.expect("passed on");
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_eq!(world.had(), ["a2", "a3", "b", "a4", "a5"]);
}

/// Somebody who comes when the lock was granted, and others waited, waits behind them.
#[tokio::test(start_paused = true)]
async fn who_comes_later_waits_behind_other_processes() {
    let world = World::new();
    let lockers = [world.locker().await, world.locker().await, world.locker().await];
    let guard = lockers[0].lock("x").await.expect("free");
    let mut front = wanted(&lockers[1]);
    let mut tasks = vec![world.wants("with it", &lockers[1]).await];
    tasks.push(world.wants("other", &lockers[2]).await);
    guard.release().await.expect("released");
    let front = poll(&mut front).expect("woken").expect("granted");
    tasks.push(world.wants("later", &lockers[1]).await);
    front.release().await.expect("passed on");
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_eq!(world.had(), ["with it", "other", "later"]);
}

#[tokio::test(start_paused = true)]
async fn a_release_between_the_try_and_the_ticket_is_not_missed() {
    let world = World::new();
    let (holder, other) = (world.locker().await, world.locker().await);
    let guard = holder.lock("x").await.expect("free");
    // When the last node is asked for a ticket, two have queued it already: the release comes after
    // those and before this.
    world.nodes[2].at_next(Asked::Wait, move || drop(guard));
    let start = world.time.now();
    drop(other.lock("x").await.expect("passed on"));
    assert_eq!(world.time.now(), start, "it was not waited for anything");
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_is_not_waited_for() {
    let world = World::new();
    let lockers = [world.locker().await, world.locker().await, world.locker().await];
    let guard = lockers[0].lock("x").await.expect("free");
    let in_front = wanted(&lockers[1]);
    let behind = wanted(&lockers[1]);
    let last = world.wants("last", &lockers[2]).await;
    drop(behind);
    drop(in_front);
    let start = world.time.now();
    guard.release().await.expect("released");
    last.await.expect("no panic");
    assert_eq!(world.time.now(), start);
}

#[tokio::test(start_paused = true)]
async fn a_place_in_the_queues_goes_to_the_next_of_the_process() {
    let world = World::new();
    let lockers = [world.locker().await, world.locker().await, world.locker().await];
    let guard = lockers[0].lock("x").await.expect("free");
    let in_front = wanted(&lockers[1]);
    let other = world.wants("other", &lockers[2]).await;
    let heir = world.wants("heir", &lockers[1]).await;
    drop(in_front);
    guard.release().await.expect("released");
    heir.await.expect("no panic");
    other.await.expect("no panic");
    assert_eq!(world.had(), ["heir", "other"]);
}

/// A granted lock whose taker has gone away before it looked goes on to the next.
#[tokio::test(start_paused = true)]
async fn a_turn_that_nobody_takes_is_passed_on() {
    let world = World::new();
    let lockers = [world.locker().await, world.locker().await, world.locker().await];
    let guard = lockers[0].lock("x").await.expect("free");
    let (in_front, seated) = (wanted(&lockers[1]), wanted(&lockers[1]));
    let last = world.wants("last", &lockers[2]).await;
    let start = world.time.now();
    guard.release().await.expect("released");
    // It is theirs by now: one after the other leaves it.
    drop(in_front);
    drop(seated);
    last.await.expect("no panic");
    assert_eq!(world.time.now(), start);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_passed_to_somebody_who_goes_away_is_passed_on() {
    let world = World::new();
    let locker = world.locker().await;
    let first = locker.lock("x").await.expect("free");
    let (second, mut third) = (wanted(&locker), wanted(&locker));
    first.release().await.expect("passed on");
    drop(second);
    assert!(poll(&mut third).expect("at once").expect("passed on").is_held());
}

/// The next holder would lose it before it is of use.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_about_to_end_is_not_passed_on() {
    let world = World::new();
    let locker = world.locker().await;
    let first = locker.lock("x").await.expect("free");
    let mut second = wanted(&locker);
    // Nobody answers when it is to be extended.
    world.nodes.iter().for_each(|node| node.hang(true));
    world.time.pass(TTL * 2 / 3).await;
    for node in &world.nodes {
        node.lose_held();
        node.hang(false);
    }
    assert!(first.is_held());
    assert!(first.release().await.expect("released").is_freed());
    settled().await;
    let second = poll(&mut second).expect("free").expect("free");
    assert!(second.remaining() > TTL / 2, "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn who_gives_up_leaves_the_line() {
    let world = World::new();
    let locker = world.locker().await;
    let guard = locker.lock("x").await.expect("free");
    for _ in 0..100 {
        let error = locker.lock("x").wait(GRAIN).await.expect_err("held");
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
    }
    assert!(format!("{locker:?}").contains("lines: 1, waiters: 0, alarms: 1"), "{locker:?}");
    drop(guard);
    assert!(format!("{locker:?}").contains("lines: 0, waiters: 0, alarms: 0"), "{locker:?}");
}

#[tokio::test(start_paused = true)]
async fn a_record_that_ends_goes_to_the_head_of_the_queue() {
    let world = World::new();
    let lockers = [world.locker().await, world.locker().await, world.locker().await];
    std::mem::forget(lockers[0].lock("x").fixed().await.expect("free"));
    let start = world.time.now();
    let first = world.wants("first", &lockers[1]).await;
    world.time.pass(TTL / 2).await;
    let second = world.wants("second", &lockers[2]).await;
    first.await.expect("no panic");
    let waited = world.time.now().since(start);
    assert!(waited >= TTL && waited <= TTL + 2 * GRAIN, "{waited:?}");
    second.await.expect("no panic");
    assert_eq!(world.had(), ["first", "second"]);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_clock_pushes_nobody_aside() {
    let hour = Duration::from_secs(3_600);
    let world = World::new();
    let holder = world.locker().await;
    let guard = holder.lock("x").await.expect("free");
    let right = world.time.wall();
    let mut tasks = Vec::new();
    for (who, wall) in [
        ("right", right),
        ("behind", right - hour),
        ("ahead", right + hour),
        ("behind again", right - hour),
        ("right again", right),
    ] {
        world.time.set_wall(wall);
        let locker = world.locker().await;
        tasks.push(world.wants(who, &locker).await);
    }
    guard.release().await.expect("released");
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_eq!(world.had(), ["right", "behind", "ahead", "behind again", "right again"]);
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_has_lost_the_lock_keeps_nobody_of_its_process_waiting() {
    let world = World::new();
    let locker = world.locker().await;
    let stuck = locker.lock("x").fixed().await.expect("free");
    let start = world.time.now();
    let next = locker.lock("x").await.expect("after the TTL");
    let waited = world.time.now().since(start);
    assert!(waited >= TTL - GRAIN && waited <= TTL + 2 * GRAIN, "{waited:?}");
    assert!(!stuck.is_held());
    drop(stuck);
    assert!(next.is_held());
    next.release().await.expect("the late one has released nothing of it");
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_longer_than_the_ttl_ends_in_time_though_the_holder_renews() {
    let world = World::new();
    let (holder, other) = (world.locker().await, world.locker().await);
    let guard = holder.lock("x").await.expect("free");
    let start = world.time.now();
    let error = other.lock("x").wait(3 * TTL).await.expect_err("never released");
    let elapsed = world.time.now().since(start);
    assert!(elapsed >= 3 * TTL && elapsed <= 3 * TTL + GRAIN, "{elapsed:?}");
    let Error::TimedOut { waited, last, .. } = error else { panic!("{error}") };
    assert_eq!(waited, elapsed);
    assert!(matches!(*last, Error::Taken { holder: Some(_), remaining: Some(_), .. }), "{last}");
    assert!(guard.is_held());
}

/// A node forgets tickets that nobody cares for. How long that takes depends on their own TTL, and not
/// on that of the holder of the lock.
#[tokio::test(start_paused = true)]
async fn a_ticket_for_a_short_lease_outlives_a_long_wait() {
    let world = World::new();
    let (holder, other) = (world.locker().await, world.builder());
    let guard = holder.lock("x").await.expect("free");
    let short = Duration::from_millis(300);
    let other = other.loss_lead(short / 20).connect().await.expect("a locker");
    let waiter = tokio::spawn(other.lock("x").ttl(short).into_future());
    world.time.pass(Duration::from_secs(25)).await;
    let start = world.time.now();
    guard.release().await.expect("passed on");
    drop(waiter.await.expect("no panic").expect("granted"));
    assert_eq!(world.time.now(), start);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_hang_are_named_when_the_time_is_up_and_not_a_holder() {
    let world = World::new();
    let locker = world.locker().await;
    world.nodes.iter().for_each(|node| node.hang(true));
    for wait in [GRAIN, 3 * LIMIT] {
        let start = world.time.now();
        let error = locker.lock("x").wait(wait).await.expect_err("nobody answers");
        let took = world.time.now().since(start);
        assert!(took >= wait && took <= wait + GRAIN, "{took:?}");
        let Error::TimedOut { last, .. } = error else { panic!("{error}") };
        assert!(matches!(*last, Error::NoQuorum { have: 0, need: 2, .. }), "{last}");
    }
}

/// Who has passed a lock on is not told of what becomes of it.
#[tokio::test(start_paused = true)]
async fn the_loss_of_a_lock_concerns_only_its_present_holder() {
    let world = World::new();
    let locker = world.locker().await;
    let first = locker.lock("x").await.expect("free");
    let mut second = wanted(&locker);
    let lost = first.lost();
    first.release().await.expect("passed on");
    assert_eq!(lost.await, Loss::Released);
    let second = poll(&mut second).expect("at once").expect("passed on");
    let lost = second.lost();
    world.nodes.iter().for_each(|node| node.hang(true));
    assert_eq!(lost.await, Loss::Expired);
    assert!(!second.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_nobody_came_for_in_time_is_taken_anew() {
    let world = World::new();
    let locker = world.locker().await;
    let first = locker.lock("x").await.expect("free");
    let mut second = wanted(&locker);
    first.release().await.expect("passed on");
    // Its process is stopped for longer than the lock lasts.
    world.time.suspend(2 * TTL);
    let second = poll(&mut second).expect("free").expect("free");
    assert!(second.is_held() && second.remaining() > TTL / 2, "{second:?}");
}

/// A minority of the nodes hangs: neither taking turns nor the order suffers.
#[tokio::test(start_paused = true)]
async fn a_hung_minority_changes_nothing() {
    let world = World::new();
    let lockers = [world.locker().await, world.locker().await, world.locker().await];
    let guard = lockers[0].lock("x").await.expect("free");
    world.nodes[1].hang(true);
    let mut tasks = Vec::new();
    for (who, locker) in [("a", 1), ("b", 2)] {
        tasks.push(world.wants(who, &lockers[locker]).await);
        world.time.pass(2 * LIMIT).await;
    }
    let start = world.time.now();
    guard.release().await.expect("released");
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_eq!(world.had(), ["a", "b"]);
    let took = world.time.now().since(start);
    assert!(took <= 2 * LIMIT, "{took:?}");
}

/// When the nodes come back one has to wait no longer than until the next attempt.
#[tokio::test(start_paused = true)]
async fn waiting_goes_on_while_the_nodes_are_away() {
    let world = World::new();
    let locker = world.locker().await;
    world.nodes.iter().for_each(|node| node.hang(true));
    let start = world.time.now();
    let task = world.wants("patient", &locker).await;
    world.time.pass(2 * TTL).await;
    assert!(!task.is_finished());
    for node in &world.nodes {
        node.lose_held();
        node.hang(false);
    }
    task.await.expect("no panic");
    let took = world.time.now().since(start);
    assert!(took <= 2 * TTL + Duration::from_secs(1), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn three_waiters_with_a_vote_each_are_sorted_out_at_once() {
    let world = World::new();
    let lockers = [world.locker().await, world.locker().await, world.locker().await];
    let start = world.time.now();
    // Each node is asked by another one first: as if three had started in the same instant, each
    // next to another node.
    let mut tasks = Vec::new();
    for (index, locker) in lockers.iter().enumerate() {
        for (other, node) in world.nodes.iter().enumerate() {
            node.hang(other != index);
        }
        let (lock, had) = (locker.lock("x"), Arc::clone(&world.had));
        tasks.push(tokio::spawn(async move {
            let guard = lock.await.expect("in the end");
            had.lock().expect("no panic").push("one");
            guard.release().await.expect("released");
        }));
        yield_now().await;
    }
    world.nodes.iter().for_each(|node| node.hang(false));
    for task in tasks {
        task.await.expect("no panic");
    }
    assert_eq!(world.had().len(), 3);
    let took = world.time.now().since(start);
    assert!(took <= 4 * LIMIT, "{took:?}: somebody waited for a record to end");
}
