//! The round that only looks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use crate::core::{Core, Stamp};
use crate::error::{Error, NodeAnswer, NodeAnswers};
use crate::name::Name;
use crate::node::{Answer, Failure, FailureKind, Holder, Record, Request, Round, Seen, Verb};
use crate::note::Note;
use crate::token::{OwnerId, Token};
use crate::waitable::Waitable;
use quorlock_protocol::Quorum;

/// Why a node casts no vote, where it has not said more.
const MAY_HAVE_FORGOTTEN: &str = "new, or started or emptied, and locks may be forgotten; wait, or run quorlock init if no lock was ever taken on them";

#[derive(Debug)]
pub(crate) struct InspectRound {
    core: Arc<Core>,
    name: Name,
    stamp: Stamp,
    state: Waitable<State>,
}

#[derive(Debug)]
struct State {
    seen: Vec<Option<Result<Seen, Failure>>>,
}

impl InspectRound {
    pub(crate) fn start(core: &Arc<Core>, name: Name) -> Arc<Self> {
        let state = State { seen: vec![None; core.nodes.len()] };
        let round = Arc::new(Self {
            core: Arc::clone(core),
            name,
            stamp: core.stamp(),
            state: Waitable::new(state),
        });
        core.ask_all(&round);
        round
    }

    /// Ready once every node was heard or given up on.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Status> {
        let seen: Vec<_> =
            ready!(self.state.poll(cx, |state| state.seen.iter().cloned().collect()));
        let nodes = seen.into_iter().enumerate();
        let nodes = nodes.map(|(node, seen)| NodeStatus::new(self.core.label(node), seen));
        Poll::Ready(Status {
            name: self.name.clone(),
            quorum: self.core.quorum,
            nodes: nodes.collect(),
        })
    }

    fn see(&self, node: usize, seen: Result<Seen, Failure>) {
        self.state.update_and_wake(|state| {
            if let Some(known) = state.seen.get_mut(node) {
                *known = Some(seen);
            }
            state.seen.iter().all(Option::is_some)
        });
    }
}

impl Round for InspectRound {
    fn request(&self, _node: usize) -> Request<'_> {
        let Stamp { sent, wall_us } = self.stamp;
        Request { name: &self.name, sent, wall_us, verb: Verb::Inspect }
    }

    fn cast(self: Arc<Self>, node: usize, answer: Answer) {
        let seen = match self.core.heard(node, self.stamp.wall_us, answer) {
            Answer::Seen(seen) => {
                if seen.quarantine.is_some() {
                    self.core.seen_in_quarantine();
                }
                Ok(*seen)
            }
            Answer::Failed(failure) => Err(failure),
            Answer::Granted { .. }
            | Answer::Done
            | Answer::LeftToOthers
            | Answer::Refused
            | Answer::Queued(_)
            | Answer::Listed(_)
            | Answer::Marker(_) => {
                Err(Failure::new(FailureKind::Broken, "answered a look with a vote"))
            }
        };
        self.see(node, seen);
    }

    fn overdue(self: Arc<Self>, node: usize, why: Failure) {
        self.see(node, Err(why));
    }
}

/// A lock as all nodes see it.
#[derive(Debug, Clone)]
pub struct Status {
    /// The lock.
    pub name: Name,
    /// What each node says.
    pub nodes: Vec<NodeStatus>,
    quorum: Quorum,
}

/// A lock as one node sees it.
#[derive(Debug, Clone)]
pub struct NodeStatus {
    /// The node, without its password.
    pub node: String,
    /// The record there, `None` if the name is free, or why the node could not be asked.
    pub record: Result<Option<Record>, Failure>,
    /// What the holder of that record says of itself.
    pub note: Option<Note>,
    /// How many stand in the queue there; `None` if the node keeps none, or does not tell. Those of
    /// one process count as one.
    pub waiters: Option<u64>,
    /// For how long the node casts no vote, since it may have forgotten some; `None` if it does.
    pub quarantine: Option<Duration>,
}

impl NodeStatus {
    fn new(node: String, seen: Result<Seen, Failure>) -> Self {
        match seen {
            Ok(Seen { record, note, waiters, quarantine }) => {
                let note = note.as_deref().map(Note::read);
                Self { node, record: Ok(record), note, waiters, quarantine }
            }
            Err(failure) => {
                let record = Err(failure);
                Self { node, record, note: None, waiters: None, quarantine: None }
            }
        }
    }
}

/// What the nodes say, taken together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// A majority names this holder.
    Held(Holder),
    /// A majority has no record, and has forgotten none.
    Free,
    /// Nobody has a majority, and nobody can get one before some records are gone.
    Split,
    /// The nodes that did not answer, or may have forgotten something, could make a majority for somebody.
    Unknown,
}

