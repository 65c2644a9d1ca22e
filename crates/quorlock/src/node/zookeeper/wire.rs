//! ZooKeeper's wire format: numbers with the highest byte first, and texts and lists behind their length.
//!
//! Written by hand: a dozen messages are used.

use super::acl::Acl;

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum Op {
    Create = 1,
    Delete = 2,
    Exists = 3,
    GetData = 4,
    SetData = 5,
    GetChildren = 8,
    Sync = 9,
    Ping = 11,
    Check = 13,
    Multi = 14,
    /// As `Create`, with what the node is like in the answer.
    CreateStat = 15,
    RemoveWatches = 18,
    CreateContainer = 19,
    Auth = 100,
    AddWatch = 106,
    Close = -11,
}

/// What answers and events that no request waits for have for its number.
pub(super) const EVENT: i32 = -1;
pub(super) const PING: i32 = -2;
pub(super) const AUTH: i32 = -4;

/// The number of the part of a multi that was not done.
const FAILED: i32 = -1;
/// A watch for everything below a path, which stays.
const RECURSIVE: i32 = 1;
/// All watches of a path.
const ANY_WATCH: i32 = 3;
/// Events: something was created, or deleted.
const CREATED: i32 = 1;
const DELETED: i32 = 2;

/// What became of a path below a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    Created(String),
    Deleted(String),
}

/// Which session it is, and what proves that it is ours. Never shown.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SessionId {
    pub(super) number: i64,
    password: [u8; 16],
}

impl std::fmt::Debug for SessionId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SessionId({:x})", self.number)
    }
}

/// Why a server did not do a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Code(pub(super) i32);

impl Code {
    pub(super) const OK: Self = Self(0);
    /// Another part of the same multi is to blame.
    pub(super) const OTHER_PART: Self = Self(-2);
    pub(super) const UNKNOWN_REQUEST: Self = Self(-6);
    pub(super) const NO_NODE: Self = Self(-101);
    pub(super) const NO_RIGHTS: Self = Self(-102);
    pub(super) const OTHER_VERSION: Self = Self(-103);
    pub(super) const EXISTS: Self = Self(-110);
    pub(super) const SESSION_OVER: Self = Self(-112);
    pub(super) const INVALID_ACL: Self = Self(-114);
    pub(super) const LOGIN_FAILED: Self = Self(-115);
    pub(super) const SESSION_MOVED: Self = Self(-118);
    pub(super) const READ_ONLY: Self = Self(-119);
    pub(super) const QUOTA: Self = Self(-125);
    pub(super) const TOO_MUCH_TO_DO: Self = Self(-127);
}

/// How long a node lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(super) enum CreateMode {
    Persistent = 0,
    /// As long as the session that created it.
    Ephemeral = 1,
    /// The same, with a number behind its name that grows with each node beside it.
    EphemeralSequential = 3,
    /// Until it is empty again, and a while longer.
    Container = 4,
}

/// What a node is like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Stat {
    /// The change that created it: a number that no other change has.
    pub(super) created: i64,
    /// When that was, by the clock of the leader then, in milliseconds since 1970.
    pub(super) created_ms: i64,
    /// When its data was last written, in the same way.
    pub(super) written_ms: i64,
    /// How often that was. It may wrap.
    pub(super) version: i32,
    /// The session that it ends with; zero for none.
    pub(super) owner: i64,
}

/// A message that is being written.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn int(mut self, value: i32) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn long(mut self, value: i64) -> Self {
        self.0.extend_from_slice(&value.to_be_bytes());
        self
    }

    pub(super) fn flag(mut self, value: bool) -> Self {
        self.0.push(u8::from(value));
        self
    }

    /// Bytes, or text.
    pub(super) fn bytes(self, value: impl AsRef<[u8]>) -> Self {
        let value = value.as_ref();
        let mut this = self.int(i32::try_from(value.len()).unwrap_or(i32::MAX));
        this.0.extend_from_slice(value);
        this
    }

    fn raw(mut self, value: &[u8]) -> Self {
        self.0.extend_from_slice(value);
        self
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// One request, without its number.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub(super) op: Op,
    pub(super) body: Vec<u8>,
}

impl Request {
    fn new(op: Op, body: Writer) -> Self {
        Self { op, body: body.finish() }
    }

