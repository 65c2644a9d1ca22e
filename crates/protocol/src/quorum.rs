//! The two thresholds of a vote.

use core::time::Duration;

/// The largest number of nodes a lock can be spread over.
pub const MAX_NODES: usize = 63;

/// How many of N nodes are enough, and how many refusals are too many.
///
/// | N | enough | too many |
/// | --- | --- | --- |
/// | 1 | 1 | 1 |
/// | 2 | 2 | 1 |
/// | 3 | 2 | 2 |
/// | 4 | 3 | 2 |
/// | 5 | 3 | 3 |
///
/// With an even N the two differ: two of four votes are not a majority, and two of four refusals
/// already make one impossible. An even N therefore survives no more failures than N − 1 would.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quorum {
    nodes: usize,
}

impl Quorum {
    /// That of a single node.
    pub const ONE: Self = Self { nodes: 1 };

    /// The quorum of `nodes` nodes; `None` unless there are between 1 and [`MAX_NODES`] of them.
    #[must_use]
    pub const fn of(nodes: usize) -> Option<Self> {
        if nodes == 0 || nodes > MAX_NODES { None } else { Some(Self { nodes }) }
    }

    /// The quorum of nodes of which something is known that was made for another.
    pub(crate) const fn of_all<T>(nodes: &[T]) -> Self {
        Self { nodes: nodes.len() }
    }

    /// N.
    #[must_use]
    pub const fn nodes(self) -> usize {
        self.nodes
    }

    /// So many votes win: any two such sets share a node.
    #[must_use]
    pub const fn enough(self) -> usize {
        self.nodes / 2 + 1
    }

    /// So many nodes that did not vote for us leave too few others to win.
    #[must_use]
    pub const fn too_many(self) -> usize {
        self.nodes - self.enough() + 1
    }

    /// When a majority can vote at the earliest, where `left` says for how long each of those that cast no vote
    /// will not. Of all others nothing is known that keeps them from it. Zero if those are enough.
    #[must_use]
    pub fn votes_in(self, left: &mut [Duration]) -> Duration {
        let others = self.nodes.saturating_sub(left.len());
        let missing = self.enough().saturating_sub(others);
        left.sort_unstable();
        missing.checked_sub(1).and_then(|last| left.get(last)).copied().unwrap_or_default()
    }

    /// How many nodes may fail while locks can still be taken.
    #[must_use]
    pub const fn may_fail(self) -> usize {
        self.nodes - self.enough()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_quorums_always_share_a_node_and_the_thresholds_meet() {
        for nodes in 1..=MAX_NODES {
            let quorum = Quorum::of(nodes).unwrap();
            assert!(2 * quorum.enough() > nodes, "two disjoint quorums of {nodes}");
            assert!(2 * (quorum.enough() - 1) <= nodes, "more than needed of {nodes}");
            // One refusal fewer than too many leaves just enough nodes.
            assert_eq!(nodes - (quorum.too_many() - 1), quorum.enough());
        }
        assert_eq!(Quorum::of(0), None);
        assert_eq!(Quorum::of(MAX_NODES + 1), None);
    }

    #[test]
    fn votes_are_had_when_the_last_one_that_is_needed_is_cast() {
        let votes_in = |nodes: usize, seconds: &[u64]| {
            let mut left: Vec<_> = seconds.iter().copied().map(Duration::from_secs).collect();
            Quorum::of(nodes).unwrap().votes_in(&mut left).as_secs()
        };
        assert_eq!(votes_in(3, &[]), 0);
        assert_eq!(votes_in(3, &[9]), 0, "two others may vote");
        assert_eq!(votes_in(3, &[9, 5]), 5, "one other, and the first of these");
        assert_eq!(votes_in(3, &[9, 5, 7]), 7);
        assert_eq!(votes_in(4, &[9, 5]), 5);
        assert_eq!(votes_in(5, &[9, 5, 7, 0]), 5);
        assert_eq!(votes_in(1, &[3]), 3);
    }

    #[test]
    fn an_even_number_of_nodes_survives_no_more_than_one_less() {
        for nodes in [2, 4, 6, 8] {
            let even = Quorum::of(nodes).unwrap();
            let odd = Quorum::of(nodes - 1).unwrap();
            assert_eq!(even.may_fail(), odd.may_fail());
        }
        assert_eq!(
            [1, 2, 3, 5, 7].map(|nodes| Quorum::of(nodes).unwrap().may_fail()),
            [0, 0, 1, 2, 3]
        );
    }
}
