//! How far clocks may be apart where nodes or stores compare them with the time of day of their clients.

use std::time::Duration;

use super::Failure;
use quorlock_protocol::Untimely;

/// How far a server's clock may be behind a client's by default.
pub(in crate::node) const CLOCK_BEHIND: Duration = Duration::from_millis(100);
/// How far it may be ahead.
pub(in crate::node) const CLOCK_AHEAD: Duration = Duration::from_millis(300);
/// How far the clocks of two clients may be apart.
pub(in crate::node) const CLIENTS_APART: Duration = Duration::from_millis(50);

/// What to do about clocks that are apart.
pub(in crate::node) const KEEP_TIME: &str =
    "let a daemon such as chrony keep the clocks of all machines";

/// What such a clock takes off the end of each lease.
pub(in crate::node) const fn margin(
    behind: Duration,
    ahead: Duration,
    apart: Duration,
) -> Duration {
    behind.saturating_add(ahead).saturating_add(apart.saturating_mul(2))
}

/// A clock that was so far from ours, in words; `None` if it was not.
pub(in crate::node) fn apart(untimely: Untimely) -> Option<Failure> {
    let (apart, side) = match untimely {
        Untimely::Late(_) => return None,
        Untimely::Behind(apart) => (apart, "behind"),
        Untimely::Ahead(apart) => (apart, "ahead of"),
    };
    let text = format!("its clock is {apart:.1?} {side} this machine's; {KEEP_TIME}");
    let apart_us = i64::try_from(apart.as_micros()).unwrap_or(i64::MAX);
    let behind = matches!(untimely, Untimely::Behind(_));
    Some(Failure::clock(if behind { -apart_us } else { apart_us }, text))
}
