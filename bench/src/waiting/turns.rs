//! What the turns of all waiters say, whichever process they were in.

use std::collections::BTreeMap;
use std::ops::Range;

/// One waiter's turn, in ns of the shared clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    pub waiter: u32,
    pub asked: u64,
    /// When the lock was had, and the moment before it was given back. `None`: still waiting when
    /// the time was up.
    pub held: Option<(u64, u64)>,
}

/// As peers write it.
impl From<[u64; 4]> for Turn {
    fn from([waiter, asked, acquired, released]: [u64; 4]) -> Self {
        let waiter = u32::try_from(waiter).unwrap_or(u32::MAX);
        Self { waiter, asked, held: (acquired > 0).then_some((acquired, released)) }
    }
}

/// The figures of one system in one setting, over all its rounds.
#[derive(Debug, Default)]
pub struct Figures {
    /// From a release to the next holder's acquisition, ns.
    pub gaps: Vec<u64>,
    /// From asking to having, ns. For who has not got it by then: to the end of the window.
    pub waits: Vec<u64>,
    /// How often each waiter had the lock.
    pub turns: BTreeMap<u32, u32>,
    /// Commands from clients, per node.
    pub commands: f64,
    pub seconds: f64,
    /// How often two had the lock at once.
    pub overlaps: usize,
}

impl Figures {
    /// The figures of one round, with so many `waiters` spread evenly over some `processes`. Only
    /// what happened within `window` counts, but for overlaps.
    pub fn of(
        turns: &[Turn],
        (waiters, processes): (u32, u32),
        window: &Range<u64>,
        commands: f64,
    ) -> Self {
        // With several processes a gap is from one to another; with one, between two waiters.
        let each = if processes > 1 { waiters / processes } else { 1 };
        let mut figures = Self {
            gaps: gaps(turns, each, window),
            commands,
            seconds: (window.end - window.start) as f64 / 1e9,
            overlaps: overlaps(turns),
            ..Self::default()
        };
        for turn in turns {
            // Who never had a turn has zero of them, and is not left out.
            let count = figures.turns.entry(turn.waiter).or_default();
            let acquired = turn.held.map_or(u64::MAX, |(acquired, _)| acquired);
            *count += u32::from(window.contains(&acquired));
            if turn.asked < window.end && acquired >= window.start {
                figures.waits.push(acquired.min(window.end) - turn.asked);
            }
        }
        figures.sorted()
    }

    /// Adds another round.
    pub fn add(&mut self, round: Self) {
        let mut all = std::mem::take(self);
        all.gaps.extend(round.gaps);
        all.waits.extend(round.waits);
        for (waiter, turns) in round.turns {
            *all.turns.entry(waiter).or_default() += turns;
        }
        all.commands += round.commands;
        all.seconds += round.seconds;
        all.overlaps += round.overlaps;
        *self = all.sorted();
    }

    fn sorted(mut self) -> Self {
        self.gaps.sort_unstable();
        self.waits.sort_unstable();
        self
    }

    pub fn acquisitions(&self) -> f64 {
        f64::from(self.turns.values().sum::<u32>())
    }

    pub fn most(&self) -> u32 {
        self.turns.values().max().copied().unwrap_or(0)
    }

    pub fn fewest(&self) -> u32 {
        self.turns.values().min().copied().unwrap_or(0)
    }
}

/// The turns that were had, in the order in which they began.
fn had(turns: &[Turn]) -> Vec<(Turn, u64, u64)> {
    let had = turns.iter().filter_map(|turn| turn.held.map(|(from, to)| (*turn, from, to)));
    let mut had: Vec<_> = had.collect();
    had.sort_by_key(|(_, from, _)| *from);
    had
}

/// From each release to the next acquisition, if who got it then is of another group of `each` and
/// was waiting already: otherwise there was nobody to hand over to.
fn gaps(turns: &[Turn], each: u32, window: &Range<u64>) -> Vec<u64> {
    let had = had(turns);
    let pairs = had.windows(2).filter_map(|pair| {
        let ((before, _, released), (next, acquired, _)) = (pair[0], pair[1]);
        let within = window.contains(&released) && window.contains(&acquired);
        let waited = next.asked <= released && next.waiter / each != before.waiter / each;
        (within && waited).then(|| acquired.saturating_sub(released))
    });
    pairs.collect()
}

/// How many turns began before an earlier one had ended.
fn overlaps(turns: &[Turn]) -> usize {
    let mut latest = 0;
    let mut count = 0;
    for (_, from, to) in had(turns) {
        count += usize::from(from < latest);
        latest = latest.max(to);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(waiter: u32, asked: u64, acquired: u64, released: u64) -> Turn {
        Turn { waiter, asked, held: Some((acquired, released)) }
    }

    #[test]
    fn a_gap_counts_only_for_another_one_who_was_waiting() {
        let turns = [
            turn(1, 5, 10, 20),
            turn(2, 6, 23, 40),  // waited: a gap of 3
            turn(1, 45, 50, 60), // came when it was free already
            turn(1, 60, 70, 80), // the same one again
            turn(3, 7, 85, 90),  // waited: a gap of 5
        ];
        assert_eq!(gaps(&turns, 1, &(0..100)), [3, 5]);
        assert_eq!(gaps(&turns, 1, &(0..85)), [3]);
        assert_eq!(gaps(&turns, 1, &(21..100)), [5]);
        // Waiters 0 and 1 are in one process, 2 and 3 in another.
        assert_eq!(
            gaps(&[turn(1, 0, 10, 20), turn(0, 0, 21, 30), turn(2, 0, 34, 40)], 2, &(0..100)),
            [4]
        );
    }

    #[test]
    fn two_holders_at_once_are_seen() {
        assert_eq!(overlaps(&[turn(1, 0, 10, 20), turn(2, 0, 20, 30)]), 0);
        assert_eq!(overlaps(&[turn(2, 0, 19, 30), turn(1, 0, 10, 20)]), 1);
        // Within the one before the last.
        assert_eq!(overlaps(&[turn(1, 0, 10, 50), turn(2, 0, 20, 30), turn(3, 0, 40, 45)]), 2);
    }

    #[test]
    fn who_never_gets_it_counts() {
        let starved = Turn { waiter: 2, asked: 10, held: None };
        let too_late = turn(3, 50, 95, 96);
        let turns = [turn(1, 20, 30, 40), starved, too_late, turn(1, 92, 97, 98)];
        let mut figures = Figures::of(&turns, (3, 1), &(15..90), 2.0);
        assert_eq!((figures.most(), figures.fewest()), (1, 0));
        assert_eq!(figures.waits, [10, 40, 80]);
        figures.add(Figures::of(&[turn(2, 1, 20, 30)], (3, 1), &(15..90), 2.0));
        assert_eq!(figures.turns.into_values().collect::<Vec<_>>(), [1, 1, 0]);
    }

    #[test]
    fn who_waited_in_vain_had_nothing() {
        assert_eq!(Turn::from([1, 2, 3, 4]), turn(1, 2, 3, 4));
        assert_eq!(Turn::from([1, 2, 0, 0]), Turn { waiter: 1, asked: 2, held: None });
    }
}
