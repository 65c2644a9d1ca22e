//! Telling once of nodes that are there and cast no vote: they were started or emptied, their clock or
//! their number is wrong, or they serve clients with other settings.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::core::Core;
use crate::error::Error;
use crate::node::{Failure, FailureKind};

/// Of which nodes it was told, until they vote again. So that many locks do not say it many times.
#[derive(Debug, Default)]
pub(crate) struct Told(AtomicU64);

impl Told {
    /// The node has cast a vote.
    pub(crate) fn votes(&self, node: usize) {
        if self.0.load(Ordering::Relaxed) & bit(node) != 0 {
            self.0.fetch_and(!bit(node), Ordering::Relaxed);
        }
    }

    /// Whether it is not known of the node.
    fn is_new(&self, node: usize) -> bool {
        self.0.fetch_or(bit(node), Ordering::Relaxed) & bit(node) == 0
    }
}

/// There are fewer nodes than bits.
fn bit(node: usize) -> u64 {
    u32::try_from(node).ok().and_then(|node| 1u64.checked_shl(node)).unwrap_or(0)
}

/// Whether the node is there and does not want to vote.
fn abstains(failure: &Failure) -> bool {
    matches!(
        failure.kind(),
        FailureKind::Quarantined(_)
            | FailureKind::Clock
            | FailureKind::Unfit
            | FailureKind::OtherSet
            | FailureKind::Number
    )
}

/// What is to be told, once no mutex is held: whoever takes logs in may do anything.
#[must_use = "somebody has to be told"]
pub(crate) struct Warning(Vec<(usize, Failure)>);

impl Warning {
    /// A lock was taken without these nodes.
    pub(crate) fn tell(self, core: &Core) {
        for (node, failure) in self.0 {
            tracing::warn!(node = core.label(node), "{failure}");
        }
    }

    /// A lock cannot be taken for that reason, and is waited for.
    pub(crate) fn tell_of_wait(self, why: impl FnOnce() -> Error) {
        if !self.0.is_empty() {
            tracing::warn!("{}", why());
        }
    }
}

impl Core {
    /// Those of the nodes that cast no vote of which it was not told yet.
    pub(crate) fn abstaining<'a>(
        &self,
        failures: impl IntoIterator<Item = (usize, &'a Failure)>,
    ) -> Warning {
        let failures = failures.into_iter();
        let new = failures.filter(|(node, why)| abstains(why) && self.told.is_new(*node));
        Warning(new.map(|(node, failure)| (node, failure.clone())).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_once_until_the_node_votes_again() {
        let told = Told::default();
        assert!(told.is_new(0) && !told.is_new(0) && told.is_new(63));
        told.votes(1);
        assert!(!told.is_new(0));
        told.votes(0);
        assert!(told.is_new(0) && !told.is_new(63));
    }
}
