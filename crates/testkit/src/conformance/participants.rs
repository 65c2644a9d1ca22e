//! The cases about a lock that several processes hold with one token.

#![expect(clippy::missing_panics_doc, reason = "that is what a case is for")]

use std::sync::Arc;
use std::time::Duration;

use quorlock::node::TicketNumber::{Agreed, New};
use quorlock::node::{Node, ParticipantId};
use quorlock::runtime::TokioRuntime;

use super::client::{Client, open};
use super::needs::{Need, TRIES, lacks, short};
use super::probe::{Owner, owner};
use super::queues::{TICKET_NO, nothing_is_left};
use super::{Backend, ESTIMATE, LONG};
use crate::eventually_async as eventually;

fn participant() -> ParticipantId {
    ParticipantId::random(&TokioRuntime::current())
}

async fn left(owner: &Owner, node: &Arc<dyn Node>) -> Duration {
    owner.seen(node).await.expect("a record").remaining.expect("an end")
}

/// The maker goes first, then one of two who take part.
pub async fn a_record_stays_until_the_last_who_takes_part_has_left(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases, Need::Participants]).await {
        return;
    }
    let node = open(backend).await;
    let (maker, stranger) = (owner("shared"), owner("shared"));
    let (first, second) = (participant(), participant());
    let fence = maker.acquire(&node, LONG).fence().await;
    for participant in [first, second, first] {
        let taken = maker.take_part(&node, participant, LONG);
        assert_eq!(taken.fence().await, fence, "one lock, one fence");
    }
    assert!(maker.release(&node).is_left().await);
    assert!(!stranger.acquire(&node, LONG).is_done().await);
    assert!(maker.leave(&node, first).is_left().await);
    assert!(!stranger.acquire(&node, LONG).is_done().await);
    assert!(maker.take_part(&node, second, LONG).is_done().await, "it goes on");
    assert!(!maker.leave(&node, second).is_left().await, "it was the last");
    assert!(maker.seen(&node).await.is_none());
    assert!(stranger.acquire(&node, LONG).fence().await > fence);
    assert!(stranger.release(&node).is_done().await);
    nothing_is_left(backend);
}

/// Its part in the lock is over, the lock is not.
pub async fn a_record_stays_with_its_maker_when_others_have_left(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases, Need::Participants]).await {
        return;
    }
    let node = open(backend).await;
    let (maker, other) = (owner("kept"), participant());
    assert!(maker.acquire(&node, LONG).is_done().await);
    for _ in 0..2 {
        assert!(maker.take_part(&node, other, LONG).is_done().await);
        assert!(maker.leave(&node, other).is_left().await);
        assert!(maker.extend(&node, LONG).is_done().await);
    }
    assert!(!owner("kept").acquire(&node, LONG).is_done().await);
    assert!(maker.release(&node).is_done().await);
    assert!(maker.seen(&node).await.is_none());
    nothing_is_left(backend);
}

/// A participant that dies keeps it for its own time and no longer.
pub async fn a_record_lasts_as_long_as_the_last_of_those_who_hold_it(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases, Need::Participants]).await {
        return;
    }
    let node = open(backend).await;
    let (maker, brief, long) = (owner("ends"), participant(), participant());
    assert!(maker.acquire(&node, LONG / 3).is_done().await);
    assert!(maker.take_part(&node, brief, LONG / 6).is_done().await);
    assert!(maker.take_part(&node, long, LONG).is_done().await);
    assert!(maker.take_part(&node, long, short(&node)).is_done().await, "never shorter");
    assert!(left(&maker, &node).await > LONG / 2);
    assert!(maker.leave(&node, long).is_left().await);
    let lasts = left(&maker, &node).await;
    assert!(lasts <= LONG / 3 + ESTIMATE && lasts > LONG / 6, "until the maker's end: {lasts:?}");
    assert!(maker.extend(&node, LONG / 2).is_done().await);
    assert!(left(&maker, &node).await > LONG / 3);
    assert!(maker.release(&node).is_left().await);
    let lasts = left(&maker, &node).await;
    assert!(lasts <= LONG / 6 + ESTIMATE, "until the end of who is left: {lasts:?}");
}

/// The one who is left has died already.
pub async fn a_record_is_free_when_the_last_participant_is_over(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases, Need::Participants]).await {
        return;
    }
    let node = open(backend).await;
    let (maker, dead) = (owner("over"), participant());
    assert!(maker.acquire(&node, LONG).is_done().await);
    assert!(maker.take_part(&node, dead, short(&node)).is_done().await);
    // As long as a record of that TTL lasts, which was stored later.
    let other = owner("as long");
    assert!(other.acquire(&node, short(&node)).is_done().await);
    eventually("the record ends", async || other.seen(&node).await.is_none()).await;
    assert!(!maker.release(&node).is_left().await);
    assert!(owner("over").acquire(&node, LONG).is_done().await);
}

