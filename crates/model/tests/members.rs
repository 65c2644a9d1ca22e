//! Two sets of nodes are never in force within small bounds, and every rule that is left out is missed.

use quorlock_model::members::{Case, all};
use quorlock_model::{Expected, Found};

/// Those of a kind, of which there have to be so many.
fn cases(kind: fn(&Case) -> bool, count: usize) -> Vec<Case> {
    let cases: Vec<_> = all(false).into_iter().filter(kind).collect();
    assert_eq!(cases.len(), count);
    cases
}

#[test]
fn the_rules_hold() {
    for case in cases(|case| case.expected == Expected::Holds, 13) {
        let outcome = case.check();
        assert_eq!(outcome.found, Found::Holds, "{}", case.name);
        // Far fewer would mean that something cannot happen any more. Without a change or a fault,
        // nothing can.
        let enough =
            if case.bounds.changes.is_empty() && case.bounds.faults == 0 { 1 } else { 5_000 };
        assert!(outcome.states >= enough, "{}: only {} states", case.name, outcome.states);
    }
}

#[test]
fn every_rule_is_missed() {
    for case in cases(|case| case.expected != Expected::Holds, 14) {
        let outcome = case.check();
        assert!(outcome.is(case.expected), "{}: {:?}", case.name, outcome.found);
    }
}

#[test]
fn a_run_that_breaks_a_rule_is_told_from_its_start_to_two_sets_in_force() {
    let case = all(false).into_iter().find(|case| case.name == "members: joins by itself");
    let Found::Broken { run, .. } = case.expect("it is there").check().found else {
        panic!("nothing found");
    };
    let steps: Vec<_> = run.iter().map(|step| step.what.as_str()).collect();
    assert_eq!(steps.len(), 7, "{steps:#?}");
    assert_eq!(steps[0], "at the start");
    let in_force: Vec<_> = run
        .iter()
        .flat_map(|step| &step.after)
        .filter(|part| part.ends_with("IS IN FORCE"))
        .map(String::as_str)
        .collect();
    assert_eq!(in_force, ["{a,b,c} IS IN FORCE", "{a,b,d} IS IN FORCE"]);
}
