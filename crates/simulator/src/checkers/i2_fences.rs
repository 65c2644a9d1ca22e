//! I2: fences increase in the order of acquisition.

use std::collections::BTreeMap;

use super::windows::Forced;
use super::{Invariant, Violation};
use crate::trace::{Trace, What};

pub(super) fn check(trace: &Trace) -> Vec<Violation> {
    let mut found = Vec::new();
    // The highest fence of each lock, and whose it is.
    let mut highest: BTreeMap<u16, (u64, u32)> = BTreeMap::new();
    let mut forced = Forced::default();
    for entry in trace.entries() {
        let is_forced = forced.see(entry);
        let What::Opened(opened) = entry.what else { continue };
        let Some(fence) = opened.fence else { continue };
        if opened.until <= entry.at || is_forced {
            // It was over, or was taken away, before its holder heard of it.
            continue;
        }
        if let Some((before, of)) = highest.get(&opened.name)
            && fence <= *before
            && *of != opened.holding
        {
            let text = format!(
                "process {} gets lock {} with fence {fence}, and {before} was given before",
                opened.process, opened.name
            );
            found.push(Violation { invariant: Invariant::Fences, at: entry.at, text });
        }
        let best = highest.entry(opened.name).or_insert((fence, opened.holding));
        if fence >= best.0 {
            *best = (fence, opened.holding);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Entry, Opened};

    fn found(fences: &[(u64, u32)]) -> usize {
        let opened = |(index, (fence, holding)): (usize, &(u64, u32))| {
            let opened = Opened {
                window: index as u32,
                process: 0,
                name: 0,
                holding: *holding,
                until: u64::MAX,
                fence: Some(*fence),
                heeds: false,
                renewed: false,
            };
            Entry { at: index as u64, what: What::Opened(opened) }
        };
        check(&Trace::of(fences.iter().enumerate().map(opened).collect())).len()
    }

    #[test]
    fn a_fence_that_does_not_grow_is_found() {
        assert_eq!(found(&[(1, 1), (5, 2), (6, 3)]), 0);
        assert_eq!(found(&[(1, 1), (5, 2), (5, 3)]), 1, "given twice");
        assert_eq!(found(&[(1, 1), (5, 2), (4, 3), (6, 4)]), 1, "smaller");
        assert_eq!(found(&[(5, 1), (5, 1)]), 0, "again by its owner");
    }
}
