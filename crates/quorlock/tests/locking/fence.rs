//! Fences: a later holder of a lock has a higher one, whichever way it got the lock.

use std::future::IntoFuture;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use quorlock::node::memory::MemoryNode;
use quorlock::node::{Node, Proposal};
use quorlock::runtime::Runtime;
use quorlock::{Error, Guard, Locker, blocking};
use quorlock_testkit::conformance::owner;
use quorlock_testkit::{Asked, StillWorld, VirtualTime};

const LONG: Duration = Duration::from_secs(30);

fn memory(count: usize) -> Vec<Arc<dyn Node>> {
    (0..count).map(|_| Arc::new(MemoryNode::new()) as Arc<dyn Node>).collect()
}

#[tokio::test(start_paused = true)]
async fn all_guards_of_one_owner_have_the_same_fence() {
    let world = StillWorld::new();
    let locker = world.locker().await;
    let me = locker.new_owner();
    let outer = locker.lock("x").owner(&me).await.expect("free");
    let inner = locker.lock("x").owner(&me).await.expect("mine");
    assert_eq!(outer.fence(), inner.fence());
    world.time.pass(3 * StillWorld::TTL).await;
    assert!(world.count(Asked::Extend) > 0);
    let fence = outer.fence();
    drop(outer);
    assert_eq!(inner.fence(), fence, "it is still the same holder");
    drop(inner);
    let next = locker.lock("x").owner(&me).await.expect("free");
    assert!(next.fence() > fence, "it was somebody's in between, or could have been");
}

/// The record stays where it is, and so does its token: only the fence tells the two apart.
#[tokio::test(start_paused = true)]
async fn a_lock_that_changes_hands_inside_of_a_process_changes_its_fence() {
    let world = StillWorld::new();
    let locker = world.locker().await;
    let mut guard = locker.lock("x").await.expect("free");
    for _ in 0..5 {
        let next = tokio::spawn(locker.lock("x").into_future());
        world.time.pass(Duration::from_millis(1)).await;
        let (fence, released) = (guard.fence(), guard.release().await.expect("released"));
        assert!(released.is_passed_on());
        guard = next.await.expect("no panic").expect("its turn");
        assert!(guard.fence() > fence);
    }
    assert_eq!(world.count(Asked::Acquire), 1, "the nodes were asked");
}

/// Time stands still, so that fences lie side by side: nothing but the rules keeps them apart.
fn still() -> Arc<dyn Runtime> {
    Arc::new(VirtualTime::new(SystemTime::now()))
}

/// One of two processes serves some of its own in a row, with fences that it has reserved; then the
/// other does. Were the reserved ones not all below what the nodes give out next, they would overlap.
async fn turns(nodes: &[Arc<dyn Node>], local_turns: u16) {
    const TURNS: usize = 100;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (mut tasks, time) = (tokio::task::JoinSet::new(), still());
    for process in ['a', 'b'] {
        let builder = Locker::builder().with_nodes(nodes.iter().cloned()).runtime(time.clone());
        let locker = builder.ttl(LONG).local_turns(local_turns).connect().await.expect("a locker");
        for _ in 0..3 {
            let (locker, seen) = (locker.clone(), Arc::clone(&seen));
            tasks.spawn(async move {
                for _ in 0..TURNS {
                    let guard = locker.lock("x").await.expect("in turn");
                    seen.lock().expect("nobody panics").push((process, guard.fence()));
                    // Lets the others get in line, so that there is somebody to pass it on to.
                    tokio::task::yield_now().await;
                    guard.release().await.expect("held");
                }
            });
        }
    }
    tasks.join_all().await;
    let seen = seen.lock().expect("nobody panics");
    assert_eq!(seen.len(), 2 * 3 * TURNS);
    for pair in seen.windows(2) {
        assert!(pair[0].1 < pair[1].1, "{pair:?} of {local_turns} turns on {} nodes", nodes.len());
    }
    let changes = seen.windows(2).filter(|pair| pair[0].0 != pair[1].0).count();
    assert!(changes >= 20, "the lock hardly went from one process to the other: {changes} times");
}

#[tokio::test(start_paused = true)]
async fn fences_grow_though_two_processes_pass_a_lock_on_among_their_own() {
    for nodes in [1, 3, 5] {
        for local_turns in [1, 2, 16] {
            turns(&memory(nodes), local_turns).await;
        }
    }
}

/// A hundred times from one process to the other and back. Those who find it taken stand in the queues
/// of the nodes and get it from there; those who come later find it free.
#[tokio::test(start_paused = true)]
async fn fences_grow_from_one_process_to_the_other() {
    for (local_turns, queue) in [(1, true), (1, false), (16, true), (16, false)] {
        let (nodes, time) = (memory(3), still());
        let builder = || Locker::builder().with_nodes(nodes.clone()).runtime(time.clone());
        let connect = || builder().ttl(LONG).local_turns(local_turns).connect();
        let lockers = [connect().await.expect("a locker"), connect().await.expect("a locker")];
        let mut guard = lockers[0].lock("x").await.expect("free");
        for turn in 1..=100 {
            let fence = guard.fence();
            let next = lockers[turn % 2].lock("x");
            guard = if queue {
                let (next, released) =
                    tokio::join!(next.into_future(), async { guard.release().await });
                released.expect("held");
                next.expect("its turn")
            } else {
                guard.release().await.expect("held");
                next.await.expect("free")
            };
            assert!(guard.fence() > fence, "turn {turn}: {} after {fence}", guard.fence());
        }
    }
}

