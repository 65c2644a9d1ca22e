//! Those who hold a lock or want it, in the order of their coming.

use std::time::Duration;

use super::keys::Keys;
use crate::node::contenders::Value;
use crate::node::etcd::messages::KeyValue;
use crate::node::etcd::store::shown;
use crate::node::{Failure, FailureKind, Holder, Record};

/// An end that cannot be right is taken for this.
const SOON: Duration = Duration::from_millis(250);

/// All of them: the first holds the lock.
#[derive(Debug, Clone)]
pub(super) struct Line(Vec<Contender>);

/// One of them.
#[derive(Debug, Clone)]
pub(super) struct Contender {
    pub(super) key: Vec<u8>,
    /// The revision that made its key: its place, and its fence.
    pub(super) place: i64,
    /// That of the latest change.
    pub(super) version: i64,
    pub(super) lease: i64,
    /// `None` for a client of another library.
    pub(super) ours: Option<Value>,
}

impl Line {
    /// From all keys that begin like those of the line, by the time of their creation.
    pub(super) fn new(line: &[u8], found: Vec<KeyValue>) -> Self {
        let mine = found.into_iter().filter(|kv| Keys::line_of(&kv.key) == Some(line));
        Self(mine.map(Contender::new).collect())
    }

    /// Who holds the lock.
    pub(super) fn first(&self) -> Result<Option<&Contender>, Failure> {
        match self.0.first() {
            Some(Contender { key, lease: 0, .. }) => {
                let text = format!(
                    "the key {} lies where those who want the lock put theirs, and has no lease: it never ends; take \
                     it away, or use another name",
                    shown(key)
                );
                Err(Failure::new(FailureKind::WrongType, text))
            }
            first => Ok(first),
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&Contender> {
        self.0.iter().find(|contender| contender.key == key)
    }

    /// Whether the key that was made at this place is among them.
    pub(super) fn has(&self, key: &[u8], place: i64) -> bool {
        self.get(key).is_some_and(|found| found.place == place)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The keys that have to go before it is the turn of this place, and the places they have.
    pub(super) fn ahead_of(&self, place: i64) -> Vec<(Vec<u8>, i64)> {
        let ahead = self.0.iter().filter(|contender| contender.place < place);
        ahead.map(|contender| (contender.key.clone(), contender.place)).collect()
    }

    /// Whether anybody stands behind this place.
    pub(super) fn is_any_behind(&self, place: i64) -> bool {
        self.0.iter().any(|contender| contender.place > place)
    }
}

impl Contender {
    pub(super) fn new(kv: KeyValue) -> Self {
        let KeyValue { key, create_revision, mod_revision, value, lease } = kv;
        let (place, version) = (create_revision, mod_revision);
        Self { key, place, version, lease, ours: Value::decode(&value) }
    }

    /// What others may know it by.
    pub(super) fn holder(&self) -> Holder {
        match &self.ours {
            Some(value) => Holder::of(&value.token.text()),
            None => Holder::of(&self.key),
        }
    }

    /// As the holder of its lock, at this time of day.
    pub(super) fn record(&self, wall_us: u64) -> Record {
        let (remaining, token) = match &self.ours {
            Some(value) => {
                // Clocks of clients may differ: this is for people.
                let left = Duration::from_micros(value.until_us.saturating_sub(wall_us));
                (Some(left.clamp(SOON, value.ttl.max(SOON))), Some(value.token))
            }
            // Kept alive for as long as its client lives.
            None => (None, None),
        };
        let has_fence = self.ours.as_ref().is_none_or(|value| value.is_fenced);
        let record = Record { holder: self.holder(), token, remaining, fence: None };
        if has_fence { record.with_fence(fence(self.place)) } else { record }
    }
}

/// The fence of who has this place.
pub(super) fn fence(place: i64) -> u64 {
    place.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kv(key: &[u8], create_revision: i64, lease: i64) -> KeyValue {
        let mod_revision = create_revision + 100;
        KeyValue { key: key.to_vec(), create_revision, mod_revision, value: Vec::new(), lease }
    }

    #[test]
    fn those_count_that_stand_in_the_line_itself() {
        let found =
            vec![kv(b"a/b/1", 3, 1), kv(b"a/2", 4, 1), kv(b"a/b/3", 5, 1), kv(b"a/4", 9, 1)];
        let line = Line::new(b"a/", found);
        assert_eq!(line.len(), 2);
        assert_eq!(line.first().unwrap().map(|first| first.place), Some(4));
        assert_eq!(line.ahead_of(9), [(b"a/2".to_vec(), 4)]);
        assert!(line.ahead_of(4).is_empty());
        assert!(line.is_any_behind(4) && !line.is_any_behind(9));
        assert!(line.has(b"a/4", 9) && !line.has(b"a/4", 4) && !line.has(b"a/1", 9));
        assert!(line.get(b"a/4").is_some() && line.get(b"a/b/1").is_none());
    }

    #[test]
    fn a_key_that_never_ends_is_no_holder() {
        let line = Line::new(b"a/", vec![kv(b"a/config", 3, 0), kv(b"a/2", 4, 1)]);
        let text = line.first().unwrap_err().to_string();
        assert!(text.contains("the key a/config") && text.contains("take it away"), "{text}");
        let behind = Line::new(b"a/", vec![kv(b"a/2", 4, 1), kv(b"a/config", 5, 0)]);
        assert!(behind.first().is_ok(), "until its turn comes");
    }
}
