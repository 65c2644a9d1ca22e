//! What the watchdog does, to the millisecond: in virtual time, on nodes that remember what they were
//! asked.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use quorlock::node::Node;
use quorlock::runtime::{BoxFuture, Moment, Runtime};
use quorlock::{Builder, Cap, Error, Guard, GuardState, Locker, Loss};
use quorlock_testkit::{Asked, VirtualTime, Witness};
use tokio::time::timeout;

const TTL: Duration = Duration::from_secs(30);
const LIMIT: Duration = Duration::from_millis(50);
const LEAD: Duration = Duration::from_millis(1_500);
const HOUR: Duration = Duration::from_secs(3_600);

struct World {
    time: Arc<VirtualTime>,
    nodes: Vec<Arc<Witness>>,
    locker: Locker,
    start: Moment,
}

impl World {
    async fn new() -> Self {
        Self::with(|builder| builder).await
    }

    async fn with(change: impl FnOnce(Builder) -> Builder) -> Self {
        let time = Arc::new(VirtualTime::new(SystemTime::now()));
        let runtime = Arc::clone(&time) as Arc<dyn Runtime>;
        let nodes: Vec<_> = (0..3).map(|_| Witness::new(Arc::clone(&runtime), LIMIT)).collect();
        let builder = Locker::builder()
            .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
            .with_nodes(nodes.iter().map(|node| Arc::clone(node) as Arc<dyn Node>))
            .ttl(TTL)
            .node_limit(LIMIT)
            .loss_lead(LEAD)
            .runtime(runtime);
        let locker = change(builder).connect().await.expect("a locker");
        let start = time.now();
        Self { time, nodes, locker, start }
    }

    async fn lock(&self) -> Guard {
        self.locker.try_lock("x").await.expect("free")
    }

    fn elapsed(&self) -> Duration {
        self.time.now().since(self.start)
    }

    /// When a node was asked for extensions.
    fn extensions(&self, node: usize) -> Vec<Duration> {
        let since_start = |at: Moment| at.since(self.start);
        self.nodes[node].extensions().into_iter().map(since_start).collect()
    }

    fn hang(&self, on: bool) {
        self.nodes[..2].iter().for_each(|node| node.hang(on));
    }

