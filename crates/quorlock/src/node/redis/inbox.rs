//! Grant messages, which the server sends without being asked.

use super::resp::Value;
use crate::node::incoming::{Malformed, grant};
use crate::node::{ClientId, Grant};

/// Between the prefix of all keys and the id of a client: the channel on which it is notified.
const CHANNEL: &[u8] = b":quorlock:inbox:";

/// The channel of a client. It starts as the keys do, so that a user that is limited to a prefix listens
/// and publishes only there.
pub(super) fn channel(prefix: &[u8], client: ClientId) -> Vec<u8> {
    [prefix, CHANNEL, client.to_string().as_bytes()].concat()
}

/// Reads what the server said without being asked; `None` if it is nothing to act upon.
pub(super) fn read(parts: &[Value<'_>]) -> Result<Option<Grant>, Malformed> {
    // One channel is subscribed to, so that every message is for it.
    let [Value::Bulk(b"message"), _, text] = parts else { return Ok(None) };
    let Value::Bulk(text) = text else { return Err(Malformed) };
    grant(text).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::TokioRuntime;

    #[test]
    fn what_is_no_message_is_nothing_to_act_upon() {
        let invalidated = [Value::Bulk(b"invalidate"), Value::Array(vec![])];
        assert_eq!(read(&invalidated), Ok(None));
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[Value::Bulk(b"message"), Value::Null, Value::Null]), Err(Malformed));
        assert_eq!(
            read(&[Value::Bulk(b"message"), Value::Null, Value::Bulk(b"1")]),
            Err(Malformed)
        );
    }

    #[tokio::test]
    async fn a_channel_starts_as_the_keys_do() {
        let client = ClientId::random(&TokioRuntime::current());
        let text = |prefix: &[u8]| String::from_utf8(channel(prefix, client)).unwrap();
        assert_eq!(text(b""), format!(":quorlock:inbox:{client}"));
        assert_eq!(text(b"app a:"), format!("app a::quorlock:inbox:{client}"));
    }
}
