//! The rounds against a naive reading of their rules: N from 1 to 9, votes in any order, at any
//! time, said twice, or said after the decision.

use std::time::Duration;

use proptest::prelude::*;
use quorlock_protocol::{
    Acquire, AcquireOutcome, Defeat, Drift, Extend, ExtendOutcome, HolderFence, Moment, NodeSet,
    Quorum, Release, ReleaseOutcome, Terms, Vote,
};

/// A vote, the node it comes from, and how long after the sending it arrives.
type Ballot = (usize, Vote, u64);

fn vote() -> impl Strategy<Value = Vote> {
    prop_oneof![
        3 => Just(Vote::Yes),
        2 => Just(Vote::No),
        1 => Just(Vote::NotSent),
        1 => Just(Vote::Apart),
        1 => Just(Vote::Silent),
        1 => Just(Vote::Unknown),
    ]
}

/// Ballots in the order in which they arrive; nodes may vote several times, or not at all, and one
/// index may be that of no node.
fn ballots(nodes: usize) -> impl Strategy<Value = Vec<Ballot>> {
    prop::collection::vec((0..=nodes, vote(), 0..200u64), 0..30).prop_map(|mut ballots| {
        ballots.sort_by_key(|(_, _, at_ms)| *at_ms);
        ballots
    })
}

fn terms(ttl_ms: u64) -> Terms {
    Terms {
        ttl: Duration::from_millis(ttl_ms),
        drift: Drift { base: Duration::from_millis(2), per_mille: 100 },
        margin: Duration::ZERO,
    }
}

const SENT: Moment = Moment::from_nanos(1_000_000_000_000);

fn at(ms: u64) -> Moment {
    SENT.after(Duration::from_millis(ms))
}

/// The vote that counts for each node after the given ballots.
fn cast(nodes: usize, ballots: &[Ballot]) -> Vec<Option<Vote>> {
    let mut cast = vec![None; nodes];
    for &(node, vote, _) in ballots.iter().filter(|ballot| ballot.0 < nodes) {
        if matches!(cast[node], None | Some(Vote::Silent)) {
            cast[node] = Some(vote);
        }
    }
    cast
}

fn count(cast: &[Option<Vote>], vote: Vote) -> usize {
    cast.iter().filter(|vote_cast| **vote_cast == Some(vote)).count()
}

