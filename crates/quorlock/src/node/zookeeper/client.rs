//! The members of an ensemble: a session with one of them at a time, and with the next when that one fails.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;

use super::acl::Acl;
use super::address::Address;
use super::connection::{Connection, Wanted};
use super::keys::Keys;
use super::trouble::Trouble;
use super::wire::{Code, CreateMode, Event, Request};
use crate::Error;
use crate::locked::locked;
use crate::node::tls::TlsSetting;
use crate::node::{Failure, FailureKind};

/// The members of one ensemble.
#[derive(Debug)]
pub(super) struct Client {
    members: Vec<Member>,
    /// Which of them is tried first.
    next: AtomicUsize,
    login: Option<Login>,
    /// For one member to answer in.
    limit: Duration,
    pub(super) keys: Keys,
    /// When the nodes above all locks were created, by which ensembles are told apart.
    identity: Mutex<Option<(i64, i64)>>,
    /// Which session a connection has.
    wanted: Mutex<Wanted>,
    /// Whether locks lie as another library lays them, so that there is nothing above them.
    is_shared: bool,
    link: watch::Sender<Link>,
}

/// The way to the ensemble.
#[derive(Debug, Clone)]
enum Link {
    /// It is being looked for.
    Connecting,
    Up(Arc<Connection>),
    /// No member was of use at the last attempt.
    Down(Failure),
    /// There will be none any more.
    Closed,
}

/// A name and a password. Never shown.
#[derive(Clone)]
struct Login(String, String);

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

#[derive(Debug)]
struct Member {
    name: String,
    host: String,
    port: u16,
    tls: Option<TlsSetting>,
    /// Why it was of no use at the last try.
    why: Mutex<Option<String>>,
}

impl Client {
    pub(super) fn new(address: &Address, limit: Duration) -> Result<Self, Error> {
        let member = |name: &String| {
            let (host, port) = name.rsplit_once(':').unwrap_or((name, ""));
            let host = host.trim_matches(['[', ']']).to_owned();
            let tls = address.tls.as_ref();
            let tls = tls.map(|files| TlsSetting::new("zookeepers", &host, files)).transpose()?;
            let port = port.parse().unwrap_or_default();
            Ok(Member { name: name.clone(), host, port, tls, why: Mutex::default() })
        };
        Ok(Self {
            members: address.endpoints.iter().map(member).collect::<Result<_, Error>>()?,
            next: AtomicUsize::new(0),
            login: address.login.clone().map(|(name, password)| Login(name, password)),
            limit,
            keys: Keys::new(address.chroot.clone()),
            identity: Mutex::default(),
            wanted: Mutex::default(),
            is_shared: false,
            link: watch::Sender::new(Link::Connecting),
        })
    }

    /// The same for locks that lie as another library lays them: all connections are of one session, as long as that
    /// lasts.
    pub(super) fn shared(
        address: &Address,
        limit: Duration,
        wanted: Wanted,
    ) -> Result<Self, Error> {
        let client = Self::new(address, limit)?;
        Ok(Self { wanted: Mutex::new(wanted), is_shared: true, ..client })
    }

    /// The next connection is to go on with this session.
    pub(super) fn keep(&self, connection: &Connection) {
        locked(&self.wanted).id = Some(connection.id);
    }

