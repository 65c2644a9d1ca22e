//! Setting a locker up.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Error;
use crate::error::NodeAnswers;
use crate::examine::{self, Checkup};
use crate::forget;
use crate::init::{self, NodeInit};
use crate::locker::Locker;
use crate::members::{self, Changed, MemberChange, MemberReport};
use crate::node::{self, ClientId, Node, Setting};
use crate::opening::{Opening, Wanted};
use crate::runtime::{Runtime, TokioRuntime};
use crate::settings::{Dialect, Settings, default_loss_lead, default_node_limit};
use quorlock_protocol::{Backoff, Drift, MAX_NODES, Quorum};

/// Sets a [`Locker`] up. Every default stands in [`Settings`].
#[derive(Default)]
#[must_use = "a builder does nothing until connect"]
pub struct Builder {
    urls: Vec<String>,
    nodes: Vec<Arc<dyn Node>>,
    settings: Settings,
    node_limit: Option<Duration>,
    loss_lead: Option<Duration>,
    drift: Option<Drift>,
    runtime: Option<Arc<dyn Runtime>>,
}

impl Builder {
    /// Adds nodes by URL: `redis://[user:password@]host[:port][/db]`, `rediss://…` with TLS
    /// (feature `tls`; `?ca=FILE` for an authority of your own), `redis+unix:///path[?db=N]`, where
    /// `valkey` may stand for `redis`; `sqlite:PATH` (feature `sqlite`) for the processes of one
    /// machine.
    pub fn nodes<U: Into<String>>(mut self, urls: impl IntoIterator<Item = U>) -> Self {
        self.urls.extend(urls.into_iter().map(Into::into));
        self
    }

    /// Adds nodes of your own making.
    pub fn with_nodes(mut self, nodes: impl IntoIterator<Item = Arc<dyn Node>>) -> Self {
        self.nodes.extend(nodes);
        self
    }

