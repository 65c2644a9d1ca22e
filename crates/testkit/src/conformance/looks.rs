//! The cases about looking at locks from outside: notes, lists, and taking locks away.

#![expect(clippy::missing_panics_doc, reason = "that is what a case is for")]

use quorlock::Name;
use quorlock::node::MAX_NOTED_BYTES;
use quorlock::node::TicketNumber::New;

use super::client::{Client, open};
use super::needs::{Need, TRIES, lacks, short};
use super::probe::owner;
use super::queues::{TICKET_NO, nothing_is_left};
use super::{Backend, ESTIMATE, LONG};
use crate::eventually_async as eventually;

/// Written, replaced, taken away.
pub async fn a_note_is_kept_beside_the_record_and_goes_with_an_empty_one(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases]).await {
        return;
    }
    let (node, other) = (open(backend).await, open(backend).await);
    let holder = owner("noted");
    assert!(holder.acquire(&node, LONG).is_done().await);
    assert_eq!(holder.looked(&other).await.note, None);
    let longest = "ä".repeat(MAX_NOTED_BYTES / 2);
    for note in ["who, where", &longest, "#00000000 '\"\n"] {
        assert!(holder.set_note(&node, note).is_done().await);
        assert_eq!(holder.looked(&other).await.note.as_deref(), Some(note));
    }
    let left = holder.seen(&node).await.expect("a record").remaining.expect("an end");
    assert!(left <= LONG + ESTIMATE, "a note makes nothing last longer: {left:?}");
    assert!(holder.set_note(&node, "").is_done().await);
    assert_eq!(holder.looked(&node).await.note, None);
    assert!(holder.release(&node).is_done().await);
    nothing_is_left(backend);
}

/// A stranger can neither write a note nor take one away.
pub async fn only_the_holder_can_leave_a_note(backend: &impl Backend) {
    let node = open(backend).await;
    let (holder, stranger) = (owner("noted"), owner("noted"));
    assert!(!holder.set_note(&node, "too early").is_done().await);
    assert!(holder.acquire(&node, LONG).is_done().await);
    assert_eq!(holder.looked(&node).await.note, None);
    assert!(holder.set_note(&node, "mine").is_done().await);
    for note in ["not mine", ""] {
        assert!(!stranger.set_note(&node, note).is_done().await);
        assert_eq!(holder.looked(&node).await.note.as_deref(), Some("mine"));
    }
    assert!(holder.set_note(&node, "").is_done().await);
    assert!(holder.release(&node).is_done().await);
    assert!(!holder.set_note(&node, "too late").is_done().await);
    nothing_is_left(backend);
}

/// A holder that died has left a note behind.
pub async fn a_note_of_an_earlier_holder_does_not_count(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases]).await {
        return;
    }
    let node = open(backend).await;
    let (dead, next) = (owner("dead"), owner("dead"));
    let mut noted = false;
    for _ in 0..TRIES {
        assert!(dead.acquire(&node, short(&node)).is_done().await);
        noted = dead.set_note(&node, "dead").is_done().await;
        if noted {
            break;
        }
        // It had run out on the way.
    }
    assert!(noted, "a record has run out {TRIES} times before the next request came");
    eventually("the record ends", async || next.acquire(&node, LONG).is_done().await).await;
    assert_eq!(next.looked(&node).await.note, None);
    assert!(next.set_note(&node, "next").is_done().await);
    assert_eq!(next.looked(&node).await.note.as_deref(), Some("next"));
}

