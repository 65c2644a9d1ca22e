//! What is checked, and what has to come of it.

use crate::check::{FENCES_GROW, ONE_HOLDER};
use crate::setup::{Bounds, FENCES_PER_TICK, Variant};

/// One version of the protocol, within bounds that show something of it.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// What it is called.
    pub name: &'static str,
    /// Which version.
    pub variant: Variant,
    /// How far to go.
    pub bounds: Bounds,
    /// What has to come of it.
    pub expected: Expected,
}

/// What has to come of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// All properties hold.
    Holds,
    /// This property does not.
    Breaks(&'static str),
}

/// All cases: those in which the protocol holds, then each rule left out. `full` goes further with
/// the former, as far as some five minutes on two processors allow.
#[must_use]
pub fn all(full: bool) -> Vec<Case> {
    let mut all = holding(full);
    all.extend(WRONG);
    all
}

fn holding(full: bool) -> Vec<Case> {
    let holds = |name, variant, small, large| Case {
        name,
        variant,
        bounds: if full { large } else { small },
        expected: Expected::Holds,
    };
    let strict = |name, small, large| holds(name, Variant::Strict, small, large);
    let plain = Bounds::PLAIN;
    let faulty = Bounds { faults: 1, emptied: true, restored: true, ..plain };
    vec![
        strict(
            "fences",
            Bounds { ticks: 2, rounds: 3, ..plain },
            Bounds { ticks: 3, rounds: 4, ..plain },
        ),
        strict(
            "requests of earlier rounds",
            Bounds { ticks: 2, strays: 1, ..faulty },
            Bounds { ticks: 3, rounds: 3, strays: 1, restored: false, ..faulty },
        ),
        strict(
            "nodes that forget",
            Bounds { ticks: 3, ..faulty },
            Bounds { ticks: 3, rounds: 3, syncs: 1, ..faulty },
        ),
        strict(
            "nodes that forget twice",
            Bounds { ticks: 3, faults: 2, restored: false, ..faulty },
            Bounds { ticks: 4, rounds: 3, faults: 2, restored: false, ..faulty },
        ),
        strict(
            "extending and healing",
            Bounds { ticks: 2, extensions: 1, syncs: 1, ..faulty },
            Bounds { ticks: 4, extensions: 2, faults: 2, ..faulty },
        ),
        strict(
            "winning back",
            Bounds { ticks: 2, extensions: 1, wins_back: true, restored: false, ..faulty },
            Bounds { ticks: 4, extensions: 2, wins_back: true, ..faulty },
        ),
        strict(
            "asking again",
            Bounds { ticks: 2, asks: 1, ..plain },
            Bounds { ticks: 3, asks: 1, extensions: 1, eager: FENCES_PER_TICK, ..faulty },
        ),
        strict(
            "clocks that jump",
            Bounds { validity: 1, behind: 1, ahead: 1, ..plain },
            Bounds { ticks: 4, behind: 1, ahead: 1, extensions: 1, restored: false, ..faulty },
        ),
        strict(
            "passing on",
            Bounds { ticks: 2, grants: true, ..plain },
            Bounds { ticks: 2, grants: true, asks: 1, syncs: 1, ..faulty },
        ),
        // As the protocol was first written. It holds where no request outlives the connection that
        // it was made for, which is so when servers restart, and not when they are flushed.
        holds(
            "quarantine from any request, where connections end",
            Variant::QuarantineFromAnyRequest,
            Bounds {
                ticks: 2,
                rounds: 3,
                connections_end: true,
                restored: false,
                losses: false,
                ..faulty
            },
            Bounds { ticks: 3, rounds: 3, syncs: 1, connections_end: true, ..faulty },
        ),
    ]
}

/// Bounds that are as small as they can be for a rule to be missed.
const DIRECTED: Bounds = Bounds { ticks: 0, faults: 1, ..Bounds::PLAIN };

/// A client has the lock on all nodes, no answer is lost, and votes for requests of different times
/// may have the same fence: the clock that proposals follow may be set back.
const HELD: Bounds = Bounds {
    ticks: 3,
    extensions: 2,
    asks: 1,
    losses: false,
    held_at_start: true,
    eager: FENCES_PER_TICK,
    ..DIRECTED
};

