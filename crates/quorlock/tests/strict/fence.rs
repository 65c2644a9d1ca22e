//! Fences over servers that forget, or that have given out different ones.

use std::fmt;
use std::future::IntoFuture;
use std::sync::{Arc, Weak};
use std::time::SystemTime;

use quorlock::node::{
    Call, Capabilities, ClientId, Failure, Inbox, Node, Proposal, TicketNumber, Verb,
};
use quorlock::runtime::BoxFuture;
use quorlock::{Dialect, Guard, Locker};
use quorlock_testkit::conformance::owner;
use quorlock_testkit::{RedisServer, eventually_async as eventually, test};
use tokio::sync::Notify;

use crate::world::{QUARANTINE, TTL, World, is_held, marker, text};
use crate::{BOTH, NAME};

async fn next_fence(locker: &Locker) -> u64 {
    // A server that is slow to release it may be needed for a majority.
    let guard: Guard = locker.lock(NAME).wait(TTL).await.expect("free");
    let fence = guard.fence();
    guard.release().await.expect("released");
    fence
}

/// The last fence that a server has given out.
fn last_fence(server: &RedisServer, dialect: Dialect) -> u64 {
    let digits = match dialect {
        Dialect::Strict => {
            let record = text(server, NAME).expect("a record");
            record.get(9..25).expect("a number").to_owned()
        }
        _ => text(server, &format!("{NAME}:quorlock:fence")).expect("a number"),
    };
    digits.parse().expect("a number")
}

#[test]
async fn they_grow_though_servers_forget() {
    let world = World::new(Dialect::Strict).await;
    let (first, second) = (world.client().await, world.client().await);
    let mut fences = vec![next_fence(&first).await];
    for forgetful in 0..3 {
        world.servers[forgetful].restart_empty();
        world.all_reached_by(&first).await;
        world.all_reached_by(&second).await;
        fences.push(next_fence(&second).await);
        fences.push(next_fence(&first).await);
        // It was taken back, and counts the time.
        let back = || marker(&world.servers[forgetful]);
        eventually("it counts", async || back().is_some_and(|it| it.starts_with("formed "))).await;
        // From here on it votes, with nothing that it knows.
        world.pass(QUARANTINE);
    }
    assert!(fences.is_sorted_by(|one, other| one < other), "{fences:?}");
}

/// A ticket may have come back from an old file, and the server has forgotten what it gave out since.
#[test]
async fn the_next_holder_of_a_broken_lock_has_a_fence_of_this_day() {
    let world = World::new(Dialect::Strict).await;
    let server = &world.servers[0];
    let client = world.waiting_client(&server.url(), |_| {}).await;
    let (holder, waiter) = (owner(NAME), client.waiter(NAME, 1));
    let old = holder.acquire(client.node(), TTL).fence().await;
    assert!(old < 1_000, "{old}");
    waiter.wait(TicketNumber::New(1), TTL).queued().await;
    let before = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let seen = holder.seen(client.node()).await.expect("a record");
    assert!(holder.take_from(seen.holder, client.node()).is_done().await);
    let record = waiter.seen().await.expect("it was passed on");
    assert!(record.fence.map(u128::from) >= Some(before.as_micros()), "{record:?}");
}

/// One server has given out a fence that is ahead of all clocks: to somebody who got no majority.
async fn with_a_high_fence(world: &World) -> u64 {
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let high = u64::try_from(wall.as_micros()).expect("a number") + 3_600_000_000;
    let (loser, node) = (owner(NAME), world.node(&world.servers[1].url()).await);
    let proposal = Proposal { least: high, block: 1 };
    assert_eq!(loser.acquire_fenced(&node, TTL, proposal).fence().await, high);
    assert!(loser.release(&node).is_done().await);
    high
}

#[test]
async fn the_highest_of_different_ones_is_confirmed_by_a_majority() {
    for dialect in BOTH {
        let world = World::new(dialect).await;
        let high = with_a_high_fence(&world).await;
        // The one with the high fence has to be among those that vote.
        world.servers[2].kill();
        let (first, second) = (world.client().await, world.client().await);
        let guard = first.try_lock(NAME).await.expect("two of three");
        assert!(guard.fence() > high, "{} {high}", guard.fence());
        let known =
            [&world.servers[0], &world.servers[1]].map(|server| last_fence(server, dialect));
        assert!(known.iter().all(|fence| *fence >= guard.fence()), "{known:?} {}", guard.fence());
        let fence = guard.fence();
        guard.release().await.expect("released");

        // A client that takes it without that server gets a higher one all the same.
        world.servers[2].restart();
        world.all_reached_by(&second).await;
        if dialect == Dialect::Strict {
            let back = || marker(&world.servers[2]);
            eventually("it is taken back", async || {
                back().is_some_and(|it| it.starts_with("formed "))
            })
            .await;
        }
        world.servers[1].kill();
        world.reached_by(&second, |reached| reached == [true, false, true]).await;
        if dialect == Dialect::Strict {
            second.try_lock(NAME).await.expect_err("the third one has forgotten all");
            world.pass(QUARANTINE);
        }
        let mut guard = None;
        eventually("two of three", async || {
            guard = second.try_lock(NAME).await.ok();
            guard.is_some()
        })
        .await;
        let guard = guard.expect("the lock");
        assert!(guard.fence() > fence, "{} {fence}", guard.fence());
    }
}

/// A server that lets through what it is asked, and tells when that is to stand at a fence.
struct Telltale {
    node: Arc<dyn Node>,
    confirming: Arc<Notify>,
}

#[test]
async fn a_caller_that_goes_away_while_it_is_confirmed_leaves_nothing_behind() {
    for dialect in BOTH {
        let world = World::new(dialect).await;
        with_a_high_fence(&world).await;
        // Without a third one, the first two have to agree.
        let confirming = Arc::new(Notify::new());
        let mut nodes: Vec<Arc<dyn Node>> = Vec::new();
        for url in &world.urls()[..2] {
            let (node, confirming) = (world.node(url).await, Arc::clone(&confirming));
            nodes.push(Arc::new(Telltale { node, confirming }));
        }
        let locker = world.builder().with_nodes(nodes).connect().await.expect("a locker");
        tokio::select! {
            biased;
            taken = locker.try_lock(NAME).into_future() => panic!("without a word: {taken:?}"),
            () = confirming.notified() => {}
        }
        assert!(world.servers[..2].iter().all(is_held), "it was granted");
        eventually("it is released", async || !world.servers.iter().any(is_held)).await;
        let guard = locker.lock(NAME).wait(TTL).await.expect("free for the next one");
        let (fence, known) = (guard.fence(), last_fence(&world.servers[1], dialect));
        assert!(known >= fence && fence > 0, "{known} {fence}");
    }
}

impl Node for Telltale {
    fn label(&self) -> &str {
        self.node.label()
    }

    fn capabilities(&self) -> Capabilities {
        self.node.capabilities()
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), Failure>> {
        self.node.ready()
    }

    fn submit(&self, call: Call) {
        if matches!(call.request().verb, Verb::Confirm { .. }) {
            self.confirming.notify_one();
        }
        self.node.submit(call);
    }

    fn listen(&self, client: ClientId, node: usize, inbox: Weak<dyn Inbox>) {
        self.node.listen(client, node, inbox);
    }
}

impl fmt::Debug for Telltale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telltale").finish_non_exhaustive()
    }
}
