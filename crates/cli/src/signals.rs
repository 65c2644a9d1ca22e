//! The signals that are taken in: to be passed on, or not to stand in the way.

use std::fs;
use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

const PASSED_ON: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

/// What is taken in and goes no further.
const SWALLOWED: [Signal; 2] = [
    // Ctrl-Z would stop this process, which extends the lock, but not the command.
    Signal::TSTP,
    // If it was ignored, the system would throw the command's exit code away.
    Signal::CHILD,
];

/// Takes signals in from when it is made: they do not end or stop this process any more.
pub(crate) struct Signals {
    streams: Vec<(Signal, Stream)>,
    _swallowed: Vec<Stream>,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        // What is ignored, as SIGHUP is under nohup, stays so: for this process and the command.
        let ignored = ignored();
        let streams = PASSED_ON
            .into_iter()
            .filter(|signal| !is_in(*signal, ignored))
            .map(|signal| Ok((signal, stream(signal)?)))
            .collect::<io::Result<_>>()?;
        let swallowed = SWALLOWED.into_iter().map(stream).collect::<io::Result<_>>()?;
        Ok(Self { streams, _swallowed: swallowed })
    }

    /// The next signal. Nothing is lost by dropping the future.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            for (signal, stream) in &mut self.streams {
                if let Poll::Ready(Some(())) = stream.poll_recv(cx) {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
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
