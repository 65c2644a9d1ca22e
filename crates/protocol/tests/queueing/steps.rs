//! One waiter, step by step.

use std::num::NonZero;
use std::time::Duration;

use quorlock_protocol::{
    Drift, HolderFence, Moment, NodeSet, QueuePlace, Queueing, Quorum, Step, Terms,
};

/// Of which 90 s are believed.
const TERMS: Terms = Terms {
    ttl: Duration::from_secs(100),
    drift: Drift { base: Duration::ZERO, per_mille: 100 },
    margin: Duration::ZERO,
};
const TICKET_NO: u64 = 1_000;

fn at(second: u64) -> Moment {
    Moment::from_nanos((1_000 + second) * 1_000_000_000)
}

fn set(nodes: &[usize]) -> NodeSet {
    let mut set = NodeSet::EMPTY;
    nodes.iter().for_each(|node| set.insert(*node));
    set
}

fn all(nodes: usize) -> NodeSet {
    NodeSet::first(nodes)
}

const fn asks(nodes: NodeSet) -> Step {
    Step::Ask { nodes, yielding: false }
}

const fn yields(nodes: NodeSet) -> Step {
    Step::Ask { nodes, yielding: true }
}

fn won(sent: u64) -> Step {
    Step::Won { valid_until: at(sent + 90), fence: HolderFence { last: 1, agreed: true } }
}

struct Waiter {
    rules: Queueing,
    nodes: usize,
    /// Which nodes were offered what they had granted, and when.
    offers: Vec<(NodeSet, u64)>,
}

impl Waiter {
    fn of(nodes: usize) -> Self {
        let rules = Queueing::new(Quorum::of(nodes).expect("a few nodes"));
        Self { rules, nodes, offers: Vec::new() }
    }

    fn ask(&mut self, nodes: NodeSet, yielding: bool, second: u64) {
        assert_eq!(self.rules.ask(nodes, yielding, at(second)), at(second));
        if yielding {
            self.offers.push((nodes, second));
        }
    }

    fn answered(&mut self, node: usize, sent: u64) {
        self.rules.answered(node);
        if self.offers.iter().any(|(nodes, at)| nodes.contains(node) && *at == sent) {
            self.rules.offer_answered(node);
        }
    }

    fn ask_all(&mut self, second: u64) {
        self.ask(all(self.nodes), false, second);
    }

    fn done(&mut self, node: usize, sent: u64) {
        self.answered(node, sent);
        self.rules.granted(node, at(sent), 1);
    }

    fn queued_at(&mut self, node: usize, sent: u64, ticket_no: u64, free_at: u64) {
        self.answered(node, sent);
        let place =
            QueuePlace { ticket_no, free_at: Some(at(free_at)), will_notify: true, holder: None };
        self.rules.queued(node, at(sent), place);
    }

    fn queued(&mut self, node: usize, sent: u64) {
        self.queued_at(node, sent, TICKET_NO, sent + 60);
    }

    fn step(&self, second: u64) -> Step {
        self.rules.step(&TERMS, Duration::ZERO, at(second))
    }
}

#[test]
fn a_majority_wins_and_nothing_less() {
    for nodes in 1..=9 {
        let enough = Quorum::of(nodes).expect("a few nodes").enough();
        let mut waiter = Waiter::of(nodes);
        waiter.ask_all(1);
        for node in 0..nodes {
            assert_eq!(waiter.rules.votes(), node);
            let expected = if node < enough { Step::Pending } else { won(1) };
            assert_eq!(waiter.step(2), expected, "{node} of {nodes}");
            waiter.done(node, 1);
        }
        waiter.rules.granted(nodes, at(1), 1);
        assert_eq!(waiter.rules.votes(), nodes, "there is no such node");
    }
}

#[test]
fn the_lease_counts_from_the_oldest_request_of_the_best_majority() {
    let mut waiter = Waiter::of(5);
    for (node, sent) in [(4, 1), (1, 3), (3, 5), (0, 7), (2, 9)] {
        waiter.ask(set(&[node]), false, 10 + sent);
        waiter.done(node, 10 + sent);
    }
    assert_eq!(waiter.step(20), won(15));
    assert_eq!(waiter.rules.backing(), set(&[3, 0, 2]), "the others may end before that");
    // An earlier request changes nothing, a later one does.
    waiter.rules.granted(3, at(11), 1);
    assert_eq!(waiter.step(20), won(15));
    waiter.rules.granted(1, at(18), 1);
    assert_eq!(waiter.step(20), won(17));
    assert_eq!(waiter.rules.backing(), set(&[0, 2, 1]));
}

