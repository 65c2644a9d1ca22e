//! Who leaves the lines in which this client waits.
//!
//! ```text
//!   watch begins ──▶ line is read ──▶ who is ahead ── each that leaves ──▶ nobody: our turn
//!        └── who leaves meanwhile is remembered ─┘
//! ```
//!
//! One watch for each lock tells of all that happens below it. Events come in the order in which things happened, and
//! nobody comes to be ahead of an entry later: its turn has come once all that were have left.

use std::collections::{HashMap, HashSet};

/// The watches of one session.
#[derive(Debug, Default)]
pub(super) struct Watches(HashMap<String, Watched>);

/// A lock that is watched.
#[derive(Debug, Default)]
struct Watched {
    /// So many are about to read the line.
    reading: usize,
    /// Who has left since the first of them began.
    left: HashSet<String>,
    /// Our entries, and who is ahead of each.
    waiting: HashMap<String, HashSet<String>>,
}

/// What an event means for an entry of ours.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Its turn has come.
    Turn(String),
    /// It is gone.
    Gone(String),
}

impl Watches {
    /// Somebody is about to read a line. Says whether the watch is to be begun first.
    pub(super) fn begin(&mut self, lock: &str) -> bool {
        let is_new = !self.0.contains_key(lock);
        self.0.entry(lock.to_owned()).or_default().reading += 1;
        is_new
    }

    /// The line was read: these are ahead of an entry of ours. Says whether all of them have left since.
    pub(super) fn wait<'a>(
        &mut self,
        lock: &str,
        entry: &str,
        ahead: impl Iterator<Item = &'a str>,
    ) -> bool {
        let Some(watched) = self.0.get_mut(lock) else { return false };
        let ahead: HashSet<_> =
            ahead.filter(|other| !watched.left.contains(*other)).map(str::to_owned).collect();
        let is_turn = ahead.is_empty();
        if !is_turn {
            watched.waiting.insert(entry.to_owned(), ahead);
        }
        is_turn
    }

    /// Whoever [was about to](Self::begin) read a line is done with that. Says whether the watch is of no use any more.
    pub(super) fn end(&mut self, lock: &str) -> bool {
        let Some(watched) = self.0.get_mut(lock) else { return false };
        watched.reading = watched.reading.saturating_sub(1);
        if watched.reading == 0 {
            watched.left.clear();
        }
        self.drop_idle(lock)
    }

    /// Nobody waits with this entry any more. Says whether the watch is of no use any more.
    pub(super) fn leave(&mut self, lock: &str, entry: &str) -> bool {
        let Some(watched) = self.0.get_mut(lock) else { return false };
        watched.waiting.remove(entry).is_some() && self.drop_idle(lock)
    }

    fn drop_idle(&mut self, lock: &str) -> bool {
        let is_idle = self
            .0
            .get(lock)
            .is_some_and(|watched| watched.reading == 0 && watched.waiting.is_empty());
        if is_idle {
            self.0.remove(lock);
        }
        is_idle
    }

    /// A node was deleted. What that means, and the lock whose watch is of no use any more.
    pub(super) fn deleted(&mut self, path: &str) -> (Vec<News>, Option<String>) {
        let Some((lock, entry)) = path.rsplit_once('/') else { return (Vec::new(), None) };
        let Some(watched) = self.0.get_mut(lock) else { return (Vec::new(), None) };
        if watched.reading > 0 {
            watched.left.insert(entry.to_owned());
        }
        let mut news = Vec::new();
        if watched.waiting.remove(entry).is_some() {
            news.push(News::Gone(entry.to_owned()));
        }
        watched.waiting.retain(|mine, ahead| {
            let is_turn = ahead.remove(entry) && ahead.is_empty();
            if is_turn {
                news.push(News::Turn(mine.clone()));
            }
            !is_turn
        });
        let is_idle = !news.is_empty() && self.drop_idle(lock);
        (news, is_idle.then(|| lock.to_owned()))
    }

    /// The locks that are waited for.
    pub(super) fn waited_for(&self) -> Vec<String> {
        let waited = self.0.iter().filter(|(_, watched)| !watched.waiting.is_empty());
        waited.map(|(lock, _)| lock.clone()).collect()
    }

    /// Our entries that wait in a line.
    pub(super) fn entries(&self, lock: &str) -> Vec<String> {
        self.0
            .get(lock)
            .map(|watched| watched.waiting.keys().cloned().collect())
            .unwrap_or_default()
    }

    /// The session has ended, and all entries with it.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(entry: &str) -> Vec<News> {
        vec![News::Turn(entry.to_owned())]
    }

    #[test]
    fn a_turn_comes_when_the_last_of_those_before_has_left() {
        let mut watches = Watches::default();
        assert!(watches.begin("/a"));
        assert!(!watches.begin("/a"), "it is watched already");
        assert!(!watches.wait("/a", "m", ["x", "y"].into_iter()));
        assert!(!watches.wait("/a", "n", ["x", "y", "m"].into_iter()));
        assert!(!watches.end("/a") && !watches.end("/a"));
        assert_eq!(watches.deleted("/a/y"), (Vec::new(), None), "in any order");
        assert_eq!(watches.deleted("/b/x"), (Vec::new(), None), "of another lock");
        assert_eq!(watches.deleted("/a/x"), (turn("m"), None));
        assert_eq!(watches.deleted("/a/m"), (turn("n"), Some("/a".to_owned())));
        assert!(watches.begin("/a"), "it was dropped");
    }

    #[test]
    fn who_leaves_while_the_line_is_read_is_not_waited_for() {
        let mut watches = Watches::default();
        watches.begin("/a");
        assert_eq!(watches.deleted("/a/x"), (Vec::new(), None));
        assert!(watches.wait("/a", "m", ["x"].into_iter()));
        assert!(watches.end("/a"));
    }

    #[test]
    fn an_entry_that_is_gone_is_told_of() {
        let mut watches = Watches::default();
        watches.begin("/a");
        watches.wait("/a", "m", ["x"].into_iter());
        watches.end("/a");
        assert_eq!(watches.waited_for(), ["/a"]);
        assert_eq!(watches.entries("/a"), ["m"]);
        let gone = vec![News::Gone("m".to_owned())];
        assert_eq!(watches.deleted("/a/m"), (gone, Some("/a".to_owned())));
        watches.begin("/a");
        watches.wait("/a", "m", ["x"].into_iter());
        watches.end("/a");
        assert!(watches.leave("/a", "m") && !watches.leave("/a", "m"));
    }
}
