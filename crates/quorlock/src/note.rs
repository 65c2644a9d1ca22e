//! What a holder says of itself.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The longest note, in bytes.
pub const MAX_NOTE_BYTES: usize = 512;

/// What a holder says of itself, for people who ask: see [`Lock::note`](crate::Lock::note). Anyone
/// who can write to a node can put anything there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Note {
    /// The text of the holder.
    pub text: String,
    /// Since when it holds the lock, by its own clock.
    pub since: Option<SystemTime>,
}

impl Note {
    pub(crate) fn new(text: &str, since: SystemTime) -> Self {
        Self { text: text.to_owned(), since: Some(since) }
    }

    /// As it lies on the nodes: milliseconds since 1970, and the text.
    pub(crate) fn stored(&self) -> String {
        let since = self.since.and_then(|since| since.duration_since(UNIX_EPOCH).ok());
        format!("{} {}", since.unwrap_or_default().as_millis(), self.text)
    }

    pub(crate) fn read(stored: &str) -> Self {
        let (since, text) = stored.split_once(' ').unwrap_or(("", stored));
        match since.parse().map(|millis| UNIX_EPOCH.checked_add(Duration::from_millis(millis))) {
            Ok(since) => Self { text: text.to_owned(), since: since.filter(|at| *at > UNIX_EPOCH) },
            Err(_) => Self { text: stored.to_owned(), since: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_read_back_as_it_was() {
        let at = UNIX_EPOCH + Duration::from_millis(1_794_799_760_123);
        for text in ["Anna", "12 monkeys", "", "\u{1f512} "] {
            let note = Note::new(text, at);
            assert_eq!(Note::read(&note.stored()), note);
        }
        let timeless = Note { text: "Anna".into(), since: None };
        assert_eq!(Note::read(&timeless.stored()), timeless);
    }

    #[test]
    fn what_somebody_else_has_put_there_is_shown_as_it_is() {
        for stored in ["anything at all", "one", "", "-5 x", "99999999999999999999999 x"] {
            assert_eq!(Note::read(stored), Note { text: stored.into(), since: None });
        }
    }
}
