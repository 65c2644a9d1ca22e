//! The slow minority. Two of five nodes take 400 ms to answer. Nobody waits for them: a majority of
//! three is enough, for taking the lock, for extending it and for giving it back.

use super::{Scenario, fault};
use crate::nemesis::FaultKind;
use crate::setup::Step;

/// It.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "slow-minority",
    title: "The slow minority",
    about: "Two of five nodes take 400 ms to answer. Nobody waits for them: a majority of three \
            is enough, for taking the lock, for extending it and for giving it back.",
    nodes: 5,
    clients: 2,
    script: &[
        &[Step::Until(200), Step::Take, Step::Until(900), Step::Release],
        &[Step::Until(300), Step::Take, Step::Until(1_500), Step::Release],
    ],
    plan: || {
        vec![
            fault(100, 1_700, FaultKind::Slow { node: 3, by: 400_000_000 }),
            fault(100, 1_700, FaultKind::Slow { node: 4, by: 400_000_000 }),
        ]
    },
    lasts_ms: 2_500,
    redlock_breaks: None,
};
