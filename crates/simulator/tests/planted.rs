//! Every planted bug is found, and within how many seeds.

use quorlock_simulator::{
    Dialect, Fault, FaultClass, FaultKind, Invariant, Options, Plan, Planted, Setup, Step,
    Violation, run, run_plan, simulate, trace::What,
};

/// Runs so many seeds at the most, until one breaks one of these promises.
fn caught(options: &Options, by: &[Invariant]) -> Option<u64> {
    options.seeds.clone().find(|seed| {
        let outcome = run(&options.setup(*seed));
        outcome.violations.iter().any(|violation| by.contains(&violation.invariant))
    })
}

#[track_caller]
fn is_caught(planted: Planted, options: Options, by: &[Invariant]) {
    let options = Options { planted: Some(planted), ..options };
    let (first, seeds) = (caught(&options, by), options.seeds.clone());
    assert!(first.is_some(), "{planted:?} was not caught by {by:?} in the seeds {seeds:?}");
    println!("{planted:?}: caught with seed {}", first.unwrap_or_default());
}

fn redlock(seeds: u64) -> Options {
    Options::new(1..seeds + 1, Dialect::Redlock)
}

fn strict(seeds: u64) -> Options {
    Options::new(1..seeds + 1, Dialect::Strict)
}

fn with(options: Options, faults: &[FaultClass]) -> Options {
    Options { faults: Some(faults.to_vec()), ..options }
}

#[test]
fn a_deadline_that_counts_from_the_reply_is_caught_within_200_seeds() {
    let still = [FaultClass::Pause, FaultClass::Preempt, FaultClass::Suspend];
    let options = Options { nodes: Some(3), ..with(redlock(200), &still) };
    is_caught(Planted::DeadlineFromReply, options, &[Invariant::Exclusion]);
}

#[test]
fn a_grant_that_counts_from_its_arrival_is_caught_within_20_seeds() {
    is_caught(Planted::GrantFromArrival, redlock(20), &[Invariant::Exclusion]);
}

#[test]
fn a_release_that_looks_at_no_token_is_caught_at_once() {
    is_caught(Planted::ReleaseUnchecked, redlock(1), &[Invariant::Exclusion]);
    is_caught(Planted::ReleaseUnchecked, redlock(1), &[Invariant::OwnRecords]);
}

#[test]
fn an_acquisition_that_overwrites_is_caught_at_once() {
    is_caught(Planted::AcquireOverwrites, redlock(1), &[Invariant::Exclusion]);
}

#[test]
fn an_extension_that_creates_what_was_released_is_caught_within_60_seeds() {
    is_caught(Planted::ExtendCreates, redlock(1), &[Invariant::OwnRecords]);
    is_caught(Planted::ExtendCreates, redlock(60), &[Invariant::Exclusion]);
}

#[test]
fn a_loss_that_is_told_late_is_caught_within_10_seeds() {
    is_caught(Planted::LateTimers, redlock(10), &[Invariant::LossSignal]);
}

#[test]
fn a_waiter_that_hears_no_grant_message_is_caught_within_10_seeds() {
    is_caught(Planted::MissedPush, redlock(10), &[Invariant::Liveness]);
}

#[test]
fn a_message_that_counts_from_any_sender_is_caught_within_10_seeds() {
    for options in [redlock(10), strict(10)] {
        let options = with(options, &[FaultClass::Forge]);
        is_caught(Planted::SecretUnchecked, options, &[Invariant::Exclusion]);
    }
}

/// All that a client can do that publishes what it likes, and hears everything.
#[test]
fn messages_that_are_forged_or_sent_again_do_no_harm_in_20_seeds() {
    for options in [redlock(20), strict(20)] {
        let summary = simulate(&with(options, &[FaultClass::Forge, FaultClass::Break]), &|_| {});
        assert!(summary.first.is_none(), "{:?}", summary.first.map(|first| first.story()));
    }
}

#[test]
fn a_fence_that_two_holders_of_a_process_share_is_caught_within_10_seeds() {
    is_caught(Planted::FenceReused, redlock(10), &[Invariant::Fences]);
    is_caught(Planted::FenceReused, strict(10), &[Invariant::Fences]);
}

