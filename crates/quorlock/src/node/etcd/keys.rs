//! Which keys there are, all behind the prefix of the URL.
//!
//! | key | what | ends |
//! | --- | --- | --- |
//! | `state/NAME` | fence, note and queue of a lock | a day after the last write |
//! | `hold/NAME/WHO-SECONDS` | one of those who hold it: its token | with its lease |
//! | `client/ID` | a client that waits | with its lease, or when it has gone |
//! | `grant/ID/WAITER` | a grant message for it | with its lease |
//! | `rest` | the lease that states share | with that lease |

use crate::name::Name;
use crate::node::{ClientId, ParticipantId};

/// The maker of a lock, in the key of its hold.
const MAKER: &str = "maker";

/// Keys behind one prefix.
#[derive(Debug)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) fn new(prefix: String) -> Self {
        Self { prefix }
    }

    pub(super) fn state(&self, name: &Name) -> Vec<u8> {
        format!("{}state/{}", self.prefix, escaped(name.as_bytes())).into_bytes()
    }

    /// What the keys of all holds of a lock begin with.
    pub(super) fn holds(&self, name: &Name) -> Vec<u8> {
        format!("{}hold/{}/", self.prefix, escaped(name.as_bytes())).into_bytes()
    }

    pub(super) fn hold(&self, name: &Name, who: Option<ParticipantId>, seconds: u64) -> Vec<u8> {
        let mut key = self.holds(name);
        let who = who.map_or_else(|| MAKER.to_owned(), |who| who.to_string());
        key.extend_from_slice(format!("{who}-{seconds}").as_bytes());
        key
    }

    /// What the keys of all holds begin with.
    pub(super) fn all_holds(&self) -> Vec<u8> {
        format!("{}hold/", self.prefix).into_bytes()
    }

    pub(super) fn client(&self, client: ClientId) -> Vec<u8> {
        format!("{}client/{client}", self.prefix).into_bytes()
    }

    /// What the keys of all messages for a client begin with.
    pub(super) fn grants(&self, client: ClientId) -> Vec<u8> {
        format!("{}grant/{client}/", self.prefix).into_bytes()
    }

    pub(super) fn grant(&self, client: ClientId, waiter: u64) -> Vec<u8> {
        let mut key = self.grants(client);
        key.extend_from_slice(waiter.to_string().as_bytes());
        key
    }

    pub(super) fn rest(&self) -> Vec<u8> {
        format!("{}rest", self.prefix).into_bytes()
    }

    /// Who a hold is of, and for how many seconds, from its key.
    pub(super) fn parse_hold(
        &self,
        name: &Name,
        key: &[u8],
    ) -> Option<(Option<ParticipantId>, u64)> {
        let rest = std::str::from_utf8(key.strip_prefix(&*self.holds(name))?).ok()?;
        let (who, seconds) = rest.rsplit_once('-')?;
        let who = match who {
            MAKER => None,
            who => Some(ParticipantId(u64::from_str_radix(who, 16).ok()?)),
        };
        Some((who, seconds.parse().ok()?))
    }

    /// The name of the lock, from the key of a hold.
    pub(super) fn parse_name(&self, key: &[u8]) -> Option<Name> {
        let rest = key.strip_prefix(&*self.all_holds())?;
        let end = rest.iter().rposition(|byte| *byte == b'/')?;
        Name::new(unescaped(&rest[..end])?).ok()
    }
}

/// The end of all keys that begin like this.
pub(super) fn end_of(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.last_mut() {
        if *last < u8::MAX {
            *last += 1;
            return end;
        }
        end.pop();
    }
    vec![0]
}

/// A name without what separates, and readable as far as it goes.
fn escaped(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name {
        match byte {
            b'%' | b'/' | 0..=b' ' | 0x7f.. => text.push_str(&format!("%{byte:02x}")),
            byte => text.push(char::from(*byte)),
        }
    }
    text
}

fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let mut name = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        if *byte != b'%' {
            name.push(*byte);
            continue;
        }
        let digits = [*rest.next()?, *rest.next()?];
        name.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart_and_read_back() {
        let keys = Keys::new("p/".to_owned());
        let names =
            [&b"a"[..], b"a/", b"a/b", b"a%2fb", b"%", b"\x00\xff \x7f", "\u{e9}".as_bytes()];
        let mut seen = Vec::new();
        for name in names {
            let name = Name::new(name).unwrap();
            let who = Some(ParticipantId(7));
            for (who, seconds) in [(None, 12), (who, 3)] {
                let key = keys.hold(&name, who, seconds);
                assert_eq!(keys.parse_hold(&name, &key), Some((who, seconds)));
                assert_eq!(keys.parse_name(&key), Some(name.clone()));
            }
            seen.push(keys.holds(&name));
        }
        for (index, one) in seen.iter().enumerate() {
            let inside = seen.iter().filter(|other| other.starts_with(one)).count();
            assert_eq!(inside, 1, "{index}: no lock lies in the range of another");
        }
    }

    #[test]
    fn a_range_ends_behind_all_that_begin_like_it() {
        assert_eq!(end_of(b"a/"), b"a0");
        assert_eq!(end_of(b"a\xff"), b"b");
        assert_eq!(end_of(b"\xff"), b"\0");
    }
}