fn others(cast: &[Option<Vote>]) -> usize {
    cast.iter().flatten().filter(|vote| **vote != Vote::Yes).count()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_acquisition_is_decided_once_at_the_first_moment_it_can_be(
        (nodes, ballots) in (1..=9usize).prop_flat_map(|n| (Just(n), ballots(n))),
        ttl_ms in 10..200u64,
        least_ms in 0..50u64,
    ) {
        let quorum = Quorum::of(nodes).unwrap();
        let terms = terms(ttl_ms);
        let least = Duration::from_millis(least_ms);
        let mut round = Acquire::new(quorum, &terms, SENT, least);
        let mut decided = None;
        for (index, &(node, vote, at_ms)) in ballots.iter().enumerate() {
            let outcome = round.vote(node, vote, || at(at_ms));
            let cast = cast(nodes, &ballots[..=index]);
            let yes = count(&cast, Vote::Yes);
            if decided.is_some() {
                prop_assert_eq!(outcome, None, "decided twice");
                continue;
            }
            let in_time = at(at_ms) < terms.valid_until(SENT).before(least);
            match outcome {
                Some(AcquireOutcome::Won { valid_until, .. }) => {
                    prop_assert!(yes >= quorum.enough() && in_time);
                    prop_assert_eq!(valid_until, terms.valid_until(SENT));
                }
                Some(AcquireOutcome::Lost(Defeat::TooLate)) => {
                    prop_assert!(yes >= quorum.enough() && !in_time);
                }
                Some(AcquireOutcome::Lost(defeat)) => {
                    prop_assert!(yes < quorum.enough());
                    prop_assert!(others(&cast) > nodes - quorum.enough());
                    prop_assert_eq!(
                        defeat == Defeat::Taken,
                        count(&cast, Vote::No) >= quorum.enough()
                    );
                }
                None => {
                    prop_assert!(yes < quorum.enough(), "won and not said");
                    prop_assert!(others(&cast) <= nodes - quorum.enough(), "lost and not said");
                }
            }
            decided = outcome;
        }
        prop_assert_eq!(round.outcome(), decided);
        // Whatever was decided, the tally knows every node that may hold a record of ours.
        let cast = cast(nodes, &ballots);
        for (node, vote) in cast.iter().enumerate() {
            let cannot = matches!(vote, Some(Vote::No | Vote::Apart | Vote::NotSent));
            prop_assert_eq!(round.tally().may_have_run().contains(node), !cannot);
        }
    }

    #[test]
    fn nodes_that_grant_a_name_once_never_let_two_win(
        owners in prop::collection::vec(0..3usize, 1..=9),
        order in any::<prop::sample::Index>(),
    ) {
        let quorum = Quorum::of(owners.len()).unwrap();
        let winners = (0..2).filter(|client| {
            let mut round = Acquire::new(quorum, &terms(1_000), SENT, Duration::ZERO);
            let start = order.index(owners.len());
            for step in 0..owners.len() {
                let node = (start + step) % owners.len();
                let vote = if owners[node] == *client { Vote::Yes } else { Vote::No };
                round.vote(node, vote, || at(1));
            }
            matches!(round.outcome(), Some(AcquireOutcome::Won { .. }))
        });
        prop_assert!(winners.count() <= 1);
    }

    #[test]
    fn an_extension_counts_only_before_the_old_deadline_and_never_shortens(
        (nodes, ballots) in (1..=9usize).prop_flat_map(|n| (Just(n), ballots(n))),
        ttl_ms in 10..200u64,
        old_ms in 0..200u64,
        stands_on in proptest::collection::vec(any::<bool>(), 9),
    ) {
        let quorum = Quorum::of(nodes).unwrap();
        let old = at(old_ms);
        let mut backing = NodeSet::EMPTY;
        (0..nodes).filter(|node| stands_on[*node]).for_each(|node| backing.insert(node));
        let mut round = Extend::new(quorum, &terms(ttl_ms), SENT, old, backing);
        let mut last = None;
        for (index, &(node, vote, at_ms)) in ballots.iter().enumerate() {
            let now = at(at_ms);
            let cast = cast(nodes, &ballots[..=index]);
            let (yes, no) = (count(&cast, Vote::Yes), count(&cast, Vote::No));
            let apart = count(&cast, Vote::Apart);
            let those = |vote: Option<Vote>| {
                (0..nodes).filter(|node| backing.contains(*node) && cast[*node] == vote).count()
            };
            let taken_away = those(Some(Vote::No)) > 0;
            let unheard = those(None) > 0;
            let kept = those(Some(Vote::Yes));
            let left = backing.len() - those(Some(Vote::No));
            let refused = no >= quorum.enough() || taken_away && left < quorum.enough();
            let outcome = round.vote(node, vote, now);
            match outcome {
                Some(ExtendOutcome::Renewed { valid_until }) => {
                    prop_assert!(now < old && yes >= quorum.enough());
                    let won_back = kept < quorum.enough();
                    prop_assert!(!won_back || !taken_away && !unheard, "it was taken away");
                    prop_assert!(valid_until >= old);
                    prop_assert!(valid_until <= terms(ttl_ms).valid_until(SENT).max(old));
                }
                Some(ExtendOutcome::Lost) => prop_assert!(now >= old || refused),
                Some(ExtendOutcome::Apart) => prop_assert!(apart >= quorum.enough()),
                Some(ExtendOutcome::Unknown) => {
                    prop_assert!(apart < quorum.enough());
                    prop_assert!(now < old && !refused);
                    prop_assert!(yes < quorum.enough() || taken_away);
                    let all_heard = cast.iter().all(Option::is_some);
                    prop_assert!(others(&cast) > nodes - quorum.enough() || all_heard);
                }
                None => {}
            }
            if last.is_some_and(|last| last != ExtendOutcome::Unknown) {
                prop_assert_eq!(outcome, None, "a final outcome was changed");
            }
            if cast.iter().all(Option::is_some) {
                prop_assert!(round.outcome().is_some(), "all have spoken and nothing is decided");
            }
            last = round.outcome();
        }
    }

    /// Three nodes, and a lease that stands on the first two: somebody has taken the second one away.
    #[test]
    fn a_lock_that_was_taken_away_is_not_won_back(order in Just([0, 1, 2]).prop_shuffle()) {
        let quorum = Quorum::of(3).unwrap();
        let with = |second: Vote| {
            let backing = NodeSet::first(2);
            let mut round = Extend::new(quorum, &terms(100), SENT, at(80), backing);
            for node in order {
                round.vote(node, [Vote::Yes, second, Vote::Yes][node], at(10));
            }
            round.outcome()
        };
        prop_assert_eq!(with(Vote::No), Some(ExtendOutcome::Lost));
        let mut third = NodeSet::EMPTY;
        third.insert(2);
        let backing = NodeSet::first(2);
        let mut heard = Extend::new(quorum, &terms(100), SENT, at(80), backing);
        heard.stands_on(third);
        for node in order {
            heard.vote(node, [Vote::Yes, Vote::No, Vote::Yes][node], at(10));
        }
        let is_kept = matches!(heard.outcome(), Some(ExtendOutcome::Renewed { .. }));
        prop_assert!(is_kept, "the third was heard of meanwhile");
        let renewed = Some(ExtendOutcome::Renewed { valid_until: terms(100).valid_until(SENT) });
        for away in [Vote::Yes, Vote::Silent, Vote::NotSent, Vote::Unknown, Vote::Apart] {
            prop_assert_eq!(with(away), renewed, "{:?}", away);
        }
    }

    #[test]
    fn a_late_answer_still_renews_in_time(nodes in 1..=9usize) {
        let quorum = Quorum::of(nodes).unwrap();
        let mut round = Extend::new(quorum, &terms(100), SENT, at(80), NodeSet::EMPTY);
        for node in 0..nodes {
            round.vote(node, Vote::Silent, at(10));
        }
        prop_assert_eq!(round.outcome(), Some(ExtendOutcome::Unknown));
        let late = (0..nodes).filter_map(|node| round.vote(node, Vote::Yes, at(79))).count();
        prop_assert_eq!(late, 1);
        let renewed = matches!(round.outcome(), Some(ExtendOutcome::Renewed { .. }));
        prop_assert!(renewed);
    }

    #[test]
    fn late_answers_do_not_end_what_a_later_extension_has_renewed(nodes in 1..=9usize) {
        let quorum = Quorum::of(nodes).unwrap();
        let mut round = Extend::new(quorum, &terms(100), SENT, at(80), NodeSet::EMPTY);
        for node in 0..nodes {
            round.vote(node, Vote::Silent, at(10));
        }
        round.outlived(at(150));
        let ends = (0..nodes).filter_map(|node| round.vote(node, Vote::Unknown, at(149))).count();
        prop_assert_eq!((ends, round.outcome()), (0, Some(ExtendOutcome::Unknown)));
        let mut late = Extend::new(quorum, &terms(100), SENT, at(80), NodeSet::EMPTY);
        late.outlived(at(150));
        for node in 0..nodes {
            late.vote(node, Vote::Yes, at(149));
        }
        let renewed = ExtendOutcome::Renewed { valid_until: at(150) };
        prop_assert_eq!(late.outcome(), Some(renewed), "it never shortens");
    }

    #[test]
    fn a_release_says_what_a_count_of_the_answers_says(
        (nodes, ballots) in (1..=9usize).prop_flat_map(|n| (Just(n), ballots(n))),
    ) {
        let quorum = Quorum::of(nodes).unwrap();
        let mut round = Release::new(quorum);
        let mut decided = None;
        for (index, &(node, vote, _)) in ballots.iter().enumerate() {
            let outcome = round.vote(node, vote);
            let cast = cast(nodes, &ballots[..=index]);
            if decided.is_some() {
                prop_assert_eq!(outcome, None);
                continue;
            }
            let yes = count(&cast, Vote::Yes);
            let held_at_most = nodes - count(&cast, Vote::No);
            let expected = if yes >= quorum.enough() {
                Some(ReleaseOutcome::Released)
            } else if held_at_most < quorum.enough() {
                Some(ReleaseOutcome::AlreadyLost)
            } else if cast.iter().all(Option::is_some) {
                Some(ReleaseOutcome::Partial)
            } else {
                None
            };
            prop_assert_eq!(outcome, expected);
            decided = outcome;
        }
    }
}

