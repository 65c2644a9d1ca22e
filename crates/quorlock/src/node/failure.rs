//! Why a node did not do what it was asked.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::text::harmless;
use quorlock_protocol::Vote;

/// Longer texts are cut, in characters. No text of this library is as long.
const MOST: usize = 8_192;

/// Why a node did not do what it was asked, with a remedy where there is one.
#[derive(Debug, Clone)]
pub struct Failure {
    kind: FailureKind,
    text: Arc<str>,
}

/// The kinds of failure, told apart by whether the request can have run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// There is no connection: the request was not sent.
    Unreachable,
    /// The node does not answer in time. It may yet run the request.
    Silent,
    /// The connection broke, or the answer made no sense: it may have run.
    Broken,
    /// The node refused to run it.
    Rejected,
    /// The name is in use for something that is not a lock.
    WrongType,
    /// The node's clock and ours are too far apart. It looked at nothing.
    Clock,
    /// The request arrived so late that the node did not look at it.
    Late,
    /// The node may have forgotten what it granted, and casts no vote for so long.
    Quarantined(Duration),
    /// The node belongs to another set of nodes than the one that was given.
    OtherSet,
    /// The number that the node has of the lock is one that it cannot have given out: far above the time of
    /// day, or so large that none is higher. It grants nothing with it, or what it granted does not count.
    Number,
    /// The same server stands behind another URL as well.
    Duplicate,
    /// The node cannot take part as it is set up.
    Unfit,
}

impl Failure {
    /// A failure of that kind; `text` says what happened and what to do. Some of it may be the words of
    /// a server: what would make a terminal do something is escaped, and an endless text is cut.
    pub fn new(kind: FailureKind, text: impl Into<Arc<str>>) -> Self {
        let text = text.into();
        let text = match harmless(&text, MOST) {
            Cow::Borrowed(_) => text,
            Cow::Owned(shown) => shown.into(),
        };
        Self { kind, text }
    }

    pub(crate) fn closed() -> Self {
        Self::new(FailureKind::Broken, "the connection was closed by this process")
    }

    /// A node has this number of a lock, or would have given it out, and it is not
    /// [plausible](quorlock_protocol::plausible) at this time of day.
    pub(crate) fn number(number: u64, wall_us: u64) -> Self {
        let text = format!(
            "its number of this lock is {number}, and the time of day is {wall_us}: nobody can have been given \
             a number more than a day ahead; set this machine's clock if it is behind, or else run quorlock \
             release --force --yes for the lock once nobody holds it, which has the node forget the number"
        );
        Self::new(FailureKind::Number, text)
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// What it means for a round.
    pub(crate) fn vote(&self) -> Vote {
        match self.kind {
            // What a node has granted with such a number has to be released.
            FailureKind::Silent | FailureKind::Broken | FailureKind::Number => Vote::Unknown,
            FailureKind::Clock => Vote::Apart,
            FailureKind::Unreachable
            | FailureKind::Late
            | FailureKind::Quarantined(_)
            | FailureKind::OtherSet
            | FailureKind::Rejected
            | FailureKind::WrongType
            | FailureKind::Duplicate
            | FailureKind::Unfit => Vote::NotSent,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Failure {}
