//! Keeping a lock for as long as a command runs.
//!
//! ```text
//!   taken                                                         validity ends
//!     ├──────── TTL/3 ────────┤                                        │
//!     │                    extend ── fails ── again every TTL/20 ─┤    │
//!     │                       │                                 TERM  KILL
//!     │                       └─ confirmed: all of this moves on  │ TTL/6 │
//! ```

use std::time::Duration;

use quorlock::{Error, Guard};
use tokio::time::{sleep, timeout};

use crate::stderr::warn;

/// Why the command has to end.
#[derive(Debug)]
pub(crate) enum Over {
    /// The lock is not held any more.
    Lost(Error),
    /// The lock is held for as long as it takes to end the command, and could not be extended.
    Ending(Option<Error>),
}

/// The rhythm of a lock with a certain TTL.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rhythm {
    /// From one extension to the next.
    pub(crate) every: Duration,
    /// From one that failed to the next.
    retry: Duration,
    /// What has to be left of the validity to end the command within it.
    lead: Duration,
}

/// The longest sleep. Timers stand still while the machine is suspended, and validity does not:
/// this soon after it wakes up is looked what is left.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// What a command gets between SIGTERM and SIGKILL when the lock is lost already: somebody else may
/// hold it, but a program that cleans up in an instant does less harm than one that cannot.
const GRACE_WHEN_LOST: Duration = Duration::from_millis(100);

impl Rhythm {
    pub(crate) fn of(ttl: Duration) -> Self {
        Self { every: ttl / 3, retry: ttl / 20, lead: ttl / 6 }
    }

    /// How long to wait between SIGTERM and SIGKILL: half of what is left. The other half is for
    /// the system, to carry the SIGKILL out.
    pub(crate) fn grace(self, guard: &Guard) -> Duration {
        if guard.is_held() { guard.remaining() / 2 } else { GRACE_WHEN_LOST.min(self.lead / 2) }
    }

    /// What is left before the command has to be ended.
    fn left(self, guard: &Guard) -> Duration {
        guard.remaining().saturating_sub(self.lead)
    }
}

/// Extends the lock again and again. Ends only when the command has to.
pub(crate) async fn keep(guard: &Guard, rhythm: Rhythm) -> Over {
    let mut failed: Option<Error> = None;
    loop {
        let pause = if failed.is_some() { rhythm.retry } else { rhythm.every };
        if !rest(guard, rhythm, pause).await {
            return over(guard, failed);
        }
        // An extension that is still under way when the command has to end comes too late.
        match timeout(rhythm.left(guard), guard.extend()).await {
            Ok(Ok(())) => failed = None,
            Ok(Err(error @ Error::Lost { .. })) => return Over::Lost(error),
            Ok(Err(error)) => {
                if failed.is_none() {
                    warn(format_args!("the lock is not extended yet, trying again: {error}"));
                }
                failed = Some(error);
            }
            Err(_) => return over(guard, failed),
        }
    }
}

/// Sleeps for `pause`; `false` if the command has to be ended before that.
async fn rest(guard: &Guard, rhythm: Rhythm, mut pause: Duration) -> bool {
    while !pause.is_zero() {
        let left = rhythm.left(guard);
        if left.is_zero() {
            return false;
        }
        let nap = pause.min(left).min(LONGEST_SLEEP);
        sleep(nap).await;
        pause -= nap;
    }
    !rhythm.left(guard).is_zero()
}

fn over(guard: &Guard, failed: Option<Error>) -> Over {
    match guard.state() {
        quorlock::GuardState::Lost(reason) => {
            Over::Lost(Error::Lost { name: guard.name().clone(), reason })
        }
        _ => Over::Ending(failed),
    }
}
