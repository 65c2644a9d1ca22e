//! Records of the `redlock` dialect that somebody else has laid hands on.

use quorlock::Dialect;
use quorlock::node::{Answer, FailureKind, ParticipantId};
use quorlock::runtime::TokioRuntime;
use quorlock_testkit::conformance::owner;
use quorlock_testkit::{RedisServer, Reply, test};

use super::queue::{LONG, client};
use super::text;

fn lasts_ms(server: &RedisServer, key: &str) -> i64 {
    match server.command(&["PTTL", key]) {
        Reply::Int(left) => left,
        other => panic!("{other:?}"),
    }
}

/// An extension that is refused changes nothing: neither how long the record lasts, nor who holds it.
#[test]
async fn a_fence_that_nobody_can_have_been_given_keeps_nothing() {
    let server = RedisServer::start();
    let client = client(&server.url(), Dialect::Redlock).await;
    let node = client.node();
    let (holder, other) = (owner("poisoned"), ParticipantId::random(&TokioRuntime::current()));
    let refused = |answer| match answer {
        Answer::Failed(failure) => failure.kind() == FailureKind::Fence,
        other => panic!("{other:?}"),
    };
    for shared in [false, true] {
        holder.acquire(node, LONG / 2).fence().await;
        if shared {
            let first = ParticipantId::random(&TokioRuntime::current());
            holder.take_part(node, first, LONG / 2).fence().await;
        }
        let fence = text(&server, &["GET", "poisoned:quorlock:fence"]);
        server.command(&["SET", "poisoned:quorlock:fence", "9007199254740992"]);
        let before = text(&server, &["GET", "poisoned"]);
        assert!(refused(holder.extend(node, LONG).answer().await));
        assert!(refused(holder.take_part(node, other, LONG).answer().await));
        assert_eq!(text(&server, &["GET", "poisoned"]), before);
        assert!(lasts_ms(&server, "poisoned") <= (LONG / 2).as_millis() as i64);
        server.command(&["SET", "poisoned:quorlock:fence", &fence]);
        server.command(&["DEL", "poisoned"]);
    }
}

/// Somebody has taken the end of a record away. Its maker holds it still when another process that has taken part
/// in it leaves.
#[test]
async fn a_record_without_an_end_stays_its_makers() {
    let server = RedisServer::start();
    let client = client(&server.url(), Dialect::Redlock).await;
    let node = client.node();
    let (maker, other) = (owner("persisted"), ParticipantId::random(&TokioRuntime::current()));
    maker.acquire(node, LONG).fence().await;
    assert_eq!(server.command(&["PERSIST", "persisted"]), Reply::Int(1));
    maker.take_part(node, other, LONG).fence().await;
    assert!(maker.leave(node, other).is_left().await, "the maker has it");
    assert_eq!(maker.seen(node).await.map(|record| record.holder), Some(maker.holder()));
    assert!(lasts_ms(&server, "persisted") > LONG.as_millis() as i64, "it has an end again");
    assert!(maker.release(node).is_done().await);
    assert_eq!(server.kept(), 0);
}