#[test]
fn those_that_another_has_are_counted_and_stand_behind_nothing() {
    let mut waiter = Waiter::of(3);
    waiter.ask_all(0);
    assert_eq!(waiter.rules.refusals(), 0);
    waiter.queued(0, 0);
    waiter.queued(2, 0);
    waiter.done(1, 0);
    assert_eq!((waiter.rules.refusals(), waiter.rules.votes()), (2, 1));
    assert_eq!(waiter.rules.backing(), NodeSet::EMPTY, "no majority");
}

#[test]
fn a_message_counts_once_and_not_after_a_later_answer() {
    let mut waiter = Waiter::of(3);
    waiter.ask_all(1);
    (0..3).for_each(|node| waiter.queued(node, 1));
    assert!(waiter.rules.notified(0, at(1), 1));
    assert!(!waiter.rules.notified(0, at(1), 2), "the same once more, with another fence");
    assert_eq!(waiter.rules.votes(), 1);
    assert!(!waiter.rules.notified(3, at(1), 1), "there is no such node");
    // The record is another's now, for whatever reason.
    waiter.ask_all(5);
    (0..3).for_each(|node| waiter.queued(node, 5));
    assert_eq!(waiter.rules.votes(), 0);
    for (node, sent) in [(0, 1), (1, 1), (0, 4)] {
        assert!(!waiter.rules.notified(node, at(sent), 1), "{sent} from node {node}");
    }
    assert_eq!(waiter.rules.votes(), 0);
    // The ticket of the later request has its own turn.
    assert!(waiter.rules.notified(0, at(5), 1) && waiter.rules.notified(1, at(5), 1));
    assert_eq!(waiter.step(6), won(5));
}

#[test]
fn a_message_from_before_an_offer_does_not_count() {
    let mut waiter = Waiter::of(3);
    waiter.ask_all(1);
    waiter.done(0, 1);
    (1..3).for_each(|node| waiter.queued(node, 1));
    waiter.ask(set(&[0]), true, 5);
    waiter.queued(0, 5);
    assert!(!waiter.rules.notified(0, at(1), 1));
    assert_eq!(waiter.rules.votes(), 0);
    assert!(waiter.rules.notified(0, at(5), 1), "it has come back");
    assert_eq!(waiter.rules.votes(), 1);
}

#[test]
fn what_is_about_to_end_is_renewed_first_and_once() {
    let mut waiter = Waiter::of(3);
    waiter.ask_all(0);
    (0..3).for_each(|node| waiter.queued(node, 0));
    waiter.rules.granted(0, at(0), 1);
    waiter.rules.granted(1, at(0), 1);
    // With half of it left it is good enough.
    assert_eq!(waiter.step(44), won(0));
    assert_eq!(waiter.step(45), asks(all(3)));
    waiter.ask_all(50);
    assert_eq!(waiter.step(50), Step::Pending);
    waiter.done(0, 50);
    assert_eq!(waiter.step(51), Step::Pending, "the second is still to answer");
    waiter.done(1, 50);
    assert_eq!(waiter.step(51), won(50));

    // A node that does not answer keeps what it granted: what is left of that has to do.
    let mut waiter = Waiter::of(3);
    waiter.ask_all(0);
    (0..3).for_each(|node| waiter.queued(node, 0));
    waiter.rules.granted(0, at(0), 1);
    waiter.rules.granted(1, at(0), 1);
    waiter.ask_all(50);
    waiter.done(0, 50);
    waiter.rules.missed(1);
    waiter.queued(2, 50);
    assert_eq!(waiter.step(51), won(0));
    // Once it has run out it is given up, and not asked for again and again.
    assert_eq!(waiter.step(90), yields(set(&[0, 1])));
    waiter.ask(set(&[0, 1]), true, 90);
    waiter.done(0, 90);
    waiter.rules.missed(1);
    assert_eq!(waiter.step(91), Step::GiveBack, "nobody knows who has it there");
}

