//! The node that restarts empty. One holder has two of three nodes. One of these crashes and comes
//! back with nothing. In the redlock dialect it votes for another at once, and both believe to hold
//! the lock. In the strict dialect it casts no vote until everything that it may have granted has
//! ended.

use super::{Scenario, cut, fault};
use crate::Invariant;
use crate::nemesis::FaultKind;
use crate::setup::Step;

/// It.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "restarts-empty",
    title: "The node that restarts empty",
    about: "One holder has two of three nodes. One of these crashes and comes back with nothing. \
            In the redlock dialect it votes for another at once, and both believe to hold the \
            lock. In the strict dialect it casts no vote until everything that it may have \
            granted has ended.",
    nodes: 3,
    clients: 2,
    script: &[
        &[Step::Until(100), Step::Take, Step::Until(2_500), Step::Release],
        &[Step::Until(1_400), Step::Take, Step::Until(4_900), Step::Release],
    ],
    plan: || {
        vec![
            fault(50, 1_200, cut(0b01, 0b100)),
            fault(1_300, 20, FaultKind::Crash { node: 1, loses: u64::MAX }),
            fault(1_250, 1_500, cut(0b01, 0b110)),
        ]
    },
    lasts_ms: 6_000,
    redlock_breaks: Some(Invariant::Exclusion),
};
