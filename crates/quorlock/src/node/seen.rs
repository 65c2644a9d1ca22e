//! What a node shows to a client that only looks.

use std::time::Duration;

use super::{Holder, Record};
use crate::name::Name;
use crate::note::MAX_NOTE_BYTES;

/// The longest note that a node is asked to keep, in bytes: some more than a holder may say.
pub const MAX_NOTED_BYTES: usize = MAX_NOTE_BYTES + 32;

/// A lock as one node sees it, with what lies beside its record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// Who holds it; `None` if the name is free.
    pub record: Option<Record>,
    /// The note of the holder.
    pub note: Option<String>,
    /// How many stand in its queue; `None` if the node keeps none, or does not report it.
    pub waiters: Option<u64>,
    /// For how long the node casts no vote, since it may have forgotten some.
    pub quarantine: Option<Duration>,
}

impl Seen {
    /// What lies beside a record may be of an earlier holder: that is left out.
    #[must_use]
    pub fn new(record: Option<Record>, noted: Option<&[u8]>, waiters: Option<u64>) -> Self {
        let note = record.zip(noted).and_then(|(record, noted)| read(noted, record.holder));
        Self { record, note, waiters, quarantine: None }
    }

    /// The same on a node that casts no vote for so long.
    #[must_use]
    pub fn quarantined(self, quarantine: Option<Duration>) -> Self {
        Self { quarantine, ..self }
    }
}

/// A note as nodes keep it: with whom it is about.
pub(crate) fn noted(holder: Holder, note: &str) -> String {
    format!("{holder} {note}")
}

fn read(noted: &[u8], of: Holder) -> Option<String> {
    let note = noted.strip_prefix(of.to_string().as_bytes())?.strip_prefix(b" ")?;
    // Others that can write to the node may have put anything here.
    let note = &note[..note.len().min(MAX_NOTED_BYTES)];
    Some(String::from_utf8_lossy(note).into_owned())
}

/// Some of the locks that a node holds.
#[derive(Debug, Clone, Default)]
pub struct Listed {
    /// Their names, in no order. One may come twice.
    pub names: Vec<Name>,
    /// Where to go on from; `None` at the end.
    pub next: Option<Vec<u8>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_note_of_the_present_holder_counts() {
        let record = |token: &[u8]| Some(Record::new(token, None));
        let kept = noted(Holder::of(b"a"), "Anna, with a space");
        let seen = |record, noted: &str| Seen::new(record, Some(noted.as_bytes()), None).note;
        assert_eq!(seen(record(b"a"), &kept).as_deref(), Some("Anna, with a space"));
        assert_eq!(seen(record(b"b"), &kept), None, "of somebody before");
        assert_eq!(seen(None, &kept), None, "of nobody");
        assert_eq!(seen(record(b"a"), "anything"), None);
        let long = noted(Holder::of(b"a"), &"x".repeat(MAX_NOTED_BYTES + 1));
        assert_eq!(seen(record(b"a"), &long).map(|note| note.len()), Some(MAX_NOTED_BYTES));
    }
}
