//! Saying once that a lock is not extended, and once that it is again.
//!
//! A node that is slow again and again makes every extension doubtful for a moment. The log has to
//! say so once, and not with every extension of every lock.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::discriminant;
use std::time::Duration;

use crate::error::NodeAnswers;
use crate::node::FailureKind;
use quorlock_protocol::Moment;

/// The same is not said again before this.
const QUIET: Duration = Duration::from_secs(60);

/// What was last said of one lock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Doubt {
    /// Which nodes have not extended it, and the kinds of their failures. Not their texts, which contain times.
    why: u64,
    at: Moment,
    /// There was no all-clear yet.
    open: bool,
}

impl Doubt {
    pub(crate) fn new(answers: &NodeAnswers, now: Moment) -> Self {
        Self { why: digest(answers), at: now, open: true }
    }

    /// Whether that was said already, and lately.
    pub(crate) fn was_said(&self, answers: &NodeAnswers, now: Moment) -> bool {
        self.why == digest(answers) && now.since(self.at) < QUIET
    }

    /// It is over. Returns whether an all-clear is due.
    pub(crate) fn end(&mut self) -> bool {
        std::mem::take(&mut self.open)
    }
}

fn digest(answers: &NodeAnswers) -> u64 {
    use FailureKind::{Broken, Late, Silent, Unreachable};
    let mut hasher = DefaultHasher::new();
    for answer in &answers.0 {
        let kind = answer.failure.as_ref().map(|failure| match failure.kind() {
            // The first request finds that a node hangs, and later ones know it already.
            Unreachable | Silent | Broken | Late => discriminant(&Unreachable),
            other => discriminant(&other),
        });
        (&answer.node, kind).hash(&mut hasher);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::NodeAnswer;
    use crate::node::Failure;

    fn silent(node: &str, text: &str) -> NodeAnswers {
        let failure = Some(Failure::new(FailureKind::Unreachable, text));
        NodeAnswers(vec![NodeAnswer { node: node.to_owned(), failure }])
    }

    #[test]
    fn the_same_is_said_once_in_a_while_and_something_else_at_once() {
        let at = |seconds| Moment::default().after(Duration::from_secs(seconds));
        let doubt = Doubt::new(&silent("a", "no answer for 50ms"), at(10));
        let again = silent("a", "no answer for 51ms");
        assert!(doubt.was_said(&again, at(10)) && doubt.was_said(&again, at(69)));
        assert!(!doubt.was_said(&again, at(70)));
        assert!(!doubt.was_said(&silent("b", "no answer for 50ms"), at(11)));
        let mut refused = silent("a", "");
        refused.0[0].failure = None;
        assert!(!doubt.was_said(&refused, at(11)));
    }

    #[test]
    fn its_end_is_told_once() {
        let mut doubt = Doubt::new(&NodeAnswers::default(), Moment::default());
        assert!(doubt.end() && !doubt.end());
    }
}
