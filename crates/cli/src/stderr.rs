//! What the command itself has to say, on stderr.
//!
//! A thread of its own writes it. Stderr may be a pipe that nobody reads, and whoever writes to it
//! then stands still: that must not be the thread that extends the lock.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::LazyLock;
use std::sync::mpsc::{SendError, Sender, channel};
use std::thread;
use std::time::Duration;

/// How long the end of the command waits for a reader of stderr.
const LAST_CHANCE: Duration = Duration::from_secs(1);

enum Order {
    Write(String),
    /// Answered when everything before it is written.
    Flush(Sender<()>),
}

static WRITER: LazyLock<Sender<Order>> = LazyLock::new(|| {
    let (orders, inbox) = channel();
    let work = move || {
        for order in inbox {
            carry_out(order);
        }
    };
    // If there is no thread to be had, the inbox is dropped and `order` does the work itself.
    let _ = thread::Builder::new().name("stderr".into()).spawn(work);
    orders
});

fn carry_out(order: Order) {
    match order {
        // There is no place left to report that stderr is closed.
        Order::Write(text) => drop(io::stderr().write_all(text.as_bytes())),
        Order::Flush(done) => drop(done.send(())),
    }
}

fn order(order: Order) {
    if let Err(SendError(order)) = WRITER.send(order) {
        carry_out(order);
    }
}

/// Says something, with the name of the command before it.
pub(crate) fn say(message: impl Display) {
    // In one piece, so that what the child writes at the same time does not cut it in two.
    order(Order::Write(format!("quorlock: {message}\n")));
}

/// Says something that may be nothing to worry about.
pub(crate) fn warn(message: impl Display) {
    say(format_args!("warning: {message}"));
}

/// Waits until everything is written, but not for ever.
pub(crate) fn flush() {
    let (done, is_done) = channel();
    order(Order::Flush(done));
    let _ = is_done.recv_timeout(LAST_CHANCE);
}
