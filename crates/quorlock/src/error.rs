//! What can go wrong, distinguished by what a caller can do about it.

use std::fmt;
use std::time::Duration;

use crate::clocks;
use crate::name::Name;
use crate::node::{Failure, FailureKind, Holder};
use crate::note::Note;
use quorlock_protocol::{Cap, LossReason, Quorum};

/// Why a lock was not taken, extended or released.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else holds the lock, or another task of this process is in line for it. Wait, or do without it.
    #[error("the lock {name} is taken{}{}{}", held_by(*.holder), says(.note), for_another(*.remaining))]
    Taken {
        /// The lock.
        name: Name,
        /// The holder, if a majority of the nodes names the same one.
        holder: Option<Holder>,
        /// How long its record lasts unless it is renewed, if the nodes said so.
        remaining: Option<Duration>,
        /// What the holder says of itself, if it does. Anybody who can write to a node can have put
        /// it there.
        note: Option<Box<Note>>,
    },

    /// The lock did not become free in the time the caller was ready to wait.
    #[error("waited {waited:.1?} for the lock {name}: {last}")]
    TimedOut {
        /// The lock.
        name: Name,
        /// How long was waited.
        waited: Duration,
        /// How the last attempt ended.
        last: Box<Error>,
    },

    /// The lock was held and is not any more. Stop the work that it protected.
    #[error("the lock {name} is lost: {reason}")]
    Lost {
        /// The lock.
        name: Name,
        /// How that is known.
        reason: Loss,
    },

    /// The lock is held, and a cap forbids to extend it. Finish before it ends.
    #[error(
        "the lock {name} cannot be extended: {}; finish within the {remaining:.1?} that is left, or \
         raise the cap",
        capped(*.cap)
    )]
    Capped {
        /// The lock.
        name: Name,
        /// Which cap.
        cap: Cap,
        /// What is left of its validity.
        remaining: Duration,
    },

    /// Too few nodes answered to know. Nothing is held that was not held before.
    #[error("{have} of {nodes} nodes {verb}, {need} are needed: {answers}")]
    NoQuorum {
        /// What was asked of the nodes, as in "granted the lock x".
        verb: String,
        /// How many did it.
        have: usize,
        /// How many would have been enough.
        need: usize,
        /// N.
        nodes: usize,
        /// What each of the others said.
        answers: NodeAnswers,
    },

    /// Too many nodes cast no vote: they were started or emptied and may have forgotten locks, or carry no mark
    /// for these locks yet. Wait for as long as it says, or run `quorlock init` if the nodes are new.
    #[error("the lock {name} cannot be taken for another {remaining:.1?}: {}", quarantined(.answers))]
    Quarantined {
        /// The lock.
        name: Name,
        /// When a majority votes again.
        remaining: Duration,
        /// What each node said that did not grant it.
        answers: NodeAnswers,
    },

    /// The clocks of too many nodes are too far from this machine's. Set the clocks right.
    #[error("the lock {name} cannot be taken while clocks differ so much: {answers}{}", whose_clock(.answers))]
    Clock {
        /// The lock.
        name: Name,
        /// What each node said that did not grant it: which one, and how far off.
        answers: NodeAnswers,
    },

    /// The library was used in a way that cannot work.
    #[error("{problem}; {remedy}")]
    Misuse {
        /// What is wrong, with the values.
        problem: String,
        /// What to do instead.
        remedy: String,
    },

    /// One node stands in the way by itself.
    #[error("node {node}: {failure}")]
    Node {
        /// The node, without its password.
        node: String,
        /// What it said.
        failure: Failure,
    },
}

/// How a loss became known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The validity ran out, or is about to, before it was extended or released.
    Expired,
    /// A majority of the nodes had no record of it, or one of somebody else.
    Gone,
    /// The clocks of a majority of the nodes are too far from this machine's: it may have stood
    /// still for longer than it knows.
    Clock,
    /// The validity ran out, or is about to, and a cap forbade to extend it: the caller's own
    /// [`max_extensions`](crate::Lock::max_extensions) or [`max_hold`](crate::Lock::max_hold).
    Capped,
    /// It was given back.
    Released,
}

impl From<LossReason> for Loss {
    fn from(reason: LossReason) -> Self {
        match reason {
            LossReason::Expired => Self::Expired,
            LossReason::Gone => Self::Gone,
            LossReason::Clock => Self::Clock,
            LossReason::Capped => Self::Capped,
            LossReason::Released => Self::Released,
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its validity ran out before it was extended",
            Self::Gone => "a majority of the nodes has no record of it any more",
            Self::Clock => {
                "the clocks of a majority of the nodes are too far from this machine's; keep the \
                 clocks right, as with NTP"
            }
            Self::Capped => {
                "it was kept for as long as its cap allows; do less under it, or raise \
                 max_extensions or max_hold"
            }
            Self::Released => "it was released",
        })
    }
}

/// What nodes said that did not do what was asked.
#[derive(Debug, Clone, Default)]
pub struct NodeAnswers(pub Vec<NodeAnswer>);

/// What one node said.
#[derive(Debug, Clone)]
pub struct NodeAnswer {
    /// The node, without its password.
    pub node: String,
    /// What it said; `None` if it answered that the lock is not ours to take or to keep.
    pub failure: Option<Failure>,
}

