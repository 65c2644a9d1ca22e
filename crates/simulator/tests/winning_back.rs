//! Nodes that count again for the holder of a lock.

use quorlock_simulator::trace::What;
use quorlock_simulator::{Dialect, Fault, FaultKind, Plan, Setup, Step, run_plan};

const MS: u64 = 1_000_000;

/// One node grants nothing while the lock is taken, and can do so again before the first extension: then another one has
/// a clock that is off. A client that comes between this extension and the next would get the free node, and keep it.
#[test]
fn a_node_that_did_not_vote_when_a_lock_was_taken_is_won_back_with_the_first_extension() {
    const SCRIPT: &[&[Step]] = &[
        &[
            Step::Until(100),
            Step::Take,
            Step::Release,
            Step::Until(300),
            Step::Take,
            Step::Until(6_000),
            Step::Release,
        ],
        &[Step::Until(1_000), Step::Take, Step::Release],
    ];
    let fault = |at_ms: u64, lasts_ms: u64, kind| {
        let (at, lasts) = (at_ms * MS, lasts_ms * MS);
        Fault { at, lasts, kind }
    };
    let silenced = FaultKind::Poison { node: 2, fence: 1 << 53 };
    let off = FaultKind::Excursion { node: 1, by: 2_000_000_000 };
    let plan = Plan::of(vec![fault(200, 300, silenced), fault(800, 8_000, off)]);
    for seed in 1..9 {
        let (nodes, clients, script) = (3, 2, Some(SCRIPT));
        let setup = Setup { nodes, clients, script, ..Setup::new(seed, Dialect::Strict) };
        let outcome = run_plan(&setup, plan.clone());
        assert_eq!(outcome.violations, [], "seed {seed}");
        let is_loss = |what: &What| matches!(what, What::LossSignal { .. });
        let lost = outcome.trace.entries().iter().any(|entry| is_loss(&entry.what));
        assert!(!lost, "seed {seed}: the holder has lost its lock");
        assert_eq!(outcome.acquisitions, 3, "seed {seed}");
    }
}
