//! A process that ends the command when this one cannot.
//!
//! This process may be killed. The system kills the command then, but not what the command has started.
//! Or it may stand still, by SIGSTOP, in a debugger, or for want of processor time: nothing extends the lock
//! then, and the command would run on beside the next holder. So a process of this program, in a group of
//! its own, holds the other end of a pipe, and knows until when the command may run.
//!
//! ```text
//!   quorlock run ──pipe──▶ quorlock __kill-group GROUP
//!      extends the lock:   a deadline               waits until then
//!      stands still:       nothing                  SIGKILL for the group at the last deadline
//!      is killed:          the end                  SIGKILL for the group
//!      ends by itself:     NEVER                    done
//!                  ◀──pipe── "k" before the SIGKILL
//! ```

use std::cell::Cell;
use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;
use quorlock::runtime::boot_time;
use quorlock::{Deadline, Guard};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::time::sleep;

use crate::exec::this_program;
use crate::grace;

/// What stands in the place of a subcommand. Nobody else is to use it: it is in no help.
pub(crate) const STAGE: &str = "__kill-group";

/// The longest that the clocks are not looked at where the system does not tell when they are set, or
/// when the machine wakes up.
const LONGEST_NAP: Duration = Duration::from_secs(1);

/// A process that kills a group when this process ends without a message, or sends no new one in time.
pub(crate) struct GroupKiller {
    writer: PipeWriter,
    /// To take back what was not read, so that what is new has room.
    reader: PipeReader,
    sent: Cell<KillAt>,
    /// Where it says that it kills.
    kills: PipeReader,
}

impl GroupKiller {
    /// Has that group killed at that time, or if this process ends before [`dismiss`](Self::dismiss).
    pub(crate) fn start(group: Pid, kill_at: KillAt) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let (kills, says_kills) = io::pipe()?;
        // Neither end waits for the other: that process may stand still as well as this one.
        fcntl_setfl(&writer, OFlags::NONBLOCK)?;
        fcntl_setfl(&reader, OFlags::NONBLOCK)?;
        fcntl_setfl(&kills, OFlags::NONBLOCK)?;
        let sent = Cell::new(KillAt::NEVER);
        let killer = Self { reader: reader.try_clone()?, writer, sent, kills };
        // It lies there already when that process begins.
        killer.send(kill_at);
        Command::new(this_program())
            .arg0("quorlock")
            .args([STAGE, &group.as_raw_nonzero().to_string()])
            .env_clear()
            // Not where the command is: a folder in use cannot be unmounted.
            .current_dir("/")
            .stdin(reader)
            .stdout(says_kills)
            .stderr(Stdio::null())
            // A signal that ends the group of this process does not end that one.
            .process_group(0)
            .spawn()?;
        Ok(killer)
    }

    /// Passes on for how long the lock is held, again and again.
    pub(crate) async fn follow(&self, guard: &Guard, ttl: Duration) -> Infallible {
        loop {
            self.update(guard, ttl);
            sleep(grace::for_the_killer(ttl)).await;
        }
    }

    /// Passes on for how long the lock is held. If it is lost, or is about to be, what was said before stands.
    pub(crate) fn update(&self, guard: &Guard, ttl: Duration) {
        if guard.is_held() {
            self.send(KillAt::before_the_end(guard, ttl));
        }
    }

    /// Whether it has killed the group, or is about to: this process has stood still for too long.
    pub(crate) fn has_killed(&self) -> bool {
        (&self.kills).read(&mut [0]).is_ok_and(|count| count > 0)
    }

    /// The group may live on.
    pub(crate) fn dismiss(&self) {
        self.send(KillAt::NEVER);
    }

    fn send(&self, kill_at: KillAt) {
        if self.sent.get().is_about(kill_at) && kill_at != KillAt::NEVER {
            return;
        }
        let message = kill_at.message();
        let mut sent = (&self.writer).write(&message);
        if sent.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock) {
            // That process has not read for hours. What it was sent is of no use any more.
            let mut old = [0; 64 * MESSAGE_BYTES];
            while (&self.reader).read(&mut old).is_ok_and(|count| count > 0) {}
            sent = (&self.writer).write(&message);
        }
        if sent.is_ok() {
            self.sent.set(kill_at);
        }
    }
}

/// When a group is to be killed, unless something newer is said before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KillAt {
    /// In nanoseconds since the start of the machine.
    boot_ns: u64,
    /// In nanoseconds since 1970; at the end of time if the time of day does not matter.
    wall_ns: u64,
}

const MESSAGE_BYTES: usize = 16;
/// What is computed anew from the same end of a lease differs by less than this.
const GRAIN_NS: u64 = 1_000_000;

impl KillAt {
    const NEVER: Self = Self { boot_ns: u64::MAX, wall_ns: u64::MAX };

    /// In time before that lock ends, if it is not extended.
    pub(crate) fn before_the_end(guard: &Guard, ttl: Duration) -> Self {
        let Deadline { boot, wall, .. } = guard.deadline();
        let early = grace::for_the_killer(ttl);
        let wall_ns =
            wall.map_or(u64::MAX, |wall| since_1970_ns(wall).saturating_sub(nanos(early)));
        Self { boot_ns: boot.before(early).as_nanos(), wall_ns }
    }

