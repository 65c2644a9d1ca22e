//! Which nodes there are, all below the chroot of the URL.
//!
//! | node | what | lives |
//! | --- | --- | --- |
//! | `locks/BUCKET` | its version counts how often something was deleted from it | for ever |
//! | `locks/BUCKET/NAME` | a lock: its holds, fence, note and queue | until a day after the last write |
//! | `clients/ID` | a client that waits | until it is empty |
//! | `clients/ID/alive` | the sign that it is there | as long as its session |
//! | `clients/ID/grant-…` | a grant message for it: the name says it all | until it is read |
//!
//! Names are spread over buckets, so that the list of one of them fits into a message.

use sha1_smol::Sha1;

use crate::name::Name;
use crate::node::ClientId;

/// How many buckets there are.
pub(super) const BUCKETS: usize = 256;

/// Paths below one chroot.
#[derive(Debug)]
pub(super) struct Keys {
    chroot: String,
}

impl Keys {
    pub(super) fn new(chroot: String) -> Self {
        Self { chroot }
    }

    pub(super) fn chroot(&self) -> &str {
        &self.chroot
    }

    pub(super) fn locks(&self) -> String {
        format!("{}/locks", self.chroot)
    }

    pub(super) fn clients(&self) -> String {
        format!("{}/clients", self.chroot)
    }

    /// Everything that has to be there before a lock can be taken, in the order in which it is created.
    pub(super) fn roots(&self) -> Vec<String> {
        let slashes = self.chroot.char_indices().skip(1).filter(|(_, char)| *char == '/');
        let above = slashes.map(|(at, _)| self.chroot[..at].to_owned());
        above.chain([self.chroot.clone(), self.locks(), self.clients()]).collect()
    }

    /// The path of a bucket.
    pub(super) fn bucket(&self, bucket: usize) -> String {
        format!("{}/locks/{bucket:02x}", self.chroot)
    }

    /// The path of a lock.
    pub(super) fn lock(&self, name: &Name) -> String {
        format!("{}/{}", self.bucket(bucket_of(name)), escaped(name.as_bytes()))
    }

    pub(super) fn client(&self, client: ClientId) -> String {
        format!("{}/clients/{client}", self.chroot)
    }

    /// The sign that a client is there.
    pub(super) fn alive(&self, client: ClientId) -> String {
        format!("{}/clients/{client}/alive", self.chroot)
    }
}

/// Where a lock lies.
pub(super) fn bucket_of(name: &Name) -> usize {
    usize::from(Sha1::from(name.as_bytes()).digest().bytes()[0])
}

/// The name of the lock of a child of a bucket.
pub(super) fn parse_name(child: &str) -> Option<Name> {
    Name::new(unescaped(child.as_bytes())?).ok()
}

/// A name as a part of a path, readable as far as it goes. A part cannot be one or two dots alone.
fn escaped(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for (at, byte) in name.iter().enumerate() {
        match byte {
            b'.' if at == 0 => text.push_str("%2e"),
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
    use std::collections::HashSet;

    use super::*;

    fn last(path: &str) -> &str {
        path.rsplit('/').next().unwrap_or_default()
    }

    #[test]
    fn names_are_told_apart_and_read_back() {
        let keys = Keys::new("/p".to_owned());
        let mut names: Vec<Vec<u8>> = [
            &b"."[..],
            b"..",
            b"...",
            b".a",
            b"%2e",
            b"a/",
            b"a/b",
            b"a%2fb",
            b"zookeeper",
            b"\x00\xff \x7f",
            b"\xc2\x80\xef\xbf\xbf",
        ]
        .map(<[u8]>::to_vec)
        .to_vec();
        names.extend((0..=u8::MAX).flat_map(|byte| [vec![byte], vec![b'a', byte]]));
        names.sort_unstable();
        names.dedup();
        let mut paths = HashSet::new();
        for bytes in names {
            let name = Name::new(&bytes).unwrap();
            let path = keys.lock(&name);
            let part = last(&path);
            assert!(part.bytes().all(|byte| byte.is_ascii_graphic()), "{path}");
            assert!(part != "." && part != "..", "{path}");
            assert_eq!(path.matches('/').count(), 4, "{path}");
            assert_eq!(parse_name(part), Some(name));
            assert!(paths.insert(path.clone()), "{path} stands for two");
        }
    }

    #[test]
    fn all_above_the_locks_is_created_first() {
        let roots = Keys::new("/a/b".to_owned()).roots();
        assert_eq!(roots, ["/a", "/a/b", "/a/b/locks", "/a/b/clients"]);
    }
}
