//! The resource that the locks are for, twice: one that checks fences, and one that checks nothing.

use std::collections::BTreeMap;

use crate::trace::{What, Written};

/// A write on its way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write {
    pub(crate) window: u32,
    pub(crate) name: u8,
    pub(crate) sent: u64,
    pub(crate) fence: Option<u64>,
}

/// What was written for each lock.
#[derive(Debug, Default)]
pub(crate) struct Store {
    /// The highest fence that was seen, by lock.
    fences: BTreeMap<u8, u64>,
    /// The latest holder who wrote, by lock: windows are numbered in the order in which they open.
    latest: BTreeMap<u8, u32>,
}

impl Store {
    /// A write arrives. Both take note of it.
    pub(crate) fn apply(&mut self, write: &Write) -> What {
        let Write { window, name, sent, fence } = *write;
        let highest = self.fences.entry(name).or_default();
        let accepted = fence.is_none_or(|fence| fence >= *highest);
        if accepted {
            *highest = fence.unwrap_or_default().max(*highest);
        }
        let latest = self.latest.entry(name).or_default();
        let stale = window < *latest;
        *latest = window.max(*latest);
        What::Written(Written { window, name, sent, fence, accepted, stale })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_write_is_refused_by_its_fence_and_by_nothing_else() {
        let mut store = Store::default();
        let mut write =
            |window, fence| match store.apply(&Write { window, name: 0, sent: 0, fence }) {
                What::Written(Written { accepted, stale, .. }) => (accepted, stale),
                other => panic!("{other:?}"),
            };
        assert_eq!(write(1, Some(10)), (true, false));
        assert_eq!(write(2, Some(11)), (true, false));
        assert_eq!(write(1, Some(10)), (false, true));
        assert_eq!(write(2, Some(11)), (true, false), "the holder writes again");
        assert_eq!(write(1, None), (true, true), "without a fence nothing can be checked");
    }
}
