//! The suspended laptop. The machine of a holder is suspended. Its timers stand still; the clock
//! that the lock goes by does not. When it wakes up the holder is notified within a second that the
//! lock is lost, and nothing that asks before that gets another answer.

use super::{Scenario, fault};
use crate::nemesis::FaultKind;
use crate::setup::Step;

/// It.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "suspended-laptop",
    title: "The suspended laptop",
    about: "The machine of a holder is suspended. Its timers stand still; the clock that the \
            lock goes by does not. When it wakes up the holder is told within a second that the \
            lock is lost, and nothing that asks before that is told otherwise.",
    nodes: 3,
    clients: 2,
    script: &[
        &[Step::Until(100), Step::Take, Step::Until(5_900), Step::Release],
        &[Step::Until(300), Step::Take, Step::Until(5_500), Step::Release],
    ],
    plan: || vec![fault(500, 4_500, FaultKind::Suspend { process: 0 })],
    lasts_ms: 7_000,
    redlock_breaks: None,
};
