//! I1: reported windows never overlap in true time, extensions included.

use super::windows::{Window, windows};
use super::{Invariant, Time, Violation};
use crate::trace::Trace;

/// What the clocks of the simulation round.
const ROUNDING: u64 = 2_000;

pub(super) fn check(trace: &Trace) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut before: Vec<Window> = Vec::new();
    for window in windows(trace) {
        before.retain(|other| other.to > window.from + ROUNDING);
        for other in &before {
            let same_lock = other.opened.name == window.opened.name;
            let same_holder = other.opened.holding == window.opened.holding;
            if same_lock && !same_holder && window.to > window.from {
                let text = format!(
                    "process {} holds lock {} from here on, and process {} until {}",
                    window.opened.process,
                    window.opened.name,
                    other.opened.process,
                    Time(other.to)
                );
                found.push(Violation { invariant: Invariant::Exclusion, at: window.from, text });
            }
        }
        before.push(window);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Entry, Opened, What};

    const MS: u64 = 1_000_000;

    fn opened(at: u64, window: u32, until: u64) -> Entry {
        let opened = Opened {
            window,
            process: window as u8,
            name: 0,
            holding: window,
            until: until * MS,
            fence: None,
            heeds: false,
            renewed: false,
        };
        Entry { at: at * MS, what: What::Opened(opened) }
    }

    fn at(at: u64, what: What) -> Entry {
        Entry { at: at * MS, what }
    }

    fn found(entries: Vec<Entry>) -> usize {
        check(&Trace::of(entries)).len()
    }

    #[test]
    fn two_who_believe_at_the_same_time_are_found() {
        assert_eq!(found(vec![opened(0, 1, 100), opened(100, 2, 200)]), 0, "one after the other");
        assert_eq!(found(vec![opened(0, 1, 100), opened(99, 2, 200)]), 1);
        let extended = at(90, What::Until { window: 1, until: 150 * MS });
        assert_eq!(found(vec![opened(0, 1, 100), extended, opened(120, 2, 200)]), 1);
    }

    #[test]
    fn a_holder_that_released_was_warned_or_is_dead_believes_no_longer() {
        for end in [What::Closed { window: 1 }, What::LossSignal { window: 1 }, What::Killed(1)] {
            assert_eq!(found(vec![opened(0, 1, 100), at(50, end), opened(60, 2, 200)]), 0);
            assert_eq!(found(vec![opened(0, 1, 100), at(70, end), opened(60, 2, 200)]), 1);
        }
    }

    #[test]
    fn guards_of_one_owner_and_other_locks_are_no_overlap() {
        let mut again = opened(50, 2, 200);
        let mut other = opened(50, 3, 200);
        if let (What::Opened(again), What::Opened(other)) = (&mut again.what, &mut other.what) {
            again.holding = 1;
            other.name = 1;
        }
        assert_eq!(found(vec![opened(0, 1, 100), again, other]), 0);
    }
}
