//! Why a server casts no vote, or has not looked at a request, in words.

use std::time::Duration;

use crate::node::clock_window::apart;
pub(super) use crate::node::redis::replies::digits;
use crate::node::{Failure, FailureKind, Marker, Members};
use quorlock_protocol::{Carries, Untimely};

/// Why a server with this marker casts no vote for clients of the set `ours`, where one that has just been found to
/// have forgotten something casts none for `quiet`.
pub(super) fn casts_no_vote(
    marker: &Marker,
    ours: &Members,
    quiet: Duration,
    prefix: &[u8],
) -> Failure {
    let prefix = prefix.escape_ascii().to_string();
    let carries = marker.carries(ours);
    let left = marker.quiet(ours, quiet);
    let why = match carries {
        Carries::Another => {
            return Failure::new(FailureKind::OtherSet, marker.of_another_set(ours));
        }
        Carries::Formed { .. } => RESTARTED.to_owned(),
        Carries::Nothing if marker.restarted => RESTARTED.to_owned(),
        Carries::Nothing => without_mark(&prefix),
        Carries::Forming { due: false } => forming(&prefix),
        // Another member is waited for, and nobody knows how long.
        Carries::Forming { due: true } => WAITS.to_owned(),
        Carries::Closed { .. } => REPLACED.to_owned(),
    };
    Failure::quarantined(left, matches!(carries, Carries::Formed { .. }), &why)
}

const RESTARTED: &str = "started again or emptied, and locks may be forgotten; wait, and the votes come back by themselves";
const WAITS: &str = "no node of a set that forms votes before all of them are there; see that the others can \
                     be reached";
const REPLACED: &str = "the old set of nodes is being replaced by this one; run the change again: quorlock nodes \
                        add, remove or replace";

/// A prefix without a mark cannot be told from one whose keys were removed, even if the server votes for others.
fn without_mark(prefix: &str) -> String {
    if prefix.is_empty() {
        return "no mark is there: new, or emptied and locks may be forgotten; wait, or run quorlock init if all \
                nodes are new"
            .to_owned();
    }
    format!(
        "no mark is there for the prefix {prefix}: the prefix is new, or its keys were removed and locks may be \
         forgotten; wait, or run quorlock init --prefix {prefix} if nobody has used it"
    )
}

fn forming(prefix: &str) -> String {
    if prefix.is_empty() {
        return "the set of nodes is new, or too many of them were started or emptied and may have forgotten \
                locks; wait, or run quorlock init if no lock was ever taken on them"
            .to_owned();
    }
    format!(
        "the prefix {prefix} is new on these nodes, or too many of them may have forgotten its locks; wait, or run \
         quorlock init --prefix {prefix} if nobody has used it"
    )
}

/// The server's time was too far from the time of sending.
pub(super) fn clock(
    server_us: &[u8],
    sent_us: u64,
    now_us: u64,
    ahead: Duration,
) -> Option<Failure> {
    let untimely = Untimely::of(digits(server_us)?, sent_us, now_us, ahead);
    if let Untimely::Late(late) = untimely {
        let text = format!("the request was under way for {late:.1?}, too long to be looked at");
        return Some(Failure::new(FailureKind::Late, text));
    }
    apart(untimely)
}
