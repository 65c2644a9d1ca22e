//! Where an extension may store a record that is not there.

use crate::{NodeSet, Quorum};

/// What an extension may do on a node that has no record of its lock, each with the last fence of the
/// holder: the node stands at that or above then.
///
/// A holder keeps its lock while a majority of the nodes has its record at every moment. Each node may be
/// away in turn, for any time, if it counts again once it is there and votes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Restore {
    /// Nothing: it is not known here that the lock is held.
    Never,
    /// The present lease stands on this node. A node that has forgotten it and casts no vote for that reason may
    /// store it again. On one that votes it was taken away, and stays so.
    Heal(u64),
    /// The present lease stands on a majority of other nodes. If this one votes, and nobody has the record
    /// there, it is taken anew, and counts from this request like any other vote for it.
    WinBack(u64),
}

impl Restore {
    /// What is allowed on `node` to the holder of a lease that stands on `backing` and has not ended, with `last` as
    /// its last fence. A node that was not heard when the lock was won is won back as well. If it was
    /// [taken away](crate::Extend) there, a node of `backing` knows of it too.
    ///
    /// # Why no other can have been there in between
    ///
    /// The extension counts only if a majority has answered it before the present lease ends, and until then
    /// `backing`, which is a majority, keeps all others out. So a client that had the record of a node that is won
    /// back did not have the lock, or had it before this holder. After the answer, the records that this holder's
    /// new lease stands on keep everybody else out until that ends, as those of any acquisition do.
    ///
    /// The fence there may be above this holder's: of a client that tried in vain. It stays, so that the next
    /// holder has a higher one than both.
    #[must_use]
    pub const fn on(node: usize, backing: NodeSet, quorum: Quorum, last: u64) -> Self {
        if backing.len() < quorum.enough() {
            Self::Never
        } else if backing.contains(node) {
            Self::Heal(last)
        } else {
            Self::WinBack(last)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Restore::{Heal, Never, WinBack};
    use super::*;

    fn of(nodes: &[usize]) -> NodeSet {
        let mut set = NodeSet::EMPTY;
        nodes.iter().for_each(|node| set.insert(*node));
        set
    }

    #[test]
    fn only_nodes_beside_a_majority_are_won_back() {
        let three = Quorum::of(3).unwrap();
        let on = |sure: &[usize]| [0, 1, 2].map(|node| Restore::on(node, of(sure), three, 7));
        assert_eq!(on(&[0, 1, 2]), [Heal(7), Heal(7), Heal(7)]);
        assert_eq!(on(&[0, 2]), [Heal(7), WinBack(7), Heal(7)]);
        assert_eq!(on(&[1]), [Never, Never, Never], "that is no majority");
        assert_eq!(on(&[]), [Never, Never, Never], "whose lease is not known");
    }

    /// Where the only record is gone, the lock is lost.
    #[test]
    fn a_single_node_is_never_won_back() {
        for backing in [of(&[]), of(&[0])] {
            assert!(!matches!(Restore::on(0, backing, Quorum::ONE, 7), WinBack(_)));
        }
        // Two nodes are both needed.
        let two = Quorum::of(2).unwrap();
        assert_eq!(Restore::on(1, of(&[0]), two, 7), Never);
    }
}
