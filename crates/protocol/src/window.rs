//! How many calls may be on their way to one node.

use core::time::Duration;

use crate::Moment;

/// So many calls are on their way to a node at once that each is answered within `target`, as far as that depends on
/// the others before it. The rest waits in the client, where it grows no older.
///
/// What a call takes beyond the shortest that any has taken of late is what it has waited for others. A node that has
/// become slow gets half as many, and one that is fast again a few more with each reply. One that is farther away than it
/// was is slow for a while, and then not any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    target: Duration,
    calls: usize,
    /// The shortest since `since`, and in the time before that.
    shortest: Duration,
    before: Duration,
    since: Moment,
    narrowed: Moment,
}

impl Window {
    /// The widest.
    pub const MOST: usize = 512;
    /// The narrowest: what a node is slow for is not always that it has much to do.
    pub const LEAST: usize = 32;
    /// So long the shortest is remembered at the least, and twice as long at the most.
    const REMEMBERED: Duration = Duration::from_secs(10);
    /// What is added to it at a time.
    const STEP: usize = 16;
    /// So many extensions go out in one command at the most: others wait for it meanwhile.
    pub const TOGETHER: usize = 64;
    /// So many of them keep a node busy for no longer than any other call does.
    pub const AS_ONE: usize = 8;
    /// A call waits for others on its way no longer than this share of the clock window.
    const SHARE: u32 = 4;

    /// That of a node whose clock may be ahead by so much when it looks at a call.
    #[must_use]
    pub fn of_clock(ahead: Duration) -> Self {
        Self::new(ahead / Self::SHARE)
    }

    /// A wide one.
    #[must_use]
    pub const fn new(target: Duration) -> Self {
        let (shortest, since) = (Duration::MAX, Moment::from_nanos(0));
        Self { target, calls: Self::MOST, shortest, before: shortest, since, narrowed: since }
    }

    /// The same for another connection, of which nothing is known.
    #[must_use]
    pub const fn anew(&self) -> Self {
        Self::new(self.target)
    }

    /// How many.
    #[must_use]
    pub const fn calls(&self) -> usize {
        self.calls
    }

    /// Whether one more may be sent, of `waiting` that are on their way. So many of those are `together` with another,
    /// in one command.
    #[must_use]
    pub const fn has_room(&self, waiting: usize, together: usize) -> bool {
        waiting.saturating_sub(together) + together / Self::AS_ONE < self.calls
    }

    /// A reply came at `now` to what was sent at `sent`.
    pub fn answered(&mut self, sent: Moment, now: Moment) {
        let took = now.since(sent);
        if now.since(self.since) >= Self::REMEMBERED {
            (self.before, self.shortest, self.since) = (self.shortest, took, now);
        }
        self.shortest = self.shortest.min(took);
        let waited = took.saturating_sub(self.shortest.min(self.before));
        if waited <= self.target / 2 {
            self.calls = (self.calls + Self::STEP).min(Self::MOST);
        } else if waited > self.target && sent >= self.narrowed {
            // Those that were sent before it was narrowed say nothing new.
            self.calls = (self.calls / 2).max(Self::LEAST);
            self.narrowed = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Duration = Duration::from_millis(75);

    fn at(ms: u64) -> Moment {
        Moment::default().after(Duration::from_millis(ms))
    }

    #[test]
    fn a_node_that_becomes_slow_gets_half_as_many_once_for_all_that_are_under_way() {
        let mut window = Window::new(TARGET);
        window.answered(at(0), at(1));
        assert_eq!(window.calls(), 512);
        window.answered(at(2), at(80));
        window.answered(at(3), at(90));
        assert_eq!(window.calls(), 256);
        for sent in (100..2_000).step_by(100) {
            window.answered(at(sent), at(sent + 90));
        }
        assert_eq!(window.calls(), Window::LEAST);
        window.answered(at(3_000), at(3_050));
        assert_eq!(window.calls(), Window::LEAST, "neither slow nor fast");
        window.answered(at(3_200), at(3_201));
        assert_eq!(window.calls(), Window::LEAST + 16);
        window.answered(at(3_300), at(3_301).after(TARGET));
        assert_eq!(window.calls(), Window::LEAST + 16, "not more than it may be");
        for sent in 4_000..4_200 {
            window.answered(at(sent), at(sent + 30));
        }
        assert_eq!(window.calls(), Window::MOST);
    }

    /// As after a change of the route: neither for ever, nor at once.
    #[test]
    fn a_node_that_is_farther_away_than_it_was_is_slow_for_a_while() {
        let mut window = Window::new(TARGET);
        window.answered(at(0), at(1));
        let mut widest = Vec::new();
        for second in 1..30 {
            for sent in (second * 1_000..(second + 1) * 1_000).step_by(20) {
                window.answered(at(sent), at(sent + 120));
            }
            widest.push(window.calls());
        }
        assert_eq!((widest[4], widest[8]), (Window::LEAST, Window::LEAST));
        assert_eq!(widest[28], Window::MOST);
    }

    #[test]
    fn extensions_that_go_out_together_take_less_room() {
        let window = Window::new(TARGET);
        assert!(window.has_room(511, 0) && !window.has_room(512, 0));
        assert!(window.has_room(4_000, 3_990) && window.has_room(512, 8));
        assert!(!window.has_room(519, 8) && !window.has_room(4_000, 3_900));
        let ahead = TARGET * 4;
        assert_eq!(Window::of_clock(ahead), window);
    }

    #[test]
    fn a_node_that_is_far_away_is_not_slow() {
        let mut window = Window::new(TARGET);
        for sent in 0..100 {
            window.answered(at(sent), at(sent + 200));
        }
        assert_eq!(window.calls(), Window::MOST);
        window.answered(at(1_000), at(1_276));
        assert_eq!(window.calls(), Window::MOST / 2);
    }
}
