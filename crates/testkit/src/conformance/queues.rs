//! The cases about waiting in turn.

#![expect(clippy::missing_panics_doc, reason = "that is what a case is for")]

use std::sync::Arc;
use std::thread;

use quorlock::node::TicketNumber::{Agreed, New};
use quorlock::node::{Answer, Node};

use super::client::{Client, Waiter, open};
use super::needs::{Need, TRIES, lacks, short};
use super::probe::{Owner, Probe, owner};
use super::{Backend, ESTIMATE, LONG};
use crate::{DEADLINE, eventually_async as eventually};

/// A ticket number as clients propose them: microseconds of the time of day.
pub(super) const TICKET_NO: u64 = 1_794_799_760_000_000;

pub(super) fn nothing_is_left(backend: &impl Backend) {
    assert_eq!(backend.kept(), 0, "something is left behind");
}

/// Lets `waiter` stand behind a record of `holder` that runs out before long, and returns what it
/// asked for last.
async fn queue_behind_a_dying_holder(
    node: &Arc<dyn Node>,
    holder: &Owner,
    waiter: &Waiter<'_>,
) -> Arc<Probe> {
    for _ in 0..TRIES {
        assert!(holder.acquire(node, short(node)).is_done().await);
        let asked = waiter.wait(New(TICKET_NO), LONG);
        match asked.answer().await {
            Answer::Queued(_) => return asked,
            // The record had run out on the way.
            _ => assert!(waiter.release().await),
        }
    }
    panic!("a record has run out {TRIES} times before the next request came");
}

/// The name has no holder.
pub async fn waiting_for_a_free_name_is_granted_at_once(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases]).await {
        return;
    }
    let client = Client::of(backend).await;
    let waiter = client.waiter("free", 1);
    assert!(waiter.wait(New(TICKET_NO), LONG).is_done().await);
    let left = waiter.seen().await.expect("a record").remaining.expect("an end");
    assert!(waiter.holds().await && left <= LONG + ESTIMATE && left > LONG / 2, "{left:?}");
    assert!(waiter.release().await);
    assert_eq!(
        client.grant_messages().await,
        [],
        "a client that gets it with the answer needs no message"
    );
    nothing_is_left(backend);
}

/// The name has a holder.
pub async fn waiting_for_a_taken_name_tells_who_has_it(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases]).await {
        return;
    }
    let (client, holder) = (Client::of(backend).await, owner("taken"));
    let node = open(backend).await;
    assert!(holder.acquire(&node, LONG / 2).is_done().await);
    let waiter = client.waiter("taken", 1);
    let queued = waiter.wait(New(TICKET_NO), LONG).queued().await;
    let capabilities = client.node().capabilities();
    assert_eq!(queued.will_notify, capabilities.queues);
    assert!(queued.ticket_no == TICKET_NO || capabilities.own_order, "{}", queued.ticket_no);
    let record = queued.record.expect("a holder");
    assert_eq!(record.token, Some(holder.token()));
    assert_eq!(Some(record.holder), waiter.seen().await.map(|record| record.holder));
    let left = record.remaining.expect("an end");
    assert!(left <= LONG / 2 + ESTIMATE && left > LONG / 4, "{left:?}");
    assert!(!waiter.release().await, "it has nothing but its place");
    assert!(holder.release(&node).is_done().await);
    assert_eq!(client.grant_messages().await, [], "the place is gone");
    nothing_is_left(backend);
}

/// As a client does that does not know whether it has been served.
pub async fn waiting_for_what_is_ours_keeps_it_longer_and_never_shorter(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases]).await {
        return;
    }
    let client = Client::of(backend).await;
    let waiter = client.waiter("ours", 1);
    assert!(waiter.wait(New(TICKET_NO), LONG / 3).is_done().await);
    for ttl in [LONG, short(client.node())] {
        assert!(waiter.wait(New(TICKET_NO), ttl).is_done().await);
        let left = waiter.seen().await.expect("a record").remaining.expect("an end");
        assert!(left > LONG / 3, "{left:?}");
    }
    assert!(waiter.release().await);
    nothing_is_left(backend);
}

