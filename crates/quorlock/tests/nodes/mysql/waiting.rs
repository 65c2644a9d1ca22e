//! Who waits for what: turns, rows that somebody else holds, connections that break.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use mysql_async::Conn;
use mysql_async::prelude::Queryable as _;
use quorlock::{Guard, Locker};
use quorlock_testkit::{DEADLINE, MariaDbServer, Proxy, eventually_async as eventually, test};
use tokio::task::JoinHandle;

use super::{NAME, client, on, reached_by, server};

/// A way to a server that can be broken.
fn by_way_of(proxy: &Proxy) -> String {
    format!("mysql://admin@{}/locks?name=lock-a&ssl-mode=disabled", proxy.addr())
}

/// Another connection to the server, of somebody who does what it likes.
async fn stranger(server: &MariaDbServer) -> Conn {
    Conn::from_url(server.url()).await.expect("it is up")
}

async fn are_queued(server: &MariaDbServer, count: usize) {
    eventually("they wait", async || {
        server.sql("SELECT COUNT(*) FROM quorlock_ticket") == format!("{count}\n")
    })
    .await;
}

/// A waiter for the lock, and whether its holder had released it when it entered.
fn wait(locker: &Locker, released: &Arc<AtomicBool>) -> JoinHandle<(Guard, bool)> {
    let (lock, released) = (locker.lock(NAME).into_future(), Arc::clone(released));
    tokio::spawn(async move {
        let guard = lock.await.expect("its turn");
        (guard, released.load(SeqCst))
    })
}

#[test]
async fn a_connection_that_breaks_while_somebody_waits_loses_no_turn() {
    let server = MariaDbServer::start();
    let proxy = Proxy::in_front_of(server.addr());
    super::init([by_way_of(&proxy)]).await;
    let direct = format!("{}?name=lock-a", server.url());
    let holder = on([direct]).connect().await.expect("it is up");
    let other = on([by_way_of(&proxy)]).connect().await.expect("it is up");
    let released = Arc::new(AtomicBool::new(false));
    for before in [true, false] {
        released.store(false, SeqCst);
        let guard = holder.lock(NAME).await.expect("free");
        let waiter = wait(&other, &released);
        are_queued(&server, 1).await;
        // Broken before the release, or by it: the message is on its way to nobody then.
        proxy.refuse(true);
        proxy.hang(!before);
        if before {
            proxy.cut();
        }
        released.store(true, SeqCst);
        guard.release().await.expect("released");
        proxy.cut();
        proxy.hang(false);
        proxy.refuse(false);
        let (guard, was_released) =
            tokio::time::timeout(3 * DEADLINE, waiter).await.expect("its turn").expect("no panic");
        assert!(was_released && guard.is_held());
        guard.release().await.expect("released");
    }
}

/// Their calls must not run after those of the connections that follow them.
#[test]
async fn connections_that_hang_are_ended_on_the_server() {
    let server = MariaDbServer::start();
    let proxy = Proxy::in_front_of(server.addr());
    super::init([by_way_of(&proxy)]).await;
    let locker = on([by_way_of(&proxy)]).node_limit(Duration::from_millis(100)).connect().await;
    let locker = locker.expect("it is up");
    let connections = || {
        let sql = "SELECT ID FROM information_schema.PROCESSLIST WHERE HOST LIKE '127.0.0.1:%' ORDER BY ID";
        let ids = server.sql(sql);
        ids.lines().map(|id| id.parse::<u64>().expect("a number")).collect::<Vec<_>>()
    };
    let guard = locker.try_lock(NAME).await.expect("free");
    guard.release().await.expect("released");
    eventually("init has gone", async || connections().len() == 9).await;
    let (before, opened) = (connections(), proxy.connections());
    proxy.hang(true);
    let _ = locker.try_lock("another").await;
    // What was held up stays so: the old connections are open, as far as the server knows.
    eventually("they were given up", async || proxy.connections() > opened).await;
    proxy.hang(false);
    reached_by(&locker).await;
    eventually("nine are left, and they are others", async || {
        let after = connections();
        after.len() == 9 && after.iter().all(|id| !before.contains(id))
    })
    .await;
}

#[test]
async fn a_row_that_another_transaction_holds_is_a_failure_of_that_lock_alone() {
    let server = server().await;
    let locker = client(&server).await;
    let guard = locker.try_lock(NAME).await.expect("free");
    guard.release().await.expect("released");
    let guard = locker.try_lock("held").await.expect("free");
    let mut stranger = stranger(&server).await;
    stranger
        .query_drop(
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; BEGIN; DO (SELECT COUNT(*) FROM (SELECT * FROM quorlock_lock FOR UPDATE) AS l)",
        )
        .await
        .expect("rows");
    let error = locker.try_lock(NAME).await.expect_err("somebody has its row").to_string();
    assert!(error.contains("another transaction holds the row of this lock"), "{error}");
    let other = locker.try_lock("another").await.expect("others go on");
    other.release().await.expect("released");
    // A release is kept until it works.
    let releasing = tokio::spawn(async move { guard.release().await });
    let _ = locker.try_lock(NAME).await.expect_err("somebody has its row");
    stranger.query_drop("ROLLBACK").await.expect("the end");
    let _ = releasing.await.expect("no panic");
    let _guard = locker.lock("held").await.expect("it was released");
    let _guard = locker.lock(NAME).await.expect("free");
}

