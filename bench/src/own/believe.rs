//! A lock that is held until its loss is noticed.

use std::future::pending;
use std::time::Duration;

use anyhow::Result;

use super::system::{Held, System};
use crate::clock::now_ns;
use crate::order::Order;
use crate::peers::Belief;

/// Waits for a lock. With `hold=1` it is held until it is lost or the time is up.
pub async fn believe(system: &System, order: &Order) -> Result<Belief> {
    let to_ns: u64 = order.number("to_ns")?;
    let left = || tokio::time::sleep(Duration::from_nanos(to_ns.saturating_sub(now_ns())));
    let held = tokio::select! {
        held = system.lock(order.text("name")?) => held?,
        () = left() => return Ok(Belief { acquired_ns: 0, until_ns: 0 }),
    };
    let acquired_ns = now_ns();
    if order.number::<u8>("hold")? == 1 {
        tokio::select! {
            () = lost(&held) => {}
            () = left() => {}
        }
    }
    let until_ns = now_ns();
    // It may be lost.
    let _ = system.release(held).await;
    Ok(Belief { acquired_ns, until_ns })
}

async fn lost(held: &Held) {
    match held {
        Held::Quorlock(guard) => drop(guard.lost().await),
        _ => pending().await,
    }
}