/// Three clients behind a holder, each served by the one before.
pub async fn turns_come_in_the_order_of_arrival_and_nobody_else_is_notified(
    backend: &impl Backend,
) {
    if lacks(backend, &[Need::Queues]).await {
        return;
    }
    let clients = [Client::of(backend).await, Client::of(backend).await, Client::of(backend).await];
    let (node, holder) = (open(backend).await, owner("turns"));
    assert!(holder.acquire(&node, LONG).is_done().await);
    // No number in Lua has so many digits.
    let waiters = clients.each_ref().map(|client| client.waiter("turns", u64::MAX));
    let (mut asked, mut last) = (Vec::new(), 0);
    let own_order = node.capabilities().own_order;
    for (place, waiter) in (TICKET_NO..).zip(&waiters) {
        let ask = waiter.wait(New(TICKET_NO), LONG);
        let ticket_no = ask.queued().await.ticket_no;
        assert!(ticket_no > last && (own_order || ticket_no == place), "{ticket_no}");
        last = ticket_no;
        asked.push(ask);
    }
    assert!(holder.release(&node).is_done().await);
    for (turn, waiter) in waiters.iter().enumerate() {
        for (index, client) in clients.iter().enumerate() {
            let message = (index == turn).then(|| waiter.message_for(&asked[turn]));
            assert_eq!(
                client.grant_messages().await,
                message.as_slice(),
                "turn {turn}, client {index}"
            );
        }
        assert!(waiter.holds().await);
        let late = owner("turns").acquire(&node, LONG);
        assert!(!late.is_done().await, "somebody got in between");
        assert!(waiter.release().await);
    }
    for (client, others) in clients.iter().zip([true, true, false]) {
        assert_eq!(client.grant_messages().await, []);
        // An engine with an order of its own tells of those who leave, and not of those who come.
        let left_others = client.left_others();
        assert!(own_order || left_others == [others], "whether somebody stands behind it");
    }
    nothing_is_left(backend);
}

/// A holder counts its lease from what the message says.
pub async fn a_grant_message_names_the_latest_request(backend: &impl Backend) {
    if lacks(backend, &[Need::Queues]).await {
        return;
    }
    let client = Client::of(backend).await;
    let (node, holder) = (open(backend).await, owner("asked again"));
    assert!(holder.acquire(&node, LONG).is_done().await);
    let waiter = client.waiter("asked again", 7);
    let first = waiter.wait(New(TICKET_NO), LONG);
    let ticket_no = first.queued().await.ticket_no;
    let second = waiter.wait(Agreed(ticket_no), LONG);
    assert!(second.sent() > first.sent());
    second.queued().await;
    assert!(holder.release(&node).is_done().await);
    assert_eq!(client.grant_messages().await, [waiter.message_for(&second)]);
    assert!(waiter.release().await);
    nothing_is_left(backend);
}

/// The holder believes in what it asked for, not in what others or earlier requests did.
pub async fn the_lease_of_a_grant_lasts_as_long_as_the_latest_request_asked_for(
    backend: &impl Backend,
) {
    if lacks(backend, &[Need::Leases, Need::Queues]).await {
        return;
    }
    let client = Client::of(backend).await;
    let (node, holder) = (open(backend).await, owner("lease"));
    assert!(holder.acquire(&node, LONG / 30).is_done().await);
    let waiter = client.waiter("lease", 1);
    waiter.wait(New(TICKET_NO), LONG / 10).queued().await;
    waiter.wait(New(TICKET_NO), LONG).queued().await;
    assert!(holder.release(&node).is_done().await);
    let left = waiter.seen().await.expect("a record").remaining.expect("an end");
    assert!(left <= LONG + ESTIMATE && left > LONG / 2, "{left:?}");
    assert!(waiter.release().await);
}

/// Its release was sent twice, its extension comes late.
pub async fn a_holder_that_has_passed_the_lock_on_cannot_touch_it(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases, Need::Queues]).await {
        return;
    }
    let client = Client::of(backend).await;
    let (node, before) = (open(backend).await, owner("passed on"));
    assert!(before.acquire(&node, LONG).is_done().await);
    let waiter = client.waiter("passed on", 1);
    waiter.wait(New(TICKET_NO), LONG / 3).queued().await;
    assert!(before.release(&node).is_done().await);
    assert!(!before.extend(&node, LONG).is_done().await);
    assert!(!before.release(&node).is_done().await);
    assert!(!before.acquire(&node, LONG).is_done().await);
    let record = waiter.seen().await.expect("a record");
    assert_eq!(record.token, Some(waiter.owner().token()));
    assert!(record.remaining.expect("an end") <= LONG / 3 + ESTIMATE);
    assert!(waiter.release().await);
    nothing_is_left(backend);
}

/// The first in line has lost its patience.
pub async fn a_ticket_that_was_given_up_is_passed_over(backend: &impl Backend) {
    if lacks(backend, &[Need::Queues]).await {
        return;
    }
    let (impatient, next) = (Client::of(backend).await, Client::of(backend).await);
    let (node, holder) = (open(backend).await, owner("given up"));
    assert!(holder.acquire(&node, LONG).is_done().await);
    let (first, second) = (impatient.waiter("given up", 1), next.waiter("given up", 1));
    first.wait(New(TICKET_NO), LONG).queued().await;
    let asked = second.wait(New(TICKET_NO), LONG);
    asked.queued().await;
    assert!(!first.release().await);
    assert!(holder.release(&node).is_done().await);
    assert_eq!(impatient.grant_messages().await, []);
    assert_eq!(next.grant_messages().await, [second.message_for(&asked)]);
    assert!(second.release().await);
    nothing_is_left(backend);
}

