//! The marker of a server: which set of nodes it belongs to, by which of its starts, and from when on it votes.
//! In Redis `dialect/lua/strict/record.lua` compares it, and `dialect/lua/mark.lua` writes it; in PostgreSQL
//! `sql/rules.sql` and `sql/mark.sql`.
//!
//! ```text
//!   STATE RUN_ID DIGEST FROM_US NONCE CLOSED_FOR MAX_TTL_US AHEAD_US NAME,NAME,…
//! ```
//!
//! `FROM_US` has 16 digits. A set that was replaced stands as `CLOSED_FOR`, by its digest, a colon and the number of
//! its members, with the set that took its place in the other fields; `-` stands for no set.

use std::borrow::Cow;
use std::time::Duration;

use crate::node::{ClosedFor, Mark, Marker, MarkerState, Members, Writes};
use crate::text::harmless;

const NONE: &str = "-";
/// What no marker is.
const GONE: &[u8] = b"-";

/// Longer than any marker.
const MOST_CHARS: usize = 32 * 1_024;

/// How the marker of a server begins that votes for these members, if it is of this start of it.
pub(super) fn of_a_voter(run_id: &str, members: &Members) -> String {
    format!("formed {run_id} {} ", members.digest())
}

/// What the marker says of the start `run_id` of a server, at `now_us` by its own clock.
pub(super) fn read(text: &[u8], run_id: &str, now_us: u64) -> Marker {
    let instance = instance(text, run_id);
    if text.is_empty() {
        return Marker::without_set(instance, MarkerState::Absent);
    }
    match parse(text, run_id, now_us) {
        Some(marker) => Marker { instance, ..marker },
        None => Marker::without_set(instance, MarkerState::Unknown),
    }
}

/// A marker as it was seen on one start of a server: another start may have the same text from an old file.
fn instance(text: &[u8], run_id: &str) -> Vec<u8> {
    [run_id.as_bytes(), b" ", text].concat()
}

/// Whether a marker was written with this nonce.
pub(super) fn is_by(marker: &Marker, nonce: u64) -> bool {
    let nonce = format!("{nonce:016x}");
    marker.instance.split(|byte| *byte == b' ').any(|part| part == nonce.as_bytes())
}

/// The text of an instance, if it was seen on this start of the server.
fn text_of<'a>(instance: &'a [u8], run_id: &str) -> Option<&'a [u8]> {
    instance.strip_prefix(run_id.as_bytes())?.strip_prefix(b" ")
}

fn parse(text: &[u8], run_id: &str, now_us: u64) -> Option<Marker> {
    let text = std::str::from_utf8(text).ok()?;
    // The names in it are shown to people. Those that clients write are plain text.
    if matches!(harmless(text, MOST_CHARS), Cow::Owned(_)) {
        return None;
    }
    let parts: Vec<&str> = text.split(' ').collect();
    let [state, run, digest, from_us, _nonce, closed_for, max_ttl_us, ahead_us, names] =
        parts.as_slice()
    else {
        return None;
    };
    let state = match *state {
        "blank" => MarkerState::Blank,
        "forming" => MarkerState::Forming,
        "formed" => MarkerState::Formed,
        "closed" => MarkerState::Closed,
        _ => return None,
    };
    if state == MarkerState::Blank {
        return Some(Marker::without_set(Vec::new(), state));
    }
    let micros = |digits: &str| digits.parse().ok().map(Duration::from_micros);
    let names = names.split(',').map(str::to_owned);
    let members = Members::new(names, micros(max_ttl_us)?, micros(ahead_us)?);
    if members.digest() != *digest {
        return None;
    }
    Some(Marker {
        instance: Vec::new(),
        state,
        members: Some(members),
        closed_for: closed_set(closed_for),
        restarted: *run != run_id,
        left: micros(from_us)?.saturating_sub(Duration::from_micros(now_us)),
    })
}

