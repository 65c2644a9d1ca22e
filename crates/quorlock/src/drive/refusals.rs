//! What nodes said in a round besides yes.

use std::time::Duration;

use crate::core::Core;
use crate::error::{NodeAnswer, NodeAnswers};
use crate::node::{Answer, Failure, FailureKind};
use quorlock_protocol::{Moment, Quorum, Vote};

/// The answers of nodes that did not do it, kept for the error message. Allocates only if there
/// are any.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Option<Box<Answers>>);

/// Boxed, since most rounds have none, and there are many of them.
#[derive(Debug, Default)]
struct Answers {
    of_nodes: Vec<(usize, Option<Failure>)>,
    /// Before then no majority votes, as far as nodes have said.
    votes_from: Moment,
}

impl Refusals {
    fn all(&self) -> &[(usize, Option<Failure>)] {
        self.0.as_deref().map_or(&[], |refusals| &refusals.of_nodes)
    }

    /// Turns an answer into a vote, and remembers what it said if that was not yes.
    pub(crate) fn record(&mut self, node: usize, answer: Answer) -> Vote {
        match answer {
            Answer::Granted { .. } | Answer::Done | Answer::LeftToOthers => {
                self.forget(node);
                Vote::Yes
            }
            Answer::Refused | Answer::Queued(_) => {
                self.remember(node, None);
                Vote::No
            }
            Answer::Seen(_) | Answer::Listed(_) | Answer::Marker(_) => Vote::Unknown,
            Answer::Failed(failure) => {
                let vote = failure.vote();
                self.remember(node, Some(failure));
                vote
            }
        }
    }

    /// Remembers why a node is not waited for any longer.
    pub(crate) fn timed_out(&mut self, node: usize, why: Failure) -> Vote {
        self.remember(node, Some(why));
        Vote::Silent
    }

    /// The node has done it after all.
    pub(crate) fn forget(&mut self, node: usize) {
        if let Some(refusals) = &mut self.0 {
            refusals.of_nodes.retain(|(other, _)| *other != node);
            if refusals.of_nodes.is_empty() {
                self.0 = None;
            }
        }
    }

    /// When a majority can vote at the earliest, if some nodes have said that they cast no vote for a while: zero
    /// if those are not what is waited for, or nobody knows how long it takes.
    pub(crate) fn votes_in(&self, quorum: Quorum) -> Option<Duration> {
        let mut left: Vec<_> =
            self.failures().filter_map(|(_, failure)| failure.kind().quarantine()).collect();
        (!left.is_empty()).then(|| quorum.votes_in(&mut left))
    }

    /// Notes that by what nodes have said no majority votes before then.
    pub(crate) fn expect_votes(&mut self, from: Moment) {
        if let Some(refusals) = &mut self.0 {
            refusals.votes_from = from;
        }
    }

    /// Before then no majority votes.
    pub(crate) fn votes_from(&self) -> Moment {
        self.0.as_ref().map_or(Moment::default(), |refusals| refusals.votes_from)
    }

    /// Whether waiting is of no use: so many nodes use the name for something else, or belong to another
    /// set of nodes.
    pub(crate) fn is_hopeless(&self, core: &Core) -> bool {
        let failures = self.failures().map(|(node, failure)| (core.label(node), failure));
        hopeless(core, failures).is_some()
    }

    /// The nodes that neither did it nor refused it, and why.
    pub(crate) fn failures(&self) -> impl Iterator<Item = (usize, &Failure)> {
        self.all().iter().filter_map(|(node, failure)| Some((*node, failure.as_ref()?)))
    }

    pub(crate) fn of(&self, node: usize) -> Option<&Failure> {
        self.all()
            .iter()
            .find(|(other, _)| *other == node)
            .and_then(|(_, failure)| failure.as_ref())
    }

    pub(crate) fn answers(&self, core: &Core) -> NodeAnswers {
        let mut answers: Vec<_> = self.all().to_vec();
        answers.sort_by_key(|(node, _)| *node);
        NodeAnswers(
            answers
                .into_iter()
                .map(|(node, failure)| NodeAnswer { node: core.label(node), failure })
                .collect(),
        )
    }

    fn remember(&mut self, node: usize, failure: Option<Failure>) {
        let refusals = &mut self.0.get_or_insert_default().of_nodes;
        refusals.retain(|(other, _)| *other != node);
        // Seldom more than one of them, and perhaps of many waiters.
        refusals.reserve_exact(1);
        refusals.push((node, failure));
    }
}

/// The first of those that keep a lock from ever being taken, if there are enough of them.
///
/// While one node belongs to another set, the set that was given cannot form: others that only wait for that
/// wait for ever.
pub(crate) fn hopeless<'a>(
    core: &Core,
    failures: impl Iterator<Item = (String, &'a Failure)>,
) -> Option<(String, Failure)> {
    let (mut wrong, mut others, mut quiet) = (Vec::new(), Vec::new(), 0);
    for (node, failure) in failures {
        match failure.kind() {
            FailureKind::WrongType => wrong.push((node, failure.clone())),
            FailureKind::OtherSet => others.push((node, failure.clone())),
            FailureKind::Quarantined(_) => quiet += 1,
            _ => {}
        }
    }
    let too_many = core.quorum.too_many();
    if wrong.len() >= too_many {
        return wrong.into_iter().next();
    }
    if others.len() >= too_many {
        return others.into_iter().next();
    }
    // Those that are quiet vote after a while, unless they wait for their set. The one that belongs to another may
    // have been too slow to say so here.
    if others.len() + quiet >= too_many { core.settling.conflict() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Many may wait for long after a node has been asked in vain for a moment.
    #[test]
    fn what_is_forgotten_takes_no_room() {
        let mut refusals = Refusals::default();
        refusals.record(0, Answer::Refused);
        refusals.record(1, Answer::Refused);
        refusals.forget(0);
        assert_eq!(refusals.all().len(), 1);
        refusals.record(1, Answer::Done);
        assert!(refusals.0.is_none());
    }
}
