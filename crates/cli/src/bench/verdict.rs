//! What the figures mean.

use std::time::Duration;

/// From this share of a core on, a processor is what limits.
const BUSY: f64 = 0.75;

/// A node is slow if its round trip takes so many times as long as that of the middle one, and so
/// much longer: what is less may be chance.
const SLOW_FACTOR: u32 = 3;
const SLOW_BY: Duration = Duration::from_millis(1);

/// What stands in the way of more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    /// The processor here.
    Client,
    /// The processor of the node with this index.
    Server(usize),
    /// The one writer that a file can have.
    File,
    /// Nothing is used up: most of the time goes by on the way.
    Network,
}

/// What is used up, if something is. The shares are of one core; those of nodes may not be known. No
/// node is `far` if all are files.
pub(super) fn limit(client: f64, servers: &[Option<f64>], far: bool) -> Limit {
    let known = servers.iter().enumerate().filter_map(|(index, share)| Some((index, (*share)?)));
    let busiest = known.max_by(|(_, one), (_, other)| one.total_cmp(other));
    match busiest {
        _ if !far => Limit::File,
        Some((index, share)) if share >= BUSY && share > client => Limit::Server(index),
        _ if client >= BUSY => Limit::Client,
        _ => Limit::Network,
    }
}

/// The nodes whose round trip is far longer than that of the middle one.
pub(super) fn slow(round_trips: &[Option<Duration>]) -> Vec<usize> {
    let mut known: Vec<Duration> = round_trips.iter().flatten().copied().collect();
    known.sort_unstable();
    let Some(middle) = known.get(known.len().saturating_sub(1) / 2).copied() else {
        return Vec::new();
    };
    let is_slow = |trip: Duration| trip > middle * SLOW_FACTOR && trip > middle + SLOW_BY;
    let all = round_trips.iter().enumerate();
    all.filter(|(_, trip)| trip.is_some_and(is_slow)).map(|(index, _)| index).collect()
}

/// The round trip that a lock has to wait for: of the slowest node of the fastest majority.
pub(super) fn of_majority(round_trips: &[Option<Duration>], needed: usize) -> Option<Duration> {
    let mut known: Vec<Duration> = round_trips.iter().flatten().copied().collect();
    known.sort_unstable();
    known.get(needed.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trips(millis: &[u64]) -> Vec<Option<Duration>> {
        // Zero stands for what is not known.
        millis.iter().map(|ms| (*ms > 0).then(|| Duration::from_millis(*ms))).collect()
    }

    #[test]
    fn what_is_used_up_limits() {
        assert_eq!(limit(0.9, &[Some(0.2), Some(0.3)], true), Limit::Client);
        assert_eq!(limit(0.8, &[Some(0.2), Some(0.95)], true), Limit::Server(1));
        assert_eq!(limit(0.98, &[Some(0.8), Some(0.95)], true), Limit::Client);
        assert_eq!(limit(0.3, &[Some(0.2), None], true), Limit::Network);
        assert_eq!(limit(0.3, &[None], true), Limit::Network);
        assert_eq!(limit(0.3, &[None], false), Limit::File);
        assert_eq!(limit(0.9, &[None], false), Limit::File, "the others have to wait as well");
    }

    #[test]
    fn a_node_is_slow_beside_others() {
        assert_eq!(slow(&trips(&[1, 1, 20])), [2]);
        assert_eq!(slow(&trips(&[20, 0, 20, 20])), [0; 0], "all alike");
        assert_eq!(slow(&trips(&[1, 2, 3])), [0; 0]);
        assert_eq!(slow(&trips(&[9])), [0; 0], "there is nothing to compare it with");
        let near: Vec<_> = [20, 20, 300].map(|us| Some(Duration::from_micros(us))).into();
        assert_eq!(slow(&near), [0; 0], "this may be chance");
    }

    #[test]
    fn a_lock_waits_for_the_fastest_majority() {
        assert_eq!(of_majority(&trips(&[9, 1, 3]), 2), Some(Duration::from_millis(3)));
        assert_eq!(of_majority(&trips(&[9, 0, 0]), 2), None);
    }
}
