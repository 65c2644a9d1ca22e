//! Looking after a lease: extended in time, never too often, and its holder told before the end.

use std::time::Duration;

use proptest::prelude::*;
use quorlock_protocol::{
    Cap, Caps, Drift, Duty, ExtendOutcome, Lease, LeaseState, LossReason, Moment, Terms, Upkeep,
};

const DRIFT: Drift = Drift { base: Duration::from_millis(2), per_mille: 100 };

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn at(millis: u64) -> Moment {
    Moment::default().after(ms(millis))
}

fn terms(ttl: Duration) -> Terms {
    Terms { ttl, drift: DRIFT, margin: Duration::ZERO }
}

/// A holder in a world where each extension ends as it is told: how long after it was sent, and how.
struct World {
    terms: Terms,
    upkeep: Upkeep,
    lease: Lease,
    now: Moment,
    tried: Moment,
    sent: Vec<Moment>,
}

impl World {
    fn new(terms: Terms, upkeep: Upkeep, caps: Caps) -> Self {
        let lease = Lease::capped_by(caps, terms.valid_until(at(0)));
        Self { terms, upkeep, lease, now: at(0), tried: Moment::default(), sent: Vec::new() }
    }

    /// Looks, and does what is to be done, until it is over or the rounds that are to come are
    /// used up; each confirms the extension or tells nothing.
    fn live(&mut self, rounds: &[bool]) -> Option<LossReason> {
        let mut rounds = rounds.iter();
        self.now = self.upkeep.first_look(&self.lease).max(self.now);
        loop {
            let next = match self.upkeep.duty(&mut self.lease, self.tried, true, self.now) {
                Duty::Over(reason) => return Some(reason),
                Duty::Wait { until } => until,
                Duty::Renew { again } => {
                    let confirmed = rounds.next()?;
                    self.sent.push(self.now);
                    self.tried = self.now;
                    let valid_until = self.terms.valid_until(self.now);
                    let outcome = if *confirmed {
                        ExtendOutcome::Renewed { valid_until }
                    } else {
                        ExtendOutcome::Unknown
                    };
                    self.lease.extended(outcome, self.now);
                    again
                }
            };
            assert!(next > self.now, "looking without end at {:?}", self.now);
            self.now = next;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_fails_the_holder_is_told_by_the_lead_and_attempts_keep_their_distance(
        ttl_ms in 20..60_000u64,
        lead_share in 0..80u32,
        round_share in 5..40u32,
        mut script in prop::collection::vec(any::<bool>(), 0..40),
    ) {
        let ttl = ms(ttl_ms);
        let lead = ttl * lead_share / 100;
        let round = ttl / round_share;
        let terms = terms(ttl);
        prop_assume!(lead < terms.validity());
        let mut world = World::new(terms, Upkeep::renewing(&terms, round, lead), Caps::NONE);
        // In the end nobody answers any more.
        script.extend([false; 100]);
        prop_assert_eq!(world.live(&script), Some(LossReason::Expired));
        prop_assert_eq!(world.now, world.lease.valid_until().before(lead), "told at the lead");
        for pair in world.sent.windows(2) {
            let apart = pair[1].since(pair[0]);
            prop_assert!(apart >= round, "{apart:?}");
        }
        prop_assert!(!world.sent.is_empty(), "it was never tried");
    }

    #[test]
    fn nodes_that_answer_again_shortly_before_the_end_are_asked_in_time(
        ttl_ms in 200..60_000u64,
        lead_share in 0..50u32,
        round_share in 20..200u32,
        back_share in 0..1_000u32,
    ) {
        let ttl = ms(ttl_ms);
        let (lead, round) = (ttl * lead_share / 100, ttl / round_share);
        let terms = terms(ttl);
        let mut world = World::new(terms, Upkeep::renewing(&terms, round, lead), Caps::NONE);
        prop_assert_eq!(world.live(&[false; 1_000]), Some(LossReason::Expired));
        let (first, last) = (world.sent[0], world.now);
        let latest = last.before(2 * round);
        prop_assume!(first < latest);
        let back = first.after(latest.since(first) * back_share / 1_000);
        let in_time = |sent: &&Moment| **sent >= back && **sent <= last.before(round);
        prop_assert!(world.sent.iter().any(|sent| in_time(&sent)), "{back:?} of {:?}", world.sent);
    }

    #[test]
    fn what_is_confirmed_is_extended_a_third_of_the_ttl_after_it_was_sent(
        ttl_ms in 20..60_000u64,
        count in 1..50usize,
    ) {
        let ttl = ms(ttl_ms);
        let terms = terms(ttl);
        let mut world = World::new(terms, Upkeep::renewing(&terms, ttl / 20, ttl / 20), Caps::NONE);
        prop_assert_eq!(world.live(&vec![true; count]), None);
        let mut due = at(0);
        for sent in world.sent {
            due = due.after(ttl / 3);
            prop_assert_eq!(sent, due);
        }
    }

    #[test]
    fn a_cap_ends_the_extensions_and_is_told_apart(
        most in 0..20u32,
        hold_ms in prop::option::of(1..100_000u64),
    ) {
        let ttl = ms(9_000);
        let terms = terms(ttl);
        let caps = Caps::new(Some(most), hold_ms.map(ms), at(0));
        let upkeep = Upkeep::renewing(&terms, ms(50), ms(450));
        let mut world = World::new(terms, upkeep, caps);
        prop_assert_eq!(world.live(&[true; 30]), Some(LossReason::Capped));
        prop_assert!(world.sent.len() <= most as usize);
        let end = world.lease.valid_until();
        if let Some(hold) = hold_ms.map(ms) {
            prop_assert!(end <= at(0).after(hold), "held for longer than allowed");
            prop_assert!(world.sent.len() == most as usize || end == at(0).after(hold));
        }
    }

    #[test]
    fn looking_too_early_or_too_late_loses_nothing(
        now_ms in 0..30_000u64,
        tried_ms in 0..30_000u64,
        has_listener in any::<bool>(),
    ) {
        let terms = terms(ms(9_000));
        let lead = ms(450);
        let upkeep = Upkeep::renewing(&terms, ms(50), lead);
        let end = terms.valid_until(at(0));
        let mut lease = Lease::new(end);
        let tried = at(tried_ms);
        let now = at(now_ms);
        let over = now >= if has_listener { end.before(lead) } else { end };
        match upkeep.duty(&mut lease, tried, has_listener, now) {
            Duty::Over(reason) => prop_assert!(over && reason == LossReason::Expired),
            Duty::Renew { again } => {
                prop_assert!(!over && now_ms >= 3_000);
                // Closer together towards the end.
                let left = if tried < end.before(lead) { end.before(lead) } else { end };
                let apart = ms(750).min((left.since(tried) / 4).max(ms(50)));
                prop_assert!(tried_ms == 0 || now >= tried.after(apart));
                prop_assert!(again > now && again <= end);
            }
            Duty::Wait { until } => {
                prop_assert!(!over && until > now && until <= end);
                prop_assert!(now >= end.before(lead) || until <= end.before(lead), "told too late");
            }
        }
    }
}

#[test]
fn a_fixed_lease_is_never_extended_and_told_of_all_the_same() {
    let terms = terms(ms(9_000));
    let mut world = World::new(terms, Upkeep::fixed(&terms, ms(450)), Caps::NONE);
    assert_eq!(world.live(&[]), Some(LossReason::Expired));
    assert_eq!(world.now, terms.valid_until(at(0)).before(ms(450)));
}

#[test]
fn nobody_who_listens_is_told_and_it_is_extended_to_its_very_end() {
    let terms = terms(ms(9_000));
    let upkeep = Upkeep::renewing(&terms, ms(50), ms(450));
    let end = terms.valid_until(at(0));
    let mut lease = Lease::new(end);
    let late = end.before(ms(1));
    assert_eq!(upkeep.duty(&mut lease, Moment::default(), false, late), Duty::Renew { again: end });
    assert_eq!(
        upkeep.duty(&mut lease, Moment::default(), true, late),
        Duty::Over(LossReason::Expired)
    );
}

#[test]
fn a_success_beyond_a_cap_counts_for_nothing() {
    let mut lease = Lease::capped_by(Caps::new(Some(1), None, at(0)), at(100));
    assert_eq!(lease.capped(), None);
    lease.extended(ExtendOutcome::Renewed { valid_until: at(200) }, at(10));
    assert_eq!(lease.capped(), Some(Cap::Extensions(1)));
    // Sent at the same time as the first.
    lease.extended(ExtendOutcome::Renewed { valid_until: at(300) }, at(20));
    assert_eq!(lease.valid_until(), at(200));
    assert_eq!(lease.state(at(200)), LeaseState::Lost(LossReason::Capped));
    let short = Lease::capped_by(Caps::new(None, Some(ms(50)), at(0)), at(100));
    assert_eq!((short.valid_until(), short.capped()), (at(50), Some(Cap::Hold)));
}

#[test]
fn what_was_given_back_is_not_revived_and_leaves_no_time() {
    let mut lease = Lease::new(at(100));
    assert_eq!(lease.grace(at(40)), ms(60));
    lease.released();
    lease.extended(ExtendOutcome::Renewed { valid_until: at(900) }, at(10));
    assert_eq!(lease.state(at(10)), LeaseState::Lost(LossReason::Released));
    assert_eq!((lease.valid_until(), lease.grace(at(40))), (at(100), ms(0)));
    // Told by its lead, a holder has that lead to stop in.
    let mut lease = Lease::new(at(100));
    assert_eq!(lease.notice(ms(30), at(70)), None);
    assert_eq!((lease.remaining(at(80)), lease.grace(at(80))), (ms(0), ms(20)));
}

#[test]
fn the_first_look_comes_with_the_first_extension_or_in_time_to_tell_of_the_end() {
    let second = Duration::from_secs(1);
    let drift = Drift { base: Duration::ZERO, per_mille: 0 };
    let terms = Terms { ttl: 30 * second, drift, margin: Duration::ZERO };
    let at = |seconds: u32| Moment::from_nanos(1_000_000_000_000).after(second * seconds);
    let lease = Lease::new(at(30));
    assert_eq!(Upkeep::renewing(&terms, second, 2 * second).first_look(&lease), at(10));
    assert_eq!(Upkeep::fixed(&terms, 2 * second).first_look(&lease), at(28));
}

/// Nobody waits to be told: the next look is at the end, and not at this very moment once more.
#[test]
fn a_look_in_the_moment_of_telling_says_when_to_look_again() {
    let second = Duration::from_secs(1);
    let drift = Drift { base: Duration::ZERO, per_mille: 0 };
    let terms = Terms { ttl: 30 * second, drift, margin: Duration::ZERO };
    let at = |seconds: u32| Moment::from_nanos(1_000_000_000_000).after(second * seconds);
    let fixed = Upkeep::fixed(&terms, 2 * second);
    let look = |now| fixed.duty(&mut Lease::new(at(30)), Moment::default(), false, now);
    assert_eq!(look(at(27)), Duty::Wait { until: at(28) });
    assert_eq!(look(at(28)), Duty::Wait { until: at(30) });
}

/// An extension that failed is tried again after a twelfth of the TTL, and sooner where little time is left: until
/// the holder is told of the end, and from then on until the end itself.
#[test]
fn one_that_failed_is_tried_again_the_sooner_the_less_is_left() {
    let second = Duration::from_secs(1);
    let drift = Drift { base: Duration::ZERO, per_mille: 0 };
    let terms = Terms { ttl: 24 * second, drift, margin: Duration::ZERO };
    let begun = Moment::from_nanos(1_000_000_000_000);
    let at = |seconds: u32| begun.after(second * seconds);
    let upkeep = Upkeep::renewing(&terms, ms(10), 4 * second);
    let after = |tried: Moment| {
        let duty = upkeep.duty(&mut Lease::new(at(24)), tried, false, tried);
        let Duty::Wait { until } = duty else { panic!("{duty:?}") };
        until.since(tried)
    };
    assert_eq!(after(at(8)), 2 * second, "a twelfth of the TTL");
    assert_eq!(after(at(16)), second, "a quarter of what is left until it is told");
    assert_eq!(after(at(20)), second, "a quarter of what is left until the end");
}

/// Leases that began at the same moment are extended at moments of their own, and none of them later than alone.
#[test]
fn leases_that_began_together_are_extended_apart() {
    let terms = terms(ms(12_000));
    let alone = Upkeep::renewing(&terms, ms(50), ms(600));
    let first = |upkeep: Upkeep| upkeep.first_look(&Lease::new(terms.valid_until(at(0))));
    assert_eq!((first(alone), first(alone.spread(0))), (at(4_000), at(4_000)));
    let apart: Vec<_> = (0..=255).map(|number| first(alone.spread(number))).collect();
    assert!(apart.is_sorted_by(|earlier, later| earlier > later), "{apart:?}");
    assert!(apart[255] > at(3_500) && apart[255] < at(3_510), "{:?}", apart[255]);
    let fixed = Upkeep::fixed(&terms, ms(600));
    assert_eq!(first(fixed.spread(255)), first(fixed));
}