#[test]
fn giving_up_ends_a_round_once_and_later_grants_do_not_win_it() {
    let quorum = Quorum::of(3).unwrap();
    let mut round = Acquire::new(quorum, &terms(100), SENT, Duration::ZERO);
    assert_eq!(round.abandon(), Some(AcquireOutcome::Lost(Defeat::Abandoned)));
    assert_eq!(round.abandon(), None);
    for node in 0..3 {
        assert_eq!(round.vote(node, Vote::Yes, || at(1)), None);
    }
    assert_eq!(round.outcome(), Some(AcquireOutcome::Lost(Defeat::Abandoned)));
    assert_eq!(round.tally().yes().len(), 3);
    assert_eq!(round.sent(), SENT);
}

/// The vote that decides, of those that are cast one after the other.
fn acquired(nodes: usize, votes: &[(Vote, u64)]) -> Option<AcquireOutcome> {
    let quorum = Quorum::of(nodes).expect("a few nodes");
    let mut round = Acquire::new(quorum, &terms(100), SENT, Duration::ZERO);
    for (node, &(vote, fence)) in votes.iter().enumerate() {
        if vote == Vote::Yes {
            round.fence_given(fence);
        }
        round.vote(node, vote, || at(1));
    }
    round.outcome()
}

#[test]
fn a_win_has_the_highest_number_that_was_given_out_and_says_whether_a_majority_gave_it() {
    for (fences, last, agreed) in [([7, 7], 7, true), ([7, 9], 9, false), ([9, 7], 9, false)] {
        let fence = HolderFence { last, agreed };
        let valid_until = terms(100).valid_until(SENT);
        let won = acquired(3, &fences.map(|fence| (Vote::Yes, fence)));
        assert_eq!(won, Some(AcquireOutcome::Won { valid_until, fence }), "{fences:?}");
    }
}

