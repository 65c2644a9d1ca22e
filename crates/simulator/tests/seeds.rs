//! Every promise is kept, seed after seed.

use quorlock_simulator::{Dialect, FaultClass, Options, check_determinism, simulate};

const SEEDS: u64 = 250;

#[track_caller]
fn keeps_its_promises(dialect: Dialect) {
    let options = Options::new(1..SEEDS + 1, dialect);
    let summary = simulate(&options, &|_| {});
    if let Some(first) = &summary.first {
        panic!("seed {}:\n{}", first.setup.seed, first.story().join("\n"));
    }
    assert_eq!(summary.seeds, SEEDS);
    // It was worth the while: locks were taken, everything went wrong that may, and some holders wrote
    // too late to be heeded.
    assert!(summary.acquisitions > 20 * SEEDS, "{}", summary.acquisitions);
    let classes: Vec<FaultClass> = summary.faults.keys().copied().collect();
    assert_eq!(classes, dialect.allowed());
    assert!(summary.faults.values().all(|count| *count > SEEDS), "{:?}", summary.faults);
    assert!(summary.stale_writes > 20, "{}", summary.stale_writes);
    assert_eq!(summary.refused_writes, summary.stale_writes, "the fenced resource let some in");
}

#[test]
fn redlock_holds_while_nodes_remember_and_clocks_do_not_jump() {
    keeps_its_promises(Dialect::Redlock);
}

#[test]
fn strict_holds_whatever_nodes_forget_and_however_their_clocks_jump() {
    keeps_its_promises(Dialect::Strict);
}

/// Seeds that have found something once, which their number tells only as long as the runs stay as they are.
#[test]
fn what_was_found_once_stays_mended() {
    let seeds = [
        // A lock that was broken by force went back to its holder, by a place in the queue that a node had kept for it
        // though it had won its record back.
        16_579_u64,
        // Two mistakes of the checkers: about who asks in the moment at which all clocks are set, and about who takes part
        // in the lock of a process that stands still while it lets go of it.
        15_962, 7_849,
        // Nodes that were not heard when a lock was won, and had nothing of it, were won back too late.
        14_690, 23_804, 36_090,
        // A mistake of the checkers: about an extension that is answered to the next holder of the same process.
        28_170,
        // A caller behind another of its process was told that the lock is taken, when that one had left.
        36_645,
        // The same, when that one had got no votes and the nodes voted again a moment later.
        81_413, 94_584, 192_281, 239_381,
    ];
    for seed in seeds {
        let summary = simulate(&Options::new(seed..seed + 1, Dialect::Strict), &|_| {});
        assert!(summary.first.is_none(), "{:?}", summary.first.map(|first| first.story()));
    }
}

#[test]
fn a_seed_gives_the_same_trace_every_time() {
    for dialect in [Dialect::Redlock, Dialect::Strict] {
        let options = Options::new(1..9, dialect);
        for seed in options.seeds.clone() {
            assert_eq!(check_determinism(&options.setup(seed)), None, "{dialect:?} {seed}");
        }
    }
}
