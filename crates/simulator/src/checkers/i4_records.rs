//! I4: no vote inside quarantine, and the end of a record never comes nearer while it is owned.

use std::collections::BTreeMap;

use super::{Invariant, Violation};
use crate::trace::{Executed, Reply, Trace, VerbKind, What};

pub(super) fn check(trace: &Trace) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut quarantine: BTreeMap<u8, u64> = BTreeMap::new();
    for entry in trace.entries() {
        let mut violated = |text| {
            found.push(Violation { invariant: Invariant::Records, at: entry.at, text });
        };
        match entry.what {
            What::Quarantined { node, until } => {
                quarantine.insert(node, until);
            }
            What::Executed(Executed { node, verb, reply, clock, before, after, .. }) => {
                let votes = matches!(verb, VerbKind::Acquire | VerbKind::Wait);
                let until = quarantine.get(&node).copied().unwrap_or_default();
                if votes && reply == Reply::Done && clock < until {
                    violated(format!("node {node} votes while it may have forgotten"));
                }
                if before.token != 0 && before.token == after.token && after.until < before.until {
                    violated(format!("node {node} keeps a record for less than it had promised"));
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Entry, Kept};

    fn executed(clock: u64, before: Kept, after: Kept) -> What {
        What::Executed(Executed {
            request: 1,
            node: 0,
            process: 0,
            sent: 0,
            verb: VerbKind::Acquire,
            name: 0,
            token: 7,
            reply: Reply::Done,
            clock,
            before,
            after,
        })
    }

    fn found(whats: Vec<What>) -> usize {
        let entries = whats.into_iter().map(|what| Entry { at: 0, what });
        check(&Trace::of(entries.collect())).len()
    }

    const OURS: Kept = Kept { token: 7, until: 100 };

    #[test]
    fn a_vote_inside_quarantine_is_found() {
        let quarantine = What::Quarantined { node: 0, until: 50 };
        assert_eq!(found(vec![quarantine, executed(49, Kept::default(), OURS)]), 1);
        assert_eq!(found(vec![quarantine, executed(50, Kept::default(), OURS)]), 0);
    }

    #[test]
    fn a_record_that_is_cut_short_is_found() {
        let shorter = Kept { token: 7, until: 99 };
        assert_eq!(found(vec![executed(0, OURS, shorter)]), 1);
        assert_eq!(found(vec![executed(0, shorter, OURS)]), 0);
        let anothers = Kept { token: 8, until: 50 };
        assert_eq!(found(vec![executed(0, OURS, anothers)]), 0, "it was passed on");
    }
}
