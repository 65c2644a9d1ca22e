//! The cases about what becomes of a record when its client goes.

#![expect(clippy::missing_panics_doc, reason = "that is what a case is for")]

use super::client::{Client, open};
use super::needs::{Need, lacks};
use super::probe::owner;
use super::{Backend, LONG};
use crate::eventually_async as eventually;

/// Its token can be handed to another process.
pub async fn a_record_outlives_its_client(backend: &impl Backend) {
    if lacks(backend, &[Need::Leases]).await {
        return;
    }
    let (client, holder) = (Client::of(backend).await, owner("outlives"));
    assert!(holder.acquire(client.node(), LONG).is_done().await);
    client.leave(backend).await;
    let node = open(backend).await;
    assert!(!owner("outlives").acquire(&node, LONG).is_done().await);
    assert!(holder.extend(&node, LONG).is_done().await);
    assert!(holder.release(&node).is_done().await);
}

/// Nobody waits for the rest of its TTL.
pub async fn a_record_ends_with_the_session_of_its_client(backend: &impl Backend) {
    if lacks(backend, &[Need::Sessions]).await {
        return;
    }
    let (client, holder) = (Client::of(backend).await, owner("ends"));
    assert!(holder.acquire(client.node(), LONG).is_done().await);
    let node = open(backend).await;
    assert!(!owner("ends").acquire(&node, LONG).is_done().await);
    client.leave(backend).await;
    let next = owner("ends");
    eventually("the record ends", async || next.acquire(&node, LONG).is_done().await).await;
    assert!(!holder.extend(&node, LONG).is_done().await, "it came back to life");
    assert!(!holder.release(&node).is_done().await);
    assert_eq!(next.seen(&node).await.map(|record| record.holder), Some(next.holder()));
}