/// What the Redlock document asks the operator to prevent.
#[test]
fn redlock_does_not_hold_under_faults_that_it_does_not_promise_to_bear() {
    for (class, seeds) in [
        (FaultClass::RestartEmpty, 30),
        (FaultClass::LoseLastSecond, 30),
        (FaultClass::Flush, 30),
        (FaultClass::StaleReplica, 30),
        (FaultClass::ClockJump, 60),
        (FaultClass::ClockExcursion, 30),
        (FaultClass::AllClocks, 30),
    ] {
        let mut faults = Dialect::Redlock.allowed();
        faults.extend([class; 4]);
        let options = with(redlock(seeds), &faults);
        let first = caught(&options, &[Invariant::Exclusion]);
        assert!(first.is_some(), "{class} does no harm within {seeds} seeds");
        println!("{class}: seed {}", first.unwrap_or_default());
    }
}

#[test]
fn an_expired_record_that_is_dropped_before_the_clock_check_is_caught_within_60_seeds() {
    let faults = [FaultClass::ClockExcursion, FaultClass::Cut];
    let options = Options { nodes: Some(1), ..with(strict(60), &faults) };
    is_caught(Planted::ExpiryBeforeClock, options, &[Invariant::Exclusion]);
}

/// The clock of the node goes from as far behind as it may be to as far ahead as it may be, while
/// the holder of the lock cannot extend it.
#[test]
fn a_margin_of_twice_behind_is_caught_within_200_seeds() {
    const MS: u64 = 1_000_000;
    let mut faults = Vec::new();
    for round in 0..7 {
        let at = round * 4_000 * MS;
        let jump = |by_ms: i64| FaultKind::Jump { node: 0, by: by_ms * 1_000_000 };
        let processes = 1 << (round % 4);
        let cut = FaultKind::Cut { processes, nodes: 1, up: true, down: true };
        faults.push(Fault { at, lasts: 0, kind: jump(-100) });
        faults.push(Fault { at: at + 1_500 * MS, lasts: 2_400 * MS, kind: cut });
        faults.push(Fault { at: at + 2_500 * MS, lasts: 0, kind: jump(298) });
    }
    let overlap = |planted, seeds| {
        let options = Options { planted, nodes: Some(1), clients: Some(4), ..strict(seeds) };
        options.seeds.clone().find(|seed| {
            let outcome = run_plan(&options.setup(*seed), Plan::of(faults.clone()));
            outcome.violations.iter().any(|it| it.invariant == Invariant::Exclusion)
        })
    };
    let found = overlap(Some(Planted::MarginTwoBehind), 200);
    println!("MarginTwoBehind: caught with seed {found:?}");
    assert!(found.is_some(), "a margin that is too small was not caught");
    assert_eq!(overlap(None, 50), None, "and the right one holds");
}

#[test]
fn an_extension_that_shortens_is_caught_within_10_seeds() {
    let faults = [FaultClass::ClockJump, FaultClass::ClockExcursion];
    let options = with(strict(10), &faults);
    is_caught(Planted::ExtendShortens, options, &[Invariant::Records]);
}

#[test]
fn a_number_that_is_confirmed_without_a_look_at_the_owner_is_caught_within_5_seeds() {
    is_caught(Planted::ConfirmUnchecked, strict(5), &[Invariant::OwnRecords]);
}

#[test]
fn a_marker_that_counts_by_its_presence_is_caught_within_300_seeds() {
    is_caught(Planted::MarkerByPresence, strict(1), &[Invariant::Records]);
    is_caught(Planted::MarkerByPresence, strict(300), &[Invariant::Exclusion]);
}

#[test]
fn a_node_without_quarantine_is_caught_within_30_seeds() {
    is_caught(Planted::NoQuarantine, strict(1), &[Invariant::Records]);
    is_caught(Planted::NoQuarantine, strict(30), &[Invariant::Exclusion]);
}

#[test]
fn unguarded_healing_is_caught_within_5_seeds() {
    is_caught(Planted::HealUnguarded, strict(5), &[Invariant::OwnRecords]);
}

#[test]
fn jumps_that_only_the_client_sees_are_caught_within_40_seeds() {
    let faults = [FaultClass::ClockJump, FaultClass::ClockExcursion];
    is_caught(Planted::ClientSeesJumps, with(strict(40), &faults), &[Invariant::Exclusion]);
}

#[test]
fn a_lease_that_counts_by_one_clock_is_caught_within_10_seeds() {
    is_caught(
        Planted::LeaseByBootTime,
        with(strict(10), &[FaultClass::AllClocks]),
        &[Invariant::Exclusion],
    );
    is_caught(Planted::LeaseByBootTime, strict(40), &[Invariant::Exclusion]);
}

