//! The processor time of processes, this one or others.

use std::fs;

use anyhow::{Context, Result};
use rustix::time::{ClockId, clock_gettime};

/// The seconds that all threads of a process have run so far, user and system.
///
/// In ns, where `/proc/PID/stat` counts in hundredths of a second. Threads that have ended do not
/// count: neither servers nor this program have any that come and go.
pub fn seconds_of(pid: u32) -> Result<f64> {
    let mut nanos = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let stat = fs::read_to_string(task?.path().join("schedstat"))?;
        nanos += stat.split_whitespace().next().context("schedstat")?.parse::<u64>()?;
    }
    Ok(nanos as f64 / 1e9)
}

/// Of this process. More exact than what the kernel notes down for others to read while they run.
pub fn own_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn work_is_seen_and_sleep_is_not() -> Result<()> {
        let (before, seen_before) = (own_seconds(), seconds_of(std::process::id())?);
        std::thread::sleep(Duration::from_millis(50));
        let start = Instant::now();
        let mut sum = 0u64;
        while start.elapsed() < Duration::from_millis(100) {
            sum = sum.wrapping_mul(31).wrapping_add(1);
        }
        let took = own_seconds() - before;
        assert!(std::hint::black_box(sum) != 0 && took > 0.01, "{took}");
        // Asleep, so that the kernel notes it down.
        std::thread::sleep(Duration::from_millis(1));
        let seen = seconds_of(std::process::id())? - seen_before;
        assert!(seen > 0.01, "{seen}");
        Ok(())
    }
}
