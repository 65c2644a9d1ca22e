//! A server that may have forgotten what it granted casts no vote for a while. Where nothing is done about it, two clients
//! hold one lock.

use std::time::Duration;

use quorlock::{Error, Guard, Locker, PostgresOptions, RedisOptions};
use quorlock_testkit::{
    DEADLINE, MariaDbServer, PostgresServer, RedisServer, eventually_async as eventually, test,
};

use super::{NAME, TTL, client, init, on, options, reached_by, server};

/// What stands in for the rule that a server of another start casts no vote.
const ALWAYS_VOTES: &str = "DROP PROCEDURE quorlock_standing;
     CREATE PROCEDURE quorlock_standing(IN p_marker MEDIUMBLOB, IN p_now BIGINT, IN c_voter VARBINARY(255),
       OUT o_state VARBINARY(8)) SQL SECURITY INVOKER SET o_state = 'votes'";

/// What a server that does not write each transaction to its disk may lose.
const FORGETS: &str = "DELETE FROM quorlock_lock";

/// Nobody gets the lock since the server casts no vote.
async fn assert_quarantined(locker: &Locker) {
    let error = locker.try_lock(NAME).await.expect_err("a vote that may be another's");
    assert!(matches!(error, Error::Quarantined { .. }), "{error:?}");
}

async fn fixed(locker: &Locker) -> Guard {
    locker.try_lock(NAME).fixed().await.expect("free")
}

#[test]
async fn a_server_that_keeps_each_transaction_keeps_locks_and_votes_over_a_crash() {
    let server = MariaDbServer::durable();
    init([server.url()]).await;
    let (first, second) = (client(&server).await, client(&server).await);
    for how in [MariaDbServer::crash, MariaDbServer::restart] {
        let guard = fixed(&first).await;
        how(&server);
        reached_by(&second).await;
        let error = second.try_lock(NAME).await.expect_err("held");
        assert!(matches!(error, Error::Taken { .. }), "{error:?}");
        reached_by(&first).await;
        guard.extend().await.expect("it was kept");
        guard.release().await.expect("released");
        let guard = second.try_lock(NAME).await.expect("it votes");
        guard.release().await.expect("released");
    }
}

#[test]
async fn any_other_server_casts_no_vote_after_a_restart() {
    for how in [MariaDbServer::crash, MariaDbServer::restart] {
        let server = server().await;
        let (first, second) = (client(&server).await, client(&server).await);
        let guard = fixed(&first).await;
        how(&server);
        server.sql(FORGETS);
        reached_by(&second).await;
        assert_quarantined(&second).await;
        assert!(guard.is_held());

        // The same without that rule.
        server.sql(ALWAYS_VOTES);
        let other = second.try_lock(NAME).await.expect("nothing protects the first client");
        assert!(guard.is_held() && other.is_held(), "they hold it one after the other");
    }
}

#[test]
async fn a_holder_stores_its_record_again_that_a_server_has_forgotten() {
    let server = server().await;
    let (first, second) = (client(&server).await, client(&server).await);
    let guard = first.try_lock(NAME).await.expect("free");
    server.crash();
    server.sql(FORGETS);
    reached_by(&first).await;
    guard.extend().await.expect("a majority of one has healed");
    assert!(guard.is_held());
    reached_by(&second).await;
    let status = second.inspect(NAME).await.expect("a status");
    let record = status.nodes[0].record.as_ref().expect("it answers").expect("a record");
    assert!(record.fence >= Some(guard.fence()), "the last of its block, or the same");
}

/// The same node behind another address, as with a name in the DNS.
fn named(server: &MariaDbServer) -> String {
    format!("{}?name=lock-a", server.url())
}

