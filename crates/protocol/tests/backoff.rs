//! Delays are random, bounded on both sides, and short after a split vote.

use std::time::Duration;

use proptest::prelude::*;
use quorlock_protocol::{Backoff, Defeat, rest_in_quarantine};

const BACKOFF: Backoff = Backoff { longest: Duration::from_millis(200) };

proptest! {
    #[test]
    fn never_shorter_than_a_round_and_never_longer_than_the_spread(
        attempt in any::<u32>(),
        round_us in 0..1_000_000u64,
        random in any::<u64>(),
        split in any::<bool>(),
    ) {
        let round = Duration::from_micros(round_us);
        let defeat = if split { Defeat::Split } else { Defeat::Taken };
        let delay = BACKOFF.delay(attempt, round, defeat, random);
        prop_assert!(delay >= round);
        prop_assert!(delay <= round + BACKOFF.longest);
    }
}

#[test]
fn a_split_vote_is_tried_again_within_a_few_rounds() {
    let round = Duration::from_micros(300);
    let longest = BACKOFF.delay(1, round, Defeat::Split, u64::MAX);
    assert!(longest <= 5 * round, "{longest:?}");
    assert!(BACKOFF.delay(1, round, Defeat::Taken, u64::MAX) > longest);
}

#[test]
fn the_random_bits_spread_the_delay_and_further_attempts_widen_it() {
    let delay = |attempt, random| BACKOFF.delay(attempt, Duration::ZERO, Defeat::Taken, random);
    assert_eq!(delay(1, 0), Duration::ZERO);
    assert!(delay(1, u64::MAX / 2) > Duration::from_millis(3));
    assert!(delay(3, u64::MAX) > 3 * delay(1, u64::MAX));
    assert_eq!(delay(u32::MAX, u64::MAX).as_millis(), 199);
}

#[test]
fn a_waiter_in_quarantine_asks_less_than_once_in_a_second() {
    let rest = |ms| rest_in_quarantine(Duration::from_millis(ms)).as_millis();
    assert_eq!(rest(30_500), 5_000, "somebody may end it before");
    assert_eq!(rest(400), 400);
    assert_eq!(rest(0), 3_000, "nobody knows");
}
