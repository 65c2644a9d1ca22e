//! A server that may have forgotten what it granted casts no vote for a while. Where nothing is done about it, two clients
//! hold one lock.

use std::time::Duration;

use quorlock::{Error, Guard, Locker};
use quorlock_testkit::{DEADLINE, PostgresServer, eventually_async as eventually, test};

use super::{NAME, TTL, client, init, on, reached_by, server};

/// What stands in for the rule that a server without its marker casts no vote.
const ALWAYS_VOTES: &str = "CREATE OR REPLACE FUNCTION quorlock.standing(p_now bigint, c_voter text, OUT state text, \
     OUT marker text) LANGUAGE plpgsql AS $$ BEGIN state := 'votes'; marker := ''; END $$";

/// Nobody gets the lock since the server casts no vote.
async fn assert_quarantined(locker: &Locker) {
    let error = locker.try_lock(NAME).await.expect_err("a vote that may be another's");
    assert!(matches!(error, Error::Quarantined { .. }), "{error:?}");
}

/// The fence that the server has of the lock.
async fn fence_on_the_server(locker: &Locker) -> Option<u64> {
    let status = locker.inspect(NAME).await.expect("a status");
    let record = status.nodes[0].record.as_ref().expect("it answers").as_ref();
    record.and_then(|record| record.fence)
}

async fn fixed(locker: &Locker) -> Guard {
    locker.try_lock(NAME).fixed().await.expect("free")
}

#[test]
async fn a_crash_of_any_process_empties_the_tables_and_lets_nobody_in() {
    let server = server().await;
    let (first, second) = (client(&server).await, client(&server).await);
    let guard = fixed(&first).await;
    server.crash();
    assert_eq!(server.sql("SELECT count(*) FROM quorlock.lock", &[]), "0\n");
    reached_by(&second).await;
    assert_quarantined(&second).await;
    assert!(guard.is_held());

    // The same without that rule.
    server.sql(ALWAYS_VOTES, &[]);
    let other = second.try_lock(NAME).await.expect("nothing protects the first client");
    assert!(guard.is_held() && other.is_held(), "they hold it one after the other");
}

#[test]
async fn a_holder_stores_its_record_again_after_a_crash() {
    let server = server().await;
    let (first, second) = (client(&server).await, client(&server).await);
    let guard = first.try_lock(NAME).await.expect("free");
    let before = fence_on_the_server(&second).await.expect("a record");
    server.crash();
    reached_by(&first).await;
    reached_by(&second).await;
    guard.extend().await.expect("a majority of one has healed");
    assert!(guard.is_held());
    assert_eq!(fence_on_the_server(&second).await, Some(before));
}

#[test]
async fn a_clean_restart_keeps_locks_and_asks_for_patience_all_the_same() {
    let server = server().await;
    let (first, second) = (client(&server).await, client(&server).await);
    let guard = first.try_lock(NAME).await.expect("free");
    let before = fence_on_the_server(&second).await.expect("a record");
    server.restart();
    reached_by(&second).await;
    assert_eq!(fence_on_the_server(&second).await, Some(before), "it was kept");
    // A backup of a server that was stopped looks the same.
    assert_quarantined(&second).await;
    reached_by(&first).await;
    guard.extend().await.expect("it is held");
}

/// The same node behind another address, as with a name in the DNS.
fn named(server: &PostgresServer, durable: bool) -> String {
    format!("{}?name=lock-a{}", server.url(), if durable { "&durable=1" } else { "" })
}

