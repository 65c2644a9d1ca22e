//! The time that leases are counted by, where two clocks decide.

use core::time::Duration;

use crate::Moment;

/// Time that advances with whichever of two clocks advances more: the time since the machine started,
/// and the time of day.
///
/// ```text
///   boot time   ───────────────────────────────────────▶
///   time of day ─────────── set ahead by 11 s ══▶──── set back ─▶
///   this        ─────────── 11 s gained ═════════▶──────────────▶    never goes back
/// ```
///
/// Between any two readings it advances by at least as much as each of the clocks does, less twice the
/// [grain](Self::GRAIN). A lease that is counted by it therefore ends when either clock has advanced by
/// its validity. A time of day that is set back neither prolongs a lease nor ends it.
///
/// What it has gained stays gained: leases that were taken before a step ahead end earlier by it, also
/// if the step is taken back, and those that are taken after it last as long as ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseClock {
    /// The time of day less the boot time, as they were read last with a change.
    apart_ns: i128,
    /// The sum of all steps ahead.
    gained: Duration,
}

impl LeaseClock {
    /// Changes between the clocks up to this are not distinguished from the time that it takes to read both.
    pub const GRAIN: Duration = Duration::from_micros(50);

    /// The clock begins with the boot time. The time of day is in nanoseconds since 1970.
    #[must_use]
    pub fn new(boot: Moment, wall_ns: u64) -> Self {
        Self { apart_ns: apart_ns(boot, wall_ns), gained: Duration::ZERO }
    }

    /// The time at a reading of both clocks, the boot time first. `None` if they are further apart, or
    /// closer, than they were: one was set, or the reader was held up between them. They have to be
    /// read once more then, for [`step`](Self::step).
    #[must_use]
    pub fn at(&self, boot: Moment, wall_ns: u64) -> Option<Moment> {
        let change_ns = apart_ns(boot, wall_ns) - self.apart_ns;
        let grain_ns = Self::GRAIN.as_nanos().cast_signed();
        (-grain_ns..=grain_ns).contains(&change_ns).then(|| boot.after(self.gained))
    }

    /// The time at a reading of both clocks, the boot time first and with nothing in between: what the
    /// time of day has gained on the boot time counts.
    pub fn step(&mut self, boot: Moment, wall_ns: u64) -> Moment {
        let now_apart_ns = apart_ns(boot, wall_ns);
        let ahead_ns = now_apart_ns - self.apart_ns;
        self.apart_ns = now_apart_ns;
        if let Ok(ahead_ns) = u64::try_from(ahead_ns) {
            self.gained = self.gained.saturating_add(Duration::from_nanos(ahead_ns));
        }
        boot.after(self.gained)
    }
}

fn apart_ns(boot: Moment, wall_ns: u64) -> i128 {
    i128::from(wall_ns) - i128::from(boot.as_nanos())
}
