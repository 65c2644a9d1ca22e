//! What cannot work is refused at once, and says what to do.

use quorlock::Error;
use quorlock::admin::{InitState, NodeInit};
use quorlock_testkit::{PostgresServer, test};

use super::{NAME, client, on, server};

/// Why nobody can lock with this URL.
async fn refused(url: &str) -> String {
    match on([url]).connect().await {
        Ok(_) => panic!("it works"),
        Err(error) => error.to_string(),
    }
}

async fn set_up(server: &PostgresServer) -> NodeInit {
    on([server.url()]).admin().init(false).await.expect("it is up").remove(0)
}

fn says_version(server: &PostgresServer, version: i32) {
    let sql = format!(
        "CREATE OR REPLACE FUNCTION quorlock.version() RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT {version} $$"
    );
    server.sql(&sql, &[]);
}

#[test]
async fn a_database_that_is_not_set_up_is_refused_with_the_remedy() {
    let server = PostgresServer::start();
    let error = refused(&server.url()).await;
    assert!(error.contains("has no schema quorlock: run quorlock init"), "{error}");
    assert!(error.contains("--print-sql"), "{error}");
    server.sql("CREATE SCHEMA quorlock", &[]);
    let error = refused(&server.url()).await;
    assert!(error.contains("is none of Quorlock's, or not whole"), "{error}");
}

#[test]
async fn a_schema_of_another_version_is_brought_forward_or_refused() {
    let server = server().await;
    let guard = client(&server).await.try_lock(NAME).await.expect("free");
    says_version(&server, 0);
    let error = refused(&server.url()).await;
    assert!(error.contains("has version 0, and 1 is needed: run quorlock init"), "{error}");
    let marked = set_up(&server).await;
    assert!(matches!(marked.state, InitState::Voting), "what was there is left: {marked:?}");
    let error = client(&server).await.try_lock(NAME).await.expect_err("held");
    assert!(matches!(error, Error::Taken { .. }), "{error:?}");
    drop(guard);

    says_version(&server, 2);
    let error = refused(&server.url()).await;
    assert!(error.contains("has version 2, and this client knows 1"), "{error}");
    let InitState::Failed(failure) = set_up(&server).await.state else { panic!("it was changed") };
    assert!(failure.to_string().contains("or a later one"), "{failure}");
}

#[test]
async fn passwords_are_checked_and_never_shown() {
    let server = server().await;
    server.sql("CREATE ROLE locked LOGIN SUPERUSER PASSWORD 'right'", &[]);
    server.put_before_hba("host all locked 127.0.0.1/32 scram-sha-256");
    let error = refused(&server.url_of("locked:hunter2")).await;
    assert!(error.contains("check user and password in the URL"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
    let locker = on([server.url_of("locked:right")]).connect().await;
    assert!(!format!("{locker:?}").contains("right"));
    // The same node, by another login.
    let _ = locker.expect("the right password").try_lock(NAME).await.expect("free");
}

#[test]
async fn a_server_that_can_only_be_read_is_refused() {
    let server = server().await;
    server.sql("CREATE ROLE reads LOGIN SUPERUSER; ALTER ROLE reads SET default_transaction_read_only = on", &[]);
    let error = refused(&server.url_of("reads")).await;
    assert!(error.contains("default_transaction_read_only = off"), "{error}");
    let standby = server.standby();
    let error = refused(&standby.url()).await;
    assert!(error.contains("is a standby") && error.contains("name its primary"), "{error}");
    // The next host is tried.
    let both = format!("postgres://postgres@{},{}/postgres", standby.addr(), server.addr());
    let nodes = on([&both]).admin().init(true).await.expect("the primary");
    assert!(matches!(nodes[0].state, InitState::Marked), "{nodes:?}");
    let _ = on([&both]).connect().await.expect("the primary").try_lock(NAME).await.expect("free");
}

#[test]
async fn a_full_server_is_named_with_what_to_raise() {
    let server = server().await;
    server.sql("CREATE ROLE few LOGIN CONNECTION LIMIT 1; SELECT quorlock.let_lock('few')", &[]);
    let first = on([server.url_of("few")]).connect().await.expect("one is allowed");
    let error = refused(&server.url_of("few")).await;
    assert!(error.contains("too many connections") && error.contains("max_connections"), "{error}");
    let _ = first.try_lock(NAME).await.expect("free");
}

#[test]
async fn one_database_is_no_two_nodes() {
    let server = server().await;
    let twice = [server.url(), server.socket_url(), server.url_of("postgres:x")];
    let error = on(twice).connect().await.expect_err("one database").to_string();
    assert!(error.contains("same"), "{error}");
}

#[test]
async fn unlogged_tables_are_not_taken_for_logged_ones() {
    let server = server().await;
    let durable = format!("{}?durable=1", server.url());
    let error = refused(&durable).await;
    assert!(error.contains("are unlogged, and durable=1 is asked for"), "{error}");
    let nodes = on([&durable]).admin().init(false).await.expect("it is up");
    assert!(matches!(nodes[0].state, InitState::Voting), "{nodes:?}");
    on([&durable]).connect().await.expect("they are logged now");
}

#[test]
async fn what_is_set_for_the_database_does_not_matter() {
    let server = server().await;
    server.sql(
        "ALTER DATABASE postgres SET default_transaction_isolation = 'serializable';
         ALTER DATABASE postgres SET default_transaction_deferrable = on;
         ALTER DATABASE postgres SET search_path = 'pg_temp';
         ALTER DATABASE postgres SET timezone = 'Asia/Kathmandu'",
        &[],
    );
    let url = server.socket_url();
    let url = format!("{url}&name=by-the-socket");
    on([&url]).admin().init(true).await.expect("it is up");
    let lockers = [on([&url]).connect().await.unwrap(), on([&url]).connect().await.unwrap()];
    let work = lockers.iter().flat_map(|locker| (0..20).map(move |_| locker.clone()));
    let work: Vec<_> = work
        .map(|locker| {
            tokio::spawn(async move {
                let guard = locker.lock(NAME).await.expect("its turn");
                guard.release().await.expect("released");
            })
        })
        .collect();
    for worker in work {
        worker.await.expect("no panic");
    }
}
