//! Waiters in the queues of the nodes, in the corners: whatever happens at the worst moment, they
//! neither block others nor wear the nodes out.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use quorlock::node::memory::MemoryNode;
use quorlock::node::{
    Answer, Call, Capabilities, ClientId, Failure, FailureKind, Inbox, Node, Queued, TicketNumber,
    Verb,
};
use quorlock::runtime::{BoxFuture, Runtime, TokioRuntime};
use quorlock::{Error, Guard, Locker, Locking, Owner, Token};
use quorlock_testkit::conformance::{Client, owner};
use quorlock_testkit::{Asked, DEADLINE, StillWorld, VirtualTime};
use tokio::task::yield_now;

const TTL: Duration = StillWorld::TTL;
const LIMIT: Duration = StillWorld::LIMIT;

/// How often all nodes together were asked for something.
fn on_all(world: &StillWorld, what: Asked) -> usize {
    let asked = world.nodes.iter().flat_map(|node| node.asked());
    asked.filter(|asked| *asked == what).count()
}

/// Lets everything happen that needs no time.
async fn settled() {
    for _ in 0..64 {
        yield_now().await;
    }
}

fn poll(locking: &mut Pin<Box<Locking>>) -> Option<Result<Guard, Error>> {
    match locking.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

/// A lock that is wanted from now on, without a task of its own.
fn wanted(locker: &Locker) -> Pin<Box<Locking>> {
    let mut locking = Box::pin(locker.lock("x").into_future());
    assert!(poll(&mut locking).is_none(), "somebody has it");
    locking
}

/// Its caller goes away when one node was asked, and two were not yet: what it takes back must come
/// after what it asks for.
#[tokio::test(start_paused = true)]
async fn who_goes_away_while_it_asks_the_nodes_leaves_nothing_behind() {
    let world = StillWorld::new();
    let (holder, impatient, last) =
        (world.locker().await, world.locker().await, world.locker().await);
    let guard = holder.lock("x").await.expect("free");
    let waiting = wanted(&impatient);
    let before = on_all(&world, Asked::Wait);
    world.nodes[0].at_next(Asked::Wait, move || drop(waiting));
    // About once in a TTL a waiter looks how it stands.
    world.time.pass(TTL + LIMIT).await;
    assert_eq!(on_all(&world, Asked::Wait), before + 3);
    assert!(guard.is_held());
    guard.release().await.expect("released");
    drop(last.try_lock("x").await.expect("nobody wants it any more"));
}

/// Nodes that can be switched off: they refuse at once then, as a client does without a connection.
struct Switched {
    node: MemoryNode,
    off: AtomicBool,
    refused: AtomicUsize,
}

impl fmt::Debug for Switched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Switched").finish_non_exhaustive()
    }
}

impl Node for Switched {
    fn label(&self) -> &'static str {
        "switched:"
    }

    fn capabilities(&self) -> Capabilities {
        self.node.capabilities()
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), Failure>> {
        self.node.ready()
    }

    fn submit(&self, call: Call) {
        // A caller that asks without end is not to hang the test.
        if self.off.load(SeqCst) && self.refused.fetch_add(1, SeqCst) < 1_000 {
            call.answer(Answer::Failed(Failure::new(FailureKind::Unreachable, "off")));
        } else {
            self.node.submit(call);
        }
    }

    fn listen(&self, client: ClientId, node: usize, inbox: Weak<dyn Inbox>) {
        self.node.listen(client, node, inbox);
    }
}

/// A laptop is closed when a lock has just been granted, and opened again where there is no network.
#[tokio::test(start_paused = true)]
async fn a_grant_that_has_run_out_is_not_asked_after_without_end() {
    for nodes in [1, 3] {
        let time = Arc::new(VirtualTime::new(SystemTime::now()));
        let nodes: Vec<_> = (0..nodes)
            .map(|_| {
                let node = MemoryNode::new();
                Arc::new(Switched { node, off: false.into(), refused: 0.into() })
            })
            .collect();
        let locker = async || {
            let nodes = nodes.iter().map(|node| Arc::clone(node) as Arc<dyn Node>);
            let runtime = Arc::clone(&time) as Arc<dyn Runtime>;
            let builder = Locker::builder()
                .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
                .with_nodes(nodes)
                .ttl(TTL)
                .runtime(runtime);
            builder.connect().await.expect("a locker")
        };
        let (holder, other) = (locker().await, locker().await);
        let guard = holder.lock("x").await.expect("free");
        let mut waiting = wanted(&other);
        guard.release().await.expect("released");
        time.suspend(2 * TTL);
        nodes.iter().for_each(|node| node.off.store(true, SeqCst));
        assert!(poll(&mut waiting).is_none(), "it has run out");
        time.pass(Duration::from_secs(10)).await;
        // Every 100 ms on average, once the delays have grown.
        let asked = nodes[0].refused.load(SeqCst);
        assert!(asked < 200, "asked {asked} times in 10 s");
        nodes.iter().for_each(|node| node.off.store(false, SeqCst));
        let guard = tokio::time::timeout(Duration::from_secs(1), waiting);
        drop(guard.await.expect("the nodes are back").expect("free"));
    }
}

