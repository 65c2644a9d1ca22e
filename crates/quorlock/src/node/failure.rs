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
    kind: Kind,
    text: Arc<str>,
}

/// Its kind, with what else is known. It takes no more room than the kind, for every answer has room for it.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Of(FailureKind),
    /// So far the node's clock is ahead of ours, in microseconds.
    Clock(i64),
    /// It casts no vote for so long, in microseconds. That time runs, and the node votes by itself at its end.
    Begun(u64),
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
    /// The fence that the node has of the lock is one that it cannot have given out: far above the time of
    /// day, or so large that none is higher. It grants nothing with it, or what it granted does not count.
    Fence,
    /// The same server stands behind another URL as well.
    Duplicate,
    /// The node cannot take part as it is set up.
    Unfit,
}

impl FailureKind {
    /// For how long a node casts no vote, if it is that.
    pub(crate) fn quarantine(self) -> Option<Duration> {
        match self {
            Self::Quarantined(left) => Some(left),
            _ => None,
        }
    }
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
        Self { kind: Kind::Of(kind), text }
    }

    /// The node's clock is so far ahead of ours, or behind it, in microseconds.
    pub(crate) fn clock(ahead_us: i64, text: impl Into<Arc<str>>) -> Self {
        Self { kind: Kind::Clock(ahead_us), ..Self::new(FailureKind::Clock, text) }
    }

    /// How far the node's clock is ahead of ours, in microseconds, if that is what it is about.
    pub(crate) fn clock_us(&self) -> Option<i64> {
        match self.kind {
            Kind::Clock(ahead_us) => Some(ahead_us),
            Kind::Of(_) | Kind::Begun(_) => None,
        }
    }

    /// A node casts no vote for so long. Whether that has `begun`, so that nothing has to be done for it to vote
    /// then; `why` says the reason and what to do.
    pub(crate) fn quarantined(left: Duration, begun: bool, why: &str) -> Self {
        let text = if left.is_zero() {
            format!("casts no vote yet: {why}")
        } else {
            format!("casts no vote for another {left:.1?}: {why}")
        };
        let failure = Self::new(FailureKind::Quarantined(left), text);
        if !begun {
            return failure;
        }
        let left_us = u64::try_from(left.as_micros()).unwrap_or(u64::MAX);
        Self { kind: Kind::Begun(left_us), ..failure }
    }

    /// Whether the node votes by itself after a while, without anybody who sees to it.
    pub(crate) fn has_begun(&self) -> bool {
        matches!(self.kind, Kind::Begun(_))
    }

    /// Why it is in quarantine, and what to do, without for how long.
    pub(crate) fn why_quarantined(&self) -> Option<&str> {
        self.kind().quarantine()?;
        let text = &*self.text;
        Some(text.split_once(": ").map_or(text, |(_, why)| why))
    }

    pub(crate) fn closed() -> Self {
        Self::new(FailureKind::Broken, "the connection was closed by this process")
    }

    /// A node has this fence of a lock, or would have given it out, and it is not
    /// [plausible](quorlock_protocol::plausible) at this time of day.
    pub(crate) fn fence(fence: u64, wall_us: u64) -> Self {
        let text = format!(
            "its fence of this lock is {fence}, and the time of day is {wall_us}: nobody can have been given \
             a fence more than a day ahead; set this machine's clock if it is behind, or else run quorlock \
             release --force --yes for the lock once nobody holds it, which has the node forget the fence"
        );
        Self::new(FailureKind::Fence, text)
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        match self.kind {
            Kind::Of(kind) => kind,
            Kind::Clock(_) => FailureKind::Clock,
            Kind::Begun(left_us) => FailureKind::Quarantined(Duration::from_micros(left_us)),
        }
    }

    /// What it means for a round.
    pub(crate) fn vote(&self) -> Vote {
        match self.kind() {
            // What a node has granted with such a fence has to be released.
            FailureKind::Silent | FailureKind::Broken | FailureKind::Fence => Vote::Unknown,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_far_a_clock_is_off_takes_no_room() {
        assert_eq!(size_of::<Kind>(), size_of::<FailureKind>());
        let clock = Failure::clock(-7, "x");
        assert_eq!((clock.kind(), clock.clock_us()), (FailureKind::Clock, Some(-7)));
        assert_eq!(Failure::new(FailureKind::Clock, "x").clock_us(), None);
    }
}