    pub(super) fn exists(path: &str) -> Self {
        Self::new(Op::Exists, Writer::default().bytes(path).flag(false))
    }

    pub(super) fn get_data(path: &str) -> Self {
        Self::new(Op::GetData, Writer::default().bytes(path).flag(false))
    }

    pub(super) fn children(path: &str) -> Self {
        Self::new(Op::GetChildren, Writer::default().bytes(path).flag(false))
    }

    pub(super) fn sync(path: &str) -> Self {
        Self::new(Op::Sync, Writer::default().bytes(path))
    }

    /// Answered with a [`Stat`] where `op` is `CreateStat` or `CreateContainer`.
    pub(super) fn create(path: &str, data: &[u8], acl: Acl, life: CreateMode) -> Self {
        let op = match life {
            CreateMode::Persistent | CreateMode::EphemeralSequential => Op::CreateStat,
            CreateMode::Ephemeral => Op::Create,
            CreateMode::Container => Op::CreateContainer,
        };
        let body = Writer::default().bytes(path).bytes(data);
        Self::new(op, acl.write(body).int(life as i32))
    }

    pub(super) fn set_data(path: &str, data: &[u8], version: i32) -> Self {
        Self::new(Op::SetData, Writer::default().bytes(path).bytes(data).int(version))
    }

    /// Whatever its version is.
    pub(super) fn delete(path: &str) -> Self {
        Self::delete_version(path, -1)
    }

    pub(super) fn delete_version(path: &str, version: i32) -> Self {
        Self::new(Op::Delete, Writer::default().bytes(path).int(version))
    }

    /// Part of a multi: fails if there is no such node, or if it has another version, unless -1 is asked for.
    pub(super) fn check(path: &str, version: i32) -> Self {
        Self::new(Op::Check, Writer::default().bytes(path).int(version))
    }

    pub(super) fn add_watch(path: &str) -> Self {
        Self::new(Op::AddWatch, Writer::default().bytes(path).int(RECURSIVE))
    }

    pub(super) fn remove_watches(path: &str) -> Self {
        Self::new(Op::RemoveWatches, Writer::default().bytes(path).int(ANY_WATCH))
    }

    pub(super) fn login(user: &str, password: &str) -> Self {
        let body = Writer::default().int(0).bytes("digest");
        Self::new(Op::Auth, body.bytes(format!("{user}:{password}")))
    }

    pub(super) fn ping() -> Self {
        Self::new(Op::Ping, Writer::default())
    }

    pub(super) fn close() -> Self {
        Self::new(Op::Close, Writer::default())
    }

    /// All of them or none.
    pub(super) fn multi(parts: &[Self]) -> Self {
        let mut body = Writer::default();
        for part in parts {
            body = body.int(part.op as i32).flag(false).int(-1).raw(&part.body);
        }
        Self::new(Op::Multi, body.int(-1).flag(true).int(-1))
    }

    /// Its bytes with a number. A login and a ping have numbers of their own.
    pub(super) fn frame(&self, number: i32) -> Vec<u8> {
        let number = match self.op {
            Op::Auth => AUTH,
            Op::Ping => PING,
            _ => number,
        };
        frame(Writer::default().int(number).int(self.op as i32).raw(&self.body))
    }
}

/// A message behind its length.
fn frame(body: Writer) -> Vec<u8> {
    Writer::default().bytes(body.finish()).finish()
}

/// The first message of a connection, which begins a session, or goes on with one.
pub(super) fn hello(session_ms: i32, session: SessionId) -> Vec<u8> {
    let never_read_only = false;
    let SessionId { number, password } = session;
    let body = Writer::default().int(0).long(0).int(session_ms).long(number).bytes(password);
    frame(body.flag(never_read_only))
}

