//! Alarms in the order of their time.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use quorlock_protocol::Moment;

/// Something that wants to be called at a certain time, again and again.
pub(crate) trait Alarm: Send + Sync {
    /// Where it stands in the wheel; only the watchdog touches it.
    fn slot(&self) -> &WheelSlot;

    /// Its time has come. Returns when to ring next, or `None` for never (until it is set again).
    ///
    /// `now` is the time it was set for, or later. What it was set for by others in the meantime
    /// stands, if that is earlier.
    fn ring(self: Arc<Self>, now: Moment) -> Option<Moment>;

    /// The session on `node` has ended, and with it what the node had granted.
    fn session_ended(&self, node: usize);
}

/// One tick of the wheel. Times are rounded down to it, so that no alarm is late by rounding.
const TICK_NS: u64 = 1_000_000;

/// An alarm that has panicked rings again after this.
const AFTER_PANIC: Duration = Duration::from_millis(50);

/// The latest tick keeps room for so many alarms.
const KEPT_ROOM: usize = 16;

/// Where an alarm stands in the wheel. It is read and written only under the wheel's mutex: the
/// atomics are there to say so without `unsafe`, not to order anything.
#[derive(Default)]
pub(crate) struct WheelSlot {
    at_ns: AtomicU64,
    index: AtomicU32,
    state: AtomicU8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Out,
    In,
    /// Taken out to be rung, to be put back with the time that it returns.
    Ringing,
    /// Cleared while it was rung: not to be put back.
    Cleared,
}

impl WheelSlot {
    fn state(&self) -> State {
        match self.state.load(Relaxed) {
            0 => State::Out,
            1 => State::In,
            2 => State::Ringing,
            _ => State::Cleared,
        }
    }

    fn mark(&self, state: State) {
        self.state.store(state as u8, Relaxed);
    }

    fn at(&self) -> Moment {
        Moment::from_nanos(self.at_ns.load(Relaxed))
    }
}

impl fmt::Debug for WheelSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WheelSlot").finish_non_exhaustive()
    }
}

/// The tick that `at` falls into.
pub(crate) fn tick(at: Moment) -> u64 {
    at.as_nanos() / TICK_NS
}

/// When a tick begins.
pub(crate) fn start_of(tick: u64) -> Moment {
    Moment::from_nanos(tick.saturating_mul(TICK_NS))
}

/// All alarms that are set.
///
/// Most of them are set for later than all others, and cleared soon: a lock that is held for a moment
/// only. So the latest tick stands apart, and what it costs to set and clear such a one does not grow
/// with the number of the others. Elsewhere it grows with the logarithm of the number of ticks.
///
/// What is taken out is returned, to be dropped outside of the mutex: with an alarm may go all that
/// it belongs to, the watchdog included.
#[derive(Default)]
pub(crate) struct Wheel {
    /// Without empty ones.
    ticks: BTreeMap<u64, Vec<Arc<dyn Alarm>>>,
    /// All in `ticks` are before this tick, whose alarms are here; perhaps none.
    latest: u64,
    in_latest: Vec<Arc<dyn Alarm>>,
    len: usize,
}

impl Wheel {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The first tick with an alarm in it.
    pub(crate) fn first(&self) -> Option<u64> {
        let first = self.ticks.first_key_value().map(|(tick, _)| *tick);
        first.or_else(|| (!self.in_latest.is_empty()).then_some(self.latest))
    }

    /// Puts an alarm in, or moves it.
    #[must_use = "what was moved is dropped outside of the mutex"]
    pub(crate) fn set(&mut self, at: Moment, alarm: Arc<dyn Alarm>) -> Option<Arc<dyn Alarm>> {
        let moved = self.remove(alarm.slot());
        self.insert(at, alarm);
        moved
    }

    /// Takes an alarm out; one that is just being rung is not put back.
    #[must_use = "what was taken out is dropped outside of the mutex"]
    pub(crate) fn clear(&mut self, slot: &WheelSlot) -> Option<Arc<dyn Alarm>> {
        if slot.state() == State::Ringing {
            slot.mark(State::Cleared);
        }
        self.remove(slot)
    }

