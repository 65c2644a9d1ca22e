//! How often a record may change hands inside of one process.

/// The turns that holders of one process may take on one record, without asking the nodes.
///
/// They are reserved with the acquisition: a lock with fences takes as many fences
/// from the nodes at once, and the holder of turn *n* has the *n*-th of them. A holder that takes the lock
/// from the nodes later has a higher one than all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turns {
    taken: u16,
    most: u16,
    reserved: u16,
}

impl Turns {
    /// The first of `most` turns.
    #[must_use]
    pub const fn first_of(most: u16) -> Self {
        Self { taken: 0, most, reserved: most }
    }

    /// Allows no more than `most` in all.
    pub const fn limit(&mut self, most: u16) {
        if most < self.most {
            self.most = most;
        }
    }

    /// The present turn, counted from zero.
    #[must_use]
    pub const fn current(self) -> u16 {
        self.taken
    }

    /// How many turns are reserved after this one.
    #[must_use]
    pub const fn left(self) -> u16 {
        self.reserved.saturating_sub(self.taken).saturating_sub(1)
    }

    /// The next turn, unless others have waited long enough.
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        let taken = self.taken.saturating_add(1);
        if taken < self.most { Some(Self { taken, ..self }) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_turns_as_were_reserved_and_each_has_a_fence_of_its_own() {
        let mut turns = Turns::first_of(3);
        let mut seen = std::vec![turns.current()];
        while let Some(next) = turns.next() {
            turns = next;
            seen.push(turns.current());
        }
        assert_eq!(seen, [0, 1, 2]);
        assert_eq!(Turns::first_of(1).next(), None);
        assert_eq!(Turns::first_of(0).next(), None);
        let mut limited = Turns::first_of(3);
        limited.limit(5);
        assert!(limited.next().is_some());
        assert_eq!(limited.left(), 2);
        limited.limit(1);
        assert_eq!(limited.left(), 2, "they stay reserved");
        assert_eq!(limited.next(), None);
    }
}
