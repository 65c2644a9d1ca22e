//! Many callers on many threads while connections are cut, hang and lose answers: nobody is let in
//! twice, nobody waits for ever, and nothing is left behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use quorlock::{Error, Locker};
use quorlock_testkit::{Proxy, eventually_async as eventually, servers, test};

/// Longer than the test waits for anything: what is left behind does not vanish by itself.
const TTL: Duration = Duration::from_secs(30);
const NAMES: usize = 4;
const TASKS: usize = 24;
const TURNS: usize = 40;

/// What goes on under one name.
#[derive(Default)]
struct Inside {
    now: AtomicUsize,
    turns: AtomicUsize,
}

#[test(flavor = "multi_thread", worker_threads = 4)]
async fn a_bad_network_lets_nobody_in_twice_and_leaves_nothing_behind() {
    let servers = servers(3);
    let proxies: Vec<_> = servers.iter().map(|s| Proxy::in_front_of(s.addr())).collect();
    let builder = Locker::builder()
        .redis(quorlock::RedisOptions::default().dialect(quorlock::Dialect::Redlock))
        .nodes(proxies.iter().map(Proxy::url))
        .ttl(TTL);
    let locker = builder.node_limit(Duration::from_millis(20)).connect().await.expect("a locker");
    let names: Arc<[Inside; NAMES]> = Arc::default();

    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..TASKS {
        let (locker, names) = (locker.clone(), Arc::clone(&names));
        tasks.spawn(async move {
            for turn in 0..TURNS {
                take_a_turn(&locker, &names, task, turn).await;
            }
        });
    }
    let over = Arc::new(AtomicBool::new(false));
    let trouble = tokio::spawn(make_trouble(proxies, Arc::clone(&over)));
    while let Some(task) = tasks.join_next().await {
        task.expect("no task saw another one inside");
    }
    over.store(true, Ordering::SeqCst);
    let proxies = trouble.await.expect("no panic");

    let turns: usize = names.iter().map(|inside| inside.turns.load(Ordering::SeqCst)).sum();
    assert!(turns > TASKS, "hardly anybody got in: {turns}");
    for proxy in &proxies {
        calm(proxy);
    }
    locker.shutdown().await;
    for server in &servers {
        eventually("nothing is left", async || server.kept() == 0).await;
    }
}

async fn take_a_turn(locker: &Locker, names: &[Inside; NAMES], task: usize, turn: usize) {
    let name = (task + turn) % NAMES;
    let inside = &names[name];
    let lock = locker.lock(format!("chaos/{name}")).wait(Duration::from_millis(100));
    let guard = match lock.await {
        Ok(guard) => guard,
        Err(Error::TimedOut { .. }) => return,
        Err(error) => panic!("{error}"),
    };
    let others = inside.now.fetch_add(1, Ordering::SeqCst);
    assert!(others == 0 || !guard.is_held(), "two inside of chaos/{name}");
    inside.turns.fetch_add(1, Ordering::SeqCst);
    tokio::task::yield_now().await;
    if turn.is_multiple_of(5) {
        // Whether it works is the network's affair.
        let _ = guard.extend().await;
    }
    inside.now.fetch_sub(1, Ordering::SeqCst);
    match turn % 3 {
        0 => drop(guard),
        1 => drop(guard.release()),
        _ => drop(guard.release().await),
    }
}

/// One fault after another, each on another node, until the tasks are done.
async fn make_trouble(proxies: Vec<Proxy>, over: Arc<AtomicBool>) -> Vec<Proxy> {
    for step in 0.. {
        let proxy = &proxies[step % proxies.len()];
        match step % 5 {
            0 => proxy.cut(),
            1 => proxy.hang(true),
            2 => proxy.lose_replies(true),
            3 => {
                proxy.refuse(true);
                proxy.cut();
            }
            _ => proxy.delay(Duration::from_millis(30)),
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
        calm(proxy);
        if over.load(Ordering::SeqCst) {
            break;
        }
    }
    proxies
}

fn calm(proxy: &Proxy) {
    proxy.hang(false);
    proxy.lose_replies(false);
    proxy.refuse(false);
    proxy.delay(Duration::ZERO);
}