/// Those who wait are counted, where they stand in a queue.
pub async fn a_look_counts_those_who_wait(backend: &impl Backend) {
    let (client, holder) = (Client::of(backend).await, owner("wanted"));
    let waiting = |count: u64| client.node().capabilities().queues.then_some(count);
    assert_eq!(holder.looked(client.node()).await.waiters, waiting(0));
    assert!(holder.acquire(client.node(), LONG).is_done().await);
    let waiters = [client.waiter("wanted", 1), client.waiter("wanted", 2)];
    for (count, waiter) in (1..).zip(&waiters) {
        waiter.wait(New(TICKET_NO), LONG).queued().await;
        assert_eq!(holder.looked(client.node()).await.waiters, waiting(count));
    }
    for waiter in waiters {
        waiter.release().await;
    }
    assert_eq!(holder.looked(client.node()).await.waiters, waiting(0));
    assert!(holder.release(client.node()).is_done().await);
    nothing_is_left(backend);
}

/// Queues and notes lie beside the locks, and are none.
pub async fn a_list_names_every_lock_that_is_held_and_nothing_else(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases]).await {
        return;
    }
    let (client, me) = (Client::of(backend).await, owner("looker"));
    let node = client.node();
    assert_eq!(me.list(node).await, []);
    let mut names: Vec<_> = (0..700).map(|index| format!("lock/{index}").into_bytes()).collect();
    names.extend([b"\xff\x00\n*".to_vec(), vec![b'x'; quorlock::MAX_NAME_BYTES]]);
    let owners: Vec<_> = names.iter().map(owner).collect();
    let taken: Vec<_> = owners.iter().map(|owner| owner.acquire(node, LONG)).collect();
    for taken in taken {
        assert!(taken.is_done().await);
    }
    assert!(owners[0].set_note(node, "somebody").is_done().await);
    let waiter = client.waiter("lock/1", 1);
    waiter.wait(New(TICKET_NO), LONG).queued().await;
    // One that has run out, and one that was given back.
    let dead = owner("dead");
    assert!(dead.acquire(node, short(node)).is_done().await);
    eventually("the record ends", async || dead.seen(node).await.is_none()).await;
    assert!(owners[2].release(node).is_done().await);
    names.remove(2);
    let mut names: Vec<_> = names.iter().map(|name| Name::new(name).expect("a name")).collect();
    names.sort();
    let other = open(backend).await;
    let listed = me.list(&other).await;
    assert!(listed == names, "{} of {} are listed", listed.len(), names.len());
}

/// With its note.
pub async fn a_lock_can_be_taken_away_from_the_holder_that_was_seen(backend: &impl Backend) {
    let node = open(backend).await;
    let (holder, next, breaker) = (owner("stuck"), owner("stuck"), owner("stuck"));
    assert!(!breaker.take_from(holder.holder(), &node).is_done().await, "nobody holds it");
    assert!(holder.acquire(&node, LONG).is_done().await);
    assert!(holder.set_note(&node, "stuck").is_done().await);
    assert!(!breaker.take_from(next.holder(), &node).is_done().await, "another holds it");
    let seen = holder.seen(&node).await.expect("it is still held").holder;
    assert!(breaker.take_from(seen, &node).is_done().await);
    assert!(holder.seen(&node).await.is_none());
    assert!(!holder.extend(&node, LONG).is_done().await, "it came back");
    nothing_is_left(backend);

    assert!(next.acquire(&node, LONG).is_done().await);
    assert!(!breaker.take_from(seen, &node).is_done().await, "it has changed hands");
    assert_eq!(next.seen(&node).await.map(|record| record.holder), Some(next.holder()));
}

/// As a release would pass it on.
pub async fn a_lock_that_is_taken_away_goes_to_the_first_in_line(backend: &impl Backend) {
    if lacks(backend, &[Need::Queues]).await {
        return;
    }
    let (client, holder) = (Client::of(backend).await, owner("stuck"));
    assert!(holder.acquire(client.node(), LONG).is_done().await);
    let waiter = client.waiter("stuck", 7);
    let asked = waiter.wait(New(TICKET_NO), LONG);
    asked.queued().await;
    assert!(owner("stuck").take_from(holder.holder(), client.node()).is_done().await);
    assert_eq!(client.grant_messages().await, [waiter.message_for(&asked)]);
    assert!(waiter.holds().await);
    assert!(waiter.release().await);
    nothing_is_left(backend);
}
