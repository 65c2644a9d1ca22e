//! A lease under any sequence of extensions: a loss is final, a deadline never moves back.

use std::time::Duration;

use proptest::prelude::*;
use quorlock_protocol::{ExtendOutcome, Lease, LeaseState, LossReason, Moment};

fn at(ms: u64) -> Moment {
    Moment::from_nanos(ms * 1_000_000)
}

fn outcome() -> impl Strategy<Value = ExtendOutcome> {
    prop_oneof![
        4 => (0..2_000u64).prop_map(|ms| ExtendOutcome::Renewed { valid_until: at(ms) }),
        2 => Just(ExtendOutcome::Unknown),
        1 => Just(ExtendOutcome::Lost),
        1 => Just(ExtendOutcome::Apart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_loss_is_final_and_a_deadline_never_moves_back(
        first_ms in 0..1_000u64,
        steps in prop::collection::vec((outcome(), 0..300u64), 0..20),
    ) {
        let mut lease = Lease::new(at(first_ms));
        let mut now = Moment::default();
        let mut lost = false;
        for (outcome, pause_ms) in steps {
            now = now.after(Duration::from_millis(pause_ms));
            let before = lease.valid_until();
            lease.extended(outcome, now);
            prop_assert!(lease.valid_until() >= before);
            lost |= now >= before || matches!(outcome, ExtendOutcome::Lost | ExtendOutcome::Apart);
            prop_assert_eq!(matches!(lease.state(now), LeaseState::Lost(_)), lost);
            if lost {
                prop_assert_eq!(lease.valid_until(), before, "extended after its loss");
                prop_assert_eq!(lease.remaining(now), Duration::ZERO);
            } else {
                prop_assert_eq!(lease.remaining(now), lease.valid_until().since(now));
            }
        }
    }
}

#[test]
fn every_state_is_told_apart() {
    let mut lease = Lease::new(at(100));
    assert_eq!(lease.state(at(0)), LeaseState::Held);
    lease.extended(ExtendOutcome::Unknown, at(10));
    assert_eq!(lease.state(at(10)), LeaseState::Unknown);
    lease.extended(ExtendOutcome::Renewed { valid_until: at(200) }, at(20));
    assert_eq!(lease.state(at(199)), LeaseState::Renewed);
    assert_eq!(lease.state(at(200)), LeaseState::Lost(LossReason::Expired));
    // Asked about an earlier time, it stays lost: what was told once is not taken back.
    assert_eq!(lease.state(at(20)), LeaseState::Lost(LossReason::Expired));
    let mut other = Lease::new(at(100));
    other.extended(ExtendOutcome::Lost, at(1));
    assert_eq!(other.state(at(1)), LeaseState::Lost(LossReason::Gone));
}

proptest! {
    #[test]
    fn a_notice_comes_by_its_lead_and_is_not_taken_back(
        end_ms in 0..1_000u64,
        lead_ms in 0..1_000u64,
        now_ms in 0..1_000u64,
    ) {
        let mut lease = Lease::new(at(end_ms));
        let lead = Duration::from_millis(lead_ms);
        let left = end_ms.saturating_sub(lead_ms).saturating_sub(now_ms);
        let notice = lease.notice(lead, at(now_ms));
        prop_assert_eq!(notice, (left > 0).then(|| Duration::from_millis(left)));
        lease.extended(ExtendOutcome::Renewed { valid_until: at(9_000) }, at(now_ms));
        let held = !matches!(lease.state(at(now_ms)), LeaseState::Lost(_));
        prop_assert_eq!(held, notice.is_some(), "a late success revived it");
    }
}
