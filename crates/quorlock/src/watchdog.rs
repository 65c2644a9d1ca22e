//! One task and one timer for everything that a locker has to do in time.
//!
//! ```text
//!   lock ── set ──▶ wheel ◀── clear ── release        nobody is woken unless an alarm is early
//!                     │
//!                   task ── ring ──▶ claim: extend, or tell of the loss
//!                     │
//!                   sleeps until the first alarm, or until the time of day is set,
//!                   and for a second at the most
//! ```
//!
//! However many locks are held, there is one task. Alarms that are due at once ring in one turn, so that
//! what they send goes out together; a crowd of them in several, so that it goes out meanwhile.

use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::lease_clock::LeaseClock;
use crate::locked::locked;
use crate::runtime::{BoxFuture, Runtime};
pub(crate) use crate::wheel::{Alarm, WheelSlot};
use crate::wheel::{Wheel, start_of, tick};
use quorlock_protocol::{MAX_NODES, Moment, NodeSet};

/// The longest sleep. Timers stand still while the machine is suspended, and leases do not: this
/// soon after it wakes up is looked what is due, and after the time of day was set, where the system does
/// not tell of it.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// So many alarms ring before others of the same thread have their turn, such as what is to send what they have
/// asked for.
const RUNG_AT_ONCE: usize = 256;

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
    /// Sessions on these nodes have ended while alarms are ringing, which the wheel does not hold then.
    ended: NodeSet,
    ringing: bool,
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
    pub(crate) fn start(runtime: &dyn Runtime, clock: &Arc<LeaseClock>) -> Arc<Self> {
        let watchdog = Arc::new(Self::default());
        let task = Task::new(&watchdog, clock);
        runtime.spawn(Box::pin(task.run()));
        watchdog
    }

    /// Sets an alarm, or moves it if it is set already.
    pub(crate) fn set(&self, at: Moment, now: Moment, alarm: Arc<dyn Alarm>) {
        let (moved, waker) = {
            let mut state = locked(&self.state);
            let moved = state.wheel.set(at, alarm);
            (moved, state.waker_for(tick(at), tick(now)))
        };
        drop(moved);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes an alarm back. The task is left alone: it finds nothing to do, and rests again.
    pub(crate) fn clear(&self, alarm: &dyn Alarm) {
        let cleared = locked(&self.state).wheel.clear(alarm.slot());
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

    /// The session on `node` has ended: tells everything that is set now, or rings at this moment.
    pub(crate) fn session_ended(&self, node: usize) {
        let set = {
            let mut state = locked(&self.state);
            if state.ringing {
                state.ended.insert(node);
            }
            state.wheel.all()
        };
        for alarm in set {
            alarm.session_ended(node);
        }
    }

    /// How many alarms are set.
    pub(crate) fn len(&self) -> usize {
        locked(&self.state).wheel.len()
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
    /// The waker of the task, if it would sleep beyond `tick`, or if its sleep should have ended
    /// already: timers stand still while the machine is suspended, and this one has something left.
    fn waker_for(&mut self, tick: u64, now: u64) -> Option<Waker> {
        let late = match self.rest {
            Rest::Awake => false,
            Rest::Until(end) => tick < end || end < now,
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
    clock: Arc<LeaseClock>,
    /// Ends when many alarms may be due all at once, since the clock was set.
    set: BoxFuture<'static, ()>,
    nap: Option<Nap>,
}

struct Nap {
    until: u64,
    sleep: BoxFuture<'static, ()>,
}

impl Task {
    fn new(watchdog: &Arc<Watchdog>, clock: &Arc<LeaseClock>) -> Self {
        let (watchdog, clock) = (Arc::clone(watchdog), Arc::clone(clock));
        Self { watchdog, set: Box::pin(std::future::pending()), clock, nap: None }
    }

    async fn run(mut self) {
        // Made by the task, inside of its runtime.
        self.set = self.clock.set();
        poll_fn(|cx| self.poll(cx)).await;
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            // Before the look at the clock, so that nothing can slip in between.
            while self.set.as_mut().poll(cx).is_ready() {
                self.set = self.clock.set();
                // It was to end at the same moment by another time.
                self.nap = None;
            }
            let now = self.clock.now();
            let mut due = {
                let mut state = locked(&self.watchdog.state);
                if state.closed {
                    return Poll::Ready(());
                }
                let due = state.wheel.take_due(now, RUNG_AT_ONCE);
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
                state.ringing = true;
                due
            };
            for rung in &mut due {
                rung.ring(now);
            }
            let ended = {
                let mut state = locked(&self.watchdog.state);
                state.wheel.put_back(&due, now);
                state.ringing = false;
                std::mem::take(&mut state.ended)
            };
            for node in (0..MAX_NODES).filter(|node| ended.contains(*node)) {
                due.iter().for_each(|rung| rung.alarm().session_ended(node));
            }
            if due.len() == RUNG_AT_ONCE {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Ready when the sleep is over.
    fn rest(&mut self, rest: Rest, now: Moment, cx: &mut Context<'_>) -> Poll<()> {
        let Rest::Until(until) = rest else {
            self.nap = None;
            return Poll::Pending;
        };
        if self.nap.as_ref().is_none_or(|nap| nap.until != until) {
            let sleep = self.clock.sleep(start_of(until).since(now));
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
        f.debug_struct("Watchdog").field("alarms", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::task::Wake;
    use std::time::SystemTime;

    use super::*;

    /// A clock that is set by hand, and sleeps that never end.
    #[derive(Debug, Default)]
    struct Still {
        now: Mutex<Moment>,
        slept: Mutex<Vec<Duration>>,
    }

    impl Runtime for Still {
        fn now(&self) -> Moment {
            *locked(&self.now)
        }

        fn wall(&self) -> SystemTime {
            SystemTime::UNIX_EPOCH
        }

        fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
            locked(&self.slept).push(duration);
            Box::pin(std::future::pending())
        }

        fn spawn(&self, _: BoxFuture<'static, ()>) {}

        fn random(&self, _: &mut [u8]) {}
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    /// A watchdog whose task runs only when it is told to.
    struct Kennel {
        runtime: Arc<Still>,
        watchdog: Arc<Watchdog>,
        task: Task,
        woken: Arc<Woken>,
    }

    impl Kennel {
        fn new() -> Self {
            let runtime = Arc::new(Still::default());
            let watchdog = Arc::new(Watchdog::default());
            let clock = LeaseClock::new(&(Arc::clone(&runtime) as Arc<dyn Runtime>), false);
            let task = Task::new(&watchdog, &Arc::new(clock));
            let mut kennel = Self { runtime, watchdog, task, woken: Arc::default() };
            assert!(kennel.turn(0).is_pending());
            kennel
        }

        fn turn(&mut self, now_ms: u64) -> Poll<()> {
            *locked(&self.runtime.now) = at(now_ms);
            let waker = Waker::from(Arc::clone(&self.woken));
            self.task.poll(&mut Context::from_waker(&waker))
        }

        fn woken(&self) -> usize {
            self.woken.0.load(SeqCst)
        }
    }

    /// Notes when it is rung, and does what it is told to then.
    #[derive(Default)]
    struct Bell {
        slot: WheelSlot,
        rung: Mutex<Vec<Moment>>,
        /// The nodes whose session has ended.
        ended: Mutex<Vec<usize>>,
        act: Mutex<Option<Act>>,
    }

    type Act = Box<dyn FnMut(Arc<Bell>) -> Option<Moment> + Send>;

    impl Alarm for Bell {
        fn slot(&self) -> &WheelSlot {
            &self.slot
        }

        fn ring(self: Arc<Self>, now: Moment) -> Option<Moment> {
            locked(&self.rung).push(now);
            let mut act = locked(&self.act).take()?;
            act(self)
        }

        fn session_ended(&self, node: usize) {
            locked(&self.ended).push(node);
        }
    }

    impl Bell {
        fn that(act: impl FnMut(Arc<Self>) -> Option<Moment> + Send + 'static) -> Arc<Self> {
            Arc::new(Self { act: Mutex::new(Some(Box::new(act))), ..Self::default() })
        }

        fn rung(&self) -> Vec<Moment> {
            locked(&self.rung).clone()
        }
    }

    fn at(ms: u64) -> Moment {
        Moment::default().after(Duration::from_millis(ms))
    }

    #[test]
    fn all_that_is_due_rings_in_one_turn_and_never_before_its_time() {
        let mut kennel = Kennel::new();
        let bells: Vec<_> = (0..100).map(|_| Arc::new(Bell::default())).collect();
        let due = at(10).after(Duration::from_micros(700));
        for bell in &bells {
            kennel.watchdog.set(due, at(0), Arc::clone(bell) as Arc<dyn Alarm>);
        }
        assert!(kennel.turn(9).is_pending());
        assert!(bells.iter().all(|bell| bell.rung().is_empty()));
        // Its tick has begun: rather a little early than late.
        assert!(kennel.turn(10).is_pending());
        assert!(bells.iter().all(|bell| bell.rung() == [due]));
        assert_eq!(locked(&kennel.watchdog.state).wheel.len(), 0);
        assert!(bells.iter().all(|bell| Arc::strong_count(bell) == 1), "something keeps them");
    }

    #[test]
    fn the_task_is_woken_only_for_what_it_would_sleep_through() {
        let mut kennel = Kennel::new();
        let (near, far) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
        kennel.watchdog.set(at(500), at(0), Arc::clone(&near) as Arc<dyn Alarm>);
        assert_eq!(kennel.woken(), 1, "it was parked");
        assert!(kennel.turn(1).is_pending());
        for cycle in 0..1_000 {
            kennel.watchdog.set(at(600 + cycle), at(0), Arc::clone(&far) as Arc<dyn Alarm>);
            kennel.watchdog.clear(&*far);
        }
        kennel.watchdog.clear(&*near);
        assert_eq!(kennel.woken(), 1, "a cycle woke it");
        kennel.watchdog.set(at(499), at(0), Arc::clone(&far) as Arc<dyn Alarm>);
        kennel.watchdog.set(at(498), at(0), near);
        assert_eq!(kennel.woken(), 2, "once is enough");
    }

    /// What its timer has left after a suspension is as long as ever, and the clock has moved on.
    #[test]
    fn the_task_is_woken_for_an_alarm_that_is_set_after_a_suspension() {
        let mut kennel = Kennel::new();
        kennel.watchdog.set(at(60_000), at(0), Arc::new(Bell::default()));
        assert!(kennel.turn(0).is_pending());
        let before = kennel.woken();
        kennel.watchdog.set(at(1_900), at(1_000), Arc::new(Bell::default()));
        assert_eq!(kennel.woken(), before, "its sleep ends at this moment");
        kennel.watchdog.set(at(9_900), at(9_000), Arc::new(Bell::default()));
        assert_eq!(kennel.woken(), before + 1);
    }

    #[test]
    fn it_sleeps_until_the_first_alarm_and_for_a_second_at_the_most() {
        let mut kennel = Kennel::new();
        kennel.watchdog.set(at(60_000), at(0), Arc::new(Bell::default()));
        assert!(kennel.turn(0).is_pending());
        kennel.watchdog.set(at(70), at(0), Arc::new(Bell::default()));
        assert!(kennel.turn(0).is_pending());
        let slept = locked(&kennel.runtime.slept).clone();
        assert_eq!(slept, [Duration::from_secs(1), Duration::from_millis(70)]);
    }

    #[test]
    fn alarms_learn_of_a_session_that_ended_though_they_ring_at_that_moment() {
        let mut kennel = Kennel::new();
        let watchdog = Arc::clone(&kennel.watchdog);
        let rings = Bell::that(move |_| {
            watchdog.session_ended(2);
            Some(at(50))
        });
        let rests = Bell::that(|_| None);
        kennel.watchdog.set(at(10), at(0), Arc::clone(&rings) as Arc<dyn Alarm>);
        kennel.watchdog.set(at(90), at(0), Arc::clone(&rests) as Arc<dyn Alarm>);
        assert!(kennel.turn(10).is_pending());
        for bell in [&rings, &rests] {
            assert_eq!(*locked(&bell.ended), [2], "once");
        }
        // One that is set later has nothing to do with it.
        let later = Bell::that(|_| None);
        kennel.watchdog.set(at(95), at(0), Arc::clone(&later) as Arc<dyn Alarm>);
        assert!(kennel.turn(50).is_pending());
        assert!(locked(&later.ended).is_empty());
        kennel.watchdog.session_ended(0);
        assert_eq!(*locked(&rests.ended), [2, 0]);
    }

    #[test]
    fn an_alarm_that_is_cleared_while_it_rings_is_not_put_back() {
        let mut kennel = Kennel::new();
        let watchdog = Arc::clone(&kennel.watchdog);
        let bell = Bell::that(move |bell| {
            watchdog.clear(&*bell);
            Some(at(20))
        });
        kennel.watchdog.set(at(10), at(0), Arc::clone(&bell) as Arc<dyn Alarm>);
        assert!(kennel.turn(10).is_pending());
        assert_eq!(Arc::strong_count(&bell), 1, "something keeps it");
        assert!(kennel.turn(30).is_pending());
        assert_eq!(bell.rung(), [at(10)]);
        // It can be set again.
        kennel.watchdog.set(at(40), at(0), Arc::clone(&bell) as Arc<dyn Alarm>);
        assert!(kennel.turn(40).is_pending());
        assert_eq!(bell.rung(), [at(10), at(40)]);
    }

    #[test]
    fn an_alarm_that_is_set_while_it_rings_rings_at_the_earlier_time() {
        for (set, returned, next) in [(20, Some(30), 20), (30, Some(20), 20), (30, None, 30)] {
            let mut kennel = Kennel::new();
            let watchdog = Arc::clone(&kennel.watchdog);
            let bell = Bell::that(move |bell| {
                watchdog.set(at(set), at(0), bell);
                returned.map(at)
            });
            kennel.watchdog.set(at(10), at(0), Arc::clone(&bell) as Arc<dyn Alarm>);
            for now in [10, next - 1, next, 90] {
                assert!(kennel.turn(now).is_pending());
            }
            assert_eq!(bell.rung(), [at(10), at(next)]);
        }
    }

    #[test]
    fn an_alarm_that_wants_to_ring_at_once_waits_for_its_next_turn() {
        let mut kennel = Kennel::new();
        let bell = Bell::that(|_| Some(at(0)));
        kennel.watchdog.set(at(10), at(0), Arc::clone(&bell) as Arc<dyn Alarm>);
        assert!(kennel.turn(10).is_pending());
        assert_eq!(bell.rung(), [at(10)]);
        assert!(kennel.turn(11).is_pending());
        assert_eq!(bell.rung().len(), 2);
    }

    /// It may be somebody's waker that panics.
    #[test]
    fn one_that_panics_silences_nobody_and_rings_again() {
        let mut kennel = Kennel::new();
        let broken = Bell::that(|_| panic!("somebody's mistake"));
        let other = Arc::new(Bell::default());
        for bell in [&broken, &other] {
            kennel.watchdog.set(at(10), at(0), Arc::clone(bell) as Arc<dyn Alarm>);
        }
        assert!(kennel.turn(10).is_pending());
        assert_eq!(other.rung(), [at(10)]);
        assert!(kennel.turn(1_000).is_pending());
        assert_eq!(broken.rung().len(), 2);
    }

    #[test]
    fn closed_it_ends_and_lets_go_of_everything() {
        let mut kennel = Kennel::new();
        let bell = Arc::new(Bell::default());
        kennel.watchdog.set(at(10), at(0), Arc::clone(&bell) as Arc<dyn Alarm>);
        kennel.watchdog.close();
        assert_eq!(Arc::strong_count(&bell), 1);
        assert!(kennel.turn(1).is_ready());
        assert_eq!(kennel.woken(), 2);
    }

    #[test]
    fn one_warning_a_second() {
        let watchdog = Watchdog::default();
        let may: Vec<_> =
            [0, 999, 1_000, 1_500, 2_100].map(|now| watchdog.may_warn(at(now))).to_vec();
        assert_eq!(may, [true, false, true, false, true]);
    }
}