    /// How long a node keeps a lock unless it is extended. Default: 10 s.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.settings.ttl = ttl;
        self
    }

    /// The longest TTL that any lock may ask for. Default: 30 s.
    pub fn max_ttl(mut self, max_ttl: Duration) -> Self {
        self.settings.max_ttl = max_ttl;
        self
    }

    /// How long a node may be silent before nobody waits for it any longer. Silence counts from its last reply,
    /// and one that has lately taken longer to answer may be silent for twice as long as that. Default: 200 ms,
    /// or a twentieth of the TTL if that is less.
    pub fn node_limit(mut self, limit: Duration) -> Self {
        self.node_limit = Some(limit);
        self
    }

    /// How long before the end of the validity [`Guard::lost`](crate::Guard::lost) tells of the loss:
    /// what a holder needs to stop its work. Default: a twentieth of the TTL.
    pub fn loss_lead(mut self, lead: Duration) -> Self {
        self.loss_lead = Some(lead);
        self
    }

    /// How often a lock may be extended, by the watchdog or by its holder, unless the
    /// [`Lock`](crate::Lock) says otherwise. Default: without limit.
    pub fn max_extensions(mut self, most: u32) -> Self {
        self.settings.max_extensions = Some(most);
        self
    }

    /// How long a lock may be held with all its extensions, unless the [`Lock`](crate::Lock) says
    /// otherwise. Default: without limit.
    pub fn max_hold(mut self, longest: Duration) -> Self {
        self.settings.max_hold = Some(longest);
        self
    }

    /// How long one attempt to connect to a node may take. Default: 1 s.
    pub fn connect_limit(mut self, limit: Duration) -> Self {
        self.settings.connect_limit = limit;
        self
    }

    /// How far clocks may run apart during one lease. Default: what the nodes ask for; on Redis
    /// 2 ms and 10 % of the TTL, since a daemon that slews a clock may run it 8 % off.
    pub fn drift(mut self, drift: Drift) -> Self {
        self.drift = Some(drift);
        self
    }

    /// The widest spread of the random delay between two attempts. Default: 200 ms.
    pub fn longest_retry_delay(mut self, longest: Duration) -> Self {
        self.settings.retry = Backoff { longest };
        self
    }

    /// How many holders of this process in a row may have a lock before it is offered to other
    /// processes. Each of them passes it to the next without asking the nodes. Default: 16, and at most
    /// [`MAX_LOCAL_TURNS`](crate::MAX_LOCAL_TURNS).
    pub fn local_turns(mut self, turns: u16) -> Self {
        self.settings.local_turns = turns;
        self
    }

    /// What is put before each name to make the key on a Redis node. Default: nothing, so that
    /// every Redlock library in any language shares the lock.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.settings.prefix = prefix.as_ref().to_vec();
        self
    }

    /// How locks lie on Redis and Valkey nodes, and so what can be promised of them. Default:
    /// [`Dialect::Strict`].
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.settings.dialect = dialect;
        self
    }

    /// How far a node's clock may be behind this machine's, and how far ahead, the longest way of a
    /// request included. A node whose clock is outside of that casts no vote. Both are taken off the
    /// end of each lease. In the `strict` dialect alone. Default: 100 ms and 300 ms.
    pub fn clock_window(mut self, behind: Duration, ahead: Duration) -> Self {
        (self.settings.clock_behind, self.settings.clock_ahead) = (behind, ahead);
        self
    }

    /// How far the clocks of two clients may be apart: what the `strict` dialect rests on. It is taken
    /// off the end of each lease twice. Default: 50 ms.
    pub fn clients_apart(mut self, apart: Duration) -> Self {
        self.settings.clients_apart = apart;
        self
    }

    /// Takes a node without a marker for a new one. In the `strict` dialect such a node otherwise casts
    /// no vote for as long as a lock may last, since it may have been emptied. For tests; on servers
    /// that matter, `quorlock init` says it once. Default: no.
    pub fn trust_new_nodes(mut self, trust: bool) -> Self {
        self.settings.trust_new_nodes = trust;
        self
    }

    /// Whether each holder has a number that grows, [`Guard::fence`](crate::Guard::fence). Without it a
    /// lock in the `redlock` dialect is taken by one plain `SET`, which is faster. The `strict` dialect
    /// always has it. Default: yes.
    pub fn fences(mut self, fences: bool) -> Self {
        self.settings.fences = fences;
        self
    }

    /// Another source of time, tasks and randomness than tokio and the operating system.
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Checks the settings, connects to the nodes, and returns as soon as a majority is ready and
    /// the others have had as long again. Nodes that are not ready join when they are: what is asked of them
    /// waits for a moment, and then goes on without them. They are tried again and again in the background.
    ///
    /// # Errors
    /// - [`Error::Misuse`]: settings that do not fit together, a URL that cannot be read, or one
    ///   server behind two URLs.
    /// - [`Error::NoQuorum`]: fewer than a majority of the nodes can be used; it says why.
    ///
    /// # Panics
    /// Outside of a tokio runtime, unless [`runtime`](Self::runtime) was given.
    ///
    /// # Cancel safety
    /// Dropping it closes the connections again.
    pub async fn connect(self) -> Result<Locker, Error> {
        let opening = self.open()?;
        let ready = opening.wait_ready(None).await;
        opening.check_ready(&ready)?;
        opening.finish().await
    }

    /// Connects as [`connect`](Self::connect) does, and returns though fewer than a majority of the nodes can be
    /// used: to look at locks in an outage, with [`Locker::inspect`] and [`Locker::list_known`]. Waits for all
    /// nodes first, for as long as [`connect_limit`](Self::connect_limit), or a quarter of that once a majority is
    /// ready.
    ///
    /// # Errors
    /// [`Error::Misuse`]: settings that do not fit together, a URL that cannot be read, or one server
    /// behind two URLs.
    ///
    /// # Panics
    /// Outside of a tokio runtime, unless [`runtime`](Self::runtime) was given.
    ///
    /// # Cancel safety
    /// Dropping it closes the connections again.
    pub async fn connect_to_look(self) -> Result<Locker, Error> {
        let opening = self.open()?;
        let ready = opening.wait_ready(Some(opening.connect_limit() / 4)).await;
        match opening.check_ready(&ready) {
            Ok(()) | Err(Error::NoQuorum { .. }) => opening.finish().await,
            Err(error) => Err(error),
        }
    }

    /// Checks the settings, and begins to connect to the nodes.
    fn open(mut self) -> Result<Opening, Error> {
        let quorum = self.complete()?;
        if let Some(warning) = Settings::warning_for(quorum) {
            tracing::warn!("{warning}");
        }
        let runtime = self.runtime.take().unwrap_or_else(|| Arc::new(TokioRuntime::current()));
        let client = ClientId::random(&*runtime);
        let setting = Setting::new(&self.urls, &self.nodes, &self.settings, &runtime, client)?;
        self.nodes.extend(node::open_with(&self.urls, &setting)?);
        let wanted = Wanted { node_limit: self.node_limit, drift: self.drift };
        Ok(Opening::new(self.nodes, quorum, setting, wanted))
    }

    /// Looks the nodes over instead of connecting to them for good: what they are, what is wrong
    /// with them, and what to do about it. A lock whose name starts with `name` is tried out on each
    /// node, released and forgotten.
    ///
    /// # Errors
    /// [`Error::Misuse`]: settings that do not fit together, a URL that cannot be read, or a name that
    /// no lock can start with. What is wrong with a node stands in the [`Checkup`].
    ///
    /// # Panics
    /// Outside of a tokio runtime, unless [`runtime`](Self::runtime) was given.
    ///
    /// # Cancel safety
    /// Dropping it closes the connections. A lock that was being tried out ends with its TTL.
    pub async fn examine(mut self, name: impl AsRef<[u8]>) -> Result<Checkup, Error> {
        let quorum = self.complete()?;
        // What is tried out starts like this, and goes on behind a colon.
        self.settings.name([name.as_ref(), b":"].concat())?;
        examine::examine(&self.urls, &self.nodes, quorum, &self.setting()?, name.as_ref()).await
    }

    /// Marks the nodes as new: they vote from now on, and do not wait first until everything has ended
    /// that they may have granted and forgotten. Only Redis and Valkey nodes in the `strict` dialect
    /// have to be told.
    ///
    /// **Only on the word of somebody who knows** that no lock which any client still believes in was
    /// ever granted by these nodes. Otherwise two may hold one lock.
    ///
    /// All of them are looked at first. A node that was restarted, that has no marker while others of the
    /// set vote, that is in quarantine, that belongs to another set of nodes or serves clients with another
    /// longest TTL or clock window, or on which a lock is held is no new one. Unless `force` is set, it is
    /// refused, and no node is changed then, nor if one of them cannot be reached.
    ///
    /// # Errors
    /// [`Error::Misuse`]: settings that do not fit together, a URL that cannot be read, or one server
    /// behind two URLs. What became of each node stands in the answer.
    ///
    /// # Panics
    /// Outside of a tokio runtime, unless [`runtime`](Self::runtime) was given.
    ///
    /// # Cancel safety
    /// Dropping it closes the connections. Some nodes may have been marked by then.
    pub async fn init(mut self, force: bool) -> Result<Vec<NodeInit>, Error> {
        self.complete()?;
        init::init(&self.urls, &self.nodes, &self.setting()?, force).await
    }

    /// Looks at the set of nodes: what each of them says of it. Nothing is changed.
    ///
    /// # Errors
    /// [`Error::Misuse`]: settings that do not fit together, a URL that cannot be read, or one server
    /// behind two URLs. What is wrong with a node stands in the report.
    ///
    /// # Panics
    /// Outside of a tokio runtime, unless [`runtime`](Self::runtime) was given.
    ///
    /// # Cancel safety
    /// Dropping it closes the connections.
    pub async fn members(mut self) -> Result<MemberReport, Error> {
        self.complete()?;
        members::members(&self.urls, &self.nodes, &self.setting()?).await
    }

    /// Changes the set of nodes by one, and takes that as far as it goes at once: the members of the old set
    /// are closed, and serve it no more; those of the new one carry it, and vote when all of them have
    /// done so for a quarantine. **Until then nobody gets a lock, and locks that are held are lost at the end of
    /// their time.** At no moment both sets vote.
    ///
    /// Stopped anywhere, it is completed by doing it again, with the old list; or by the clients of the new set
    /// themselves, once all of its nodes carry it. `gone` says that the member which leaves never comes back
    /// with what it knows, if it cannot be reached.
    ///
    /// Only Redis and Valkey nodes in the `strict` dialect know of their set: others need nothing but the new
    /// list, given to all clients at once.
    ///
    /// # Errors
    /// [`Error::Misuse`]: settings that do not fit together, a URL that cannot be read, or a change that would
    /// not come to its end: it says why, and nothing was changed.
    ///
    /// # Panics
    /// Outside of a tokio runtime, unless [`runtime`](Self::runtime) was given.
    ///
    /// # Cancel safety
    /// Dropping it leaves the change where it is: do it again.
    pub async fn change_members(
        mut self,
        change: &MemberChange,
        gone: bool,
    ) -> Result<Changed, Error> {
        self.complete()?;
        members::change(&self.urls, &self.setting()?, change, gone).await
    }

    /// Has the nodes forget locks that are free: the last number of each, which they would keep for a
    /// day. A lock that is held or waited for is left alone.
    ///
    /// **Only for names that nobody uses again**, such as those of a test or a measurement: a later
    /// holder may get a number that is not above an earlier one's.
    ///
    /// Returns the nodes that did not forget all of them, and why; there they go by themselves. Nodes
    /// of your own making are not asked.
    ///
    /// # Errors
    /// [`Error::Misuse`]: settings that do not fit together, a URL that cannot be read, or a name that no
    /// lock can have.
    ///
    /// # Panics
    /// Outside of a tokio runtime, unless [`runtime`](Self::runtime) was given.
    ///
    /// # Cancel safety
    /// Dropping it closes the connections. Some nodes may have forgotten by then.
    pub async fn forget<N: AsRef<[u8]>>(
        mut self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<NodeAnswers, Error> {
        self.complete()?;
        let names = names.into_iter().map(|name| self.settings.name(name));
        let names = names.collect::<Result<_, _>>()?;
        forget::forget(&self.urls, &self.setting()?, names).await
    }

    /// Has the nodes forget the number of a lock, where it is one that nobody can have been given: more than a
    /// day ahead of the time of day, so that those nodes [refuse](node::FailureKind::Fence) the lock. Whoever holds
    /// it there loses it on that node in the `strict` dialect.
    ///
    /// **Only once nobody holds the lock**, and if the clocks of clients were not ahead by so much when it was
    /// last taken: holders have such numbers then, and later ones would get lower ones.
    ///
    /// Returns how many nodes have forgotten it, and which could not be asked. Nodes of your own making are
    /// not asked.
    ///
    /// # Errors
    /// [`Error::Misuse`]: settings that do not fit together, a URL that cannot be read, or a name that no
    /// lock can have.
    ///
    /// # Panics
    /// Outside of a tokio runtime, unless [`runtime`](Self::runtime) was given.
    ///
    /// # Cancel safety
    /// Dropping it closes the connections. Some nodes may have forgotten by then.
    pub async fn forget_number(
        mut self,
        name: impl AsRef<[u8]>,
    ) -> Result<(usize, NodeAnswers), Error> {
        self.complete()?;
        let name = self.settings.name(name)?;
        forget::forget_number(&self.urls, &self.setting()?, &name).await
    }

    /// What goes to each node that is asked without a locker.
    fn setting(&self) -> Result<Setting, Error> {
        let runtime = self.runtime.clone().unwrap_or_else(|| Arc::new(TokioRuntime::current()));
        let client = ClientId::random(&*runtime);
        Setting::new(&self.urls, &self.nodes, &self.settings, &runtime, client)
    }

    /// Fills in what follows from other settings, and checks them all.
    fn complete(&mut self) -> Result<Quorum, Error> {
        let count = self.urls.len() + self.nodes.len();
        let Some(quorum) = Quorum::of(count) else {
            return Err(wrong_number_of_nodes(count));
        };
        let settings = &mut self.settings;
        settings.node_limit = self.node_limit.unwrap_or(default_node_limit(settings.ttl));
        settings.loss_lead = self.loss_lead.unwrap_or(default_loss_lead(settings.ttl));
        settings.check()?;
        Ok(quorum)
    }
}

fn wrong_number_of_nodes(count: usize) -> Error {
    if count == 0 {
        Error::misuse("no nodes were given", "name at least one, such as redis://localhost")
    } else {
        Error::misuse(
            format!("{count} nodes were given"),
            format!("use at most {MAX_NODES}; five survive the loss of two"),
        )
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the URLs: they may hold passwords.
        f.debug_struct("Builder")
            .field("nodes", &(self.urls.len() + self.nodes.len()))
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