    fn message(self) -> [u8; MESSAGE_BYTES] {
        let mut message = [0; MESSAGE_BYTES];
        message[..8].copy_from_slice(&self.boot_ns.to_ne_bytes());
        message[8..].copy_from_slice(&self.wall_ns.to_ne_bytes());
        message
    }

    fn read(message: &[u8]) -> Option<Self> {
        let (boot_ns, wall_ns) = message.split_at_checked(8)?;
        let boot_ns = u64::from_ne_bytes(boot_ns.try_into().ok()?);
        Some(Self { boot_ns, wall_ns: u64::from_ne_bytes(wall_ns.try_into().ok()?) })
    }

    fn is_about(self, other: Self) -> bool {
        self.boot_ns.abs_diff(other.boot_ns) < GRAIN_NS
            && self.wall_ns.abs_diff(other.wall_ns) < GRAIN_NS
    }

    /// What is left until then.
    fn left(self, boot_ns: u64, wall_ns: u64) -> Duration {
        let by_boot = self.boot_ns.saturating_sub(boot_ns);
        Duration::from_nanos(by_boot.min(self.wall_ns.saturating_sub(wall_ns)))
    }
}

fn since_1970_ns(wall: SystemTime) -> u64 {
    nanos(wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Does the work, if this process was started for that. Returns whether it was.
pub(crate) fn kill_group(mut args: impl Iterator<Item = OsString>) -> bool {
    if args.next().is_none_or(|stage| stage != STAGE) {
        return false;
    }
    // A service manager may ask all of its processes to end at once. This one ends with the other.
    let _ = SigSet::all().thread_block();
    let group = args.next().and_then(|id| Pid::from_raw(id.to_str()?.parse().ok()?));
    if let Some(group) = group
        && wait_for_the_end() == Verdict::Kill
    {
        // Before it does: a process that finds the group dead knows why.
        let _ = rustix::io::write(io::stdout(), b"k");
        // The number is not in use for another group: the parent of its leader has just ended, or stands
        // still and has not collected it.
        let _ = kill_process_group(group, Signal::KILL);
    }
    true
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Kill,
    LetLive,
}

fn wait_for_the_end() -> Verdict {
    let clocks_set = clocks_set();
    let mut kill_at = KillAt::NEVER;
    loop {
        // First all that was said, and then the clocks: this process may have stood still.
        if let Some(verdict) = take_in(&mut kill_at) {
            return verdict;
        }
        let left = kill_at.left(boot_time().as_nanos(), since_1970_ns(SystemTime::now()));
        if left.is_zero() {
            return Verdict::Kill;
        }
        let nap = if clocks_set.is_some() { left } else { left.min(LONGEST_NAP) };
        rest(clocks_set.as_ref(), nap);
    }
}

/// Reads what was said. Returns what to do if that is clear by it.
fn take_in(kill_at: &mut KillAt) -> Option<Verdict> {
    let mut buffer = [0; 64 * MESSAGE_BYTES];
    loop {
        match rustix::io::read(io::stdin(), &mut buffer) {
            Ok(0) => return Some(Verdict::Kill),
            Ok(count) => {
                for said in buffer[..count].chunks_exact(MESSAGE_BYTES).filter_map(KillAt::read) {
                    *kill_at = said;
                }
                if *kill_at == KillAt::NEVER {
                    return Some(Verdict::LetLive);
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return None,
            Err(_) => return Some(Verdict::Kill),
        }
    }
}

/// Sleeps until something is said, a clock is set, or `nap` is over.
fn rest(clocks_set: Option<&OwnedFd>, nap: Duration) {
    let stdin = io::stdin();
    let mut ready = vec![PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    ready.extend(clocks_set.map(|clocks_set| PollFd::new(clocks_set.as_fd(), PollFlags::POLLIN)));
    // Not less than what is left, or it would not sleep at the end. So long that the system does not know it
    // is looked at once in between.
    let nap = PollTimeout::try_from(nap + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
    if poll(&mut ready, nap).is_ok_and(|count| count > 0)
        && let Some(clocks_set) = clocks_set
    {
        // Whatever it was, it is looked at now.
        let _ = rustix::io::read(clocks_set, &mut [0; 8]);
    }
}

/// Becomes readable whenever the time of day is set, and when the machine wakes up.
#[cfg(target_os = "linux")]
fn clocks_set() -> Option<OwnedFd> {
    quorlock::runtime::wall_set_timer().ok()
}

#[cfg(not(target_os = "linux"))]
fn clocks_set() -> Option<OwnedFd> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_read_as_it_was() {
        for kill_at in [KillAt { boot_ns: 1, wall_ns: 2 }, KillAt::NEVER] {
            assert_eq!(KillAt::read(&kill_at.message()), Some(kill_at));
        }
        assert_eq!(KillAt::read(b"short"), None);
    }

    #[test]
    fn either_clock_ends_it() {
        let kill_at = KillAt { boot_ns: 100, wall_ns: 1_000 };
        let left = |boot_ns, wall_ns| kill_at.left(boot_ns, wall_ns).as_nanos();
        assert_eq!((left(40, 940), left(40, 990), left(95, 0)), (60, 10, 5));
        assert_eq!((left(100, 0), left(0, 1_000), left(u64::MAX, u64::MAX)), (0, 0, 0));
        let by_boot = KillAt { boot_ns: 100, wall_ns: u64::MAX };
        assert_eq!(by_boot.left(40, 1 << 63).as_nanos(), 60, "the time of day does not matter");
    }
}
