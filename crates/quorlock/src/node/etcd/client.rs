//! Calls to the members of a cluster: to one of them at a time, and to the next when that one fails.
//!
//! The member that leads is asked if it can be, since any other only passes on to it what it is asked. Every answer has the
//! number of the latest election, so that nobody has to look at times for who leads.

use std::error::Error as _;
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http::uri::PathAndQuery;
use prost::Message;
use tokio::sync::Notify;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use super::address::Address;
use super::messages::{
    AuthenticateRequest, AuthenticateResponse, FromCluster, StatusRequest, StatusResponse,
};
use super::tls;
use crate::Error;
use crate::locked::locked;
use crate::node::{Failure, FailureKind};

/// A member that does not answer these is taken for dead.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// Why a call failed.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The lease that it names is not there (any more). Nothing was done.
    NoLease,
    Failed(Failure),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Trouble {
    /// Where no lease was named.
    pub(super) fn failure(self) -> Failure {
        match self {
            Self::NoLease => {
                Failure::new(FailureKind::Rejected, "a lease is gone that nobody named")
            }
            Self::Failed(failure) => failure,
        }
    }
}

/// The members of one cluster.
#[derive(Debug)]
pub(super) struct Client {
    members: Vec<Member>,
    /// Which of them is asked.
    active: AtomicUsize,
    /// Notified when that changes.
    pub(super) moved: Notify,
    /// Zero until a member has said which cluster it is of.
    cluster: AtomicU64,
    /// The latest election that an answer has told of.
    term: AtomicU64,
    /// Notified of a later one.
    elected: Notify,
    login: Option<Login>,
    /// What proves that we have logged in.
    token: Mutex<Option<AsciiMetadataValue>>,
    /// For one member to answer in.
    limit: Duration,
    prefix: String,
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
    channel: Channel,
    state: Mutex<MemberState>,
}

#[derive(Debug, Default)]
struct MemberState {
    /// It is of the right cluster, and of a version that can be used.
    is_known: bool,
    /// Why it was of no use at the last try.
    why: Option<String>,
}

impl Client {
    pub(super) fn new(address: &Address, limit: Duration) -> Result<Self, Error> {
        let member = |name: &String| {
            let scheme = if address.tls.is_some() { "https" } else { "http" };
            let endpoint = Endpoint::from_shared(format!("{scheme}://{name}"));
            let endpoint = endpoint.map_err(|error| {
                let problem = format!("{name:?} cannot be a member of an etcd cluster: {error}");
                Error::misuse(problem, "write host:port")
            })?;
            let endpoint = endpoint
                .tcp_nodelay(true)
                .connect_timeout(limit)
                .http2_keep_alive_interval(KEEP_ALIVE)
                .keep_alive_timeout(KEEP_ALIVE)
                .keep_alive_while_idle(true);
            let endpoint = match &address.tls {
                Some(files) => tls::secure(endpoint, name, files)?,
                None => endpoint,
            };
            let channel = endpoint.connect_lazy();
            Ok(Member { name: name.clone(), channel, state: Mutex::default() })
        };
        Ok(Self {
            members: address.endpoints.iter().map(member).collect::<Result<_, Error>>()?,
            active: AtomicUsize::new(0),
            moved: Notify::new(),
            cluster: AtomicU64::new(0),
            term: AtomicU64::new(0),
            elected: Notify::new(),
            login: address.login.clone().map(|(name, password)| Login(name, password)),
            token: Mutex::default(),
            limit,
            prefix: address.prefix.clone(),
        })
    }

    /// How many members are known here.
    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    pub(super) fn name(&self, member: usize) -> &str {
        &self.members[member].name
    }