/// A caller that is told that the lock is taken waits for its holder; after a split there need not be one.
#[test]
fn a_defeat_says_whether_somebody_has_it() {
    use Vote::{No, Unknown, Yes};
    for (nodes, votes, defeat) in [
        (3, &[No, No][..], Defeat::Taken),
        (4, &[No, No], Defeat::Split),
        (3, &[Yes, No, Unknown], Defeat::Split),
        (3, &[No, Unknown], Defeat::Unreachable),
        (3, &[Yes, Unknown, Unknown], Defeat::Unreachable),
    ] {
        let votes: Vec<_> = votes.iter().map(|vote| (*vote, 1)).collect();
        let lost = Some(AcquireOutcome::Lost(defeat));
        assert_eq!(acquired(nodes, &votes), lost, "{nodes}: {votes:?}");
    }
}

#[test]
fn a_release_remembers_how_it_ended() {
    let mut round = Release::new(Quorum::of(3).expect("a few nodes"));
    assert_eq!(round.outcome(), None);
    round.vote(0, Vote::Yes);
    assert_eq!(round.outcome(), None);
    round.vote(1, Vote::Yes);
    assert_eq!(round.outcome(), Some(ReleaseOutcome::Released));
    round.vote(2, Vote::No);
    assert_eq!(round.outcome(), Some(ReleaseOutcome::Released), "later answers change nothing");
}

/// One that ends in the moment in which it is won, or has no more left than was asked for, is none.
#[test]
fn a_win_has_more_left_than_the_least_to_the_nanosecond() {
    let (quorum, terms, nanosecond) =
        (Quorum::of(1).unwrap(), terms(1_000), Duration::from_nanos(1));
    for least in [Duration::ZERO, Duration::from_millis(10)] {
        let last = terms.valid_until(SENT).before(least);
        let outcome = |now| Acquire::new(quorum, &terms, SENT, least).vote(0, Vote::Yes, || now);
        assert_eq!(outcome(last), Some(AcquireOutcome::Lost(Defeat::TooLate)), "{least:?}");
        let won = outcome(last.before(nanosecond));
        assert!(matches!(won, Some(AcquireOutcome::Won { .. })), "{least:?}");
    }
}
