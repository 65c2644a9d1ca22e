//! Opening a connection, and finding out who answers.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::address::Address;
use super::error::{SHOWN, rejected};
use super::framing::Framing;
use super::resp::{Command, Refused, Value};
use super::stream::{self, ReadHalf, WriteHalf};
use super::tending::Tended;
use crate::node::tls::Tls;
use crate::node::{Failure, FailureKind};
use crate::text::harmless;

/// The first version of Redis that has all that is needed.
const OLDEST: (u32, u32) = (6, 2);

/// An earlier connection that broke.
#[derive(Debug)]
pub(super) struct Predecessor {
    /// The server's number for it.
    pub(super) client_id: i64,
    /// The server's identity. Another start of the server gives the number to another connection.
    pub(super) run_id: String,
    /// What was last known of how it is set up.
    pub(super) tended: Tended,
}

/// What a node needs of its server.
#[derive(Debug)]
pub(super) struct Demands {
    /// To be loaded.
    pub(super) scripts: Vec<String>,
    /// The key of the marker, if servers have one. Then nothing may be thrown away for want of memory.
    pub(super) marker: Option<Vec<u8>>,
    /// Where messages for this client arrive.
    pub(super) channel: Vec<u8>,
}

/// Reads the marker, and tells whether the server runs scripts.
const LOOK: &[u8] = b"local seen = ARGV[1] ~= '' and redis.pcall('GET', ARGV[1])
    return type(seen) == 'string' and seen or ''";

/// A connection that has been greeted.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) read: ReadHalf,
    pub(super) write: Arc<WriteHalf>,
    pub(super) tls: Option<Tls>,
    /// The server's number for this connection.
    pub(super) client_id: i64,
    /// The server's identity, another one after each of its starts.
    pub(super) run_id: String,
    /// The marker that was there; empty if there was none.
    pub(super) marker: Vec<u8>,
    /// Whether grant messages come over this connection, or why not.
    pub(super) subscribed: Result<(), Failure>,
    /// Why the connection before this one could not be ended on the server.
    pub(super) not_ended: Option<Failure>,
    /// What the server says of itself.
    pub(super) info: String,
    pub(super) tended: Tended,
    /// How long the greeting has taken.
    pub(super) took: Duration,
    /// What was read after the last reply to the greeting, and where in it the next one begins.
    pub(super) rest: Vec<u8>,
    pub(super) framing: Framing,
}

/// Connects, logs in and checks that the server can be a node.
///
/// `predecessor` is ended on the server first, so that none of its requests can run after those of
/// this one.
pub(super) async fn connect(
    address: &Address,
    demands: &Demands,
    predecessor: Option<&Predecessor>,
) -> Result<Connected, Failure> {
    let mut wire = Wire::open(address).await?;
    let mut greeting = Vec::new();
    greet(address, &mut greeting);
    Command::new(&mut greeting, 2).arg(b"SELECT").number(u64::from(address.db));
    Command::new(&mut greeting, 1).arg(b"INFO");
    for source in &demands.scripts {
        Command::new(&mut greeting, 3).arg(b"SCRIPT").arg(b"LOAD").arg(source.as_bytes());
    }
    let marker = demands.marker.as_deref().unwrap_or_default();
    Command::new(&mut greeting, 4).arg(b"EVAL").arg(LOOK).number(0).arg(marker);
    Command::new(&mut greeting, 2).arg(b"SUBSCRIBE").arg(&demands.channel);
    wire.send(&greeting).await?;

    let (client_id, role) = wire.reply(|hello| identity(&hello)).await??;
    check_role(&role)?;
    wire.reply(|selected| refuse_error(&selected)).await??;
    let info = wire.reply(|info| text(&info)).await??;
    let run_id = field(&info, "run_id").ok_or_else(|| strange("INFO"))?.to_owned();
    check_version(&info)?;
    if demands.marker.is_some() {
        refuse_eviction(&info)?;
    } else {
        // Once: a client that connects again has already warned.
        if predecessor.is_none() {
            warn_of_eviction(&address.label, &info);
        }
    }
    for _ in &demands.scripts {
        // A user without the right to load them still runs them: the first use sends the source.
        wire.reply(|_| ()).await?;
    }
    // But without any right to scripts nothing can be released.
    let marker = wire.reply(|ran| check_scripts(&ran).map(|()| seen(&ran))).await??;
    // A user without the right to it still locks: waiters ask again then.
    let subscribed = wire.subscribed().await?;
    let mut not_ended = None;
    if let Some(old) = predecessor.filter(|old| old.run_id == run_id)
        && let Ok(id) = u64::try_from(old.client_id)
    {
        let mut kill = Vec::new();
        Command::new(&mut kill, 4).arg(b"CLIENT").arg(b"KILL").arg(b"ID").number(id);
        wire.send(&kill).await?;
        not_ended = wire.reply(|killed| refuse_error(&killed)).await?.err();
    }
    let Wire { read, write, tls, plain: rest, framing } = wire;
    let write = Arc::new(write);
    let tended = Tended::greeted(&info);
    Ok(Connected {
        read,
        write,
        tls,
        client_id,
        run_id,
        marker,
        subscribed,
        not_ended,
        info,
        tended,
        took: Duration::ZERO,
        rest,
        framing,
    })
}

