//! The long pause. A holder is stopped in the middle of its work, for longer than its lock lasts.
//! Another takes the lock and writes. Then the first goes on, and writes as if nothing had
//! happened: no lock can prevent that. The resource that checks fences refuses it; the one that
//! checks nothing takes it in.

use super::{Scenario, fault};
use crate::nemesis::FaultKind;
use crate::setup::Step;

/// It.
pub(super) const SCENARIO: Scenario = Scenario {
    name: "long-pause",
    title: "The long pause",
    about: "A holder is stopped in the middle of its work, for longer than its lock lasts. \
            Another takes the lock and writes. Then the first goes on, and writes as if nothing \
            had happened: no lock can prevent that. The resource that checks fences refuses it; \
            the one that checks nothing takes it in.",
    nodes: 3,
    clients: 2,
    script: &[
        &[
            Step::Until(100),
            Step::Take,
            Step::Until(300),
            Step::Write,
            Step::Until(7_000),
            Step::Write,
            Step::Release,
        ],
        &[
            Step::Until(200),
            Step::Take,
            Step::Write,
            Step::Until(6_500),
            Step::Write,
            Step::Until(7_500),
            Step::Release,
        ],
    ],
    plan: || vec![fault(400, 6_500, FaultKind::Pause { process: 0 })],
    lasts_ms: 8_000,
    redlock_breaks: None,
};
