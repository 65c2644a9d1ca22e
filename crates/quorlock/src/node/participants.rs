//! Who holds a lock on one node with one token: its maker, and processes that take part in it.

use super::ParticipantId;
use crate::runtime::Moment;

/// So many can hold one lock with each other. The list is part of the record, and read with it.
const MOST: usize = 256;
/// What one of them takes in a file.
#[cfg(feature = "sqlite")]
const BYTES: usize = 16;

/// All who hold it, each until an end of its own. Empty while only its maker does, whose end is that of the
/// record then.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Participants(Vec<Part>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    /// `None` for the maker.
    who: Option<ParticipantId>,
    end: Moment,
}

/// What is left when one of them has let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Left {
    /// It was the last.
    Nobody,
    /// Others, the last of them until then.
    Others(Moment),
    /// All that were there: it was none of them.
    All,
}

impl Participants {
    /// `who` holds it until `end`, and nobody else is known to: the others are listed again with their next
    /// extension.
    pub(crate) fn alone(who: Option<ParticipantId>, end: Moment) -> Self {
        Self(who.map(|_| Part { who, end }).into_iter().collect())
    }

    /// `who` holds it until `end` at least, in a record that lasts until `lasts`. Returns whether there
    /// was room for it, which is always so for the maker and for one that is there.
    pub(crate) fn extend(
        &mut self,
        who: Option<ParticipantId>,
        end: Moment,
        lasts: Moment,
        now: Moment,
    ) -> bool {
        if self.0.is_empty() {
            if who.is_none() {
                return true;
            }
            self.0.push(Part { who: None, end: lasts });
        }
        let before = self.0.iter().find(|part| part.who == who).map(|part| part.end);
        self.0.retain(|part| part.who != who && part.end > now);
        if self.0.len() >= MOST && who.is_some() && before.is_none() {
            return false;
        }
        self.0.push(Part { who, end: before.map_or(end, |before| before.max(end)) });
        true
    }

    /// `who` does not hold it any longer.
    pub(crate) fn leave(&mut self, who: Option<ParticipantId>, now: Moment) -> Left {
        let was_there = self.0.iter().any(|part| part.who == who);
        if who.is_some() && !was_there {
            return Left::All;
        }
        self.0.retain(|part| part.who != who && part.end > now);
        self.0.iter().map(|part| part.end).max().map_or(Left::Nobody, Left::Others)
    }

    /// Whether anybody but the maker holds it.
    pub(crate) fn are_there(&self, now: Moment) -> bool {
        self.0.iter().any(|part| part.who.is_some() && part.end > now)
    }

    /// As it lies in a file. Nobody has the id zero.
    #[cfg(feature = "sqlite")]
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let part = |part: &Part| {
            let id = part.who.map_or(0, |ParticipantId(id)| id);
            [id.to_be_bytes(), part.end.as_nanos().to_be_bytes()].concat()
        };
        self.0.iter().flat_map(part).collect()
    }

    #[cfg(feature = "sqlite")]
    pub(crate) fn read(bytes: &[u8]) -> Self {
        let number = |bytes: &[u8]| bytes.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
        let part = |bytes: &[u8]| {
            let (id, end) = bytes.split_at(BYTES / 2);
            let who = Some(number(id)).filter(|id| *id != 0).map(ParticipantId);
            Part { who, end: Moment::from_nanos(number(end)) }
        };
        Self(bytes.chunks_exact(BYTES).map(part).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Option<ParticipantId> = Some(ParticipantId(1));
    const B: Option<ParticipantId> = Some(ParticipantId(u64::MAX));
    const MAKER: Option<ParticipantId> = None;

    fn at(nanos: u64) -> Moment {
        Moment::from_nanos(nanos)
    }

    fn list(all: &[(Option<ParticipantId>, u64)]) -> Participants {
        let mut list = Participants::default();
        for (who, end) in all {
            assert!(list.extend(*who, at(*end), at(50), at(0)));
        }
        list
    }

    #[test]
    fn the_maker_alone_is_not_listed() {
        assert_eq!(list(&[(MAKER, 9)]), Participants::default());
        assert_eq!(list(&[]).leave(MAKER, at(0)), Left::Nobody);
    }

    #[test]
    fn the_maker_counts_until_the_end_that_the_record_had() {
        let mut both = list(&[(A, 90)]);
        assert!(both.are_there(at(89)) && !both.are_there(at(90)));
        assert_eq!(both.leave(A, at(0)), Left::Others(at(50)));
        assert!(!both.are_there(at(0)));
        assert_eq!(both.leave(MAKER, at(0)), Left::Nobody);
    }

    #[test]
    fn an_end_only_grows_and_whose_end_is_over_does_not_count() {
        let mut three = list(&[(A, 60), (B, 70), (A, 40), (MAKER, 55)]);
        assert_eq!(three.clone().leave(B, at(0)), Left::Others(at(60)));
        assert_eq!(three.clone().leave(B, at(60)), Left::Nobody);
        assert_eq!(three.leave(MAKER, at(0)), Left::Others(at(70)));
    }

    #[test]
    fn a_stranger_changes_nothing() {
        let mut one = list(&[(A, 60)]);
        assert_eq!((one.leave(B, at(0)), one == list(&[(A, 60)])), (Left::All, true));
        assert_eq!(list(&[]).leave(A, at(0)), Left::All);
        // The maker may have let go before, and says so once more.
        assert_eq!(one.leave(MAKER, at(0)), Left::Others(at(60)));
        assert_eq!(one.leave(MAKER, at(0)), Left::Others(at(60)));
    }

    #[test]
    fn there_is_room_again_when_the_dead_are_over() {
        let mut full = Participants::default();
        let join = |full: &mut Participants, id, now| {
            full.extend(Some(ParticipantId(id)), at(100), at(90), at(now))
        };
        let count = (1..).take_while(|id| join(&mut full, *id, 0)).count();
        assert_eq!(count, MOST - 1);
        assert!(!join(&mut full, 1_000, 0) && join(&mut full, 1, 0), "only who is there already");
        assert!(join(&mut full, 1_000, 90), "the maker is over");
        assert!(full.extend(MAKER, at(100), at(100), at(90)), "it is always one of them");
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn a_list_goes_through_a_file() {
        for list in [list(&[]), list(&[(A, 60), (B, 70)])] {
            assert_eq!(Participants::read(&list.bytes()), list);
        }
    }
}
