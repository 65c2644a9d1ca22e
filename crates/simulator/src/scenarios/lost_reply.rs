//! The lost reply. All nodes grant the lock, and no reply comes back. The client cannot know: it
//! gives the lock back on all nodes, and tries again. Nothing is left behind that would keep the
//! next one waiting.

use super::{Scenario, fault};
use crate::nemesis::FaultKind;
use crate::setup::Step;

/// It.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "lost-reply",
    title: "The lost reply",
    about: "All nodes grant the lock, and no reply comes back. The client cannot know: it gives \
            the lock back on all nodes, and tries again. Nothing is left behind that would keep \
            the next one waiting.",
    nodes: 3,
    clients: 2,
    script: &[
        &[Step::Until(100), Step::Take, Step::Until(900), Step::Release],
        &[Step::Until(1_000), Step::Take, Step::Until(1_500), Step::Release],
    ],
    plan: || {
        vec![fault(
            95,
            300,
            FaultKind::Cut { processes: 0b01, nodes: 0b111, up: false, down: true },
        )]
    },
    lasts_ms: 2_000,
    redlock_breaks: None,
};
