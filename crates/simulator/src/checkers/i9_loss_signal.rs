//! I9: no guard learns of its loss after its validity, unless its process did not run then, or its
//! machine has slept just before: timers do not run while it does.

use super::windows::{Window, windows};
use super::{Invariant, Time, Violation};
use crate::Setup;
use crate::trace::{Opened, Trace, What};

/// A process whose machine wakes up finds out within this time: its timers have missed the time
/// asleep, and the library looks at the clock once a second.
const AFTER_SLEEP: u64 = 1_100_000_000;
/// What the clocks of the simulation round.
const ROUNDING: u64 = 2_000;

pub(super) fn check(setup: &Setup, trace: &Trace) -> Vec<Violation> {
    let lead = setup.loss_lead().as_nanos() as u64;
    let heeding = windows(trace).into_iter().filter(|window| window.opened.heeds);
    heeding.filter_map(|window| late(trace, &window, lead)).collect()
}

fn late(trace: &Trace, window: &Window, lead: u64) -> Option<Violation> {
    let Window { opened: Opened { process, .. }, longest, loss_signal, closed, .. } = *window;
    let end = longest + ROUNDING;
    let learned = match (loss_signal, closed) {
        (Some(loss_signal), Some(closed)) => loss_signal.min(closed),
        (Some(at), None) | (None, Some(at)) => at,
        (None, None) => u64::MAX,
    };
    if learned <= end {
        return None;
    }
    let mut by = end;
    for entry in trace.entries() {
        let What::Stopped { process: of, until, asleep } = entry.what else { continue };
        let until = until + if asleep { AFTER_SLEEP } else { ROUNDING };
        if of == process && entry.at <= by && until + lead >= longest {
            by = by.max(until);
        }
    }
    (learned > by).then(|| Violation {
        invariant: Invariant::LossSignal,
        at: longest,
        text: if learned == u64::MAX {
            format!("process {process} is not told that its lock is lost")
        } else {
            format!("process {process} learns only at {} that its lock is lost", Time(learned))
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;
    use crate::trace::Entry;

    const MS: u64 = 1_000_000;

    fn found(loss_signal: u64, still: Option<(u64, u64, bool)>) -> usize {
        let (window, process, name, holding, fence) = (1, 0, 0, 1, None);
        let until = 1_000 * MS;
        let opened =
            Opened { window, process, name, holding, until, fence, heeds: true, renewed: false };
        let mut entries = vec![
            Entry { at: 0, what: What::Opened(opened) },
            Entry { at: loss_signal * MS, what: What::LossSignal { window } },
            Entry { at: 9_000 * MS, what: What::Closed { window } },
        ];
        if let Some((from, until, asleep)) = still {
            let what = What::Stopped { process, until: until * MS, asleep };
            entries.push(Entry { at: from * MS, what });
        }
        check(&Setup::new(1, Dialect::Redlock), &Trace::of(entries)).len()
    }

    #[test]
    fn a_loss_that_is_told_too_late_is_found() {
        assert_eq!((found(950, None), found(1_000, None), found(1_001, None)), (0, 0, 1));
    }

    #[test]
    fn a_holder_that_stood_still_is_warned_when_it_goes_on() {
        let still = Some((900, 3_000, false));
        assert_eq!((found(3_000, still), found(3_001, still)), (0, 1));
        assert_eq!(found(3_000, Some((100, 500, false))), 1, "that was long before");
        assert_eq!(found(3_000, Some((1_100, 3_000, false))), 1, "and that was after");
    }

    #[test]
    fn whose_machine_slept_is_told_a_second_later() {
        let slept = Some((100, 800, true));
        assert_eq!((found(1_900, slept), found(1_901, slept)), (0, 1));
    }
}
