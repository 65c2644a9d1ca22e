//! The partition. A holder is cut off from all nodes but one. It cannot extend its lock any more,
//! and is notified of the loss in time to stop; only then another, on the side of the majority, gets
//! the lock.

use super::{Scenario, cut, fault};
use crate::setup::Step;

/// It.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "partition",
    title: "The partition",
    about: "A holder is cut off from all nodes but one. It cannot extend its lock any more, and \
            is told of the loss in time to stop; only then another, on the side of the majority, \
            gets the lock.",
    nodes: 3,
    clients: 2,
    script: &[
        &[
            Step::Until(100),
            Step::Take,
            Step::Until(300),
            Step::Write,
            Step::Until(3_500),
            Step::Release,
        ],
        &[
            Step::Until(600),
            Step::Take,
            Step::Until(4_000),
            Step::Write,
            Step::Until(4_200),
            Step::Release,
        ],
    ],
    plan: || vec![fault(500, 4_000, cut(0b01, 0b110))],
    lasts_ms: 5_000,
    redlock_breaks: None,
};
