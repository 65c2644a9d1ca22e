//! The cases, one function each. Each panics where a node fails it.

#![expect(clippy::missing_panics_doc, reason = "that is what a case is for")]

use std::time::Duration;

use quorlock::node::Answer;

use super::client::open;
use super::needs::{Need, lacks, short};
use super::probe::owner;
use super::{Backend, ESTIMATE, LONG};
use crate::eventually_async as eventually;

/// Acquire, then look.
pub async fn a_free_name_is_granted_and_seen(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases]).await {
        return;
    }
    let node = open(backend).await;
    let owner = owner("free");
    assert!(owner.seen(&node).await.is_none());
    assert!(owner.acquire(&node, LONG).is_done().await);
    let record = owner.seen(&node).await.expect("a record");
    let left = record.remaining.expect("an end");
    assert!(left <= LONG + ESTIMATE && left > Duration::ZERO, "{left:?} left of {LONG:?}");
}

/// A second owner comes too late.
pub async fn a_taken_name_is_refused_and_nothing_changes(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases]).await {
        return;
    }
    let node = open(backend).await;
    let (first, second) = (owner("taken"), owner("taken"));
    assert!(first.acquire(&node, LONG / 2).is_done().await);
    let before = first.seen(&node).await.expect("a record");
    assert!(!second.acquire(&node, LONG).is_done().await);
    let after = first.seen(&node).await.expect("a record");
    assert_eq!(after.holder, before.holder);
    assert!(after.remaining <= before.remaining, "the refused one made it last longer");
}

/// Release, look, and acquire again.
pub async fn a_release_by_the_owner_frees_the_name(backend: &impl Backend) {
    let node = open(backend).await;
    let (first, second) = (owner("freed"), owner("freed"));
    assert!(first.acquire(&node, LONG).is_done().await);
    assert!(first.release(&node).is_done().await);
    assert!(first.seen(&node).await.is_none());
    assert!(second.acquire(&node, LONG).is_done().await);
}

/// Release of a name that nobody holds, and a second release.
pub async fn a_release_of_nothing_is_refused(backend: &impl Backend) {
    let node = open(backend).await;
    let owner = owner("nothing");
    assert!(!owner.release(&node).is_done().await);
    assert!(owner.acquire(&node, LONG).is_done().await);
    assert!(owner.release(&node).is_done().await);
    assert!(!owner.release(&node).is_done().await);
}

/// Only the owner can release.
pub async fn a_release_with_another_token_changes_nothing(backend: &impl Backend) {
    let node = open(backend).await;
    let (holder, stranger) = (owner("mine"), owner("mine"));
    assert!(holder.acquire(&node, LONG).is_done().await);
    let before = holder.seen(&node).await.expect("a record");
    assert!(!stranger.release(&node).is_done().await);
    let after = holder.seen(&node).await.expect("a record");
    assert_eq!(after.holder, before.holder);
    assert!(holder.release(&node).is_done().await);
}

/// Extend to a longer time.
pub async fn an_extension_makes_the_record_last_longer(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases]).await {
        return;
    }
    let node = open(backend).await;
    let owner = owner("longer");
    assert!(owner.acquire(&node, LONG / 3).is_done().await);
    assert!(owner.extend(&node, LONG).is_done().await);
    let left = owner.seen(&node).await.expect("a record").remaining.expect("an end");
    assert!(left > LONG / 3, "{left:?}");
}

/// Extend by less than is left.
pub async fn an_extension_never_shortens_the_record(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases]).await {
        return;
    }
    let node = open(backend).await;
    let owner = owner("not shorter");
    assert!(owner.acquire(&node, LONG).is_done().await);
    assert!(owner.extend(&node, short(&node)).is_done().await);
    let left = owner.seen(&node).await.expect("a record").remaining.expect("an end");
    assert!(left > LONG / 2, "{left:?}");
}

