//! What is checked, and what has to come of it.

use super::check::{LEASES_END, NO_EARLY_MEMBER, ONE_SET, STAYS_IN_FORCE};
use super::setup::{Bounds, Setup, Variant};
use super::trace::tell;
use crate::cases::Expected;
use crate::outcome::{Outcome, run};

/// One version of the rules, within bounds that show something of it.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What it is called.
    pub name: &'static str,
    /// Which version.
    pub variant: Variant,
    /// How far to go.
    pub bounds: Bounds,
    /// What has to come of it.
    pub expected: Expected,
}

impl Case {
    /// Runs the checker.
    #[must_use]
    pub fn check(&self) -> Outcome {
        let setup = |question| Setup { variant: self.variant, bounds: self.bounds, question };
        run(self.expected, setup, tell)
    }
}

/// All cases: those in which the rules hold, then each rule left out. `full` goes further with the
/// former, in some minutes on two processors.
#[must_use]
pub fn all(full: bool) -> Vec<Case> {
    let mut all = holding(full);
    if full {
        all.push(RETURN);
    }
    all.extend(WRONG);
    all
}

fn holding(full: bool) -> Vec<Case> {
    let holds = |name, variant, small, large| Case {
        name,
        variant,
        bounds: if full { large } else { small },
        expected: Expected::Holds,
    };
    let rules = |name, small, large| holds(name, Variant::Rules, small, large);
    // From new nodes in place of a formed set, with more that forget.
    let further = |bounds| Bounds { faults: 2, formed_at_start: false, ..bounds };
    vec![
        rules("members: replace", Bounds::REPLACE, further(Bounds::REPLACE)),
        rules("members: add", Bounds::ADD, further(Bounds::ADD)),
        rules("members: remove", Bounds::REMOVE, further(Bounds::REMOVE)),
        rules(
            "members: a single node gets a second",
            Bounds { faults: 3, formed_at_start: false, ..Bounds::GROW },
            Bounds { faults: 4, formed_at_start: false, ..Bounds::GROW },
        ),
        rules(
            "members: finer time",
            Bounds { life: 2, quarantine: 5, ..Bounds::REMOVE },
            Bounds { life: 2, quarantine: 5, ..Bounds::REPLACE },
        ),
        rules(
            "members: one change after another",
            Bounds { faults: 0, ..IN_A_ROW },
            Bounds { faults: 1, ..IN_A_ROW },
        ),
        rules(
            "members: a change and its reverse",
            Bounds { sets: Bounds::GROW.sets, ..REVERSED },
            Bounds { restored: false, ..REVERSED },
        ),
        rules("members: two changes at once", Bounds { restored: false, ..AT_ONCE }, AT_ONCE),
        rules(
            "members: two changes at once, five nodes",
            Bounds { faults: 0, ..AT_ONCE_OF_FIVE },
            AT_ONCE_OF_FIVE,
        ),
        rules(
            "members: clients with other lists",
            Bounds { changes: &[], formed_at_start: false, ..Bounds::REPLACE },
            Bounds { changes: &[], ..further(Bounds::REPLACE) },
        ),
        rules("members: other lists beside a formed set", OTHER_LISTS, OTHER_LISTS),
        // All members carry the new set for a quarantine after the last extension.
        holds(
            "members: closed nodes extend",
            Variant::ClosedNodesExtend,
            Bounds::REPLACE,
            Bounds { faults: 2, ..Bounds::REPLACE },
        ),
        // An operator who insists may close those too.
        holds(
            "members: blank nodes are closed",
            Variant::ClosesBlankNodes,
            Bounds::REPLACE,
            AT_ONCE,
        ),
    ]
}

/// {a,b,c} becomes {a,b,c,d}, and that {a,b,d}.
const IN_A_ROW: Bounds =
    Bounds { sets: &[0b0111, 0b1111, 0b1011], changes: &[(0, 1), (1, 2)], ..Bounds::REPLACE };

