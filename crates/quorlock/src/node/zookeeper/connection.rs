//! One connection to one member, which is one session: requests go out in the order in which they are sent, and are
//! answered in that order.
//!
//! ```text
//!   send ──▶ task: writes, reads ──▶ the answer of the oldest request
//!                        └─────────▶ what was created below the watch
//! ```
//!
//! With `zookeeper://` a session ends with its connection: nothing is taken up again on another one. What depends on the
//! session is only the sign that a client is there, and messages. Where locks depend on it, another connection goes on
//! with it.

use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::trouble::{Trouble, not_zookeeper};
use super::wire::{self, AUTH, Code, EVENT, Event, PING, Reader, Request, SessionId, Stat};
use crate::node::dial::dial;
use crate::node::tls::{Tls, TlsSetting};
use crate::node::{Failure, FailureKind};

/// A session that is wanted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    /// For so long it is to live without a word of its client. The servers may make it longer, or shorter.
    pub(super) length: Duration,
    /// A word is sent as often as this in that time, at the least.
    pub(super) words: u32,
    /// The session to go on with.
    pub(super) id: Option<SessionId>,
}

impl Default for Wanted {
    fn default() -> Self {
        Self { length: Duration::from_secs(4), words: 3, id: None }
    }
}

/// No answer is longer: by default a server takes and keeps no more than 1 MiB, and some for what stands around it.
const LONGEST: usize = 3 << 19;
/// Nor is one that has neither data nor names in it.
const LONGEST_WITHOUT_DATA: usize = 64 << 10;
/// So many answers that may be long are to be waited for at once.
pub(super) const LONG_AT_ONCE: usize = 8;
const READ_BYTES: usize = 16 << 10;

/// What a request is answered with: its bytes, or why it was not done.
pub(super) type Reply = Result<Vec<u8>, Trouble>;

/// A connection on which a session has begun.
#[derive(Debug)]
pub(super) struct Connection {
    requests: UnboundedSender<Sent>,
    /// How long the session lives without a word.
    pub(super) session: Duration,
    /// Which it is.
    pub(super) id: SessionId,
    /// Says why the connection has ended, once it has.
    ended: watch::Receiver<Option<Failure>>,
}

/// A request, and who waits for its answer.
#[derive(Debug)]
struct Sent {
    request: Request,
    reply: oneshot::Sender<Reply>,
}

impl Connection {
    /// Connects, and begins a session, or goes on with one: that is [rejected](FailureKind::Rejected) if it has ended. A
    /// member that does not answer a request for `limit` is given up. What becomes of paths below a watch goes to
    /// `events`.
    pub(super) async fn begin(
        host: &str,
        port: u16,
        tls: Option<&TlsSetting>,
        limit: Duration,
        wanted: Wanted,
        events: UnboundedSender<Event>,
    ) -> Result<Self, Failure> {
        let greeting = async {
            let stream = dial(host, port)
                .await
                .map_err(|error| Failure::new(FailureKind::Unreachable, error.to_string()))?;
            let (read, write) = stream.into_split();
            let tls = tls.map(TlsSetting::start).transpose()?;
            let mut pipe = Pipe { read, write, tls, out: Vec::new(), plain: Vec::new() };
            let session_ms = i32::try_from(wanted.length.as_millis()).unwrap_or(i32::MAX);
            pipe.send(&wire::hello(session_ms, wanted.id.unwrap_or_default()))?;
            let welcome = loop {
                if let Some(frame) = pipe.frame()? {
                    break frame;
                }
                pipe.go().await.map_err(|error| refused_session(&error))?;
            };
            match Reader(&welcome).welcome() {
                Some((session_ms, id)) if session_ms > 0 => {
                    Ok((pipe, session_ms.unsigned_abs(), id))
                }
                Some(_) if wanted.id.is_some() => {
                    Err(Failure::new(FailureKind::Rejected, "the session has ended"))
                }
                Some(_) => Err(Failure::new(FailureKind::Unreachable, "it begins no session")),
                None => Err(not_zookeeper()),
            }
        };
        let (pipe, session_ms, id) = match timeout(limit, greeting).await {
            Ok(greeted) => greeted?,
            Err(_) => {
                let text =
                    format!("it begins no session within {limit:?}; is it a ZooKeeper server?");
                return Err(Failure::new(FailureKind::Unreachable, text));
            }
        };
        let session = Duration::from_millis(session_ms.into());
        let (requests, incoming) = unbounded_channel();
        let (end, ended) = watch::channel(None);
        let now = Instant::now();
        let serving = Serving {
            pipe,
            incoming,
            events,
            waiting: VecDeque::new(),
            limit,
            word_after: session / wanted.words.max(1),
            said: now,
            number: 0,
        };
        tokio::spawn(async move {
            let why = serving.run().await;
            end.send_replace(Some(why));
        });
        Ok(Self { requests, session, id, ended })
    }

