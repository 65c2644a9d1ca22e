//! The round that asks one node which locks it holds.

use std::sync::Arc;
use std::task::{Context, Poll};

use crate::core::{Core, Stamp};
use crate::name::Name;
use crate::node::{Answer, Failure, FailureKind, Listed, Request, Round, Verb};
use crate::waitable::Waitable;
use quorlock_protocol::NodeSet;

/// So many steps a list has at the most: a step looks at some thousand keys.
const MOST_STEPS: u64 = 1 << 17;

/// So much room the names of one node may take, in bytes.
const MOST_BYTES: usize = 64 << 20;

/// About what a name takes besides its own bytes.
const BYTES_PER_NAME: usize = 64;

/// Sees to it that a list ends, whatever the node says.
#[derive(Debug, Default)]
pub(crate) struct ListProgress {
    steps: u64,
    bytes: usize,
    /// Where some earlier step has left off: the first, the second, the fourth, and so on. A node that
    /// goes in circles comes back to one of them.
    mark: Vec<u8>,
}

impl ListProgress {
    /// Takes one step of the list in.
    ///
    /// # Errors
    /// If the node goes in circles, or on without end.
    pub(crate) fn step(&mut self, listed: &Listed) -> Result<(), Failure> {
        let endless = |how: &str| {
            let text = format!("its list of locks does not end: {how}");
            Err(Failure::new(FailureKind::Broken, text))
        };
        self.steps += 1;
        let names = listed.names.iter().map(|name| name.as_bytes().len() + BYTES_PER_NAME);
        self.bytes += names.sum::<usize>();
        if self.bytes > MOST_BYTES {
            return endless(&format!("it takes more than {} MiB", MOST_BYTES >> 20));
        }
        let Some(next) = &listed.next else { return Ok(()) };
        if self.steps > 1 && *next == self.mark {
            return endless("it goes in circles");
        }
        if self.steps == MOST_STEPS {
            return endless(&format!("it has more than {MOST_STEPS} steps"));
        }
        if self.steps.is_power_of_two() {
            self.mark.clone_from(next);
        }
        Ok(())
    }
}

/// One step of it.
#[derive(Debug)]
pub(crate) struct ListRound {
    /// Of no meaning.
    name: Name,
    from: Vec<u8>,
    stamp: Stamp,
    state: Waitable<State>,
}

#[derive(Debug, Default)]
struct State {
    answer: Option<Result<Listed, Failure>>,
}

impl ListRound {
    pub(crate) fn start(core: &Core, name: Name, node: usize, from: Vec<u8>) -> Arc<Self> {
        let round = Arc::new(Self { name, from, stamp: core.stamp(), state: Waitable::default() });
        let mut nodes = NodeSet::EMPTY;
        nodes.insert(node);
        core.ask(&round, nodes);
        round
    }

    /// Ready once the node was heard or given up on. Not to be asked again after that.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<Listed, Failure>> {
        self.state.poll(cx, |state| state.answer.take())
    }

    fn answer(&self, answer: Result<Listed, Failure>) {
        self.state.update_and_wake(|state| {
            state.answer = Some(answer);
            true
        });
    }
}

impl Round for ListRound {
    fn request(&self, _node: usize) -> Request<'_> {
        let verb = Verb::List { from: &self.from };
        let Stamp { sent, wall_us } = self.stamp;
        Request { name: &self.name, sent, wall_us, verb }
    }

    fn cast(self: Arc<Self>, _node: usize, answer: Answer) {
        self.answer(match answer {
            Answer::Listed(listed) => Ok(*listed),
            Answer::Failed(failure) => Err(failure),
            _ => Err(Failure::new(FailureKind::Broken, "answered a look with a vote")),
        });
    }

    fn overdue(self: Arc<Self>, _node: usize, why: Failure) {
        self.answer(Err(why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps until it fails, and why.
    fn failed(next: impl Fn(u64) -> u64, name: Option<&str>) -> Option<(u64, String)> {
        let names: Vec<_> = name.map(|name| Name::new(name).unwrap()).into_iter().collect();
        let mut progress = ListProgress::default();
        (0..MOST_STEPS + 1).find_map(|step| {
            let next = Some(next(step).to_string().into_bytes());
            let failure = progress.step(&Listed { names: names.clone(), next }).err()?;
            Some((step, failure.to_string()))
        })
    }

    #[test]
    fn every_circle_is_noticed_soon() {
        for start in [0, 1, 5, 1_000] {
            for length in [1, 2, 3, 64, 999] {
                let next = |step| if step < start { 1_000_000 + step } else { step % length };
                let (step, why) = failed(next, None).expect("a circle");
                assert!(why.contains("in circles"), "{why}");
                assert!(step <= 4 * (start + length), "{step} steps, {start} + {length}");
            }
        }
    }

    #[test]
    fn no_list_goes_on_for_ever() {
        let (step, why) = failed(|step| step, None).expect("an end");
        assert!(step == MOST_STEPS - 1 && why.contains("131072 steps"), "{step}: {why}");
        let (step, why) = failed(|step| step, Some(&"x".repeat(512))).expect("an end");
        assert!(step < MOST_STEPS && why.contains("64 MiB"), "{step}: {why}");
    }

    #[test]
    fn a_list_that_ends_is_no_matter() {
        let mut progress = ListProgress::default();
        for step in 1..MOST_STEPS {
            let next = Some(step.to_string().into_bytes());
            progress.step(&Listed { names: vec![], next }).expect("it goes on");
        }
        progress.step(&Listed::default()).expect("it ends");
    }
}