#[test]
async fn a_standby_that_is_promoted_lets_nobody_in() {
    for durable in [false, true] {
        let server = PostgresServer::start();
        init([named(&server, durable)]).await;
        let standby = server.standby();
        let first = on([named(&server, durable)]).connect().await.expect("it is up");
        let guard = fixed(&first).await;
        if durable {
            eventually("the standby has followed", async || {
                standby.sql("SELECT count(*) FROM quorlock.lock WHERE token <> ''", &[]) == "1\n"
            })
            .await;
        }
        server.kill();
        standby.promote();
        let second = on([named(&standby, durable)]).connect().await.expect("it is up");
        assert_quarantined(&second).await;
        assert!(guard.is_held());

        // The same without that rule. A standby that lags behind has no record of the lock.
        standby.sql(ALWAYS_VOTES, &[]);
        standby.sql("DELETE FROM quorlock.lock", &[]);
        let other = second.try_lock(NAME).await.expect("nothing protects the first client");
        assert!(guard.is_held() && other.is_held(), "they hold it one after the other");
    }
}

#[test]
async fn logged_tables_keep_locks_and_votes_over_a_crash() {
    let server = PostgresServer::start();
    let url = format!("{}?durable=1", server.url());
    init([&url]).await;
    let first = on([&url]).connect().await.expect("it is up");
    let second = on([&url]).connect().await.expect("it is up");
    let guard = fixed(&first).await;
    server.crash();
    reached_by(&second).await;
    let error = second.try_lock(NAME).await.expect_err("held");
    assert!(matches!(error, Error::Taken { .. }), "{error:?}");
    reached_by(&first).await;
    guard.release().await.expect("released");
    let _ = second.try_lock(NAME).await.expect("it votes");
}

#[test]
async fn a_database_votes_again_once_everything_has_ended_that_it_can_have_granted() {
    const SHORT: Duration = Duration::from_secs(7);
    let server = PostgresServer::start();
    let short = || on([server.url()]).ttl(SHORT).max_ttl(SHORT).node_limit(SHORT / 6);
    short().admin().init(false).await.expect("it is up");
    let first = short().connect().await.expect("it is up");
    let second = short().connect().await.expect("it is up");
    let guard = fixed(&first).await;
    server.crash();
    reached_by(&second).await;
    let other = second.try_lock(NAME).votes_within(6 * DEADLINE).await.expect("in time");
    assert!(!guard.is_held(), "two hold it");
    assert!(other.fence() > guard.fence(), "fences grow");
}

#[test]
async fn three_databases_do_without_one() {
    let servers = [PostgresServer::start(), PostgresServer::start(), PostgresServer::start()];
    let urls = servers.each_ref().map(PostgresServer::url);
    init(&urls).await;
    let first = on(&urls).connect().await.expect("they are up");
    let second = on(&urls).connect().await.expect("they are up");
    reached_by(&first).await;
    reached_by(&second).await;
    let guard = first.try_lock(NAME).await.expect("free");
    servers[1].kill();
    guard.extend().await.expect("two of three");
    eventually("it is known to be away", async || {
        let status = second.inspect(NAME).await.expect("a status");
        status.nodes[1].record.is_err()
    })
    .await;
    // Who has it, or that too few could be asked.
    second.try_lock(NAME).await.expect_err("held");
    guard.release().await.expect("two of three");
    let guard = second.try_lock(NAME).await.expect("two of three");
    servers[0].crash();
    reached_by_two(&second).await;
    assert!(guard.is_held());
    first.try_lock(NAME).await.expect_err("held, and one of three votes");
}

async fn reached_by_two(locker: &Locker) {
    eventually("two of them answer", async || {
        let status = locker.inspect(NAME).await.expect("a status");
        status.nodes.iter().filter(|node| node.record.is_ok()).count() == 2
    })
    .await;
}

/// As it is when somebody cleans up.
#[test]
async fn a_database_whose_marker_was_removed_casts_no_vote() {
    let server = server().await;
    let (first, second) = (client(&server).await, client(&server).await);
    let guard = fixed(&first).await;
    server.sql("TRUNCATE quorlock.marker, quorlock.lock", &[]);
    assert_quarantined(&second).await;
    assert!(guard.is_held() && guard.remaining() > TTL / 2);
}
