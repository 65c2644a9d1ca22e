//! What is shown at a terminal, or logged elsewhere, while a lock is waited for.
//!
//! ```text
//!   | 12.4s waiting for the lock nightly, held by anna@web-3, pid 4711, backup.sh, lease 8.3s, 2 waiting
//! ```
//!
//! The lease is what is left of it unless it is renewed, and the process that shows this is among
//! those that wait. While too many nodes cast no vote, since they may have forgotten some, that is shown instead.

use std::convert::Infallible;
use std::ffi::OsStr;
use std::future::pending;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use quorlock::{Locker, Status, Verdict};
use tokio::time::sleep;

use crate::duration::shown;
use crate::note;
use crate::stderr;

/// Nothing is shown if it takes no longer than this, and then something new so often.
const BEFORE_SHOWN: Duration = Duration::from_millis(300);
const SHOWN_EVERY: Duration = Duration::from_millis(100);
/// It is logged so often: not more, for looking costs the nodes something, and waiting nothing.
const LOGGED_EVERY: Duration = Duration::from_secs(60);
/// The nodes are asked for the holder once in so many rounds of the spinner.
const ROUNDS: usize = 3;

/// Shows it, if somebody may look at a terminal, or logs it, if that is asked for (`QUORLOCK_LOG=info`). Never ends:
/// the caller that drops it calls [`stderr::hide`].
pub(crate) async fn show(locker: &Locker, name: &OsStr, since: Instant) -> Infallible {
    sleep(BEFORE_SHOWN).await;
    if stderr::shows_lines() {
        spin(locker, name, since).await
    } else if tracing::enabled!(tracing::Level::INFO) {
        log(locker, name, since).await
    } else {
        pending().await
    }
}

async fn spin(locker: &Locker, name: &OsStr, since: Instant) -> Infallible {
    let shown_name = note::printable(&name.to_string_lossy());
    loop {
        let status = locker.inspect(name.as_bytes()).await.ok();
        let looked = Instant::now();
        for spinner in ["|", "/", "-", "\\"].repeat(ROUNDS) {
            let waited = shown(since.elapsed());
            let known = status.as_ref().map(|status| known(status, looked.elapsed()));
            let known = known.unwrap_or_default();
            stderr::show(format!("{spinner} {waited} waiting for the lock {shown_name}{known}"));
            sleep(SHOWN_EVERY).await;
        }
    }
}

async fn log(locker: &Locker, name: &OsStr, since: Instant) -> Infallible {
    let name = name.as_bytes();
    let mut still = String::new();
    loop {
        if let Ok(status) = locker.inspect(name).await {
            let (name, known) = (&status.name, known(&status, Duration::ZERO));
            tracing::info!(lock = %name, "waiting for the lock {name}{still}{known}");
        }
        sleep(LOGGED_EVERY).await;
        still = format!(", for {} so far", shown(since.elapsed()));
    }
}

/// What is known of the lock, by a look so long ago.
fn known(status: &Status, ago: Duration) -> String {
    if let Some(left) = status.quarantine() {
        return format!(", no votes for another {}", shown(left.saturating_sub(ago)));
    }
    let holder = match (status.verdict(), status.note()) {
        (Verdict::Held(_), Some(note)) => format!(", held by {}", note::shown(note)),
        (Verdict::Held(holder), None) => format!(", held by {holder}"),
        (Verdict::Unknown, _) => return ", but too few nodes answer".to_owned(),
        _ => return String::new(),
    };
    let lease =
        status.remaining().map(|left| format!(", lease {}", shown(left.saturating_sub(ago))));
    let waiting = status.waiters().map(|count| format!(", {count} waiting"));
    format!("{holder}{}{}", lease.unwrap_or_default(), waiting.unwrap_or_default())
}
