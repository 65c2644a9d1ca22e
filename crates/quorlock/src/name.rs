//! The name of a lock.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::Error;

/// The longest name, in bytes.
pub const MAX_NAME_BYTES: usize = 512;

/// Part of the keys that lie beside a lock on a Redis node, and so of no name: such a name would be the
/// queue or the fence of another lock, or the marker of the node.
pub(crate) const RESERVED: &[u8] = b":quorlock:";

/// The name of a lock: 1 to [`MAX_NAME_BYTES`] bytes, which need not be UTF-8, without `:quorlock:`.
///
/// Two names are the same lock only if every byte is the same.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(Arc<[u8]>);

impl Name {
    /// Checks a name.
    ///
    /// # Errors
    /// [`Error::Misuse`] if it is empty or too long, or has `:quorlock:` in it.
    pub fn new(name: impl AsRef<[u8]>) -> Result<Self, Error> {
        let bytes = name.as_ref();
        if bytes.is_empty() {
            return Err(Error::misuse(
                "the name of the lock is empty",
                "give it at least one byte, such as \"orders/42\"",
            ));
        }
        if bytes.len() > MAX_NAME_BYTES {
            let start = String::from_utf8_lossy(&bytes[..32]);
            return Err(Error::misuse(
                format!("the name starting with {start:?} is {} bytes long", bytes.len()),
                format!("use at most {MAX_NAME_BYTES} bytes, for example a hash of it"),
            ));
        }
        if is_reserved(bytes) {
            return Err(reserved(bytes));
        }
        Ok(Self(bytes.into()))
    }

    /// For requests that are about no lock.
    pub(crate) fn of_no_lock() -> Self {
        Self(Arc::from(&b"-"[..]))
    }

    /// Checks a name to which `prefix` is put on Redis nodes: together they must not form what no name
    /// may have either.
    pub(crate) fn behind(prefix: &[u8], name: impl AsRef<[u8]>) -> Result<Self, Error> {
        let name = Self::new(name)?;
        let mut splits = (1..RESERVED.len()).map(|at| RESERVED.split_at(at));
        if splits.any(|(a, b)| prefix.ends_with(a) && name.0.starts_with(b)) {
            return Err(reserved(&[prefix, &name.0].concat()));
        }
        Ok(name)
    }

    /// The bytes of the name, without any prefix that a node puts before it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Whether these bytes have something in them that belongs to the keys beside a lock.
pub(crate) fn is_reserved(bytes: &[u8]) -> bool {
    let mut colons = bytes.iter().enumerate().filter(|(_, byte)| **byte == RESERVED[0]);
    colons.any(|(at, _)| bytes[at..].starts_with(RESERVED))
}

fn reserved(key: &[u8]) -> Error {
    Error::misuse(
        format!(
            "\"{}\" has \":quorlock:\" in it, as the keys have that lie beside a lock",
            key.escape_ascii()
        ),
        "choose another name or a prefix, such as one with \"/\" in place of \":\"",
    )
}

/// Without the length that slices put before their bytes: it costs a third of the whole, several times
/// for each lock, and names are hashed alone.
impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.0);
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_any_bytes_within_its_length() {
        for name in [&b"a"[..], b"\xff\x00", b"with space:{brace}", &[b'x'; MAX_NAME_BYTES]] {
            assert_eq!(Name::new(name).unwrap().as_bytes(), name);
        }
        assert_eq!(Name::new(b"\xffz").unwrap().to_string(), "\\xffz");
    }

    #[test]
    fn no_name_is_a_key_that_lies_beside_a_lock() {
        for name in [
            &b":quorlock:node"[..],
            b"a:quorlock:queue",
            b"a:quorlock:",
            b":quorlock:",
            b"::quorlock:fence",
            b"\xff:quorlock:\xff",
        ] {
            let error = Name::new(name).unwrap_err().to_string();
            let shown = name.escape_ascii().to_string();
            assert!(error.contains(&shown) && error.contains("choose another name"), "{error}");
        }
        for name in ["quorlock", ":quorlock", "quorlock:node", "a:quorlock-x", ":Quorlock:node"] {
            Name::new(name).unwrap();
        }
    }

    #[test]
    fn nor_is_it_one_together_with_the_prefix() {
        for (prefix, name) in [
            ("a:", "quorlock:node"),
            ("a:quorlock", ":node"),
            (":", "quorlock:"),
            ("a:quor", "lock:fence"),
            (":quorlock", ":"),
        ] {
            let error = Name::behind(prefix.as_bytes(), name).unwrap_err().to_string();
            assert!(error.contains(&format!("\"{prefix}{name}\"")), "{error}");
        }
        for (prefix, name) in
            [("", "quorlock:node"), ("a:", "quorlock"), ("a", "quorlock:node"), ("a:quorlock", "b")]
        {
            assert_eq!(Name::behind(prefix.as_bytes(), name).unwrap().as_bytes(), name.as_bytes());
        }
    }

    #[test]
    fn refusals_name_the_length_and_the_limit() {
        let empty = Name::new("").unwrap_err().to_string();
        assert!(empty.contains("empty") && empty.contains("at least one byte"), "{empty}");
        let long = Name::new("n".repeat(1_024)).unwrap_err().to_string();
        assert!(long.contains("1024 bytes") && long.contains("512"), "{long}");
    }
}
