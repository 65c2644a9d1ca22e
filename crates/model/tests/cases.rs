//! The protocol holds within small bounds, and every rule that is left out is missed.

use std::collections::BTreeSet;

use quorlock_model::{Case, Expected, Found, all};

/// Those of a kind, of which there have to be so many.
fn cases(kind: fn(&Case) -> bool, count: usize) -> Vec<Case> {
    let cases: Vec<_> = all(false).into_iter().filter(kind).collect();
    assert_eq!(cases.len(), count);
    cases
}

#[test]
fn the_protocol_holds() {
    for case in cases(|case| case.expected == Expected::Holds, 10) {
        let outcome = case.check();
        assert_eq!(outcome.found, Found::Holds, "{}", case.name);
        // Far fewer would mean that something cannot happen any more.
        assert!(outcome.states > 10_000, "{}: only {} states", case.name, outcome.states);
    }
}

#[test]
fn every_rule_is_missed() {
    for case in cases(|case| case.expected != Expected::Holds, 15) {
        let outcome = case.check();
        assert!(outcome.is(case.expected), "{}: {:?}", case.name, outcome.found);
    }
}

#[test]
fn a_run_that_breaks_a_rule_is_told_from_its_start_to_two_holders() {
    let case = all(false).into_iter().find(|case| case.name == "no quarantine");
    let Found::Broken { run, .. } = case.expect("it is there").check().found else {
        panic!("nothing found");
    };
    let steps: Vec<_> = run.iter().map(|step| step.what.as_str()).collect();
    assert_eq!(steps.len(), 8, "{steps:#?}");
    assert_eq!(steps[0], "at the start");
    assert!(steps.iter().any(|step| step.ends_with("forgets everything")), "{steps:#?}");
    let holders: BTreeSet<_> = run
        .iter()
        .flat_map(|step| &step.after)
        .filter(|part| part.contains("HOLDS THE LOCK"))
        .map(|part| &part[..1])
        .collect();
    assert_eq!(holders, BTreeSet::from(["A", "B"]));
}