impl NodeAnswers {
    fn kinds(&self) -> impl Iterator<Item = FailureKind> {
        self.0.iter().filter_map(|answer| answer.failure.as_ref()).map(Failure::kind)
    }

    /// When so many nodes vote again that `missing` more votes can be had, if that is what is lacking.
    pub(crate) fn quarantine(&self, missing: usize) -> Option<Duration> {
        let mut left: Vec<_> = self.kinds().filter_map(FailureKind::quarantine).collect();
        left.sort_unstable();
        left.get(missing.checked_sub(1)?).copied()
    }

    /// When a majority can vote at the earliest, see [`Quorum::votes_in`].
    pub(crate) fn votes_in(&self, quorum: Quorum) -> Duration {
        let mut left: Vec<_> = self.kinds().filter_map(FailureKind::quarantine).collect();
        quorum.votes_in(&mut left)
    }

    /// How many cast no vote for a reason that does not pass by itself.
    pub(crate) fn lasting(&self) -> usize {
        let lasts = |kind: &FailureKind| {
            !matches!(
                kind,
                FailureKind::Unreachable
                    | FailureKind::Silent
                    | FailureKind::Broken
                    | FailureKind::Late
                    | FailureKind::Quarantined(_)
            )
        };
        self.kinds().filter(lasts).count()
    }

    /// How many have clocks that are too far from ours.
    pub(crate) fn apart(&self) -> usize {
        self.kinds().filter(|kind| *kind == FailureKind::Clock).count()
    }
}

impl fmt::Display for NodeAnswers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, NodeAnswer { node, failure }) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            match failure {
                Some(failure) => write!(f, "{node}: {failure}")?,
                None => write!(f, "{node}: refused")?,
            }
        }
        Ok(())
    }
}

impl Error {
    /// One server stands behind two URLs.
    pub(crate) fn duplicate(node: &str, failure: &Failure) -> Self {
        Self::misuse(
            format!("node {node}: {failure}"),
            "name every server once: two votes of one server are no majority",
        )
    }

    /// A node belongs to another set of nodes.
    pub(crate) fn other_set(node: &str, failure: &Failure) -> Self {
        // The failure ends with what to do.
        let text = failure.to_string();
        let (problem, remedy) = text.rsplit_once("; ").unwrap_or((&text, "look at quorlock nodes"));
        Self::misuse(format!("node {node} {problem}"), remedy)
    }

    /// Fewer than a majority of the nodes have done what was asked of them.
    pub(crate) fn no_quorum(
        verb: impl Into<String>,
        have: usize,
        quorum: Quorum,
        answers: NodeAnswers,
    ) -> Self {
        Self::too_few_nodes(verb, have, quorum.enough(), quorum, answers)
    }

    /// The same where another count than that of a majority is needed.
    pub(crate) fn too_few_nodes(
        verb: impl Into<String>,
        have: usize,
        need: usize,
        quorum: Quorum,
        answers: NodeAnswers,
    ) -> Self {
        Self::NoQuorum { verb: verb.into(), have, need, nodes: quorum.nodes(), answers }
    }

    pub(crate) fn misuse(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Misuse { problem: problem.into(), remedy: remedy.into() }
    }
}

fn capped(cap: Cap) -> String {
    match cap {
        Cap::Extensions(count) => format!("it was extended {count} times, the most it may be"),
        Cap::Hold => "it is held for as long as it may be".to_owned(),
    }
}

/// Those that wait for the same reason in one sentence each; then the others.
fn quarantined(answers: &NodeAnswers) -> String {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut others = Vec::new();
    for answer in &answers.0 {
        let Some(why) = answer.failure.as_ref().and_then(Failure::why_quarantined) else {
            others.push(answer.clone());
            continue;
        };
        match reasons.iter_mut().find(|(other, _)| *other == why) {
            Some((_, nodes)) => nodes.push(&answer.node),
            None => reasons.push((why, vec![&answer.node])),
        }
    }
    let mut parts: Vec<_> =
        reasons.iter().map(|(why, nodes)| format!("{}: {why}", nodes.join(", "))).collect();
    if !others.is_empty() {
        parts.push(NodeAnswers(others).to_string());
    }
    parts.join("; ")
}

/// If the nodes agree with each other, it is this machine that is wrong.
fn whose_clock(answers: &NodeAnswers) -> String {
    let offsets: Vec<_> =
        answers.0.iter().filter_map(|answer| answer.failure.as_ref()?.clock_us()).collect();
    match clocks::in_common(&offsets) {
        Some(ahead_us) => format!(
            ". They agree with each other: it is the clock of this machine that is {}, so set that one right",
            clocks::of_this_machine(ahead_us)
        ),
        None => String::new(),
    }
}

fn held_by(holder: Option<Holder>) -> String {
    holder.map_or_else(String::new, |holder| format!(" by {holder}"))
}

/// Without what would make a terminal do anything.
fn says(note: &Option<Box<Note>>) -> String {
    note.as_ref().map_or_else(String::new, |note| format!(" ({})", note.text.escape_debug()))
}

fn for_another(remaining: Option<Duration>) -> String {
    remaining.map_or_else(String::new, |left| format!(", for another {left:.1?} unless renewed"))
}
