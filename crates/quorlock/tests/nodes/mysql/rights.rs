//! A user who may lock can do nothing else.

use quorlock::node::mysql::setup_sql;
use quorlock_testkit::{MariaDbServer, test};

use super::{NAME, init, on, server};

#[test]
async fn a_user_without_rights_is_told_which() {
    let server = server().await;
    server.sql("CREATE USER app; GRANT CREATE TEMPORARY TABLES ON locks.* TO app");
    let url = server.url_of("app", "locks");
    let error = on([&url]).connect().await.expect_err("no rights").to_string();
    assert!(error.contains("granted EXECUTE ON `locks`.*"), "{error}");
    server.sql("REVOKE ALL PRIVILEGES, GRANT OPTION FROM app; GRANT EXECUTE ON locks.* TO app");
    let (first, second) = (on([&url]).connect().await, on([&url]).connect().await);
    let (first, second) = (first.expect("it may lock"), second.expect("it may lock"));
    let guard = first.lock(NAME).await.expect("free");
    let waiter = tokio::spawn(second.lock(NAME).into_future());
    guard.release().await.expect("released");
    let guard = waiter.await.expect("no panic").expect("it may wait");
    guard.release().await.expect("released");

    for (what, refused) in [
        ("SELECT * FROM quorlock_lock", "command denied"),
        ("DELETE FROM quorlock_marker", "command denied"),
        ("CALL quorlock_give('n', '', 0, 0, 0)", "command denied"),
        ("CALL quorlock_listen(7, '', 0)", "another connection than the one that listens"),
        ("CREATE TABLE mine (a int)", "command denied"),
    ] {
        let said = server.sql_as("app", what).expect_err("it may lock, and nothing else");
        assert!(said.contains(refused), "{what}: {said}");
    }
}

/// Who may make tables and procedures need not give its rights away.
#[test]
async fn what_is_printed_sets_a_database_up() {
    let server = MariaDbServer::start();
    server.sql(
        "CREATE USER owner; CREATE USER app; GRANT EXECUTE ON locks.* TO app;
         GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, INDEX, CREATE ROUTINE, ALTER ROUTINE, EXECUTE ON locks.* TO owner",
    );
    let url = server.url_of("app", "locks");
    let sql = setup_sql(&url).expect("a good URL");
    server.sql_as("owner", &sql).expect("all that it takes");
    // As after an update.
    server.sql_as("owner", &sql).expect("again");
    init([&url]).await;
    let _guard =
        on([&url]).connect().await.expect("it may lock").try_lock(NAME).await.expect("free");
    let others = server.sql("SHOW TABLES WHERE Tables_in_locks NOT LIKE 'quorlock\\\\_%'");
    assert_eq!(others, "");
}
