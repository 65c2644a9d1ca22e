//! What it means that a node has not looked at a request, by its clock.

use core::time::Duration;

/// Why a node whose clock is compared with the client's has not looked at a request.
///
/// The node sees only that its time is not near the time at which the request was sent. Whether the request
/// was under way for too long, or the clocks are apart, it cannot know. The client knows how long the trip
/// took, and with it between which bounds the node's clock is ahead of its own:
///
/// ```text
///   client   sent ├───────────── the trip ─────────────┤ received
///   node                            now                          now − received ≤ ahead of ours ≤ now − sent
/// ```
///
/// If a clock between these bounds would have let a prompt request pass, the trip explains it all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Untimely {
    /// The request was under way for so long. Nothing is known to be wrong with the clocks: ask again.
    Late(Duration),
    /// The node's clock is behind the client's by so much at least.
    Behind(Duration),
    /// It is ahead by so much at least, and by more than it may be.
    Ahead(Duration),
}

impl Untimely {
    /// What was sent and received at these times of day by the client's clock has met a node that showed `node_us`
    /// then, all in microseconds. Its clock may be ahead by `ahead`.
    #[must_use]
    pub fn of(node_us: u64, sent_us: u64, received_us: u64, ahead: Duration) -> Self {
        let ahead_us = u64::try_from(ahead.as_micros()).unwrap_or(u64::MAX);
        if node_us < sent_us {
            Self::Behind(Duration::from_micros(sent_us - node_us))
        } else if node_us > received_us.saturating_add(ahead_us) {
            Self::Ahead(Duration::from_micros(node_us - received_us))
        } else {
            let until_us = node_us.min(received_us);
            Self::Late(Duration::from_micros(until_us.saturating_sub(sent_us)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000;
    const SENT: u64 = 1_000_000 * MS;
    const AHEAD: Duration = Duration::from_millis(300);

    fn of(node_ms: i64, received_ms: u64) -> Untimely {
        let node_us = SENT.saturating_add_signed(node_ms * 1_000);
        Untimely::of(node_us, SENT, SENT + received_ms * MS, AHEAD)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A server stands still for a second and a half.
    #[test]
    fn what_the_trip_explains_is_late_and_says_nothing_of_the_clocks() {
        assert_eq!(of(1_500, 1_500), Untimely::Late(ms(1_500)));
        assert_eq!(of(1_505, 1_500), Untimely::Late(ms(1_500)), "5 ms ahead");
        assert_eq!(
            of(1_450, 1_500),
            Untimely::Late(ms(1_450)),
            "behind, or the reply took its time"
        );
        assert_eq!(of(1_800, 1_500), Untimely::Late(ms(1_500)), "as far ahead as it may be");
        assert_eq!(of(1_801, 1_500), Untimely::Ahead(ms(301)), "a prompt request would fail too");
    }

    #[test]
    fn a_prompt_request_is_refused_by_a_clock_that_is_off() {
        assert_eq!(of(10_000, 1), Untimely::Ahead(ms(9_999)));
        assert_eq!(of(-101, 1), Untimely::Behind(ms(101)));
        // No trip, however long, takes a request into the past.
        assert_eq!(of(-101, 60_000), Untimely::Behind(ms(101)));
        assert_eq!(
            of(0, 60_000),
            Untimely::Late(ms(0)),
            "not behind: the reply may have been late"
        );
    }

    #[test]
    fn a_time_of_day_that_was_set_back_on_the_way_is_no_trip() {
        let node_us = SENT + 400 * MS;
        let received_us = SENT - 10_000 * MS;
        let apart = Untimely::of(node_us, SENT, received_us, AHEAD);
        assert_eq!(apart, Untimely::Ahead(ms(10_400)));
        assert_eq!(Untimely::of(u64::MAX, 0, 0, Duration::MAX), Untimely::Late(Duration::ZERO));
    }
}
