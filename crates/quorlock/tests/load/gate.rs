//! Many locks at once, at default settings: what waits for the client's own line is not taken for a node that
//! does not answer, and no lock fails while a majority answers.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use quorlock::{Builder, Dialect, Error, Guard, Locker};
use quorlock_testkit::{DEADLINE, RedisServer, eventually_async as eventually, servers, test};
use tokio::task::JoinSet;

/// All of them are wanted at the same moment.
const NAMES: usize = 10_000;

async fn locker(servers: &[RedisServer], dialect: Dialect) -> Locker {
    locker_of(Locker::builder(), servers, dialect).await
}

async fn locker_of(builder: Builder, servers: &[RedisServer], dialect: Dialect) -> Locker {
    let options = quorlock::RedisOptions::default().dialect(dialect).trust_new_nodes(true);
    let builder = builder.nodes(servers.iter().map(RedisServer::url)).redis(options);
    let locker = builder.connect().await.expect("a locker");
    // However slow the machine is, a majority votes by then.
    drop(locker.lock("first").await.expect("waited for"));
    locker
}

/// Takes so many locks at once. Not one may fail.
async fn take(locker: &Locker, names: usize) -> Vec<Guard> {
    let mut callers = JoinSet::new();
    for index in 0..names {
        let lock = locker.try_lock(format!("burst/{index:06}"));
        callers.spawn(lock.into_future());
    }
    let taken: Result<Vec<_>, _> = callers.join_all().await.into_iter().collect();
    taken.unwrap_or_else(|error| panic!("a majority answers: {error}"))
}

/// Releases all of them at once. Every release has to be confirmed by a majority.
async fn release(guards: Vec<Guard>) {
    let mut callers = JoinSet::new();
    for guard in guards {
        callers.spawn(guard.release());
    }
    for released in callers.join_all().await {
        let released = released.unwrap_or_else(|error| panic!("a majority answers: {error}"));
        assert!(released.is_freed(), "{released:?}");
    }
}

/// So many locks are taken at once, are all held, and are all released.
async fn burst(locker: &Locker, servers: &[RedisServer]) {
    let guards = take(locker, NAMES).await;
    assert_eq!(guards.len(), NAMES);
    assert!(guards.iter().all(|guard| !guard.remaining().is_zero()), "held");
    release(guards).await;
    locker.shutdown().await;
    for server in servers {
        eventually("nothing is left", async || server.kept() == 0).await;
    }
}

#[test]
async fn ten_thousand_names_at_once_are_held_and_released_strictly() {
    let servers = servers(3);
    burst(&locker(&servers, Dialect::Strict).await, &servers).await;
}

#[test]
async fn ten_thousand_names_at_once_are_held_and_released_in_the_redlock_dialect() {
    let servers = servers(3);
    burst(&locker(&servers, Dialect::Redlock).await, &servers).await;
}

#[test(flavor = "multi_thread")]
async fn ten_thousand_names_at_once_from_several_threads() {
    for dialect in [Dialect::Strict, Dialect::Redlock] {
        let servers = servers(3);
        burst(&locker(&servers, dialect).await, &servers).await;
    }
}

/// One that stands still in the middle of it as well: nobody waits for it, and nothing fails for it.
#[test]
async fn a_node_that_hangs_costs_none_of_ten_thousand() {
    for dialect in [Dialect::Strict, Dialect::Redlock] {
        let servers = servers(3);
        let locker = locker(&servers, dialect).await;
        servers[2].pause();
        burst(&locker, &servers[..2]).await;
        servers[2].resume();
        // What it was asked before it was known to hang it has been told to release as well.
        eventually("nothing is left there either", async || servers[2].kept() == 0).await;
    }
}

/// How many scripts the server has run.
fn scripts(server: &RedisServer) -> u64 {
    let calls = server.info("commandstats", "cmdstat_evalsha").expect("some were run");
    let calls = calls.strip_prefix("calls=").and_then(|rest| rest.split(',').next());
    calls.and_then(|calls| calls.parse().ok()).expect("a number")
}

/// Extends all of them at once, and says how each of them ended.
async fn extend(guards: Vec<Guard>) -> Vec<(Guard, Result<(), Error>)> {
    let mut callers = JoinSet::new();
    for guard in guards {
        callers.spawn(async move {
            let extended = guard.extend().await;
            (guard, extended)
        });
    }
    callers.join_all().await
}

