//! The signals that are taken in: to be passed on, or to be acted upon.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

const PASSED_ON: [Signal; 6] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2];

/// What a process that gets it is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// To be passed on.
    Signal(Signal),
    /// Ctrl-Z. It would stop this process, which extends the lock, and not the command.
    Suspend,
    /// Something has happened to the command.
    Child,
}

/// Takes signals in from when it is made: they do not end or stop this process any more.
pub(crate) struct Signals {
    streams: Vec<(Event, Stream)>,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        // What is ignored, as SIGHUP is under nohup, stays so: for this process and the command.
        let ignored = ignored();
        let mut streams = PASSED_ON
            .into_iter()
            .filter(|signal| !is_in(*signal, ignored))
            .map(|signal| Ok((Event::Signal(signal), stream(signal)?)))
            .collect::<io::Result<Vec<_>>>()?;
        if !is_in(Signal::TSTP, ignored) {
            streams.push((Event::Suspend, stream(Signal::TSTP)?));
        }
        // Even if it was ignored: the system would throw the command's exit code away.
        streams.push((Event::Child, stream(Signal::CHILD)?));
        Ok(Self { streams })
    }

    /// The next event. Nothing is lost by dropping the future.
    pub(crate) async fn next(&mut self) -> Event {
        poll_fn(|cx| {
            for (event, stream) in &mut self.streams {
                if let Poll::Ready(Some(())) = stream.poll_recv(cx) {
                    return Poll::Ready(*event);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Whether it is sent to a process for it to end.
pub(crate) fn asks_to_end(signal: Signal) -> bool {
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT].contains(&signal)
}

/// Reads the name of a signal, with or without SIG, or its number.
pub(crate) fn parse(text: &str) -> Result<Signal, String> {
    let upper = text.to_ascii_uppercase();
    let known = match upper.strip_prefix("SIG").unwrap_or(&upper) {
        "HUP" | "1" => Some(Signal::HUP),
        "INT" | "2" => Some(Signal::INT),
        "QUIT" | "3" => Some(Signal::QUIT),
        "ABRT" | "6" => Some(Signal::ABORT),
        "KILL" | "9" => Some(Signal::KILL),
        "USR1" => Some(Signal::USR1),
        "USR2" => Some(Signal::USR2),
        "TERM" | "15" => Some(Signal::TERM),
        _ => None,
    };
    known.ok_or_else(|| {
        format!(
            "{text:?} is no signal that ends a command; write TERM, INT, HUP, QUIT, ABRT, USR1, \
             USR2 or KILL"
        )
    })
}

fn stream(taken: Signal) -> io::Result<Stream> {
    signal(SignalKind::from_raw(taken.as_raw()))
}

/// The signals this process was started with orders to ignore, one bit each. None if the system
/// does not tell, which only Linux does in this way.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    mask(&status).unwrap_or_default()
}

fn mask(status: &str) -> Option<u64> {
    let hex = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(hex.trim(), 16).ok()
}

fn is_in(signal: Signal, mask: u64) -> bool {
    mask & (1 << (signal.as_raw() - 1)) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_signals_as_kill_does() {
        for text in ["TERM", "SIGTERM", "term", "15"] {
            assert_eq!(parse(text), Ok(Signal::TERM), "{text}");
        }
        for text in ["", "SIG", "STOP", "0", "TERMINATE", "-9"] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(&format!("{text:?}")) && error.contains("TERM"), "{error}");
        }
    }

    #[test]
    fn reads_what_is_ignored() {
        // As the kernel writes it for SIGHUP and SIGPIPE.
        let mask = mask("SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n").unwrap();
        assert!(is_in(Signal::HUP, mask) && is_in(Signal::PIPE, mask));
        assert!(!is_in(Signal::INT, mask) && !is_in(Signal::TERM, mask));
    }

    #[test]
    fn the_kernel_is_understood() {
        // The Rust runtime ignores SIGPIPE in every program.
        assert!(is_in(Signal::PIPE, ignored()));
    }
}