/// The first two in line were killed.
pub async fn a_client_that_is_gone_is_passed_over(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases, Need::Queues]).await {
        return;
    }
    let (node, holder) = (open(backend).await, owner("gone"));
    assert!(holder.acquire(&node, LONG).is_done().await);
    let dead = [Client::of(backend).await, Client::of(backend).await];
    for client in &dead {
        client.waiter("gone", 1).wait(New(TICKET_NO), LONG).queued().await;
    }
    let next = Client::of(backend).await;
    let waiter = next.waiter("gone", 1);
    let asked = waiter.wait(New(TICKET_NO), LONG / 3);
    asked.queued().await;
    for client in dead {
        client.leave(backend).await;
    }
    assert!(holder.release(&node).is_done().await);
    assert_eq!(next.grant_messages().await, [waiter.message_for(&asked)]);
    let record = waiter.seen().await.expect("a record");
    assert!(waiter.holds().await && record.remaining.expect("an end") <= LONG / 3 + ESTIMATE);

    // With no other waiter the name is free.
    let last = Client::of(backend).await;
    last.waiter("gone", 1).wait(New(TICKET_NO), LONG).queued().await;
    last.leave(backend).await;
    assert!(waiter.release().await);
    assert!(waiter.seen().await.is_none());
    nothing_is_left(backend);
}

/// The holder was killed. The last in line is the first to notice.
pub async fn a_record_that_ran_out_goes_to_the_first_in_line_whichever_client_asks(
    backend: &impl Backend,
) {
    if lacks(backend, &[Need::Leases, Need::Queues]).await {
        return;
    }
    let (first, last) = (Client::of(backend).await, Client::of(backend).await);
    let (node, holder) = (open(backend).await, owner("ran out"));
    let (head, tail) = (first.waiter("ran out", 1), last.waiter("ran out", 1));
    let asked = queue_behind_a_dying_holder(&node, &holder, &head).await;
    eventually("the record ends", async || {
        let queued = tail.wait(New(TICKET_NO), LONG).queued().await;
        let record = queued.record.map(|record| record.token);
        let ended = record != Some(Some(holder.token()));
        // An engine with an order of its own may have passed it on before.
        let own_order = node.capabilities().own_order;
        assert!(!ended || record.is_none() || own_order, "it is passed on by this very request");
        ended
    })
    .await;
    assert_eq!(first.grant_messages().await, [head.message_for(&asked)]);
    assert!(head.holds().await);
    assert_eq!(last.grant_messages().await, []);
    assert!(head.release().await);
    assert!(tail.holds().await, "the request that noticed kept its place");
    assert!(tail.release().await);
    nothing_is_left(backend);
}

/// Clocks that are wrong, and clients that know where the other nodes have put them.
pub async fn a_new_ticket_pushes_nobody_aside_and_an_agreed_one_stands_where_it_says(
    backend: &impl Backend,
) {
    if lacks(backend, &[Need::Queues, Need::Proposals]).await {
        return;
    }
    let client = Client::of(backend).await;
    let (node, holder) = (open(backend).await, owner("numbers"));
    assert!(holder.acquire(&node, LONG).is_done().await);
    let waiters = [1, 2, 3, 4].map(|waiter| client.waiter("numbers", waiter));
    let [ahead, behind, right, agreed] = &waiters;
    let steps = [
        (ahead, New(TICKET_NO + 5_000), TICKET_NO + 5_000),
        (behind, New(3), TICKET_NO + 5_001),
        (right, New(TICKET_NO + 6_000), TICKET_NO + 6_000),
        // It knows its place already.
        (behind, New(TICKET_NO + 9_000), TICKET_NO + 5_001),
        (agreed, New(TICKET_NO), TICKET_NO + 6_001),
        (agreed, Agreed(TICKET_NO + 4_999), TICKET_NO + 4_999),
        (ahead, Agreed(TICKET_NO + 7_000), TICKET_NO + 7_000),
    ];
    for (waiter, proposed, given) in steps {
        let ticket_no = waiter.wait(proposed, LONG).queued().await.ticket_no;
        assert_eq!(ticket_no, given, "{proposed:?}");
    }
    assert!(holder.release(&node).is_done().await);
    for waiter in [agreed, behind, right, ahead] {
        assert!(waiter.holds().await, "{waiter:?}");
        assert!(waiter.release().await);
    }
    nothing_is_left(backend);
}

