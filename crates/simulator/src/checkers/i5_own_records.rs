//! I5: confirm, extend and release change only their own records, and nobody takes one that is owned.

use super::{Invariant, Violation};
use crate::trace::{Executed, Trace, VerbKind, What};

pub(super) fn check(trace: &Trace) -> Vec<Violation> {
    let mut found = Vec::new();
    for entry in trace.entries() {
        let What::Executed(Executed { node, process, verb, token, before, after, .. }) = entry.what
        else {
            continue;
        };
        if before == after {
            continue;
        }
        let own = before.token == token;
        let free = before.token == 0;
        let (allowed, does) = match verb {
            VerbKind::Acquire => (free || own, "takes"),
            VerbKind::Wait => (free || own, "takes or passes on"),
            VerbKind::Extend => (own && after.token == token, "extends"),
            VerbKind::Heal => ((own || free) && after.token == token, "stores again"),
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

    fn found(verb: VerbKind, before: u64, after: u64) -> usize {
        let kept = |token| Kept { token, until: 10 };
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
            before: kept(before),
            after: kept(after),
        };
        check(&Trace::of(vec![Entry { at: 0, what: What::Executed(executed) }])).len()
    }

    #[test]
    fn whoever_touches_the_record_of_another_is_found() {
        for verb in [VerbKind::Acquire, VerbKind::Wait, VerbKind::Release] {
            assert_eq!((found(verb, 8, 0), found(verb, 7, 8)), (1, 0), "{verb:?}");
        }
        for verb in [VerbKind::Extend, VerbKind::Confirm] {
            assert_eq!((found(verb, 8, 7), found(verb, 0, 7)), (1, 1), "{verb:?} creates one");
        }
        assert_eq!(found(VerbKind::Acquire, 0, 7), 0);
        assert_eq!(found(VerbKind::Release, 8, 8), 0, "nothing was changed");
    }
}
