//! What we write into our entries. The other libraries do not look at that.

use std::fmt::Write as _;
use std::time::Duration;

use crate::node::cas::unescaped;
use crate::node::{ClientId, Holder, noted};
use crate::token::Token;

/// The first line of every value.
const FIRST: &str = "quorlock mutex 1";
/// No more than this is read: no value of this library is as large.
const MOST_BYTES: usize = 1 << 16;

/// What is kept of one who holds the lock or waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::node) struct Value {
    pub(in crate::node) token: Token,
    /// The longest TTL that it was asked for: no write is for less, so that none ends the entry earlier than another
    /// before it.
    pub(in crate::node) ttl: Duration,
    /// About when the entry ends, by the time of day: for people. Of no meaning where entries end with a session.
    pub(in crate::node) until_us: u64,
    /// Whether its holder has a fence.
    pub(in crate::node) is_fenced: bool,
    /// The client that waited with it, so that others see which of them are there.
    pub(in crate::node) waited: Option<ClientId>,
    /// What the holder says of itself, and until when that is shown, by the time of day.
    pub(in crate::node) note: Option<(u64, String)>,
}

impl Value {
    pub(in crate::node) fn new(token: &Token, is_fenced: bool, waited: Option<ClientId>) -> Self {
        let (ttl, until_us, note) = (Duration::ZERO, 0, None);
        Self { token: *token, ttl, until_us, is_fenced, waited, note }
    }

    /// The same, to be kept for so long from then on, by the time of day, and for no less than before.
    pub(in crate::node) fn kept(mut self, ttl: Duration, wall_us: u64) -> Self {
        self.ttl = self.ttl.max(ttl);
        self.until_us = self.until_us.max(wall_us.saturating_add(micros(ttl)));
        self
    }

    /// The same with another note, or without one.
    pub(in crate::node) fn with_note(mut self, note: &str, keep: Duration, wall_us: u64) -> Self {
        let until_us = wall_us.saturating_add(micros(keep));
        let holder = Holder::of(&self.token.text());
        self.note = (!note.is_empty()).then(|| (until_us, noted(holder, note)));
        self
    }

    /// As text that people can read.
    pub(in crate::node) fn encode(&self) -> Vec<u8> {
        let Self { token, ttl, until_us, is_fenced, waited, note } = self;
        let mut text = format!("{FIRST}\n");
        // Writing to a string does not fail.
        let _ = writeln!(text, "token {}", token.text().as_str());
        let _ = writeln!(text, "ttl {}", micros(*ttl));
        let _ = writeln!(text, "until {until_us}");
        if *is_fenced {
            text.push_str("fenced\n");
        }
        if let Some(client) = waited {
            let _ = writeln!(text, "waited {client}");
        }
        if let Some((until_us, note)) = note {
            let _ = writeln!(text, "note {until_us} {}", note.escape_default());
        }
        text.into_bytes()
    }

    /// Reads such a text; `None` if it is something else, or of a later version of this library.
    pub(in crate::node) fn decode(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes.get(..bytes.len().min(MOST_BYTES))?).ok()?;
        let mut lines = text.lines();
        lines.next().filter(|first| *first == FIRST)?;
        let token = lines.next()?.strip_prefix("token ")?;
        let mut value = Self::new(&Token::parse(token.as_bytes())?, false, None);
        for line in lines {
            let (what, rest) = line.split_once(' ').unwrap_or((line, ""));
            match what {
                "ttl" => value.ttl = Duration::from_micros(rest.parse().ok()?),
                "until" => value.until_us = rest.parse().ok()?,
                "fenced" => value.is_fenced = true,
                "waited" => value.waited = Some(ClientId(u64::from_str_radix(rest, 16).ok()?)),
                "note" => {
                    let (until_us, note) = rest.split_once(' ')?;
                    value.note = Some((until_us.parse().ok()?, unescaped(note)?));
                }
                _ => return None,
            }
        }
        Some(value)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::TokioRuntime;

    #[tokio::test]
    async fn what_is_written_is_read() {
        let s = Duration::from_secs;
        let token = Token::random(&TokioRuntime::current());
        let plain = Value::new(&token, false, None);
        let full = Value::new(&token, true, Some(ClientId(7))).kept(s(10), 5_000_000).with_note(
            "a \"note\"\nin two lines, ä",
            s(1),
            7,
        );
        for value in [plain, full.clone()] {
            assert_eq!(Value::decode(&value.encode()), Some(value));
        }
        let kept = full.clone().kept(s(3), 6_000_000);
        assert_eq!((kept.ttl, kept.until_us), (s(10), 15_000_000), "never shorter");
        assert_eq!(full.with_note("", s(1), 0).note, None);
        for text in
            ["", "quorlock 1\nfence 1\n", "quorlock mutex 1\n", "quorlock mutex 1\ntoken x\n"]
        {
            assert_eq!(Value::decode(text.as_bytes()), None, "{text:?}");
        }
        let later = [&*Value::new(&token, false, None).encode(), b"colour red\n"].concat();
        assert_eq!(Value::decode(&later), None);
        assert_eq!(Value::decode(b"\xff"), None);
    }
}
