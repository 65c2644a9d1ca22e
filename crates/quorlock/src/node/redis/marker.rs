//! The marker of a server: which start of it casts votes, and from when on. `lua/strict.lua` keeps it.

use std::time::Duration;

use crate::settings::Settings;

/// Beside the locks, where no lock can be: no name is empty.
const KEY: &[u8] = b":quorlock:node";

/// The key of the marker.
pub(super) fn key(settings: &Settings) -> Vec<u8> {
    [&settings.prefix, KEY].concat()
}

/// How a server stands by its marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has no marker: it is new, or was emptied.
    Unmarked,
    /// Its marker is of another start: it may have forgotten what it granted.
    OtherStart,
    /// It serves clients with this longest TTL, which is not ours.
    OtherMaxTtl(Duration),
    /// It casts no vote for so long.
    Quiet(Duration),
    /// It votes.
    Voting,
}

/// How the start `run_id` of a server stands at `now_us` by its own clock.
pub(super) fn standing(marker: &[u8], run_id: &str, max_ttl: Duration, now_us: u64) -> Standing {
    if marker.is_empty() {
        return Standing::Unmarked;
    }
    let Some((run, marked_us, from_us)) = parts(marker) else { return Standing::OtherStart };
    if run != run_id {
        Standing::OtherStart
    } else if Duration::from_micros(marked_us) != max_ttl {
        Standing::OtherMaxTtl(Duration::from_micros(marked_us))
    } else if from_us > now_us {
        Standing::Quiet(Duration::from_micros(from_us - now_us))
    } else {
        Standing::Voting
    }
}

/// The longest TTL that a marker is for.
pub(super) fn max_ttl(marker: &[u8]) -> Option<Duration> {
    parts(marker).map(|(_, max_ttl_us, _)| Duration::from_micros(max_ttl_us))
}

/// The marker of a start that votes at once.
pub(super) fn of_a_new_server(run_id: &str, max_ttl: Duration) -> String {
    format!("{run_id} {} 0", max_ttl.as_micros())
}

fn parts(marker: &[u8]) -> Option<(&str, u64, u64)> {
    let mut parts = std::str::from_utf8(marker).ok()?.split(' ');
    let found = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_votes_by_its_own_marker_alone() {
        let second = Duration::from_secs(1);
        let of = |marker: &str| standing(marker.as_bytes(), "ab", second, 500);
        assert_eq!(of(""), Standing::Unmarked);
        assert_eq!(of("ab 1000000 0"), Standing::Voting);
        assert_eq!(of("ab 1000000 500"), Standing::Voting);
        assert_eq!(of("ab 1000000 501"), Standing::Quiet(Duration::from_micros(1)));
        assert_eq!(of("cd 1000000 0"), Standing::OtherStart);
        assert_eq!(of("ab 2000000 0"), Standing::OtherMaxTtl(2 * second));
        for strange in ["ab", "ab 1000000", "ab x 0", "ab 1000000 0 0", "\u{fffd}"] {
            assert_eq!(of(strange), Standing::OtherStart, "{strange:?}");
        }
        assert_eq!(of(&of_a_new_server("ab", second)), Standing::Voting);
        assert_eq!(max_ttl(b"cd 2000000 0"), Some(2 * second));
    }
}
