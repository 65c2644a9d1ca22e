//! The shortest way to the same broken promise.

use crate::checkers::Invariant;
use crate::nemesis::Plan;
use crate::run::{Outcome, run_plan};

/// More runs than this are not worth it.
const MOST_RUNS: u32 = 400;

/// Leaves out whatever is not needed for the first broken promise of a run: the time after it, and
/// faults, many at first and then one by one.
#[must_use]
pub fn shrink(outcome: Outcome) -> Outcome {
    let Some(first) = outcome.violations.first() else { return outcome };
    let mut search = Search { invariant: first.invariant, runs: 0, best: outcome };
    search.cut_the_end();
    let mut size = search.best.plan.faults.len().div_ceil(2);
    while size > 0 {
        let mut from = 0;
        while from < search.best.plan.faults.len() {
            if !search.leave_out(from, size) {
                from += size;
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    search.cut_the_end();
    search.best
}

struct Search {
    invariant: Invariant,
    runs: u32,
    best: Outcome,
}

impl Search {
    /// Runs it otherwise, and keeps that if the promise is broken all the same.
    fn attempt(&mut self, horizon: u64, plan: Plan) -> bool {
        if self.runs == MOST_RUNS {
            return false;
        }
        self.runs += 1;
        let mut setup = self.best.setup.clone();
        setup.horizon = horizon;
        let outcome = run_plan(&setup, plan);
        let broken = outcome.violations.iter().any(|it| it.invariant == self.invariant);
        if broken {
            self.best = outcome;
        }
        broken
    }

    fn cut_the_end(&mut self) {
        let found = self.best.violations.iter().find(|it| it.invariant == self.invariant);
        let Some(end) = found.map(|it| it.at + 1_000_000) else { return };
        if end < self.best.setup.horizon {
            let faults = self.best.plan.faults.iter().filter(|fault| fault.at < end);
            let plan = Plan::of(faults.copied().collect());
            self.attempt(end, plan);
        }
    }

    fn leave_out(&mut self, from: usize, count: usize) -> bool {
        let mut plan = self.best.plan.clone();
        let to = (from + count).min(plan.faults.len());
        plan.faults.drain(from..to);
        self.attempt(self.best.setup.horizon, plan)
    }
}