const WRONG: [Case; 15] = [
    Case {
        name: "confirm without the owner check",
        variant: Variant::ConfirmWithoutOwner,
        bounds: Bounds { rounds: 3, faults: 0, ..DIRECTED },
        expected: Expected::Breaks(FENCES_GROW),
    },
    Case {
        name: "marker by presence",
        variant: Variant::MarkerByPresence,
        bounds: Bounds { restored: true, ..DIRECTED },
        expected: Expected::Breaks(ONE_HOLDER),
    },
    Case {
        name: "no quarantine",
        variant: Variant::NoQuarantine,
        bounds: Bounds { emptied: true, ..DIRECTED },
        expected: Expected::Breaks(ONE_HOLDER),
    },
    Case {
        name: "unguarded heal",
        variant: Variant::UnguardedHeal,
        bounds: Bounds { emptied: true, ..HELD },
        expected: Expected::Breaks(ONE_HOLDER),
    },
    Case {
        name: "late extension",
        variant: Variant::LateExtension,
        bounds: Bounds { ticks: 2, extensions: 1, asks: 0, eager: 0, restored: true, ..HELD },
        expected: Expected::Breaks(ONE_HOLDER),
    },
    Case {
        name: "extension without a look at the marker",
        variant: Variant::ExtendIgnoresMarker,
        bounds: Bounds { restored: true, ..HELD },
        expected: Expected::Breaks(ONE_HOLDER),
    },
    Case {
        name: "quarantine from any request",
        variant: Variant::QuarantineFromAnyRequest,
        bounds: Bounds { ticks: 2, rounds: 3, emptied: true, losses: false, ..DIRECTED },
        expected: Expected::Breaks(ONE_HOLDER),
    },
    Case {
        name: "late vote that confirms",
        variant: Variant::LateVoteConfirms,
        bounds: Bounds { ticks: 2, asks: 1, faults: 0, ..DIRECTED },
        expected: Expected::Breaks(FENCES_GROW),
    },
    Case {
        name: "deadline from any votes",
        variant: Variant::DeadlineFromAnyVotes,
        bounds: Bounds { ticks: 2, asks: 1, faults: 0, ..DIRECTED },
        expected: Expected::Breaks(FENCES_GROW),
    },
    Case {
        name: "margin of twice the smaller clock error",
        variant: Variant::ShortMargin,
        bounds: Bounds { ticks: 2, validity: 1, ahead: 1, faults: 0, ..DIRECTED },
        expected: Expected::Breaks(ONE_HOLDER),
    },
    Case {
        name: "expired record dropped before the clock check",
        variant: Variant::DropBeforeClockCheck,
        bounds: Bounds { rounds: 3, faults: 0, losses: false, ..DIRECTED },
        expected: Expected::Breaks(ONE_HOLDER),
    },
    Case {
        name: "grant from the node's clock alone",
        variant: Variant::GrantFromClockAlone,
        bounds: Bounds { ticks: 2, rounds: 3, faults: 0, grants: true, losses: false, ..DIRECTED },
        expected: Expected::Breaks(ONE_HOLDER),
    },
    Case {
        name: "winning back in quarantine",
        variant: Variant::WinBackInQuarantine,
        bounds: Bounds { emptied: true, wins_back: true, ..HELD },
        expected: Expected::Breaks(ONE_HOLDER),
    },
    Case {
        name: "winning back what is another's",
        variant: Variant::WinBackFromAnother,
        bounds: Bounds { wins_back: true, emptied: true, ..HELD },
        expected: Expected::Breaks(ONE_HOLDER),
    },
    Case {
        name: "grant in quarantine",
        variant: Variant::GrantInQuarantine,
        bounds: Bounds {
            ticks: 1,
            rounds: 3,
            grants: true,
            restored: true,
            syncs: 1,
            losses: false,
            ..DIRECTED
        },
        expected: Expected::Breaks(ONE_HOLDER),
    },
];
