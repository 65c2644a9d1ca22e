//! Which nodes have the record of a lease.

use crate::{NodeSet, Quorum};

/// The nodes that a lease stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backing {
    /// Their word was given: they have the record for as long as the lease lasts.
    pub sure: NodeSet,
    /// They may have it as well: they were asked for it, and not heard when it was won.
    pub perhaps: NodeSet,
}

impl Backing {
    /// A lease of which nothing is known: any node may have it.
    #[must_use]
    pub const fn unknown(quorum: Quorum) -> Self {
        Self { sure: NodeSet::EMPTY, perhaps: NodeSet::first(quorum.nodes()) }
    }

    /// These have it, and no other.
    #[must_use]
    pub const fn of(sure: NodeSet) -> Self {
        Self { sure, perhaps: NodeSet::EMPTY }
    }

    /// Those that have had the record since it was won, if they have it now.
    #[must_use]
    pub const fn all(self) -> NodeSet {
        self.sure.union(self.perhaps)
    }
}
