//! One run, from the start to the last leftover.

use std::sync::Arc;

use crate::checkers::{self, Violation};
use crate::nemesis::Plan;
use crate::nodes::Server;
use crate::trace::{Leftover, Trace, What};
use crate::world::World;
use crate::{Dialect, FaultClass, Setup};

/// How long the calm may last until every process has what it wants.
const CALM: u64 = 60_000_000_000;
/// From one look at whether all is done to the next.
const LOOK: u64 = 500_000_000;

/// What came of a run.
#[derive(Debug)]
pub struct Outcome {
    /// What it was.
    pub setup: Setup,
    /// What went wrong in it, by plan.
    pub plan: Plan,
    /// What happened.
    pub trace: Trace,
    /// What should not have.
    pub violations: Vec<Violation>,
    /// How many locks were taken.
    pub acquisitions: u64,
    /// How long it lasted, in nanoseconds.
    pub simulated: u64,
    /// How many of the planned faults there were of each class.
    pub faults: Vec<(FaultClass, u32)>,
}

/// Runs a seed.
///
/// # Panics
/// As [`run_plan`] does.
#[must_use]
pub fn run(setup: &Setup) -> Outcome {
    run_plan(setup, Plan::random(setup))
}

/// Runs a seed with a plan of faults of one's own.
///
/// # Panics
/// When a process never rests: that is a bug in the library or in the simulation.
#[must_use]
pub fn run_plan(setup: &Setup, plan: Plan) -> Outcome {
    let world = World::new(setup.clone(), plan.clone());
    for process in 0..setup.clients {
        world.start(process);
    }
    world.run_until(setup.horizon);
    world.calm_down();
    let end = setup.horizon + CALM;
    let mut now = setup.horizon;
    while now < end && world.is_busy() {
        now += LOOK;
        world.run_until(now);
    }
    // Records and tickets of processes that were killed go by themselves.
    let gone = setup.max_ttl.as_nanos() as u64 * 5;
    world.run_until(now + gone);
    world.note_leftovers();
    let simulated = now + gone;
    for process in 0..setup.clients {
        world.kill(process);
    }
    let trace = world.take_trace();
    let violations = checkers::check(setup, &trace);
    let acquisitions = world.holders.lock().expect("no panic in between").opened;
    let faults = plan.classes.clone();
    Outcome { setup: setup.clone(), plan, trace, violations, acquisitions, simulated, faults }
}

impl World {
    /// From now on nothing goes wrong any more: what still does is mended.
    fn calm_down(self: &Arc<Self>) {
        let mut state = self.state();
        let now = state.now;
        state.note(now, What::Calm);
        if self.setup.dialect == Dialect::Strict {
            // The clocks of the nodes are set right again.
            let shown = state.time_of_day();
            for server in &mut state.servers {
                server.clock.set(now, shown);
            }
        }
        // An old file may have brought a fence back that was put right before.
        state.servers.iter_mut().for_each(Server::cure);
        for process in &mut state.processes {
            process.calm();
        }
    }

    /// Whether some process still has something to do.
    fn is_busy(&self) -> bool {
        self.state().processes.iter().any(|process| !process.has_finished())
    }

    fn note_leftovers(&self) {
        let mut state = self.state();
        let now = state.now;
        let (mut records, mut queues) = (0, 0);
        for server in &state.servers {
            let (locks, lines) = server.counts(now);
            (records, queues) = (records + locks, queues + lines);
        }
        let tasks = state.processes.iter().map(crate::process::Process::tasks).sum();
        for (kind, count) in [
            (Leftover::Record, records),
            (Leftover::Queue, queues),
            (Leftover::Connection, state.connections()),
            (Leftover::Task, tasks),
            (Leftover::Timer, state.timers.len()),
        ] {
            state.note(now, What::Leftover { kind, count: count as u32 });
        }
    }
}