/// Each of them still ends as it would alone.
#[test]
async fn extensions_of_many_locks_go_out_in_few_scripts() {
    const MANY: usize = 1_000;
    for dialect in [Dialect::Strict, Dialect::Redlock] {
        let servers = servers(3);
        // Nothing is extended by itself meanwhile, however slow the machine is.
        let builder = Locker::builder().max_ttl(DEADLINE * 100).ttl(DEADLINE * 100);
        let locker = locker_of(builder, &servers, dialect).await;
        let guards = take(&locker, MANY).await;
        for server in &servers {
            server.command(&["DEL", "burst/000007"]);
            server.command(&["DEL", "burst/000008"]);
            server.command(&["RPUSH", "burst/000008", "no lock"]);
        }
        let before: Vec<_> = servers.iter().map(scripts).collect();
        let extended = extend(guards).await;
        for (server, before) in servers.iter().zip(before) {
            let scripts = scripts(server) - before;
            assert!(scripts < MANY as u64 / 10, "{scripts} scripts for {MANY} extensions");
        }
        let mut left = Vec::new();
        for (guard, extended) in extended {
            match (&*guard.name().to_string(), extended) {
                ("burst/000007", Err(Error::Lost { .. })) => {}
                ("burst/000008", Err(Error::NoQuorum { answers, .. })) => {
                    assert!(answers.to_string().contains("not a lock"), "{answers}");
                }
                (_, Ok(())) => left.push(guard),
                (name, other) => panic!("{name}: {other:?}"),
            }
        }
        assert_eq!(left.len(), MANY - 2);
        release(left).await;
    }
}

/// Each reply says that the script is not known, and what was sent meanwhile has to be found out only once.
#[test]
async fn a_burst_on_servers_that_have_forgotten_the_scripts_is_held() {
    for dialect in [Dialect::Strict, Dialect::Redlock] {
        let servers = servers(3);
        // However slow the machine is, no lock ends meanwhile.
        let builder = Locker::builder().max_ttl(DEADLINE * 100).ttl(DEADLINE * 100);
        let locker = locker_of(builder, &servers, dialect).await;
        for server in &servers {
            server.command(&["SCRIPT", "FLUSH"]);
        }
        let guards = take(&locker, NAMES).await;
        for server in &servers {
            server.command(&["SCRIPT", "FLUSH"]);
        }
        let extended = extend(guards).await.into_iter().map(|(guard, extended)| {
            extended.unwrap_or_else(|error| panic!("a majority answers: {error}"));
            guard
        });
        let guards = extended.collect();
        for server in &servers {
            server.command(&["SCRIPT", "FLUSH"]);
        }
        release(guards).await;
    }
}

/// What the server's processor has done so far, in microseconds.
fn processor_us(server: &RedisServer) -> f64 {
    let seconds = |field| {
        let time = server.info("cpu", field).expect("servers count it");
        time.parse::<f64>().expect("a number")
    };
    (seconds("used_cpu_user") + seconds("used_cpu_sys")) * 1e6
}

/// Measures, and asserts nothing of the machine:
/// `cargo test -p quorlock --all-features --test load -- --ignored --nocapture processor`
#[test]
#[ignore = "a measurement"]
async fn what_an_extension_costs_the_processor_of_a_server() {
    for dialect in [Dialect::Strict, Dialect::Redlock] {
        let servers = servers(1);
        let locker = locker(&servers, dialect).await;
        let mut guards = take(&locker, NAMES).await;
        let before = processor_us(&servers[0]);
        for guard in &guards {
            guard.extend().await.expect("extended");
        }
        let alone = (processor_us(&servers[0]) - before) / NAMES as f64;
        let before = processor_us(&servers[0]);
        for _ in 0..5 {
            guards = extend(guards).await.into_iter().map(|(guard, _)| guard).collect();
        }
        let together = (processor_us(&servers[0]) - before) / (5 * NAMES) as f64;
        println!("{dialect:?}: {alone:.1} µs alone, {together:.1} µs together");
        release(guards).await;
    }
}

/// Two minutes, and some gigabytes:
/// `cargo test -p quorlock --all-features --test load -- --ignored --nocapture hundred_thousand`
#[test(flavor = "multi_thread")]
#[ignore = "takes two minutes"]
async fn a_hundred_thousand_locks_are_kept_for_two_minutes() {
    const MANY: usize = 100_000;
    let servers = servers(3);
    let locker = locker(&servers, Dialect::Strict).await;
    let begin = Instant::now();
    let guards = take(&locker, MANY).await;
    println!("{MANY} taken in {:.1?}", begin.elapsed());
    let mut shortest = Duration::MAX;
    while begin.elapsed() < Duration::from_secs(120) {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let least = guards.iter().map(Guard::remaining).min().expect("many");
        shortest = shortest.min(least);
    }
    println!("the shortest that was left of any: {shortest:.1?}");
    assert!(!shortest.is_zero(), "none was lost");
    release(guards).await;
}
