//! What becomes of queues where a user has not all rights.

use quorlock::node::FailureKind;
use quorlock::node::TicketNumber::{Agreed, New};
use quorlock_testkit::conformance::{Waiter, owner};
use quorlock_testkit::{RedisServer, Reply, eventually_async as eventually};

use crate::exists;
use crate::logs::Logs;
use crate::queues::{LONG, client, failure};

/// A user with the rights that locks need, queues apart, and some more.
fn url_of_user(server: &RedisServer, more: &[&str]) -> String {
    let rights = "on >wonderland ~* +hello +info +client|kill +select +set +get +del +pttl +pexpire \
                  +type +eval +evalsha +script|load";
    let mut command = vec!["ACL", "SETUSER", "alice", "resetchannels"];
    command.extend(rights.split_whitespace());
    command.extend(more);
    assert_eq!(server.command(&command), Reply::Simple("OK".into()));
    format!("redis://alice:wonderland@{}", server.addr())
}

const QUEUE_RIGHTS: [&str; 8] =
    ["+zadd", "+zrange", "+zscore", "+zpopmin", "+zrem", "+hset", "+hget", "+hdel"];

#[tokio::test]
async fn whoever_may_not_listen_asks_again_instead() {
    let logs = Logs::new();
    let server = RedisServer::start();
    let mut rights = QUEUE_RIGHTS.to_vec();
    rights.extend(["+publish", "+subscribe"]);
    let url = url_of_user(&server, &rights);
    let (deaf, other) = (client(&url).await, client(&server.url()).await);
    let (first, second) = (other.waiter("deaf", 1), deaf.waiter("deaf", 1));
    assert!(first.wait(New(1), LONG).is_done().await);
    let queued = second.wait(New(1), LONG).queued().await;
    assert!(!queued.told && queued.record.is_some());
    assert!(first.release().await);
    assert!(second.wait(New(1), LONG).is_done().await, "it is free, and not kept for the deaf");
    assert!(second.owner().extend(deaf.node(), LONG).is_done().await);
    assert!(second.release().await);
    assert_eq!(server.kept(), 0);

    server.command(&["CLIENT", "KILL", "USER", "alice"]);
    eventually("back", async || deaf.interruptions() == 1).await;
    let warnings = || logs.lines().into_iter().filter(|line| line.contains("word of grants"));
    assert_eq!(warnings().count(), 1, "once is enough: {:?}", logs.lines());
    assert!(logs.warns_of("&quorlock:inbox:*"), "{:?}", logs.lines());
}

#[tokio::test]
async fn whoever_has_no_rights_to_queues_locks_and_releases_all_the_same() {
    let server = RedisServer::start();
    let (limited, other) = (client(&url_of_user(&server, &[])).await, client(&server.url()).await);
    let plain = owner("plain");
    assert!(plain.acquire(limited.node(), LONG).is_done().await);
    assert!(plain.extend(limited.node(), LONG).is_done().await);
    assert!(plain.release(limited.node()).is_done().await);
    assert!(!plain.release(limited.node()).is_done().await);
    assert!(!exists(&server, "plain"));

    // Not even from what others have queued up for: they find it free when they ask again.
    assert!(plain.acquire(limited.node(), LONG).is_done().await);
    let waiter = other.waiter("plain", 1);
    let number = waiter.wait(New(1), LONG).queued().await.number;
    assert!(plain.release(limited.node()).is_done().await);
    assert!(!exists(&server, "plain"));
    assert!(waiter.wait(Agreed(number), LONG).is_done().await);

    let (kind, why) = failure(&limited.waiter("plain", 1)).await;
    assert_eq!(kind, FailureKind::Unfit, "{why}");
    assert!(why.contains("+zadd") && why.contains("&quorlock:inbox:*"), "{why}");
    assert!(waiter.release().await);
    assert_eq!(server.kept(), 0);
}

/// It cannot tell anybody of a grant, so it must not make one, nor empty the queue.
#[tokio::test]
async fn whoever_may_not_tell_others_leaves_the_lock_free_and_the_queue_alone() {
    let server = RedisServer::start();
    let mute = client(&url_of_user(&server, &QUEUE_RIGHTS)).await;
    let other = client(&server.url()).await;
    let holder = mute.waiter("mute", 1);
    assert!(holder.wait(New(1), LONG).is_done().await);
    let waiters = [1, 2, 3].map(|waiter| other.waiter("mute", waiter));
    for waiter in &waiters {
        waiter.wait(New(1), LONG).queued().await;
    }
    assert!(holder.release().await);
    assert!(!exists(&server, "mute"));
    assert_eq!(other.words().await, []);
    let queue = |member: &Waiter<'_>| {
        let token = member.owner().token().text().to_vec();
        let command: [&[u8]; 3] = [b"ZSCORE", b"mute:quorlock:queue", &token];
        server.command(&command) != Reply::Bulk(None)
    };
    assert_eq!([queue(&waiters[1]), queue(&waiters[2])], [true, true]);
    let (kind, why) = failure(&holder).await;
    assert!(kind == FailureKind::Unfit && why.contains("+publish"), "{why}");
    assert!(!exists(&server, "mute"), "a grant that nobody knows of");
}

/// What lies beside a lock needs no more rights than the lock; a list does.
#[tokio::test]
async fn whoever_has_few_rights_leaves_notes_and_looks_but_gets_no_list() {
    let server = RedisServer::start();
    let limited = client(&url_of_user(&server, &[])).await;
    let (node, holder) = (limited.node(), owner("noted"));
    assert!(holder.acquire(node, LONG).is_done().await);
    assert!(holder.describe(node, "Anna").is_done().await);
    let seen = holder.looked(node).await;
    assert_eq!((seen.note.as_deref(), seen.waiters), (Some("Anna"), None));

    let locker = quorlock::Locker::builder()
        .dialect(quorlock::Dialect::Redlock)
        .nodes([url_of_user(&server, &[])])
        .connect()
        .await;
    let refused = locker.expect("a locker").list().await.expect_err("it may not scan").to_string();
    assert!(refused.contains("+scan"), "{refused}");
    let locker = quorlock::Locker::builder()
        .dialect(quorlock::Dialect::Redlock)
        .nodes([url_of_user(&server, &["+scan"])]);
    let hidden = locker.connect().await.expect("a locker").list().await.expect("a list");
    assert!(hidden.is_empty(), "what it may not read is not shown");
    let locker = quorlock::Locker::builder()
        .dialect(quorlock::Dialect::Redlock)
        .nodes([url_of_user(&server, &["+getrange"])]);
    let listed = locker.connect().await.expect("a locker").list().await.expect("a list");
    assert_eq!(listed.len(), 1);

    assert!(owner("noted").take_from(holder.holder(), node).is_done().await);
    assert_eq!(server.kept(), 0);
}
