//! What a run is made of.

use std::time::Duration;

use quorlock::node::Members;

use crate::nemesis::FaultClass;
use crate::planted::Planted;

/// Which scripts the simulated servers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// As documented by Redis: holds while nodes do not forget, and clocks do not jump.
    Redlock,
    /// Holds while the clocks of the clients are right.
    Strict,
}

impl Dialect {
    /// How far a server's clock may be behind a client's, and ahead of it, in microseconds.
    pub(crate) const WINDOW_US: (u64, u64) = (100_000, 300_000);
    /// How far off clients' clocks may be in the strict dialect.
    const CLIENTS_OFF: Duration = Duration::from_millis(50);

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Redlock => "redlock",
            Self::Strict => "strict",
        }
    }

    /// The faults under which it promises to hold. Not those that hit all nodes, one after the other or together, or
    /// keep them busy: beside all others they would leave no client a lock to lose. They are for runs of their own.
    #[must_use]
    pub fn allowed(self) -> Vec<FaultClass> {
        let forgetful = [
            FaultClass::RestartEmpty,
            FaultClass::LoseLastSecond,
            FaultClass::Flush,
            FaultClass::StaleReplica,
            FaultClass::ClockJump,
            FaultClass::ClockExcursion,
            FaultClass::AllClocks,
        ];
        let everywhere = [
            FaultClass::StopAll,
            FaultClass::RollingRestart,
            FaultClass::Burst,
            FaultClass::MassRenewal,
        ];
        let bears = |class: &FaultClass| {
            (self == Self::Strict || !forgetful.contains(class)) && !everywhere.contains(class)
        };
        FaultClass::ALL.into_iter().filter(bears).collect()
    }

    /// How long the nodes keep a lock.
    pub(crate) fn ttl(self) -> Duration {
        Duration::from_secs(self.or(1, 2))
    }

    /// Whether leases count by the time of day as well.
    pub(crate) fn is_by_wall_clock(self) -> bool {
        self.or(false, true)
    }

    /// What is taken off the end of a lease for clocks that differ.
    pub(crate) fn margin(self) -> Duration {
        let window = Duration::from_micros(Self::WINDOW_US.0 + Self::WINDOW_US.1);
        self.or(Duration::ZERO, window + 2 * Self::CLIENTS_OFF)
    }

    /// And for clocks that run at different rates, in thousandths of the TTL.
    pub(crate) fn drift_per_mille(self) -> u32 {
        self.or(100, 10)
    }

    /// How much faster or slower clients' clocks may run, in millionths.
    pub(crate) fn client_ppm(self) -> i64 {
        self.or(20_000, 4_000)
    }

    /// The same for nodes: a daemon that slews a clock may run it 8 % off. In the strict dialect it
    /// does not matter, but one that runs off is shut out.
    pub(crate) fn node_ppm(self) -> i64 {
        self.or(60_000, 500)
    }

    /// How far off nodes' clocks are at first.
    pub(crate) fn node_offset_ns(self) -> i64 {
        self.or(5_000_000_000, 80_000_000)
    }

    /// How far off clients' clocks may be.
    pub(crate) fn wall_offset_ns(self) -> i64 {
        self.or(5_000_000_000, Self::CLIENTS_OFF.as_nanos() as i64)
    }

    fn or<T>(self, redlock: T, strict: T) -> T {
        match self {
            Self::Redlock => redlock,
            Self::Strict => strict,
        }
    }
}

/// What a node is called.
pub(crate) fn node_name(node: usize) -> String {
    format!("sim://{}", node + 1)
}

/// One run.
#[derive(Debug, Clone)]
pub struct Setup {
    /// What all chance comes from.
    pub seed: u64,
    /// How many nodes.
    pub nodes: usize,
    /// How many processes.
    pub clients: usize,
    /// Which scripts.
    pub dialect: Dialect,
    /// What may go wrong.
    pub faults: Vec<FaultClass>,
    /// When it stops to go wrong, in nanoseconds.
    pub horizon: u64,
    /// How long the nodes keep a lock.
    pub ttl: Duration,
    /// The longest that they may be asked to.
    pub max_ttl: Duration,
    /// A bug that is put in.
    pub planted: Option<Planted>,
    /// What each process does, if not whatever chance has it do.
    pub script: Option<&'static [&'static [Step]]>,
    /// Which nodes each process is given, if not all of them.
    pub lists: Option<Lists>,
}