/// {a,b,c} becomes {a,b,d}, and that {b,c,d}: c returns without having been emptied. No smaller
/// bounds have a third set for it to return to.
const RETURN: Case = Case {
    name: "members: any closed node is taken in",
    variant: Variant::TakesAnyClosedNode,
    bounds: Bounds { sets: &[0b0111, 0b1011, 0b1110], faults: 0, ..IN_A_ROW },
    expected: Expected::Holds,
};

/// {a,b,c} becomes {a,b,d}, and that {a,b,c}, again and again.
const REVERSED: Bounds = Bounds { changes: &[(0, 1), (1, 0)], ..Bounds::REPLACE };

/// {a,b,c} becomes {a,b,d} or {b,c}.
const AT_ONCE: Bounds =
    Bounds { sets: &[0b0111, 0b1011, 0b0110], changes: &[(0, 1), (0, 2)], ..Bounds::REPLACE };

/// {a,b,c} becomes {a,b,d} or {b,c,e}.
const AT_ONCE_OF_FIVE: Bounds = Bounds { sets: &[0b0_0111, 0b0_1011, 0b1_0110], ..AT_ONCE };

/// {a,b,c} has formed, and there are clients of {a,b,d} and of {c,d,e}.
const OTHER_LISTS: Bounds =
    Bounds { sets: &[0b0_0111, 0b0_1011, 0b1_1100], changes: &[], faults: 0, ..Bounds::REPLACE };

const WRONG: [Case; 14] = [
    wrong("members: forms by a majority", Variant::FormsByMajority, Bounds::REPLACE, ONE_SET),
    wrong("members: forms at once", Variant::FormsAtOnce, Bounds::REMOVE, LEASES_END),
    wrong("members: taken back by one", Variant::TakenBackByOne, Bounds::REPLACE, ONE_SET),
    wrong("members: joins by itself", Variant::JoinsByItself, Bounds::REPLACE, ONE_SET),
    wrong("members: takes open nodes", Variant::TakesOpenNodes, OTHER_LISTS, STAYS_IN_FORCE),
    wrong("members: unnamed instance", Variant::UnnamedInstance, Bounds::REMOVE, NO_EARLY_MEMBER),
    wrong(
        "members: unnamed run of the server",
        Variant::UnnamedRun,
        Bounds::REMOVE,
        NO_EARLY_MEMBER,
    ),
    wrong("members: views of any age", Variant::OldViews, Bounds::REPLACE, ONE_SET),
    // Twice the time for which a client acts on what it has read is not less than the quarantine.
    wrong("members: short quarantine", Variant::Rules, Bounds { faults: 2, ..SHORT }, ONE_SET),
    wrong(
        "members: forming nodes extend",
        Variant::FormingNodesExtend,
        Bounds::REPLACE,
        LEASES_END,
    ),
    wrong("members: unchosen change", Variant::UnchosenChange, EMPTIED, ONE_SET),
    wrong("members: ungrounded change", Variant::UngroundedChange, RESTORED, ONE_SET),
    // These cannot be noticed, and are documented.
    wrong("members: lists that share a node that forgot", Variant::Rules, FORGOTTEN, ONE_SET),
    wrong("members: lists that share no node", Variant::Rules, APART, ONE_SET),
];

const EMPTIED: Bounds = Bounds { restored: false, ..AT_ONCE };

const RESTORED: Bounds = Bounds { emptied: false, ..AT_ONCE };

const SHORT: Bounds = Bounds { life: 1, quarantine: 2, restored: false, ..Bounds::REPLACE };

/// {a,b,c} and {c,d,e}, and a node may forget.
const FORGOTTEN: Bounds =
    Bounds { sets: &[0b0_0111, 0b1_1100], faults: 1, restored: false, ..OTHER_LISTS };

/// {a,b} and {c}.
const APART: Bounds = Bounds { sets: &[0b011, 0b100], ..OTHER_LISTS };

const fn wrong(
    name: &'static str,
    variant: Variant,
    bounds: Bounds,
    property: &'static str,
) -> Case {
    Case { name, variant, bounds, expected: Expected::Breaks(property) }
}