    /// Takes alarms out to be rung whose tick has begun by `now`, the earliest first, and so many at the most.
    pub(crate) fn take_due(&mut self, now: Moment, most: usize) -> Vec<Rung> {
        let mut due = Vec::new();
        let mut take = |alarms: &mut Vec<Arc<dyn Alarm>>| {
            // From the end: the others stay where they are.
            let left = alarms.len().saturating_sub(most - due.len());
            due.extend(alarms.drain(left..).map(|alarm| {
                alarm.slot().mark(State::Ringing);
                Rung { at: alarm.slot().at(), alarm, next: None }
            }));
            alarms.is_empty()
        };
        let mut all = true;
        while all
            && let Some(mut entry) = self.ticks.first_entry()
            && *entry.key() <= tick(now)
        {
            all = take(entry.get_mut());
            if all {
                entry.remove();
            }
        }
        if all && self.latest <= tick(now) {
            // The room of a few is kept, that of a crowd is not.
            if take(&mut self.in_latest) {
                self.in_latest.shrink_to(KEPT_ROOM);
            }
        }
        self.len -= due.len();
        due
    }

    /// Puts back what was rung, unless it was set or cleared meanwhile. What comes back to the tick
    /// of `now` waits for the next one, so that no alarm keeps the others from their turn.
    pub(crate) fn put_back(&mut self, rung: &[Rung], now: Moment) {
        for rung in rung {
            let slot = rung.alarm.slot();
            let next = rung.next.map(|next| next.max(start_of(tick(now) + 1)));
            match (slot.state(), next) {
                (State::Ringing, Some(next)) => self.insert(next, Arc::clone(&rung.alarm)),
                (State::In, Some(next)) if next < slot.at() => {
                    // The same alarm is held by `rung`: nothing is dropped here.
                    self.remove(slot);
                    self.insert(next, Arc::clone(&rung.alarm));
                }
                (State::In, _) => {}
                (State::Out | State::Ringing | State::Cleared, _) => slot.mark(State::Out),
            }
        }
    }

    /// All alarms.
    pub(crate) fn all(&self) -> Vec<Arc<dyn Alarm>> {
        self.ticks.values().flatten().chain(&self.in_latest).cloned().collect()
    }

    /// Takes everything out.
    pub(crate) fn take_all(&mut self) -> Vec<Rung> {
        self.take_due(Moment::from_nanos(u64::MAX), usize::MAX)
    }

    fn insert(&mut self, at: Moment, alarm: Arc<dyn Alarm>) {
        let alarms = self.alarms_at(tick(at));
        let slot = alarm.slot();
        slot.at_ns.store(at.as_nanos(), Relaxed);
        // More alarms in one millisecond than fit would be 64 GiB of them.
        slot.index.store(u32::try_from(alarms.len()).unwrap_or(u32::MAX), Relaxed);
        slot.mark(State::In);
        alarms.push(alarm);
        self.len += 1;
    }

    fn remove(&mut self, slot: &WheelSlot) -> Option<Arc<dyn Alarm>> {
        if slot.state() != State::In {
            return None;
        }
        let tick = tick(slot.at());
        let in_latest = tick == self.latest;
        let alarms = if in_latest { &mut self.in_latest } else { self.ticks.get_mut(&tick)? };
        let index = slot.index.load(Relaxed);
        let alarm = alarms.swap_remove(index as usize);
        if let Some(moved) = alarms.get(index as usize) {
            moved.slot().index.store(index, Relaxed);
        }
        if alarms.is_empty() {
            if in_latest {
                // The room of a few is kept, that of a crowd is not.
                alarms.shrink_to(KEPT_ROOM);
            } else {
                self.ticks.remove(&tick);
            }
        }
        slot.mark(State::Out);
        self.len -= 1;
        Some(alarm)
    }

    /// Where alarms of a tick go.
    fn alarms_at(&mut self, tick: u64) -> &mut Vec<Arc<dyn Alarm>> {
        let later = tick > self.latest;
        if later && !self.in_latest.is_empty() {
            let mut alarms = std::mem::take(&mut self.in_latest);
            // Few are added to a tick that is not the latest, and there may be many of them.
            alarms.shrink_to_fit();
            self.ticks.insert(self.latest, alarms);
        }
        // One that was far ahead of all others may have gone.
        let last = || self.ticks.last_key_value().is_none_or(|(last, _)| *last < tick);
        if later || tick < self.latest && self.in_latest.is_empty() && last() {
            self.latest = tick;
        }
        if tick == self.latest { &mut self.in_latest } else { self.ticks.entry(tick).or_default() }
    }
}

/// An alarm that was taken out to be rung.
pub(crate) struct Rung {
    alarm: Arc<dyn Alarm>,
    at: Moment,
    next: Option<Moment>,
}

impl Rung {
    /// The alarm.
    pub(crate) fn alarm(&self) -> &dyn Alarm {
        &*self.alarm
    }