fn seen(marker: &Value<'_>) -> Vec<u8> {
    match marker {
        Value::Bulk(marker) => marker.to_vec(),
        _ => Vec::new(),
    }
}

/// Only a primary keeps what is written to it.
pub(super) fn check_role(role: &str) -> Result<(), Failure> {
    if role == "master" {
        return Ok(());
    }
    let text = format!("is a {role}, whose votes do not last; name its primary instead");
    Err(Failure::new(FailureKind::Unfit, text))
}

pub(super) fn greet(address: &Address, out: &mut Vec<u8>) {
    // A user need not have a password.
    let user = address.user.as_deref().or(address.password.as_ref().map(|_| "default"));
    match user {
        Some(user) => Command::new(out, 7)
            .arg(b"HELLO")
            .arg(b"3")
            .arg(b"AUTH")
            .arg(user.as_bytes())
            .arg(address.password.as_deref().unwrap_or_default().as_bytes()),
        None => Command::new(out, 4).arg(b"HELLO").arg(b"3"),
    }
    .arg(b"SETNAME")
    .arg(b"quorlock");
}

/// The connection's number and the server's role.
pub(super) fn identity(hello: &Value<'_>) -> Result<(i64, String), Failure> {
    match hello {
        Value::Map(parts) => {
            let get = |key: &[u8]| {
                parts.chunks_exact(2).find(|pair| pair[0] == Value::Bulk(key)).map(|pair| &pair[1])
            };
            match (get(b"id"), get(b"role")) {
                (Some(Value::Int(id)), Some(Value::Bulk(role))) => {
                    let role = String::from_utf8_lossy(role);
                    Ok((*id, harmless(&role, SHOWN).into_owned()))
                }
                _ => Err(strange("HELLO")),
            }
        }
        Value::Error(text) if text.starts_with(b"ERR unknown command") => Err(Failure::new(
            FailureKind::Unfit,
            "does not know HELLO; Redis 6.2 or later, or Valkey, is needed",
        )),
        Value::Error(text) => Err(rejected(text)),
        _ => Err(strange("HELLO")),
    }
}

/// The reply to `INFO`, fit to be shown.
pub(super) fn text(info: &Value<'_>) -> Result<String, Failure> {
    match info {
        Value::Bulk(text) => {
            let text = String::from_utf8_lossy(text);
            Ok(text.lines().flat_map(|line| [harmless(line, SHOWN), "\n".into()]).collect())
        }
        other => Err(refuse_error(other).err().unwrap_or_else(|| strange("INFO"))),
    }
}

pub(super) fn refuse_error(reply: &Value<'_>) -> Result<(), Failure> {
    match reply {
        Value::Error(text) => Err(rejected(text)),
        _ => Ok(()),
    }
}

/// Whether a script has run.
fn check_scripts(ran: &Value<'_>) -> Result<(), Failure> {
    match ran {
        Value::Error(text) if text.starts_with(b"ERR unknown command") => Err(Failure::new(
            FailureKind::Unfit,
            "does not know EVAL, and locks need scripts; let it have EVAL and EVALSHA by these names",
        )),
        ran => refuse_error(ran),
    }
}

fn strange(command: &str) -> Failure {
    let text = format!("gave an answer to {command} that Redis would not give; check the port");
    Failure::new(FailureKind::Unfit, text)
}

pub(super) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// The policy by which the server throws keys away when its memory is full, if it does.
pub(super) fn evicts(info: &str) -> Option<&str> {
    let policy = field(info, "maxmemory_policy").unwrap_or("noeviction");
    let limited = field(info, "maxmemory").is_some_and(|most| most != "0");
    (limited && policy != "noeviction").then_some(policy)
}

pub(super) fn refuse_eviction(info: &str) -> Result<(), Failure> {
    let Some(policy) = evicts(info) else { return Ok(()) };
    let text = format!(
        "its maxmemory-policy is {policy}, so that it may throw locks away; set noeviction, or use the \
         redlock dialect"
    );
    Err(Failure::new(FailureKind::Unfit, text))
}

/// Valkey calls itself Redis 7.2.4 here, in all its versions.
pub(super) fn check_version(info: &str) -> Result<(), Failure> {
    let Some(version) = field(info, "redis_version") else { return Ok(()) };
    let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let (major, minor) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if (major, minor) >= OLDEST {
        return Ok(());
    }
    let text = format!("is Redis {version}; Redis 6.2 or later, or Valkey, is needed");
    Err(Failure::new(FailureKind::Unfit, text))
}

fn warn_of_eviction(node: &str, info: &str) {
    if let Some(policy) = evicts(info) {
        tracing::warn!(
            node,
            "its maxmemory-policy is {policy}, so that it may throw locks away: set noeviction"
        );
    }
}

