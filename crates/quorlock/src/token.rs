//! What proves that a record is ours.

use std::fmt;

use crate::runtime::Runtime;

const RANDOM_BYTES: usize = 20;

/// 160 random bits, new for every acquisition and never shown: whoever knows a token can release
/// its lock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token([u8; 2 * RANDOM_BYTES]);

impl Token {
    /// A new token.
    pub fn random(runtime: &dyn Runtime) -> Self {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut random = [0; RANDOM_BYTES];
        runtime.random(&mut random);
        let mut text = [0; 2 * RANDOM_BYTES];
        for (pair, byte) in text.chunks_exact_mut(2).zip(random) {
            pair[0] = HEX[usize::from(byte >> 4)];
            pair[1] = HEX[usize::from(byte & 15)];
        }
        Self(text)
    }

    /// The text that is stored on the nodes. A secret.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::TokioRuntime;

    #[tokio::test]
    async fn is_hexadecimal_never_the_same_and_never_shown() {
        let runtime = TokioRuntime::current();
        let token = Token::random(&runtime);
        assert!(token.as_bytes().iter().all(u8::is_ascii_hexdigit));
        assert_ne!(token, Token::random(&runtime));
        assert_eq!(format!("{token:?}"), "Token(secret)");
    }
}
