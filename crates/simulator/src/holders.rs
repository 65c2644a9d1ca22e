//! Who believes to hold which lock, and until when.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use quorlock::Guard;

use crate::trace::{Opened, What};
use crate::world::World;

/// The guards that are alive, as the world watches them.
#[derive(Default)]
pub(crate) struct Holders {
    held: Vec<Held>,
    /// Those that are some of many, and when those of each process are looked at again: not with every step.
    crowd: Vec<Held>,
    looks_at: BTreeMap<usize, u64>,
    next_window: u32,
    next_holding: u32,
    /// How many windows were opened.
    pub(crate) opened: u64,
}

struct Held {
    window: u32,
    process: usize,
    guard: Weak<Guard>,
    /// The end of its validity, as it was last seen.
    until: u64,
}

/// From one look at the crowd of a process to the next.
const LOOK: u64 = 20_000_000;

/// A lock that a client has learnt that it holds.
pub(crate) struct NewWindow {
    pub(crate) process: usize,
    pub(crate) name: u16,
    /// That of the guard which its owner had before, if it had one.
    pub(crate) holding: Option<u32>,
    pub(crate) heeds: bool,
    /// Whether it is extended without end, for the TTL of all, and not shared.
    pub(crate) renewed: bool,
    pub(crate) fence: Option<u64>,
    /// Whether it is one of many.
    pub(crate) crowd: bool,
}

impl World {
    /// Notes that a client holds a lock from now on. Returns the window, and what it is a part of.
    pub(crate) fn opened(&self, guard: &Arc<Guard>, new: &NewWindow) -> (u32, u32) {
        let NewWindow { process, name, holding, heeds, renewed, fence, crowd } = *new;
        let now = || self.state().now_of(process);
        let until = self.valid_until(process, guard).unwrap_or_else(now);
        let mut holders = self.holders.lock().expect("no panic in between");
        let window = holders.next_window + 1;
        holders.next_window = window;
        holders.opened += 1;
        let holding = holding.unwrap_or_else(|| {
            holders.next_holding += 1;
            holders.next_holding
        });
        let guard = Arc::downgrade(guard);
        let among = if crowd { &mut holders.crowd } else { &mut holders.held };
        among.push(Held { window, process, guard, until });
        drop(holders);
        let opened =
            Opened { window, process: process as u8, name, holding, until, fence, heeds, renewed };
        self.note_by(process, What::Opened(opened));
        (window, holding)
    }

    /// Whether the holder of a window may still believe in it, by what was last seen of it.
    pub(crate) fn is_open(&self, window: u32) -> bool {
        let now = self.state().now;
        let holders = self.holders.lock().expect("no panic in between");
        holders.held.iter().any(|held| held.window == window && held.until > now)
    }

    /// Looks whether the guards of a process have another end than before.
    pub(crate) fn observe(&self, process: usize) {
        let mut holders = self.holders.lock().expect("no panic in between");
        let mut changes = Vec::new();
        let mut look = |held: &mut Held, same: u64| {
            if held.process != process {
                return true;
            }
            let now = || self.state().now_of(process);
            let Some(guard) = held.guard.upgrade() else {
                // It was let go of; of a process that stands still meanwhile, that is yet to come.
                held.until = held.until.min(now());
                return held.until > self.state().now;
            };
            let until = self.valid_until(process, &guard).unwrap_or_else(|| held.until.min(now()));
            if until.abs_diff(held.until) > same {
                held.until = until;
                changes.push(What::Until { window: held.window, until });
            }
            true
        };
        // The rounding of clocks is no change.
        holders.held.retain_mut(|held| look(held, 1_000));
        if !holders.crowd.is_empty() {
            let now = self.state().now;
            if holders.looks_at.get(&process).is_none_or(|at| *at <= now) {
                // Nor is how they run apart, of many.
                holders.crowd.retain_mut(|held| look(held, 2_000_000));
                holders.looks_at.insert(process, now + LOOK);
            }
        }
        drop(holders);
        for change in changes {
            self.note_by(process, change);
        }
    }

    /// The time of day was set ahead everywhere: whatever is held ends earlier by that, whether its holder
    /// runs or not.
    pub(crate) fn cut_windows(&self, by: i64) {
        let Ok(by) = u64::try_from(by) else { return };
        if !self.setup.dialect.is_by_wall_clock() {
            return;
        }
        let mut holders = self.holders.lock().expect("no panic in between");
        let mut state = self.state();
        let now = state.now;
        let Holders { held, crowd, .. } = &mut *holders;
        for held in held.iter_mut().chain(crowd).filter(|held| held.until > now) {
            held.until = held.until.saturating_sub(by).max(now);
            state.note(now, What::Until { window: held.window, until: held.until });
        }
    }

    /// The true time at which a guard ends, if nothing is done. `None` if it is lost.
    fn valid_until(&self, process: usize, guard: &Guard) -> Option<u64> {
        // The reading of the clock is ours, and no process stands still at it.
        let running = self.state().running.take();
        let left = guard.remaining();
        let mut state = self.state();
        state.running = running;
        (!left.is_zero()).then(|| state.true_after(process, left))
    }
}
