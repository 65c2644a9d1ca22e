//! What becomes of queues where a user has not all rights.

use quorlock::node::TicketNumber::{Agreed, New};
use quorlock::node::{Answer, FailureKind};
use quorlock::{Dialect, Locker};
use quorlock_testkit::conformance::{Owner, Waiter, owner};
use quorlock_testkit::{Logs, RedisServer, Reply, eventually_async as eventually, test};

use super::queue::{LONG, client, failure};
use super::{DIALECTS, exists, is_held, patient, text};

/// A user with the rights that locks need, queues apart, and some more.
fn url_of_user(server: &RedisServer, dialect: Dialect, more: &[&str]) -> String {
    let rights = "on >wonderland ~* +hello +info +client|kill +select +set +get +del +pttl +pexpire \
                  +type +eval +evalsha +script|load";
    let mut command = vec!["ACL", "SETUSER", "alice", "resetchannels"];
    command.extend(rights.split_whitespace());
    if dialect == Dialect::Strict {
        command.push("+time");
    }
    command.extend(more);
    assert_eq!(server.command(&command), Reply::Simple("OK".into()));
    format!("redis://alice:wonderland@{}", server.addr())
}

const QUEUE_RIGHTS: [&str; 10] = [
    "+time", "+zadd", "+zcard", "+zrange", "+zscore", "+zpopmin", "+zrem", "+hset", "+hget",
    "+hdel",
];

/// A user who may do everything, but with these keys alone.
fn url_with_keys(server: &RedisServer, keys: &[&str]) -> String {
    let mut command = vec!["ACL", "SETUSER", "bob", "on", ">builder", "+@all", "&*"];
    command.extend(keys);
    assert_eq!(server.command(&command), Reply::Simple("OK".into()));
    format!("redis://bob:builder@{}", server.addr())
}

#[test]
async fn a_user_that_may_not_listen_asks_again_instead() {
    for dialect in DIALECTS {
        let logs = Logs::new();
        let server = RedisServer::start();
        let mut rights = QUEUE_RIGHTS.to_vec();
        rights.extend(["+publish", "+subscribe"]);
        let url = url_of_user(&server, dialect, &rights);
        let (deaf, other) = (client(&url, dialect).await, client(&server.url(), dialect).await);
        let (first, second) = (other.waiter("deaf", 1), deaf.waiter("deaf", 1));
        assert!(first.wait(New(1), LONG).is_done().await);
        let queued = second.wait(New(1), LONG).queued().await;
        assert!(!queued.will_notify && queued.record.is_some());
        assert!(first.release().await);
        assert!(second.wait(New(1), LONG).is_done().await, "it is free, and not kept for the deaf");
        assert!(second.owner().extend(deaf.node(), LONG).is_done().await);
        assert!(second.release().await);
        assert_eq!(server.kept(), 0);

        server.command(&["CLIENT", "KILL", "USER", "alice"]);
        eventually("back", async || deaf.interruptions() == 2).await;
        let warnings = || logs.lines().into_iter().filter(|line| line.contains("grant messages"));
        assert_eq!(warnings().count(), 1, "once is enough: {:?}", logs.lines());
        assert!(logs.warns_of("&:quorlock:inbox:*"), "{:?}", logs.lines());
    }
}

/// Neither the commands of queues, nor their keys. In the redlock dialect the fence lies in a key of
/// its own: who has no right to that locks without.
#[test]
async fn a_user_without_rights_to_queues_locks_and_releases_all_the_same() {
    for dialect in DIALECTS {
        let server = RedisServer::start();
        let url = url_of_user(&server, dialect, &[]);
        locks_and_releases(&server, &url, dialect, &owner("plain")).await;
    }
    let server = RedisServer::start();
    let url = url_with_keys(&server, &["~plain", "~:quorlock:set"]);
    locks_and_releases(&server, &url, Dialect::Strict, &owner("plain")).await;
    let server = RedisServer::start();
    let url = url_with_keys(&server, &["~plain"]);
    let unnumbered = owner("plain").without_fence();
    locks_and_releases(&server, &url, Dialect::Redlock, &unnumbered).await;
}

