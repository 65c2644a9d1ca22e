//! Who waits for what: turns, rows that somebody else holds, connections that break.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use quorlock::{Guard, Locker};
use quorlock_testkit::{DEADLINE, PostgresServer, Proxy, eventually_async as eventually, test};
use tokio::task::JoinHandle;
use tokio_postgres::NoTls;

use super::{NAME, client, on, reached_by, server};

/// A way to a server that can be broken.
fn by_way_of(proxy: &Proxy) -> String {
    format!("postgres://postgres@{}/postgres?name=lock-a", proxy.addr())
}

/// Another connection to the server, of somebody who does what it likes.
async fn stranger(server: &PostgresServer) -> tokio_postgres::Client {
    let (client, connection) =
        tokio_postgres::connect(&server.url(), NoTls).await.expect("it is up");
    tokio::spawn(connection);
    client
}

async fn is_queued(server: &PostgresServer) {
    eventually("somebody waits", async || {
        server.sql("SELECT count(*) FROM quorlock.ticket", &[]) == "1\n"
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
    let server = PostgresServer::start();
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
        is_queued(&server).await;
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

/// Its calls must not run after those of the connection that follows it.
#[test]
async fn a_connection_that_hangs_is_ended_on_the_server() {
    let server = PostgresServer::start();
    let proxy = Proxy::in_front_of(server.addr());
    super::init([by_way_of(&proxy)]).await;
    let locker = on([by_way_of(&proxy)]).node_limit(Duration::from_millis(100)).connect().await;
    let locker = locker.expect("it is up");
    let backend = || {
        server.sql("SELECT pid FROM pg_stat_activity WHERE query LIKE '%quorlock.%' AND pid <> pg_backend_pid()", &[])
    };
    locker.try_lock(NAME).await.expect("free").release().await.expect("released");
    let before = backend();
    assert_eq!(before.lines().count(), 1, "{before}");
    let known = proxy.connections();
    proxy.hang(true);
    let _ = locker.try_lock("another").await;
    // What was held up stays so: the old connection is open, as far as the server knows.
    eventually("it was given up", async || proxy.connections() > known).await;
    proxy.hang(false);
    reached_by(&locker).await;
    eventually("one is left, and it is another", async || {
        let after = backend();
        after.lines().count() == 1 && after != before
    })
    .await;
}

#[test]
async fn a_row_that_another_transaction_holds_is_a_failure_of_that_lock_alone() {
    let server = server().await;
    let locker =
        on([server.url()]).node_limit(Duration::from_millis(400)).connect().await.expect("up");
    locker.try_lock(NAME).await.expect("free").release().await.expect("released");
    let guard = locker.try_lock("held").await.expect("free");
    let stranger = stranger(&server).await;
    stranger.batch_execute("BEGIN; SELECT * FROM quorlock.lock FOR UPDATE").await.expect("rows");
    let error = locker.try_lock(NAME).await.expect_err("somebody has its row").to_string();
    assert!(error.contains("another transaction holds the row of this lock"), "{error}");
    let other = locker.try_lock("another").await.expect("others go on");
    other.release().await.expect("released");
    // A release is kept until it works.
    let releasing = tokio::spawn(async move { guard.release().await });
    let _ = locker.try_lock(NAME).await.expect_err("somebody has its row");
    stranger.batch_execute("ROLLBACK").await.expect("the end");
    let _ = releasing.await.expect("no panic");
    locker.lock("held").await.expect("it was released");
    locker.lock(NAME).await.expect("free");
}

#[test]
async fn a_message_that_somebody_else_sends_lets_nobody_in() {
    let server = server().await;
    let (holder, other) = (client(&server).await, client(&server).await);
    let released = Arc::new(AtomicBool::new(false));
    let guard = holder.lock(NAME).await.expect("free");
    let waiter = wait(&other, &released);
    is_queued(&server).await;
    server.sql("CREATE ROLE forger LOGIN", &[]);
    // All that one can know who may not look into the tables, and more: only the secret is missing.
    let row = server.sql(
        "SELECT quorlock.channel_of(client) || ' ' || left(named, 16) || ' ' || sent_ns FROM quorlock.ticket",
        &[],
    );
    let [channel, waits, sent] = row.trim().split(' ').collect::<Vec<_>>()[..] else {
        panic!("{row}")
    };
    for secret in ["0".repeat(32), "f".repeat(32)] {
        for text in [
            format!("{waits}{secret} {sent} 0 {}", u64::from(u32::MAX)),
            format!("{waits}{secret} {sent} 0 1795032664890809"),
            "nothing of the sort".to_owned(),
        ] {
            let sql = format!("SELECT pg_notify('{channel}', '{text}')");
            server.sql_as("forger", &sql).expect("everybody may notify");
        }
    }
    reached_by(&other).await;
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

/// What nobody has used for a day goes, and what is held or waited for stays.
#[test]
async fn old_locks_are_cleared_away() {
    let server = server().await;
    let locker = client(&server).await;
    let _guard = locker.try_lock("held").await.expect("free");
    server.sql(
        "INSERT INTO quorlock.lock (name, fence, ends_us) SELECT ('old' || n)::bytea, n, n FROM generate_series(1, 600) n;
         INSERT INTO quorlock.lock (name, fence, ends_us) VALUES ('ahead', 9000000000000000, 5)",
        &[],
    );
    eventually("they are gone", async || {
        // Each connection looks after the database, one step at a time.
        let _ = client(&server).await;
        server.sql("SELECT count(*) FROM quorlock.lock", &[]) == "2\n"
    })
    .await;
}
