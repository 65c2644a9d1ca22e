//! A transaction in the database of the lock is refused if it comes too late, and keeps the next holder out if it is in time.

use quorlock::{Error, Locker, Loss};
use quorlock_testkit::{PostgresServer, test};
use tokio_postgres::{Client, NoTls};

use super::{NAME, client, init, on, server};

/// A connection of the service's own.
async fn service(server: &PostgresServer) -> Client {
    let (client, connection) =
        tokio_postgres::connect(&server.url(), NoTls).await.expect("it is up");
    tokio::spawn(connection);
    client
}

/// Takes the lock away from its holder, which does not learn of it: as if it was paused until its lease was over.
async fn take_away(locker: &Locker) {
    let status = locker.inspect(NAME).await.expect("a status");
    locker.force_release(&status).await.expect("taken away");
}

fn written(server: &PostgresServer) -> String {
    server.sql("SELECT string_agg(who, ',' ORDER BY who) FROM work", &[])
}

const TABLE: &str = "CREATE TABLE work (who text)";
const WRITE: &str = "INSERT INTO work VALUES ('late')";

#[test]
async fn a_paused_client_cannot_commit() {
    let server = server().await;
    server.sql(TABLE, &[]);
    let (first, second) = (client(&server).await, client(&server).await);
    let mut service = service(&server).await;
    for checks in [true, false] {
        let paused = first.try_lock(NAME).fixed().await.expect("free");
        take_away(&second).await;
        let guard =
            second.try_lock(NAME).await.expect("the lock of a client that is paused has ended");
        assert!(paused.is_held(), "it does not know");

        let transaction = service.transaction().await.expect("a transaction");
        transaction.execute(WRITE, &[]).await.expect("written");
        let checked = if checks { paused.check_in(&transaction).await } else { Ok(()) };
        match checked {
            Err(Error::Lost { reason: Loss::Gone, .. }) => {
                transaction.rollback().await.expect("the end")
            }
            Ok(()) => transaction.commit().await.expect("the end"),
            other => panic!("{other:?}"),
        }
        // Without the check the late write is there.
        assert_eq!(written(&server), if checks { "\n" } else { "late\n" });
        guard.release().await.expect("released");
        let _ = paused.release().await;
    }
}

#[test]
async fn a_transaction_that_is_in_time_keeps_the_next_holder_out_until_its_end() {
    let server = server().await;
    let (first, second) = (client(&server).await, client(&server).await);
    let mut service = service(&server).await;
    let guard = first.try_lock(NAME).await.expect("free");
    let transaction = service.transaction().await.expect("a transaction");
    guard.check_in(&transaction).await.expect("in time");
    guard.extend().await.expect("it keeps nobody from that");
    let error = second.try_lock(NAME).await.expect_err("held");
    assert!(matches!(error, Error::Taken { .. }), "{error:?}");
    // Its lease ends, and the transaction does not.
    take_away(&second).await;
    let error = second.try_lock(NAME).await.expect_err("the transaction is open").to_string();
    assert!(error.contains("another transaction holds the row of this lock"), "{error}");
    transaction.commit().await.expect("the end");
    let _ = second.try_lock(NAME).await.expect("free");
}

#[test]
async fn a_release_does_not_wait_for_the_transaction() {
    let server = server().await;
    let locker = client(&server).await;
    let mut service = service(&server).await;
    let guard = locker.try_lock(NAME).await.expect("free");
    let transaction = service.transaction().await.expect("a transaction");
    guard.check_in(&transaction).await.expect("in time");
    guard.release().await.expect("released");
    transaction.commit().await.expect("the end");
    let _ = locker.try_lock(NAME).await.expect("free");
}

#[test]
async fn a_lock_that_lies_elsewhere_is_no_lock_here() {
    let (server, other) = (server().await, server().await);
    let mut service = service(&other).await;
    let guard = client(&server).await.try_lock(NAME).await.expect("free");
    let transaction = service.transaction().await.expect("a transaction");
    let error = guard.check_in(&transaction).await.expect_err("another database");
    assert!(matches!(error, Error::Lost { .. }), "{error:?}");

    let urls = [server.url(), other.url()];
    let nodes = on(&urls).admin().init(true).await.expect("they are up");
    assert_eq!(nodes.len(), 2);
    let locker = on(&urls).connect().await.expect("they are up");
    let guard = locker.try_lock("another").await.expect("free");
    let error = guard.check_in(&transaction).await.expect_err("two databases");
    assert!(matches!(error, Error::Misuse { .. }), "{error:?}");
}

#[test]
async fn a_schema_of_its_own_is_found() {
    let server = PostgresServer::start();
    let url = format!("{}?schema=team_a", server.url());
    init([&url]).await;
    let mut service = service(&server).await;
    let guard = on([&url]).connect().await.expect("up").try_lock(NAME).await.expect("free");
    let transaction = service.transaction().await.expect("a transaction");
    guard.check_in(&transaction).await.expect("in time");
    transaction.commit().await.expect("the end");
}
