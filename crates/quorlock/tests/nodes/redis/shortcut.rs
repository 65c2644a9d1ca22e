//! A release by one command, on a server that has one, with and without somebody who waits.

use quorlock::Dialect::Redlock;
use quorlock::node::{Answer, FailureKind, TicketNumber::New};
use quorlock_testkit::conformance::owner;
use quorlock_testkit::{RedisServer, Reply, skipping, test};

use super::queue::{LONG, client};
use super::{calls, exists, text};

fn valkey() -> RedisServer {
    RedisServer::builder().program(skipping::valkey()).start()
}

/// How often each was called: the command, and scripts.
fn releases(server: &RedisServer) -> (u64, u64) {
    (calls(server, "delifeq"), calls(server, "evalsha"))
}

#[test]
async fn a_release_that_nobody_waits_for_is_one_command() {
    let server = valkey();
    let client = client(&server.url(), Redlock).await;
    for index in 0..3 {
        let plain = owner("plain").without_fence();
        assert!(plain.acquire(client.node(), LONG).is_done().await);
        assert!(plain.release(client.node()).is_done().await);
        assert!(!exists(&server, "plain"));
        assert_eq!(releases(&server), (index + 1, 0));
    }
}

#[test]
async fn a_waiter_is_notified_and_the_next_releases_are_scripts_at_once() {
    let server = valkey();
    let (one, other) = (client(&server.url(), Redlock).await, client(&server.url(), Redlock).await);
    let (holder, waiter) = (owner("wanted"), other.waiter("wanted", 1));
    assert!(holder.acquire(one.node(), LONG).is_done().await);
    let asked = waiter.wait(New(1), LONG);
    asked.queued().await;
    let before = releases(&server);
    assert!(holder.release(one.node()).is_done().await);
    let not_enough = (before.0 + 1, before.1 + 1);
    assert_eq!(releases(&server), not_enough, "so the script came behind it");
    assert_eq!(other.grant_messages().await, [waiter.message_for(&asked)]);

    let before = releases(&server);
    assert!(waiter.release().await);
    assert_eq!(releases(&server), (before.0, before.1 + 1), "its ticket has to go as well");
    assert_eq!(server.kept(), 0);

    let next = owner("next").without_fence();
    assert!(next.acquire(one.node(), LONG).is_done().await);
    let before = releases(&server);
    assert!(next.release(one.node()).is_done().await);
    assert_eq!(releases(&server), (before.0, before.1 + 1), "this connection has learnt it");
}

/// Its token stays the token, whichever client looks at the lock.
#[test]
async fn a_lock_that_is_waited_for_is_still_its_holders() {
    let server = RedisServer::start();
    let client = client(&server.url(), Redlock).await;
    let holder = owner("kept");
    assert!(holder.acquire(client.node(), LONG).is_done().await);
    let token = text(&server, &["GET", "kept"]);
    let waiter = client.waiter("kept", 2);
    let asked = waiter.wait(New(1), LONG);
    let seen = asked.queued().await.record.expect("held");
    assert_eq!(text(&server, &["GET", "kept"]), format!("{token}+"));
    assert!(holder.extend(client.node(), LONG).is_done().await);
    let Answer::Seen(inspected) = holder.inspect(client.node()).answer().await else {
        panic!("it can be looked at");
    };
    assert_eq!(inspected.record.map(|record| record.holder), Some(seen.holder));
    assert!(
        matches!(server.command(&["PTTL", "kept"]), Reply::Int(1..)),
        "it still ends by itself"
    );
    assert!(holder.release(client.node()).is_done().await);
    assert_eq!(client.grant_messages().await, [waiter.message_for(&asked)]);
    assert!(!text(&server, &["GET", "kept"]).ends_with('+'), "nobody is left");
}

/// It would not find it again.
#[test]
async fn what_another_library_has_stored_stays_as_it_is() {
    let server = RedisServer::start();
    let client = client(&server.url(), Redlock).await;
    server.command(&["SET", "theirs", "their token", "PX", "30000"]);
    let waiter = client.waiter("theirs", 1);
    assert!(waiter.wait(New(1), LONG).queued().await.record.is_some());
    assert_eq!(text(&server, &["GET", "theirs"]), "their token");
    server.command(&["DEL", "theirs"]);
    assert!(waiter.wait(New(1), LONG).is_done().await);
}

#[test]
async fn a_user_that_may_not_use_the_command_releases_by_the_script() {
    let server = valkey();
    let allowed = "ACL SETUSER bob on >builder ~* &* +@all -delifeq";
    let allowed: Vec<_> = allowed.split_whitespace().collect();
    assert_eq!(server.command(&allowed), Reply::Simple("OK".into()));
    let client = client(&format!("redis://bob:builder@{}", server.addr()), Redlock).await;
    for _ in 0..3 {
        let plain = owner("plain");
        assert!(plain.acquire(client.node(), LONG).is_done().await);
        assert!(plain.release(client.node()).is_done().await);
        assert!(!exists(&server, "plain"));
    }
    let Reply::Array(log) = server.command(&["ACL", "LOG"]) else { panic!("a log") };
    assert_eq!(log.len(), 1, "it was tried once: {log:?}");
}

#[test]
async fn what_is_no_lock_is_told_as_ever() {
    let server = valkey();
    let client = client(&server.url(), Redlock).await;
    server.command(&["RPUSH", "list", "element"]);
    match owner("list").release(client.node()).answer().await {
        Answer::Failed(why) => assert_eq!(why.kind(), FailureKind::WrongType),
        other => panic!("{other:?}"),
    }
    let plain = owner("plain").without_fence();
    assert!(plain.acquire(client.node(), LONG).is_done().await);
    let before = releases(&server);
    assert!(plain.release(client.node()).is_done().await);
    assert_eq!(
        releases(&server),
        (before.0 + 1, before.1),
        "another lock has nothing to do with it"
    );
}
