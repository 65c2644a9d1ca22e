//! What is looked at alike on all servers that are nodes: whether one votes, by its marker, and its clock.

use std::time::{Duration, SystemTime};

use super::{Examination, MARKER, shown};
use crate::node::{Marker, MarkerState, Members};
use quorlock_protocol::Carries;

/// A clock that differs by more than this is not kept by anybody.
const CLOCK_TOLERANCE: Duration = Duration::from_millis(100);

const KEEP_TIME: &str = "let a daemon such as chrony keep the clocks of all machines";

/// Whether the server votes, by its marker. One that has just been found to have forgotten something casts no vote
/// for `quarantine`.
pub(crate) fn diagnose_marker(
    examination: &mut Examination,
    marker: &Marker,
    ours: &Members,
    (trusting, prefix): (bool, &[u8]),
    quarantine: Duration,
) {
    const CHECK: &str = MARKER;
    let of = match marker.state {
        MarkerState::Absent | MarkerState::Blank => "none",
        MarkerState::Unknown => "unknown",
        _ if marker.restarted => "of another start",
        _ => "of this start",
    };
    examination.text("marker", of);
    if let Some(members) = &marker.members {
        examination.text("members", members.to_string());
        examination.number("max_ttl_ms", members.max_ttl().as_millis());
        examination.number("clock_ahead_ms", members.clock_ahead().as_millis());
    }
    let carries = marker.carries(ours);
    let is_new = matches!(marker.state, MarkerState::Absent | MarkerState::Blank);
    let left = match carries {
        Carries::Nothing if is_new && trusting => Duration::ZERO,
        _ => marker.quiet(ours, quarantine),
    };
    examination.number("quarantine_ms", left.as_millis());
    let left = shown(left);
    match carries {
        Carries::Formed { due: true } => examination.ok(CHECK, "it is marked, and votes"),
        Carries::Nothing if is_new && trusting => examination.warn(
            CHECK,
            "it has no mark, and is taken for a new one all the same; if it was emptied, two may hold \
             one lock",
            "unset QUORLOCK_TRUST_NEW_NODES, which is for tests, and run quorlock init once",
        ),
        Carries::Nothing if is_new => {
            examination.waits_for_contact = true;
            let (text, init) = match prefix {
                [] => (
                    "it has no mark: it is new, or was emptied and may have forgotten locks".to_owned(),
                    String::new(),
                ),
                prefix => (
                    format!(
                        "it has no mark for the prefix {0}: the prefix is new, or its keys were removed and \
                         locks may be forgotten",
                        prefix.escape_ascii()
                    ),
                    format!(" --prefix {}", prefix.escape_ascii()),
                ),
            };
            let remedy = format!(
                "wait, and it votes by itself, or run quorlock init{init} if no lock was ever taken there"
            );
            examination.refuse(CHECK, text, &remedy);
        }
        Carries::Closed { .. } => examination.refuse(
            CHECK,
            "its set of nodes is being replaced by this one, which does not vote yet",
            "run the change again: quorlock nodes add, remove or replace",
        ),
        Carries::Nothing => {
            examination.waits_for_contact = true;
            examination.refuse(
                CHECK,
                "it was restarted, and may have forgotten locks",
                "wait, and it votes again by itself; quorlock init --force only if no client believes in \
                 any lock",
            );
        }
        Carries::Formed { .. } => examination.refuse(
            CHECK,
            format!(
                "it casts no vote for another {left}: it was started or emptied, and may have \
                 forgotten locks"
            ),
            "wait, and it votes again by itself",
        ),
        Carries::Forming { .. } => examination.refuse(
            CHECK,
            format!(
                "its set of nodes is new, or all of them have forgotten locks: it votes in {left} if all \
                 of them are there then"
            ),
            "wait, and see that all nodes can be reached",
        ),
        Carries::Another => {
            let text = marker.of_another_set(ours);
            let (text, remedy) = text.rsplit_once("; ").unwrap_or((&text, ""));
            examination.refuse("set", format!("it {text}"), remedy);
        }
    }
}

/// The server's clock, and ours at the same moment, as far as a round trip lets that be known.
pub(crate) fn diagnose_clock(
    examination: &mut Examination,
    (server, ours): (SystemTime, SystemTime),
    round_trip: Duration,
    window: Option<(Duration, Duration)>,
) {
    const CHECK: &str = "clock";
    let (ahead, off) = match server.duration_since(ours) {
        Ok(ahead) => (true, ahead),
        Err(error) => (false, error.duration()),
    };
    let micros = i64::try_from(off.as_micros()).unwrap_or(i64::MAX);
    examination.number("clock_offset_us", if ahead { micros } else { -micros });
    // Nobody knows on which of the two ways the time was spent.
    let uncertainty = round_trip / 2;
    examination.number("clock_uncertainty_us", uncertainty.as_micros());
    let side = if ahead { "ahead of" } else { "behind" };
    let text = format!("its clock is {} {side} that of this machine", shown(off));
    let allowed =
        window.map(|(most_behind, most_ahead)| if ahead { most_ahead } else { most_behind });
    if let Some(allowed) = allowed
        && off > allowed.saturating_add(uncertainty)
    {
        let text = format!("{text}, and may be {}: it casts no vote", shown(allowed));
        examination.refuse(CHECK, text, KEEP_TIME);
    } else if let Some(allowed) = allowed
        && off > allowed / 2 + uncertainty
    {
        let text = format!("{text}; from {} on it casts no vote", shown(allowed));
        examination.warn(CHECK, text, KEEP_TIME);
    } else if allowed.is_none() && off > CLOCK_TOLERANCE + uncertainty {
        let remedy =
            format!("{KEEP_TIME}: one that is set right by a jump ends locks early or late");
        examination.warn(CHECK, text, &remedy);
    } else {
        examination.ok(
            CHECK,
            format!("its clock is within {} of this machine's", shown(off + uncertainty)),
        );
    }
}
