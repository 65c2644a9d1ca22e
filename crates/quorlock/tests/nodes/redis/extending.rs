//! Extensions of several locks that go to a server in one script.

use std::sync::Arc;

use quorlock::node::{Answer, Call, Failure, ParticipantId, Request, Restore, Round, Verb};
use quorlock::runtime::{Moment, TokioRuntime};
use quorlock::{Dialect, Name, Token};
use quorlock_testkit::conformance::owner;
use quorlock_testkit::{RedisServer, Reply, test};

use super::queue::{LONG, client};
use super::{DIALECTS, calls};

/// A lock that processes share stands before others in the same script: each record stays its own holder's.
#[test]
async fn a_shared_lock_leaves_the_records_of_others_alone() {
    let server = RedisServer::start();
    for dialect in DIALECTS {
        let client = client(&server.url(), dialect).await;
        let node = client.node();
        let participant = ParticipantId::random(&TokioRuntime::current());
        let [shared, second, third] =
            ["shared", "second", "third"].map(|name| owner(format!("{name} {dialect:?}")));
        for holder in [&shared, &second, &third] {
            holder.acquire(node, LONG).fence().await;
        }
        shared.take_part(node, participant, LONG).fence().await;
        let before = calls(&server, "evalsha");
        // What is under way keeps those that follow in the line.
        let look = shared.inspect(node);
        let extended = [
            shared.extend(node, LONG),
            second.extend(node, LONG),
            shared.take_part(node, participant, LONG),
            third.extend(node, LONG),
        ];
        look.answer().await;
        for extension in extended {
            assert!(extension.is_done().await, "{dialect:?}");
        }
        assert_eq!(
            calls(&server, "evalsha") - before,
            2,
            "{dialect:?}: one script for all of them"
        );
        for holder in [&shared, &second, &third] {
            let seen = holder.seen(node).await.map(|record| record.holder);
            assert_eq!(seen, Some(holder.holder()), "{dialect:?}");
        }
        assert!(second.release(node).is_done().await && third.release(node).is_done().await);
    }
}

/// An extension that takes a lock anew.
#[derive(Debug)]
struct WinsBack {
    name: Name,
    token: Token,
    /// The lease that it was to extend has ended, long after it was asked for.
    is_over: bool,
}

impl Round for WinsBack {
    fn request(&self, _node: usize) -> Request<'_> {
        let (token, restore) = (&self.token, Restore::WinBack(1));
        let verb = Verb::Extend { token, ttl: LONG, restore, participant: None };
        let sent = if self.is_over { Moment::default() } else { Moment::MAX };
        Request { name: &self.name, sent, wall_us: 0, verb }
    }

    fn cast(self: Arc<Self>, _node: usize, _answer: Answer) {}

    fn overdue(self: Arc<Self>, _node: usize, _why: Failure) {}

    fn is_moot(&self) -> bool {
        self.is_over
    }
}

/// One that has stood in line for longer than its lease must store nothing any more.
#[test]
async fn an_extension_whose_lease_has_ended_is_not_sent() {
    let server = RedisServer::start();
    let client = client(&server.url(), Dialect::Redlock).await;
    let node = client.node();
    let other = owner("other");
    other.acquire(node, LONG).fence().await;
    for (is_over, expected) in [(true, 0), (false, 1)] {
        for before in [None, Some(())] {
            // What is under way keeps those that follow in the line; and one stands before it in the same script.
            let look = other.inspect(node);
            let extended = before.map(|()| other.extend(node, LONG));
            let name = Name::new("x").expect("a name");
            let round = WinsBack { name, token: owner("x").token(), is_over };
            node.submit(Call::new(Arc::new(round), 0));
            look.answer().await;
            if let Some(extended) = extended {
                assert!(extended.is_done().await);
            }
            other.inspect(node).answer().await;
            assert_eq!(server.command(&["DEL", "x"]), Reply::Int(expected), "{before:?}");
        }
    }
}

/// A server that refuses the script of many gets one for each of them, behind everything else: what was released by
/// then is not taken anew.
#[test]
async fn what_is_released_meanwhile_is_not_asked_for_one_by_one() {
    let server = RedisServer::start();
    server.command(&["ACL", "SETUSER", "half", "on", ">secret", "+@all", "&*", "~x*"]);
    let url = server.url().replace("redis://", "redis://half:secret@");
    let client = client(&url, Dialect::Redlock).await;
    let node = client.node();
    let (mine, other) = (owner("x"), owner("y"));
    // What is under way keeps those that follow in the line.
    let look = mine.inspect(node);
    let round = Arc::new(WinsBack {
        name: Name::new("x").expect("a name"),
        token: mine.token(),
        is_over: false,
    });
    node.submit(Call::new(round, 0));
    let refused = other.extend(node, LONG);
    let released = mine.release(node);
    look.answer().await;
    assert!(matches!(refused.answer().await, Answer::Failed(_)), "no rights to it");
    assert!(!released.is_done().await, "it was not there");
    // What was sent behind it has been answered by now as well.
    mine.inspect(node).answer().await;
    assert_eq!(server.command(&["EXISTS", "x"]), Reply::Int(0));
}
