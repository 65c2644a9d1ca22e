//! A role that may lock can do nothing else.

use quorlock::node::postgres::setup_sql;
use quorlock_testkit::{PostgresServer, test};

use super::{NAME, init, on, server};

#[test]
async fn a_role_without_rights_is_told_which() {
    let server = server().await;
    server.sql("CREATE ROLE app LOGIN", &[]);
    let error = on([server.url_of("app")]).connect().await.expect_err("no rights").to_string();
    assert!(error.contains("SELECT quorlock.let_lock('app')"), "{error}");
    server.sql("SELECT quorlock.let_lock('app')", &[]);
    let locker = on([server.url_of("app")]).connect().await.expect("it may lock");
    let guard = locker.lock(NAME).await.expect("free");
    guard.release().await.expect("released");

    for (what, refused) in [
        ("SELECT * FROM quorlock.lock", "permission denied for table lock"),
        ("DELETE FROM quorlock.marker", "permission denied for table marker"),
        ("SELECT quorlock.give(NULL, '', 0, 0)", "permission denied for function give"),
        ("SELECT quorlock.let_lock('app')", "permission denied for function let_lock"),
        ("CREATE TABLE quorlock.mine (a int)", "permission denied for schema quorlock"),
    ] {
        let said = server.sql_as("app", what).expect_err("it may lock, and nothing else");
        assert!(said.contains(refused), "{what}: {said}");
    }
}

/// The functions run with the rights of their owner: what they find must not depend on who calls them.
#[test]
async fn a_role_cannot_have_the_functions_run_something_of_its_own() {
    let server = server().await;
    server.sql(
        "CREATE ROLE app LOGIN; SELECT quorlock.let_lock('app');
         CREATE SCHEMA evil AUTHORIZATION app",
        &[],
    );
    server
        .sql_as(
            "app",
            "CREATE FUNCTION evil.now_us() RETURNS bigint LANGUAGE sql AS $$ SELECT 0::bigint $$;
             CREATE TABLE evil.lock (name bytea);
             CREATE FUNCTION evil.never(bigint, bigint) RETURNS boolean LANGUAGE sql AS $$ SELECT false $$;
             CREATE OPERATOR evil.>= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.never);
             ALTER ROLE app SET search_path = evil, pg_catalog, quorlock",
        )
        .expect("a schema of its own");
    let locker = on([server.url_of("app")]).connect().await.expect("it may lock");
    let guard = locker.try_lock(NAME).await.expect("free");
    assert_eq!(server.sql("SELECT count(*) FROM quorlock.lock WHERE token <> ''", &[]), "1\n");
    guard.release().await.expect("released");
}

/// An owner of a database need not give its rights away.
#[test]
async fn what_is_printed_sets_a_database_up() {
    let server = PostgresServer::start();
    server.sql("CREATE ROLE owner LOGIN; CREATE ROLE app LOGIN; GRANT CREATE ON DATABASE postgres TO owner", &[]);
    let url = server.url_of("app");
    let sql = setup_sql(&url).expect("a good URL");
    server.sql_as("owner", &sql).expect("all that it takes");
    // As after an update.
    server.sql_as("owner", &format!("{sql} SELECT quorlock.let_lock('app')")).expect("again");
    init([&url]).await;
    let _ = on([&url]).connect().await.expect("it may lock").try_lock(NAME).await.expect("free");
    assert_eq!(
        server.sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", &[]),
        "0\n"
    );
}