#[test]
async fn a_server_that_takes_the_place_of_another_lets_nobody_in() {
    let server = MariaDbServer::durable();
    init([named(&server)]).await;
    // It has followed so far.
    server.stop();
    let other = server.copy(&["--innodb-flush-log-at-trx-commit=1", "--server-id=2"]);
    server.start_again();
    let first = on([named(&server)]).connect().await.expect("it is up");
    let guard = fixed(&first).await;
    server.kill();
    let second = on([named(&other)]).connect().await.expect("it is up");
    assert_quarantined(&second).await;
    assert!(guard.is_held());

    // The same without that rule.
    other.sql(ALWAYS_VOTES);
    let other = second.try_lock(NAME).await.expect("nothing protects the first client");
    assert!(guard.is_held() && other.is_held(), "they hold it one after the other");
}

/// The identity that was met at the greeting says that nothing is lost. From then on something may be.
#[test]
async fn a_server_that_stops_keeping_each_transaction_casts_no_vote_until_it_does_not_matter() {
    let server = MariaDbServer::durable();
    init([server.url()]).await;
    let (first, second) = (client(&server).await, client(&server).await);
    let guard = fixed(&first).await;
    server.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 0");
    eventually("it is noticed", async || {
        let tried = second.try_lock("another").await;
        matches!(tried, Err(Error::Quarantined { .. }))
    })
    .await;
    assert!(guard.is_held());
    reached_by(&first).await;
    guard.extend().await.expect("its record is there");
}

#[test]
async fn a_database_votes_again_once_everything_has_ended_that_it_can_have_granted() {
    const SHORT: Duration = Duration::from_secs(7);
    let server = MariaDbServer::start();
    let short = || on([server.url()]).ttl(SHORT).max_ttl(SHORT).node_limit(Duration::from_secs(1));
    short().admin().init(false).await.expect("it is up");
    let first = short().connect().await.expect("it is up");
    let second = short().connect().await.expect("it is up");
    let guard = fixed(&first).await;
    server.crash();
    server.sql(FORGETS);
    reached_by(&second).await;
    let other = second.try_lock(NAME).votes_within(6 * DEADLINE).await.expect("in time");
    assert!(!guard.is_held(), "two hold it");
    assert!(other.fence() > guard.fence(), "fences grow");
}

#[test]
async fn three_databases_do_without_one() {
    let servers = [MariaDbServer::start(), MariaDbServer::start(), MariaDbServer::start()];
    let urls = servers.each_ref().map(MariaDbServer::url);
    init(&urls).await;
    let first = on(&urls).connect().await.expect("they are up");
    let second = on(&urls).connect().await.expect("they are up");
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
    guard.release().await.expect("two of three");
}

#[test]
async fn databases_of_all_kinds_form_one_set_with_redis() {
    let (mysql, postgres, redis) =
        (MariaDbServer::start(), PostgresServer::start(), RedisServer::start());
    let mixed = || {
        let window = (options().clock_behind, options().clock_ahead);
        on([mysql.url(), postgres.url(), redis.url()])
            .postgres(PostgresOptions::default().clock_window(window.0, window.1))
            .redis(RedisOptions::default().clock_window(window.0, window.1))
    };
    let nodes = mixed().admin().init(false).await.expect("they are up");
    assert!(
        nodes.iter().all(|node| matches!(node.state, quorlock::admin::InitState::Marked)),
        "{nodes:?}"
    );
    let first = mixed().connect().await.expect("they are up");
    let second = mixed().connect().await.expect("they are up");
    let guard = first.try_lock(NAME).await.expect("free");
    mysql.kill();
    guard.extend().await.expect("two of three");
    let fence = guard.fence();
    let (lock, waits) = (second.lock(NAME).into_future(), guard.remaining());
    let waiter = tokio::spawn(lock);
    assert!(waits > TTL / 2);
    guard.release().await.expect("two of three");
    let guard = waiter.await.expect("no panic").expect("its turn");
    assert!(guard.fence() > fence);
}

/// As it is when somebody cleans up.
#[test]
async fn a_database_whose_marker_was_removed_casts_no_vote() {
    let server = server().await;
    let (first, second) = (client(&server).await, client(&server).await);
    let guard = fixed(&first).await;
    server.sql("DELETE FROM quorlock_marker; DELETE FROM quorlock_lock");
    assert_quarantined(&second).await;
    assert!(guard.is_held() && guard.remaining() > TTL / 2);
}
