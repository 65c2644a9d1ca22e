//! Many seeds, on all cores.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::checkers::Invariant;
use crate::nemesis::FaultClass;
use crate::planted::Planted;
use crate::run::{Outcome, run};
use crate::setup::{Dialect, Setup};
use crate::shrink::shrink;
use crate::trace::{What, Written};

/// What to simulate.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which seeds.
    pub seeds: Range<u64>,
    /// Which scripts the nodes run.
    pub dialect: Dialect,
    /// How many nodes; `None` for three or five, by the seed.
    pub nodes: Option<usize>,
    /// How many processes; `None` for two to four, by the seed.
    pub clients: Option<usize>,
    /// What may go wrong; `None` for all that the dialect allows.
    pub faults: Option<Vec<FaultClass>>,
    /// For how long it goes wrong in each seed.
    pub faulty: Duration,
    /// A bug to put in.
    pub planted: Option<Planted>,
    /// On how many threads; each seed stays on one.
    pub threads: usize,
}

impl Options {
    /// These seeds with everything else as it is by default.
    #[must_use]
    pub fn new(seeds: Range<u64>, dialect: Dialect) -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            seeds,
            dialect,
            nodes: None,
            clients: None,
            faults: None,
            faulty: Duration::from_secs(30),
            planted: None,
            threads,
        }
    }

    /// The run of one seed.
    #[must_use]
    pub fn setup(&self, seed: u64) -> Setup {
        let mut setup = Setup::new(seed, self.dialect);
        setup.nodes = self.nodes.unwrap_or(setup.nodes);
        setup.clients = self.clients.unwrap_or(setup.clients);
        if let Some(faults) = &self.faults {
            setup.faults.clone_from(faults);
        }
        setup.horizon = u64::try_from(self.faulty.as_nanos()).unwrap_or(u64::MAX);
        setup.planted = self.planted;
        setup
    }
}

/// What came of many seeds.
#[derive(Debug, Default)]
pub struct Summary {
    /// How many were run.
    pub seeds: u64,
    /// How much time passed in them, all together.
    pub simulated: Duration,
    /// How much time passed meanwhile.
    pub took: Duration,
    /// How many locks were taken.
    pub acquisitions: u64,
    /// How many faults there were of each class.
    pub faults: BTreeMap<FaultClass, u64>,
    /// Writes that came after one of a later holder. A resource that checks nothing takes them in.
    pub stale_writes: u64,
    /// Those of them that a resource which checks fences has refused.
    pub refused_writes: u64,
    /// How often each promise was not kept.
    pub violations: BTreeMap<Invariant, u64>,
    /// In which seeds, and which promises in each.
    pub bad_seeds: BTreeMap<u64, BTreeSet<Invariant>>,
    /// The lowest of them, with no more faults than it takes.
    pub first: Option<Box<Outcome>>,
}

/// Runs many seeds, and tells how many are done after each.
///
/// # Panics
/// When a thread panics.
#[must_use]
pub fn simulate(options: &Options, progress: &(dyn Fn(u64) + Sync)) -> Summary {
    let began = Instant::now();
    let next = AtomicU64::new(options.seeds.start);
    let summary = Mutex::new(Summary::default());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= options.seeds.end {
                return;
            }
            let outcome = run(&options.setup(seed));
            let mut summary = summary.lock().expect("no panic in between");
            summary.add(outcome);
            progress(summary.seeds);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..options.threads.max(1) {
            scope.spawn(work);
        }
        work();
    });
    let mut summary = summary.into_inner().expect("no panic in between");
    summary.first = summary.first.map(|first| Box::new(shrink(*first)));
    summary.took = began.elapsed();
    summary
}

impl Summary {
    fn add(&mut self, outcome: Outcome) {
        self.seeds += 1;
        self.simulated += Duration::from_nanos(outcome.simulated);
        self.acquisitions += outcome.acquisitions;
        for (class, count) in &outcome.faults {
            *self.faults.entry(*class).or_default() += u64::from(*count);
        }
        for entry in outcome.trace.entries() {
            if let What::Written(Written { stale: true, accepted, .. }) = entry.what {
                self.stale_writes += 1;
                self.refused_writes += u64::from(!accepted);
            }
        }
        for violation in &outcome.violations {
            *self.violations.entry(violation.invariant).or_default() += 1;
            self.bad_seeds.entry(outcome.setup.seed).or_default().insert(violation.invariant);
        }
        if outcome.violations.is_empty() {
            return;
        }
        let lowest = self.first.as_ref().map_or(u64::MAX, |first| first.setup.seed);
        if outcome.setup.seed < lowest {
            self.first = Some(Box::new(outcome));
        }
    }

    /// Takes in what came of further seeds.
    pub fn absorb(&mut self, more: Self) {
        self.seeds += more.seeds;
        self.simulated += more.simulated;
        self.took += more.took;
        self.acquisitions += more.acquisitions;
        self.stale_writes += more.stale_writes;
        self.refused_writes += more.refused_writes;
        self.bad_seeds.extend(more.bad_seeds);
        for (class, count) in more.faults {
            *self.faults.entry(class).or_default() += count;
        }
        for (invariant, count) in more.violations {
            *self.violations.entry(invariant).or_default() += count;
        }
        self.first = self.first.take().or(more.first);
    }

    /// How much faster than life it was.
    #[must_use]
    pub fn speed(&self) -> f64 {
        self.simulated.as_secs_f64() / self.took.as_secs_f64().max(1e-9)
    }
}
