//! Warns once of each node that can be reached and does not vote: it was started or emptied, its clock or its
//! fence is wrong, or it serves clients with other settings.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::core::Core;
use crate::error::Error;
use crate::node::{Failure, FailureKind};

/// The nodes that a warning was logged for, until they vote again: many locks warn once, not once each.
#[derive(Debug, Default)]
pub(crate) struct WarnedNodes(AtomicU64);

impl WarnedNodes {
    /// Notes that `node` votes: the next time that it does not, a warning is due again.
    pub(crate) fn votes(&self, node: usize) {
        if self.0.load(Ordering::Relaxed) & bit(node) != 0 {
            self.0.fetch_and(!bit(node), Ordering::Relaxed);
        }
    }

    /// Returns whether no warning was logged for `node` yet, and notes that one is now.
    fn is_new(&self, node: usize) -> bool {
        self.0.fetch_or(bit(node), Ordering::Relaxed) & bit(node) == 0
    }
}

/// There are fewer nodes than bits.
fn bit(node: usize) -> u64 {
    u32::try_from(node).ok().and_then(|node| 1u64.checked_shl(node)).unwrap_or(0)
}

/// Whether the node can be reached and does not vote.
fn is_non_voting(failure: &Failure) -> bool {
    matches!(
        failure.kind(),
        FailureKind::Quarantined(_)
            | FailureKind::Clock
            | FailureKind::Unfit
            | FailureKind::OtherSet
            | FailureKind::Fence
    )
}

/// What to log once no mutex is held: a subscriber of the log may run any code.
#[must_use = "it has to be logged"]
pub(crate) struct Warning(Vec<(usize, Failure)>);

impl Warning {
    /// Warns that a lock was taken without these nodes.
    pub(crate) fn log(self, core: &Core) {
        for (node, failure) in self.0 {
            tracing::warn!(node = core.label(node), "{failure}");
        }
    }

    /// Warns that a lock cannot be taken without these nodes, and is waited for.
    pub(crate) fn log_wait(self, why: impl FnOnce() -> Error) {
        if !self.0.is_empty() {
            tracing::warn!("{}", why());
        }
    }
}

impl Core {
    /// The nodes among `failures` that do not vote, and that no warning was logged for yet.
    pub(crate) fn non_voting<'a>(
        &self,
        failures: impl IntoIterator<Item = (usize, &'a Failure)>,
    ) -> Warning {
        let failures = failures.into_iter();
        let new = failures.filter(|(node, why)| is_non_voting(why) && self.warned.is_new(*node));
        Warning(new.map(|(node, failure)| (node, failure.clone())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_once_until_the_node_votes_again() {
        let warned = WarnedNodes::default();
        assert!(warned.is_new(0) && !warned.is_new(0) && warned.is_new(63));
        warned.votes(1);
        assert!(!warned.is_new(0));
        warned.votes(0);
        assert!(warned.is_new(0) && !warned.is_new(63));
    }
}