async fn locks_and_releases(server: &RedisServer, url: &str, dialect: Dialect, plain: &Owner) {
    let (limited, other) = (client(url, dialect).await, client(&server.url(), dialect).await);
    assert!(plain.acquire(limited.node(), LONG).is_done().await);
    assert!(plain.extend(limited.node(), LONG).is_done().await);
    assert!(plain.release(limited.node()).is_done().await);
    assert!(!plain.release(limited.node()).is_done().await);
    assert!(!is_held(server, "plain"));

    // Not even from what others have queued up for: they find it free when they ask again.
    assert!(plain.acquire(limited.node(), LONG).is_done().await);
    let waiter = other.waiter("plain", 1);
    let ticket_no = waiter.wait(New(1), LONG).queued().await.ticket_no;
    assert!(plain.release(limited.node()).is_done().await);
    assert!(!is_held(server, "plain"));
    assert!(waiter.wait(Agreed(ticket_no), LONG).is_done().await);

    let (kind, why) = failure(&limited.waiter("plain", 1)).await;
    assert_eq!(kind, FailureKind::Unfit, "{why}");
    assert!(why.contains("+zadd") && why.contains("&:quorlock:inbox:*"), "{why}");
    assert!(waiter.release().await);
    assert_eq!(server.kept(), 0);
}

/// Nor does anybody else find the lock taken for it.
#[test]
async fn a_user_without_rights_to_fences_is_told_so_and_leaves_nothing_behind() {
    let server = RedisServer::start();
    let url = url_with_keys(&server, &["~plain"]);
    let limited = client(&url, Dialect::Redlock).await;
    let Answer::Failed(why) = owner("plain").acquire(limited.node(), LONG).answer().await else {
        panic!("a fence without the right to it");
    };
    assert_eq!(why.kind(), FailureKind::Unfit, "{why}");
    assert!(why.to_string().contains("~NAME*"), "{why}");
    assert_eq!(server.command(&["DBSIZE"]), Reply::Int(0));

    let locker = patient().nodes([&url]).connect().await.expect("a locker");
    let text = locker.try_lock("plain").await.expect_err("no fence").to_string();
    assert!(text.contains("give the user these rights") && text.contains("~NAME*"), "{text}");
    assert_eq!(server.command(&["DBSIZE"]), Reply::Int(0));
    let locker = patient().nodes([&url]).fences(false).connect().await.expect("a locker");
    let guard = locker.try_lock("plain").await.expect("free");
    guard.extend().await.expect("extended");
    guard.release().await.expect("released");
    assert_eq!(server.command(&["DBSIZE"]), Reply::Int(0));
}

/// Of all that the strict dialect needs, the mark of the server is easily forgotten.
#[test]
async fn a_user_without_rights_to_the_mark_of_the_server_is_told_so_and_leaves_nothing_behind() {
    let server = RedisServer::start();
    let limited = client(&url_with_keys(&server, &["~plain*"]), Dialect::Strict).await;
    let Answer::Failed(why) = owner("plain").acquire(limited.node(), LONG).answer().await else {
        panic!("a vote of a server that may have forgotten others");
    };
    assert_eq!(why.kind(), FailureKind::Unfit, "{why}");
    assert!(why.to_string().contains("~:quorlock:set"), "{why}");
    assert!(!exists(&server, "plain"));
}

/// It cannot tell anybody of a grant, so it must not make one, nor empty the queue.
#[test]
async fn a_user_that_may_not_notify_others_leaves_the_lock_free_and_the_queue_alone() {
    for dialect in DIALECTS {
        let server = RedisServer::start();
        let mute = client(&url_of_user(&server, dialect, &QUEUE_RIGHTS), dialect).await;
        let other = client(&server.url(), dialect).await;
        let holder = mute.waiter("mute", 1);
        assert!(holder.wait(New(1), LONG).is_done().await);
        let waiters = [1, 2, 3].map(|waiter| other.waiter("mute", waiter));
        for waiter in &waiters {
            waiter.wait(New(1), LONG).queued().await;
        }
        assert!(holder.release().await);
        assert!(!is_held(&server, "mute"));
        assert_eq!(other.grant_messages().await, []);
        let queue = |member: &Waiter<'_>| {
            let token = member.owner().token().text().to_vec();
            let command: [&[u8]; 3] = [b"ZSCORE", b"mute:quorlock:queue", &token];
            server.command(&command) != Reply::Bulk(None)
        };
        assert_eq!([queue(&waiters[1]), queue(&waiters[2])], [true, true]);
        let (kind, why) = failure(&holder).await;
        assert!(kind == FailureKind::Unfit && why.contains("+publish"), "{why}");
        assert!(!is_held(&server, "mute"), "a grant that nobody knows of");
    }
}

