//! What proves that a message about a ticket comes from a node.
//!
//! A grant message is a vote, and nobody asked for it: it comes over a channel on which others may
//! publish, and nothing else in it is hard to guess. So each request for a ticket carries a secret, which
//! the node keeps with the ticket and repeats in the message.
//!
//! The secrets of a client are not stored: each is a digest, under one key, of the node, the ticket and
//! the moment of the request. A message is checked by computing it again. So a secret that has been
//! overheard is worth nothing for another node, another ticket or another request, and what a message
//! says of its request is known to be true.

use std::fmt;

use sha1_smol::Sha1;

use crate::runtime::{Moment, Runtime};
use crate::token::{read_hex, write_hex};

const BYTES: usize = 16;
const KEY_BYTES: usize = 32;

/// 128 bits that only a node and the waiter whose ticket it keeps know. Never shown.
///
/// Two are compared in the same time wherever they differ.
#[derive(Clone, Copy)]
pub struct Secret([u8; BYTES]);

impl Secret {
    /// The length of its text.
    pub const TEXT_BYTES: usize = 2 * BYTES;

    /// A new one.
    pub fn random(runtime: &dyn Runtime) -> Self {
        let mut bytes = [0; BYTES];
        runtime.random(&mut bytes);
        Self(bytes)
    }

    /// As hexadecimal digits, for a node to keep.
    #[must_use]
    pub fn text(&self) -> [u8; Self::TEXT_BYTES] {
        let mut text = [0; Self::TEXT_BYTES];
        write_hex(&self.0, &mut text);
        text
    }

    /// Reads the text of a secret; `None` if it is none.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        read_hex(text).map(Self)
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        let differ = self.0.iter().zip(&other.0).fold(0, |differ, (a, b)| differ | (a ^ b));
        std::hint::black_box(differ) == 0
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(secret)")
    }
}

/// The secrets of one client.
pub(crate) struct Secrets([u8; KEY_BYTES]);

impl Secrets {
    pub(crate) fn random(runtime: &dyn Runtime) -> Self {
        let mut key = [0; KEY_BYTES];
        runtime.random(&mut key);
        Self(key)
    }

    /// That of the request which was sent to `node` at that moment, for the ticket of `waiter`.
    ///
    /// All parts have a fixed length and fit into one block, so that no two inputs are the same and none
    /// can be continued.
    pub(crate) fn of(&self, node: usize, waiter: u64, sent: Moment) -> Secret {
        let mut digest = Sha1::new();
        digest.update(&self.0);
        // There are far fewer nodes.
        digest.update(&(node as u16).to_le_bytes());
        digest.update(&waiter.to_le_bytes());
        digest.update(&sent.as_nanos().to_le_bytes());
        let digest = digest.digest().bytes();
        let mut secret = [0; BYTES];
        secret.copy_from_slice(&digest[..BYTES]);
        Secret(secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::TokioRuntime;

    #[tokio::test]
    async fn each_request_to_each_node_has_its_own_that_nobody_else_can_compute() {
        let runtime = TokioRuntime::current();
        let secrets = Secrets::random(&runtime);
        let moment = Moment::from_nanos;
        let one = secrets.of(1, 2, moment(3));
        assert_eq!(one, secrets.of(1, 2, moment(3)));
        for other in [
            secrets.of(0, 2, moment(3)),
            secrets.of(1, 3, moment(3)),
            secrets.of(1, 2, moment(4)),
            secrets.of(2, 1, moment(3)),
            Secrets::random(&runtime).of(1, 2, moment(3)),
            Secret::random(&runtime),
        ] {
            assert_ne!(one, other);
        }
    }

    #[tokio::test]
    async fn is_never_shown_and_read_back_exactly() {
        let secret = Secret::random(&TokioRuntime::current());
        let text = secret.text();
        assert_eq!(Secret::parse(&text), Some(secret));
        assert_eq!(Secret::parse(&text[1..]), None);
        assert_eq!(Secret::parse(&[&text[..], b"0"].concat()), None);
        assert_eq!(Secret::parse(b"g0000000000000000000000000000000"), None);
        assert_eq!(format!("{secret:?}"), "Secret(secret)");
        for bit in 0..128 {
            let mut other = secret;
            other.0[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(secret, other, "they differ in bit {bit}");
        }
    }
}