    /// How many locks the watchdog looks after.
    fn watched(&self) -> usize {
        let debug = format!("{:?}", self.locker);
        let (_, count) = debug.split_once("alarms: ").expect("a watchdog");
        let count: String = count.chars().take_while(char::is_ascii_digit).collect();
        count.parse().expect("a number")
    }
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn poll_once<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Waits for the loss, but not for ever.
async fn loss_of(guard: &Guard) -> Loss {
    timeout(HOUR, guard.lost()).await.expect("never told")
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_extended_every_third_of_its_ttl_for_as_long_as_it_is_held() {
    let world = World::new().await;
    let guard = world.lock().await;
    world.time.pass(HOUR).await;
    let expected: Vec<_> = (1..=360).map(|third| secs(10) * third).collect();
    for node in 0..3 {
        assert_eq!(world.extensions(node), expected);
    }
    assert_eq!((guard.state(), guard.remaining()), (GuardState::Renewed, TTL));
    guard.release().await.expect("released");
    assert_eq!(world.watched(), 0, "it leaves at once, not when its time comes");
    world.time.pass(HOUR).await;
    assert_eq!(world.extensions(0).len(), 360, "extended after its release");
}

#[tokio::test(start_paused = true)]
async fn an_extension_by_hand_puts_the_next_one_off() {
    let world = World::new().await;
    let guard = world.lock().await;
    world.time.pass(secs(7)).await;
    guard.extend().await.expect("extended");
    world.time.pass(secs(23)).await;
    assert_eq!(world.extensions(0), [secs(7), secs(17), secs(27)]);
}

#[tokio::test(start_paused = true)]
async fn two_of_three_nodes_that_hang_cost_the_lock_and_its_holder_knows_in_time() {
    let world = World::new().await;
    let guard = world.lock().await;
    world.time.pass(secs(15)).await;
    world.hang(true);
    assert_eq!(loss_of(&guard).await, Loss::Expired);
    // Last confirmed at 10 s.
    let end = secs(10) + TTL;
    assert_eq!(world.elapsed(), end - LEAD);
    assert_eq!(guard.grace(), LEAD);
    assert!(!guard.is_held() && guard.remaining().is_zero());
    // Every twelfth of the TTL, and towards the end after a quarter of what is left until it is told, but not more
    // often than a round takes. Timers have a grain of a millisecond.
    let extensions = world.extensions(2);
    assert_eq!(extensions[..2], [secs(10), secs(20)]);
    for pair in extensions[1..].windows(2) {
        let left = end - LEAD - pair[0];
        let apart = ms(2_500).min((left / 4).max(LIMIT));
        assert!((pair[1] - pair[0]).abs_diff(apart) <= ms(1), "{extensions:?}");
    }
    assert!(end - LEAD - extensions[extensions.len() - 1] <= LIMIT, "{extensions:?}");
    assert_eq!(world.watched(), 0);
    // What the nodes say late does not bring it back.
    world.hang(false);
    assert_eq!(guard.state(), GuardState::Lost(Loss::Expired));
    world.time.pass(HOUR).await;
    assert_eq!(world.extensions(2), extensions, "extended after its loss");
}

#[tokio::test(start_paused = true)]
async fn with_nobody_to_be_told_a_lock_is_fought_for_until_its_very_end() {
    let world = World::new().await;
    let guard = world.lock().await;
    world.hang(true);
    world.time.pass(TTL - ms(1)).await;
    assert_eq!(guard.state(), GuardState::Unknown);
    assert_eq!((guard.remaining(), guard.grace()), (ms(1), ms(1)));
    assert_eq!(world.watched(), 1);
    world.time.pass(ms(1)).await;
    assert_eq!(guard.state(), GuardState::Lost(Loss::Expired));
    assert_eq!(world.watched(), 0);
}

#[tokio::test(start_paused = true)]
async fn one_extension_fails_and_the_next_one_works() {
    let world = World::new().await;
    let guard = world.lock().await;
    world.hang(true);
    world.time.pass(secs(10) + LIMIT).await;
    assert_eq!(guard.state(), GuardState::Unknown);
    // Their connections break: what was asked of them is lost, and the next request arrives.
    world.nodes[..2].iter().for_each(|node| node.lose_held());
    world.hang(false);
    let mut lost = pin!(guard.lost());
    world.time.pass(ms(2_450)).await;
    assert_eq!((guard.state(), guard.remaining()), (GuardState::Renewed, TTL));
    world.time.pass(secs(10)).await;
    assert_eq!(world.extensions(0), [secs(10), ms(12_500), ms(22_500)]);
    assert!(!world.nodes[0].asked().contains(&Asked::Release), "a failed extension released it");
    assert!(poll_once(lost.as_mut()).is_pending());
}

#[tokio::test(start_paused = true)]
async fn what_an_old_extension_hears_late_does_not_end_what_a_newer_one_has_renewed() {
    let world = World::new().await;
    let guard = world.lock().await;
    // One node of the three never answers the first extension, and another answers late.
    world.hang(true);
    world.time.pass(secs(10) + LIMIT).await;
    world.nodes[1].hang(false);
    assert_eq!(guard.state(), GuardState::Renewed, "a late answer counts");
    world.nodes[1].hang(true);
    world.time.pass(secs(10)).await;
    assert_eq!(guard.state(), GuardState::Unknown);
    world.nodes[1].lose_held();
    world.nodes[1].hang(false);
    world.time.pass(TTL).await;
    assert_eq!(guard.state(), GuardState::Renewed);
    // The extensions of 10 s and of 20 s had 30 s and 40 s for their deadlines. It is 50 s.
    world.nodes[0].lose_held();
    assert_eq!(guard.state(), GuardState::Renewed);
}

#[tokio::test(start_paused = true)]
async fn a_release_in_the_middle_of_an_extension_comes_after_it_on_every_node() {
    let world = World::new().await;
    let guard = world.lock().await;
    world.nodes[0].at_next(Asked::Extend, move || drop(guard));
    world.time.pass(HOUR).await;
    for node in &world.nodes {
        assert_eq!(node.asked(), [Asked::Acquire, Asked::Extend, Asked::Release]);
    }
    assert_eq!(world.watched(), 0);
    world.lock().await.release().await.expect("nothing was left behind");
}

#[tokio::test(start_paused = true)]
async fn an_extension_under_way_does_not_revive_what_was_released() {
    let world = World::new().await;
    let guard = world.lock().await;
    let lost = tokio::spawn(guard.lost());
    world.hang(true);
    world.time.pass(secs(10)).await;
    let release = guard.release();
    let lost = timeout(ms(1), lost).await.expect("told at once");
    assert_eq!(lost.expect("no panic"), Loss::Released);
    world.hang(false);
    release.await.expect("released");
    world.time.pass(HOUR).await;
    let last = [Asked::Acquire, Asked::Extend, Asked::Release];
    assert!(world.nodes.iter().all(|node| node.asked() == last));
    assert_eq!(world.watched(), 0);
    world.lock().await.release().await.expect("it was free");
}

#[tokio::test(start_paused = true)]
async fn a_fixed_lock_ends_after_its_ttl_and_its_holder_is_told() {
    let world = World::new().await;
    let guard = world.locker.try_lock("x").fixed().await.expect("free");
    assert_eq!(loss_of(&guard).await, Loss::Expired);
    assert_eq!(world.elapsed(), TTL - LEAD);
    assert!(world.extensions(0).is_empty());
    world.time.pass(LEAD).await;
    let next = world.locker.try_lock("x").fixed().await.expect("it has expired");
    // By hand it can be extended.
    next.extend().await.expect("extended");
    assert_eq!(world.extensions(0).len(), 1);
    std::mem::forget(next);
    world.time.pass(TTL).await;
    assert_eq!(world.watched(), 0);
    world.lock().await.release().await.expect("nobody kept it");
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_forgotten_keeps_its_lock() {
    let world = World::new().await;
    std::mem::forget(world.lock().await);
    world.time.pass(HOUR).await;
    let error = world.locker.try_lock("x").await.expect_err("it is still kept");
    assert!(matches!(error, Error::Taken { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn so_many_extensions_and_no_more() {
    let world = World::new().await;
    let guard = world.locker.try_lock("x").max_extensions(2).await.expect("free");
    world.time.pass(secs(25)).await;
    assert_eq!(guard.remaining(), secs(25));
    match guard.extend().await {
        Err(error @ Error::Capped { cap: Cap::Extensions(2), .. }) => {
            assert!(error.to_string().contains("extended 2 times"), "{error}");
            assert!(error.to_string().contains("25.0s"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert!(guard.is_held(), "a cap is no loss before its time");
    assert_eq!(loss_of(&guard).await, Loss::Capped);
    assert_eq!(world.elapsed(), secs(20) + TTL - LEAD);
    assert_eq!(world.extensions(0), [secs(10), secs(20)]);
    assert_eq!(guard.state(), GuardState::Lost(Loss::Capped));
    assert!(Loss::Capped.to_string().contains("raise max_extensions or max_hold"));
}

#[tokio::test(start_paused = true)]
async fn an_extension_by_hand_counts_too() {
    let world = World::with(|builder| builder.max_extensions(1)).await;
    let guard = world.lock().await;
    guard.extend().await.expect("the first");
    assert!(matches!(guard.extend().await, Err(Error::Capped { .. })));
    // Nobody waits to be told: it is over at its very end.
    world.time.pass(TTL - ms(1)).await;
    assert!(guard.is_held());
    world.time.pass(ms(1)).await;
    assert_eq!(guard.state(), GuardState::Lost(Loss::Capped));
    assert_eq!(world.extensions(0), [Duration::ZERO]);
}

#[tokio::test(start_paused = true)]
async fn held_for_so_long_and_no_longer() {
    let world = World::with(|builder| builder.max_hold(secs(5))).await;
    for (hold, extensions) in [(secs(45), vec![secs(10), secs(20)]), (secs(5), vec![])] {
        let before = world.elapsed();
        let seen = world.extensions(0).len();
        let lock = world.locker.try_lock("x");
        let lock = if hold == secs(5) { lock } else { lock.max_hold(hold) };
        let guard = lock.await.expect("free");
        assert_eq!(loss_of(&guard).await, Loss::Capped);
        assert_eq!(world.elapsed() - before, hold - LEAD);
        assert_eq!(world.extensions(0)[seen..], extensions);
        guard.release().await.expect("the nodes still have it");
    }
    let error = world.locker.try_lock("x").max_hold(LEAD).await.expect_err("of no use");
    assert!(matches!(error, Error::Misuse { .. }), "{error}");
    let error = world.locker.try_lock("x").at_least(secs(5)).await.expect_err("never so long");
    assert!(matches!(error, Error::Misuse { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn one_who_was_stopped_knows_at_the_first_step() {
    let world = World::new().await;
    let guard = world.lock().await;
    let mut lost = pin!(guard.lost());
    assert!(poll_once(lost.as_mut()).is_pending());
    world.time.suspend(TTL);
    assert_eq!(poll_once(lost.as_mut()), Poll::Ready(Loss::Expired));
    assert!(!guard.is_held() && guard.grace().is_zero());
}

#[tokio::test(start_paused = true)]
async fn after_a_suspend_a_waiter_is_woken_within_a_second() {
    let world = World::new().await;
    let guard = world.lock().await;
    let before = world.elapsed();
    let noticed = async {
        loss_of(&guard).await;
        world.elapsed() - before
    };
    let suspend = async {
        world.time.pass(ms(300)).await;
        world.time.suspend(2 * TTL);
    };
    let (after, ()) = tokio::join!(noticed, suspend);
    assert!(after <= 2 * TTL + ms(300) + secs(1), "{after:?}");
    // Not so long that it is lost: it is extended instead.
    let other = world.locker.try_lock("y").await.expect("free");
    world.time.suspend(TTL / 2);
    world.time.pass(secs(1)).await;
    assert_eq!(other.state(), GuardState::Renewed);
}

/// Counts the tasks that are started, and those that have not ended.
#[derive(Debug)]
struct Counting {
    time: Arc<VirtualTime>,
    started: AtomicUsize,
    running: Arc<AtomicUsize>,
}

impl Runtime for Counting {
    fn now(&self) -> Moment {
        self.time.now()
    }

    fn wall(&self) -> SystemTime {
        self.time.wall()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.time.sleep(duration)
    }

    fn spawn(&self, future: BoxFuture<'static, ()>) {
        self.started.fetch_add(1, Ordering::SeqCst);
        self.running.fetch_add(1, Ordering::SeqCst);
        let running = Arc::clone(&self.running);
        self.time.spawn(Box::pin(async move {
            future.await;
            running.fetch_sub(1, Ordering::SeqCst);
        }));
    }

    fn random(&self, bytes: &mut [u8]) {
        self.time.random(bytes);
    }
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_locks_are_one_task_which_ends_with_them() {
    let time = Arc::new(VirtualTime::new(SystemTime::now()));
    let runtime = Arc::new(Counting {
        time: Arc::clone(&time),
        started: AtomicUsize::new(0),
        running: Arc::default(),
    });
    let world = World::with(|builder| builder.runtime(Arc::clone(&runtime) as Arc<dyn Runtime>));
    let world = world.await;
    let mut guards = Vec::new();
    for index in 0..10_000 {
        guards.push(world.locker.try_lock(format!("{index}")).await.expect("free"));
    }
    assert_eq!(world.watched(), 10_000);
    world.time.pass(TTL).await;
    assert!(guards.iter().all(|guard| guard.state() == GuardState::Renewed));
    assert_eq!(world.extensions(0).len(), 30_000);
    assert_eq!(runtime.started.load(Ordering::SeqCst), 1);
    let last = guards.pop();
    drop(guards);
    assert_eq!(world.watched(), 1);
    // The last guard keeps the task, and nothing else does.
    drop(world);
    time.pass(TTL).await;
    assert!(last.as_ref().is_some_and(Guard::is_held));
    assert_eq!(runtime.running.load(Ordering::SeqCst), 1);
    drop(last);
    time.pass(ms(1)).await;
    assert_eq!(runtime.running.load(Ordering::SeqCst), 0);
}
