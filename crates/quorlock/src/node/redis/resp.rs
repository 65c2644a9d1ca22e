//! The wire format of Redis, version 3.

/// A reply, as it lies in the read buffer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value<'a> {
    Null,
    Simple(&'a [u8]),
    Error(&'a [u8]),
    Int(i64),
    Bulk(&'a [u8]),
    Array(Vec<Value<'a>>),
    /// Keys and values in turn.
    Map(Vec<Value<'a>>),
    /// Not a reply: the server speaks without being asked.
    Push(Vec<Value<'a>>),
}

/// Bytes that are no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// No reply to one of our commands is longer.
const MAX_BULK: usize = 1 << 20;
const MAX_ITEMS: usize = 4_096;
const MAX_DEPTH: usize = 8;

/// Reads one reply from the start of `bytes`; `None` if it is not whole yet. Returns its length.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Value<'_>, usize)>, Malformed> {
    let mut reader = Reader { bytes, at: 0 };
    match reader.value(0) {
        Ok(value) => Ok(Some((value, reader.at))),
        Err(Stop::Incomplete) => Ok(None),
        Err(Stop::Malformed) => Err(Malformed),
    }
}

enum Stop {
    Incomplete,
    Malformed,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Result<Value<'a>, Stop> {
        if depth > MAX_DEPTH {
            return Err(Stop::Malformed);
        }
        let line = self.line()?;
        let (&kind, rest) = line.split_first().ok_or(Stop::Malformed)?;
        match kind {
            // Simple strings, and the kinds that only matter as text here: doubles, big numbers.
            b'+' | b',' | b'(' => Ok(Value::Simple(rest)),
            b'-' => Ok(Value::Error(rest)),
            b':' => Ok(Value::Int(int(rest)?)),
            b'#' => match rest {
                b"t" => Ok(Value::Int(1)),
                b"f" => Ok(Value::Int(0)),
                _ => Err(Stop::Malformed),
            },
            b'_' => Ok(Value::Null),
            b'$' => Ok(self.bulk(rest)?.map_or(Value::Null, Value::Bulk)),
            b'!' => Ok(self.bulk(rest)?.map_or(Value::Null, Value::Error)),
            // A verbatim string starts with its format, as in "txt:".
            b'=' => match self.bulk(rest)? {
                Some(text) => Ok(Value::Bulk(text.get(4..).ok_or(Stop::Malformed)?)),
                None => Ok(Value::Null),
            },
            b'*' | b'~' => Ok(self.items(rest, 1, depth)?.map_or(Value::Null, Value::Array)),
            b'>' => Ok(self.items(rest, 1, depth)?.map_or(Value::Null, Value::Push)),
            b'%' => Ok(self.items(rest, 2, depth)?.map_or(Value::Null, Value::Map)),
            // Attributes only accompany the value that follows.
            b'|' => {
                self.items(rest, 2, depth)?;
                self.value(depth + 1)
            }
            _ => Err(Stop::Malformed),
        }
    }

    /// The bytes up to the next line end, which is passed.
    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.at..];
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            return Err(if rest.len() > MAX_BULK { Stop::Malformed } else { Stop::Incomplete });
        };
        self.at += end + 1;
        rest[..end].strip_suffix(b"\r").ok_or(Stop::Malformed)
    }

    fn bulk(&mut self, length: &[u8]) -> Result<Option<&'a [u8]>, Stop> {
        let Some(length) = size(length, MAX_BULK)? else { return Ok(None) };
        let rest = &self.bytes[self.at..];
        let body = rest.get(..length + 2).ok_or(Stop::Incomplete)?;
        self.at += length + 2;
        body.strip_suffix(b"\r\n").map(Some).ok_or(Stop::Malformed)
    }

    fn items(
        &mut self,
        count: &[u8],
        each: usize,
        depth: usize,
    ) -> Result<Option<Vec<Value<'a>>>, Stop> {
        let Some(count) = size(count, MAX_ITEMS)? else { return Ok(None) };
        (0..count * each).map(|_| self.value(depth + 1)).collect::<Result<_, _>>().map(Some)
    }
}

fn int(text: &[u8]) -> Result<i64, Stop> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Stop::Malformed)
}

/// A length; `None` for −1, which older replies use for "nothing".
fn size(text: &[u8], most: usize) -> Result<Option<usize>, Stop> {
    match int(text)? {
        -1 => Ok(None),
        length => match usize::try_from(length) {
            Ok(length) if length <= most => Ok(Some(length)),
            _ => Err(Stop::Malformed),
        },
    }
}

/// Writes commands.
pub(super) struct Command<'a>(&'a mut Vec<u8>);

impl<'a> Command<'a> {
    /// Starts a command of so many parts, its name included.
    pub(super) fn new(out: &'a mut Vec<u8>, parts: usize) -> Self {
        header(out, b'*', parts);
        Self(out)
    }

    /// Goes on with parts that are always the same, as [`part`] or somebody's hand has written them.
    pub(super) fn written(self, parts: &[u8]) -> Self {
        self.0.extend_from_slice(parts);
        self
    }

    pub(super) fn arg(self, bytes: &[u8]) -> Self {
        header(self.0, b'$', bytes.len());
        self.0.extend_from_slice(bytes);
        self.0.extend_from_slice(b"\r\n");
        self
    }

    /// One argument in two pieces.
    pub(super) fn arg2(self, first: &[u8], second: &[u8]) -> Self {
        header(self.0, b'$', first.len() + second.len());
        self.0.extend_from_slice(first);
        self.0.extend_from_slice(second);
        self.0.extend_from_slice(b"\r\n");
        self
    }

    pub(super) fn number(self, number: u64) -> Self {
        let mut digits = [0; 20];
        let start = decimal(number, &mut digits);
        self.arg(&digits[start..])
    }
}

/// One part of a command, to be [written](Command::written) again and again.
pub(super) fn part(bytes: &[u8]) -> Vec<u8> {
    let mut part = Vec::new();
    Command(&mut part).arg(bytes);
    part
}

/// Almost every part is shorter than a hundred bytes, and each of them has a header.
fn header(out: &mut Vec<u8>, kind: u8, number: usize) {
    match number {
        0..10 => out.extend_from_slice(&[kind, b'0' + number as u8, b'\r', b'\n']),
        10..100 => {
            let [tens, ones] = TWO_DIGITS[number];
            out.extend_from_slice(&[kind, tens, ones, b'\r', b'\n']);
        }
        _ => {
            let mut digits = [0; 20];
            let start = decimal(number as u64, &mut digits);
            out.push(kind);
            out.extend_from_slice(&digits[start..]);
            out.extend_from_slice(b"\r\n");
        }
    }
}

static TWO_DIGITS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < pairs.len() {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
};

/// Writes a number to the end of `digits` and returns where it starts: formatting it by way of
/// `fmt` costs several times as much, for each argument of each command.
fn decimal(mut number: u64, digits: &mut [u8; 20]) -> usize {
    let mut at = digits.len();
    while number >= 10 {
        at -= 2;
        digits[at..at + 2].copy_from_slice(&TWO_DIGITS[(number % 100) as usize]);
        number /= 100;
    }
    if number > 0 || at == digits.len() {
        at -= 1;
        digits[at] = b'0' + number as u8;
    }
    at
}
