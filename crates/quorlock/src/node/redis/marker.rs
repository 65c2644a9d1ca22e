//! The marker of a server: which start of it casts votes, for which clients, and from when on.
//! `lua/strict/record.lua` keeps it.

use std::time::Duration;

use crate::settings::Settings;

/// Beside the locks, where no lock can be: no name is empty.
const KEY: &[u8] = b":quorlock:node";

/// The key of the marker.
pub(super) fn key(settings: &Settings) -> Vec<u8> {
    [&settings.prefix, KEY].concat()
}

/// What the clock window takes off the end of each lease.
pub(super) fn clock_margin(settings: &Settings) -> Duration {
    let window = settings.clock_behind.saturating_add(settings.clock_ahead);
    window.saturating_add(settings.clients_apart.saturating_mul(2))
}

/// For how long a server that may have forgotten something casts no vote.
pub(super) fn quiet(settings: &Settings) -> Duration {
    settings.max_ttl.saturating_add(clock_margin(settings))
}

/// What all clients of a server have to agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shared {
    pub(super) max_ttl: Duration,
    pub(super) clock_ahead: Duration,
}

impl Shared {
    pub(super) fn of(settings: &Settings) -> Self {
        Self { max_ttl: settings.max_ttl, clock_ahead: settings.clock_ahead }
    }
}

/// How a server stands by its marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has no marker: it is new, or was emptied.
    Unmarked,
    /// Its marker is of another start: it may have forgotten what it granted.
    OtherStart,
    /// It serves clients with these settings, which are not ours.
    OtherSettings(Shared),
    /// It casts no vote for so long.
    Quiet(Duration),
    /// It votes.
    Voting,
}

/// How the start `run_id` of a server stands at `now_us` by its own clock.
pub(super) fn standing(marker: &[u8], run_id: &str, ours: Shared, now_us: u64) -> Standing {
    if marker.is_empty() || word(marker).is_some() {
        return Standing::Unmarked;
    }
    let Some((run, theirs, from_us)) = parts(marker) else { return Standing::OtherStart };
    if run != run_id {
        Standing::OtherStart
    } else if theirs != ours {
        Standing::OtherSettings(theirs)
    } else if from_us > now_us {
        Standing::Quiet(Duration::from_micros(from_us - now_us))
    } else {
        Standing::Voting
    }
}

/// What the clients of a server with this marker agree on.
pub(super) fn shared(marker: &[u8]) -> Option<Shared> {
    parts(marker).map(|(_, shared, _)| shared)
}

/// The marker of a start that votes at once.
pub(super) fn of_a_new_server(run_id: &str, ours: Shared) -> String {
    format!("{run_id} {} {} 0", ours.max_ttl.as_micros(), ours.clock_ahead.as_micros())
}

/// The word that a server which was emptied wants to hear again, before the time begins in which it casts
/// no vote.
pub(super) fn word(marker: &[u8]) -> Option<&[u8]> {
    let last = marker.rsplit(|byte| *byte == b' ').next()?;
    last.strip_prefix(b"?")
}

fn parts(marker: &[u8]) -> Option<(&str, Shared, u64)> {
    let mut parts = std::str::from_utf8(marker).ok()?.split(' ');
    let run_id = parts.next()?;
    let mut number = || parts.next()?.parse().ok();
    let (max_ttl, clock_ahead) = (number()?, number()?);
    let (max_ttl, clock_ahead) =
        (Duration::from_micros(max_ttl), Duration::from_micros(clock_ahead));
    let from_us = number()?;
    parts.next().is_none().then_some((run_id, Shared { max_ttl, clock_ahead }, from_us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_votes_by_its_own_marker_alone() {
        let (max_ttl, clock_ahead) = (Duration::from_secs(1), Duration::from_millis(1));
        let ours = Shared { max_ttl, clock_ahead };
        let of = |marker: &str| standing(marker.as_bytes(), "ab", ours, 500);
        assert_eq!(of(""), Standing::Unmarked);
        assert_eq!(of("ab 1000000 1000 ?7"), Standing::Unmarked);
        assert_eq!(of("ab 1000000 1000 0"), Standing::Voting);
        assert_eq!(of("ab 1000000 1000 500"), Standing::Voting);
        assert_eq!(of("ab 1000000 1000 501"), Standing::Quiet(Duration::from_micros(1)));
        assert_eq!(of("cd 1000000 1000 0"), Standing::OtherStart);
        let other = Shared { max_ttl: 2 * max_ttl, clock_ahead };
        assert_eq!(of("ab 2000000 1000 0"), Standing::OtherSettings(other));
        let other = Shared { max_ttl, clock_ahead: 2 * clock_ahead };
        assert_eq!(of("ab 1000000 2000 0"), Standing::OtherSettings(other));
        for strange in ["ab", "ab 1000000 1000", "ab x 1000 0", "ab 1000000 1000 0 0", "\u{fffd}"] {
            assert_eq!(of(strange), Standing::OtherStart, "{strange:?}");
        }
        assert_eq!(of(&of_a_new_server("ab", ours)), Standing::Voting);
    }
}
