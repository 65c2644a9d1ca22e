//! What the command itself has to say, on stderr.
//!
//! A thread of its own writes it. Stderr may be a pipe that nothing reads, and a thread that writes to
//! it then stands still: that must not be the thread that extends the lock.
//!
//! It is text for people, or with `--log json` one object in a line for programs.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SendError, Sender, channel};
use std::sync::{LazyLock, OnceLock};
use std::thread;
use std::time::{Duration, SystemTime};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use rustix::process::getpgrp;
use rustix::termios::{tcgetpgrp, tcgetwinsize};
use serde_json::json;

use crate::init_line;
use crate::note::printable_json;
use crate::terminal;
use crate::time::utc_millis;

/// Back to the start of the line, and nothing after it.
const CLEAR: &str = "\r\x1b[K";

/// What a message is about, by its colour.
const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARNING: Style = AnsiColor::Yellow.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default().bold();

/// How bad a message is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl Level {
    fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// Whether messages are for programs.
static FOR_PROGRAMS: AtomicBool = AtomicBool::new(false);

/// Writes one JSON object in a line for each message from now on.
pub(crate) fn write_json() {
    FOR_PROGRAMS.store(true, Ordering::Relaxed);
}

/// Whether messages are for programs.
pub(crate) fn is_json() -> bool {
    FOR_PROGRAMS.load(Ordering::Relaxed)
}

/// The lock that everything is about.
static LOCK: OnceLock<String> = OnceLock::new();

/// Everything that is said from now on is about this lock, unless it names another.
pub(crate) fn is_about(lock: &std::ffi::OsStr) {
    // There is one lock in a run of this program.
    let _ = LOCK.set(lock.to_string_lossy().into_owned());
}

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
        Order::Show(line) => {
            // A terminal that does not know its width, as on a serial line, says zero.
            let size = tcgetwinsize(io::stderr()).ok().filter(|size| size.ws_col > 0);
            let columns = size.map_or(80, |size| size.ws_col);
            let line = cut(&line, usize::from(columns).saturating_sub(1));
            let (spinner, rest) = line.split_at_checked(1).unwrap_or_default();
            let line = format!("{CLEAR}{}{rest}", painted(HINT, spinner));
            drop(io::stderr().write_all(line.as_bytes()));
        }
        Order::Hide => {}
        Order::Flush(done) => drop(done.send(())),
    }
}

/// As much of a line as fits: what is wrapped cannot be cleared. Signs beyond ASCII may be wide.
fn cut(line: &str, columns: usize) -> String {
    let mut left = columns;
    let fits = |c: &char| {
        let width = if c.is_ascii() { 1 } else { 2 };
        let fits = width <= left;
        left = left.saturating_sub(width);
        fits
    };
    line.chars().filter(|c| !c.is_control()).take_while(fits).collect()
}

fn order(order: Order) {
    if let Err(SendError(order)) = WRITER.send(order) {
        carry_out(order);
    }
}

/// A text in its colour, if stderr is a terminal that has colours, and nobody has set `NO_COLOR`.
fn painted(style: Style, text: &str) -> String {
    static COLORFUL: LazyLock<bool> =
        LazyLock::new(|| AutoStream::choice(&io::stderr()) != ColorChoice::Never);
    if *COLORFUL && !is_json() { format!("{style}{text}{style:#}") } else { text.to_owned() }
}

/// A word that announces advice, for a message.
pub(crate) fn hint(word: &str) -> String {
    painted(HINT, word)
}

/// In one piece, so that what the child writes at the same time does not cut it in two.
fn tell(level: Level, (style, start): (Style, &str), message: impl Display) {
    if is_json() {
        return log(level, None, None, message);
    }
    let message = init_line::complete(message.to_string());
    order(Order::Write(format!("{} {message}\n", painted(style, start))));
}

/// Says something to programs, with the lock and the node that it is about, if they are known.
pub(crate) fn log(level: Level, lock: Option<&str>, node: Option<&str>, message: impl Display) {
    let line = json!({
        "time": utc_millis(SystemTime::now()),
        "level": level.word(),
        "message": init_line::complete(message.to_string()),
        "lock": lock.or(LOCK.get().map(String::as_str)),
        "node": node,
    });
    order(Order::Write(printable_json(&format!("{line}\n"))));
}

/// Says what is going on, with the name of the command before it.
pub(crate) fn say(message: impl Display) {
    tell(Level::Info, (HINT, "quorlock:"), message);
}

/// Says something that may be nothing to worry about.
pub(crate) fn warn(message: impl Display) {
    tell(Level::Warn, (WARNING, "quorlock: warning:"), message);
}

/// Says why there is no better result.
pub(crate) fn fail(message: impl Display) {
    tell(Level::Error, (ERROR, "quorlock:"), message);
}

/// Whether somebody may look at what [`show`] shows.
pub(crate) fn shows_lines() -> bool {
    !is_json()
        && io::stderr().is_terminal()
        && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Whether a line may stand on the terminal.
static IS_SHOWN: AtomicBool = AtomicBool::new(false);

/// Shows a line in the place of the one before, until something else is said. Not from the
/// background, where it would stand in the way of another program.
pub(crate) fn show(line: String) {
    if tcgetpgrp(io::stderr()) == Ok(getpgrp()) {
        IS_SHOWN.store(true, Ordering::Relaxed);
        order(Order::Show(line));
    }
}

/// Takes away what is shown: it is gone when this returns, before anybody else writes there.
pub(crate) fn hide() {
    if IS_SHOWN.swap(false, Ordering::Relaxed) {
        order(Order::Hide);
        flush();
    }
}

/// Waits until everything is written, but not for ever.
pub(crate) fn flush() {
    let (done, is_done) = channel();
    order(Order::Flush(done));
    let _ = is_done.recv_timeout(LAST_CHANCE);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_at_the_edge() {
        assert_eq!(cut("| waiting", 9), "| waiting");
        assert_eq!(cut("| waiting", 4), "| wa");
        assert_eq!(cut("| \u{1b}[31mé漢字", 8), "| [31mé");
        assert_eq!(cut("|", 0), "");
    }
}
