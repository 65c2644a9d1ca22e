//! What cannot work is refused at once, and says what to do.

use quorlock::Error;
use quorlock::admin::{InitState, NodeInit};
use quorlock_testkit::{MariaDbServer, test};

use super::{NAME, client, on, server};

/// Why nobody can lock with this URL.
async fn refused(url: &str) -> String {
    match on([url]).connect().await {
        Ok(_) => panic!("it works"),
        Err(error) => error.to_string(),
    }
}

async fn set_up(server: &MariaDbServer) -> NodeInit {
    on([server.url()]).admin().init(false).await.expect("it is up").remove(0)
}

fn says_version(server: &MariaDbServer, version: i64) {
    server.sql(&format!(
        "DROP PROCEDURE quorlock_greet;
         CREATE PROCEDURE quorlock_greet(IN p_client BIGINT UNSIGNED)
         SELECT {version} AS version, '' AS marker, 's' AS start, 0 AS durable, 'l' AS sign_of_life"
    ));
}

#[test]
async fn a_database_that_is_not_set_up_is_refused_with_the_remedy() {
    let server = MariaDbServer::start();
    let error = refused(&server.url()).await;
    assert!(error.contains("the database locks has no procedures of Quorlock"), "{error}");
    assert!(error.contains("run quorlock init") && error.contains("--print-sql"), "{error}");
    let error = refused(&server.url_of("admin", "nowhere")).await;
    assert!(error.contains("create the database"), "{error}");
}

#[test]
async fn procedures_of_another_version_are_brought_forward_or_refused() {
    let server = server().await;
    let guard = client(&server).await.try_lock(NAME).await.expect("free");
    says_version(&server, 0);
    let error = refused(&server.url()).await;
    assert!(error.contains("have version 0, and 1 is needed: run quorlock init"), "{error}");
    let marked = set_up(&server).await;
    assert!(matches!(marked.state, InitState::Voting), "what was there is left: {marked:?}");
    let error = client(&server).await.try_lock(NAME).await.expect_err("held");
    assert!(matches!(error, Error::Taken { .. }), "{error:?}");
    drop(guard);

    says_version(&server, 2);
    let error = refused(&server.url()).await;
    assert!(error.contains("have version 2, and this client knows 1"), "{error}");
    let InitState::Failed(failure) = set_up(&server).await.state else { panic!("it was changed") };
    assert!(failure.to_string().contains("or a later one"), "{failure}");
}

#[test]
async fn passwords_are_checked_and_never_shown() {
    let server = server().await;
    server.sql("CREATE USER locked IDENTIFIED BY 'right'; GRANT EXECUTE ON locks.* TO locked");
    let error = refused(&server.url_of("locked:hunter2", "locks")).await;
    assert!(error.contains("check user and password in the URL"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
    let locker = on([server.url_of("locked:right", "locks")]).connect().await;
    assert!(!format!("{locker:?}").contains("right"));
    // The same node, by another login.
    let _guard = locker.expect("the right password").try_lock(NAME).await.expect("free");
}

#[test]
async fn a_server_that_can_only_be_read_is_refused() {
    let server = server().await;
    server.sql("SET GLOBAL read_only = ON");
    let error = refused(&server.url()).await;
    assert!(error.contains("can only be read") && error.contains("name its primary"), "{error}");
    server.sql("SET GLOBAL read_only = OFF");
    let _guard = client(&server).await.try_lock(NAME).await.expect("free");
}

#[test]
async fn a_binary_log_that_takes_no_changes_is_refused_and_others_are_not() {
    let format = |format| format!("--binlog-format={format}");
    let server = MariaDbServer::start_with(&["--log-bin", &format("STATEMENT"), "--server-id=7"]);
    let error = refused(&server.url()).await;
    assert!(error.contains("set binlog_format = MIXED or ROW"), "{error}");
    let server = MariaDbServer::start_with(&["--log-bin", &format("MIXED"), "--server-id=7"]);
    super::init([server.url()]).await;
    let _guard = client(&server).await.try_lock(NAME).await.expect("free");
}

#[test]
async fn a_clock_that_stands_still_in_a_statement_is_refused() {
    let server = MariaDbServer::start_with(&["--sysdate-is-now"]);
    let error = refused(&server.url()).await;
    assert!(error.contains("--sysdate-is-now"), "{error}");
}

#[test]
async fn a_full_server_is_named_with_what_to_raise() {
    let server = server().await;
    server.sql("CREATE USER few WITH MAX_USER_CONNECTIONS 12; GRANT EXECUTE ON locks.* TO few");
    let first = on([server.url_of("few", "locks")]).connect().await.expect("nine are allowed");
    let error = refused(&server.url_of("few", "locks")).await;
    assert!(error.contains("each locker keeps nine connections"), "{error}");
    let _guard = first.try_lock(NAME).await.expect("free");
}

#[test]
async fn one_database_is_no_two_nodes() {
    let server = server().await;
    let twice = [server.url(), server.socket_url(), server.url_of("admin:", "locks/")];
    let error = on(twice).connect().await.expect_err("one database").to_string();
    assert!(error.contains("same"), "{error}");
}

#[test]
async fn tls_that_a_server_does_not_offer_is_missed_only_where_it_is_asked_for() {
    let server = server().await;
    let error = refused(&format!("{}?ssl-mode=verify-identity", server.url())).await;
    assert!(error.contains("does not offer TLS"), "{error}");
    let url = format!("{}?ssl-mode=preferred&name=locked", server.url());
    on([&url]).admin().init(true).await.expect("it is up");
    let _guard = on([&url]).connect().await.expect("up").try_lock(NAME).await.expect("free");
}

#[test]
async fn what_is_set_for_the_server_does_not_matter() {
    let server = server().await;
    server.sql(
        "SET GLOBAL time_zone = '+05:45', tx_isolation = 'SERIALIZABLE', autocommit = 0, sql_mode = '',
           max_statement_time = 0.001, innodb_lock_wait_timeout = 50, character_set_server = latin1,
           completion_type = 1, wait_timeout = 1, default_storage_engine = 'MyISAM'",
    );
    let url = format!("{}&name=by-the-socket", server.socket_url());
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
