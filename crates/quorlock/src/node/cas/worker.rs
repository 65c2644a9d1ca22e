//! Serves calls on a store that can compare and set.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;

use super::step::{Around, Step, barrier, kept_longer, step, taken_back};
use super::{Change, Found, HoldChange, Store, Window, Written};
use crate::name::Name;
use crate::node::lanes::{Attempts, LaneNode, Readiness, Remember, Serve};
use crate::node::{
    Answer, Call, Capabilities, ClientId, Failure, FailureKind, Inbox, NodeContext, Request, Verb,
};
use crate::runtime::Runtime;

/// So many clients are looked for at once.
const LOOKED_FOR: usize = 100;

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
        let window = self.store.window();
        // Whether a write has shown that the time of the store cannot be had.
        let mut is_apart = false;
        loop {
            let now = self.runtime.now();
            let around = Around { now, will_notify: self.store.is_listening(), window };
            let may_be_over = window.is_some() && !is_apart && found.may_be_over(now);
            let next = match request.verb {
                // It is for people to read.
                Verb::Inspect if may_be_over => step(&found.as_it_seems(now), &request, around),
                // A write shows the time. What there is to be done depends on that.
                _ if may_be_over => {
                    let change = barrier(&found);
                    match self.write(name, &found, &change, known).await? {
                        Written::Done(now) | Written::Conflict(now) => found = now,
                        Written::Apart(now, failure) => {
                            if matches!(request.verb, Verb::Acquire { .. }) {
                                known.found = Some(now);
                                return Ok(Answer::Failed(failure));
                            }
                            // Whoever may be there is taken to be there.
                            (found, is_apart) = (now, true);
                        }
                        Written::Gone => {}
                    }
                    is_fresh = true;
                    continue;
                }
                _ => step(&found, &request, around),
            };
            let (answer, change) = match next {
                next if !is_fresh && next.needs_to_be_fresh() => {
                    found = self.store.read(name).await?;
                    is_fresh = true;
                    continue;
                }
                // By an earlier attempt, or long ago.
                Step::Answer(answer @ Answer::Granted { .. })
                    if !is_believable(&request, &found, window) =>
                {
                    (answer, Box::new(kept_longer(&found, &request)))
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
            let released = is_release.then(|| answer.clone());
            let was_released = std::mem::replace(&mut attempts.released, released);
            match self.write(name, &found, &change, known).await {
                Ok(Written::Done(now)) => {
                    let is_good = match answer {
                        Answer::Granted { .. } => is_believable(&request, &now, window),
                        _ => true,
                    };
                    if is_good {
                        known.found = Some(now);
                        return Ok(answer);
                    }
                    let failure = was_behind();
                    return Ok(self.untimely(&request, &found, now, &change, failure, known).await);
                }
                Ok(Written::Apart(now, failure)) => {
                    let rests_on_time = match answer {
                        Answer::Granted { .. } => !matches!(request.verb, Verb::Confirm { .. }),
                        Answer::Queued(_) => true,
                        _ => false,
                    };
                    if !rests_on_time {
                        known.found = Some(now);
                        return Ok(answer);
                    }
                    return Ok(self.untimely(&request, &found, now, &change, failure, known).await);
                }
                Ok(Written::Conflict(now)) => {
                    attempts.released = was_released;
                    (found, is_fresh) = (now, true);
                }
                Ok(Written::Gone) => {
                    attempts.released = was_released;
                    if let Some(message) = &change.message {
                        found = self.without_absent(name, found, message.client, known).await?;
                    }
                }
                Err(failure) => {
                    if !may_run(&failure) {
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

impl<S: Store> Serving<S> {
    /// Writes, and notes whether that may run later.
    async fn write(
        &self,
        name: &Name,
        found: &Found,
        change: &Change,
        known: &mut Known,
    ) -> Result<Written, Failure> {
        // Unless it is known not to run, it may run until it is answered.
        let was_unsure = std::mem::replace(&mut known.is_unsure, true);
        let written = self.store.write(name, found, change).await;
        known.is_unsure = match &written {
            Ok(Written::Done(_) | Written::Apart(..)) => false,
            Ok(Written::Conflict(_) | Written::Gone) => was_unsure,
            Err(failure) => was_unsure || may_run(failure),
        };
        written
    }

    /// What is there once those in front of the queue have gone whose clients are not there, as `gone` is not.
    ///
    /// They are left out of what is written next. If there may be more of them, that is written at once: whoever is
    /// cut off has then made the queue shorter for the next.
    async fn without_absent(
        &self,
        name: &Name,
        mut found: Found,
        gone: ClientId,
        known: &mut Known,
    ) -> Result<Found, Failure> {
        let first = found.state.queue.first_clients(LOOKED_FOR);
        let mut absent = self.store.absent(&first).await?;
        let may_be_more = absent.len() == LOOKED_FOR;
        absent.push(gone);
        found.state.queue.remove_clients(&absent);
        if !may_be_more {
            return Ok(found);
        }
        Ok(match self.write(name, &found, &barrier(&found), known).await? {
            Written::Done(now) | Written::Apart(now, _) | Written::Conflict(now) => now,
            Written::Gone => found,
        })
    }

    /// What was written at a time that cannot be believed is taken back, if it gave the lock to this client, or had this
    /// client hold it for longer. The answer to who asked for it.
    async fn untimely(
        &self,
        request: &Request<'_>,
        before: &Found,
        now: Found,
        change: &Change,
        failure: Failure,
        known: &mut Known,
    ) -> Answer {
        let is_new = matches!(change.holds, HoldChange::Replace { .. }) && change.message.is_none();
        let (from, undo) = if is_new || matches!(request.verb, Verb::Acquire { .. }) {
            let undo = taken_back(&now, before.state.fence);
            (now, undo)
        } else if matches!(change.holds, HoldChange::Extend { .. }) {
            // Its holder may believe in what it had before, and in no more than that.
            let from = Found { holds: before.holds.clone(), ..now };
            let undo = barrier(&from);
            (from, undo)
        } else {
            known.found = Some(now);
            return Answer::Failed(failure);
        };
        match self.write(request.name, &from, &undo, known).await {
            Ok(Written::Done(now) | Written::Apart(now, _) | Written::Conflict(now)) => {
                known.found = Some(now);
                Answer::Failed(failure)
            }
            Ok(Written::Gone) => Answer::Failed(failure),
            // It is there still, or may be.
            Err(_) => Answer::Failed(Failure::new(FailureKind::Silent, failure.to_string())),
        }
    }
}

/// Why a lock cannot be believed to be ours.
fn was_behind() -> Failure {
    let text = "its clock was behind this machine's when the lock was recorded; let a daemon such as chrony keep \
                the clocks of all machines";
    Failure::new(FailureKind::Clock, text)
}

/// Whether a lock that is ours lasts, by the clock of the store, for as long as its holder will believe in it.
fn is_believable(request: &Request<'_>, found: &Found, window: Option<Window>) -> bool {
    let Some(window) = window else { return true };
    let (who, ttl) = match request.verb {
        Verb::Acquire { ttl, .. } | Verb::Wait { ttl, .. } => (None, ttl),
        Verb::Extend { ttl, participant, .. } => (participant, ttl),
        _ => return true,
    };
    found.lasts_until(who, window.least_end_us(request.wall_us, ttl))
}

/// Whether a write that failed like this may run later.
fn may_run(failure: &Failure) -> bool {
    matches!(failure.kind(), FailureKind::Silent | FailureKind::Broken)
}