fn closed_set(text: &str) -> Option<ClosedFor> {
    let (digest, members) = text.split_once(':')?;
    Some(ClosedFor { digest: digest.to_owned(), members: members.parse().ok()? })
}

/// What a mark looks like on a server.
pub(super) struct Written<'a> {
    /// What it replaces.
    pub(super) seen: &'a [u8],
    /// Up to the moment from which on it counts.
    pub(super) head: String,
    /// When it counts: after so many microseconds from now; 0 if at once.
    pub(super) after_us: u128,
    /// What follows.
    pub(super) tail: String,
}

/// The marker of the start `run_id` that `mark` asks for. What was seen on another start is not there any more.
/// `quiet` is for how long a server that may have forgotten something casts no vote, if no lock may last for longer
/// than `max_ttl`.
pub(super) fn write<'a>(
    mark: &'a Mark,
    run_id: &str,
    quiet: Duration,
    max_ttl: Duration,
) -> Written<'a> {
    let seen = text_of(&mark.seen, run_id).unwrap_or(GONE);
    let state = match mark.writes {
        Writes::Blank => "blank",
        Writes::Forming(_) => "forming",
        Writes::Formed(_) | Writes::TakenBack(_) => "formed",
        Writes::Closed { .. } => "closed",
    };
    let closed_for = match &mark.writes {
        Writes::Closed { closed_for: ClosedFor { digest, members }, .. } => {
            format!("{digest}:{members}")
        }
        _ => NONE.to_owned(),
    };
    let waits = matches!(mark.writes, Writes::Forming(_) | Writes::TakenBack(_));
    let after = if waits { quarantine(seen, quiet, max_ttl) } else { Duration::ZERO };
    let (digest, set) = match mark.writes.members() {
        None => (NONE, format!("0 0 {NONE}")),
        Some(members) => {
            let (max_ttl, ahead) =
                (members.max_ttl().as_micros(), members.clock_ahead().as_micros());
            (members.digest(), format!("{max_ttl} {ahead} {}", members.names().join(",")))
        }
    };
    Written {
        seen,
        head: format!("{state} {run_id} {digest} "),
        after_us: after.as_micros(),
        tail: format!(" {:016x} {closed_for} {set}", mark.nonce),
    }
}

