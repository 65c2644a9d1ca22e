//! Running the checker on a case, and what came of it.

use std::fmt::Debug;
use std::hash::Hash;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model};

use crate::cases::{Case, Expected};
use crate::setup::{Question, Setup};
use crate::trace::{Step, tell};

/// What the checker has seen.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How many worlds it has looked at.
    pub states: usize,
    /// The number of steps in the longest run that it has followed.
    pub depth: usize,
    /// How long that took.
    pub time: Duration,
    /// What it has found.
    pub found: Found,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// In all worlds all properties hold, and everything that has to be possible is.
    Holds,
    /// A run after which a property does not hold.
    Broken {
        /// The property.
        property: &'static str,
        /// The run.
        run: Vec<Step>,
    },
    /// Nothing wrong, but this never happens: the bounds are too small to say anything.
    Vacuous {
        /// What never happens.
        missing: Vec<&'static str>,
    },
}

impl Outcome {
    /// Whether it came out as it should.
    #[must_use]
    pub fn is(&self, expected: Expected) -> bool {
        match (expected, &self.found) {
            (Expected::Holds, found) => *found == Found::Holds,
            (Expected::Breaks(property), Found::Broken { property: found, .. }) => {
                property == *found
            }
            (Expected::Breaks(_), _) => false,
        }
    }
}

impl Case {
    /// Runs the checker.
    #[must_use]
    pub fn check(&self) -> Outcome {
        let setup = |question| Setup { variant: self.variant, bounds: self.bounds, question };
        run(self.expected, setup, tell)
    }
}

/// Runs the checker on the model that `ask` gives for each question. `tell` puts a run in words.
pub(crate) fn run<M: Checkable>(
    expected: Expected,
    ask: impl Fn(Question) -> M,
    tell: impl Fn(&M, &[M::State]) -> Vec<Step>,
) -> Outcome {
    match expected {
        Expected::Holds => check_all(ask, tell),
        Expected::Breaks(property) => look_for(property, ask(Question::Safety), tell),
    }
}

/// A model that the checker can be run on.
pub(crate) trait Checkable:
    Model<State: Checked, Action: Checked> + Copy + Send + Sync + 'static
{
}

impl<M: Model<State: Checked, Action: Checked> + Copy + Send + Sync + 'static> Checkable for M {}

/// What the checker asks of a world, and of what happens in it.
pub(crate) trait Checked: Debug + Hash + PartialEq + Copy + Send + Sync + 'static {}

impl<W: Debug + Hash + PartialEq + Copy + Send + Sync + 'static> Checked for W {}

/// Looks at every world. Depth first, which needs the least memory.
fn check_all<M: Checkable>(
    ask: impl Fn(Question) -> M,
    tell: impl Fn(&M, &[M::State]) -> Vec<Step>,
) -> Outcome {
    let setup = ask(Question::Safety);
    let start = Instant::now();
    let checker = setup
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .threads(threads())
        .spawn_dfs()
        .join();
    let broken = checker.discoveries().into_iter().next();
    let found = match broken {
        Some((property, path)) => {
            Found::Broken { property, run: tell(&setup, &path.into_states()) }
        }
        None => match missing(ask(Question::Witnesses)) {
            missing if missing.is_empty() => Found::Holds,
            missing => Found::Vacuous { missing },
        },
    };
    Outcome {
        states: checker.unique_state_count(),
        depth: checker.max_depth(),
        time: start.elapsed(),
        found,
    }
}

/// Looks for a world in which `property` does not hold, and for the shortest run to one.
fn look_for<M: Checkable>(
    property: &'static str,
    setup: M,
    tell: impl Fn(&M, &[M::State]) -> Vec<Step>,
) -> Outcome {
    let search = |shorter_than: Option<usize>| {
        let builder = setup.checker().finish_when(HasDiscoveries::AllOf([property].into()));
        match shorter_than {
            None => builder.spawn_bfs().join(),
            Some(states) => builder.target_max_depth(states).spawn_bfs().join(),
        }
    };
    let start = Instant::now();
    let checker = search(None);
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    // Breadth first, but a block of worlds at a time, of which the last one found counts.
    let mut shortest = checker.discovery(property).map(stateright::Path::into_states);
    while let Some(run) = &shortest
        && let Some(path) = search(Some(run.len())).discovery(property)
    {
        shortest = Some(path.into_states());
    }
    let found = match shortest {
        Some(run) => Found::Broken { property, run: tell(&setup, &run) },
        None => Found::Holds,
    };
    Outcome { states, depth, time: start.elapsed(), found }
}

/// What has to be possible within these bounds, and never happens.
fn missing<M: Checkable>(setup: M) -> Vec<&'static str> {
    let checker =
        setup.checker().finish_when(HasDiscoveries::All).threads(threads()).spawn_bfs().join();
    let seen = checker.discoveries();
    let wanted = setup.properties().into_iter().map(|property| property.name);
    wanted.filter(|name| !seen.contains_key(name)).collect()
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
