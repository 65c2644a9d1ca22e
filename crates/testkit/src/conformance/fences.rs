//! The fences of holders.

#![expect(clippy::missing_panics_doc, reason = "that is what a case is for")]

use std::sync::Arc;

use quorlock::node::{Answer, FailureKind, Proposal, TicketNumber};

use super::client::{Client, open};
use super::needs::{Need, lacks, short};
use super::probe::owner;
use super::{Backend, LONG};
use crate::eventually_async as eventually;

/// Far above anything that a test gives out otherwise, and below the time of day.
const HIGH: u64 = 1 << 50;

/// Each holder has a higher fence than all before it, whatever is proposed.
pub async fn every_holder_has_a_higher_fence_than_those_before(backend: &impl Backend) {
    let node = open(backend).await;
    let mut last = 0;
    for least in [1, 0, HIGH, 5, HIGH + 100] {
        let holder = owner("fenced");
        let proposal = Proposal { least, block: 1 };
        let fence = holder.acquire_fenced(&node, LONG, proposal).fence().await;
        assert!(fence > last, "{fence} after {last}");
        if !node.capabilities().own_order {
            assert_eq!(fence, least.max(last + 1), "as wanted, and no higher than it has to be");
        }
        let record = holder.seen(&node).await.expect("a record");
        assert_eq!(record.fence, Some(fence));
        assert_eq!(holder.extend(&node, LONG).fence().await, fence);
        assert!(holder.release(&node).is_done().await);
        last = fence;
    }
}

/// A holder that reserves several fences has them all.
pub async fn a_block_of_fences_is_nobody_elses(backend: &impl Backend) {
    if lacks(backend, &[Need::Proposals]).await {
        return;
    }
    let node = open(backend).await;
    let (first, next) = (owner("block"), owner("block"));
    let proposal = Proposal { least: 100, block: 16 };
    assert_eq!(first.acquire_fenced(&node, LONG, proposal).fence().await, 115);
    assert!(first.release(&node).is_done().await);
    let proposal = Proposal { least: 101, block: 2 };
    assert_eq!(next.acquire_fenced(&node, LONG, proposal).fence().await, 117);
}

/// A fence that was proposed elsewhere is taken over from the owner of the record only.
pub async fn a_fence_is_confirmed_by_the_holder_alone(backend: &impl Backend) {
    if lacks(backend, &[Need::Proposals]).await {
        return;
    }
    let node = open(backend).await;
    let (holder, other) = (owner("confirmed"), owner("confirmed"));
    assert!(!holder.confirm(&node, HIGH).is_done().await, "of nothing");
    let fence = holder.acquire(&node, LONG).fence().await;
    assert!(!other.confirm(&node, HIGH).is_done().await, "of somebody else's");
    assert_eq!(holder.seen(&node).await.expect("a record").fence, Some(fence));
    assert_eq!(holder.confirm(&node, HIGH).fence().await, HIGH);
    assert_eq!(holder.confirm(&node, 7).fence().await, HIGH, "never lower");
    assert!(holder.release(&node).is_done().await);
    assert!(!holder.confirm(&node, HIGH + 9).is_done().await, "after the release");
    assert_eq!(other.acquire(&node, LONG).fence().await, HIGH + 1);
}

/// Also when it was not released.
pub async fn a_fence_outlives_its_record(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases]).await {
        return;
    }
    let node = open(backend).await;
    let (first, next) = (owner("outlived"), owner("outlived"));
    let proposal = Proposal { least: HIGH, block: 1 };
    let fence = first.acquire_fenced(&node, short(&node), proposal).fence().await;
    eventually("the record ends", async || next.acquire(&node, LONG).is_done().await).await;
    let later = next.seen(&node).await.expect("a record").fence;
    if node.capabilities().own_order {
        assert!(later > Some(fence), "{later:?} after {fence}");
    } else {
        assert_eq!((fence, later), (HIGH, Some(HIGH + 1)));
    }
}

