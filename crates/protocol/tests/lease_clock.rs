//! Leases that two clocks end.

use std::time::Duration;

use proptest::prelude::*;
use quorlock_protocol::{Lease, LeaseClock, LeaseState, LossReason, Moment};

const DAY_NS: u64 = 1_700_000_000_000_000_000;
const BOOT_NS: u64 = 5_000_000_000;

/// A machine with both clocks, and the time of leases on it.
struct Machine {
    boot_ns: u64,
    wall_ns: u64,
    clock: LeaseClock,
}

impl Machine {
    fn new() -> Self {
        let clock = LeaseClock::new(Moment::from_nanos(BOOT_NS), DAY_NS);
        Self { boot_ns: BOOT_NS, wall_ns: DAY_NS, clock }
    }

    fn pass(&mut self, ns: u64) {
        self.boot_ns += ns;
        self.wall_ns += ns;
    }

    fn set(&mut self, by_ns: i64) {
        self.wall_ns = self.wall_ns.saturating_add_signed(by_ns);
    }

    fn now(&mut self) -> Moment {
        let boot = Moment::from_nanos(self.boot_ns);
        let seen = self.clock.at(boot, self.wall_ns);
        seen.unwrap_or_else(|| self.clock.step(boot, self.wall_ns))
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

proptest! {
    /// Whatever happens to the time of day, and whenever somebody looks.
    #[test]
    fn advances_by_at_least_as_much_as_either_clock(
        events in prop::collection::vec((0u64..5_000_000_000, -20_000_000_000i64..20_000_000_000), 1..30),
        small in prop::collection::vec((0u64..5_000_000, -200_000i64..200_000), 1..30),
    ) {
        let mut machine = Machine::new();
        let mut seen = vec![(machine.now(), machine.boot_ns, machine.wall_ns)];
        for (pass, set) in events.into_iter().chain(small) {
            machine.pass(pass);
            machine.set(set);
            let (now, boot_ns, wall_ns) = (machine.now(), machine.boot_ns, machine.wall_ns);
            for (then, boot_then, wall_then) in &seen {
                let advanced = now.since(*then) + 2 * LeaseClock::GRAIN;
                prop_assert!(now >= *then);
                prop_assert!(now.since(*then) >= Duration::from_nanos(boot_ns - boot_then));
                prop_assert!(advanced >= Duration::from_nanos(wall_ns.saturating_sub(*wall_then)));
            }
            seen.push((now, boot_ns, wall_ns));
        }
    }

    /// A daemon that slews the time of day, and a reader that is not always quick.
    #[test]
    fn a_slow_reader_and_a_slewed_clock_gain_little(
        reads in prop::collection::vec((1u64..100_000_000, 0u64..50_000), 1..100),
        ppm in -500i64..=500,
    ) {
        let mut machine = Machine::new();
        let start = machine.now();
        let mut passed_ns = 0;
        for (pass, delay) in reads {
            machine.pass(pass);
            passed_ns += pass;
            machine.set(i64::try_from(pass).unwrap() * ppm / 1_000_000);
            // Between the two readings.
            let boot = Moment::from_nanos(machine.boot_ns);
            if machine.clock.at(boot, machine.wall_ns + delay).is_none() {
                machine.clock.step(boot, machine.wall_ns);
            }
        }
        let gained = machine.now().since(start).saturating_sub(Duration::from_nanos(passed_ns));
        let slewed = Duration::from_nanos(passed_ns * ppm.max(0).cast_unsigned() / 1_000_000);
        prop_assert!(gained <= slewed + 2 * LeaseClock::GRAIN, "{gained:?} for {slewed:?}");
    }
}

#[test]
fn a_lease_ends_by_a_step_ahead_and_not_by_one_back() {
    const SECOND: i64 = 1_000_000_000;
    for (by_s, left_ms) in [(0, 8_000), (-11, 8_000), (-3_600, 8_000), (5, 3_000), (11, 0)] {
        let mut machine = Machine::new();
        let mut lease = Lease::new(machine.now().after(ms(10_000)));
        machine.pass(2_000_000_000);
        machine.set(by_s * SECOND);
        assert_eq!(lease.remaining(machine.now()), ms(left_ms), "{by_s} s");
        // What was taken after the step lasts as long as ever.
        let mut later = Lease::new(machine.now().after(ms(10_000)));
        machine.pass(9_000_000_000);
        assert_eq!(later.remaining(machine.now()), ms(1_000), "{by_s} s");
        assert_eq!(lease.state(machine.now()), LeaseState::Lost(LossReason::Expired));
    }
}

#[test]
fn a_step_that_is_taken_back_gives_nothing_back() {
    let mut machine = Machine::new();
    let mut lease = Lease::new(machine.now().after(ms(10_000)));
    machine.set(6_000_000_000);
    assert_eq!(lease.remaining(machine.now()), ms(4_000));
    machine.set(-6_000_000_000);
    assert_eq!(lease.remaining(machine.now()), ms(4_000));
}

#[test]
fn a_reader_that_was_held_up_is_told_to_read_again() {
    let mut machine = Machine::new();
    let boot = Moment::from_nanos(machine.boot_ns);
    let held_up_ns = 60_000_000_000;
    assert_eq!(machine.clock.at(boot, machine.wall_ns + held_up_ns), None);
    machine.pass(held_up_ns);
    assert_eq!(machine.now(), Moment::from_nanos(BOOT_NS + held_up_ns), "and nothing is gained");
}

#[test]
fn clocks_that_show_anything_do_not_overflow() {
    for (boot_ns, wall_ns) in [(0, u64::MAX), (u64::MAX, 0), (u64::MAX, u64::MAX)] {
        let mut clock = LeaseClock::new(Moment::from_nanos(7), 7);
        let boot = Moment::from_nanos(boot_ns);
        assert!(clock.step(boot, wall_ns) >= boot);
    }
}

/// While nobody sets a clock one reading is enough, with every use of a lock.
#[test]
fn clocks_that_nobody_has_set_are_read_once() {
    let mut machine = Machine::new();
    machine.set(6_000_000_000);
    let gained = machine.now().since(Moment::from_nanos(BOOT_NS));
    assert_eq!(gained, ms(6_000));
    machine.pass(3_000_000_000);
    let boot = Moment::from_nanos(machine.boot_ns);
    let grain_ns = LeaseClock::GRAIN.as_nanos() as u64;
    let at = |wall_ns| machine.clock.at(boot, wall_ns);
    for wall_ns in [machine.wall_ns, machine.wall_ns - grain_ns, machine.wall_ns + grain_ns] {
        assert_eq!(at(wall_ns), Some(boot.after(gained)));
    }
    assert_eq!(at(machine.wall_ns - grain_ns - 1), None);
    assert_eq!(at(machine.wall_ns + grain_ns + 1), None);
}
