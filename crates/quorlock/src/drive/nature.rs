//! What is so of a claim from its beginning to its end.

/// A bit each, since every lock that is held has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Nature(u8);

impl Nature {
    /// A majority of the nodes agreed on its fence at once.
    pub(super) const AGREED: Self = Self(1);
    /// Another process has taken it, and this one takes part in it.
    pub(super) const BORROWED: Self = Self(1 << 1);
    /// The watchdog extends it.
    pub(super) const RENEWED: Self = Self(1 << 2);
    /// Other processes were waiting for it when it was granted.
    pub(super) const WANTED: Self = Self(1 << 3);
    /// The next holder of this process may have it.
    pub(super) const PASSABLE: Self = Self(1 << 4);
    /// Its holder says something of itself.
    pub(super) const NOTED: Self = Self(1 << 5);

    /// All of these that are so.
    pub(super) fn of(all: impl IntoIterator<Item = (Self, bool)>) -> Self {
        let so = all.into_iter().filter(|(_, so)| *so);
        so.fold(Self(0), |nature, (one, _)| Self(nature.0 | one.0))
    }

    pub(super) const fn is(self, one: Self) -> bool {
        self.0 & one.0 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_told_from_the_others() {
        let all = [
            Nature::AGREED,
            Nature::BORROWED,
            Nature::RENEWED,
            Nature::WANTED,
            Nature::PASSABLE,
            Nature::NOTED,
        ];
        for one in all {
            let nature = Nature::of(all.map(|each| (each, each == one)));
            assert_eq!(all.map(|each| nature.is(each)), all.map(|each| each == one));
        }
        assert!(all.iter().all(|each| Nature::of(all.map(|one| (one, true))).is(*each)));
        assert!(!all.iter().any(|each| Nature::of([]).is(*each)));
    }
}