/// A lease that is handed over counts from the last request of its taker, which may be old.
#[tokio::test(start_paused = true)]
async fn who_has_waited_for_long_gets_a_lock_that_lasts() {
    for waited in [TTL / 3, TTL * 2 / 3, TTL * 49 / 50] {
        let world = StillWorld::new();
        let (holder, other) = (world.locker().await, world.locker().await);
        let guard = holder.lock("x").await.expect("free");
        let start = world.time.now();
        let waiting = tokio::spawn(async move {
            let guard = other.lock("x").await.expect("granted");
            let left = guard.remaining();
            guard.run(yield_now()).await.expect("it is not about to end");
            left
        });
        world.time.pass(waited).await;
        guard.release().await.expect("released");
        let left = waiting.await.expect("no panic");
        assert_eq!(world.time.now().since(start), waited, "it was not waited for anything");
        assert!(left >= TTL / 2, "{left:?} left after {waited:?}");
    }
}

/// A queue is forgotten after some leases of those who wait, and the holder's may be far longer.
#[tokio::test(start_paused = true)]
async fn the_place_of_somebody_with_a_short_lease_is_kept() {
    let world = StillWorld::new();
    let short = Duration::from_secs(1);
    let builder = world.builder().loss_lead(short / 20);
    let (holder, other) = (world.locker().await, builder.connect().await.expect("a locker"));
    let guard = holder.lock("x").await.expect("free");
    let waiting = tokio::spawn(other.lock("x").ttl(short).into_future());
    world.time.pass(TTL / 2).await;
    guard.release().await.expect("released");
    let released = world.time.now();
    drop(waiting.await.expect("no panic").expect("granted"));
    assert_eq!(world.time.now(), released, "it was not told");
}

/// Whether another process holds it for the same owner could not be made sure of.
#[tokio::test(start_paused = true)]
async fn what_was_not_borrowed_after_all_is_not_kept_alive() {
    for cancelled in [true, false] {
        let world = StillWorld::new();
        let (maker, borrower) = (world.locker().await, world.locker().await);
        let me = maker.new_owner();
        let guard = maker.lock("x").owner(&me).fixed().await.expect("free");
        let me = Owner::from_id(&me.id()).expect("an id");
        for node in &world.nodes {
            let hanging = Arc::clone(node);
            node.at_next(Asked::Inspect, move || hanging.hang(true));
        }
        let mut locking = Box::pin(borrower.lock("x").owner(&me).wait(TTL / 10).into_future());
        assert!(poll(&mut locking).is_none());
        settled().await;
        if cancelled {
            drop(locking);
        } else {
            world.time.pass(2 * LIMIT).await;
            drop(locking);
        }
        for node in &world.nodes {
            node.hang(false);
        }
        world.time.pass(3 * TTL).await;
        assert!(!guard.is_held());
        drop(borrower.try_lock("x").await.expect("its lease is over"));
    }
}

/// A lock whose holder hands it back to nodes that hang, with somebody of its process behind it who
/// cannot have it without them.
async fn handed_back_to(world: &StillWorld, hanging: &[usize]) -> (Locker, Pin<Box<Locking>>) {
    let locker = world.locker().await;
    let guard = locker.lock("x").await.expect("free");
    let mut next = Box::pin(locker.lock("x").ttl(TTL / 2).into_future());
    assert!(poll(&mut next).is_none(), "somebody has it");
    hanging.iter().for_each(|node| world.nodes[*node].hang(true));
    drop(guard);
    assert_eq!(on_all(world, Asked::Release), 3, "a release waits for nothing");
    assert_eq!(on_all(world, Asked::Wait), 0, "the ticket came along with it");
    (locker, next)
}

/// A node that gets both at once sees to the ticket before it tells who has the lock now.
#[tokio::test(start_paused = true)]
async fn a_ticket_goes_out_when_the_release_before_it_is_answered() {
    let world = StillWorld::new();
    let (_locker, mut next) = handed_back_to(&world, &[0, 1]).await;
    world.nodes[0].hang(false);
    assert_eq!(on_all(&world, Asked::Wait), 3, "a majority has let go");
    world.nodes[1].hang(false);
    assert!(matches!(poll(&mut next), Some(Ok(_))), "it is the only one");
    world.time.pass(LIMIT / 2).await;
    assert_eq!(on_all(&world, Asked::Wait), 3, "asked again without need");
}