/// Fences follow the clock, so that they grow though there is nobody left who knows the last one.
#[tokio::test(start_paused = true)]
async fn fences_grow_though_all_nodes_forget() {
    let time = Arc::new(VirtualTime::new(SystemTime::now()));
    let fence_on_new_nodes = async || {
        let builder = Locker::builder().with_nodes(memory(3)).runtime(Arc::clone(&time) as _);
        let locker = builder.connect().await.expect("a locker");
        locker.lock("x").await.expect("free").fence()
    };
    let first = fence_on_new_nodes().await;
    time.pass(Duration::from_secs(1)).await;
    let later = fence_on_new_nodes().await;
    assert!(later > first, "{later} after {first}");
}

#[tokio::test(start_paused = true)]
async fn each_of_several_locks_has_a_fence_of_its_own() {
    let world = StillWorld::new();
    let (ours, other) = (world.locker().await, world.locker().await);
    let before = ours.lock("b").await.expect("free").fence();
    let guards = ours.lock_many(["b", "a"]).await.expect("free");
    let fences: Vec<_> = guards.iter().map(Guard::fence).collect();
    assert_eq!(guards.get("b").map(Guard::fence), Some(fences[1]));
    assert!(fences[1] > before);
    drop(guards);
    let guards = other.lock_many(["a", "b"]).await.expect("free");
    for (guard, fence) in guards.iter().zip(fences) {
        assert!(guard.fence() > fence, "{}", guard.name());
    }
}

#[test]
fn programs_without_async_have_the_same_fences() {
    let nodes = memory(1);
    let connect = || blocking::Locker::builder().with_nodes(nodes.clone()).connect();
    let (locker, other) = (connect().expect("a locker"), connect().expect("a locker"));
    let guard = locker.lock("x").acquire().expect("free");
    let first = guard.fence();
    let waiter = {
        let locker = locker.clone();
        thread::spawn(move || locker.lock("x").acquire().expect("its turn").fence())
    };
    guard.release().expect("released");
    let second = waiter.join().expect("no panic");
    assert!(second > first, "{second} after {first}");
    let guards = other.lock_many(["y", "x"]).wait(LONG).acquire().expect("free");
    assert!(guards.fence("x").is_some_and(|third| third > second));
    assert!(guards.fence("y").is_some());
    assert_eq!(guards.fence("z"), None);
}

#[test]
#[should_panic(expected = "the lock x has no fence: its Locker was built with fences(false)")]
fn without_fences_there_is_no_fence_that_could_pass_for_one() {
    let locker = blocking::Locker::builder().with_nodes(memory(1));
    let locker = locker.fences(false).connect().expect("a locker");
    let fence = locker.lock("x").acquire().expect("free").fence();
    unreachable!("{fence} is no fence");
}

/// The first two nodes grant a lock with different fences, before the third has been heard of: its lease
/// stands on them. A majority of the nodes does not make the fence sure if one of those two is missing.
#[tokio::test(start_paused = true)]
async fn a_fence_is_confirmed_by_the_nodes_that_the_lease_stands_on() {
    for silent in [false, true] {
        let world = StillWorld::new();
        let [first, second, third] = &world.nodes[..] else { panic!("three nodes") };
        let ahead = VirtualTime::new(SystemTime::now() + Duration::from_secs(3_600));
        let alone = Locker::builder().with_nodes([Arc::clone(second) as Arc<dyn Node>]);
        let alone = alone.runtime(Arc::new(ahead)).connect().await.expect("a locker");
        let high = alone.lock("x").await.expect("free");
        let fence = high.fence();
        high.release().await.expect("released");

        third.hang(true);
        if silent {
            // It is still to answer this one.
            let node = Arc::clone(first);
            first.at_next(Asked::Acquire, move || node.hang(true));
        }
        let node = Arc::clone(third);
        second.at_next(Asked::Confirm, move || node.hang(false));
        let taken = world.locker().await.try_lock("x").await;
        for node in &world.nodes {
            assert!(node.asked().contains(&Asked::Confirm));
        }
        if silent {
            taken.expect_err("one of the two");
        } else {
            assert!(taken.expect("both of them").fence() > fence);
        }
    }
}

/// Two nodes grant it with different fences. The fence has to be confirmed, by one of the two and by a third
/// node that has it since later: the lease does not stand on that one, and so its answer does not count.
#[tokio::test(start_paused = true)]
async fn a_fence_is_not_sure_by_the_answer_of_a_node_that_the_lease_does_not_stand_on() {
    for stands in [true, false] {
        let world = StillWorld::new();
        let [first, second, third] = [0, 1, 2].map(|node| Arc::clone(&world.nodes[node]));
        let wall = world.time.wall().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        let higher = u64::try_from(wall.as_micros()).expect("a number") + 1_000;
        let (other, node) = (owner("x"), Arc::clone(&second) as Arc<dyn Node>);
        let proposal = Proposal { least: higher, block: 1 };
        assert_eq!(other.acquire_fenced(&node, LONG, proposal).fence().await, higher);
        assert!(other.release(&node).is_done().await);

        third.hang(true);
        let again = Arc::clone(&second);
        second.at_next(Asked::Acquire, move || {
            // The first has granted it already.
            first.hang(!stands);
            again.at_next(Asked::Confirm, move || third.hang(false));
        });
        let taken = world.locker().await.try_lock("x").await;
        assert!(world.nodes.iter().all(|node| node.asked().contains(&Asked::Confirm)));
        if stands {
            assert!(taken.expect("two of three").fence() > higher);
        } else {
            let error = taken.expect_err("one of three");
            assert!(matches!(error, Error::Taken { .. }), "{error:?}");
            assert!(world.nodes[1].is_empty() && world.nodes[2].is_empty(), "it was given back");
        }
    }
}
