//! The three-way split. Three clients ask at the same time, each of them nearest to another node,
//! so that each has one vote and none a majority. They yield by their ticket numbers, and
//! one after the other gets the lock.

use super::{Scenario, fault};
use crate::nemesis::FaultKind;
use crate::setup::Step;

/// It.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "three-way-split",
    title: "The three-way split",
    about: "Three clients ask at the same time, each of them nearest to another node, so that \
            each has one vote and nobody a majority. They yield by their ticket numbers, \
            and one after the other gets the lock.",
    nodes: 3,
    clients: 3,
    script: &[
        &[Step::Until(100), Step::Take, Step::For(300), Step::Release],
        &[Step::Until(100), Step::Take, Step::For(300), Step::Release],
        &[Step::Until(100), Step::Take, Step::For(300), Step::Release],
    ],
    plan: || {
        let ways = (0..3).flat_map(|process| (0..3).map(move |node| (process, node)));
        let far = ways.filter(|(process, node)| process != node);
        let slow = |(process, node)| FaultKind::Delay { process, node, by: 20_000_000 };
        far.map(|way| fault(90, 300, slow(way))).collect()
    },
    lasts_ms: 2_000,
    redlock_breaks: None,
};