/// As a client does to find out whether a grant message has got lost.
pub async fn repeating_a_wait_changes_nothing(backend: &impl Backend) {
    if lacks(backend, &[Need::Queues]).await {
        return;
    }
    let client = Client::of(backend).await;
    let (node, holder) = (open(backend).await, owner("again"));
    assert!(holder.acquire(&node, LONG).is_done().await);
    let (first, second) = (client.waiter("again", 1), client.waiter("again", 2));
    let place =
        async |waiter: &Waiter<'_>| waiter.wait(New(TICKET_NO), LONG).queued().await.ticket_no;
    let places = [place(&first).await, place(&second).await];
    assert!(node.capabilities().own_order || places == [TICKET_NO, TICKET_NO + 1], "{places:?}");
    for _ in 0..2 {
        assert_eq!([place(&first).await, place(&second).await], places);
    }
    assert!(holder.release(&node).is_done().await);
    for _ in 0..3 {
        assert!(first.wait(Agreed(places[0]), LONG).is_done().await);
        assert_eq!(place(&second).await, places[1]);
    }
    assert_eq!(client.grant_messages().await.len(), 1);
    assert!(first.release().await);
    assert!(second.holds().await);
    assert!(second.release().await);
    assert_eq!(client.grant_messages().await.len(), 1);
    assert!(first.seen().await.is_none(), "a place was left");
    nothing_is_left(backend);
}

/// It got the lock past the queue, when the record before had run out.
pub async fn a_release_does_not_pass_the_lock_on_to_its_own_ticket(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases, Need::Queues]).await {
        return;
    }
    let client = Client::of(backend).await;
    let (node, holder) = (open(backend).await, owner("own"));
    let waiter = client.waiter("own", 1);
    queue_behind_a_dying_holder(&node, &holder, &waiter).await;
    eventually("the record ends", async || {
        waiter.owner().acquire(client.node(), LONG).is_done().await
    })
    .await;
    assert!(waiter.release().await);
    let heard = client.grant_messages().await;
    // Where the engine has an order of its own, it was its turn, in the queue as well.
    assert!(heard.is_empty() || node.capabilities().own_order, "{heard:?}");
    assert!(waiter.seen().await.is_none());
    nothing_is_left(backend);
}

/// A process has one connection, whatever the number of its tasks that wait.
pub async fn waiters_of_one_client_are_told_apart(backend: &impl Backend) {
    if lacks(backend, &[Need::Queues]).await {
        return;
    }
    let client = Client::of(backend).await;
    let (node, names) = (open(backend).await, ["apart/a", "apart/b"]);
    let holders = names.map(owner);
    let waiters = [client.waiter(names[0], 10), client.waiter(names[1], 11)];
    let mut messages = Vec::new();
    for (holder, waiter) in holders.iter().zip(&waiters) {
        assert!(holder.acquire(&node, LONG).is_done().await);
        let asked = waiter.wait(New(TICKET_NO), LONG);
        asked.queued().await;
        messages.push(waiter.message_for(&asked));
    }
    messages.reverse();
    for holder in holders.iter().rev() {
        assert!(holder.release(&node).is_done().await);
    }
    assert_eq!(client.grant_messages().await, messages);
    for waiter in &waiters {
        assert!(waiter.release().await);
    }
    nothing_is_left(backend);
}

/// The message is delivered while nothing of the node is locked.
pub async fn a_notified_waiter_may_ask_the_node_at_once(backend: &impl Backend) {
    if lacks(backend, &[Need::Queues]).await {
        return;
    }
    let client = Client::of(backend).await;
    let (node, holder) = (open(backend).await, owner("at once"));
    assert!(holder.acquire(&node, LONG).is_done().await);
    let waiter = client.waiter("at once", 1);
    waiter.wait(New(TICKET_NO), LONG).queued().await;
    let (mine, own) = (waiter.owner().clone(), Arc::clone(client.node()));
    client.on_next_message(move || drop(mine.release(&own)));
    // On a thread of its own: a node that waits for itself would never come back.
    let (done, released) = tokio::sync::oneshot::channel();
    let runtime = tokio::runtime::Handle::current();
    thread::spawn(move || {
        let _context = runtime.enter();
        done.send(holder.release(&node)).expect("somebody waits for it");
    });
    let released = tokio::time::timeout(DEADLINE, released).await.expect("no deadlock");
    assert!(released.expect("no panic").is_done().await);
    assert_eq!(client.grant_messages().await.len(), 1);
    assert!(waiter.seen().await.is_none());
    nothing_is_left(backend);
}