/// Only the owner can extend.
pub async fn an_extension_with_another_token_changes_nothing(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases]).await {
        return;
    }
    let node = open(backend).await;
    let (holder, stranger) = (owner("foreign"), owner("foreign"));
    assert!(holder.acquire(&node, LONG / 2).is_done().await);
    assert!(!stranger.extend(&node, LONG).is_done().await);
    let left = holder.seen(&node).await.expect("a record").remaining.expect("an end");
    assert!(left <= LONG / 2 + ESTIMATE, "{left:?}");
    assert!(holder.release(&node).is_done().await);
}

/// Extend what is not there.
pub async fn an_extension_never_creates_a_record(backend: &impl Backend) {
    let node = open(backend).await;
    let owner = owner("not there");
    assert!(!owner.extend(&node, LONG).is_done().await);
    assert!(owner.seen(&node).await.is_none());
}

/// The holder died: another gets the name after the TTL.
pub async fn an_expired_record_is_free(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases]).await {
        return;
    }
    let node = open(backend).await;
    let (dead, next) = (owner("dead"), owner("dead"));
    assert!(dead.acquire(&node, short(&node)).is_done().await);
    eventually("the record ends", async || next.acquire(&node, LONG).is_done().await).await;
    assert!(next.seen(&node).await.is_some());
}

/// A holder that comes back too late.
pub async fn an_expired_owner_cannot_touch_the_next_record(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases]).await {
        return;
    }
    let node = open(backend).await;
    let (late, next) = (owner("late"), owner("late"));
    assert!(late.acquire(&node, short(&node)).is_done().await);
    eventually("the record ends", async || late.seen(&node).await.is_none()).await;
    assert!(!late.extend(&node, LONG).is_done().await, "it came back to life");
    assert!(next.acquire(&node, LONG / 2).is_done().await);
    let before = next.seen(&node).await.expect("a record");
    assert!(!late.extend(&node, LONG).is_done().await);
    assert!(!late.release(&node).is_done().await);
    let after = next.seen(&node).await.expect("a record");
    assert_eq!(after.holder, before.holder);
    assert!(after.remaining <= before.remaining);
}

/// Names that a careless node would mix up.
pub async fn odd_names_are_told_apart_exactly(backend: &impl Backend) {
    let node = open(backend).await;
    let long = [b'x'; quorlock::MAX_NAME_BYTES];
    let names: [&[u8]; 17] = [
        b"a",
        b"ab",
        b"a:b",
        b"a:",
        b"{a}b",
        b"a b",
        b" a",
        b"a ",
        b"A",
        b"*",
        b"a?",
        b"\r\n",
        b"a\0b",
        b"a\0",
        b"\xff\xfe",
        &long,
        &long[1..],
    ];
    let owners: Vec<_> = names.iter().map(owner).collect();
    for owner in &owners {
        assert!(owner.acquire(&node, LONG).is_done().await, "{owner:?}");
    }
    for (index, owner) in owners.iter().enumerate() {
        assert!(owner.release(&node).is_done().await, "{owner:?}");
        for other in &owners[index + 1..] {
            assert!(other.seen(&node).await.is_some(), "{owner:?} released {other:?}");
        }
    }
}

/// Nothing is waited for in between, so that only the node's own order can make this right.
pub async fn calls_take_effect_in_the_order_of_submission(backend: &impl Backend) {
    let node = open(backend).await;
    for _ in 0..50 {
        let (first, second) = (owner("order"), owner("order"));
        let acquired = first.acquire(&node, LONG);
        let refused = second.acquire(&node, LONG);
        let released = first.release(&node);
        let granted = second.acquire(&node, LONG);
        let cleaned = second.release(&node);
        let seen = second.inspect(&node);
        assert!(acquired.is_done().await);
        assert!(!refused.is_done().await);
        assert!(released.is_done().await);
        assert!(granted.is_done().await);
        assert!(cleaned.is_done().await);
        assert!(matches!(seen.answer().await, Answer::Seen(seen) if seen.record.is_none()));
    }
}

