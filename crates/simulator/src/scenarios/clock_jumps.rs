//! The clock that jumps. One holder has two of three nodes. The clock of one of these jumps ahead,
//! and the record there is over before its time. In the redlock dialect another takes it. In the
//! strict dialect a node whose clock is wrong is not heard.

use super::{Scenario, cut, fault};
use crate::Invariant;
use crate::nemesis::FaultKind;
use crate::setup::Step;

/// It.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "clock-jumps",
    title: "The clock that jumps",
    about: "One holder has two of three nodes. The clock of one of these jumps ahead, and the \
            record there is over before its time. In the redlock dialect another takes it. In \
            the strict dialect a node whose clock is wrong is not heard.",
    nodes: 3,
    clients: 2,
    script: &[
        &[Step::Until(100), Step::Take, Step::Until(2_500), Step::Release],
        &[Step::Until(1_400), Step::Take, Step::Until(4_900), Step::Release],
    ],
    plan: || {
        vec![
            fault(50, 1_200, cut(0b01, 0b100)),
            fault(1_300, 0, FaultKind::Jump { node: 1, by: 4_000_000_000 }),
            fault(1_250, 1_500, cut(0b01, 0b110)),
            fault(4_000, 0, FaultKind::Jump { node: 1, by: 0 }),
        ]
    },
    lasts_ms: 6_000,
    redlock_breaks: Some(Invariant::Exclusion),
};
