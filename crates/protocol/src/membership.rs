//! Which set of nodes votes: how it comes about, and how a node that has forgotten comes back.
//!
//! Two lists of nodes that differ can have majorities without a common node. So each node carries the one
//! set that it votes for, and a client of another set is refused there.
//!
//! ```text
//!              all members                a whole quarantine later,
//!              are free                   all members still carry it
//!   free ────────────────────▶ forming ────────────────────────────▶ formed: votes
//!    ▲ │                                                               ▲      │
//!    │ └───────────────── a quorum carries it as formed ───────────────┘      │
//!    └────────────────────────── the node forgets ────────────────────────────┘
//! ```
//!
//! Every shortcut through this picture lets two sets vote at once: forming by a majority, or without the
//! quarantine, which outlasts every write that is still under way; and taking a node back by the votes of
//! fewer than a quorum. The model in `crates/model` finds each of them.

use crate::{NodeSet, Quorum};

/// How one node carries the set of nodes that a client was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carries {
    /// It carries no set, or may have forgotten what came after it carried this one.
    Nothing,
    /// It carried another set, and was closed in favour of this one.
    Closed {
        /// What tells that other set from others.
        set: u64,
        /// How many members it has.
        of: usize,
    },
    /// It carries this set, which has not formed yet.
    Forming {
        /// Whether a whole quarantine has passed since.
        due: bool,
    },
    /// It carries this set as one that has formed.
    Formed {
        /// Whether it votes: a whole quarantine has passed since it carries it.
        due: bool,
    },
    /// It carries another set, or was closed for this one.
    Another,
}

/// What brings a set closer to voting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MembershipStep {
    /// These carry it from now on.
    Form,
    /// All members carry it for a whole quarantine: these vote.
    Complete,
    /// A quorum carries it as formed: these carry it again, and vote after a quarantine.
    TakeBack,
}

/// The next step by what is known of each member, and the nodes that have to take it.
///
/// `former` is what is known of nodes that are not in this set, but in one that it replaces. Only a quorum of that,
/// closed in favour of this one, lets it form: two changes of one set at once cannot both have that.
///
/// `None` if there is nothing to do, or nothing can be done: members are not known, or carry another set, or
/// their quarantine is not over.
#[must_use]
pub fn next_membership_step(
    quorum: Quorum,
    members: &[Option<Carries>],
    former: &[Carries],
) -> Option<(MembershipStep, NodeSet)> {
    let those = |is: fn(Carries) -> bool| {
        let mut nodes = NodeSet::EMPTY;
        for (node, _) in members.iter().enumerate().filter(|(_, known)| known.is_some_and(is)) {
            nodes.insert(node);
        }
        nodes
    };
    let formed = those(|carries| matches!(carries, Carries::Formed { .. }));
    let forming = those(|carries| matches!(carries, Carries::Forming { .. }));
    let closed = those(|carries| matches!(carries, Carries::Closed { .. }));
    let free = those(|carries| carries == Carries::Nothing).union(closed);
    let carried = formed.union(forming);
    let found = |step, nodes: NodeSet| (!nodes.is_empty()).then_some((step, nodes));
    if formed.len() >= quorum.enough() {
        return found(MembershipStep::TakeBack, free.union(forming));
    }
    if carried.union(free).len() < quorum.nodes() {
        return None;
    }
    if !free.is_empty() {
        let begins = !carried.is_empty() || closed.is_empty() || is_replaced(members, former);
        return if begins { found(MembershipStep::Form, free) } else { None };
    }
    let due =
        those(|carries| matches!(carries, Carries::Forming { due: true } | Carries::Formed { .. }));
    if due.len() < quorum.nodes() {
        return None;
    }
    found(MembershipStep::Complete, forming)
}

