//! Many threads of some processes want the same few locks, for a while or until they lose patience:
//! nobody is let in twice, nobody is forgotten, and nothing is left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use quorlock::node::Node;
use quorlock::node::memory::MemoryNode;
use quorlock::{Error, Guard, Locker, Owner};
use tokio::time::timeout;

/// So long that nothing ends by itself while the test runs: a waiter that is forgotten stays so.
const TTL: Duration = Duration::from_secs(30);
/// Far longer than everybody needs together.
const FOREVER: Duration = Duration::from_secs(20);
const PROCESSES: usize = 3;
const TASKS: usize = 24;
const TURNS: usize = 60;
const NAMES: usize = 2;

#[derive(Default)]
struct Inside {
    now: AtomicUsize,
    turns: AtomicUsize,
}

/// Random enough, and different for each task and each run.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        static SEED: AtomicU64 = AtomicU64::new(0x2545_f491_4f6c_dd1d);
        Self(SEED.fetch_add(0x9e37_79b9_7f4a_7c15, SeqCst))
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nobody_is_let_in_twice_and_nobody_is_forgotten() {
    for nodes in [1, 3] {
        let nodes: Vec<_> = (0..nodes).map(|_| Arc::new(MemoryNode::new())).collect();
        let mut lockers = Vec::new();
        for _ in 0..PROCESSES {
            let nodes = nodes.iter().map(|node| Arc::clone(node) as Arc<dyn Node>);
            let builder = Locker::builder()
                .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
                .with_nodes(nodes)
                .ttl(TTL)
                .local_turns(3);
            lockers.push(builder.connect().await.expect("a locker"));
        }
        let names: Arc<[Inside; NAMES]> = Arc::default();
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..TASKS {
            let (locker, names) = (lockers[task % PROCESSES].clone(), Arc::clone(&names));
            tasks.spawn(async move {
                let mut dice = Dice::new();
                let me = locker.new_owner();
                for _ in 0..TURNS {
                    take_a_turn(&locker, &me, &names, &mut dice).await;
                }
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.expect("no task saw another one inside, or waited for ever");
        }
        let turns: usize = names.iter().map(|inside| inside.turns.load(SeqCst)).sum();
        assert!(turns > TASKS * TURNS / 4, "hardly anybody got in: {turns}");
        for locker in &lockers {
            locker.shutdown().await;
            let shown = format!("{locker:?}");
            for nothing in ["lines: 0", "waiters: 0", "alarms: 0"] {
                assert!(shown.contains(nothing), "{nothing}: {shown}");
            }
        }
        for node in nodes {
            assert_eq!(node.len(), 0, "records or tickets are left");
        }
    }
}

async fn take_a_turn(locker: &Locker, me: &Owner, names: &[Inside; NAMES], dice: &mut Dice) {
    let name = usize::from(dice.below(4) == 0);
    let inside = &names[name];
    let lock = locker.lock(format!("lines/{name}"));
    let guard = match dice.below(8) {
        // As long as it takes.
        0..=2 => timeout(FOREVER, lock).await.expect("nobody waits for ever").expect("in the end"),
        3 => {
            let lock = lock.owner(me);
            timeout(FOREVER, lock).await.expect("nobody waits for ever").expect("in the end")
        }
        // With little patience.
        4 | 5 => match lock.wait(Duration::from_micros(dice.below(2_000))).await {
            Ok(guard) => guard,
            Err(Error::TimedOut { .. } | Error::Taken { .. }) => return,
            Err(error) => panic!("{error}"),
        },
        // Gone in the middle of it.
        6 => match timeout(Duration::from_micros(dice.below(2_000)), lock).await {
            Ok(guard) => guard.expect("in the end"),
            Err(_) => return,
        },
        // Dropped after a few looks.
        _ => {
            let mut lock = std::pin::pin!(lock.into_future());
            let mut looks = dice.below(3);
            let got = std::future::poll_fn(|cx| match lock.as_mut().poll(cx) {
                std::task::Poll::Ready(guard) => std::task::Poll::Ready(Some(guard)),
                std::task::Poll::Pending if looks == 0 => std::task::Poll::Ready(None),
                std::task::Poll::Pending => {
                    looks -= 1;
                    std::task::Poll::Pending
                }
            });
            match timeout(FOREVER, got).await.expect("nobody waits for ever") {
                Some(guard) => guard.expect("in the end"),
                None => return,
            }
        }
    };
    enjoy(inside, guard, dice).await;
}

async fn enjoy(inside: &Inside, guard: Guard, dice: &mut Dice) {
    assert_eq!(inside.now.fetch_add(1, SeqCst), 0, "two inside");
    assert!(guard.is_held());
    inside.turns.fetch_add(1, SeqCst);
    match dice.below(8) {
        0 => tokio::time::sleep(Duration::from_micros(dice.below(300))).await,
        1 => guard.extend().await.expect("held"),
        _ => tokio::task::yield_now().await,
    }
    inside.now.fetch_sub(1, SeqCst);
    match dice.below(3) {
        0 => drop(guard),
        1 => drop(guard.release()),
        _ => drop(guard.release().await.expect("held")),
    }
}
