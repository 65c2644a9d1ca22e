//! What is checked: a version of the rules, some sets, and how far to go.

use crate::setup::Question;

/// How many nodes there are, at most.
pub(crate) const NODES: usize = 5;

/// How many sets there are, at most.
pub(crate) const SETS: usize = 3;

/// How many changes there are, at most.
pub(crate) const CHANGES: usize = 2;

/// A length of time, in ticks.
pub(crate) type Age = u8;

/// The longest time for which a request lives.
pub(crate) const LIFE: usize = 2;

/// The rules, and what happens when one of them is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// As they are meant.
    Rules,
    /// A set forms when a majority of its members carries it.
    FormsByMajority,
    /// A set is formed as soon as every member carries it.
    FormsAtOnce,
    /// A member is taken back when one other member carries the set as formed.
    TakenBackByOne,
    /// An empty node is taken into a set whether or not any other member carries it.
    JoinsByItself,
    /// A set that forms takes in nodes that carry another set as formed.
    TakesOpenNodes,
    /// A write does not name the instance of the marker that was read.
    UnnamedInstance,
    /// A write names the marker that was read, but not the run of the server, so that it also finds a
    /// marker that came back from disk.
    UnnamedRun,
    /// A client acts on what it read, however long ago that was.
    OldViews,
    /// A closed node extends the leases of its old set, until it carries the new one.
    ClosedNodesExtend,
    /// A node extends the leases of its old set, until the new one has formed.
    FormingNodesExtend,
    /// A set takes in closed nodes though no majority of the old set was closed in its favour.
    UnchosenChange,
    /// An operator closes nodes without a look at the other members.
    UngroundedChange,
    /// An operator closes members that carry no set, too.
    ClosesBlankNodes,
    /// A set takes in nodes that were closed in favour of any set, if not against itself.
    TakesAnyClosedNode,
}

/// How far a check goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The sets that clients are configured with, as bits: node a is the lowest.
    pub sets: &'static [u8],
    /// What operators change, as positions in `sets`: from, to.
    pub changes: &'static [(u8, u8)],
    /// Whether the first set is formed at the start; otherwise all nodes are new.
    pub formed_at_start: bool,
    /// How often nodes forget, all together.
    pub faults: u8,
    /// They may lose their marker.
    pub emptied: bool,
    /// They may restart with any marker that they have had.
    pub restored: bool,
    /// For how many ticks what was read may be acted on: from a client's first read to the moment at
    /// which a node does what the client has concluded from it.
    pub life: Age,
    /// For how many ticks a node does not vote, and a set forms.
    pub quarantine: Age,
}

impl Bounds {
    /// A set of three, of which one member is replaced. What was read is acted on for less than half a
    /// quarantine.
    pub const REPLACE: Self = Self {
        sets: &[0b0111, 0b1011],
        changes: &[(0, 1)],
        formed_at_start: true,
        faults: 1,
        emptied: true,
        restored: true,
        life: 1,
        quarantine: 3,
    };

    /// A set of three that gets a fourth member.
    pub const ADD: Self = Self { sets: &[0b0111, 0b1111], ..Self::REPLACE };

    /// A set of three that loses one.
    pub const REMOVE: Self = Self { sets: &[0b111, 0b011], ..Self::REPLACE };

    /// A set of one that gets a second member.
    pub const GROW: Self = Self { sets: &[0b01, 0b11], ..Self::REPLACE };
}

/// A version of the rules, within bounds.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Which version.
    pub variant: Variant,
    /// How far.
    pub bounds: Bounds,
    /// What for.
    pub question: Question,
}

impl Setup {
    /// The members of a set.
    pub(crate) fn members(&self, set: u8) -> impl Iterator<Item = usize> + use<> {
        let bits = self.bounds.sets[usize::from(set)];
        (0..NODES).filter(move |node| bits & (1 << node) != 0)
    }

    /// How many members a set has.
    pub(crate) fn size(&self, set: u8) -> usize {
        self.bounds.sets[usize::from(set)].count_ones() as usize
    }

    /// How many of them are a majority.
    pub(crate) fn majority(&self, set: u8) -> usize {
        self.size(set) / 2 + 1
    }

    /// All sets, by index.
    pub(crate) fn sets(&self) -> impl Iterator<Item = u8> + use<> {
        0..u8::try_from(self.bounds.sets.len()).expect("there are few sets")
    }

    /// The set that the changes lead to.
    pub(crate) fn last(&self) -> u8 {
        self.sets().last().expect("there are sets")
    }

    /// The sets that `node` is a member of.
    pub(crate) fn profile(&self, node: usize) -> u8 {
        self.sets()
            .filter(|set| self.bounds.sets[usize::from(*set)] & (1 << node) != 0)
            .fold(0, |bits, set| bits | 1 << set)
    }
}
