//! I10: after all guards are gone and every TTL has passed, no record, task or subscription is left.

use super::{Invariant, Violation};
use crate::trace::{Trace, What};

pub(super) fn check(trace: &Trace) -> Vec<Violation> {
    let left = trace.entries().iter().filter_map(|entry| match entry.what {
        What::Leftover { kind, count } if count > 0 => Some(Violation {
            invariant: Invariant::Leftovers,
            at: entry.at,
            text: format!("{count} left of {kind:?}"),
        }),
        _ => None,
    });
    left.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Entry, Leftover};

    #[test]
    fn what_is_left_is_found() {
        let found = |count| {
            let what = What::Leftover { kind: Leftover::Record, count };
            check(&Trace::of(vec![Entry { at: 0, what }])).len()
        };
        assert_eq!((found(0), found(1)), (0, 1));
    }
}