/// A waiter that gets a lock that is passed on has a higher fence too, and not below what the last
/// holder proposed to all nodes.
pub async fn a_grant_comes_with_a_fence_of_its_own(backend: &impl Backend) {
    if lacks(backend, &[Need::Queues]).await {
        return;
    }
    let (client, holder) = (Client::of(backend).await, owner("passed on"));
    let node = Arc::clone(client.node());
    let fence = holder.acquire(&node, LONG).fence().await;
    let (first, second) = (client.waiter("passed on", 1), client.waiter("passed on", 2));
    for waiter in [&first, &second] {
        waiter.wait(TicketNumber::New(1), LONG).queued().await;
    }
    assert!(holder.release_to(&node, 0).is_done().await);
    eventually("a grant message comes", async || client.grant_messages().await.len() == 1).await;
    let next = client.fences()[0];
    assert_eq!(first.seen().await.expect("a record").fence, Some(next));
    assert!(first.owner().release_to(&node, HIGH).is_done().await);
    eventually("a grant message comes", async || client.grant_messages().await.len() == 1).await;
    let last = client.fences()[1];
    if node.capabilities().own_order {
        assert!(fence < next && next < last, "{fence}, {next}, {last}");
    } else {
        assert_eq!((next, last), (fence + 1, HIGH));
    }
    let again = second.wait(TicketNumber::New(1), LONG);
    assert_eq!(again.fence().await, last, "the same holder keeps its fence");
}

/// A client that asks once more for what it has got, or lets another have it, does not leave the fence below
/// what it proposes now: the node may have forgotten what it gave out since the ticket was stored.
pub async fn a_fence_is_as_high_as_the_latest_request_wants_it(backend: &impl Backend) {
    if lacks(backend, &[Need::Queues, Need::Proposals]).await {
        return;
    }
    let client = Client::of(backend).await;
    let node = Arc::clone(client.node());
    let proposal = |least| Proposal { least, block: 4 };
    let (first, second) = (client.waiter("latest", 1), client.waiter("latest", 2));
    let asks = |waiter: &super::client::Waiter, place, yielding, least| {
        let ticket = waiter.ticket(TicketNumber::Agreed(place));
        waiter.owner().wait_fenced(&node, LONG, (ticket, yielding), proposal(least))
    };
    assert_eq!(asks(&second, 2, false, 100).fence().await, 103);
    assert_eq!(asks(&second, 2, false, 200).fence().await, 203);
    assert_eq!(asks(&second, 2, false, 150).fence().await, 203, "never lower");
    asks(&first, 1, false, 1).queued().await;
    asks(&second, 2, true, 300).queued().await;
    let record = first.seen().await.expect("a record");
    assert_eq!(record.fence, Some(303), "the first has it now");
}

/// A node that has come to the end of its fences, or is asked for one beyond it, grants nothing: two holders
/// with one fence could not be distinguished.
pub async fn a_fence_that_would_not_grow_is_not_given_out(backend: &impl Backend) {
    const END: u64 = 1 << 53;
    if lacks(backend, &[Need::Proposals]).await {
        return;
    }
    let client = Client::of(backend).await;
    let node = Arc::clone(client.node());
    let mut last = 0;
    for (least, block) in
        [(END - 2, 1), (1, 1), (1, 1), (END - 2, 8), (i64::MAX.unsigned_abs(), 2), (u64::MAX, 16)]
    {
        let proposal = Proposal { least, block };
        let (holder, waiter) = (owner("the end"), client.waiter("the end", 1));
        let asked = holder.acquire_fenced(&node, LONG, proposal).answer().await;
        // A node that compares them with the time of day refuses all of them.
        let fence = given_out(&asked).inspect(|fence| {
            assert!(*fence > last && *fence < END, "{fence} after {last}");
            last = *fence;
        });
        assert!(fence.is_none() || holder.release(&node).is_done().await);
        let ticket = (waiter.ticket(TicketNumber::New(1)), false);
        let asked = waiter.owner().wait_fenced(&node, LONG, ticket, proposal).answer().await;
        let fence = given_out(&asked).inspect(|fence| {
            assert!(*fence > last && *fence < END, "{fence} after {last}");
            last = *fence;
        });
        assert!(fence.is_none() || waiter.release().await);
        assert!(holder.seen(&node).await.is_none(), "nothing is left of {proposal:?}");
    }
    let holder = owner("confirmed at the end");
    let fence = holder.acquire(&node, LONG).fence().await;
    assert_eq!(given_out(&holder.confirm(&node, END).answer().await), None);
    assert_eq!(holder.extend(&node, LONG).fence().await, fence, "it was not raised");
}

/// The fence of a grant, or `None` if the node says that there is none.
fn given_out(answer: &Answer) -> Option<u64> {
    match answer {
        Answer::Granted { fence } => Some(*fence),
        Answer::Failed(failure) if failure.kind() == FailureKind::Fence => None,
        other => panic!("neither granted nor refused for its fence: {other:?}"),
    }
}