/// A client that is far from the nodes would come too late otherwise, while those who are near go round.
#[tokio::test(start_paused = true)]
async fn a_ticket_waits_only_for_a_moment_for_the_release_before_it() {
    let world = StillWorld::new();
    let (_locker, mut next) = handed_back_to(&world, &[0, 1, 2]).await;
    world.time.pass(LIMIT / 10).await;
    assert_eq!(on_all(&world, Asked::Wait), 3);
    world.nodes.iter().for_each(|node| node.hang(false));
    assert!(matches!(poll(&mut next), Some(Ok(_))), "it is the only one");
    assert_eq!(on_all(&world, Asked::Wait), 3, "asked again without need");
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_before_its_ticket_has_nothing_to_give_back() {
    let world = StillWorld::new();
    let (locker, next) = handed_back_to(&world, &[0, 1, 2]).await;
    drop(next);
    world.time.pass(LIMIT / 10).await;
    world.nodes.iter().for_each(|node| node.hang(false));
    assert_eq!((on_all(&world, Asked::Wait), on_all(&world, Asked::Release)), (0, 3));
    assert!(world.nodes.iter().all(|node| node.is_empty()));
    let shown = format!("{locker:?}");
    for nothing in ["lines: 0", "waiters: 0", "alarms: 0"] {
        assert!(shown.contains(nothing), "{nothing}: {shown}");
    }
}

/// A node that notes who has been released on it.
#[derive(Debug, Default)]
struct Noting {
    node: MemoryNode,
    released: Mutex<Vec<Token>>,
}

impl Node for Noting {
    fn label(&self) -> &'static str {
        "noting:"
    }

    fn capabilities(&self) -> Capabilities {
        self.node.capabilities()
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), Failure>> {
        self.node.ready()
    }

    fn submit(&self, call: Call) {
        if let Verb::Release { token, .. } = call.request().verb {
            self.released.lock().expect("no panic").push(*token);
        }
        self.node.submit(call);
    }

    fn listen(&self, client: ClientId, node: usize, inbox: Weak<dyn Inbox>) {
        self.node.listen(client, node, inbox);
    }
}

/// A waiter gives a node back that its holder needs. That release may run once more, at any time, as over a
/// connection that could not be ended: it finds nothing that the waiter counts on.
#[tokio::test]
async fn what_was_given_back_once_is_never_counted_on_again() {
    let nodes: Vec<_> = (0..3).map(|_| Arc::new(Noting::default())).collect();
    let seen: Vec<_> = nodes.iter().map(|node| Arc::clone(node) as Arc<dyn Node>).collect();
    let locker = Locker::builder().with_nodes(seen.clone()).connect().await.expect("connected");
    // The third has come back, and is free.
    let holder = owner("x");
    for node in &seen[..2] {
        assert!(holder.acquire(node, DEADLINE).is_done().await);
    }
    let mut locking = wanted(&locker);
    let given_back = || nodes[2].released.lock().expect("no panic").clone();
    assert_eq!(given_back().len(), 2, "by the first attempt, and since the holder needs it");
    assert!(holder.seen(&seen[2]).await.is_none());
    for node in &seen[..2] {
        assert!(holder.release(node).is_done().await);
    }
    let guard = loop {
        if let Some(taken) = poll(&mut locking) {
            break taken.expect("its turn");
        }
        yield_now().await;
    };
    let released: Vec<_> =
        nodes.iter().flat_map(|node| node.released.lock().expect("no panic").clone()).collect();
    let status = locker.inspect("x").await.expect("a status");
    let records = status.nodes.iter().filter_map(|node| *node.record.as_ref().expect("an answer"));
    let tokens: Vec<_> = records.map(|record| record.token.expect("of this library")).collect();
    assert!(tokens.len() >= 2, "a majority has it");
    let dead = tokens.iter().any(|token| released.contains(token));
    assert!(!dead, "a late release would take it away");
    guard.release().await.expect("released");
}

/// A node that gives everybody a place at the end of all numbers, while others follow the clock.
#[derive(Debug)]
struct Lying(MemoryNode, bool);

impl Node for Lying {
    fn label(&self) -> &'static str {
        "lying:"
    }

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.0.capabilities();
        capabilities.fences_by_clock = true;
        capabilities
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), Failure>> {
        self.0.ready()
    }

    fn submit(&self, call: Call) {
        if self.1 && matches!(call.request().verb, Verb::Wait { .. }) {
            return call.answer(Answer::Queued(Box::new(Queued {
                ticket_no: u64::MAX,
                record: None,
                will_notify: true,
            })));
        }
        self.0.submit(call);
    }

    fn listen(&self, client: ClientId, node: usize, inbox: Weak<dyn Inbox>) {
        self.0.listen(client, node, inbox);
    }
}

/// One that lies about its queue has nothing to say about those of the others.
#[tokio::test]
async fn a_place_that_cannot_be_is_not_taken_on_other_nodes() {
    let node = |lies| Arc::new(Lying(MemoryNode::default(), lies)) as Arc<dyn Node>;
    let nodes = [node(false), node(false), node(true)];
    let locker = Locker::builder().with_nodes(nodes.clone()).connect().await.expect("connected");
    let guard = locker.lock("x").await.expect("free");
    let other = Locker::builder().with_nodes(nodes.clone()).connect().await.expect("connected");
    let mut locking = wanted(&other);
    settled().await;
    let client = Client::with(ClientId::random(&TokioRuntime::current()), Arc::clone(&nodes[0]));
    let place = client.waiter("x", 1).wait(TicketNumber::New(1), DEADLINE).queued().await.ticket_no;
    assert!(place < u64::MAX / 2, "{place}");
    drop(client);
    guard.release().await.expect("released");
    assert!(poll(&mut locking).is_none_or(|taken| taken.is_ok()));
}