    /// Calls a member that answers.
    pub(super) async fn call<Q, R>(&self, path: &'static str, message: Q) -> Result<R, Trouble>
    where
        Q: Message + Clone + 'static,
        R: Message + Default + FromCluster + 'static,
    {
        let at = self.active.load(Ordering::Acquire);
        let is_known = locked(&self.members[at].state).is_known;
        if !is_known && let Err(failure) = self.status(at).await {
            return Err(self.passed_over(at, &failure).into());
        }
        let was_logged_in = locked(&self.token).is_some();
        match self.call_one(at, path, message).await {
            Ok(answer) => {
                locked(&self.members[at].state).why = None;
                Ok(answer)
            }
            Err(Trouble::Failed(failure)) => {
                // Any member logs us in again.
                let is_logged_out = was_logged_in && locked(&self.token).is_none();
                if is_logged_out || !is_fault_of_member(&failure) {
                    let text = format!("{}: {failure}", self.name(at));
                    return Err(Failure::new(failure.kind(), text).into());
                }
                Err(self.passed_over(at, &failure).into())
            }
            Err(trouble) => Err(trouble),
        }
    }

    /// Calls one member, which is known to be of the right cluster.
    async fn call_one<Q, R>(&self, at: usize, path: &'static str, message: Q) -> Result<R, Trouble>
    where
        Q: Message + Clone + 'static,
        R: Message + Default + FromCluster + 'static,
    {
        if self.login.is_some() && locked(&self.token).is_none() {
            self.log_in(at).await?;
        }
        self.unary(at, path, message).await
    }

    /// Asks one member how it is, and remembers that it can be used.
    pub(super) async fn status(&self, at: usize) -> Result<StatusResponse, Failure> {
        let status: StatusResponse = self
            .unary(at, "/etcdserverpb.Maintenance/Status", StatusRequest {})
            .await
            .map_err(Trouble::failure)?;
        check_version(&status.version)?;
        if status.is_learner {
            let text = "it is a learner, which does not vote yet; name other members".to_owned();
            return Err(Failure::new(FailureKind::Unfit, text));
        }
        locked(&self.members[at].state).is_known = true;
        Ok(status)
    }

    async fn log_in(&self, at: usize) -> Result<(), Failure> {
        let Some(Login(name, password)) = self.login.clone() else { return Ok(()) };
        let request = AuthenticateRequest { name, password };
        let answer: AuthenticateResponse = self
            .unary(at, "/etcdserverpb.Auth/Authenticate", request)
            .await
            .map_err(Trouble::failure)?;
        let mut token = AsciiMetadataValue::try_from(answer.token).map_err(|_| {
            Failure::new(FailureKind::Unfit, "its token to log in with cannot be sent back to it")
        })?;
        token.set_sensitive(true);
        *locked(&self.token) = Some(token);
        Ok(())
    }

    async fn unary<Q, R>(&self, at: usize, path: &'static str, message: Q) -> Result<R, Trouble>
    where
        Q: Message + Clone + 'static,
        R: Message + Default + FromCluster + 'static,
    {
        let call = async {
            let mut grpc = self.grpc(at).await?;
            let codec = ProstCodec::<Q, R>::default();
            grpc.unary(self.request(message), PathAndQuery::from_static(path), codec).await
        };
        match timeout(self.limit, call).await {
            Ok(Ok(answer)) => {
                let answer = answer.into_inner();
                self.check_cluster(&answer)?;
                Ok(answer)
            }
            Ok(Err(status)) => Err(self.trouble(&status)),
            Err(_) => {
                let text = format!("no answer within {:?}", self.limit);
                Err(Failure::new(FailureKind::Silent, text).into())
            }
        }
    }

    /// The way to the member that is asked at present, for a stream, and which that is.
    pub(super) async fn active_grpc(&self) -> Result<(usize, Grpc<Channel>), Status> {
        let at = self.active.load(Ordering::Acquire);
        Ok((at, self.grpc(at).await?))
    }

    pub(super) fn active(&self) -> usize {
        self.active.load(Ordering::Acquire)
    }

    async fn grpc(&self, at: usize) -> Result<Grpc<Channel>, Status> {
        let mut grpc = Grpc::new(self.members[at].channel.clone());
        grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        Ok(grpc)
    }

    /// A message with what proves that we have logged in.
    pub(super) fn request<Q>(&self, message: Q) -> tonic::Request<Q> {
        let mut request = tonic::Request::new(message);
        if let Some(token) = &*locked(&self.token) {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }

    /// The next member is asked from now on. What each of them has said.
    pub(super) fn passed_over(&self, at: usize, failure: &Failure) -> Failure {
        {
            let mut state = locked(&self.members[at].state);
            state.is_known = false;
            state.why = Some(failure.to_string());
        }
        let next = (at + 1) % self.members.len();
        let moved =
            self.active.compare_exchange(at, next, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if moved && next != at {
            self.moved.notify_one();
        }
        Failure::new(failure.kind(), self.said())
    }

    /// What each member has said, of those that were of no use.
    fn said(&self) -> String {
        let said = self.members.iter().filter_map(|member| {
            let why = locked(&member.state).why.clone()?;
            Some(format!("{}: {why}", member.name))
        });
        said.collect::<Vec<_>>().join("; ")
    }

    /// Asks the member that leads from now on, if it is among ours and can be used.
    pub(super) async fn move_to_leader(&self) {
        let active = self.active();
        if self.leads(active).await {
            return;
        }
        let others = (0..self.members.len()).filter(|at| *at != active);
        // All at once: one that does not answer keeps nobody waiting.
        let mut asked: FuturesUnordered<_> =
            others.map(|at| async move { self.leads(at).await.then_some(at) }).collect();
        while let Some(leader) = asked.next().await {
            let Some(leader) = leader else { continue };
            let moved =
                self.active.compare_exchange(active, leader, Ordering::AcqRel, Ordering::Acquire);
            if moved.is_ok() {
                self.moved.notify_one();
            }
            return;
        }
    }

    /// Whether a member leads, as far as is known here: one that was stopped may not have heard of a later election.
    async fn leads(&self, at: usize) -> bool {
        let Ok(StatusResponse { header: Some(header), leader, .. }) = self.status(at).await else {
            return false;
        };
        header.member_id == leader && header.raft_term == self.term.load(Ordering::Acquire)
    }

    /// Moves to whoever leads, after every election.
    pub(super) async fn follow_leader(&self) {
        loop {
            self.elected.notified().await;
            self.move_to_leader().await;
        }
    }

    /// An answer of another cluster is worth nothing.
    fn check_cluster(&self, answer: &impl FromCluster) -> Result<(), Failure> {
        let Some(header) = answer.header() else { return Ok(()) };
        let ours = self.cluster.compare_exchange(
            0,
            header.cluster_id,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        match ours {
            Err(ours) if ours != header.cluster_id => Err(Failure::new(
                FailureKind::Broken,
                format!(
                    "it is of the cluster {:x}, and another member of {ours:x}; name members of one cluster",
                    header.cluster_id
                ),
            )),
            _ => {
                let before = self.term.fetch_max(header.raft_term, Ordering::AcqRel);
                if before < header.raft_term {
                    self.elected.notify_one();
                }
                Ok(())
            }
        }
    }

    /// What an error of a member means.
    pub(super) fn trouble(&self, status: &Status) -> Trouble {
        let text = status.message();
        let (kind, text) = match status.code() {
            Code::NotFound if text.contains("requested lease not found") => return Trouble::NoLease,
            Code::Unauthenticated => {
                *locked(&self.token) = None;
                // Until the next attempt, which logs in again.
                (FailureKind::Unreachable, text.to_owned())
            }
            Code::InvalidArgument if text.contains("authentication failed") => (
                FailureKind::Unfit,
                "it refuses the user or the password; correct them in the URL".to_owned(),
            ),
            Code::FailedPrecondition if text.contains("authentication is not enabled") => (
                FailureKind::Unfit,
                "it asks nobody to log in; take user and password out of the URL, or enable it with \
                 etcdctl auth enable"
                    .to_owned(),
            ),
            Code::InvalidArgument if text.contains("user name is empty") => (
                FailureKind::Unfit,
                "it asks to log in; write etcd://user:password@host".to_owned(),
            ),
            Code::PermissionDenied => (
                FailureKind::Unfit,
                format!(
                    "the user has no rights there; run etcdctl role grant-permission ROLE --prefix=true readwrite {}",
                    if self.prefix.is_empty() { "NAME/" } else { &self.prefix }
                ),
            ),
            Code::ResourceExhausted if text.contains("space exceeded") => (
                FailureKind::Rejected,
                "its database is full; compact and defragment it, then run etcdctl alarm disarm".to_owned(),
            ),
            Code::Unimplemented => (
                FailureKind::Unfit,
                format!("it is no etcd server, or too old: {text}; use etcd 3.4 or later"),
            ),
            // It never left.
            _ if is_refused(status) => (FailureKind::Unreachable, shown(status)),
            Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => {
                (FailureKind::Rejected, text.to_owned())
            }
            _ => (FailureKind::Broken, shown(status)),
        };
        Failure::new(kind, text).into()
    }
}

/// Whether another member may do what this one did not. What the cluster refuses, all of them refuse.
fn is_fault_of_member(failure: &Failure) -> bool {
    use FailureKind::{Broken, Silent, Unreachable};
    matches!(failure.kind(), Unreachable | Silent | Broken)
}

/// Whether there was no connection.
fn is_refused(status: &Status) -> bool {
    let mut error = status.source();
    while let Some(cause) = error {
        if cause.is::<tonic::ConnectError>() {
            return true;
        }
        error = cause.source();
    }
    false
}

/// The last cause is the one that says something.
fn shown(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut error = status.source();
    while let Some(cause) = error {
        text = cause.to_string();
        error = cause.source();
    }
    if text.contains("tls handshake eof") || text.contains("InvalidContentType") {
        text.push_str("; it does not speak TLS there: write etcd://, or the port that does");
    }
    text
}

/// Fails for versions that lose what they have acknowledged, or lack what is needed.
fn check_version(version: &str) -> Result<(), Failure> {
    let mut parts = version.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let mut part = || parts.next().unwrap_or(0);
    let text = match (part(), part(), part()) {
        (3, 5, 0..=2) => format!(
            "etcd {version} can lose what it has acknowledged when a member is killed; upgrade to 3.5.3 or later"
        ),
        (major, minor, _) if (major, minor) < (3, 4) => {
            format!("etcd {version} is too old; upgrade to 3.4 or later")
        }
        _ => return Ok(()),
    };
    Err(Failure::new(FailureKind::Unfit, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_password_is_shown() {
        let address = Address::parse(0, "etcd://ann:hunter2@a").unwrap();
        let client = Client::new(&address, KEEP_ALIVE).unwrap();
        assert!(!format!("{client:?} {address:?}").contains("hunter2"));
    }

    #[tokio::test]
    async fn what_the_cluster_refuses_is_not_asked_of_another_member() {
        let address = Address::parse(0, "etcd://a,b").unwrap();
        let client = Client::new(&address, KEEP_ALIVE).unwrap();
        let is_fault = |status| match client.trouble(&status) {
            Trouble::Failed(failure) => is_fault_of_member(&failure),
            Trouble::NoLease => false,
        };
        assert!(is_fault(Status::unavailable("etcdserver: no leader")));
        assert!(is_fault(Status::unknown("x")));
        assert!(!is_fault(Status::permission_denied("x")));
        assert!(!is_fault(Status::invalid_argument("etcdserver: request is too large")));
        assert!(!is_fault(Status::resource_exhausted("etcdserver: mvcc: database space exceeded")));
    }

    #[test]
    fn versions_that_lose_data_are_refused() {
        for version in ["3.4.23", "3.5.3", "3.6.0-rc.1", "3.7.3", "4.0.0"] {
            assert!(check_version(version).is_ok(), "{version}");
        }
        for version in ["3.5.0", "3.5.2", "3.3.27", "2.3.8", ""] {
            assert!(check_version(version).is_err(), "{version}");
        }
    }
}
