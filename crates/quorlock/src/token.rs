//! What proves that a record is ours.

use std::fmt;
use std::ops::Deref;

use crate::runtime::Runtime;

const RANDOM_BYTES: usize = 20;
const OWNER_BYTES: usize = 12;
/// Before every token, so that it is known whose release tells waiters of itself.
const MARK: &[u8] = b"ql:";
const RANDOM_END: usize = MARK.len() + 2 * RANDOM_BYTES;
const LONGEST: usize = RANDOM_END + 1 + 2 * OWNER_BYTES;

/// 160 random bits, new for every acquisition and never shown: anyone who knows a token can release
/// its lock.
///
/// The token of an [`Owner`](crate::Owner) carries the owner's id as well, so that another process
/// which was given the id finds out from the nodes that the lock is held for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token {
    random: [u8; RANDOM_BYTES],
    /// All zeros if it has none, since every held lock keeps a token.
    owner: OwnerId,
}

/// Names an owner to other processes. As secret as a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct OwnerId([u8; OWNER_BYTES]);

impl Token {
    /// A new token of nobody in particular.
    pub fn random(runtime: &dyn Runtime) -> Self {
        Self::owned(runtime, None)
    }

    /// A new token of an owner.
    pub(crate) fn owned(runtime: &dyn Runtime, owner: Option<OwnerId>) -> Self {
        let mut random = [0; RANDOM_BYTES];
        runtime.random(&mut random);
        Self { random, owner: owner.unwrap_or(OwnerId::NOBODY) }
    }

    /// The text that is stored on the nodes. A secret.
    #[must_use]
    pub fn text(&self) -> TokenText {
        let mut bytes = [0; LONGEST];
        bytes[..MARK.len()].copy_from_slice(MARK);
        write_hex(&self.random, &mut bytes[MARK.len()..RANDOM_END]);
        let Some(owner) = self.owner() else {
            return TokenText { bytes, length: RANDOM_END };
        };
        bytes[RANDOM_END] = b':';
        write_hex(&owner.0, &mut bytes[RANDOM_END + 1..]);
        TokenText { bytes, length: LONGEST }
    }

    /// Reads the text of a token; `None` if it is not one of this library's.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = text.strip_prefix(MARK)?;
        let (random, owner) = text.split_at_checked(2 * RANDOM_BYTES)?;
        let owner = match owner.split_first() {
            None => OwnerId::NOBODY,
            Some((b':', owner)) => OwnerId(read_hex(owner)?),
            Some(_) => return None,
        };
        Some(Self { random: read_hex(random)?, owner })
    }

    /// For whom it was taken, if for anybody in particular.
    pub(crate) fn owner(&self) -> Option<OwnerId> {
        (self.owner != OwnerId::NOBODY).then_some(self.owner)
    }
}

impl OwnerId {
    const NOBODY: Self = Self([0; OWNER_BYTES]);

    pub(crate) fn random(runtime: &dyn Runtime) -> Self {
        let mut bytes = [0; OWNER_BYTES];
        runtime.random(&mut bytes);
        Self(bytes)
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        read_hex(text.as_bytes()).map(Self).filter(|id| *id != Self::NOBODY)
    }

    pub(crate) fn text(self) -> String {
        let mut bytes = [0; 2 * OWNER_BYTES];
        write_hex(&self.0, &mut bytes);
        bytes.iter().copied().map(char::from).collect()
    }
}

/// The text of a token, as the nodes store it. Not to be shown, and so without `Display`.
#[derive(Clone, Copy)]
pub struct TokenText {
    bytes: [u8; LONGEST],
    length: usize,
}

impl TokenText {
    /// The text, for a caller that has to write it down.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // All of it is ASCII.
        std::str::from_utf8(self).unwrap_or_default()
    }
}

impl AsRef<[u8]> for TokenText {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Deref for TokenText {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Both digits of every byte: a token is written for each command to each node.
static HEX: [[u8; 2]; 256] = {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < pairs.len() {
        pairs[byte] = [DIGITS[byte >> 4], DIGITS[byte & 15]];
        byte += 1;
    }
    pairs
};

pub(crate) fn write_hex(bytes: &[u8], text: &mut [u8]) {
    for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&HEX[usize::from(*byte)]);
    }
}

pub(crate) fn read_hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(secret)")
    }
}

impl fmt::Debug for TokenText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenText(secret)")
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnerId(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::TokioRuntime;

    #[tokio::test]
    async fn is_never_the_same_never_shown_and_read_back_exactly() {
        let runtime = TokioRuntime::current();
        let token = Token::random(&runtime);
        let owned = Token::owned(&runtime, Some(OwnerId::random(&runtime)));
        assert_ne!(token, Token::random(&runtime));
        assert_eq!(format!("{token:?} {:?}", token.text()), "Token(secret) TokenText(secret)");
        for token in [token, owned] {
            let text = token.text();
            assert_eq!(Token::parse(&text), Some(token));
            assert_eq!(Token::parse(&text[..text.len() - 1]), None);
            assert_eq!(Token::parse(&[&text[..], b"0"].concat()), None);
            assert_eq!(Token::parse(&text.to_ascii_uppercase()), None);
        }
    }

    #[tokio::test]
    async fn the_id_of_an_owner_goes_through_text() {
        let id = OwnerId::random(&TokioRuntime::current());
        assert_eq!(OwnerId::parse(&id.text()), Some(id));
        assert_eq!(OwnerId::parse("not an id"), None);
        assert_eq!(format!("{id:?}"), "OwnerId(secret)");
    }
}
