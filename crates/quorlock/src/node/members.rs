//! Which set of nodes a node belongs to: what clients agree on, and what a node says of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{Carries, Quorum};

/// A set of nodes, as all of its clients have to agree on it.
///
/// Two lists that differ can have majorities without a common node. So each node carries one set, by its
/// [`digest`](Self::digest), and serves the clients of that one alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Members {
    /// In order, so that the same nodes make the same set however they are listed.
    names: Arc<[String]>,
    max_ttl: Duration,
    clock_ahead: Duration,
    digest: Arc<str>,
}

impl Members {
    /// The set of the nodes with these names, for clients with this longest TTL and this allowance for
    /// clocks that are ahead.
    #[must_use]
    pub fn new(
        names: impl IntoIterator<Item = String>,
        max_ttl: Duration,
        clock_ahead: Duration,
    ) -> Self {
        let mut names: Vec<_> = names.into_iter().collect();
        names.sort_unstable();
        let text =
            format!("{} {} {}", max_ttl.as_micros(), clock_ahead.as_micros(), names.join(","));
        let mut digest = sha1_smol::Sha1::from(text).digest().to_string();
        digest.truncate(16);
        Self { names: names.into(), max_ttl, clock_ahead, digest: digest.into() }
    }

    /// The names of its nodes, in order.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The longest TTL that any of its clients may use.
    #[must_use]
    pub fn max_ttl(&self) -> Duration {
        self.max_ttl
    }

    /// How far a node's clock may be ahead of a client's.
    #[must_use]
    pub fn clock_ahead(&self) -> Duration {
        self.clock_ahead
    }

    pub(crate) fn quorum(&self) -> Quorum {
        Quorum::of(self.names.len()).unwrap_or(Quorum::ONE)
    }

    fn settings(&self) -> String {
        let Self { max_ttl, clock_ahead, .. } = self;
        format!("a max_ttl of {max_ttl:?} and clocks that are at most {clock_ahead:?} ahead")
    }

    /// What tells this set from others, in 16 hexadecimal digits.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }
}

impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names.join(", "))
    }
}

/// What a node says of the set that it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marker {
    /// This very marker, on this very start of the node: a [`Mark`] names what it replaces.
    pub instance: Vec<u8>,
    /// How it carries its set.
    pub state: MarkerState,
    /// The set that it carries, or that replaced the one it was closed for. `None` if it carries none.
    pub members: Option<Members>,
    /// If it is closed: the set that it does not serve any more.
    pub closed_for: Option<ClosedFor>,
    /// Whether an earlier start of the node wrote it: the node may have forgotten what came after.
    pub restarted: bool,
    /// For how long it does not count yet.
    pub left: Duration,
}

/// A set that was replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedFor {
    /// Its digest.
    pub digest: String,
    /// How many members it has.
    pub members: usize,
}

impl ClosedFor {
    pub(crate) fn of(members: &Members) -> Self {
        Self { digest: members.digest().to_owned(), members: members.names().len() }
    }

    /// What a node of that set carries, seen from the set that replaces it.
    pub(crate) fn in_favour_of_another(&self) -> Carries {
        // Of 16 hexadecimal digits, or from somebody else's hand.
        let set = u64::from_str_radix(&self.digest, 16).unwrap_or_default();
        Carries::Closed { set, of: self.members }
    }
}

/// How a node carries a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MarkerState {
    /// There is no marker: the node is new, or was emptied.
    Absent,
    /// The same, and from now on it would be noticed if it was emptied again.
    Blank,
    /// The set has not formed yet.
    Forming,
    /// The set has formed.
    Formed,
    /// The set was replaced by another one, and is not served any more.
    Closed,
    /// It cannot be read.
    Unknown,
}

impl Marker {
    /// A marker without a set.
    #[must_use]
    pub fn without_set(instance: Vec<u8>, state: MarkerState) -> Self {
        let left = Duration::ZERO;
        Self { instance, state, members: None, closed_for: None, restarted: false, left }
    }

    /// How the node carries the set `ours`.
    #[must_use]
    pub fn carries(&self, ours: &Members) -> Carries {
        let is_ours = self.members.as_ref().is_some_and(|members| members.digest == ours.digest);
        let due = self.left.is_zero();
        match self.state {
            MarkerState::Absent | MarkerState::Blank => Carries::Nothing,
            MarkerState::Forming | MarkerState::Formed if !is_ours => Carries::Another,
            MarkerState::Forming | MarkerState::Formed if self.restarted => Carries::Nothing,
            MarkerState::Forming => Carries::Forming { due },
            MarkerState::Formed => Carries::Formed { due },
            MarkerState::Closed if is_ours => {
                self.closed_for.as_ref().map_or(Carries::Another, ClosedFor::in_favour_of_another)
            }
            MarkerState::Closed | MarkerState::Unknown => Carries::Another,
        }
    }
}

impl Marker {
    /// For how long the node casts no vote for clients of `ours`, where one that has just been found to have
    /// forgotten something casts none for `quiet`. Zero if it votes, or if nobody knows.
    #[must_use]
    pub fn quiet(&self, ours: &Members, quiet: Duration) -> Duration {
        match self.carries(ours) {
            Carries::Nothing | Carries::Closed { .. } => quiet,
            Carries::Forming { .. } | Carries::Formed { .. } => self.left,
            Carries::Another => Duration::ZERO,
        }
    }

