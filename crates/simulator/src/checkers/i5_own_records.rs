//! I5: confirm, extend and release change only their own records, no client takes one that is owned, and
//! none stores again what that node has not granted to it.

use std::collections::BTreeSet;

use super::{Invariant, Violation};
use crate::trace::{Executed, Trace, VerbKind, What};

pub(super) fn check(trace: &Trace) -> Vec<Violation> {
    let mut found = Vec::new();
    // Which tokens each node has had records of. That a holder asks for it in time cannot be seen here:
    // it may have stood still between its look at the clock and the first byte.
    let mut had: BTreeSet<(u8, u64)> = BTreeSet::new();
    for entry in trace.entries() {
        let What::Executed(Executed { node, process, verb, token, before, after, .. }) = entry.what
        else {
            continue;
        };
        let known = had.contains(&(node, token));
        had.insert((node, after.token));
        if before == after {
            continue;
        }
        let own = before.token == token;
        let free = before.token == 0;
        let (allowed, does) = match verb {
            VerbKind::Acquire => (free || own, "takes"),
            VerbKind::Wait => (free || own, "takes or passes on"),
            VerbKind::Extend => (own && after.token == token, "extends"),
            VerbKind::Heal => ((own || free && known) && after.token == token, "stores again"),
            VerbKind::WinBack => ((own || free) && after.token == token, "wins back"),
            VerbKind::Confirm => (own && after.token == token, "confirms"),
            // One that has expired and is its own all the same may be passed on.
            VerbKind::Release => (own || free, "releases"),
            VerbKind::Look => (true, "looks at"),
        };
        if !allowed {
            let text = format!("process {process} {does} a record on node {node} that is not its");
            found.push(Violation { invariant: Invariant::OwnRecords, at: entry.at, text });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Entry, Kept, Reply};

    fn executed(at: u64, verb: VerbKind, before: Kept, after: Kept) -> Entry {
        let executed = Executed {
            request: 1,
            node: 0,
            process: 0,
            sent: 0,
            verb,
            name: 0,
            token: 7,
            reply: Reply::Done,
            clock: 0,
            before,
            after,
        };
        Entry { at, what: What::Executed(executed) }
    }

    fn of(token: u64) -> Kept {
        Kept { token, until: 10, fence: 1 }
    }

    fn count(entries: Vec<Entry>) -> usize {
        check(&Trace::of(entries)).len()
    }

    fn found(verb: VerbKind, before: u64, after: u64) -> usize {
        count(vec![executed(0, verb, of(before), of(after))])
    }

    #[test]
    fn a_client_that_touches_the_record_of_another_is_found() {
        for verb in [VerbKind::Acquire, VerbKind::Wait, VerbKind::Release] {
            assert_eq!((found(verb, 8, 0), found(verb, 7, 8)), (1, 0), "{verb:?}");
        }
        for verb in [VerbKind::Extend, VerbKind::Confirm] {
            assert_eq!((found(verb, 8, 7), found(verb, 0, 7)), (1, 1), "{verb:?} creates one");
        }
        assert_eq!(found(VerbKind::Acquire, 0, 7), 0);
        assert_eq!(found(VerbKind::Release, 8, 8), 0, "nothing was changed");
    }

    #[test]
    fn a_fence_that_is_raised_for_somebody_else_is_found() {
        let raised = |token| Kept { fence: 2, ..of(token) };
        let confirm = VerbKind::Confirm;
        assert_eq!(count(vec![executed(0, confirm, of(7), raised(7))]), 0);
        assert_eq!(count(vec![executed(0, confirm, of(8), raised(8))]), 1);
    }

    #[test]
    fn a_client_that_stores_again_what_it_never_had_there_is_found() {
        let heal = executed(2, VerbKind::Heal, of(0), of(7));
        assert_eq!(count(vec![heal]), 1, "never");
        let granted = executed(1, VerbKind::Acquire, of(0), of(7));
        assert_eq!(count(vec![granted, heal]), 0);
    }
}
