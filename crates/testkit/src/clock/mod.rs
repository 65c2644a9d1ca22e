//! A server's own clock, set by the test.
//!
//! ```text
//!   test ── ServerClock ── page ──▶ a file ──▶ clock/server_clock.c, loaded into the server
//!                                                      │ moves what the kernel says
//!                                                      ▼
//!                                              TIME, PX, PTTL, Lua …
//! ```

mod library;
mod page;

use std::thread;
use std::time::Duration;

use crate::RedisServer;

pub(crate) use page::{ControlPage, Moves};

/// Valkey looks at the wall clock once a millisecond, and meanwhile counts on by the processor's
/// counter. After two it has looked.
const UNTIL_SEEN: Duration = Duration::from_millis(2);

/// The clock of a server that was started with one of its own, from [`RedisServer::clock`].
///
/// What is set holds when the call returns, and stays over a restart. Other processes, the test's
/// own among them, keep the true time.
///
/// Redis looks at the clock each time it needs it. Valkey 9.1 does so once a millisecond: within
/// each it runs at the true rate, and then steps to what the clock shows.
#[derive(Clone, Copy, Debug)]
pub struct ServerClock<'a> {
    server: &'a RedisServer,
    page: &'a ControlPage,
}

impl<'a> ServerClock<'a> {
    pub(crate) fn new(server: &'a RedisServer, page: &'a ControlPage) -> Self {
        Self { server, page }
    }

    /// Moves the clock by so many milliseconds at once: forward, or back if negative. It goes on
    /// from there at the rate that it had.
    ///
    /// # Panics
    ///
    /// When the jump is one of more than 292 years.
    pub fn jump_ms(&self, by_ms: i64) {
        let by_ns = by_ms.checked_mul(1_000_000).expect("a jump of fewer than 292 years");
        self.page.jump(by_ns);
        thread::sleep(UNTIL_SEEN);
    }

    /// Lets the clock run at this rate from now on: 1.1 gains a tenth of a second in each, 0 stands
    /// still. The clock does not jump: it goes on from what it shows.
    ///
    /// A server that runs stands still for the moment of the change, so that it cannot read the
    /// clock between the time that the new rate counts from and the time that it is there.
    ///
    /// # Panics
    ///
    /// When the rate is negative or above 1000.
    pub fn rate(&self, rate: f64) {
        assert!((0.0..=1000.0).contains(&rate), "a rate from 0 to 1000, not {rate}");
        self.server.while_still(|| self.page.set_rate(rate));
        thread::sleep(UNTIL_SEEN);
    }

    /// Lets the clock run at the true rate from now on. What it is ahead or behind stays.
    pub fn steady(&self) {
        self.rate(1.0);
    }

    /// Puts the clock back to the true time and rate, however far it has to jump.
    pub fn true_time(&self) {
        self.page.clear();
        thread::sleep(UNTIL_SEEN);
    }
}
