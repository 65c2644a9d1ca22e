//! I3: a store that checks fences accepts no stale write.

use super::{Invariant, Violation};
use crate::trace::{Trace, What, Written};

pub(super) fn check(trace: &Trace) -> Vec<Violation> {
    let mut found = Vec::new();
    for entry in trace.entries() {
        if let What::Written(written) = entry.what
            && let Written { window, fence: Some(_), accepted: true, stale: true, .. } = written
        {
            let text = format!("a write of window {window} after one of a later holder");
            found.push(Violation { invariant: Invariant::Store, at: entry.at, text });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Entry, Opened};

    #[test]
    fn a_late_write_that_is_accepted_is_found() {
        let opened = |window| {
            let (name, holding, until, fence) = (0, window, u64::MAX, Some(u64::from(window)));
            let (process, heeds, renewed) = (0, false, false);
            What::Opened(Opened { window, process, name, holding, until, fence, heeds, renewed })
        };
        let written = |window, accepted| {
            let fence = Some(u64::from(window));
            What::Written(Written { window, name: 0, sent: 0, fence, accepted, stale: false })
        };
        let found = |last| {
            let whats = [opened(1), written(1, true), opened(2), written(2, true), last];
            let entries =
                whats.into_iter().enumerate().map(|(at, what)| Entry { at: at as u64, what });
            check(&Trace::of(entries.collect())).len()
        };
        assert_eq!(found(written(1, true)), 1);
        assert_eq!(found(written(1, false)), 0, "it was refused");
        assert_eq!(found(written(2, true)), 0, "of the present holder");
    }
}