/// Which nodes each process is given.
#[derive(Debug, Clone, Copy)]
pub struct Lists {
    /// By their numbers. Those above [`Setup::nodes`] are there besides.
    pub of: &'static [&'static [usize]],
    /// Whether those that are there besides vote for the first list that names them; otherwise they are new.
    pub marked: bool,
}

/// What a process does by a script, all of it with one lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Waits until so many milliseconds after the start.
    Until(u64),
    /// Waits for so many milliseconds.
    For(u64),
    /// Takes the lock, however long that takes.
    Take,
    /// Takes it for an owner that other processes may know of.
    Share,
    /// Takes part in what another process shares.
    TakePart,
    /// Writes to the resource, without a look at whether it still holds the lock.
    Write,
    /// Gives the lock back.
    Release,
    /// Until so many milliseconds after the start: takes the lock, holds it and gives it back.
    Use(u64),
    /// Changes the set of nodes: one leaves, and another takes its place.
    Replace {
        /// Which leaves.
        old: usize,
        /// Which takes its place.
        new: usize,
    },
}

impl Setup {
    /// How long a node casts no vote that may have forgotten some.
    pub(crate) fn quarantine(&self) -> Duration {
        self.max_ttl + self.dialect.margin()
    }

    /// The run of a seed: three or five nodes, two to four clients, thirty seconds of all faults that
    /// the dialect allows.
    #[must_use]
    pub fn new(seed: u64, dialect: Dialect) -> Self {
        let mut random = crate::random::Random::new(seed, 7);
        Self {
            seed,
            nodes: if random.percent(50) { 3 } else { 5 },
            clients: random.between(2, 4) as usize,
            dialect,
            faults: dialect.allowed(),
            horizon: 30_000_000_000,
            ttl: dialect.ttl(),
            max_ttl: dialect.or(2 * dialect.ttl(), dialect.ttl()),
            planted: None,
            script: None,
            lists: None,
        }
    }

    /// The set of all nodes, as its clients have to agree on it.
    pub(crate) fn members(&self) -> Members {
        self.members_of(&(0..self.nodes).collect::<Vec<_>>())
    }

    /// The set of these nodes.
    pub(crate) fn members_of(&self, nodes: &[usize]) -> Members {
        let names = nodes.iter().map(|node| node_name(*node));
        Members::new(names, self.max_ttl, Duration::from_micros(Dialect::WINDOW_US.1))
    }

    /// The nodes that a process is given.
    pub(crate) fn list_of(&self, process: usize) -> Vec<usize> {
        let list = self.lists.and_then(|lists| lists.of.get(process).copied());
        list.map_or_else(|| (0..self.nodes).collect(), <[usize]>::to_vec)
    }

    /// How many servers there are, also those that not every process is given.
    pub(crate) fn servers(&self) -> usize {
        let named = self.lists.iter().flat_map(|lists| lists.of.iter().copied().flatten());
        named.map(|node| node + 1).max().unwrap_or_default().max(self.nodes)
    }

    /// The set that a server belongs to at first; `None` if it is new.
    pub(crate) fn first_members(&self, node: usize) -> Option<Members> {
        if node < self.nodes {
            return Some(self.members());
        }
        let lists = self.lists.filter(|lists| lists.marked)?;
        let list = lists.of.iter().find(|list| list.contains(&node))?;
        Some(self.members_of(list))
    }

    /// How long a node may take to answer.
    pub(crate) fn node_limit(&self) -> Duration {
        (self.ttl / 20).min(Duration::from_millis(50))
    }

    /// How long before the end of the validity a loss is signalled.
    pub(crate) fn loss_lead(&self) -> Duration {
        self.ttl / 20
    }
}