/// For how long a server with the marker `seen` casts no vote when it is taken into a set: clients of an
/// earlier one may have been granted locks that last longer than ours may.
fn quarantine(seen: &[u8], quiet: Duration, max_ttl: Duration) -> Duration {
    let before = parse(seen, "", 0).and_then(|marker| marker.members);
    let longer = before.map_or(Duration::ZERO, |members| members.max_ttl().saturating_sub(max_ttl));
    quiet.saturating_add(longer)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_TTL: Duration = Duration::from_secs(30);
    const QUIET: Duration = Duration::from_millis(30_500);

    fn members(max_ttl: u64) -> Members {
        let names = ["b:1", "a:1"].map(str::to_owned);
        Members::new(names, Duration::from_secs(max_ttl), Duration::from_millis(300))
    }

    fn text(writes: Writes, seen: &[u8], now_us: u128) -> String {
        let mark = Mark { seen: instance(seen, "ab"), writes, nonce: 7 };
        let Written { head, after_us, tail, .. } = write(&mark, "ab", QUIET, MAX_TTL);
        let from_us = if after_us == 0 { 0 } else { now_us + after_us };
        format!("{head}{from_us:016}{tail}")
    }

    #[test]
    fn what_is_written_is_read_again() {
        let ours = members(30);
        let formed = text(Writes::Formed(ours.clone()), b"", 5);
        let digest = ours.digest();
        assert_eq!(
            formed,
            format!(
                "formed ab {digest} 0000000000000000 0000000000000007 - 30000000 300000 a:1,b:1"
            )
        );
        assert!(formed.starts_with(&of_a_voter("ab", &ours)));
        let marker = read(formed.as_bytes(), "ab", 9);
        assert_eq!(marker.members.as_ref(), Some(&ours));
        assert_eq!((marker.state, marker.restarted), (MarkerState::Formed, false));
        assert_eq!(marker.left, Duration::ZERO);
        // It names this very marker on this very start.
        let seen_by = |run_id| {
            let mark = Mark { seen: marker.instance.clone(), writes: Writes::Blank, nonce: 7 };
            write(&mark, run_id, QUIET, MAX_TTL).seen.to_vec()
        };
        assert_eq!((seen_by("ab").as_slice(), seen_by("cd").as_slice()), (formed.as_bytes(), GONE));
        assert!(read(formed.as_bytes(), "cd", 9).restarted);
        assert!(is_by(&marker, 7) && !is_by(&marker, 8) && !is_by(&read(b"", "ab", 0), 7));

        let back = text(Writes::TakenBack(ours.clone()), b"", 1_000_000);
        let marker = read(back.as_bytes(), "ab", 2_000_000);
        assert_eq!(
            (marker.state, marker.left),
            (MarkerState::Formed, Duration::from_millis(29_500))
        );
        let forming = text(Writes::Forming(ours.clone()), b"", 1_000_000);
        let marker = read(forming.as_bytes(), "ab", 2_000_000);
        assert_eq!(
            (marker.state, marker.left),
            (MarkerState::Forming, Duration::from_millis(29_500))
        );

        let closed_for = ClosedFor { digest: "0123456789abcdef".to_owned(), members: 3 };
        let writes = Writes::Closed { closed_for: closed_for.clone(), successor: ours };
        let marker = read(text(writes, b"", 0).as_bytes(), "ab", 0);
        assert_eq!((marker.state, marker.closed_for), (MarkerState::Closed, Some(closed_for)));
        assert_eq!(read(b"", "ab", 0).state, MarkerState::Absent);
        let blank = text(Writes::Blank, b"", 0);
        assert_eq!(read(blank.as_bytes(), "ab", 0).state, MarkerState::Blank);
    }

    #[test]
    fn a_longer_lease_from_before_is_waited_out() {
        let longer = text(Writes::Formed(members(90)), b"", 0);
        let shorter = text(Writes::Formed(members(5)), b"", 0);
        let wait = |seen: &str| quarantine(seen.as_bytes(), QUIET, MAX_TTL);
        assert_eq!(wait(""), Duration::from_millis(30_500));
        assert_eq!(wait(&longer), Duration::from_millis(90_500));
        assert_eq!(wait(&shorter), Duration::from_millis(30_500));
    }

    #[test]
    fn what_cannot_be_read_belongs_to_nobody() {
        let good = text(Writes::Formed(members(30)), b"", 0);
        for strange in [
            "x".to_owned(),
            good.replace("formed", "former"),
            good.replace("a:1", "c:1"),
            good.replace(" 30000000 ", " 31000000 "),
            format!("{good} x"),
        ] {
            let marker = read(strange.as_bytes(), "ab", 0);
            assert_eq!(marker.state, MarkerState::Unknown, "{strange}");
        }
        assert_eq!(read(b"\xff", "ab", 0).state, MarkerState::Unknown);
        // All is right with it, but for what its names would do to a terminal.
        for (name, state) in [
            ("a:1", MarkerState::Formed),
            ("a\x1b[2J:1", MarkerState::Unknown),
            ("a\u{202e}:1", MarkerState::Unknown),
            (&*"a".repeat(MOST_CHARS), MarkerState::Unknown),
        ] {
            let ahead = Duration::from_millis(300);
            let members = Members::new([name.to_owned()], Duration::from_secs(30), ahead);
            let marker = text(Writes::Formed(members), b"", 0);
            assert_eq!(read(marker.as_bytes(), "ab", 0).state, state, "{name:?}");
        }
    }
}
