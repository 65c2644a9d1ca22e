//! One node: its marker, what clients may have read of it, and when it voted.

use super::setup::{Age, CHANGES, LIFE, SETS, Setup, Variant};

/// What a node says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Marker {
    /// It carries no set: it is new, or has lost its marker.
    Blank,
    /// It has restarted with a marker that names this set.
    Restored(u8),
    /// It carries a set that has not formed.
    Forming {
        /// The set.
        set: u8,
        /// For how long, up to the quarantine.
        age: Age,
    },
    /// It carries a set that has formed.
    Formed {
        /// The set.
        set: u8,
        /// For how long, up to the quarantine, from which on it votes.
        age: Age,
    },
    /// It refuses a set in favour of another.
    Closed {
        /// Which it refuses.
        from: u8,
        /// In favour of which.
        to: u8,
    },
}

impl Marker {
    /// Whether the node can be taken into `set`.
    pub(crate) fn free_for(self, setup: &Setup, set: u8) -> bool {
        match self {
            Self::Blank => true,
            Self::Restored(was) => was == set,
            Self::Closed { from, .. } if setup.variant == Variant::TakesAnyClosedNode => {
                from != set
            }
            Self::Closed { to, .. } => to == set,
            Self::Forming { .. } | Self::Formed { .. } => false,
        }
    }

    /// Whether the node carries `set`, which has not formed.
    pub(crate) fn forming(self, set: u8) -> bool {
        matches!(self, Self::Forming { set: its, .. } if its == set)
    }

    /// Whether the node carries `set` as formed.
    pub(crate) fn formed(self, set: u8) -> bool {
        matches!(self, Self::Formed { set: its, .. } if its == set)
    }

    /// Whether the node carries `set`.
    pub(crate) fn carries(self, set: u8) -> bool {
        self.forming(set) || self.formed(set)
    }

    /// Whether the node has carried `set` for a quarantine, or carries it as formed.
    pub(crate) fn ready(self, setup: &Setup, set: u8) -> bool {
        match self {
            Self::Forming { set: its, age } => {
                let waited = age == setup.bounds.quarantine;
                its == set && (waited || setup.variant == Variant::FormsAtOnce)
            }
            _ => self.formed(set),
        }
    }

    /// Which set the node votes for.
    pub(crate) fn votes_for(self, setup: &Setup) -> Option<u8> {
        match self {
            Self::Formed { set, age } if age == setup.bounds.quarantine => Some(set),
            _ => None,
        }
    }

    /// Whether the node extends leases of a set that it does not vote for, as it must not.
    fn extends(self, setup: &Setup, set: u8) -> bool {
        match setup.variant {
            Variant::ClosedNodesExtend => matches!(self, Self::Closed { from, .. } if from == set),
            Variant::FormingNodesExtend => {
                matches!(self, Self::Closed { .. } | Self::Forming { .. })
            }
            _ => false,
        }
    }

    fn grow(&mut self, setup: &Setup) {
        if let Self::Forming { age, .. } | Self::Formed { age, .. } = self {
            *age = setup.bounds.quarantine.min(*age + 1);
        }
    }
}

/// What a marker says to those who read it, as a set of statements: no more than what the rules ask
/// for, so that markers that make no difference are alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Statements(u32);

impl Statements {
    const PER_SET: usize = 7;

    /// It carries the set as formed.
    pub(crate) fn formed(set: u8) -> Self {
        Self::of_set(set, 0)
    }

    /// It can be taken into the set, or carries it.
    pub(crate) fn available(set: u8) -> Self {
        Self::of_set(set, 1)
    }

    /// The same, and it was not closed in favour of the set.
    pub(crate) fn unclosed(set: u8) -> Self {
        Self::of_set(set, 2)
    }

    /// It carries the set.
    pub(crate) fn carries(set: u8) -> Self {
        Self::of_set(set, 3)
    }

    /// It has carried the set for a quarantine, or carries it as formed.
    pub(crate) fn ready(set: u8) -> Self {
        Self::of_set(set, 4)
    }

    /// It can be taken into the set. Of interest to those who do not name what they overwrite, as is
    /// what follows.
    pub(crate) fn free(set: u8) -> Self {
        Self::of_set(set, 5)
    }

    /// It has carried the set for a quarantine, and the set has not formed.
    pub(crate) fn due(set: u8) -> Self {
        Self::of_set(set, 6)
    }

    /// This member of the old set agrees to a change.
    pub(crate) fn ground(change: usize) -> Self {
        Self(1 << (Self::PER_SET * SETS + change))
    }

    /// This member of the old set takes part in a change.
    pub(crate) fn chosen(change: usize) -> Self {
        Self(1 << (Self::PER_SET * SETS + CHANGES + change))
    }

    fn of_set(set: u8, statement: usize) -> Self {
        Self(1 << (Self::PER_SET * usize::from(set) + statement))
    }

