//! Getting the lock: connecting to the nodes and waiting, no longer than was asked for.

use std::ffi::OsStr;
use std::future::IntoFuture;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use quorlock::node::FailureKind;
use quorlock::{Error, Guard, Lock, Locker, Owner};
use rustix::process::{Signal, getpgrp, getpid, kill_process};
use tokio::select;
use tokio::time::{sleep, timeout};

use crate::duration::shown;
use crate::exit::{self, Failed};
use crate::grace;
use crate::plan;
use crate::processes;
use crate::reaper;
use crate::signals::{Event, Signals};
use crate::stderr::{self, warn};
use crate::waiting;

/// The pauses between two attempts to connect: short at first, for nodes that are just starting.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// How long to wait, for the nodes and the lock together.
pub(crate) struct Patience {
    began: Instant,
    /// `None` without end; zero is one attempt.
    wait: Option<Duration>,
    /// How long to wait for votes that are missing, by who does not wait for the lock.
    votes: Duration,
}

impl Patience {
    pub(crate) fn new(wait: Option<Duration>) -> Self {
        Self { began: Instant::now(), wait, votes: Duration::ZERO }
    }

    /// The same, where who does not wait for the lock waits so long for votes.
    pub(crate) fn with_votes(wait: Option<Duration>, votes: Duration) -> Self {
        Self { votes, ..Self::new(wait) }
    }

    /// What is left of it; `None` without end.
    fn left(&self) -> Option<Duration> {
        self.wait.map(|wait| wait.saturating_sub(self.began.elapsed()))
    }

    /// Whether there was any.
    fn lasts(&self) -> bool {
        self.wait.is_none_or(|wait| !wait.is_zero())
    }

    /// What is left of it for nodes that cannot be reached, or cast no vote; `None` without end.
    fn left_for_votes(&self) -> Option<Duration> {
        if self.lasts() {
            self.left()
        } else {
            Some(self.votes.saturating_sub(self.began.elapsed()))
        }
    }

    fn is_over(&self) -> bool {
        self.left_for_votes().is_some_and(|left| left.is_zero())
    }
}

/// Ends with a signal that ends the waiting. Ctrl-Z stops this process: it holds nothing yet, and
/// if it is given the lock meanwhile, others get it after the TTL.
pub(crate) async fn signalled(signals: &mut Signals) -> Signal {
    loop {
        match signals.next().await {
            Event::Signal(signal) => return signal,
            Event::Suspend => stop(),
            Event::Child => reaper::collect(None),
        }
    }
}

/// Stops this process, unless nobody would make it go on.
pub(crate) fn stop() {
    if processes::somebody_continues(getpgrp()) {
        stderr::hide();
        stderr::flush();
        // Nothing can keep a process from stopping itself.
        let _ = kill_process(getpid(), Signal::STOP);
    }
}

/// Connects to the nodes: again and again while there is patience, if they may yet come.
pub(crate) async fn connect(plan: &plan::Run, patience: &Patience) -> Result<Locker, Failed> {
    let mut pause = FIRST_PAUSE;
    let mut last = match plan.cluster.connect().await {
        Ok(locker) => return Ok(locker),
        Err(error) => error,
    };
    if patience.is_over() || !may_come(&last) {
        return Err(last.into());
    }
    match patience.left_for_votes() {
        Some(left) if !patience.lasts() => {
            warn(format_args!("{last}; trying again for {} (--votes-within)", shown(left)));
        }
        Some(left) => warn(format_args!("{last}; trying again for {}", shown(left))),
        None => warn(format_args!("{last}; trying again until they are there")),
    }
    let connected = loop {
        sleep(patience.left_for_votes().map_or(pause, |left| left.min(pause))).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        // The last attempt is cut off when the time is over.
        let attempt = plan.cluster.connect_again();
        let attempt = match patience.left_for_votes() {
            None => attempt.await,
            Some(left) => timeout(left, attempt).await.unwrap_or_else(|_| Err(last.clone())),
        };
        match attempt {
            Ok(locker) => break Ok(locker),
            Err(error) if patience.is_over() || !may_come(&error) => break Err(error),
            Err(error) => last = error,
        }
    };
    connected.map_err(|error| {
        let failed = Failed::from(error);
        let message =
            format!("waited {} for the nodes: {}", shown(patience.began.elapsed()), failed.message);
        Failed { message, ..failed }
    })
}

/// Whether nodes may be there later which are not there now. Those that are there and cannot be
/// used, as with a wrong password, wait for somebody to mend them.
fn may_come(error: &Error) -> bool {
    let Error::NoQuorum { need, nodes, answers, .. } = error else { return false };
    let hopeless = answers.0.iter().filter(|answer| {
        answer.failure.as_ref().is_some_and(|failure| {
            use FailureKind::{Duplicate, Unfit, WrongType};
            matches!(failure.kind(), Duplicate | Unfit | WrongType)
        })
    });
    nodes - hopeless.count() >= *need
}

/// Takes the lock, for as long as the patience lasts.
pub(crate) async fn lock(
    plan: &plan::Run,
    locker: &Locker,
    owner: &Owner,
    patience: &Patience,
) -> Result<Guard, Failed> {
    loop {
        // With less than a third it might be too late for the first extension. Of a TTL that is short
        // beside what clocks may differ by, less than that can be had. A holder that is notified early needs some more.
        let least = (plan.cluster.ttl / 3).min(locker.validity() / 2);
        let early = plan.cluster.lead().saturating_sub(grace::lead(plan.cluster.ttl));
        let mut lock = locker
            .lock(plan.name.as_bytes())
            .at_least(least.saturating_add(early).min(locker.validity() * 3 / 4).max(least))
            .owner(owner)
            .note(&*plan.note);
        if let Some(longest) = plan.max_hold {
            lock = lock.max_hold(longest);
        }
        if let Some(wait) = plan.wait {
            // A caller that was ready to wait gets no error that says it was not, though the nodes took it all.
            let least = wait.min(Duration::from_millis(1));
            lock = lock.wait(patience.left().unwrap_or_default().max(least));
            if !patience.lasts() {
                lock = lock.votes_within(patience.left_for_votes().unwrap_or_default());
            }
        }
        match wait_for(lock, locker, &plan.name, patience).await {
            // A process that was stopped in the meantime may have it too late.
            Ok(guard) if !guard.is_held() => {}
            Ok(guard) => return Ok(guard),
            Err(error) => return Err(not_taken(error, plan.conflict_code)),
        }
    }
}

/// Takes a lock, and shows at a terminal how it stands meanwhile, or logs it elsewhere.
pub(crate) async fn wait_for(
    lock: Lock,
    locker: &Locker,
    name: &OsStr,
    patience: &Patience,
) -> Result<Guard, Error> {
    let taken = select! {
        biased;
        taken = lock.into_future() => taken,
        never = waiting::show(locker, name, patience.began), if patience.lasts() => match never {},
    };
    stderr::hide();
    if let Ok(guard) = &taken {
        let (name, waited) = (guard.name(), shown(patience.began.elapsed()));
        let fence = guard.try_fence().map_or_else(String::new, |fence| format!(", fence {fence}"));
        tracing::info!(lock = %name, "got the lock {name} after {waited}{fence}");
    }
    taken
}

/// Why a lock was not taken, with a code of the caller's own if somebody else has it.
pub(crate) fn not_taken(error: Error, conflict_code: Option<u8>) -> Failed {
    let failed = Failed::from(error);
    let in_vain = [exit::TAKEN, exit::WAITED].contains(&failed.code);
    match conflict_code {
        Some(code) if in_vain => Failed { code, ..failed },
        _ => failed,
    }
}