/// A free lock, another's, and one that it has left.
pub async fn a_client_that_takes_no_part_changes_nothing(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases, Need::Participants]).await {
        return;
    }
    let node = open(backend).await;
    let (maker, stranger) = (owner("no part"), owner("no part"));
    let (one, two) = (participant(), participant());
    assert!(!stranger.take_part(&node, one, LONG).is_done().await);
    assert!(stranger.seen(&node).await.is_none(), "it was created");
    assert!(maker.acquire(&node, LONG / 3).is_done().await);
    assert!(!stranger.take_part(&node, one, LONG).is_done().await);
    assert!(!maker.leave(&node, one).is_done().await, "nobody takes part");
    assert!(left(&maker, &node).await <= LONG / 3 + ESTIMATE);
    assert!(maker.take_part(&node, one, LONG / 3).is_done().await);
    assert!(!maker.leave(&node, two).is_done().await, "somebody else does");
    assert!(!stranger.leave(&node, one).is_done().await, "with another token");
    assert!(maker.leave(&node, one).is_left().await);
    assert!(!maker.leave(&node, one).is_done().await, "not twice");
    assert!(maker.take_part(&node, one, LONG / 3).is_done().await);
    assert!(maker.release(&node).is_left().await);
    assert!(maker.release(&node).is_left().await, "it was sent again, and changes nothing");
    assert!(!owner("no part").acquire(&node, LONG).is_done().await);
}

/// A lock that ran out, and one that was given back.
pub async fn the_next_holder_shares_its_record_with_nobody(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases, Need::Participants]).await {
        return;
    }
    let node = open(backend).await;
    for (name, runs_out) in [("inherited", true), ("given back", false)] {
        let (maker, next, other) = (owner(name), owner(name), participant());
        let ttl = if runs_out { short(&node) } else { LONG };
        assert!(maker.acquire(&node, ttl).is_done().await);
        for _ in 0..TRIES {
            if !runs_out || maker.take_part(&node, other, ttl).is_done().await {
                break;
            }
            // It had run out on the way.
            assert!(maker.acquire(&node, ttl).is_done().await);
        }
        if !runs_out {
            assert!(maker.take_part(&node, other, LONG).is_done().await);
            assert!(maker.leave(&node, other).is_left().await);
            assert!(maker.release(&node).is_done().await);
        }
        eventually("the record ends", async || next.acquire(&node, LONG).is_done().await).await;
        assert!(!next.leave(&node, other).is_done().await);
        assert!(!maker.take_part(&node, other, LONG).is_done().await);
        assert!(!maker.leave(&node, other).is_done().await);
        assert!(!next.release(&node).is_left().await, "{name}: nobody is left");
    }
}

/// Neither the maker's release nor that of one of two frees it.
pub async fn the_last_who_takes_part_passes_the_lock_on(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases, Need::Participants, Need::Queues]).await {
        return;
    }
    let client = Client::of(backend).await;
    let (node, maker) = (open(backend).await, owner("passed on"));
    let (first, second) = (participant(), participant());
    assert!(maker.acquire(&node, LONG).is_done().await);
    assert!(maker.take_part(&node, first, LONG).is_done().await);
    let waiter = client.waiter("passed on", 1);
    let asked = waiter.wait(New(TICKET_NO), LONG / 2);
    asked.queued().await;
    assert!(maker.take_part(&node, second, LONG).is_done().await);
    assert!(maker.release(&node).is_left().await);
    assert!(maker.leave(&node, first).is_left().await);
    assert_eq!(client.grant_messages().await, []);
    assert!(!maker.leave(&node, second).is_left().await);
    assert_eq!(client.grant_messages().await, [waiter.message_for(&asked)]);
    assert!(waiter.holds().await);
    assert!(!maker.leave(&node, first).is_done().await);
    assert!(waiter.release().await);
    nothing_is_left(backend);
}

/// The maker gives way where nodes disagree. Who takes part does not know of that.
pub async fn a_lock_in_which_somebody_takes_part_is_not_yielded(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases, Need::Participants, Need::Queues]).await {
        return;
    }
    let (here, there) = (Client::of(backend).await, Client::of(backend).await);
    let (high, low) = (here.waiter("split", 1), there.waiter("split", 1));
    let (node, other) = (open(backend).await, participant());
    assert!(high.wait(New(TICKET_NO), LONG).is_done().await);
    assert!(high.owner().take_part(&node, other, LONG).is_done().await);
    let asked = low.wait(Agreed(TICKET_NO - 1), LONG / 3);
    asked.queued().await;
    assert!(high.yielding(Agreed(TICKET_NO), LONG).is_done().await, "it was kept");
    assert!(high.holds().await);
    assert_eq!(there.grant_messages().await, []);
    assert!(high.owner().leave(&node, other).is_left().await);
    high.yielding(Agreed(TICKET_NO), LONG).queued().await;
    assert_eq!(there.grant_messages().await, [low.message_for(&asked)]);
    assert!(low.release().await);
    assert!(high.holds().await && high.release().await);
    nothing_is_left(backend);
}

/// By force, whatever participants there are.
pub async fn a_lock_is_taken_away_from_all_who_take_part(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases, Need::Participants]).await {
        return;
    }
    let node = open(backend).await;
    let (maker, next, other) = (owner("away"), owner("away"), participant());
    assert!(maker.acquire(&node, LONG).is_done().await);
    assert!(maker.take_part(&node, other, LONG).is_done().await);
    assert!(next.take_from(maker.holder(), &node).is_done().await);
    assert!(!maker.take_part(&node, other, LONG).is_done().await);
    assert!(!maker.leave(&node, other).is_done().await);
    assert!(next.acquire(&node, LONG).is_done().await);
    assert!(!next.release(&node).is_left().await);
    nothing_is_left(backend);
}
