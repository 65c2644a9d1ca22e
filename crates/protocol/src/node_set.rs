//! A set of nodes, by their index.

use crate::MAX_NODES;

/// Which of a lock's nodes: a bit each, so that a round allocates nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeSet(u64);

impl NodeSet {
    /// No node at all.
    pub const EMPTY: Self = Self(0);

    /// The first `count` nodes.
    #[must_use]
    pub const fn first(count: usize) -> Self {
        if count >= MAX_NODES { Self(u64::MAX >> 1) } else { Self((1 << count) - 1) }
    }

    /// Adds `node`. Indices that no node can have are ignored.
    pub const fn insert(&mut self, node: usize) {
        if node < MAX_NODES {
            self.0 |= 1 << node;
        }
    }

    /// Takes `node` out.
    pub const fn remove(&mut self, node: usize) {
        if node < MAX_NODES {
            self.0 &= !(1 << node);
        }
    }

    /// Whether `node` is in it.
    #[must_use]
    pub const fn contains(self, node: usize) -> bool {
        node < MAX_NODES && self.0 & (1 << node) != 0
    }

    /// How many nodes are in it.
    #[must_use]
    pub const fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether no node is in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The nodes that are in either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The nodes that are in this one and not in the other.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_what_was_put_in_and_ignores_impossible_indices() {
        let mut set = NodeSet::EMPTY;
        set.insert(0);
        set.insert(62);
        set.insert(63);
        set.insert(1_000);
        assert!(set.contains(0) && set.contains(62));
        assert!(!set.contains(63) && !set.contains(1_000));
        assert_eq!(set.len(), 2);
        set.remove(0);
        set.remove(999);
        assert_eq!(set.len(), 1);
        let mut other = NodeSet::EMPTY;
        other.insert(4);
        assert_eq!(set.union(other).len(), 2);
        assert!(NodeSet::EMPTY.is_empty());
        assert_eq!(NodeSet::first(5).without(other).len(), 4);
        assert_eq!(NodeSet::first(MAX_NODES).len(), MAX_NODES);
        assert!(NodeSet::first(MAX_NODES).contains(0));
        let both = NodeSet::first(3).union(NodeSet::first(5));
        assert_eq!(both, NodeSet::first(5), "what is in both is in it once");
        assert_eq!(NodeSet::first(0), NodeSet::EMPTY);
    }
}