/// P2 takes part in P1's lock, P1 releases it, P3 gets in.
#[test]
fn a_maker_that_drops_what_others_hold_is_caught_within_60_seeds() {
    is_caught(Planted::MakerDropsShared, redlock(60), &[Invariant::Exclusion]);
    is_caught(Planted::MakerDropsShared, strict(60), &[Invariant::Exclusion]);
}

/// A release is looked at though the clocks are apart: whether the others are over cannot be seen then.
#[test]
fn a_participant_that_is_over_by_a_wrong_clock_is_caught() {
    const MS: u64 = 1_000_000;
    const SCRIPT: &[&[Step]] = &[
        &[Step::Until(100), Step::Share, Step::Until(1_000), Step::Release],
        &[Step::Until(300), Step::TakePart, Step::Until(1_500), Step::Release],
        &[Step::Until(1_300), Step::Take, Step::For(100), Step::Release],
    ];
    let fault = |at_ms: u64, lasts_ms: u64, kind| {
        let (at, lasts) = (at_ms * MS, lasts_ms * MS);
        Fault { at, lasts, kind }
    };
    let jump = |by_ms: i64| FaultKind::Jump { node: 0, by: by_ms * 1_000_000 };
    // Who takes part cannot extend it meanwhile, and so learns of nothing.
    let cut = FaultKind::Cut { processes: 1 << 1, nodes: 1, up: true, down: true };
    let faults = [fault(500, 1_400, cut), fault(900, 0, jump(10_000)), fault(1_200, 0, jump(0))];
    let overlaps = |planted| {
        let (nodes, clients, script) = (1, 3, Some(SCRIPT));
        let setup = Setup { nodes, clients, script, planted, ..Setup::new(1, Dialect::Strict) };
        let outcome = run_plan(&setup, Plan::of(faults.to_vec()));
        outcome.violations.iter().any(|it| it.invariant == Invariant::Exclusion)
    };
    assert!(overlaps(Some(Planted::DeadByAnyClock)), "it was dropped by a clock that is wrong");
    assert!(!overlaps(None), "and is kept if clocks are compared");
}

/// Two holders get one fence where one more is not another.
#[test]
fn a_poisoned_fence_that_is_adopted_is_caught_within_10_seeds() {
    for dialect in [strict, redlock] {
        let options = with(dialect(10), &[FaultClass::Poison]);
        is_caught(Planted::PoisonAdopted, options, &[Invariant::Fences]);
    }
}

/// Each node in turn is away for longer than a lease, comes back empty, and votes before the next one goes.
/// Somebody waits for the lock all the while.
#[test]
fn a_rolling_restart_that_ends_a_lock_is_caught() {
    const SECOND: u64 = 1_000_000_000;
    const SCRIPT: &[&[Step]] = &[
        &[Step::Until(100), Step::Take, Step::Until(29_000), Step::Release],
        &[Step::Until(500), Step::Take, Step::For(100), Step::Release],
    ];
    let restart = |node: u8| {
        let kind = FaultKind::Crash { node, loses: u64::MAX };
        Fault { at: (1 + 9 * u64::from(node)) * SECOND, lasts: 3 * SECOND, kind }
    };
    let plan = Plan::of((0..3).map(restart).collect());
    for seed in 1..6 {
        let outcome = |planted| {
            let (nodes, clients, script) = (3, 2, Some(SCRIPT));
            let setup =
                Setup { nodes, clients, script, planted, ..Setup::new(seed, Dialect::Strict) };
            run_plan(&setup, plan.clone())
        };
        let kept = outcome(None);
        assert_eq!(kept.violations, [], "seed {seed}");
        let lost =
            kept.trace.entries().iter().any(|entry| matches!(entry.what, What::LossSignal { .. }));
        assert!(!lost, "seed {seed}: somebody has lost the lock");
        let found = outcome(Some(Planted::NeverWinsBack)).violations;
        assert!(found.iter().any(|it| it.invariant == Invariant::NeedlessLoss), "{found:?}");
    }
}