/// A connection during its greeting, one reply after another.
pub(super) struct Wire {
    read: ReadHalf,
    write: WriteHalf,
    tls: Option<Tls>,
    /// Read and not yet used.
    plain: Vec<u8>,
    framing: Framing,
}

impl Wire {
    /// Opens the connection, and nothing more.
    pub(super) async fn open(address: &Address) -> Result<Self, Failure> {
        let (read, write) = stream::open(&address.place).await.map_err(|error| {
            let text = format!("cannot connect: {error}; is it up, and is the address right?");
            Failure::new(FailureKind::Unreachable, text)
        })?;
        let mut wire =
            Self { read, write, tls: None, plain: Vec::new(), framing: Framing::default() };
        if let Some(tls) = &address.tls {
            wire.tls = Some(tls.start()?);
            wire.shake_hands().await?;
        }
        Ok(wire)
    }

    async fn shake_hands(&mut self) -> Result<(), Failure> {
        self.send(b"").await?;
        while self.tls.as_ref().is_some_and(Tls::is_handshaking) {
            self.fill().await?;
        }
        Ok(())
    }

    pub(super) async fn send(&mut self, plain: &[u8]) -> Result<(), Failure> {
        let mut sealed = Vec::new();
        let bytes = match &mut self.tls {
            Some(tls) => {
                tls.seal(plain, &mut sealed)?;
                &sealed
            }
            None => plain,
        };
        write_all(&self.write, bytes).await.map_err(|error| broke(&error))
    }

    pub(super) async fn reply<T>(
        &mut self,
        read: impl FnOnce(Value<'_>) -> T,
    ) -> Result<T, Failure> {
        let mut read = Some(read);
        // What comes without being asked for is not for this connection: waiters are notified to ask
        // again once it is up.
        self.next(|value| match value {
            Value::Push(_) => None,
            value => read.take().map(|read| read(value)),
        })
        .await
    }

    /// The reply to `SUBSCRIBE`: of all commands, only this one's comes as a push, unless it is an
    /// error.
    async fn subscribed(&mut self) -> Result<Result<(), Failure>, Failure> {
        self.next(|value| match value {
            Value::Push(parts) if parts.first() == Some(&Value::Bulk(b"subscribe")) => Some(Ok(())),
            Value::Push(_) => None,
            other => Some(Err(refuse_error(&other).err().unwrap_or_else(|| strange("SUBSCRIBE")))),
        })
        .await
    }

    /// Reads on until something is found.
    async fn next<T>(
        &mut self,
        mut find: impl FnMut(Value<'_>) -> Option<T>,
    ) -> Result<T, Failure> {
        loop {
            let mut rest = self.plain.as_slice();
            let value = self.framing.next(&mut rest).map_err(refused)?;
            let whole = value.is_some();
            let found = value.and_then(&mut find);
            let used = self.plain.len() - rest.len();
            self.plain.drain(..used);
            match found {
                Some(found) => return Ok(found),
                None if whole => {}
                None => self.fill().await?,
            }
        }
    }

    async fn fill(&mut self) -> Result<(), Failure> {
        let mut raw = [0; 4_096];
        let read = &mut self.read;
        let count =
            poll_fn(|cx| read.poll_read(cx, &mut raw)).await.map_err(|error| broke(&error))?;
        if count == 0 {
            return Err(broke(&"the server closed the connection"));
        }
        let Some(tls) = &mut self.tls else {
            self.plain.extend_from_slice(&raw[..count]);
            return Ok(());
        };
        let mut answer = Vec::new();
        let opened = tls.open(&raw[..count], &mut self.plain, &mut answer);
        // Sent even if the handshake failed: it tells the server why.
        let sent = write_all(&self.write, &answer).await;
        opened?;
        sent.map_err(|error| broke(&error))
    }
}

async fn write_all(write: &WriteHalf, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        poll_fn(|cx| write.poll_writable(cx)).await?;
        match write.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn refused(why: Refused) -> Failure {
    let text = match why {
        Refused::TooLong => "sends a reply that is too long; is it Redis, and in order?",
        Refused::Malformed => "speaks another protocol than Redis; check the port",
    };
    Failure::new(FailureKind::Unfit, text)
}

fn broke(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(FailureKind::Unreachable, format!("the greeting failed: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_are_too_old_are_refused() {
        let check = |version| check_version(&format!("# Server\r\nredis_version:{version}\r\n"));
        for new in ["6.2.0", "6.2", "7.0.15", "7.2.4", "10.0.1", "255.255.255"] {
            check(new).expect("new enough");
        }
        for old in ["6.0.16", "5.0.14", "2.8.4", "6", ""] {
            let failure = check(old).unwrap_err();
            assert_eq!(failure.kind(), FailureKind::Unfit);
            let text = failure.to_string();
            assert!(
                text.contains(&format!("Redis {old};")) && text.contains("6.2 or later"),
                "{text}"
            );
        }
        // A server that does not state its version is judged by what it can do.
        check_version("# Server\r\n").expect("nothing against it");
    }
}
