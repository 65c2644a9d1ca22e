//! I7: the same seed gives the same trace.

use super::{Invariant, Violation};
use crate::run::run;
use crate::{Outcome, Setup};

/// Runs a seed twice, and says where the second run differs.
#[must_use]
pub fn check_determinism(setup: &Setup) -> Option<Violation> {
    differs(&run(setup), &run(setup))
}

fn differs(first: &Outcome, second: &Outcome) -> Option<Violation> {
    if first.trace.digest() == second.trace.digest() {
        return None;
    }
    let (first, second) = (first.trace.entries(), second.trace.entries());
    let (at, what) = match first.iter().zip(second).find(|(a, b)| a != b) {
        Some((a, b)) => (a.at, format!("{:?} the first time, and {:?} the second", a.what, b.what)),
        None => (0, format!("{} entries, and {}", first.len(), second.len())),
    };
    Some(Violation { invariant: Invariant::Determinism, at, text: what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;

    #[test]
    fn a_seed_is_one_run_and_two_seeds_are_two() {
        let setup = |seed| Setup { horizon: 5_000_000_000, ..Setup::new(seed, Dialect::Redlock) };
        assert_eq!(check_determinism(&setup(1)), None);
        assert!(differs(&run(&setup(1)), &run(&setup(2))).is_some());
    }
}
