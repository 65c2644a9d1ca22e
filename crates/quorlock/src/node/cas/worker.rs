//! Serves calls on a store that can compare and set.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;

use super::step::{Step, barrier, step};
use super::{Found, Store, Written};
use crate::node::lanes::{Attempts, LaneNode, Readiness, Remember, Serve};
use crate::node::{Answer, Call, Capabilities, Failure, FailureKind, Inbox, NodeContext, Verb};
use crate::runtime::Runtime;

/// A node on a store.
pub(in crate::node) type CasNode<S> = LaneNode<Serving<S>>;

impl<S: Store> CasNode<S> {
    /// Serves calls from now on. Those that the store cannot do within `limit` are given up.
    pub(in crate::node) fn start(
        label: String,
        store: Arc<S>,
        readiness: watch::Receiver<Readiness>,
        capabilities: Capabilities,
        limit: Duration,
        context: &NodeContext,
    ) -> Self {
        let serving = Serving { store, runtime: Arc::clone(&context.runtime) };
        Self::serve(label, serving, readiness, capabilities, limit, context)
    }
}

/// What is known of a lock from the calls before.
#[derive(Debug, Default)]
pub(in crate::node) struct Known {
    found: Option<Found>,
    /// A write was sent whose fate is not known.
    is_unsure: bool,
}

impl Remember for Known {
    fn is_unsure(&self) -> bool {
        self.is_unsure
    }

    fn stale(&mut self) {
        self.found = None;
    }
}

/// What serves one call.
pub(in crate::node) struct Serving<S> {
    store: Arc<S>,
    runtime: Arc<dyn Runtime>,
}

impl<S: Store> Serve for Serving<S> {
    type Known = Known;

    async fn attempt(
        &self,
        call: &Call,
        known: &mut Known,
        attempts: &mut Attempts,
    ) -> Result<Answer, Failure> {
        let request = call.request();
        if let Verb::List { from } = request.verb {
            return self.store.list(from).await.map(|listed| Answer::Listed(Box::new(listed)));
        }
        let name = request.name;
        let is_release = matches!(request.verb, Verb::Release { .. } | Verb::ForceRelease { .. });
        let mut is_fresh = false;
        // Nothing may be there, which the write finds out as well as a read.
        let mut found = match known.found.take() {
            Some(found) => found,
            None if known.is_unsure => {
                is_fresh = true;
                self.store.read(name).await?
            }
            None => Found::default(),
        };
        loop {
            let next = step(&found, &request, self.runtime.now(), self.store.is_listening());
            let (answer, change) = match next {
                next if !is_fresh && next.needs_to_be_fresh() => {
                    found = self.store.read(name).await?;
                    is_fresh = true;
                    continue;
                }
                Step::Answer(answer) if !known.is_unsure => {
                    known.found = Some(found);
                    return Ok(answer);
                }
                Step::Answer(answer) => (answer, Box::new(barrier(&found))),
                Step::Write(answer, change) => (answer, change),
            };
            let answer = match answer {
                Answer::Refused if is_release => attempts.released.clone().unwrap_or(answer),
                answer => answer,
            };
            // Unless it is known not to run, it may run until it is answered.
            let was_unsure = std::mem::replace(&mut known.is_unsure, true);
            let released = is_release.then(|| answer.clone());
            let was_released = std::mem::replace(&mut attempts.released, released);
            match self.store.write(name, &found, &change).await {
                Ok(Written::Done(now)) => {
                    *known = Known { found: Some(now), is_unsure: false };
                    return Ok(answer);
                }
                Ok(Written::Conflict(now)) => {
                    known.is_unsure = was_unsure;
                    attempts.released = was_released;
                    (found, is_fresh) = (now, true);
                }
                Ok(Written::Gone) => {
                    known.is_unsure = was_unsure;
                    attempts.released = was_released;
                    if let Some(message) = &change.message {
                        found.state.remove_client(message.client);
                    }
                }
                Err(failure) => {
                    let may_run =
                        matches!(failure.kind(), FailureKind::Silent | FailureKind::Broken);
                    known.is_unsure = was_unsure || may_run;
                    if !may_run {
                        attempts.released = was_released;
                    }
                    return Err(failure);
                }
            }
        }
    }

    fn listen(&self, node: usize, inbox: Weak<dyn Inbox>) {
        self.store.listen(node, inbox);
    }

    async fn close(&self) {
        self.store.close().await;
    }
}