/// What lies beside a lock needs no more rights than the lock; a list does.
#[test]
async fn a_user_with_few_rights_leaves_notes_and_looks_but_gets_no_list() {
    for dialect in DIALECTS {
        let server = RedisServer::start();
        let limited = client(&url_of_user(&server, dialect, &[]), dialect).await;
        let (node, holder) = (limited.node(), owner("noted"));
        assert!(holder.acquire(node, LONG).is_done().await);
        assert!(holder.set_note(node, "Anna").is_done().await);
        let seen = holder.looked(node).await;
        assert_eq!((seen.note.as_deref(), seen.waiters), (Some("Anna"), None));

        let list = async |right: &[&str]| {
            let builder =
                Locker::builder().redis(quorlock::RedisOptions::default().dialect(dialect));
            let locker = builder.nodes([url_of_user(&server, dialect, right)]).connect().await;
            locker.expect("a locker").list().await
        };
        let refused = list(&[]).await.expect_err("it may not scan").to_string();
        assert!(refused.contains("+scan"), "{refused}");
        let hidden = list(&["+scan"]).await.expect("a list");
        assert!(hidden.is_empty(), "what it may not read is not shown");
        let listed = list(&["+getrange"]).await.expect("a list");
        assert_eq!(listed.len(), 1);

        assert!(owner("noted").take_from(holder.holder(), node).is_done().await);
        assert_eq!(server.kept(), 0);
    }
}

/// A user who may do everything but this.
fn url_without(server: &RedisServer, command: &str) -> String {
    let but = format!("-{command}");
    let user = ["ACL", "SETUSER", "carol", "on", ">castle", "~*", "&*", "+@all", &but];
    assert_eq!(server.command(&user), Reply::Simple("OK".into()));
    format!("redis://carol:castle@{}", server.addr())
}

/// Some of the rights to queues, and not all: a waiter in one stays there.
#[test]
async fn a_user_that_may_take_nobody_from_a_queue_is_told_so_and_the_lock_knows_of_it() {
    let server = RedisServer::start();
    let client = client(&url_without(&server, "zpopmin"), Dialect::Strict).await;
    let waiter = client.waiter("some rights", 1);
    let Answer::Failed(why) = waiter.wait(New(1), LONG).answer().await else { panic!("granted") };
    assert_eq!(why.kind(), FailureKind::Unfit, "{why}");
    assert!(why.to_string().contains("+zpopmin"), "{why}");
    let record = text(&server, &["GET", "some rights"]);
    assert_eq!(record.as_bytes().get(25), Some(&b'='), "{record}");
    assert_eq!(server.command(&["ZCARD", "some rights:quorlock:queue"]), Reply::Int(1));
}

/// A grant message says that nobody else waits, if that cannot be known.
#[test]
async fn a_user_that_may_not_count_a_queue_passes_a_lock_on_that_has_ended() {
    let server = RedisServer::start();
    let (holder, next) = (
        client(&server.url(), Dialect::Strict).await,
        client(&server.url(), Dialect::Strict).await,
    );
    let asker = client(&url_without(&server, "zcard"), Dialect::Strict).await;
    let (first, second, third) =
        (holder.waiter("counted", 1), next.waiter("counted", 1), asker.waiter("counted", 1));
    assert!(first.wait(New(1), LONG).is_done().await);
    let asked = second.wait(New(1), LONG);
    assert!(asked.queued().await.will_notify);
    server.command(&["SET", "counted", "quorlock 0000000000000001+ql:gone 1 0 0"]);
    assert!(third.wait(New(2), LONG).queued().await.record.is_none(), "it is another's");
    assert_eq!(next.grant_messages().await, [second.message_for(&asked)]);
    assert_eq!(next.left_others(), [false]);
}