/// The order of different names does not matter. That of one name holds whatever else is under way.
pub async fn calls_of_each_name_keep_their_order_under_load(backend: &impl Backend) {
    let node = open(backend).await;
    for round in 0..5 {
        let names = (0..64).map(|name| format!("load/{round}/{name}"));
        let pairs: Vec<_> = names.map(|name| (owner(&name), owner(&name))).collect();
        let mut asked = Vec::new();
        for (first, second) in &pairs {
            asked.push((first.acquire(&node, LONG), true));
            asked.push((second.acquire(&node, LONG), false));
        }
        for (first, second) in &pairs {
            asked.push((first.release(&node), true));
            asked.push((second.acquire(&node, LONG), true));
            asked.push((second.release(&node), true));
            asked.push((first.release(&node), false));
        }
        for (probe, done) in asked {
            assert_eq!(probe.is_done().await, done, "{probe:?}");
        }
    }
}

/// Many calls of one name, which are all under way at once and amid those of others.
pub async fn a_busy_name_keeps_its_order_amid_others(backend: &impl Backend) {
    let node = open(backend).await;
    let mut asked = Vec::new();
    for turn in 0..60 {
        let (holder, late) = (owner("busy"), owner("busy"));
        let other = owner(format!("busy/{turn}"));
        asked.push((holder.acquire(&node, LONG), true));
        asked.push((other.acquire(&node, LONG), true));
        asked.push((late.acquire(&node, LONG), false));
        asked.push((holder.extend(&node, LONG), true));
        asked.push((other.extend(&node, LONG), true));
        asked.push((late.release(&node), false));
        asked.push((holder.release(&node), true));
        asked.push((holder.extend(&node, LONG), false));
        asked.push((other.release(&node), true));
    }
    for (index, (probe, done)) in asked.into_iter().enumerate() {
        assert_eq!(probe.is_done().await, done, "call {index}: {probe:?}");
    }
    assert!(owner("busy").seen(&node).await.is_none(), "something ran behind the last release");
}

/// Two processes, one authority.
pub async fn two_handles_share_one_record(backend: &impl Backend) {
    let (here, there) = (open(backend).await, open(backend).await);
    let (first, second) = (owner("shared"), owner("shared"));
    assert!(first.acquire(&here, LONG).is_done().await);
    assert!(!second.acquire(&there, LONG).is_done().await);
    assert_eq!(first.seen(&here).await.map(|record| record.holder), {
        second.seen(&there).await.map(|record| record.holder)
    });
    assert!(first.release(&there).is_done().await, "the token counts, not the connection");
    assert!(second.acquire(&here, LONG).is_done().await);
}

/// Many names at once, each answered with its own answer.
pub async fn every_call_of_a_burst_is_answered(backend: &impl Backend) {
    let node = open(backend).await;
    let owners: Vec<_> = (0..500).map(|index| owner(format!("burst/{index}"))).collect();
    let taken: Vec<_> = owners.iter().step_by(3).map(|owner| owner.acquire(&node, LONG)).collect();
    for probe in taken {
        assert!(probe.is_done().await);
    }
    let all: Vec<_> =
        (0..500).map(|index| owner(format!("burst/{index}")).acquire(&node, LONG)).collect();
    for (index, probe) in all.into_iter().enumerate() {
        assert_eq!(probe.is_done().await, index % 3 != 0, "burst/{index}");
    }
}

/// A caller that goes away does not take its request with it.
pub async fn a_round_that_nobody_waits_for_still_runs(backend: &impl Backend) {
    let node = open(backend).await;
    let owner = owner("forgotten");
    drop(owner.acquire(&node, LONG));
    drop(owner.release(&node));
    drop(owner.acquire(&node, LONG));
    assert!(owner.seen(&node).await.is_some());
}
