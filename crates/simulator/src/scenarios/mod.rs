//! Stories that are worth telling, each in its own file: told in both dialects, side by side.

mod clock_jumps;
mod long_pause;
mod lost_reply;
mod partition;
mod restarts_empty;
mod slow_minority;
mod suspended_laptop;
mod three_way_split;

use crate::checkers::Invariant;
use crate::nemesis::{Fault, FaultKind, Plan};
use crate::run::{Outcome, run_plan};
use crate::setup::{Dialect, Setup, Step};

/// A story.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its title.
    pub title: &'static str,
    /// What it shows.
    pub about: &'static str,
    nodes: usize,
    clients: usize,
    script: &'static [&'static [Step]],
    plan: fn() -> Vec<Fault>,
    lasts_ms: u64,
    /// The promise that the redlock dialect cannot keep in it.
    pub redlock_breaks: Option<Invariant>,
}

/// All of them.
pub const SCENARIOS: [Scenario; 8] = [
    long_pause::SCENARIO,
    restarts_empty::SCENARIO,
    clock_jumps::SCENARIO,
    lost_reply::SCENARIO,
    three_way_split::SCENARIO,
    partition::SCENARIO,
    slow_minority::SCENARIO,
    suspended_laptop::SCENARIO,
];

/// The one with this name.
#[must_use]
pub fn scenario(name: &str) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|scenario| scenario.name == name)
}

impl Scenario {
    /// Plays it.
    #[must_use]
    pub fn play(&self, dialect: Dialect) -> Outcome {
        let setup = Setup {
            nodes: self.nodes,
            clients: self.clients,
            horizon: self.lasts_ms * 1_000_000,
            script: Some(self.script),
            ..Setup::new(1, dialect)
        };
        run_plan(&setup, Plan::of((self.plan)()))
    }
}

fn fault(at_ms: u64, lasts_ms: u64, kind: FaultKind) -> Fault {
    Fault { at: at_ms * 1_000_000, lasts: lasts_ms * 1_000_000, kind }
}

/// Everything between these processes and these nodes, as bits, is held back.
fn cut(processes: u8, nodes: u8) -> FaultKind {
    FaultKind::Cut { processes, nodes, up: true, down: true }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Opened, What, Written};

    fn whats(name: &str, dialect: Dialect) -> Vec<(u64, What)> {
        let outcome = scenario(name).expect("a scenario").play(dialect);
        outcome.trace.entries().iter().map(|entry| (entry.at / 1_000_000, entry.what)).collect()
    }

    fn opened(name: &str, dialect: Dialect) -> Vec<(u64, u8)> {
        let whats = whats(name, dialect).into_iter();
        let opened = whats.filter_map(|(at, what)| match what {
            What::Opened(Opened { process, .. }) => Some((at, process)),
            _ => None,
        });
        opened.collect()
    }

    #[test]
    fn strict_keeps_all_promises_and_redlock_those_it_makes() {
        for scenario in &SCENARIOS {
            let strict = scenario.play(Dialect::Strict);
            assert_eq!(strict.violations, [], "{}", scenario.name);
            let redlock = scenario.play(Dialect::Redlock).violations;
            let broken = redlock.first().map(|violation| violation.invariant);
            assert_eq!(broken, scenario.redlock_breaks, "{}: {redlock:?}", scenario.name);
        }
    }

    #[test]
    fn everybody_gets_the_lock_in_every_story() {
        for scenario in &SCENARIOS {
            for dialect in [Dialect::Redlock, Dialect::Strict] {
                let mut who: Vec<_> = opened(scenario.name, dialect)
                    .into_iter()
                    .map(|(_, process)| process)
                    .collect();
                who.sort_unstable();
                let all: Vec<_> = (0..scenario.clients as u8).collect();
                assert_eq!(who, all, "{} {dialect:?}", scenario.name);
            }
        }
    }

    #[test]
    fn after_the_long_pause_only_the_fenced_resource_is_safe() {
        for dialect in [Dialect::Redlock, Dialect::Strict] {
            let writes = whats("long-pause", dialect).into_iter();
            let late = writes.filter_map(|(_, what)| match what {
                What::Written(Written { stale: true, accepted, .. }) => Some(accepted),
                _ => None,
            });
            assert_eq!(late.collect::<Vec<_>>(), [false], "{dialect:?}");
        }
    }

    #[test]
    fn a_slow_minority_keeps_nobody_waiting() {
        for dialect in [Dialect::Redlock, Dialect::Strict] {
            let opened = opened("slow-minority", dialect);
            assert!(matches!(opened[..], [(200..=210, 0), (900..=930, 1)]), "{opened:?}");
        }
    }
}
