//! Setting a locker up.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Error;
use crate::admin::Admin;
use crate::locker::Locker;
#[cfg(feature = "mysql")]
use crate::node::mysql::MysqlOptions;
#[cfg(feature = "postgres")]
use crate::node::postgres::PostgresOptions;
#[cfg(feature = "redis")]
use crate::node::redis::RedisOptions;
use crate::node::{self, ClientId, Node, NodeContext, NodeOptions};
use crate::opening::{Opening, Wanted};
use crate::runtime::{Runtime, TokioRuntime};
use crate::settings::{Settings, default_loss_lead, default_node_limit};
use quorlock_protocol::{Backoff, Drift, MAX_NODES, Quorum};

/// Sets a [`Locker`] up. Every default stands in [`Settings`].
#[derive(Default)]
#[must_use = "a builder does nothing until connect"]
pub struct Builder {
    pub(crate) urls: Vec<String>,
    pub(crate) nodes: Vec<Arc<dyn Node>>,
    pub(crate) settings: Settings,
    options: NodeOptions,
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

    /// How far clocks may run apart during one lease. Default: what the nodes ask for. On Redis that is 2 ms and
    /// 1 % of the TTL; in the `redlock` dialect 10 %, since a daemon that slews a clock may run it 8 % off.
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

    /// What is set for all Redis and Valkey nodes: their dialect, the prefix of their keys, how far clocks may
    /// differ. Default: [`RedisOptions::default`], which is the `strict` dialect without a prefix.
    #[cfg(feature = "redis")]
    pub fn redis(mut self, options: RedisOptions) -> Self {
        self.options.redis = options;
        self
    }

    /// What is set for all MySQL and MariaDB nodes: how far clocks may differ. Default: [`MysqlOptions::default`].
    #[cfg(feature = "mysql")]
    pub fn mysql(mut self, options: MysqlOptions) -> Self {
        self.options.mysql = options;
        self
    }

    /// What is set for all PostgreSQL nodes: how far clocks may differ. Default: [`PostgresOptions::default`].
    #[cfg(feature = "postgres")]
    pub fn postgres(mut self, options: PostgresOptions) -> Self {
        self.options.postgres = options;
        self
    }

    /// Whether each holder has a fence, a number that grows, [`Guard::fence`](crate::Guard::fence). Without it a
    /// lock on Redis in the `redlock` dialect is taken by one plain `SET`, which is faster. The `strict` dialect
    /// always has it, and refuses to do without. Default: yes.
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
        let context = NodeContext::new(
            &self.urls,
            &self.nodes,
            &self.settings,
            &self.options,
            &runtime,
            client,
        )?;
        self.nodes.extend(node::open_with(&self.urls, &context)?);
        let wanted = Wanted { node_limit: self.node_limit, drift: self.drift };
        Opening::new(self.nodes, quorum, context, wanted)
    }

    /// What is done to the nodes apart from locking: looking them over, marking new ones, changing their set.
    #[must_use = "it does nothing by itself"]
    pub fn admin(self) -> Admin {
        Admin::new(self)
    }

    /// What goes to each node that is asked without a locker.
    pub(crate) fn context(&self) -> Result<NodeContext, Error> {
        let runtime = self.runtime.clone().unwrap_or_else(|| Arc::new(TokioRuntime::current()));
        let client = ClientId::random(&*runtime);
        NodeContext::new(&self.urls, &self.nodes, &self.settings, &self.options, &runtime, client)
    }

    /// Fills in what follows from other settings, and checks them all.
    pub(crate) fn complete(&mut self) -> Result<Quorum, Error> {
        let count = self.urls.len() + self.nodes.len();
        let Some(quorum) = Quorum::of(count) else {
            return Err(wrong_number_of_nodes(count));
        };
        let settings = &mut self.settings;
        settings.node_limit = self.node_limit.unwrap_or(default_node_limit(settings.ttl));
        settings.loss_lead = self.loss_lead.unwrap_or(default_loss_lead(settings.ttl));
        settings.check()?;
        let has_own = !self.nodes.is_empty();
        let terms = self.options.resolve(&self.urls, has_own, &self.settings)?;
        self.settings.name_prefix = terms.name_prefix;
        self.settings.trust_new_nodes = terms.trusts_new_nodes;
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
