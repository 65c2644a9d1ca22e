//! Which keys there are: `PREFIX NAME / ID`, one for each who holds the lock or waits for it.
//!
//! The id of Go's clients is that of their lease, in hexadecimal digits. Ours looks the same, and is a digest of the
//! token: whoever has the token finds the key, and nobody finds the token by the key. It begins as the
//! [`Holder`](crate::node::Holder) is shown.
//!
//! Go counts everything that begins with `NAME/` among those who want the lock, and so the keys of a lock `NAME/OTHER`
//! too. Here only those count that have no slash behind that, which is as safe: of any two who want `NAME`, each counts
//! the other.

use std::fmt::Write as _;

use crate::name::Name;
use crate::token::Token;

/// So many bytes of the digest. Go's ids are as long.
const ID_BYTES: usize = 8;

/// Keys behind one prefix.
#[derive(Debug)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    pub(super) fn new(prefix: String) -> Self {
        Self { prefix }
    }

    /// What the keys of all who want a lock begin with.
    pub(super) fn line(&self, name: &Name) -> Vec<u8> {
        [self.prefix.as_bytes(), name.as_bytes(), b"/"].concat()
    }

    /// The key of who has this token.
    pub(super) fn of(&self, name: &Name, token: &Token) -> Vec<u8> {
        let mut id = String::with_capacity(2 * ID_BYTES);
        let digest = sha1_smol::Sha1::from(&*token.text()).digest().bytes();
        for byte in &digest[..ID_BYTES] {
            // Writing to a string does not fail.
            let _ = write!(id, "{byte:02x}");
        }
        [&*self.line(name), id.as_bytes()].concat()
    }

    /// What all keys begin with.
    pub(super) fn all(&self) -> Vec<u8> {
        self.prefix.clone().into_bytes()
    }

    /// The line that a key stands in; `None` if it stands in none.
    pub(super) fn line_of(key: &[u8]) -> Option<&[u8]> {
        let slash = key.iter().rposition(|byte| *byte == b'/')?;
        Some(&key[..=slash])
    }

    /// The name of the lock that has this line.
    pub(super) fn name_of(&self, line: &[u8]) -> Option<Name> {
        let name = line.strip_prefix(self.prefix.as_bytes())?.strip_suffix(b"/")?;
        Name::new(name).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Holder;
    use crate::runtime::TokioRuntime;

    #[tokio::test]
    async fn a_key_names_its_line_and_its_holder_but_not_its_token() {
        let keys = Keys::new("p/".to_owned());
        let token = Token::random(&TokioRuntime::current());
        for name in [&b"a"[..], b"a/b", b"/a/", b"\x00\xff%"] {
            let name = Name::new(name).unwrap();
            let key = keys.of(&name, &token);
            let line = Keys::line_of(&key).unwrap();
            assert_eq!((line, keys.name_of(line)), (&*keys.line(&name), Some(name)));
            let id = std::str::from_utf8(&key[line.len()..]).unwrap();
            assert_eq!(id.len(), 2 * ID_BYTES);
            assert_eq!(format!("#{}", &id[..8]), Holder::of(&token.text()).to_string());
            assert!(!token.text().as_str().contains(id));
        }
        assert_eq!(Keys::line_of(b"no slash"), None);
        assert_eq!(keys.name_of(b"other/"), None);
        assert_eq!(keys.name_of(b"p/"), None, "no name is empty");
    }
}
