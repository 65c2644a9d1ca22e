//! What is promised, one file each. Every checker has a test in which it goes red.

mod i10_leftovers;
mod i11_needless_loss;
mod i12_truth;
mod i13_own_line;
mod i1_exclusion;
mod i2_fences;
mod i3_store;
mod i4_records;
mod i5_own_records;
mod i6_liveness;
mod i7_determinism;
mod i9_loss_signal;
pub(crate) mod windows;

use std::fmt;

use crate::Setup;
use crate::trace::Trace;
pub use i7_determinism::check_determinism;

/// The promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Invariant {
    /// Reported windows never overlap in true time, extensions included.
    Exclusion,
    /// Fences increase in the order of acquisition.
    Fences,
    /// A fenced store accepts no stale write.
    Store,
    /// No vote inside quarantine; a record's end never comes nearer while it is owned.
    Records,
    /// Confirm, extend and release change only their own records.
    OwnRecords,
    /// Once faults stop, every client acquires in its turn.
    Liveness,
    /// The same seed gives the same trace.
    Determinism,
    /// No guard learns of its loss after its validity.
    LossSignal,
    /// After all is over nothing is left.
    Leftovers,
    /// No loss without a cause: a majority that votes and answers within the lease means that the lock is kept.
    NeedlessLoss,
    /// An error tells the truth about who holds: a lock is called taken only if a client has something of it.
    Truth,
    /// While a majority answers steadily no client fails, however many locks are wanted or held at once.
    OwnLine,
}

impl Invariant {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Exclusion,
        Self::Fences,
        Self::Store,
        Self::Records,
        Self::OwnRecords,
        Self::Liveness,
        Self::Determinism,
        Self::LossSignal,
        Self::Leftovers,
        Self::NeedlessLoss,
        Self::Truth,
        Self::OwnLine,
    ];

    /// Its short name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Exclusion => "I1 exclusion",
            Self::Fences => "I2 fences",
            Self::Store => "I3 store",
            Self::Records => "I4 records",
            Self::OwnRecords => "I5 own records",
            Self::Liveness => "I6 liveness",
            Self::Determinism => "I7 determinism",
            Self::LossSignal => "I9 loss signal",
            Self::Leftovers => "I10 leftovers",
            Self::NeedlessLoss => "I11 needless loss",
            Self::Truth => "I12 truth",
            Self::OwnLine => "I13 own line",
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A promise that was not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which.
    pub invariant: Invariant,
    /// When, in nanoseconds.
    pub at: u64,
    /// How.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: {}", self.invariant, Time(self.at), self.text)
    }
}

/// A time as people read it.
pub(crate) struct Time(pub(crate) u64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06} s", self.0 / 1_000_000_000, self.0 / 1_000 % 1_000_000)
    }
}

/// Looks through a trace for broken promises, in the order of time.
#[must_use]
pub fn check(setup: &Setup, trace: &Trace) -> Vec<Violation> {
    let mut found = i1_exclusion::check(trace);
    found.extend(i2_fences::check(trace));
    found.extend(i3_store::check(trace));
    found.extend(i4_records::check(setup, trace));
    found.extend(i5_own_records::check(trace));
    found.extend(i6_liveness::check(setup, trace));
    found.extend(i9_loss_signal::check(setup, trace));
    found.extend(i10_leftovers::check(trace));
    found.extend(i11_needless_loss::check(setup, trace));
    found.extend(i12_truth::check(trace));
    found.extend(i13_own_line::check(setup, trace));
    found.sort_by_key(|violation| violation.at);
    found
}