    /// Rings it, with no mutex held.
    ///
    /// What it calls may be foreign code: a waker, a runtime, a subscriber of the log. If that panics, the other
    /// alarms ring all the same, and this one again after a while.
    pub(crate) fn ring(&mut self, now: Moment) {
        let (alarm, now) = (Arc::clone(&self.alarm), now.max(self.at));
        let rung = catch_unwind(AssertUnwindSafe(|| alarm.ring(now)));
        self.next = rung.unwrap_or_else(|_| {
            // The log itself may be what panics.
            let _ = catch_unwind(|| {
                tracing::error!(
                    "something that a lock has called panicked; it goes on being looked after"
                );
            });
            Some(now.after(AFTER_PANIC))
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    struct TestAlarm(WheelSlot);

    impl Alarm for TestAlarm {
        fn slot(&self) -> &WheelSlot {
            &self.0
        }

        fn session_ended(&self, _: usize) {}

        fn ring(self: Arc<Self>, _: Moment) -> Option<Moment> {
            None
        }
    }

    #[derive(Debug, Clone)]
    enum Step {
        Set(usize, u64),
        Clear(usize),
        Pass(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..12usize, 0..40u64).prop_map(|(which, in_us)| Step::Set(which, in_us * 250)),
            2 => (0..12usize).prop_map(Step::Clear),
            1 => (0..8u64).prop_map(|us| Step::Pass(us * 700)),
        ]
    }

    fn us(us: u64) -> Moment {
        Moment::from_nanos(us * 1_000)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_set_comes_out_in_its_tick_and_what_is_cleared_does_not(
            steps in prop::collection::vec(step(), 0..200),
        ) {
            let alarms: Vec<_> = (0..12).map(|_| Arc::new(TestAlarm(WheelSlot::default()))).collect();
            let mut expected: BTreeMap<usize, Moment> = BTreeMap::new();
            let mut wheel = Wheel::default();
            let mut now_us = 1_000;
            for step in steps {
                match step {
                    Step::Set(which, in_us) => {
                        let at = us(now_us + in_us);
                        let moved = wheel.set(at, Arc::clone(&alarms[which]) as Arc<dyn Alarm>);
                        prop_assert_eq!(moved.is_some(), expected.insert(which, at).is_some());
                    }
                    Step::Clear(which) => {
                        let cleared = wheel.clear(alarms[which].slot());
                        prop_assert_eq!(cleared.is_some(), expected.remove(&which).is_some());
                    }
                    Step::Pass(pass_us) => {
                        now_us += pass_us;
                        let due = wheel.take_due(us(now_us), usize::MAX);
                        wheel.put_back(&due, us(now_us));
                        let count = expected.len();
                        expected.retain(|_, at| tick(*at) > now_us / 1_000);
                        prop_assert_eq!(due.len(), count - expected.len());
                    }
                }
                prop_assert_eq!(wheel.len(), expected.len());
                prop_assert_eq!(wheel.first(), expected.values().min().map(|at| tick(*at)));
                for (which, alarm) in alarms.iter().enumerate() {
                    let kept = 1 + usize::from(expected.contains_key(&which));
                    prop_assert_eq!(Arc::strong_count(alarm), kept);
                }
            }
        }
    }

    #[test]
    fn one_that_is_far_ahead_stands_in_nobodys_way() {
        let alarm = || Arc::new(TestAlarm(WheelSlot::default()));
        let (far, kept, next) = (alarm(), alarm(), alarm());
        let mut wheel = Wheel::default();
        assert!(wheel.set(us(9_000_000), Arc::clone(&far) as Arc<dyn Alarm>).is_none());
        assert!(wheel.set(us(5_000), Arc::clone(&kept) as Arc<dyn Alarm>).is_none());
        assert!(wheel.clear(far.slot()).is_some());
        for at in [6_000, 7_000, 5_500, 9_900] {
            assert!(wheel.set(us(at), Arc::clone(&next) as Arc<dyn Alarm>).is_none());
            assert_eq!((wheel.first(), wheel.len()), (Some(5), 2));
            assert!(wheel.clear(next.slot()).is_some());
        }
        // Two ticks were not put into the tree: they stood apart, one after the other.
        assert_eq!((wheel.ticks.len(), wheel.latest), (1, 9));
        assert_eq!(wheel.take_due(us(5_000), usize::MAX).len(), 1);
        assert_eq!((wheel.first(), wheel.len()), (None, 0));
    }

    #[test]
    fn a_place_is_small() {
        assert!(size_of::<WheelSlot>() <= 16);
    }
}
