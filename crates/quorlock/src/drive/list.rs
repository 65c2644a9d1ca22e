//! The round that asks one node which locks it holds.

use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::core::{Core, Stamp};
use crate::locked::locked;
use crate::name::Name;
use crate::node::{Answer, Failure, FailureKind, Listed, Request, Round, Verb};
use quorlock_protocol::NodeSet;

/// One step of it.
#[derive(Debug)]
pub(crate) struct ListRound {
    /// Of no meaning.
    name: Name,
    from: Vec<u8>,
    stamp: Stamp,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    answer: Option<Result<Listed, Failure>>,
    waker: Option<Waker>,
}

impl ListRound {
    pub(crate) fn start(core: &Core, name: Name, node: usize, from: Vec<u8>) -> Arc<Self> {
        let round = Arc::new(Self { name, from, stamp: core.stamp(), state: Mutex::default() });
        let mut nodes = NodeSet::EMPTY;
        nodes.insert(node);
        core.ask(&round, nodes);
        round
    }

    /// Ready once the node was heard or given up on. Not to be asked again after that.
    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Result<Listed, Failure>> {
        let mut state = locked(&self.state);
        match state.answer.take() {
            Some(answer) => Poll::Ready(answer),
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn answer(&self, answer: Result<Listed, Failure>) {
        let waker = {
            let mut state = locked(&self.state);
            state.answer = Some(answer);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
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
            Answer::Listed(listed) => Ok(listed),
            Answer::Failed(failure) => Err(failure),
            _ => Err(Failure::new(FailureKind::Broken, "answered a look with a vote")),
        });
    }

    fn overdue(self: Arc<Self>, _node: usize, why: Failure) {
        self.answer(Err(why));
    }
}
