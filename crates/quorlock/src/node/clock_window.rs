//! How far clocks may be apart where nodes or stores compare them with the time of day of their clients.

use std::time::Duration;

use super::{Failure, FailureKind};
use quorlock_protocol::Untimely;

/// How far a server's clock may be behind a client's by default.
pub(in crate::node) const CLOCK_BEHIND: Duration = Duration::from_millis(100);
/// How far it may be ahead.
pub(in crate::node) const CLOCK_AHEAD: Duration = Duration::from_millis(300);
/// How far the clocks of two clients may be apart.
pub(in crate::node) const CLIENTS_APART: Duration = Duration::from_millis(50);

/// What to do about clocks that are apart.
pub(crate) const KEEP_TIME: &str = "let a daemon such as chrony keep the clocks of all machines";

/// What such a clock takes off the end of each lease.
pub(in crate::node) const fn margin(
    behind: Duration,
    ahead: Duration,
    apart: Duration,
) -> Duration {
    behind.saturating_add(ahead).saturating_add(apart.saturating_mul(2))
}

/// A clock that was so far from ours, or a request that was on its way for so long, in words.
pub(in crate::node) fn failure(untimely: Untimely) -> Failure {
    let (apart, side) = match untimely {
        Untimely::Late(late) => {
            let text =
                format!("the request was under way for {late:.1?}, too long to be looked at");
            return Failure::new(FailureKind::Late, text);
        }
        Untimely::Behind(apart) => (apart, "behind"),
        Untimely::Ahead(apart) => (apart, "ahead of"),
    };
    let text = format!("its clock is {apart:.1?} {side} this machine's; {KEEP_TIME}");
    let apart_us = i64::try_from(apart.as_micros()).unwrap_or(i64::MAX);
    let behind = matches!(untimely, Untimely::Behind(_));
    Failure::clock(if behind { -apart_us } else { apart_us }, text)
}
