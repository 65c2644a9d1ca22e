//! The data of a lock's node: its state, and who holds it until when.
//!
//! ```text
//!   quorlock 1
//!   fence 1761…
//!   holder TOKEN
//!   ticket …
//!   hold WHO TTL FLOOR       lasts until TTL µs after this was written, and until FLOOR, by the leader's clock
//! ```
//!
//! When something was written is known only afterwards: the server says it with the data. So a hold that a write sets
//! has a TTL, which counts from that write, and those that it only carries forward have an end.

use std::fmt::Write as _;
use std::time::Duration;

use super::WINDOW;
use crate::node::ParticipantId;
use crate::node::cas::{Hold, HoldChange, State};
use crate::runtime::Moment;

/// The maker of a lock, in the line of its hold.
const MAKER: &str = "maker";
const HOLD: &str = "hold ";
const FENCE: &str = "fence ";

/// How long one of those who hold a lock holds it, as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::node) struct Term {
    who: Option<ParticipantId>,
    /// From when it is written, in microseconds. Zero if that does not count.
    ttl_us: u64,
    /// At the least until then.
    floor_us: u64,
}

impl Term {
    /// When it ends, if it was written then.
    pub(in crate::node) fn end_us(&self, written_us: u64) -> u64 {
        let counted = if self.ttl_us == 0 { 0 } else { written_us.saturating_add(self.ttl_us) };
        counted.max(self.floor_us)
    }

    /// The same as a hold that ends then by this client's clock.
    pub(in crate::node) fn hold(&self, written_us: u64, until: impl Fn(u64) -> Moment) -> Hold {
        let end_us = self.end_us(written_us);
        Hold { who: self.who, kind: 0, until: until(end_us), end_us }
    }
}

/// What a change makes of those who hold a lock.
pub(in crate::node) fn terms(holds: &[Hold], change: HoldChange) -> Vec<Term> {
    let kept = |hold: &Hold| Term { who: hold.who, ttl_us: 0, floor_us: hold.end_us };
    match change {
        HoldChange::Keep => holds.iter().map(kept).collect(),
        HoldChange::Extend { who, ttl } => {
            let (mine, others): (Vec<&Hold>, _) = holds.iter().partition(|hold| hold.who == who);
            let floor_us = mine.iter().map(|hold| hold.end_us).max().unwrap_or(0);
            let mine = Term { who, ttl_us: micros(ttl), floor_us };
            others.into_iter().map(kept).chain([mine]).collect()
        }
        HoldChange::Remove { who } => {
            holds.iter().filter(|hold| hold.who != who).map(kept).collect()
        }
        HoldChange::Replace { ttl, seen_us } => {
            let ttl_us = micros(ttl);
            let floor_us = if seen_us == 0 { 0 } else { seen_us.saturating_add(ttl_us) };
            vec![Term { who: None, ttl_us, floor_us }]
        }
        HoldChange::Clear => Vec::new(),
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

pub(in crate::node) fn encode(state: &State, terms: &[Term]) -> Vec<u8> {
    let mut data = state.encode_timed();
    let mut lines = String::new();
    for Term { who, ttl_us, floor_us } in terms {
        let who = who.map_or_else(|| MAKER.to_owned(), |who| who.to_string());
        // Writing to a string does not fail.
        let _ = writeln!(lines, "{HOLD}{who} {ttl_us} {floor_us}");
    }
    data.extend_from_slice(lines.as_bytes());
    data
}

/// Reads what was written then; `None` if it is something else.
pub(in crate::node) fn decode(data: &[u8], written_us: u64) -> Option<(State, Vec<Term>)> {
    let text = std::str::from_utf8(data).ok()?;
    let (holds, state): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with(HOLD));
    let mut state = State::decode(state.join("\n").as_bytes())?;
    state.set_seen(written_us, WINDOW.ahead);
    let terms: Option<Vec<_>> = holds.into_iter().map(parse_term).collect();
    Some((state, terms?))
}

/// The last fence that was given out, which is no lower than the time of day was then. Zero for none.
pub(super) fn last_fence(data: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(data);
    let fence = text.lines().find_map(|line| line.strip_prefix(FENCE));
    fence.map_or(0, |fence| fence.parse().unwrap_or(u64::MAX))
}

fn parse_term(line: &str) -> Option<Term> {
    let mut words = line.strip_prefix(HOLD)?.split(' ');
    let who = match words.next()? {
        MAKER => None,
        who => Some(ParticipantId(u64::from_str_radix(who, 16).ok()?)),
    };
    let (ttl_us, floor_us) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    words.next().is_none().then_some(Term { who, ttl_us, floor_us })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn hold(who: Option<ParticipantId>, end_us: u64) -> Hold {
        Hold { who, kind: 0, until: Moment::default(), end_us }
    }

    /// Every write replaces the time that the one before was written at.
    #[test]
    fn who_writes_carries_the_ends_of_others_forward() {
        let other = Some(ParticipantId(7));
        let holds = [hold(None, 5_000_000), hold(other, 9_000_000)];
        let ends = |change, written_us| {
            let terms = terms(&holds, change);
            terms.iter().map(|term| (term.who, term.end_us(written_us))).collect::<Vec<_>>()
        };
        let kept = vec![(None, 5_000_000), (other, 9_000_000)];
        assert_eq!(ends(HoldChange::Keep, 8_000_000), kept);
        let extend = HoldChange::Extend { who: None, ttl: SECOND };
        assert_eq!(ends(extend, 8_000_000), [(other, 9_000_000), (None, 9_000_000)]);
        assert_eq!(ends(extend, 2_000_000), [(other, 9_000_000), (None, 5_000_000)], "no shorter");
        assert_eq!(ends(HoldChange::Remove { who: other }, 1), [(None, 5_000_000)]);
        assert_eq!(ends(HoldChange::Clear, 1), []);
    }

    #[test]
    fn a_hold_that_is_passed_on_counts_from_the_later_of_both() {
        let ends = |seen_us, written_us| {
            let terms = terms(&[], HoldChange::Replace { ttl: SECOND, seen_us });
            terms.first().map(|term| term.end_us(written_us))
        };
        assert_eq!(ends(0, 3_000_000), Some(4_000_000));
        assert_eq!(ends(2_000_000, 3_000_000), Some(4_000_000));
        assert_eq!(ends(5_000_000, 3_000_000), Some(6_000_000));
    }

    #[test]
    fn the_last_fence_of_a_lock_is_that_of_its_state() {
        let text = b"quorlock 1\nfence 1761\nnote 5 fence 9\nhold maker 1 2\n";
        let (state, terms) = decode(text, 1).unwrap();
        assert_eq!(last_fence(&encode(&state, &terms)), 1_761);
        assert_eq!(last_fence(&encode(&State::default(), &[])), 0);
        assert_eq!(last_fence(b"quorlock 1\nfence x\n"), u64::MAX, "nobody knows");
    }

    #[test]
    fn what_is_written_is_read() {
        let all = [
            Term { who: None, ttl_us: 1, floor_us: 0 },
            Term { who: Some(ParticipantId(u64::MAX)), ttl_us: 0, floor_us: u64::MAX },
        ];
        let state = State::default();
        let data = encode(&state, &all);
        assert_eq!(decode(&data, 1), Some((state.clone(), all.to_vec())));
        assert_eq!(decode(&encode(&state, &[]), 1), Some((state, Vec::new())));
        for text in ["", "mine", "quorlock 1\nfence 1\nhold x 1 2\n", "quorlock 1\nhold maker 1\n"]
        {
            assert_eq!(decode(text.as_bytes(), 1), None, "{text}");
        }
    }
}