/// All nodes, which are a little ahead, stand still for longer than a request may be late.
#[test]
fn a_late_request_that_is_taken_for_a_clock_is_caught() {
    const MS: u64 = 1_000_000;
    const SCRIPT: &[&[Step]] =
        &[&[Step::Until(100), Step::Take, Step::Until(28_000), Step::Release]];
    let mut faults = Vec::new();
    for node in 0..3 {
        faults.push(Fault { at: 0, lasts: 0, kind: FaultKind::Jump { node, by: 5_000_000 } });
        for stall in 1..14 {
            let (at, lasts) = (stall * 2_010 * MS, 450 * MS);
            faults.push(Fault { at, lasts, kind: FaultKind::Stop { node } });
        }
    }
    let found = |planted, seed| {
        let (nodes, clients, script) = (3, 1, Some(SCRIPT));
        let setup = Setup { nodes, clients, script, planted, ..Setup::new(seed, Dialect::Strict) };
        let outcome = run_plan(&setup, Plan::of(faults.clone()));
        let needless = |violation: &Violation| violation.invariant == Invariant::NeedlessLoss;
        (outcome.violations.len(), outcome.violations.iter().any(needless))
    };
    let planted = Some(Planted::LateTakenForClock);
    assert!((1..20).any(|seed| found(planted, seed).1), "it was not caught");
    for seed in 1..20 {
        assert_eq!(found(None, seed), (0, false), "seed {seed}");
    }
}

/// Many holders and waiters, and nothing but this goes wrong.
#[test]
fn nodes_that_go_one_after_the_other_or_stand_still_together_cost_no_lock_in_30_seeds() {
    for class in [FaultClass::StopAll, FaultClass::RollingRestart] {
        for options in [redlock(30), strict(30)] {
            let summary = simulate(&with(options, &[class]), &|_| {});
            assert!(summary.first.is_none(), "{:?}", summary.first.map(|first| first.story()));
        }
    }
}

/// A vote that a node casts too early.
#[test]
fn a_node_that_is_won_back_in_quarantine_is_caught_within_20_seeds() {
    let faults = [FaultClass::RestartEmpty, FaultClass::Crash, FaultClass::Cut];
    let options = with(strict(20), &faults);
    is_caught(Planted::WinBackInQuarantine, options, &[Invariant::Records]);
}

#[test]
fn a_lock_that_is_called_taken_in_quarantine_is_caught_within_10_seeds() {
    let faults = [FaultClass::RestartEmpty, FaultClass::Flush];
    is_caught(Planted::TakenInQuarantine, with(strict(10), &faults), &[Invariant::Truth]);
}

/// Many locks at once, and nothing but this: more than may be asked for at once, on nodes that take their time, and held
/// while all nodes stand still now and then.
#[test]
fn a_crowd_costs_no_lock_in_6_seeds() {
    for class in [FaultClass::Burst, FaultClass::MassRenewal] {
        for options in [redlock(6), strict(6)] {
            let summary = simulate(&with(options, &[class]), &|_| {});
            assert!(summary.first.is_none(), "{:?}", summary.first.map(|first| first.story()));
            assert!(summary.acquisitions > 6 * 900, "{}", summary.acquisitions);
        }
    }
}

#[test]
fn a_request_that_is_stamped_in_the_clients_own_line_is_caught_within_2_seeds() {
    let options = with(strict(2), &[FaultClass::Burst]);
    is_caught(Planted::StampedInLine, options, &[Invariant::OwnLine]);
}

#[test]
fn a_line_that_is_taken_for_the_silence_of_a_node_is_caught_within_2_seeds() {
    for options in [redlock(2), strict(2)] {
        let options = with(options, &[FaultClass::Burst]);
        is_caught(Planted::LineIsSilence, options, &[Invariant::OwnLine]);
    }
}

/// What was found is cut down to what it takes. Not always to little: what is left out changes all that follows.
#[test]
fn a_broken_promise_comes_with_few_faults_and_can_be_replayed() {
    let faults = [FaultClass::RestartEmpty, FaultClass::Pause, FaultClass::Cut];
    let options = with(redlock(30), &faults);
    let broken = options.seeds.clone().filter_map(|seed| {
        simulate(&Options { seeds: seed..seed + 1, ..options.clone() }, &|_| {}).first
    });
    let broken: Vec<_> = broken.take(4).collect();
    let (mut few, count) = (0, broken.len());
    for first in broken {
        let all = run(&options.setup(first.setup.seed));
        few += usize::from(first.plan.faults.len() * 2 < all.plan.faults.len());
        let again = run_plan(&first.setup, first.plan.clone());
        assert_eq!(again.trace.digest(), first.trace.digest());
        assert_eq!(again.violations, first.violations);
        assert!(
            first.story().last().is_some_and(|line| line.starts_with("→ I")),
            "{:?}",
            first.story()
        );
    }
    assert!(count == 4 && few * 2 >= count, "{few} of {count}");
}