    /// All that a marker says.
    fn of(marker: Marker, setup: &Setup) -> Self {
        let mut all = Self::default();
        let mut add = |statement: Self, holds: bool| {
            if holds {
                all.0 |= statement.0;
            }
        };
        let overwrites = matches!(setup.variant, Variant::UnnamedInstance | Variant::UnnamedRun);
        let open =
            setup.variant == Variant::TakesOpenNodes && matches!(marker, Marker::Formed { .. });
        for set in setup.sets() {
            let available = marker.free_for(setup, set) || open || marker.carries(set);
            let closed = matches!(marker, Marker::Closed { .. });
            add(Self::formed(set), marker.formed(set));
            add(Self::available(set), available);
            add(Self::unclosed(set), available && !closed);
            add(Self::carries(set), marker.carries(set));
            add(Self::ready(set), marker.ready(setup, set));
            add(Self::free(set), overwrites && marker.free_for(setup, set));
            add(Self::due(set), overwrites && marker.forming(set) && marker.ready(setup, set));
        }
        for (change, &(from, to)) in setup.bounds.changes.iter().enumerate() {
            let chosen = marker == Marker::Closed { from, to } || marker.carries(to);
            add(Self::chosen(change), chosen);
            add(Self::ground(change), chosen || marker.formed(from));
        }
        all
    }

    fn contain(self, statement: Self) -> bool {
        self.0 & statement.0 != 0
    }
}

/// The markers that a node has had since it was last emptied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Past(u16);

impl Past {
    fn bit(marker: Marker) -> u16 {
        match marker {
            Marker::Blank => 0,
            Marker::Restored(set) | Marker::Forming { set, .. } | Marker::Formed { set, .. } => {
                1 << set
            }
            Marker::Closed { from, to } => 1 << (SETS + SETS * usize::from(from) + usize::from(to)),
        }
    }

    /// What becomes of them in a restart: what is closed is closed, the others name a set.
    pub(crate) fn restored(self, setup: &Setup) -> impl Iterator<Item = Marker> {
        let open = setup.sets().map(Marker::Restored);
        let closed = setup.bounds.changes.iter().map(|&(from, to)| Marker::Closed { from, to });
        open.chain(closed).filter(move |marker| self.0 & Self::bit(*marker) != 0)
    }
}

/// One node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    /// Its marker.
    pub marker: Marker,
    /// What it said so many ticks ago, and has not said since.
    pub said: [Statements; LIFE + 1],
    /// How long ago it last voted for each set, as far as it could, up to the quarantine.
    pub voted: [Age; SETS],
    /// How long ago it cast the last vote that it has forgotten, up to the quarantine.
    pub lost: Age,
    /// The markers that it has had.
    pub past: Past,
}

impl Node {
    /// A node that has always had this marker.
    pub(crate) fn new(setup: &Setup, marker: Marker) -> Self {
        let long_ago = setup.bounds.quarantine;
        let mut node = Self {
            marker,
            said: Default::default(),
            voted: [long_ago; SETS],
            lost: long_ago,
            past: Past(Past::bit(marker)),
        };
        node.settle(setup);
        node
    }

    /// Whether somebody who may still act on it can have read this here.
    pub(crate) fn seen(&self, setup: &Setup, statement: Statements) -> bool {
        let now = Statements::of(self.marker, setup);
        now.contain(statement) || self.said.iter().any(|said| said.contain(statement))
    }

    /// Puts a marker in place of the one that there is.
    pub(crate) fn write(&mut self, setup: &Setup, marker: Marker) {
        self.said[0].0 |= Statements::of(self.marker, setup).0;
        self.marker = marker;
        self.past.0 |= Past::bit(marker);
        self.settle(setup);
    }

    /// Loses its marker, and its votes.
    pub(crate) fn empty(&mut self, setup: &Setup) {
        self.past = Past::default();
        self.restart(setup, Marker::Blank);
    }

    /// Comes back with an earlier marker, and without its votes.
    pub(crate) fn restart(&mut self, setup: &Setup, marker: Marker) {
        self.lost = self.voted.iter().copied().fold(self.lost, Age::min);
        self.write(setup, marker);
    }

    /// Whether it votes while a vote that it has forgotten may still count.
    pub(crate) fn votes_early(&self, setup: &Setup) -> bool {
        self.lost < setup.bounds.quarantine && self.marker.votes_for(setup).is_some()
    }

    /// Grows older by one tick.
    pub(crate) fn grow(&mut self, setup: &Setup) {
        self.said[0].0 |= Statements::of(self.marker, setup).0;
        if setup.variant != Variant::OldViews {
            self.said.rotate_right(1);
            self.said[0] = Statements::default();
            self.said[usize::from(setup.bounds.life) + 1..].fill(Statements::default());
        }
        for age in self.voted.iter_mut().chain([&mut self.lost]) {
            *age = setup.bounds.quarantine.min(*age + 1);
        }
        self.marker.grow(setup);
        self.settle(setup);
    }

    /// Votes as far as it can, and forgets that it has said earlier what it says now.
    fn settle(&mut self, setup: &Setup) {
        for set in setup.sets() {
            let voted = &mut self.voted[usize::from(set)];
            let extended = *voted < self.lost && self.marker.extends(setup, set);
            if extended || self.marker.votes_for(setup) == Some(set) {
                *voted = 0;
            }
        }
        let mut known = Statements::of(self.marker, setup).0;
        for said in &mut self.said {
            said.0 &= !known;
            known |= said.0;
        }
    }
}
