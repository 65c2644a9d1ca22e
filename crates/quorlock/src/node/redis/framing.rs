//! Where one reply ends and the next begins, in what was read so far.

use super::resp::{self, MAX_REPLY, Refused, Value};

/// The longest message that is read, in bytes. A grant message is far shorter.
const MAX_PUSH: usize = 16 * 1_024;

/// No line that says how long something is takes more.
const MAX_HEADER: usize = 32;

/// Takes replies and messages off what was read.
///
/// What a caller has to keep until more comes is never longer than [`MAX_REPLY`]. A message that is
/// too long or of a strange form is passed over as it comes in, since anybody may send one to any
/// client; a reply like that is refused.
#[derive(Debug, Default)]
pub(super) struct Framing {
    /// The message that is being passed over.
    skip: Option<Skip>,
}

impl Framing {
    /// Takes the next reply or message off the start of `bytes`; `None` if there is no whole one.
    pub(super) fn next<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Value<'a>>, Refused> {
        loop {
            if let Some(skip) = &mut self.skip {
                if !skip.pass(bytes)? {
                    return Ok(None);
                }
                self.skip = None;
            }
            let is_push = match bytes.first() {
                None => return Ok(None),
                Some(kind) => *kind == b'>',
            };
            let most = if is_push { MAX_PUSH } else { MAX_REPLY };
            let within = &bytes[..bytes.len().min(most)];
            let refused = match resp::parse(within) {
                Ok(Some((value, length))) => {
                    *bytes = &bytes[length..];
                    return Ok(Some(value));
                }
                Ok(None) if within.len() < most => return Ok(None),
                Ok(None) => Refused::TooLong,
                Err(refused) => refused,
            };
            if !is_push {
                return Err(refused);
            }
            self.skip = Some(Skip::default());
        }
    }
}

/// Passes over one value of any size, and keeps nothing of it.
#[derive(Debug)]
struct Skip {
    /// So many values are still to come. One that holds others is gone as soon as its header is read.
    values: u64,
    /// So many bytes of a string, with the line end behind it.
    bytes: u64,
    /// Whether the rest of a line belongs to the value before.
    in_line: bool,
}

impl Default for Skip {
    fn default() -> Self {
        Self { values: 1, bytes: 0, in_line: false }
    }
}

impl Skip {
    /// Takes as much as possible off the start of `bytes`: what is left is a part of a header, or not
    /// of this value. Returns whether the value is over.
    fn pass(&mut self, bytes: &mut &[u8]) -> Result<bool, Refused> {
        while self.bytes > 0 || self.in_line || self.values > 0 {
            let passed = if self.bytes > 0 {
                self.pass_string(bytes)?
            } else if self.in_line {
                self.pass_line(bytes)
            } else {
                self.pass_header(bytes)?
            };
            if !passed {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn pass_string(&mut self, bytes: &mut &[u8]) -> Result<bool, Refused> {
        let inside = usize::try_from(self.bytes - 2).unwrap_or(usize::MAX).min(bytes.len());
        *bytes = &bytes[inside..];
        self.bytes -= inside as u64;
        if self.bytes > 2 || bytes.len() < 2 {
            return Ok(false);
        }
        *bytes = bytes.strip_prefix(b"\r\n").ok_or(Refused::Malformed)?;
        self.bytes = 0;
        Ok(true)
    }

    fn pass_line(&mut self, bytes: &mut &[u8]) -> bool {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        self.in_line = end.is_none();
        *bytes = end.map_or(&[], |end| &bytes[end + 1..]);
        end.is_some()
    }

    fn pass_header(&mut self, bytes: &mut &[u8]) -> Result<bool, Refused> {
        let Some(&kind) = bytes.first() else { return Ok(false) };
        if b"+-:,(#_".contains(&kind) {
            (self.values, self.in_line) = (self.values - 1, true);
            return Ok(true);
        }
        let within = &bytes[..bytes.len().min(MAX_HEADER)];
        let Some(end) = within.iter().position(|byte| *byte == b'\n') else {
            return if within.len() < MAX_HEADER { Ok(false) } else { Err(Refused::Malformed) };
        };
        let number = within[1..end.max(1)].strip_suffix(b"\r").and_then(resp::size);
        let number = number.ok_or(Refused::Malformed)?;
        *bytes = &bytes[end + 1..];
        if b"$!=".contains(&kind) {
            self.bytes = number.map_or(0, |length| length.saturating_add(2));
            self.values -= 1;
            return Ok(true);
        }
        let number = number.unwrap_or_default();
        let (inside, itself) = match kind {
            b'*' | b'~' | b'>' => (number, 1),
            b'%' => (number.saturating_mul(2), 1),
            // The value that it accompanies follows.
            b'|' => (number.saturating_mul(2), 0),
            _ => return Err(Refused::Malformed),
        };
        self.values = (self.values - itself).saturating_add(inside);
        Ok(true)
    }
}
