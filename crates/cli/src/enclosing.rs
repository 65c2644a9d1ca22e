//! The runs that this run is inside of, and what the command learns about its own.
//!
//! A run of the same name inside another takes part in its lock, instead of waiting for it for ever.
//! It does so by the owner of that lock, which the outer run leaves in the environment:
//!
//! ```text
//!   QUORLOCK_NAME   the lock             of the innermost run
//!   QUORLOCK_OWNER  its owner, a secret
//!   QUORLOCK_TOKEN  its token, a secret: for quorlock extend and release, and for stores
//!   QUORLOCK_FENCE  its fence, which grows with every holder: for stores that compare it
//!   QUORLOCK_HELD   OWNER:NAME,…         of every run around it, the names in hexadecimal
//! ```
//!
//! Each run has an owner of its own. If those of all names inside a run had the same, two of them
//! that run side by side, as under `make -j`, would not exclude each other.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

use quorlock::{Owner, TokenText};

use crate::token;

pub(crate) const NAME: &str = "QUORLOCK_NAME";
const OWNER: &str = "QUORLOCK_OWNER";
const HELD: &str = "QUORLOCK_HELD";
const FENCE: &str = "QUORLOCK_FENCE";

/// The locks of the runs around this one, by what the environment says.
#[derive(Default)]
pub(crate) struct Enclosing {
    name: OsString,
    owner: String,
    held: String,
    token: String,
    fence: String,
}

impl Enclosing {
    pub(crate) fn from_environment() -> Self {
        let text = |name| std::env::var(name).unwrap_or_default();
        let name = std::env::var_os(NAME).unwrap_or_default();
        let (token, fence) = (text(token::VARIABLE), text(FENCE));
        Self { name, owner: text(OWNER), held: text(HELD), token, fence }
    }

    /// The owner of the lock of this name, if a run around this one holds it.
    pub(crate) fn owner_of(&self, name: &OsStr) -> Option<&str> {
        if self.name == name && !self.owner.is_empty() {
            return Some(&self.owner);
        }
        let name = hex(name);
        // The innermost stands last.
        let mut entries = self.held.rsplit(',').filter_map(|entry| entry.split_once(':'));
        entries.find(|(_, held)| *held == name).map(|(owner, _)| owner)
    }

    /// The environment of a command that runs under this lock.
    pub(crate) fn inside(
        &self,
        name: &OsStr,
        owner: &Owner,
        token: &TokenText,
        given: Option<u64>,
    ) -> [(&'static str, OsString); 5] {
        let owner = owner.id();
        let entry = format!("{owner}:{}", hex(name));
        let held = if self.held.is_empty() { entry } else { format!("{},{entry}", self.held) };
        // All who take part in one lock have one fence: what one of them has written with a higher one
        // would shut the others out. Empty is better than that of another lock.
        let fence = match given {
            _ if self.token == token.as_str() && !self.fence.is_empty() => self.fence.clone(),
            Some(given) => given.to_string(),
            None => String::new(),
        };
        [
            (NAME, name.to_owned()),
            (OWNER, owner.into()),
            (HELD, held.into()),
            (token::VARIABLE, token.as_str().into()),
            (FENCE, fence.into()),
        ]
    }
}

fn hex(name: &OsStr) -> String {
    name.as_bytes().iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use quorlock::Token;

    use super::*;

    fn inside(outer: &Enclosing, name: &str, id: &str) -> Enclosing {
        fenced(outer, name, id, Some(7))
    }

    fn fenced(outer: &Enclosing, name: &str, id: &str, given: Option<u64>) -> Enclosing {
        let owner = Owner::from_id(&id.repeat(24)).unwrap();
        let token = Token::parse(format!("ql:{}", id.repeat(40)).as_bytes()).unwrap().text();
        let [(_, name), (_, owner), (_, held), (_, token), (_, fence)] =
            outer.inside(name.as_ref(), &owner, &token, given);
        let text = |value: OsString| value.into_string().unwrap();
        let (owner, held, token, fence) = (text(owner), text(held), text(token), text(fence));
        Enclosing { name, owner, held, token, fence }
    }

    #[test]
    fn all_who_take_part_in_a_lock_have_one_fence() {
        let a = fenced(&Enclosing::default(), "a", "1", Some(7));
        assert_eq!(a.fence, "7");
        assert_eq!(fenced(&a, "a", "1", Some(8)).fence, "7", "the same lock");
        assert_eq!(fenced(&a, "b", "2", Some(8)).fence, "8", "another one");
        assert_eq!(fenced(&a, "b", "2", None).fence, "", "not that of another lock");
    }

    #[test]
    fn every_run_around_is_known_by_its_own_owner() {
        let a = inside(&Enclosing::default(), "a,b:c", "1");
        let b = inside(&a, "b", "2");
        let owner = |name: &str| b.owner_of(name.as_ref()).map(str::to_owned);
        assert_eq!(owner("a,b:c"), Some("1".repeat(24)));
        assert_eq!(owner("b"), Some("2".repeat(24)));
        assert_eq!((owner("c"), owner("a"), owner("")), (None, None, None));
    }

    #[test]
    fn a_name_and_an_owner_that_were_set_by_hand_are_enough() {
        let name = OsString::from("x");
        let by_hand = Enclosing { name, owner: "3".repeat(24), ..Enclosing::default() };
        assert_eq!(by_hand.owner_of("x".as_ref()), Some("3".repeat(24).as_str()));
    }
}