#[test]
fn nothing_is_asked_without_end_when_nobody_answers() {
    let mut waiter = Waiter::of(3);
    waiter.ask_all(0);
    (0..3).for_each(|node| waiter.done(node, 0));
    let mut asked = 0;
    while let Step::Ask { nodes, yielding } = waiter.step(200) {
        let _ = waiter.rules.ask(nodes, yielding, at(200));
        (0..3).for_each(|node| waiter.rules.missed(node));
        asked += 1;
        assert!(asked <= 2);
    }
    assert_eq!(waiter.step(200), Step::GiveBack);
    assert_eq!(waiter.rules.start_over(), all(3));
    assert_eq!(waiter.step(200), Step::Unreachable);
}

#[test]
fn more_may_be_asked_for_than_half_of_a_lease() {
    let mut waiter = Waiter::of(1);
    waiter.ask_all(0);
    waiter.done(0, 0);
    let step = |waiter: &Waiter, least, now| {
        waiter.rules.step(&TERMS, Duration::from_secs(least), at(now))
    };
    assert_eq!(step(&waiter, 80, 9), won(0));
    assert_eq!(step(&waiter, 80, 10), yields(set(&[0])), "it was just asked for");
    assert_eq!(step(&waiter, 80, 60), asks(all(1)));
    assert_eq!(step(&waiter, 10, 60), asks(all(1)));
}

#[test]
fn tickets_that_differ_are_settled_on_the_highest_ticket_no() {
    let mut waiter = Waiter::of(5);
    assert_eq!(waiter.rules.ticket_no(), None);
    waiter.ask_all(0);
    waiter.done(0, 0);
    for (node, ticket_no) in [(1, 5), (2, 7), (3, 6), (4, 7)] {
        assert_eq!(waiter.step(1), Step::Pending);
        waiter.queued_at(node, 0, ticket_no, 60);
    }
    assert_eq!(waiter.rules.ticket_no(), Some(7));
    // Before anything is offered to the waiter before us.
    assert_eq!(waiter.step(1), asks(set(&[1, 3])));
    waiter.ask(set(&[1, 3]), false, 2);
    waiter.queued_at(1, 2, 7, 60);
    assert_eq!(waiter.step(2), Step::Pending);
    waiter.queued_at(3, 2, 7, 60);
    assert_eq!(waiter.step(2), yields(set(&[0])));
}

/// So much of a TTL after it was offered.
fn after_offer(offered: u64, part: u32) -> Moment {
    at(offered).after(TERMS.ttl / part)
}

#[test]
fn a_minority_is_offered_to_others_once_for_each_look() {
    let mut waiter = Waiter::of(3);
    for (look, part) in [(0, 64), (10, 32), (20, 16), (30, 8), (50, 4), (90, 4)] {
        waiter.ask_all(look);
        waiter.done(0, look);
        waiter.queued(1, look);
        waiter.queued(2, look);
        assert_eq!(waiter.step(look), yields(set(&[0])));
        waiter.ask(set(&[0]), true, look + 1);
        assert_eq!(waiter.rules.votes(), 0, "it does not count any more");
        assert_eq!(waiter.step(look + 1), Step::Pending);
        waiter.done(0, look + 1);
        // Nobody stood before us. One who does may come later, but hardly so after many offers.
        let again = after_offer(look + 1, part);
        assert_eq!(waiter.step(look + 1), Step::Until(again));
        // To look at some nodes only is no reason to offer it again.
        waiter.ask(set(&[1]), false, look + 2);
        waiter.queued(1, look + 2);
        assert_eq!(waiter.step(look + 2), Step::Until(again));
    }
    // A waiter that had nothing meanwhile begins anew.
    waiter.ask_all(200);
    (0..3).for_each(|node| waiter.queued(node, 200));
    waiter.ask_all(210);
    waiter.done(0, 210);
    (1..3).for_each(|node| waiter.queued(node, 210));
    waiter.ask(set(&[0]), true, 211);
    waiter.done(0, 211);
    assert_eq!(waiter.step(211), Step::Until(after_offer(211, 64)));
}