impl Status {
    /// What the nodes say, taken together.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        // A node that may have forgotten something knows of what it has, and not of what it has not.
        let knows =
            |node: &&NodeStatus| node.quarantine.is_none() || matches!(node.record, Ok(Some(_)));
        let nodes = self.nodes.iter().filter(knows);
        let answers: Vec<_> = nodes.filter_map(|node| node.record.as_ref().ok()).collect();
        let mut holders: BTreeMap<Holder, usize> = BTreeMap::new();
        for record in answers.iter().copied().flatten() {
            *holders.entry(record.holder).or_default() += 1;
        }
        let (holder, most) = match holders.iter().max_by_key(|(_, count)| **count) {
            Some((holder, count)) => (Some(*holder), *count),
            None => (None, 0),
        };
        let silent = self.nodes.len() - answers.len();
        let free = answers.iter().filter(|record| record.is_none()).count();
        match holder {
            Some(holder) if most >= self.quorum.enough() => Verdict::Held(holder),
            _ if free >= self.quorum.enough() => Verdict::Free,
            _ if most + silent >= self.quorum.enough() => Verdict::Unknown,
            _ => Verdict::Split,
        }
    }

    /// The holder, if a majority of the nodes names the same one.
    #[must_use]
    pub fn holder(&self) -> Option<Holder> {
        match self.verdict() {
            Verdict::Held(holder) => Some(holder),
            _ => None,
        }
    }

    /// The highest fence that any node has of the holder: its [`fence`](crate::Guard::fence), or
    /// some fences above it that are reserved for others of its process.
    #[must_use]
    pub fn fence(&self) -> Option<u64> {
        let holder = self.holder()?;
        let records = self.nodes.iter().filter_map(|node| node.record.as_ref().ok()?.as_ref());
        records.filter(|record| record.holder == holder).filter_map(|record| record.fence).max()
    }

    /// When a majority of the nodes votes again, if too many of them cast no vote at present. `None` if
    /// enough do, or too few answered.
    #[must_use]
    pub fn quarantine(&self) -> Option<Duration> {
        let answered = self.nodes.iter().filter(|node| node.record.is_ok());
        let mut votes_in: Vec<_> =
            answered.map(|node| node.quarantine.unwrap_or(Duration::ZERO)).collect();
        votes_in.sort_unstable();
        votes_in.get(self.quorum.enough() - 1).copied().filter(|left| !left.is_zero())
    }

    /// What the holder says of itself, if it does.
    #[must_use]
    pub fn note(&self) -> Option<&Note> {
        let holder = self.holder()?;
        self.notes().find(|(record, _)| record.holder == holder).map(|(_, note)| note)
    }

    /// The note of the holder with this token, if any node has one.
    pub(crate) fn note_of(&self, token: &Token) -> Option<&Note> {
        self.notes().find(|(record, _)| record.token.as_ref() == Some(token)).map(|(_, note)| note)
    }

    fn notes(&self) -> impl Iterator<Item = (&Record, &Note)> {
        self.nodes.iter().filter_map(|node| {
            let record = node.record.as_ref().ok()?.as_ref();
            record.zip(node.note.as_ref())
        })
    }

    /// Whether any node has a record of it.
    pub(crate) fn is_recorded(&self) -> bool {
        self.nodes.iter().any(|node| matches!(node.record, Ok(Some(_))))
    }

    /// How many wait for it: the longest queue of any node, `None` if no node tells. Those of one
    /// process count as one.
    #[must_use]
    pub fn waiters(&self) -> Option<u64> {
        self.nodes.iter().filter_map(|node| node.waiters).max()
    }

    /// That fewer than a majority of the nodes could be asked, if it is so.
    pub(crate) fn too_few(&self) -> Option<Error> {
        let silent = self.nodes.iter().filter_map(|NodeStatus { node, record, .. }| {
            let failure = Some(record.as_ref().err()?.clone());
            Some(NodeAnswer { node: node.clone(), failure })
        });
        let answers = NodeAnswers(silent.collect());
        let have = self.nodes.len() - answers.0.len();
        let verb = format!("could be asked for the lock {}", self.name);
        (have < self.quorum.enough()).then(|| Error::no_quorum(verb, have, self.quorum, answers))
    }

    /// That nobody holds the lock as far as is known, and that too few nodes can be asked or vote, if it is so.
    pub(crate) fn without_votes(&self) -> Option<Error> {
        if self.holder().is_some() {
            return None;
        }
        self.too_few().or_else(|| {
            let answers =
                self.nodes.iter().filter_map(|NodeStatus { node, record, quarantine, .. }| {
                    let failure = match (record, quarantine) {
                        (Err(failure), _) => failure.clone(),
                        (_, Some(left)) => Failure::quarantined(*left, false, MAY_HAVE_FORGOTTEN),
                        _ => return None,
                    };
                    Some(NodeAnswer { node: node.clone(), failure: Some(failure) })
                });
            let answers = NodeAnswers(answers.collect());
            let (name, remaining) = (self.name.clone(), self.quarantine()?);
            Some(Error::Quarantined { name, remaining, answers })
        })
    }

    /// The token that a majority of the nodes has of this owner.
    pub(crate) fn token_of(&self, owner: OwnerId) -> Option<Token> {
        let tokens =
            self.nodes.iter().filter_map(|node| node.record.as_ref().ok()?.as_ref()?.token);
        let token = tokens.clone().find(|token| token.owner() == Some(owner))?;
        (tokens.filter(|other| *other == token).count() >= self.quorum.enough()).then_some(token)
    }

    /// How long the lock stays taken unless it is renewed: until so many records have expired
    /// that a majority of the nodes is free. Zero if that is so now, `None` if too few nodes
    /// answered or records last for ever.
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        let mut free_in: Vec<Duration> = self
            .nodes
            .iter()
            .filter_map(|node| match node.record.as_ref().ok()? {
                None => Some(Duration::ZERO),
                Some(record) => record.remaining,
            })
            .collect();
        free_in.sort_unstable();
        free_in.get(self.quorum.enough() - 1).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One letter for each node: its holder, `.` for free, `?` for no answer.
    fn status(nodes: &str) -> Status {
        let failure = || Failure::new(FailureKind::Unreachable, "away");
        let record = |letter: char| match letter {
            '.' => Ok(None),
            '?' => Err(failure()),
            holder => {
                let token = holder.to_string();
                Ok(Some(Record::new(token.as_bytes(), Some(Duration::from_secs(1)))))
            }
        };
        let nodes: Vec<_> = nodes
            .chars()
            .map(|letter| NodeStatus {
                node: String::new(),
                record: record(letter),
                note: None,
                waiters: None,
                quarantine: None,
            })
            .collect();
        let name = Name::new("x").unwrap();
        Status { name, quorum: Quorum::of(nodes.len()).unwrap(), nodes }
    }

    #[test]
    fn a_majority_decides_and_silent_nodes_leave_open_only_what_they_could_decide() {
        let a = Verdict::Held(Holder::of(b"a"));
        for (nodes, verdict) in [
            ("a", a),
            (".", Verdict::Free),
            ("?", Verdict::Unknown),
            ("aa.", a),
            ("a..", Verdict::Free),
            ("abc", Verdict::Split),
            ("ab.", Verdict::Split),
            ("a.?", Verdict::Unknown),
            ("aa?", a),
            ("..?", Verdict::Free),
            (".??", Verdict::Unknown),
            ("aabb", Verdict::Split),
            ("aa..", Verdict::Split),
            ("ab..?", Verdict::Split),
            ("aab.?", Verdict::Unknown),
        ] {
            assert_eq!(status(nodes).verdict(), verdict, "{nodes}");
        }
    }

    #[test]
    fn who_may_have_forgotten_a_record_does_not_say_that_it_is_free() {
        let forgetful = |count: usize, nodes: &str| {
            let mut status = status(nodes);
            for node in &mut status.nodes[..count] {
                node.quarantine = Some(Duration::from_secs(1));
            }
            status.verdict()
        };
        assert_eq!(forgetful(1, "..."), Verdict::Free);
        assert_eq!(forgetful(2, "..."), Verdict::Unknown);
        assert_eq!(forgetful(3, "..."), Verdict::Unknown);
        assert_eq!(forgetful(3, "aa."), Verdict::Held(Holder::of(b"a")), "that it knows");
        assert_eq!(forgetful(1, ".ab"), Verdict::Unknown);
    }

    #[test]
    fn a_majority_that_votes_is_enough() {
        let waiting = |seconds: &[u64], nodes: &str| {
            let mut status = status(nodes);
            for (node, seconds) in status.nodes.iter_mut().zip(seconds) {
                node.quarantine = (*seconds > 0).then(|| Duration::from_secs(*seconds));
            }
            status.quarantine().map(|left| left.as_secs())
        };
        assert_eq!(waiting(&[0, 0, 9], "..."), None);
        assert_eq!(waiting(&[0, 5, 9], "..."), Some(5));
        assert_eq!(waiting(&[7, 5, 9], "..."), Some(7));
        assert_eq!(waiting(&[7, 0, 0], "..?"), Some(7));
        assert_eq!(waiting(&[7, 0, 0], ".??"), None);
        assert_eq!(waiting(&[3], "a"), Some(3));
    }

    #[test]
    fn what_remains_is_until_a_majority_is_free() {
        assert_eq!(status("a..").remaining(), Some(Duration::ZERO));
        assert_eq!(status("aa.").remaining(), Some(Duration::from_secs(1)));
        assert_eq!(status("a??").remaining(), None);
    }
}
