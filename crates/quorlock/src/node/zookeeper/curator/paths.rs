//! Which nodes there are: `CHROOT / NAME / ENTRY`, one for each who holds the lock or waits for it.
//!
//! An entry is called `_c_UUID-lock-NNNNNNNNNN`. The UUID tells a client which one is its own, should it not hear that it
//! was made; ours is a digest of the token. It begins as the [`Holder`] is shown. ZooKeeper gives out the number.
//!
//! A name is its path. A slash before it changes nothing. What no path can have is written as `%` and two hexadecimal
//! digits, and so is a `%` that could be mistaken for that.

use std::fmt::Write as _;

use crate::name::Name;
use crate::node::Holder;
use crate::node::zookeeper::address::is_part;
use crate::token::{Token, read_hex};

/// Between the UUID of an entry and its number.
const LOCK: &str = "lock-";

/// Paths behind one prefix.
#[derive(Debug)]
pub(super) struct Paths {
    chroot: String,
}

impl Paths {
    pub(super) fn new(chroot: String) -> Self {
        Self { chroot }
    }

    /// What lies above all locks.
    pub(super) fn top(&self) -> &str {
        if self.chroot.is_empty() { "/" } else { &self.chroot }
    }

    /// The node of a lock, below which its entries are.
    pub(super) fn lock(&self, name: &Name) -> String {
        let name = name.as_bytes();
        let name = match name {
            [b'/', rest @ ..] if !rest.is_empty() => rest,
            name => name,
        };
        format!("{}/{}", self.chroot, escaped(name))
    }

    /// The name of a lock, from its node. `None` for what is no lock.
    pub(super) fn name(&self, path: &str) -> Option<Name> {
        let path = path.strip_prefix(&*self.chroot)?.strip_prefix('/')?;
        Name::new(unescaped(path)).ok()
    }
}

/// The path of a new entry, without its number.
pub(super) fn entry(lock: &str, token: &Token) -> String {
    format!("{lock}/{}", prefix(token))
}

/// What the name of an entry of this token begins with.
pub(super) fn prefix(token: &Token) -> String {
    let digest = sha1_smol::Sha1::from(&*token.text()).digest().bytes();
    let mut uuid = String::from("_c_");
    for (at, byte) in digest[..16].iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            uuid.push('-');
        }
        // Writing to a string does not fail.
        let _ = write!(uuid, "{byte:02x}");
    }
    uuid + "-" + LOCK
}

/// The number of an entry; `None` for a node that is none.
pub(super) fn number(entry: &str) -> Option<i64> {
    let (_, number) = entry.rsplit_once(LOCK)?;
    let is_number = number.len() >= 10 && number.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { number.parse().ok() } else { None }
}

/// What others may know the owner of an entry by.
pub(super) fn holder(entry: &str) -> Holder {
    let digits = entry.strip_prefix("_c_").and_then(|rest| rest.get(..8));
    match digits.and_then(|digits| read_hex(digits.as_bytes())) {
        Some(bytes) => Holder(bytes),
        None => Holder::of(entry.as_bytes()),
    }
}

/// What lies above a path, from the top on.
pub(super) fn above(path: &str) -> impl Iterator<Item = &str> {
    let slashes = path.char_indices().skip(1).filter(|(_, char)| *char == '/');
    slashes.map(|(end, _)| &path[..end])
}

fn escaped(name: &[u8]) -> String {
    let mut text = String::new();
    for chunk in name.utf8_chunks() {
        let valid = chunk.valid();
        for (at, char) in valid.char_indices() {
            let is_ambiguous = char == '%' && begins_with_digits(&valid.as_bytes()[at + 1..]);
            if is_ambiguous || char != '/' && !is_part_of(char) {
                let bytes = &valid.as_bytes()[at..at + char.len_utf8()];
                bytes.iter().for_each(|byte| push(&mut text, *byte));
            } else {
                text.push(char);
            }
        }
        chunk.invalid().iter().for_each(|byte| push(&mut text, *byte));
    }
    // Parts that no path has.
    let parts = text.split('/').map(|part| match part {
        "" => "%".to_owned(),
        "%" => "%25".to_owned(),
        "." | ".." => part.replace('.', "%2e"),
        part => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("/")
}

fn push(text: &mut String, byte: u8) {
    // Writing to a string does not fail.
    let _ = write!(text, "%{byte:02x}");
}

/// Whether it may stand in a part of a path.
fn is_part_of(char: char) -> bool {
    let mut part = [b'a'; 5];
    let length = char.encode_utf8(&mut part[1..]).len();
    std::str::from_utf8(&part[..=length]).is_ok_and(is_part)
}

fn begins_with_digits(text: &[u8]) -> bool {
    matches!(text, [one, other, ..] if one.is_ascii_hexdigit() && other.is_ascii_hexdigit())
}

fn unescaped(text: &str) -> Vec<u8> {
    let parts = text.split('/').map(|part| if part == "%" { "" } else { part });
    let text = parts.collect::<Vec<_>>().join("/");
    let (mut name, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, after @ ..] = rest {
        rest = after;
        let digits = after.get(..2).filter(|_| *first == b'%');
        match digits.and_then(read_hex::<1>) {
            Some([byte]) => {
                name.push(byte);
                rest = &after[2..];
            }
            None => name.push(*first),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::TokioRuntime;

    fn path(name: &[u8]) -> String {
        Paths::new("/x".to_owned()).lock(&Name::new(name).unwrap())
    }

    #[test]
    fn a_name_is_its_path() {
        assert_eq!(path(b"locks/nightly"), "/x/locks/nightly");
        assert_eq!(path(b"/locks/nightly"), "/x/locks/nightly", "as it is written in Java");
        assert_eq!(path("100 % ä".as_bytes()), "/x/100 % ä");
        assert_eq!(path(b"a\n%41"), "/x/a%0a%2541");
        assert_eq!(path(b"../a//b/"), "/x/%2e%2e/a/%/b/%");
        assert_eq!(path(b"/"), "/x/%/%");
    }

    #[test]
    fn names_are_told_apart_and_read_back() {
        let paths = Paths::new(String::new());
        let names: [&[u8]; 12] = [
            b"a", b"a/b", b"a%", b"a%0a", b"a\n", b"a/", b"a//", b".", b"%", b"\xff", b"\0",
            b"a/%/b",
        ];
        let mut seen = std::collections::BTreeSet::new();
        for name in names {
            let name = Name::new(name).unwrap();
            let path = paths.lock(&name);
            assert_eq!(paths.name(&path), Some(name), "{path}");
            assert!(seen.insert(path));
        }
    }

    #[tokio::test]
    async fn an_entry_is_called_as_curator_calls_it_and_shows_its_holder() {
        let token = Token::random(&TokioRuntime::current());
        let name = prefix(&token) + "0000000007";
        assert_eq!(name.len(), "_c_".len() + 36 + "-lock-".len() + 10);
        assert_eq!(number(&name), Some(7));
        assert_eq!(holder(&name), Holder::of(&token.text()));
        assert!(!token.text().as_str().contains(&name[3..11]));
        for other in ["config", "lock-", "lock-12", "x__READ__0000000001", "lock-000000000x"] {
            assert_eq!(number(other), None, "{other}");
        }
        assert_eq!(number("lock-0000000012"), Some(12), "without a UUID");
        assert_ne!(holder("lock-0000000012"), holder("lock-0000000013"));
    }

    #[test]
    fn what_lies_above_comes_from_the_top_on() {
        assert_eq!(above("/a/b/c").collect::<Vec<_>>(), ["/a", "/a/b"]);
        assert_eq!(above("/a").count(), 0);
    }
}