    /// Whether the set `ours` was replaced.
    pub(crate) fn is_closed_for(&self, ours: &Members) -> bool {
        self.closed_for.as_ref().is_some_and(|closed| closed.digest == ours.digest())
    }

    /// Why the node serves no clients of the set `ours`, with both lists.
    pub(crate) fn of_another_set(&self, ours: &Members) -> String {
        match (&self.members, self.state) {
            (Some(theirs), MarkerState::Closed) if self.is_closed_for(ours) => {
                format!(
                    "the set of nodes {ours} was replaced by {theirs}; give this client the new list"
                )
            }
            (Some(theirs), _) if theirs.names == ours.names => format!(
                "serves clients with {}, and this one has {}; use the same everywhere, or run quorlock \
                 init --force once all clients have the new ones and are stopped",
                theirs.settings(),
                ours.settings()
            ),
            (Some(theirs), _) => format!(
                "belongs to the set of nodes {theirs}, and this client was given {ours}; give all \
                 clients the same list, or change the set with quorlock nodes"
            ),
            (None, _) => "has a marker that this version cannot read; use the same version \
                          everywhere, or if the node is new, run quorlock init --force"
                .to_owned(),
        }
    }
}

/// What is to be written in place of a [`Marker`].
#[derive(Debug, Clone)]
pub struct Mark {
    /// The [instance](Marker::instance) that it replaces. If another one is there, nothing is changed.
    pub seen: Vec<u8>,
    /// What it says from now on.
    pub writes: Writes,
    /// What tells it from every other.
    pub nonce: u64,
}

/// What a [`Mark`] says.
#[derive(Debug, Clone)]
pub enum Writes {
    /// That the node carries no set.
    Blank,
    /// That it carries this set, which has not formed yet. It is due after a quarantine.
    Forming(Members),
    /// That it carries this set, which has formed, and votes.
    Formed(Members),
    /// The same, and that it votes after a quarantine.
    TakenBack(Members),
    /// That it does not serve a set any more, which these members have replaced.
    Closed {
        /// The set that it carried.
        closed_for: ClosedFor,
        /// The one that takes its place.
        successor: Members,
    },
}

impl Writes {
    /// The set that is named.
    #[must_use]
    pub fn members(&self) -> Option<&Members> {
        match self {
            Self::Blank => None,
            Self::Forming(members) | Self::Formed(members) | Self::TakenBack(members) => {
                Some(members)
            }
            Self::Closed { successor, .. } => Some(successor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(names: &[&str]) -> Members {
        let names = names.iter().map(|name| (*name).to_owned());
        Members::new(names, Duration::from_secs(30), Duration::from_millis(300))
    }

    fn marker(state: MarkerState, of: &Members) -> Marker {
        Marker { members: Some(of.clone()), ..Marker::without_set(b"x".to_vec(), state) }
    }

    #[test]
    fn the_same_nodes_make_the_same_set_in_any_order() {
        let (one, two) = (members(&["a:1", "b:1", "c:1"]), members(&["c:1", "a:1", "b:1"]));
        assert_eq!(one, two);
        assert_eq!(one.to_string(), "a:1, b:1, c:1");
        assert_ne!(one.digest(), members(&["a:1", "b:1"]).digest());
        assert_ne!(one.digest(), members(&["a:1", "b:1", "d:1"]).digest());
        let longer =
            Members::new(one.names().to_vec(), Duration::from_secs(31), Duration::from_millis(300));
        let wider =
            Members::new(one.names().to_vec(), Duration::from_secs(30), Duration::from_millis(301));
        assert!(one.digest() != longer.digest() && one.digest() != wider.digest());
        assert_eq!(one.digest().len(), 16);
    }

    #[test]
    fn a_node_carries_one_set_and_is_free_for_it_alone() {
        use MarkerState::{Absent, Blank, Closed, Formed, Forming, Unknown};
        let (ours, theirs) = (members(&["a", "b", "c"]), members(&["a", "b", "d"]));
        assert_eq!(Marker::without_set(Vec::new(), Absent).carries(&ours), Carries::Nothing);
        assert_eq!(Marker::without_set(b"x".to_vec(), Blank).carries(&ours), Carries::Nothing);
        assert_eq!(Marker::without_set(b"x".to_vec(), Unknown).carries(&ours), Carries::Another);
        for (state, carries) in [
            (Forming, Carries::Forming { due: true }),
            (Formed, Carries::Formed { due: true }),
            (Closed, Carries::Closed { set: 0x2a, of: 3 }),
        ] {
            let closed_for = ClosedFor { digest: "000000000000002a".to_owned(), members: 3 };
            let marker = |of| Marker { closed_for: Some(closed_for.clone()), ..marker(state, of) };
            assert_eq!(marker(&ours).carries(&ours), carries, "{state:?}");
            assert_eq!(marker(&theirs).carries(&ours), Carries::Another, "{state:?}");
            let restarted = |of| Marker { restarted: true, ..marker(of) };
            let forgot = if state == Closed { carries } else { Carries::Nothing };
            assert_eq!(restarted(&ours).carries(&ours), forgot, "{state:?}");
            assert_eq!(restarted(&theirs).carries(&ours), Carries::Another, "{state:?}");
        }
        let left = Duration::from_secs(1);
        let early = |state| Marker { left, ..marker(state, &ours) }.carries(&ours);
        assert_eq!(early(Forming), Carries::Forming { due: false });
        assert_eq!(early(Formed), Carries::Formed { due: false });
    }
}