    /// How many members are known here.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    pub(super) fn member(&self, at: usize) -> (&str, &str, u16) {
        let Member { name, host, port, .. } = &self.members[at];
        (name, host, *port)
    }

    /// Who may do what with the nodes that are created.
    pub(super) fn acl(&self) -> Acl {
        if self.login.is_some() { Acl::Creator } else { Acl::Anyone }
    }

    /// The session, once there is one, or why there is none.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>, Failure> {
        let mut link = self.link.subscribe();
        let known = link.wait_for(|link| !matches!(link, Link::Connecting)).await;
        match known.as_deref() {
            Ok(Link::Up(connection)) => Ok(Arc::clone(connection)),
            Ok(Link::Down(why)) => {
                // Nothing was sent.
                let kind = match why.kind() {
                    FailureKind::Unfit => FailureKind::Unfit,
                    _ => FailureKind::Unreachable,
                };
                Err(Failure::new(kind, why.to_string()))
            }
            Ok(Link::Connecting | Link::Closed) | Err(_) => Err(Failure::closed()),
        }
    }

    /// The session that there is at present.
    pub(super) fn current(&self) -> Option<Arc<Connection>> {
        match &*self.link.borrow() {
            Link::Up(connection) => Some(Arc::clone(connection)),
            _ => None,
        }
    }

    pub(super) fn set_up(&self, connection: &Arc<Connection>) {
        self.set(Link::Up(Arc::clone(connection)));
    }

    pub(super) fn set_connecting(&self) {
        self.set(Link::Connecting);
    }

    pub(super) fn set_down(&self, why: Failure) {
        self.set(Link::Down(why));
    }

    /// The client wants nothing more, and waits for no session. Returns the last one, to be ended.
    pub(super) fn close(&self) -> Option<Arc<Connection>> {
        match self.link.send_replace(Link::Closed) {
            Link::Up(connection) => Some(connection),
            _ => None,
        }
    }

    fn set(&self, now: Link) {
        self.link.send_if_modified(|link| {
            let is_open = !matches!(link, Link::Closed);
            if is_open {
                *link = now;
            }
            is_open
        });
    }

    /// Begins a session with a member that can be used, and returns which that is.
    pub(super) async fn dial(
        &self,
        events: &UnboundedSender<Event>,
    ) -> Result<(usize, Arc<Connection>), Failure> {
        let first = self.next.load(Ordering::Acquire);
        let mut kind = FailureKind::Unreachable;
        for at in (0..self.members.len()).map(|more| (first + more) % self.members.len()) {
            match self.greet(at, events).await {
                Ok(connection) => {
                    self.next.store(at, Ordering::Release);
                    *locked(&self.members[at].why) = None;
                    return Ok((at, connection));
                }
                Err(failure) => {
                    kind = worse(kind, failure.kind());
                    *locked(&self.members[at].why) = Some(failure.to_string());
                }
            }
        }
        Err(Failure::new(kind, self.said()))
    }

    /// The session with a member has ended: the next one is tried first.
    pub(super) fn passed_over(&self, at: usize, why: &Failure) {
        *locked(&self.members[at].why) = Some(why.to_string());
        self.next.store((at + 1) % self.members.len(), Ordering::Release);
    }

    /// Begins a session with one member.
    pub(super) async fn greet(
        &self,
        at: usize,
        events: &UnboundedSender<Event>,
    ) -> Result<Arc<Connection>, Failure> {
        let Member { host, port, tls, .. } = &self.members[at];
        let begin = |wanted| {
            Connection::begin(host, *port, tls.as_ref(), self.limit, wanted, events.clone())
        };
        let wanted = *locked(&self.wanted);
        let connection = match begin(wanted).await {
            // It is over, and another one begins.
            Err(failure) if wanted.id.is_some() && failure.kind() == FailureKind::Rejected => {
                begin(Wanted { id: None, ..wanted }).await?
            }
            begun => begun?,
        };
        let chroot = self.keys.chroot();
        self.prepare(&connection).await.map_err(|trouble| trouble.failure(chroot))?;
        Ok(Arc::new(connection))
    }

    /// Logs in, and sees that everything is there that lies above the locks.
    async fn prepare(&self, connection: &Connection) -> Result<(), Trouble> {
        if let Some(Login(user, password)) = &self.login {
            connection.send(Request::login(user, password)).await?;
        }
        if self.is_shared {
            return Ok(());
        }
        // To be read, so that a user without rights is noticed.
        let (clients, locks) =
            (connection.data(&self.keys.clients()), connection.data(&self.keys.locks()));
        let is_there = clients.await?.is_some();
        let mut top = locks.await?.filter(|_| is_there);
        if top.is_none() {
            for path in self.keys.roots() {
                let create = Request::create(&path, &[], self.acl(), CreateMode::Persistent);
                match connection.send(create).await {
                    Ok(_) | Err(Trouble::Code(Code::EXISTS)) => {}
                    Err(trouble) => return Err(trouble),
                }
            }
            top = connection.data(&self.keys.locks()).await?;
        }
        let Some((_, stat)) = top else { return Err(Trouble::Code(Code::NO_NODE)) };
        let identity = (stat.created, stat.created_ms);
        let mut known = locked(&self.identity);
        match *known {
            Some(known) if known != identity => {
                let text = "its locks are not those of before: it is of another ensemble, or what it kept was \
                            removed; name members of one ensemble";
                Err(Failure::new(FailureKind::Broken, text).into())
            }
            _ => {
                *known = Some(identity);
                Ok(())
            }
        }
    }

    /// When the nodes above all locks were created.
    pub(super) fn identity(&self) -> Option<(i64, i64)> {
        *locked(&self.identity)
    }

    /// What each member has said, of those that were of no use.
    fn said(&self) -> String {
        let said = self.members.iter().filter_map(|member| {
            let why = locked(&member.why).clone()?;
            Some(format!("{}: {why}", member.name))
        });
        said.collect::<Vec<_>>().join("; ")
    }
}

/// Of two kinds of failure, the one that says more of the ensemble.
fn worse(one: FailureKind, other: FailureKind) -> FailureKind {
    let weight = |kind| match kind {
        FailureKind::Unfit => 2,
        FailureKind::Broken | FailureKind::Silent => 1,
        _ => 0,
    };
    if weight(other) > weight(one) { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        let address = Address::parse(0, "zookeeper://ann:hunter2@a").unwrap();
        let client = Client::new(&address, Duration::from_secs(1)).unwrap();
        assert!(!format!("{client:?} {address:?}").contains("hunter2"));
        assert_eq!(client.acl(), Acl::Creator);
    }

    #[tokio::test]
    async fn nobody_waits_for_a_session_of_a_client_that_closes() {
        let address = Address::parse(0, "zookeeper://a").unwrap();
        let client = Client::new(&address, Duration::from_secs(1)).unwrap();
        let (waited, closed) = tokio::join!(client.connection(), async { client.close() });
        assert!(waited.is_err() && closed.is_none());
        // The task that keeps a session may still be about to say this.
        client.set_connecting();
        assert!(client.connection().await.is_err());
    }
}