#[test]
async fn a_message_that_somebody_else_writes_lets_nobody_in() {
    let server = server().await;
    let (holder, other) = (client(&server).await, client(&server).await);
    let released = Arc::new(AtomicBool::new(false));
    let guard = holder.lock(NAME).await.expect("free");
    let waiter = wait(&other, &released);
    are_queued(&server, 1).await;
    // All that one can know, but for the secret.
    for secret in ["0".repeat(32), "f".repeat(32)] {
        server.sql(&format!(
            "INSERT INTO quorlock_message (client, text, at_us)
               SELECT client, CONCAT(LEFT(named, 16), '{secret} ', sent_ns, ' 0 1795032664890809'), 1e18 FROM quorlock_ticket;
             INSERT INTO quorlock_message (client, text, at_us) SELECT client, 'nothing of the sort', 1e18 FROM quorlock_ticket"
        ));
    }
    eventually("they were read", async || {
        server.sql("SELECT COUNT(*) FROM quorlock_message") == "0\n"
    })
    .await;
    assert!(!waiter.is_finished());
    released.store(true, SeqCst);
    guard.release().await.expect("released");
    let (guard, was_released) = waiter.await.expect("no panic");
    assert!(was_released && guard.is_held());
}

/// Many on one row, from several connections: each sees what the one before it has done.
#[test]
async fn everybody_gets_a_turn_and_nobody_two_at_once() {
    let server = server().await;
    let inside = Arc::new(AtomicBool::new(false));
    let mut work = Vec::new();
    for _ in 0..3 {
        let locker = client(&server).await;
        for _ in 0..10 {
            let (lock, inside) = (locker.lock(NAME).into_future(), Arc::clone(&inside));
            work.push(tokio::spawn(async move {
                let guard = lock.await.expect("its turn");
                assert!(!inside.swap(true, SeqCst), "two at once");
                tokio::task::yield_now().await;
                inside.store(false, SeqCst);
                let fence = guard.fence();
                guard.release().await.expect("released");
                fence
            }));
        }
    }
    let mut fences = Vec::new();
    for worker in work {
        fences.push(worker.await.expect("no panic"));
    }
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len(), 30, "each has one of its own");
}

/// Calls that a server has run so far, with `CALL` and `KILL`.
fn commands(server: &MariaDbServer) -> u64 {
    let sql = "SHOW GLOBAL STATUS WHERE Variable_name IN ('Com_call_procedure', 'Com_kill')";
    let rows = server.sql(sql);
    rows.lines().filter_map(|row| row.split('\t').nth(1)?.parse::<u64>().ok()).sum()
}

/// Those who wait are told of their turn: each asks once a second at the most, and a little more that keeps its place. A call
/// makes some calls of its own, which are counted as well: `quorlock_listen` makes none.
#[test]
async fn a_client_that_waits_asks_once_a_second_at_the_most() {
    const CLIENTS: usize = 30;
    let server = server().await;
    let holder = client(&server).await;
    let guard = holder.lock(NAME).await.expect("free");
    let mut waiters = Vec::new();
    for _ in 0..CLIENTS {
        let locker = client(&server).await;
        waiters.push(tokio::spawn(async move {
            let guard = locker.lock(NAME).await.expect("its turn");
            guard.release().await.expect("released");
        }));
    }
    are_queued(&server, CLIENTS).await;
    let (before, began) = (commands(&server), Instant::now());
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (asked, took) = (commands(&server) - before, began.elapsed());
    let rate = asked as f64 / took.as_secs_f64() / CLIENTS as f64;
    eprintln!("{rate:.2} calls a second and client, while {CLIENTS} clients wait for one name");
    assert!(rate <= 1.3, "{rate}");
    guard.release().await.expect("released");
    for waiter in waiters {
        waiter.await.expect("no panic");
    }
    // Nobody asks for what nobody waits for.
    let before = commands(&server);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(commands(&server) - before < CLIENTS as u64, "idle clients ask");
}

/// What nobody has used for a day goes, and what is held or waited for stays.
#[test]
async fn old_locks_are_cleared_away() {
    let server = server().await;
    let locker = client(&server).await;
    let _guard = locker.try_lock("held").await.expect("free");
    server.sql(
        "INSERT INTO quorlock_lock (name, fence, ends_us) SELECT CONCAT('old', seq), seq, seq FROM seq_1_to_600;
         INSERT INTO quorlock_lock (name, fence, ends_us) VALUES ('ahead', 9000000000000000, 5)",
    );
    eventually("they are gone", async || {
        // Each client looks after the database, one step at a time.
        let _ = client(&server).await;
        server.sql("SELECT COUNT(*) FROM quorlock_lock") == "2\n"
    })
    .await;
}