#[test]
fn grant_messages_from_before_an_offer_are_void() {
    for answered in [true, false] {
        let mut waiter = Waiter::of(3);
        waiter.ask_all(0);
        waiter.done(0, 0);
        waiter.queued(1, 0);
        waiter.queued(2, 0);
        waiter.ask(set(&[0]), true, 5);
        waiter.rules.granted(1, at(0), 1);
        waiter.rules.granted(0, at(0), 1);
        waiter.rules.granted(0, at(4), 1);
        assert_eq!(waiter.rules.votes(), 1, "it was offered to others since");
        if answered {
            waiter.queued(0, 5);
        } else {
            // The answer got lost, and all were asked again.
            waiter.rules.missed(0);
            waiter.ask_all(6);
            waiter.rules.granted(0, at(4), 1);
        }
        waiter.rules.granted(0, at(4), 1);
        assert_eq!(waiter.rules.votes(), 1);
        // What has seen the offer counts: nobody took it, or has given it back.
        waiter.done(0, 5);
        assert_eq!(waiter.rules.votes(), 2);
    }
}

#[test]
fn what_was_asked_at_the_same_moment_as_an_offer_is_told_from_it() {
    let mut waiter = Waiter::of(3);
    let asked = waiter.rules.ask(all(3), false, at(7));
    (0..3).for_each(|node| waiter.rules.answered(node));
    let offered = waiter.rules.ask(set(&[0]), true, at(7));
    assert!(asked < offered && offered < at(7).after(Duration::from_nanos(2)));
    waiter.rules.offer_answered(0);
    waiter.rules.granted(0, asked, 1);
    assert_eq!(waiter.rules.votes(), 0);
    waiter.rules.granted(0, offered, 1);
    assert_eq!(waiter.rules.votes(), 1);
    // A clock that goes on is followed.
    assert_eq!(waiter.rules.ask(all(3), false, at(8)), at(8));
}

#[test]
fn a_grant_message_that_overtakes_the_answer_before_it_stands() {
    let mut waiter = Waiter::of(1);
    waiter.ask_all(5);
    waiter.rules.granted(0, at(5), 1);
    waiter.queued(0, 5);
    assert_eq!(waiter.step(6), won(5));
    waiter.ask_all(60);
    waiter.queued(0, 60);
    assert_eq!(waiter.rules.votes(), 0, "it ran out, and another has it");
}

#[test]
fn a_node_that_cannot_be_asked_keeps_what_it_granted() {
    let mut waiter = Waiter::of(3);
    waiter.ask_all(0);
    waiter.done(0, 0);
    waiter.queued(1, 0);
    waiter.queued(2, 0);
    waiter.ask_all(10);
    (0..3).for_each(|node| waiter.rules.missed(node));
    assert_eq!(waiter.rules.votes(), 1);
    waiter.rules.granted(1, at(10), 1);
    assert_eq!(waiter.step(11), won(0));
}

#[test]
fn it_rests_until_a_majority_can_be_free() {
    let mut waiter = Waiter::of(5);
    waiter.ask_all(0);
    for (node, free_at) in [(0, 50), (1, 20), (2, 40), (3, 10), (4, 30)] {
        waiter.queued_at(node, 0, TICKET_NO, free_at);
    }
    assert_eq!(waiter.step(1), Step::Until(at(30)));
    waiter.rules.missed(3);
    assert_eq!(waiter.step(1), Step::Until(at(40)), "that one cannot be asked");
    // With one granted, and kept, two others are enough.
    waiter.rules.granted(1, at(0), 1);
    waiter.ask(set(&[1]), true, 2);
    waiter.done(1, 2);
    let long = Terms { ttl: Duration::from_secs(10_000), ..TERMS };
    assert_eq!(waiter.rules.step(&long, Duration::ZERO, at(2)), Step::Until(at(40)));
    assert_eq!(waiter.step(2), Step::Until(after_offer(2, 64)), "or until it is offered again");
}