/// Whether a quorum of one set is closed in favour of this one.
fn is_replaced(members: &[Option<Carries>], former: &[Carries]) -> bool {
    let all = || members.iter().flatten().chain(former);
    all().any(|closed| {
        let Carries::Closed { of, .. } = closed else { return false };
        all().filter(|other| *other == closed).count() > of / 2
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Option<Carries> = Some(Carries::Nothing);
    const NEW: Option<Carries> = Some(Carries::Forming { due: false });
    const DUE: Option<Carries> = Some(Carries::Forming { due: true });
    const BACK: Option<Carries> = Some(Carries::Formed { due: false });
    const VOTES: Option<Carries> = Some(Carries::Formed { due: true });
    const OTHER: Option<Carries> = Some(Carries::Another);

    fn step(members: &[Option<Carries>]) -> Option<(MembershipStep, Vec<usize>)> {
        step_beside(members, &[])
    }

    fn step_beside(
        members: &[Option<Carries>],
        former: &[Carries],
    ) -> Option<(MembershipStep, Vec<usize>)> {
        let quorum = Quorum::of(members.len()).expect("a few");
        let (step, nodes) = next_membership_step(quorum, members, former)?;
        Some((step, (0..members.len()).filter(|node| nodes.contains(*node)).collect()))
    }

    #[test]
    fn a_set_forms_by_all_its_members() {
        use MembershipStep::{Complete, Form};
        assert_eq!(step(&[FREE, FREE, FREE]), Some((Form, vec![0, 1, 2])));
        assert_eq!(step(&[FREE, NEW, DUE]), Some((Form, vec![0])));
        assert_eq!(step(&[FREE, FREE, None]), None, "one cannot be asked");
        assert_eq!(step(&[FREE, FREE, OTHER]), None, "one is in another set");
        assert_eq!(step(&[DUE, DUE, NEW]), None, "too early");
        assert_eq!(step(&[DUE, DUE, None]), None);
        assert_eq!(step(&[DUE, DUE, OTHER]), None);
        assert_eq!(step(&[DUE, DUE, DUE]), Some((Complete, vec![0, 1, 2])));
        assert_eq!(step(&[FREE]), Some((Form, vec![0])));
        assert_eq!(step(&[DUE]), Some((Complete, vec![0])));
    }

    #[test]
    fn all_members_but_a_few_forgot() {
        use MembershipStep::{Complete, Form};
        assert_eq!(step(&[VOTES, FREE, FREE]), Some((Form, vec![1, 2])));
        assert_eq!(step(&[VOTES, FREE, None]), None);
        assert_eq!(step(&[VOTES, DUE, DUE]), Some((Complete, vec![1, 2])));
        assert_eq!(step(&[BACK, DUE, DUE]), Some((Complete, vec![1, 2])));
        assert_eq!(step(&[BACK, DUE, NEW]), None);
        assert_eq!(step(&[VOTES, VOTES, FREE, FREE]), Some((Form, vec![2, 3])));
    }

    /// Two changes of one set at once cannot both have a quorum of it.
    #[test]
    fn a_set_follows_another_of_which_a_quorum_is_closed() {
        use MembershipStep::{Form, TakeBack};
        let of_set = |set, of| Carries::Closed { set, of };
        let closed = |of| Some(of_set(1, of));
        assert_eq!(step(&[closed(3), closed(3), FREE]), Some((Form, vec![0, 1, 2])));
        assert_eq!(step(&[closed(3), FREE, FREE]), None, "one of three");
        let with = |set| step_beside(&[closed(3), FREE, FREE], &[of_set(set, 3)]);
        assert_eq!(with(1), Some((Form, vec![0, 1, 2])));
        assert_eq!(with(2), None, "one of three each");
        assert_eq!(step(&[closed(3), NEW, FREE]), Some((Form, vec![0, 2])), "it had begun");
        assert_eq!(step(&[closed(2), FREE]), None, "one of two");
        assert_eq!(step_beside(&[closed(2), FREE], &[of_set(1, 2)]), Some((Form, vec![0, 1])));
        assert_eq!(step(&[closed(1), FREE]), Some((Form, vec![0, 1])));
        assert_eq!(
            step(&[closed(5), closed(5), closed(5), closed(5)]),
            Some((Form, vec![0, 1, 2, 3]))
        );
        assert_eq!(step(&[VOTES, VOTES, closed(3)]), Some((TakeBack, vec![2])));
    }

    #[test]
    fn a_quorum_takes_back_who_forgot() {
        use MembershipStep::TakeBack;
        assert_eq!(step(&[VOTES, VOTES, FREE]), Some((TakeBack, vec![2])));
        assert_eq!(step(&[VOTES, FREE, VOTES, None, VOTES]), Some((TakeBack, vec![1])));
        assert_eq!(step(&[VOTES, DUE, VOTES]), Some((TakeBack, vec![1])));
        assert_eq!(step(&[VOTES, VOTES, OTHER]), None);
        assert_eq!(step(&[VOTES, VOTES, VOTES]), None, "all is well");
    }
}
