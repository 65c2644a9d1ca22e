//! I4: no vote inside quarantine, nor in the time after a server may have forgotten for which that
//! was made; and the end of a record never comes nearer while it is owned, unless one of those who share
//! it has let go of it.

use std::collections::BTreeMap;

use super::{Invariant, Violation};
use crate::trace::{Executed, Trace, VerbKind, What};
use crate::{Dialect, Setup};

pub(super) fn check(setup: &Setup, trace: &Trace) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut quarantine: BTreeMap<u8, u64> = BTreeMap::new();
    // Until when in true time votes may be valid that it has forgotten.
    let mut forgotten: BTreeMap<u8, u64> = BTreeMap::new();
    let longest = match setup.dialect {
        Dialect::Redlock => 0,
        Dialect::Strict => setup.max_ttl.as_nanos() as u64,
    };
    for entry in trace.entries() {
        let mut violated = |text| {
            found.push(Violation { invariant: Invariant::Records, at: entry.at, text });
        };
        match entry.what {
            What::Quarantined { node, until } => {
                quarantine.insert(node, until);
            }
            What::Stepped { by } => {
                // What it has forgotten ends earlier by as much.
                let ahead = u64::try_from(by).unwrap_or_default();
                for until in forgotten.values_mut() {
                    *until = until.saturating_sub(ahead);
                }
            }
            What::Forgot { node } => {
                forgotten.insert(node, entry.at + longest);
            }
            What::Executed(Executed { node, verb, clock, before, after, .. }) => {
                let votes = after.token != 0 && after.token != before.token;
                let until = quarantine.get(&node).copied().unwrap_or_default();
                if votes && verb != VerbKind::Heal && clock < until {
                    violated(format!("node {node} votes in its quarantine"));
                }
                let until = forgotten.get(&node).copied().unwrap_or_default();
                if votes && verb != VerbKind::Heal && entry.at < until {
                    violated(format!("node {node} votes while what it forgot may be valid"));
                }
                let shorter = before.token == after.token && after.until < before.until;
                // What is left to others lasts until the latest of their ends.
                if before.token != 0 && shorter && verb != VerbKind::Release {
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
    use crate::trace::{Entry, Kept, Reply};

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
        check(&Setup::new(1, Dialect::Strict), &Trace::of(entries.collect())).len()
    }

    const OURS: Kept = Kept { token: 7, until: 100, fence: 1 };

    #[test]
    fn a_vote_inside_quarantine_is_found() {
        let quarantine = What::Quarantined { node: 0, until: 50 };
        assert_eq!(found(vec![quarantine, executed(49, Kept::default(), OURS)]), 1);
        assert_eq!(found(vec![quarantine, executed(50, Kept::default(), OURS)]), 0);
    }

    #[test]
    fn a_vote_that_comes_too_soon_after_a_loss_of_memory_is_found() {
        let found = |at, dialect| {
            let vote = executed(1 << 60, Kept::default(), OURS);
            let entries =
                vec![Entry { at: 10, what: What::Forgot { node: 0 } }, Entry { at, what: vote }];
            check(&Setup::new(1, dialect), &Trace::of(entries)).len()
        };
        assert_eq!(found(2_000_000_009, Dialect::Strict), 1);
        assert_eq!(found(2_000_000_010, Dialect::Strict), 0);
        assert_eq!(found(11, Dialect::Redlock), 0, "it promises nothing of the kind");
    }

    #[test]
    fn a_record_that_is_cut_short_is_found() {
        let shorter = Kept { until: 99, ..OURS };
        assert_eq!(found(vec![executed(0, OURS, shorter)]), 1);
        assert_eq!(found(vec![executed(0, shorter, OURS)]), 0);
        let anothers = Kept { token: 8, until: 50, fence: 2 };
        assert_eq!(found(vec![executed(0, OURS, anothers)]), 0, "it was passed on");
    }
}