#[test]
fn a_place_is_kept_though_the_record_lasts_for_longer() {
    let mut waiter = Waiter::of(1);
    waiter.ask_all(5);
    waiter.queued_at(0, 5, TICKET_NO, 10_000);
    assert_eq!(waiter.step(6), Step::Until(at(205)), "two leases");
    let place = QueuePlace { ticket_no: TICKET_NO, free_at: None, will_notify: true, holder: None };
    waiter.rules.queued(0, at(5), place);
    assert_eq!(waiter.step(6), Step::Until(at(205)));
    let short = Terms { ttl: Duration::from_millis(100), ..TERMS };
    let step = waiter.rules.step(&short, Duration::ZERO, at(6));
    assert_eq!(step, Step::Until(at(7)), "or two seconds");
}

#[test]
fn where_no_grant_message_is_sent_and_where_nobody_answers_it_asks_again() {
    let mut waiter = Waiter::of(3);
    waiter.ask_all(0);
    waiter.queued(0, 0);
    let silent = QueuePlace {
        ticket_no: TICKET_NO,
        free_at: Some(at(60)),
        will_notify: false,
        holder: None,
    };
    for node in [1, 2] {
        waiter.rules.answered(node);
        waiter.rules.queued(node, at(0), silent);
    }
    assert_eq!(waiter.step(1), Step::Poll, "one that sends messages is not enough");
    waiter.queued(1, 0);
    assert_eq!(waiter.step(1), Step::Until(at(60)));
    waiter.rules.missed(0);
    assert_eq!(waiter.step(1), Step::Poll);
    waiter.rules.missed(1);
    assert_eq!(waiter.step(1), Step::Unreachable);
}

#[test]
fn a_waiter_knows_whether_it_has_asked_anybody() {
    let mut one = Waiter::of(3);
    assert!(!one.rules.has_asked());
    one.ask(set(&[1]), false, 0);
    assert!(one.rules.has_asked());
}

/// A node that comes back is free, while the holder has the other two.
#[test]
fn what_a_holder_needs_is_given_back() {
    let named = |waiter: &mut Waiter, node, sent: u64, holder| {
        waiter.rules.answered(node);
        let free_at = Some(at(sent + 60));
        let place = QueuePlace {
            ticket_no: TICKET_NO,
            free_at,
            will_notify: true,
            holder: NonZero::new(holder),
        };
        waiter.rules.queued(node, at(sent), place);
    };
    let asked = |holders: [u32; 2]| {
        let mut waiter = Waiter::of(3);
        waiter.ask_all(1);
        waiter.done(0, 1);
        named(&mut waiter, 1, 1, holders[0]);
        named(&mut waiter, 2, 1, holders[1]);
        waiter
    };
    let mut waiter = asked([7, 7]);
    assert_eq!(waiter.step(2), Step::GiveBack);
    assert_eq!(waiter.rules.start_over(), set(&[1, 2]));
    assert_eq!((waiter.rules.votes(), waiter.rules.refusals()), (0, 0));
    assert_eq!(waiter.rules.ticket_no(), Some(TICKET_NO), "its place in the queues is the same");
    assert_eq!(waiter.step(2), Step::Unreachable, "nothing is known of the new token");
    waiter.ask(set(&[1, 2]), false, 2);
    for node in 1..3 {
        named(&mut waiter, node, 2, 7);
    }
    assert_eq!(waiter.step(3), Step::Until(at(62)), "the holder's records end then");
    // All nodes are asked then. What is granted is of no more use, if the holder is still there.
    waiter.ask_all(4);
    for node in 1..3 {
        named(&mut waiter, node, 4, 7);
    }
    waiter.done(0, 4);
    assert_eq!(waiter.step(5), Step::GiveBack);
    // A waiter with one node has not the lock: then it is offered to the waiter before us.
    assert_eq!(asked([7, 8]).step(2), yields(set(&[0])));
    assert_eq!(asked([0, 0]).step(2), yields(set(&[0])), "nobody knows who");
    // What is over is nobody's.
    assert_eq!(asked([7, 7]).step(61), yields(set(&[0])));
}