/// The bytes of a message, from which parts are taken. `None` where there is nothing left.
#[derive(Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn int(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(super) fn long(&mut self) -> Option<i64> {
        Some(i64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    fn flag(&mut self) -> Option<bool> {
        Some(self.take(1)?[0] != 0)
    }

    /// No bytes are a length of -1.
    pub(super) fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.int()?;
        if length == -1 {
            return Some(&[]);
        }
        self.take(usize::try_from(length).ok()?)
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    pub(super) fn texts(&mut self) -> Option<Vec<String>> {
        let count = self.int()?.max(0);
        (0..count).map(|_| self.text().map(str::to_owned)).collect()
    }

    pub(super) fn stat(&mut self) -> Option<Stat> {
        let (created, _modified, created_ms) = (self.long()?, self.long()?, self.long()?);
        let (written_ms, version) = (self.long()?, self.int()?);
        // Versions of children and rights.
        self.take(4 + 4)?;
        let owner = self.long()?;
        // Sizes, and the last change of a child.
        self.take(4 + 4 + 8)?;
        Some(Stat { created, created_ms, written_ms, version, owner })
    }

    /// How long the session lasts in milliseconds; zero if there is none. And which it is.
    pub(super) fn welcome(&mut self) -> Option<(i32, SessionId)> {
        let _version = self.int()?;
        let (session_ms, number) = (self.int()?, self.long()?);
        let password = self.bytes()?.try_into().unwrap_or_default();
        Some((session_ms, SessionId { number, password }))
    }

    /// What the parts of a multi have come to: what each was like after it, where that is said, or why it failed.
    pub(super) fn parts(&mut self) -> Option<Vec<Result<Option<Stat>, Code>>> {
        let mut parts = Vec::new();
        loop {
            let (op, is_end, _) = (self.int()?, self.flag()?, self.int()?);
            if is_end {
                return Some(parts);
            }
            parts.push(match op {
                FAILED => match Code(self.int()?) {
                    Code::OK => Ok(None),
                    code => Err(code),
                },
                op if op == Op::Create as i32 => self.text().map(|_| Ok(None))?,
                op if op == Op::CreateStat as i32 || op == Op::CreateContainer as i32 => {
                    self.text()?;
                    Ok(Some(self.stat()?))
                }
                op if op == Op::SetData as i32 => Ok(Some(self.stat()?)),
                op if op == Op::Delete as i32 || op == Op::Check as i32 => Ok(None),
                _ => return None,
            });
        }
    }

    /// What an event says, if that is of interest.
    pub(super) fn event(&mut self) -> Option<Event> {
        let (what, _state) = (self.int()?, self.int()?);
        let path = self.text()?.to_owned();
        match what {
            CREATED => Some(Event::Created(path)),
            DELETED => Some(Event::Deleted(path)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_its_length_its_number_and_its_kind() {
        let bytes = Request::exists("/a").frame(7);
        let expected =
            [&[0, 0, 0, 15, 0, 0, 0, 7, 0, 0, 0, 3, 0, 0, 0, 2][..], b"/a", &[0]].concat();
        assert_eq!(bytes, expected);
        assert_eq!(&Request::ping().frame(7)[4..8], &PING.to_be_bytes());
    }

    #[test]
    fn parts_of_a_multi_are_read_one_after_another() {
        let stat = |version: i32| {
            let all = Writer::default().long(1).long(2).long(3).long(4).int(version);
            all.int(0).int(0).long(0).int(0).int(0).long(0).finish()
        };
        let bytes = Writer::default()
            .int(Op::Check as i32)
            .flag(false)
            .int(0)
            .int(Op::SetData as i32)
            .flag(false)
            .int(0)
            .raw(&stat(5))
            .int(FAILED)
            .flag(false)
            .int(-101)
            .int(-101)
            .int(-1)
            .flag(true)
            .int(-1)
            .finish();
        let parts = Reader(&bytes).parts();
        let set = Stat { created: 1, created_ms: 3, written_ms: 4, version: 5, owner: 0 };
        assert_eq!(parts, Some(vec![Ok(None), Ok(Some(set)), Err(Code::NO_NODE)]));
        for end in 0..bytes.len() {
            assert_eq!(Reader(&bytes[..end]).parts(), None, "{end}");
        }
    }

    #[test]
    fn what_is_cut_off_is_nothing() {
        let bytes = Writer::default().int(2).bytes("a").bytes("bc").finish();
        assert_eq!(Reader(&bytes).texts(), Some(vec!["a".to_owned(), "bc".to_owned()]));
        for end in 0..bytes.len() {
            assert_eq!(Reader(&bytes[..end]).texts(), None, "{end}");
        }
        assert_eq!(Reader(&Writer::default().int(-1).finish()).bytes(), Some(&[][..]));
        assert_eq!(Reader(&Writer::default().int(-2).finish()).bytes(), None);
    }
}
