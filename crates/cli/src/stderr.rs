//! What the command itself has to say, on stderr.
//!
//! A thread of its own writes it. Stderr may be a pipe that nobody reads, and whoever writes to it
//! then stands still: that must not be the thread that extends the lock.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::LazyLock;
use std::sync::mpsc::{SendError, Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::process::getpgrp;
use rustix::termios::{tcgetpgrp, tcgetwinsize};

use crate::terminal;

/// Back to the start of the line, and nothing after it.
const CLEAR: &str = "\r\x1b[K";

/// How long the end of the command waits for a reader of stderr.
const LAST_CHANCE: Duration = Duration::from_secs(1);

enum Order {
    Write(String),
    /// A line that stands until the next order, on a terminal.
    Show(String),
    Hide,
    /// Answered when everything before it is written.
    Flush(Sender<()>),
}

static WRITER: LazyLock<Sender<Order>> = LazyLock::new(|| {
    let (orders, inbox) = channel();
    let work = move || {
        // While the command has a terminal with `stty tostop`, a warning would stop this process.
        let _ = terminal::may_write();
        let mut is_shown = false;
        for order in inbox {
            let next = matches!(order, Order::Show(_));
            if is_shown && !next {
                carry_out(Order::Write(CLEAR.to_owned()));
            }
            is_shown = next;
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
        // Cut off at the terminal's edge: what is wrapped cannot be cleared.
        Order::Show(line) => {
            // A terminal that does not know its width, as on a serial line, says zero.
            let size = tcgetwinsize(io::stderr()).ok().filter(|size| size.ws_col > 0);
            let columns = size.map_or(80, |size| size.ws_col);
            let most = usize::from(columns).saturating_sub(1);
            let line: String = line.chars().filter(|c| !c.is_control()).take(most).collect();
            drop(io::stderr().write_all(format!("{CLEAR}{line}").as_bytes()));
        }
        Order::Hide => {}
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

/// Whether somebody may look at what [`show`] shows.
pub(crate) fn shows_lines() -> bool {
    io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Shows a line in the place of the one before, until something else is said. Not from the
/// background, where it would stand in the way of another program.
pub(crate) fn show(line: String) {
    if tcgetpgrp(io::stderr()) == Ok(getpgrp()) {
        order(Order::Show(line));
    }
}

/// Takes away what is shown.
pub(crate) fn hide() {
    order(Order::Hide);
}

/// Waits until everything is written, but not for ever.
pub(crate) fn flush() {
    let (done, is_done) = channel();
    order(Order::Flush(done));
    let _ = is_done.recv_timeout(LAST_CHANCE);
}