/// Two nodes are free beside a holder of three: neither is asked again for the sake of the other.
#[test]
fn what_was_given_back_is_not_asked_for_again_before_all_are() {
    let mut waiter = Waiter::of(5);
    let named = |waiter: &mut Waiter, node, sent| {
        waiter.answered(node, sent);
        let (ticket_no, free_at, holder) = (TICKET_NO, Some(at(60)), NonZero::new(7));
        let place = QueuePlace { ticket_no, free_at, will_notify: true, holder };
        waiter.rules.queued(node, at(sent), place);
    };
    waiter.ask_all(1);
    (2..5).for_each(|node| named(&mut waiter, node, 1));
    waiter.done(0, 1);
    waiter.rules.missed(1);
    assert_eq!(waiter.step(1), Step::GiveBack);
    assert_eq!(waiter.rules.start_over(), set(&[1, 2, 3, 4]));
    waiter.ask(set(&[1, 2, 3, 4]), false, 2);
    (2..5).for_each(|node| named(&mut waiter, node, 2));
    waiter.done(1, 2);
    assert_eq!(waiter.step(2), Step::GiveBack);
    assert_eq!(waiter.rules.start_over(), set(&[2, 3, 4]));
    waiter.ask_all(3);
    (2..5).for_each(|node| named(&mut waiter, node, 3));
    waiter.done(0, 3);
    waiter.rules.missed(1);
    assert_eq!(waiter.rules.start_over(), set(&[1, 2, 3, 4]), "all were asked since");
}

/// Messages of a release come from one node after the other.
#[test]
fn what_a_holder_has_let_go_of_is_not_given_back() {
    let mut waiter = Waiter::of(5);
    waiter.ask_all(1);
    for node in 0..5 {
        waiter.rules.answered(node);
        let (free_at, holder) = (Some(at(61)), NonZero::new(7));
        let place = QueuePlace { ticket_no: TICKET_NO, free_at, will_notify: true, holder };
        waiter.rules.queued(node, at(1), place);
    }
    assert!(waiter.rules.is_taken(at(2)));
    assert!(waiter.rules.notified(0, at(1), 1));
    assert!(!waiter.rules.is_taken(at(2)), "it was released there");
    assert!(waiter.rules.notified(1, at(1), 1) && waiter.rules.notified(2, at(1), 1));
    assert_eq!(waiter.step(3), won(1));
}

/// A server that forgot its scripts runs an offer behind what was sent later, and a connection that broke may run it at
/// any time.
#[test]
fn what_an_open_offer_may_give_away_does_not_count() {
    let mut waiter = Waiter::of(3);
    waiter.ask_all(1);
    waiter.done(0, 1);
    (1..3).for_each(|node| waiter.queued(node, 1));
    assert_eq!(waiter.step(2), yields(set(&[0])));
    waiter.ask(set(&[0]), true, 2);
    waiter.ask_all(3);
    waiter.done(0, 3);
    assert!(!waiter.rules.notified(0, at(3), 1), "nor does a message");
    assert_eq!(waiter.rules.votes(), 0);
    assert!(waiter.rules.notified(2, at(3), 1) && waiter.rules.notified(1, at(3), 1));
    assert_eq!(waiter.step(4), Step::Pending, "it would be won but for the offer");
    (1..3).for_each(|node| waiter.done(node, 3));
    let mut lost = Waiter { rules: waiter.rules.clone(), nodes: 3, offers: Vec::new() };
    assert_eq!(lost.step(4), Step::GiveBack, "its answer does not come");
    assert_eq!(lost.rules.start_over(), all(3));
    lost.ask_all(5);
    (0..2).for_each(|node| lost.done(node, 5));
    assert_eq!(lost.step(6), won(5), "with another token");
    waiter.queued(0, 2);
    assert_eq!(waiter.step(4), won(3));
    assert_eq!(waiter.rules.backing(), set(&[1, 2]));
}

#[test]
fn two_offers_have_two_answers() {
    let mut waiter = Waiter::of(3);
    waiter.ask_all(1);
    waiter.done(0, 1);
    (1..3).for_each(|node| waiter.queued(node, 1));
    waiter.ask(set(&[0]), true, 2);
    waiter.ask(set(&[0]), true, 3);
    waiter.done(0, 3);
    assert_eq!(waiter.rules.votes(), 0, "the first may come behind it");
    waiter.done(0, 2);
    waiter.ask_all(4);
    waiter.done(0, 4);
    assert_eq!(waiter.rules.votes(), 1);
}
