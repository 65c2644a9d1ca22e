//! The name of a lock.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::Error;

/// The longest name, in bytes.
pub const MAX_NAME_BYTES: usize = 512;

/// The name of a lock: 1 to [`MAX_NAME_BYTES`] bytes, which need not be UTF-8.
///
/// Two names are the same lock only if every byte is the same.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(Arc<[u8]>);

impl Name {
    /// Checks a name.
    ///
    /// # Errors
    /// [`Error::Misuse`] if it is empty or too long.
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
        Ok(Self(bytes.into()))
    }

    /// For requests that are about no lock.
    pub(crate) fn of_no_lock() -> Self {
        Self(Arc::from(&b"-"[..]))
    }

    /// The bytes of the name, without any prefix that a node puts before it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
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
    fn refusals_name_the_length_and_the_limit() {
        let empty = Name::new("").unwrap_err().to_string();
        assert!(empty.contains("empty") && empty.contains("at least one byte"), "{empty}");
        let long = Name::new("n".repeat(1_024)).unwrap_err().to_string();
        assert!(long.contains("1024 bytes") && long.contains("512"), "{long}");
    }
}
