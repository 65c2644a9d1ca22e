//! Lists of nodes that differ, and sets that are changed, while everything goes wrong.

use quorlock_simulator::trace::{Trace, What};
use quorlock_simulator::{Dialect, Invariant, Lists, Outcome, Planted, Setup, Step, run};

/// Faults end after 30 s.
const USE: &[Step] = &[Step::Use(45_000)];

/// A list whose majority need not meet that of the others: its last node votes for it already.
const MIXED: Lists = Lists { of: &[&[0, 1, 2], &[0, 1, 2], &[0, 1, 3]], marked: true };

/// The third process has the third node give its place to a new one. The second process has the new list.
const CHANGED: Lists = Lists { of: &[&[0, 1, 2], &[0, 1, 3], &[0, 1, 2]], marked: false };
const CHANGE: &[&[Step]] = &[USE, USE, &[Step::Until(6_000), Step::Replace { old: 2, new: 3 }]];

fn setup(seed: u64, lists: Lists, script: &'static [&'static [Step]]) -> Setup {
    let (lists, script) = (Some(lists), Some(script));
    Setup { nodes: 3, clients: 3, lists, script, ..Setup::new(seed, Dialect::Strict) }
}

fn breaks(outcome: &Outcome) -> Option<String> {
    let promised = [Invariant::Exclusion, Invariant::Fences, Invariant::Records];
    let broken = outcome.violations.iter().find(|it| promised.contains(&it.invariant))?;
    Some(format!("seed {}: {broken:?}\n{}", outcome.setup.seed, outcome.story().join("\n")))
}

/// How often a process got the lock.
fn holds(trace: &Trace, process: u8) -> usize {
    let opened = |what: &What| matches!(what, What::Opened(it) if it.process == process);
    trace.entries().iter().filter(|entry| opened(&entry.what)).count()
}

#[test]
fn a_client_with_another_list_never_gets_in_beside_the_others() {
    let (mut held, mut kept_out) = (0, 0);
    for seed in 1..61 {
        let outcome = run(&setup(seed, MIXED, &[USE, USE, USE]));
        if let Some(broken) = breaks(&outcome) {
            panic!("{broken}");
        }
        held += holds(&outcome.trace, 0);
        kept_out += usize::from(holds(&outcome.trace, 2) == 0);
    }
    assert!(held > 100, "{held}");
    // Where both nodes that the lists share have forgotten at once, the other set may take them.
    assert!(kept_out > 40, "{kept_out}");
}

#[test]
fn nodes_that_serve_every_list_are_caught_within_10_seeds() {
    let caught = (1..11).any(|seed| {
        let planted = Some(Planted::ServesOtherSets);
        let outcome = run(&Setup { planted, ..setup(seed, MIXED, &[USE, USE, USE]) });
        outcome.violations.iter().any(|it| it.invariant == Invariant::Exclusion)
    });
    assert!(caught, "two lists were served, and nobody noticed");
}

#[test]
fn a_set_is_changed_under_faults_and_at_no_time_both_vote() {
    let (mut before, mut after) = (0, 0);
    for seed in 1..61 {
        let outcome = run(&setup(seed, CHANGED, CHANGE));
        if let Some(broken) = breaks(&outcome) {
            panic!("{broken}");
        }
        before += holds(&outcome.trace, 0);
        after += usize::from(holds(&outcome.trace, 1) > 0);
    }
    assert!(before > 100, "{before}");
    // Faults keep a change from its end for as long as they last.
    assert!(after > 30, "{after}");
}
