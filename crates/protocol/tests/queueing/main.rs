//! Waiting in the queues of all nodes: step by step, and in a world where everything goes wrong.

mod node;
mod steps;
mod time;
mod world;

use time::ms;
use world::{Mistake, Tale, Violation, live};

/// So many worlds; more by hand, with `SEEDS=50000 cargo test --release`.
fn seeds() -> u64 {
    std::env::var("SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(1_500)
}

#[test]
fn nobody_shares_the_lock_everybody_gets_it_and_nothing_is_left() {
    let mut sum = Tale::default();
    let mut found: Vec<(u64, Violation)> = Vec::new();
    for seed in 0..seeds() {
        let (tale, violation) = live(seed, Mistake::Nothing);
        found.extend(violation.map(|violation| (seed, violation)));
        sum.add(&tale);
    }
    println!("{sum:?}");
    assert!(found.is_empty(), "{} found: {:?}", found.len(), &found[..found.len().min(8)]);
    // When nothing is amiss any more a lock changes hands within some round trips of 6 ms at the most.
    assert!(sum.longest_gap < ms(60), "free for {} ns though it was wanted", sum.longest_gap);
    // Something has happened in all these worlds.
    let count = usize::try_from(seeds()).expect("a number of seeds");
    assert!(sum.by_queue > 5 * count && sum.turns > sum.by_queue && sum.yields > count);
    assert!(sum.given_back > count, "{}", sum.given_back);
}

#[test]
fn the_same_seed_gives_the_same_world() {
    for seed in 0..10 {
        assert_eq!(live(seed, Mistake::Nothing), live(seed, Mistake::Nothing));
    }
}

/// In so many worlds each is seen to let two have the lock.
#[test]
fn every_mistake_is_found() {
    for (mistake, worlds) in [
        (Mistake::ReleaseOfAny, 10),
        (Mistake::FromReceipt, 100),
        (Mistake::FromLatestRequest, 100),
        (Mistake::FromBeforeYield, 1_500),
        (Mistake::OpenOffer, 20_000),
    ] {
        let found = (0..worlds).any(|seed| {
            let (_, violation) = live(seed, mistake);
            violation.is_some_and(|violation| violation.what == "two have the lock")
        });
        assert!(found, "{mistake:?}");
    }
}
