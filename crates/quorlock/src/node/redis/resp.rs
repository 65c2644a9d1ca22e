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

/// Why bytes are not read as a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is longer than any reply to one of our commands, or says that it will be.
    TooLong,
    /// It is no reply at all.
    Malformed,
}

/// The longest reply that is read, in bytes. A list of names is the longest that is given: it ends with
/// the look that finds the 32nd name of at most 512 bytes, and one look finds some 160 keys at the most.
pub(super) const MAX_REPLY: usize = 256 * 1_024;
/// So many values one reply has at the most, at all depths together.
const MAX_ITEMS: usize = 4_096;
const MAX_DEPTH: usize = 8;

/// Reads one reply from the start of `bytes`; `None` if it is not whole yet. Returns its length.
///
/// What a header promises is compared with the limits before anything that follows upon it is read.
pub(super) fn parse(bytes: &[u8]) -> Result<Option<(Value<'_>, usize)>, Refused> {
    let mut reader = Reader { bytes, at: 0, items: 0 };
    match reader.value(0) {
        Ok(value) => Ok(Some((value, reader.at))),
        Err(Stop::Incomplete) => Ok(None),
        Err(Stop::Refused(why)) => Err(why),
    }
}

enum Stop {
    Incomplete,
    Refused(Refused),
}

const MALFORMED: Stop = Stop::Refused(Refused::Malformed);
const TOO_LONG: Stop = Stop::Refused(Refused::TooLong);

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// How many values inside of others were promised so far.
    items: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Result<Value<'a>, Stop> {
        if depth > MAX_DEPTH {
            return Err(TOO_LONG);
        }
        let line = self.line()?;
        let (&kind, rest) = line.split_first().ok_or(MALFORMED)?;
        match kind {
            // Simple strings, and the kinds that only matter as text here: doubles, big numbers.
            b'+' | b',' | b'(' => Ok(Value::Simple(rest)),
            b'-' => Ok(Value::Error(rest)),
            b':' => Ok(Value::Int(int(rest).ok_or(MALFORMED)?)),
            b'#' => match rest {
                b"t" => Ok(Value::Int(1)),
                b"f" => Ok(Value::Int(0)),
                _ => Err(MALFORMED),
            },
            b'_' => Ok(Value::Null),
            b'$' => Ok(self.bulk(rest)?.map_or(Value::Null, Value::Bulk)),
            b'!' => Ok(self.bulk(rest)?.map_or(Value::Null, Value::Error)),
            // A verbatim string starts with its format, as in "txt:".
            b'=' => match self.bulk(rest)? {
                Some(text) => Ok(Value::Bulk(text.get(4..).ok_or(MALFORMED)?)),
                None => Ok(Value::Null),
            },
            b'*' | b'~' => Ok(self.items(rest, 1, depth)?.map_or(Value::Null, Value::Array)),
            // Never nothing: that would be a reply.
            b'>' => Ok(Value::Push(self.items(rest, 1, depth)?.unwrap_or_default())),
            b'%' => Ok(self.items(rest, 2, depth)?.map_or(Value::Null, Value::Map)),
            // Attributes only accompany the value that follows.
            b'|' => {
                self.items(rest, 2, depth)?;
                self.value(depth + 1)
            }
            _ => Err(MALFORMED),
        }
    }

    /// The bytes up to the next line end, which is passed.
    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = &self.bytes[self.at..];
        let end = rest.iter().position(|byte| *byte == b'\n').ok_or(Stop::Incomplete)?;
        self.at += end + 1;
        rest[..end].strip_suffix(b"\r").ok_or(MALFORMED)
    }

    fn bulk(&mut self, length: &[u8]) -> Result<Option<&'a [u8]>, Stop> {
        let Some(length) = size(length).ok_or(MALFORMED)? else { return Ok(None) };
        let length = usize::try_from(length).ok().filter(|length| *length <= MAX_REPLY);
        let length = length.ok_or(TOO_LONG)?;
        let rest = &self.bytes[self.at..];
        let body = rest.get(..length + 2).ok_or(Stop::Incomplete)?;
        self.at += length + 2;
        body.strip_suffix(b"\r\n").map(Some).ok_or(MALFORMED)
    }

    fn items(
        &mut self,
        count: &[u8],
        each: u64,
        depth: usize,
    ) -> Result<Option<Vec<Value<'a>>>, Stop> {
        let Some(count) = size(count).ok_or(MALFORMED)? else { return Ok(None) };
        let left = MAX_ITEMS - self.items;
        let count = count.checked_mul(each).and_then(|count| usize::try_from(count).ok());
        let count = count.filter(|count| *count <= left).ok_or(TOO_LONG)?;
        self.items += count;
        // No room is made for what is only promised.
        (0..count).map(|_| self.value(depth + 1)).collect::<Result<_, _>>().map(Some)
    }
}

fn int(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// A length, or nothing if it is none; inside, `None` for −1, which older replies use for "nothing".
pub(super) fn size(text: &[u8]) -> Option<Option<u64>> {
    match int(text)? {
        -1 => Some(None),
        length => u64::try_from(length).ok().map(Some),
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
