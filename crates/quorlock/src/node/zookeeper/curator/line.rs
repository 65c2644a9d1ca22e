//! Those who hold a lock or want it, in the order of their numbers.

use super::paths::{holder, number};
use crate::node::Holder;

/// All of them: the first holds the lock.
#[derive(Debug, Clone, Default)]
pub(super) struct Line(Vec<(i64, String)>);

impl Line {
    /// From all nodes below that of the lock.
    pub(super) fn new(children: Vec<String>) -> Self {
        let entries = children.into_iter().filter_map(|child| Some((number(&child)?, child)));
        let mut line: Vec<_> = entries.collect();
        line.sort_unstable();
        Self(line)
    }

    pub(super) fn first(&self) -> Option<&str> {
        self.0.first().map(|(_, entry)| entry.as_str())
    }

    /// The holder, as far as the line says.
    pub(super) fn holder(&self) -> Option<Holder> {
        self.first().map(holder)
    }

    /// The entry whose name begins like this.
    pub(super) fn find(&self, prefix: &str) -> Option<&str> {
        let found = self.0.iter().find(|(_, entry)| entry.starts_with(prefix));
        found.map(|(_, entry)| entry.as_str())
    }

    pub(super) fn contains(&self, entry: &str) -> bool {
        self.0.iter().any(|(_, other)| other == entry)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Who has to go before it is the turn of an entry.
    pub(super) fn ahead_of(&self, entry: &str) -> impl Iterator<Item = &str> {
        let before = self.0.iter().take_while(move |(_, other)| other != entry);
        before.map(|(_, other)| other.as_str())
    }

    /// Whether anybody stands behind an entry.
    pub(super) fn is_any_behind(&self, entry: &str) -> bool {
        self.0.last().is_some_and(|(_, last)| last != entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_number_is_first_whatever_stands_before_it() {
        let children = ["z-lock-0000000003", "a-lock-0000000010", "config", "lock-0000000004"];
        let line = Line::new(children.map(str::to_owned).to_vec());
        assert_eq!((line.len(), line.first()), (3, Some("z-lock-0000000003")));
        let ahead: Vec<_> = line.ahead_of("a-lock-0000000010").collect();
        assert_eq!(ahead, ["z-lock-0000000003", "lock-0000000004"]);
        assert!(line.is_any_behind("lock-0000000004") && !line.is_any_behind("a-lock-0000000010"));
        assert_eq!(line.find("a-"), Some("a-lock-0000000010"));
        assert!(!line.contains("config"));
    }
}