    /// Sends a request behind all that were sent before. It is sent even if nobody waits for the answer.
    pub(super) fn send(&self, request: Request) -> impl Future<Output = Reply> + Send + use<> {
        let (reply, answer) = oneshot::channel();
        let sent = self.requests.send(Sent { request, reply });
        async move {
            if sent.is_err() {
                return Err(Failure::new(FailureKind::Unreachable, "the connection broke").into());
            }
            // Dropped with the connection.
            answer.await.unwrap_or_else(|_| {
                Err(Failure::new(FailureKind::Broken, "the connection broke").into())
            })
        }
    }

    /// What a node is like, or nothing if there is none.
    pub(super) fn stat(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<Option<Stat>, Trouble>> + Send + use<> {
        let reply = self.send(Request::exists(path));
        async move {
            match reply.await {
                Ok(bytes) => read(Reader(&bytes).stat()).map(Some),
                Err(Trouble::Code(Code::NO_NODE)) => Ok(None),
                Err(trouble) => Err(trouble),
            }
        }
    }

    /// The data of a node and what it is like, or nothing if there is none.
    pub(super) fn data(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<Option<(Vec<u8>, Stat)>, Trouble>> + Send + use<> {
        let reply = self.send(Request::get_data(path));
        async move {
            match reply.await {
                Ok(bytes) => {
                    let mut reader = Reader(&bytes);
                    let data = read(reader.bytes())?.to_vec();
                    Ok(Some((data, read(reader.stat())?)))
                }
                Err(Trouble::Code(Code::NO_NODE)) => Ok(None),
                Err(trouble) => Err(trouble),
            }
        }
    }

    /// The last parts of the paths of all nodes right below one. None if there is no such node.
    pub(super) fn children(
        &self,
        path: &str,
    ) -> impl Future<Output = Result<Vec<String>, Trouble>> + Send + use<> {
        let reply = self.send(Request::children(path));
        async move {
            match reply.await {
                Ok(bytes) => read(Reader(&bytes).texts()),
                Err(Trouble::Code(Code::NO_NODE)) => Ok(Vec::new()),
                Err(trouble) => Err(trouble),
            }
        }
    }

    /// All of these or none. What each part has come to if none was done.
    pub(super) fn multi(
        &self,
        parts: &[Request],
    ) -> impl Future<Output = Result<Vec<Result<Option<Stat>, Code>>, Trouble>> + Send + use<> {
        let reply = self.send(Request::multi(parts));
        async move {
            let bytes = reply.await?;
            read(Reader(&bytes).parts())
        }
    }

    /// The path and what it is like, from the answer to the creation of a node.
    pub(super) fn read_created(bytes: &[u8]) -> Result<(String, Stat), Trouble> {
        let mut reader = Reader(bytes);
        let path = read(reader.text())?.to_owned();
        Ok((path, read(reader.stat())?))
    }

    /// Ends when the connection has, and says why.
    pub(super) async fn ended(&self) -> Failure {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_else(Failure::closed),
            Err(_) => Failure::closed(),
        }
    }

    /// Ends the session, so that nothing of it is left.
    pub(super) async fn close(&self) {
        let _ = self.send(Request::close()).await;
    }
}

/// What could be read of an answer.
fn read<T>(read: Option<T>) -> Result<T, Trouble> {
    read.ok_or_else(|| Failure::new(FailureKind::Broken, "its answer makes no sense").into())
}

/// A member that closes the connection before a session has begun says nothing of why.
fn refused_session(error: &Failure) -> Failure {
    let text = format!(
        "{error} before a session began; it has no leader, or too many connections from this machine \
         (maxClientCnxns), or is no ZooKeeper server, or speaks TLS on one side only"
    );
    Failure::new(FailureKind::Broken, text)
}

/// A stream of messages.
#[derive(Debug)]
struct Pipe {
    read: OwnedReadHalf,
    write: OwnedWriteHalf,
    tls: Option<Tls>,
    /// What is to be written.
    out: Vec<u8>,
    /// What was read, and is no whole message yet.
    plain: Vec<u8>,
}

impl Pipe {
    /// Takes bytes to be written.
    fn send(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        match &mut self.tls {
            Some(tls) => tls.seal(bytes, &mut self.out),
            None => {
                self.out.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Writes or reads some bytes, whatever is possible first. Nothing is lost if this is dropped.
    async fn go(&mut self) -> Result<(), Failure> {
        let broken = |error: std::io::Error| Failure::new(FailureKind::Broken, error.to_string());
        let mut bytes = Vec::with_capacity(READ_BYTES);
        tokio::select! {
            written = self.write.write(&self.out), if !self.out.is_empty() => {
                let count = written.map_err(broken)?;
                self.out.drain(..count);
            }
            read = self.read.read_buf(&mut bytes) => {
                if read.map_err(broken)? == 0 {
                    return Err(Failure::new(FailureKind::Broken, "it closed the connection"));
                }
                match &mut self.tls {
                    Some(tls) => tls.open(&bytes, &mut self.plain, &mut self.out)?,
                    None => self.plain.extend_from_slice(&bytes),
                }
            }
        }
        Ok(())
    }

    /// A whole message, if there is one.
    fn frame(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let mut reader = Reader(&self.plain);
        let Some(length) = reader.int() else { return Ok(None) };
        let length = usize::try_from(length).ok().filter(|length| *length <= LONGEST);
        let Some(length) = length else { return Err(not_zookeeper()) };
        if reader.0.len() < length {
            return Ok(None);
        }
        let frame = reader.0[..length].to_vec();
        self.plain.drain(..4 + length);
        Ok(Some(frame))
    }
}

/// The task of a connection.
struct Serving {
    pipe: Pipe,
    incoming: UnboundedReceiver<Sent>,
    events: UnboundedSender<Event>,
    /// What is not answered yet, in the order of sending.
    waiting: VecDeque<Waiting>,
    limit: Duration,
    word_after: Duration,
    /// When something was last sent.
    said: Instant,
    number: i32,
}

struct Waiting {
    number: i32,
    sent: Instant,
    /// None for what keeps the session alive.
    reply: Option<oneshot::Sender<Reply>>,
    /// Whether it may be answered with data or names.
    is_long: bool,
    is_last: bool,
}

impl Serving {
    /// Goes on until nobody wants the connection any more, or it breaks. Returns why.
    async fn run(mut self) -> Failure {
        let why = loop {
            match self.turn().await {
                Ok(true) => {}
                Ok(false) => break Failure::closed(),
                Err(why) => break why,
            }
        };
        // What is still waiting may have run.
        for waiting in self.waiting {
            if let Some(reply) = waiting.reply {
                let kind = match why.kind() {
                    FailureKind::Silent => FailureKind::Silent,
                    _ => FailureKind::Broken,
                };
                let _ = reply.send(Err(Failure::new(kind, why.to_string()).into()));
            }
        }
        why
    }

    /// Returns whether to go on.
    async fn turn(&mut self) -> Result<bool, Failure> {
        while let Some(frame) = self.pipe.frame()? {
            if !self.take(&frame)? {
                return Ok(false);
            }
        }
        let due = self.due();
        tokio::select! {
            sent = self.incoming.recv() => match sent {
                Some(Sent { request, reply }) => self.send(&request, Some(reply))?,
                None => return Ok(false),
            },
            went = self.pipe.go() => went?,
            () = sleep_until(due) => self.look()?,
        }
        Ok(true)
    }

    fn send(
        &mut self,
        request: &Request,
        reply: Option<oneshot::Sender<Reply>>,
    ) -> Result<(), Failure> {
        self.number = self.number.checked_add(1).unwrap_or(1);
        let frame = request.frame(self.number);
        let number = match request.op {
            wire::Op::Auth => AUTH,
            wire::Op::Ping => PING,
            _ => self.number,
        };
        self.said = Instant::now();
        let is_last = request.op == wire::Op::Close;
        let is_long = matches!(request.op, wire::Op::GetData | wire::Op::GetChildren);
        self.waiting.push_back(Waiting { number, sent: self.said, reply, is_long, is_last });
        self.pipe.send(&frame)
    }

    /// When something has to be done though nothing happens.
    fn due(&self) -> Instant {
        let alive = self.said + self.word_after;
        match self.waiting.front() {
            Some(oldest) => alive.min(oldest.sent + self.limit),
            None => alive,
        }
    }

    fn look(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        if self.waiting.front().is_some_and(|oldest| now >= oldest.sent + self.limit) {
            let text = format!("no answer within {:?}", self.limit);
            return Err(Failure::new(FailureKind::Silent, text));
        }
        if now >= self.said + self.word_after {
            self.send(&Request::ping(), None)?;
        }
        Ok(())
    }

    /// Takes a message in, and returns whether to go on.
    fn take(&mut self, frame: &[u8]) -> Result<bool, Failure> {
        let mut reader = Reader(frame);
        let header = (reader.int(), reader.long(), reader.int());
        let (Some(number), Some(_), Some(code)) = header else { return Err(not_zookeeper()) };
        if number == EVENT {
            if let Some(event) = reader.event() {
                // Nobody may be interested any more.
                let _ = self.events.send(event);
            }
            return Ok(true);
        }
        // A ping is answered when its turn comes on one kind of member, and at once on another.
        let at = match number {
            PING => self.waiting.iter().position(|waiting| waiting.number == PING),
            _ => self.waiting.iter().position(|waiting| waiting.number != PING),
        };
        let Some(waiting) = at.and_then(|at| self.waiting.remove(at)) else {
            return Err(not_zookeeper());
        };
        if waiting.number != number {
            return Err(Failure::new(FailureKind::Broken, "it answers in another order"));
        }
        if !waiting.is_long && frame.len() > LONGEST_WITHOUT_DATA {
            return Err(not_zookeeper());
        }
        if let Some(reply) = waiting.reply {
            let answer = match Code(code) {
                Code::OK => Ok(reader.0.to_vec()),
                code => Err(Trouble::Code(code)),
            };
            let _ = reply.send(answer);
        }
        Ok(!waiting.is_last)
    }
}
