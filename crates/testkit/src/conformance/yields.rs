//! The cases about giving way. They pass where no queue is kept.

#![expect(clippy::missing_panics_doc, reason = "that is what a case is for")]

use quorlock::node::TicketNumber::{Agreed, New};

use super::client::Client;
use super::needs::{Need, lacks, short};
use super::queues::{TICKET_NO, nothing_is_left};
use super::{Backend, LONG};

/// The nodes disagree on whose turn it is: the higher ticket number gives way.
pub async fn yielding_lets_the_waiter_before_us_have_it_and_keeps_our_place(
    backend: &impl Backend,
) {
    if lacks(backend, &[Need::Leases, Need::Queues, Need::Proposals]).await {
        return;
    }
    let (here, there) = (Client::of(backend).await, Client::of(backend).await);
    let (high, low) = (here.waiter("split", 1), there.waiter("split", 1));
    let last = there.waiter("split", 2);
    assert!(high.wait(New(TICKET_NO), LONG).is_done().await);
    let asked = low.wait(Agreed(TICKET_NO - 1), LONG / 3);
    asked.queued().await;
    last.wait(New(TICKET_NO + 9), LONG).queued().await;
    let yielded = high.yielding(Agreed(TICKET_NO), LONG);
    let queued = yielded.queued().await;
    assert_eq!((queued.ticket_no, queued.record), (TICKET_NO, None));
    assert_eq!(there.grant_messages().await, [low.message_for(&asked)]);
    assert!(low.holds().await);
    let left = low.seen().await.expect("a record").remaining.expect("an end");
    assert!(left <= LONG / 3, "{left:?}");
    assert!(low.release().await);
    assert_eq!(here.grant_messages().await, [high.message_for(&yielded)]);
    assert!(high.release().await);
    assert!(last.holds().await);
    assert!(last.release().await);
    nothing_is_left(backend);
}

/// It is our turn after all.
pub async fn yielding_keeps_what_nobody_before_us_waits_for(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases, Need::Queues]).await {
        return;
    }
    let client = Client::of(backend).await;
    let (low, high) = (client.waiter("ours first", 1), client.waiter("ours first", 2));
    assert!(low.wait(New(TICKET_NO), LONG / 3).is_done().await);
    assert!(low.yielding(Agreed(TICKET_NO), LONG).is_done().await, "nobody is there at all");
    high.wait(New(TICKET_NO + 1), LONG).queued().await;
    assert!(low.yielding(Agreed(TICKET_NO), short(client.node())).is_done().await);
    assert!(low.holds().await);
    let left = low.seen().await.expect("a record").remaining.expect("an end");
    assert!(left > LONG / 3, "{left:?}");
    assert_eq!(client.grant_messages().await, []);
    assert!(low.release().await);
    assert!(high.holds().await);
    assert!(high.release().await);
    assert!(low.seen().await.is_none(), "a place was left");
    nothing_is_left(backend);
}

/// The waiter before us was killed.
pub async fn yielding_to_a_client_that_is_gone_keeps_the_lock(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases, Need::Queues]).await {
        return;
    }
    let (client, dead) = (Client::of(backend).await, Client::of(backend).await);
    let waiter = client.waiter("ours still", 1);
    assert!(waiter.wait(New(TICKET_NO), LONG).is_done().await);
    dead.waiter("ours still", 1).wait(Agreed(TICKET_NO - 1), short(client.node())).queued().await;
    dead.leave(backend).await;
    assert!(waiter.yielding(Agreed(TICKET_NO), LONG / 3).is_done().await);
    let left = waiter.seen().await.expect("a record").remaining.expect("an end");
    assert!(waiter.holds().await && left > LONG / 3, "{left:?}");
    assert!(waiter.release().await);
    assert!(waiter.seen().await.is_none());
    nothing_is_left(backend);
}
