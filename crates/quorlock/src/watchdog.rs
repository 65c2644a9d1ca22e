//! One task and one timer for everything that a locker has to do in time.
//!
//! ```text
//!   lock ── set ──▶ wheel ◀── clear ── release        nobody is woken unless an alarm is early
//!                     │
//!                   task ── ring ──▶ claim: extend, or tell of the loss
//!                     │
//!                   sleeps until the first alarm, and for a second at the most
//! ```
//!
//! However many locks are held, there is one task. All alarms that are due at once ring in one turn,
//! so that what they send goes out together.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::locked::locked;
use crate::runtime::{BoxFuture, Runtime};
pub(crate) use crate::wheel::{Alarm, Place};
use crate::wheel::{Wheel, start_of, tick};
use quorlock_protocol::Moment;

/// The longest sleep. Timers stand still while the machine is suspended, and leases do not: this
/// soon after it wakes up is looked what is due.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// From one warning to the next.
const QUIET: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Watchdog {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    wheel: Wheel,
    rest: Rest,
    waker: Option<Waker>,
    closed: bool,
    /// When somebody was last warned.
    warned: Option<Moment>,
}

/// What the task does.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// It runs, and looks at the wheel before it rests.
    #[default]
    Awake,
    /// It sleeps until this tick.
    Until(u64),
    /// It sleeps until it is woken.
    Parked,
}

impl Watchdog {
    /// Starts the task. It ends with [`close`](Self::close).
    pub(crate) fn start(runtime: &Arc<dyn Runtime>) -> Arc<Self> {
        let watchdog = Arc::new(Self::default());
        let task =
            Task { watchdog: Arc::clone(&watchdog), runtime: Arc::clone(runtime), nap: None };
        runtime.spawn(Box::pin(task.run()));
        watchdog
    }

    /// Sets an alarm, or moves it if it is set already.
    pub(crate) fn set(&self, at: Moment, alarm: Arc<dyn Alarm>) {
        let (moved, waker) = {
            let mut state = locked(&self.state);
            let moved = state.wheel.set(at, alarm);
            (moved, state.waker_for(tick(at)))
        };
        drop(moved);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes an alarm back. The task is left alone: it finds nothing to do, and rests again.
    pub(crate) fn clear(&self, alarm: &dyn Alarm) {
        let cleared = locked(&self.state).wheel.clear(alarm.place());
        drop(cleared);
    }

    /// Whether so much time has passed since it last said so that another warning does no harm.
    pub(crate) fn may_warn(&self, now: Moment) -> bool {
        let mut state = locked(&self.state);
        let may = state.warned.is_none_or(|last| now.since(last) >= QUIET);
        if may {
            state.warned = Some(now);
        }
        may
    }

    /// Ends the task.
    pub(crate) fn close(&self) {
        let (left, waker) = {
            let mut state = locked(&self.state);
            state.closed = true;
            (state.wheel.take_all(), state.waker.take())
        };
        drop(left);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl State {
    /// The waker of the task, if it would sleep beyond `tick`.
    fn waker_for(&mut self, tick: u64) -> Option<Waker> {
        let late = match self.rest {
            Rest::Awake => false,
            Rest::Until(end) => tick < end,
            Rest::Parked => true,
        };
        if !late {
            return None;
        }
        self.rest = Rest::Awake;
        self.waker.clone()
    }
}

struct Task {
    watchdog: Arc<Watchdog>,
    runtime: Arc<dyn Runtime>,
    nap: Option<Nap>,
}

struct Nap {
    until: u64,
    sleep: BoxFuture<'static, ()>,
}

impl Task {
    async fn run(mut self) {
        poll_fn(|cx| self.poll(cx)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let now = self.runtime.now();
            let mut due = {
                let mut state = locked(&self.watchdog.state);
                if state.closed {
                    return Poll::Ready(());
                }
                let due = state.wheel.take_due(now);
                state.rest = match state.wheel.first() {
                    _ if !due.is_empty() => Rest::Awake,
                    None => Rest::Parked,
                    Some(first) => Rest::Until(first.min(tick(now.after(LONGEST_SLEEP)))),
                };
                if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    state.waker = Some(cx.waker().clone());
                }
                if due.is_empty() {
                    let rest = state.rest;
                    drop(state);
                    if self.rest(rest, now, cx).is_pending() {
                        return Poll::Pending;
                    }
                    continue;
                }
                due
            };
            for rung in &mut due {
                rung.ring(now);
            }
            locked(&self.watchdog.state).wheel.put_back(&due, now);
        }
    }

    /// Ready when the sleep is over.
    fn rest(&mut self, rest: Rest, now: Moment, cx: &mut Context<'_>) -> Poll<()> {
        let Rest::Until(until) = rest else {
            self.nap = None;
            return Poll::Pending;
        };
        if self.nap.as_ref().is_none_or(|nap| nap.until != until) {
            let sleep = self.runtime.sleep(start_of(until).since(now));
            self.nap = Some(Nap { until, sleep });
        }
        let Some(nap) = &mut self.nap else { return Poll::Pending };
        let over = nap.sleep.as_mut().poll(cx);
        if over.is_ready() {
            self.nap = None;
        }
        over
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchdog")
            .field("alarms", &locked(&self.state).wheel.len())
            .finish_non_exhaustive()
    }
}
