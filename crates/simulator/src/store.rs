//! The resource that the locks are for, twice: one that checks fences, and one that checks nothing.

use std::collections::BTreeMap;

use crate::checkers::windows::Forced;
use crate::trace::{Entry, What, Written};

/// A write on its way.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write {
    pub(crate) window: u32,
    pub(crate) name: u16,
    pub(crate) sent: u64,
    pub(crate) fence: Option<u64>,
}

/// The highest fence that was seen for each lock.
#[derive(Debug, Default)]
pub(crate) struct Store(BTreeMap<u16, u64>);

impl Store {
    /// A write arrives. Whether it is late shows only when all is over: see [`mark_late`].
    pub(crate) fn apply(&mut self, write: &Write) -> What {
        let Write { window, name, sent, fence } = *write;
        let highest = self.0.entry(name).or_default();
        let accepted = fence.is_none_or(|fence| fence >= *highest);
        if accepted {
            *highest = fence.unwrap_or_default().max(*highest);
        }
        What::Written(Written { window, name, sent, fence, accepted, stale: false })
    }
}

/// Marks the writes that come after one of a later holder, in a trace that is in the order of time.
pub(crate) fn mark_late(entries: &mut [Entry]) {
    // When the holder of each window came. What one owner takes twice is held once.
    let mut came: BTreeMap<u32, usize> = BTreeMap::new();
    let mut holdings: BTreeMap<u32, usize> = BTreeMap::new();
    let mut latest: BTreeMap<u16, usize> = BTreeMap::new();
    let mut forced = Forced::default();
    for (index, entry) in entries.iter_mut().enumerate() {
        let is_forced = forced.see(entry);
        match &mut entry.what {
            // One that was over, or was taken away, before its holder heard of it has no place in the order
            // of time.
            What::Opened(opened) if opened.until > entry.at && !is_forced => {
                let first = *holdings.entry(opened.holding).or_insert(index);
                came.insert(opened.window, first);
            }
            What::Written(Written { window, name, stale, .. }) => {
                let Some(writer) = came.get(window).copied() else { continue };
                let last = latest.entry(*name).or_insert(writer);
                *stale = writer < *last;
                *last = writer.max(*last);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Opened, Trace};

    #[test]
    fn a_write_with_a_lower_fence_is_refused() {
        let mut store = Store::default();
        let mut accepted = |fence| match store.apply(&Write { window: 1, name: 0, sent: 0, fence })
        {
            What::Written(Written { accepted, .. }) => accepted,
            other => panic!("{other:?}"),
        };
        assert!(accepted(Some(10)));
        assert!(accepted(Some(11)));
        assert!(!accepted(Some(10)));
        assert!(accepted(Some(11)), "the holder writes again");
        assert!(accepted(None), "without a fence nothing can be checked");
    }

    #[test]
    fn a_write_after_one_of_a_later_holder_is_late() {
        let opened = |window, holding, until| {
            let (process, name, fence, heeds, renewed) = (0, 0, None, false, false);
            What::Opened(Opened { window, process, name, holding, until, fence, heeds, renewed })
        };
        let written = |window| {
            let (name, sent, fence, accepted, stale) = (0, 0, None, true, false);
            What::Written(Written { window, name, sent, fence, accepted, stale })
        };
        let is_late = |whats: &[What]| {
            let entries = whats.iter().zip(1..).map(|(what, at)| Entry { at, what: *what });
            let trace = Trace::of(entries.collect());
            let last = trace.entries().last().expect("there are some").what;
            matches!(last, What::Written(Written { stale: true, .. }))
        };
        let (first, second) = (opened(1, 1, 99), opened(2, 2, 99));
        assert!(is_late(&[first, second, written(2), written(1)]));
        assert!(!is_late(&[first, second, written(1), written(2)]));
        assert!(!is_late(&[first, second, written(1)]), "the later one has written nothing yet");
        let again = opened(2, 1, 99);
        assert!(!is_late(&[first, again, written(2), written(1)]), "both are of one holder");
        let over = opened(2, 2, 1);
        assert!(!is_late(&[first, over, written(2), written(1)]), "it was over before it began");
    }
}
