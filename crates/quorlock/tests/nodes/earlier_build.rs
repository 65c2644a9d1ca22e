//! A lock that a client of version 0.1.0 has taken, and left its record behind.

use quorlock::{Error, Locker};

/// The token of that client.
pub(crate) const TOKEN: &str = "ql:11d8b0114be7c750a4b21d7d068615d6c64ff5e9";

/// Another client does not get the lock `held`; one with the token does, and the next holder has a higher fence.
pub(crate) async fn is_honoured(locker: &Locker, fence: u64) {
    let refused = locker.try_lock("held").await.expect_err("an earlier build holds it");
    assert!(matches!(refused, Error::Taken { .. }), "{refused}");
    let guard = locker.resume("held", TOKEN).await.expect("it is held with this token");
    assert!(guard.release().await.expect("released").is_freed());
    let next = locker.try_lock("held").await.expect("it is free");
    assert!(next.fence() > fence, "{} after {fence}", next.fence());
}
