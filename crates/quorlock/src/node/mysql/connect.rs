//! Opening connections, and finding out who answers.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::try_join_all;
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error, Opts, Params, Row, Value};

use super::address::Address;
use super::error::{PROXIED, is_no_thread, is_not_set_up, is_without_tls, unreachable};
use super::link::LANES;
use super::schema::VERSION;
use crate::node::{ClientId, Failure, FailureKind, NodeContext};
use crate::runtime::random_u64;

/// The first versions that have all that is needed.
const OLDEST: [u32; 2] = [8, 0];
const OLDEST_MARIADB: [u32; 2] = [10, 6];

/// A call waits for the row of its lock so long at the most: no shorter time can be set.
pub(super) const LOCK_WAIT: Duration = Duration::from_secs(1);

/// How often it is looked whether a connection from before has ended on the server.
const PAUSE: Duration = Duration::from_millis(20);

/// What has to be known of a server. Every user may see them.
const VARIABLES: &[&str] = &[
    "version",
    "server_uid",
    "server_uuid",
    "server_id",
    "hostname",
    "port",
    "read_only",
    "super_read_only",
    "innodb_read_only",
    "wsrep_on",
    "group_replication_single_primary_mode",
    "log_bin",
    "binlog_format",
    "sync_binlog",
    "innodb_flush_log_at_trx_commit",
    "innodb_flush_method",
    "max_connections",
];

/// A connection that speaks SQL, one question after another.
pub(super) struct Session {
    pub(super) conn: Conn,
    /// Whether the server was found to do without TLS.
    is_plain: bool,
}

/// What a server says of itself.
#[derive(Debug, Default)]
pub(super) struct Facts {
    variables: BTreeMap<String, String>,
    /// Whether `SYSDATE` is the time of day, as it has to be.
    tells_time: bool,
    /// The user that the server has taken us for.
    pub(super) user: String,
}

/// What the procedures say of their database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) version: i64,
    pub(super) marker: Vec<u8>,
    /// Which start of the server this is.
    pub(super) start: String,
    /// Whether each transaction is given to the disk before it is answered.
    pub(super) is_durable: bool,
    /// The user lock that says that the client lives.
    pub(super) sign_of_life: String,
}

/// Connections that have been greeted.
pub(super) struct Connected {
    /// Calls go over these.
    pub(super) lanes: Vec<Conn>,
    /// This one waits for grant messages.
    pub(super) listener: Conn,
    /// Which server this is, or which start of it.
    pub(super) start: String,
    /// The same, with the database: two nodes cannot be there.
    pub(super) place: String,
    /// The marker that was there; empty if there was none.
    pub(super) marker: Vec<u8>,
    /// What every call names, so that it runs on these connections or not at all.
    pub(super) name: String,
    /// How long the last question has taken.
    pub(super) took: Duration,
    /// What has to be ended on the server before others speak in their place.
    pub(super) predecessors: Predecessors,
}

/// Connections of this node, as a server numbers them.
#[derive(Debug, Clone, Default)]
pub(super) struct Predecessors {
    /// The start of the server that they lead to.
    start: String,
    ids: Vec<u32>,
}

impl Session {
    /// Opens a connection, and nothing more.
    pub(super) async fn open(address: &Address) -> Result<Self, Failure> {
        let opened = match (Conn::new(address.opts.clone()).await, &address.plain) {
            (Err(error), Some(plain)) if is_without_tls(&error) => {
                return Self::open_with(plain).await.map(|other| Self { is_plain: true, ..other });
            }
            (opened, _) => opened,
        };
        Ok(Self { conn: opened.map_err(|error| unreachable(&error))?, is_plain: false })
    }

    /// Opens another one to the same server.
    async fn open_another(address: &Address, is_plain: bool) -> Result<Self, Failure> {
        match &address.plain {
            Some(plain) if is_plain => Self::open_with(plain).await,
            _ => Self::open_with(&address.opts).await,
        }
    }

    async fn open_with(opts: &Opts) -> Result<Self, Failure> {
        let conn = Conn::new(opts.clone()).await.map_err(|error| unreachable(&error))?;
        Ok(Self { conn, is_plain: false })
    }

    pub(super) async fn run(&mut self, sql: &str) -> Result<(), Failure> {
        self.conn.query_drop(sql).await.map_err(|error| unreachable(&error))
    }

    /// Asks for one row.
    pub(super) async fn row(&mut self, sql: &str, params: Vec<Value>) -> Result<Row, Failure> {
        let params = if params.is_empty() { Params::Empty } else { Params::Positional(params) };
        let row = self.conn.exec_first(sql, params).await.map_err(|error| unreachable(&error))?;
        row.ok_or_else(|| Failure::new(FailureKind::Broken, "an answer has no row"))
    }

    /// Finds out what the server is.
    pub(super) async fn facts(&mut self) -> Result<Facts, Failure> {
        self.run("SET NAMES utf8mb4").await?;
        let names: Vec<_> = VARIABLES.iter().map(|name| format!("'{name}'")).collect();
        let sql = format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({})", names.join(", "));
        let said: Vec<(String, String)> =
            self.conn.query(sql).await.map_err(|error| unreachable(&error))?;
        let sql =
            "SELECT SLEEP(0.001) = 0 AND NOW(6) < SYSDATE(6) AS tells_time, CURRENT_USER() AS user";
        let row = self.row(sql, Vec::new()).await?;
        Ok(Facts {
            variables: said.into_iter().map(|(name, value)| (name.to_lowercase(), value)).collect(),
            tells_time: column::<i64>(&row, "tells_time")? == 1,
            user: column(&row, "user")?,
        })
    }

    /// Greets the procedures; `None` if they are not there, or may not be called.
    pub(super) async fn greet(&mut self, client: u64) -> Result<Option<Greeting>, Failure> {
        let params = Params::Positional(vec![client.into()]);
        let row: Option<Row> = match self.conn.exec_first("CALL quorlock_greet(?)", params).await {
            Err(error) if is_not_set_up(&error) => return Ok(None),
            row => row.map_err(|error| unreachable(&error))?,
        };
        let row = row.ok_or_else(|| Failure::new(FailureKind::Broken, "a greeting has no row"))?;
        Ok(Some(Greeting {
            version: column(&row, "version")?,
            marker: column(&row, "marker")?,
            start: column(&row, "start")?,
            is_durable: column::<i64>(&row, "durable")? == 1,
            sign_of_life: column(&row, "sign_of_life")?,
        }))
    }

    /// Makes what holds for all that is sent over this connection, whatever was set for the server, and names it.
    pub(super) async fn prepare(&mut self, name: &str, greeting: &Greeting) -> Result<(), Failure> {
        let durable = u8::from(greeting.is_durable);
        // Bytes are bytes: nothing is converted on its way.
        let sql = format!(
            "SET NAMES binary; SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
             SET SESSION TRANSACTION READ WRITE; \
             SET SESSION time_zone = '+00:00', autocommit = 1, innodb_lock_wait_timeout = {seconds}, \
             lock_wait_timeout = {seconds}, wait_timeout = 2147483, completion_type = 0, \
             @quorlock_session = '{name}', @quorlock_durable = {durable}",
            seconds = LOCK_WAIT.as_secs()
        );
        self.run(&sql).await
    }
}

fn column<T: mysql_async::prelude::FromValue>(row: &Row, name: &str) -> Result<T, Failure> {
    let value = row.get_opt::<T, _>(name).and_then(Result::ok);
    value.ok_or_else(|| Failure::new(FailureKind::Broken, format!("an answer lacks {name}")))
}

impl Facts {
    pub(super) fn get(&self, name: &str) -> &str {
        self.variables.get(name).map_or("", String::as_str)
    }

    fn is_on(&self, name: &str) -> bool {
        matches!(self.get(name), "ON" | "1")
    }

    pub(super) fn is_mariadb(&self) -> bool {
        self.get("version").to_lowercase().contains("mariadb")
    }

    /// The name and the version.
    pub(super) fn server(&self) -> String {
        let name = if self.is_mariadb() { "MariaDB" } else { "MySQL" };
        format!("{name} {}", self.get("version"))
    }

    /// What tells this server from all others. One that is told from none is told by each of its starts.
    ///
    /// MariaDB makes its own from a network card and the port, and replicas have to have another `server_id`.
    fn system(&self) -> Option<String> {
        let own = [self.get("server_uuid"), self.get("server_uid")];
        let own = own.into_iter().find(|own| !own.is_empty())?;
        let all = [own, self.get("server_id"), self.get("hostname"), self.get("port")].join("/");
        let mut digest = sha1_smol::Sha1::from(all).digest().to_string();
        digest.truncate(20);
        Some(digest)
    }

    /// Whether no crash of the server loses a transaction that was committed.
    pub(super) fn keeps(&self, greeting: &Greeting) -> bool {
        greeting.is_durable && !self.get("innodb_flush_method").contains("nosync")
    }

    /// Which server this is; and which start of it, if the next one may have forgotten something.
    pub(super) fn identity(&self, greeting: &Greeting) -> String {
        match self.system() {
            Some(system) if self.keeps(greeting) => format!("{system}/durable"),
            Some(system) => format!("{system}/{}", greeting.start),
            None => format!("-/{}", greeting.start),
        }
    }

    /// Where the database is.
    pub(super) fn place(&self, address: &Address) -> String {
        let system = self.system().unwrap_or_else(|| {
            [self.get("server_id"), self.get("hostname"), self.get("port")].join("/")
        });
        format!("{system}/{}", address.database)
    }

    /// Whether the server can keep locks at all, set up for them or not.
    pub(super) fn check_server(&self) -> Result<(), Failure> {
        let mut parts = self.get("version").split(['.', '-']).map(|part| part.parse().unwrap_or(0));
        let version = [parts.next().unwrap_or(0), parts.next().unwrap_or(0)];
        let oldest = if self.is_mariadb() { OLDEST_MARIADB } else { OLDEST };
        let text = if version < oldest {
            format!("is {}; MySQL 8.0 or MariaDB 10.6 or later is needed", self.server())
        } else if self.is_on("wsrep_on") {
            "is a member of a Galera cluster, whose members have user locks and row locks of their own: two could grant one \
             lock; use a server that is none"
                .to_owned()
        } else if self.get("group_replication_single_primary_mode") == "OFF" {
            "is a member of a group with several primaries, which have row locks of their own: two could grant one lock; \
             use group_replication_single_primary_mode = ON"
                .to_owned()
        } else if ["read_only", "super_read_only", "innodb_read_only"]
            .iter()
            .any(|name| matches!(self.get(name), value if !matches!(value, "" | "OFF" | "0")))
        {
            "can only be read, as a replica is; name its primary, or set read_only = OFF".to_owned()
        } else if self.is_on("log_bin") && self.get("binlog_format") == "STATEMENT" {
            "has binlog_format = STATEMENT, which takes no changes at READ COMMITTED; set binlog_format = MIXED or ROW"
                .to_owned()
        } else if !self.tells_time {
            "was started with --sysdate-is-now: a clock that stands still while a call waits is none to lock by; start it \
             without"
                .to_owned()
        } else {
            return Ok(());
        };
        Err(Failure::new(FailureKind::Unfit, text))
    }
}

/// Whether the database is set up for locks, as this version needs it.
pub(super) fn check_schema(
    address: &Address,
    greeting: Option<Greeting>,
) -> Result<Greeting, Failure> {
    let Address { database, .. } = address;
    let set_up = "run quorlock init, or have somebody run what quorlock init --print-sql prints";
    let text = match greeting {
        None => format!(
            "the database {database} has no procedures of Quorlock that this user may call: {set_up}; and have the user \
             granted EXECUTE ON `{database}`.*"
        ),
        Some(Greeting { version, .. }) if version < VERSION => format!(
            "the procedures in {database} have version {version}, and {VERSION} is needed: {set_up}"
        ),
        Some(Greeting { version, .. }) if version > VERSION => format!(
            "the procedures in {database} have version {version}, and this client knows {VERSION}; use the version of \
             Quorlock that has set it up, or a later one"
        ),
        Some(greeting) => return Ok(greeting),
    };
    Err(Failure::new(FailureKind::Unfit, text))
}

/// Connects, and checks that the database can be a node.
///
/// Earlier connections of this client are ended on the server first, so that none of their calls can run after those of
/// these: `predecessors`, and whoever has the user lock of the client.
pub(super) async fn connect(
    address: &Address,
    context: &NodeContext,
    client: ClientId,
    predecessors: &Predecessors,
) -> Result<Connected, Failure> {
    let runtime = &context.runtime;
    let mut first = Session::open(address).await?;
    let facts = first.facts().await?;
    facts.check_server()?;
    let number = client_number(client);
    let asked = runtime.now();
    let greeting = check_schema(address, first.greet(number).await?)?;
    let took = runtime.now().since(asked);
    refuse_proxy(&mut first).await?;
    let place = facts.place(address);
    if let Err(other) = context.servers.claim(&place, address.index, &address.label) {
        let text = format!(
            "is the same database as {other}: of the same server_uuid or server_uid, server_id, hostname and port"
        );
        return Err(Failure::new(FailureKind::Duplicate, text));
    }
    let name = format!("{client}:{:016x}", random_u64(&**runtime));
    let is_plain = first.is_plain;
    let others = (0..LANES).map(|_| async {
        let mut session = Session::open_another(address, is_plain).await?;
        let other = check_schema(address, session.greet(number).await?)?;
        if other.start != greeting.start {
            let text = "leads to another server with each connection, as a load balancer does; name one server";
            return Err(Failure::new(FailureKind::Unfit, text));
        }
        session.prepare(&name, &greeting).await?;
        Ok(session.conn)
    });
    let mut lanes = try_join_all(others).await?;
    first.prepare(&name, &greeting).await?;
    let mut listener = first.conn;
    if predecessors.start == greeting.start {
        for id in &predecessors.ids {
            end(&mut lanes[0], *id, context).await?;
        }
    }
    take_sign_of_life(&mut listener, &mut lanes[0], &greeting.sign_of_life, context).await?;
    let ids = lanes.iter().map(Conn::id).chain([listener.id()]).collect();
    Ok(Connected {
        lanes,
        start: facts.identity(&greeting),
        place,
        marker: greeting.marker,
        name,
        took,
        predecessors: Predecessors { start: greeting.start, ids },
        listener,
    })
}

/// The number of a client, as its tickets name it.
pub(super) fn client_number(client: ClientId) -> u64 {
    // Of 16 hexadecimal digits.
    u64::from_str_radix(&client.to_string(), 16).unwrap_or_default()
}

/// A server that calls a connection by another number than the one that was greeted is not at its other end.
pub(super) async fn refuse_proxy(session: &mut Session) -> Result<(), Failure> {
    let greeted = u64::from(session.conn.id());
    let row = session.row("SELECT CONNECTION_ID() AS id", Vec::new()).await?;
    // The greeting has room for the lower half of it.
    if column::<u64>(&row, "id")? & u64::from(u32::MAX) == greeted {
        return Ok(());
    }
    Err(Failure::new(FailureKind::Unfit, PROXIED))
}

/// Ends a connection on the server, and waits until it has ended. It is of the same user, so that no right is needed for it.
async fn end(conn: &mut Conn, id: u32, context: &NodeContext) -> Result<(), Failure> {
    loop {
        match conn.query_drop(format!("KILL CONNECTION {id}")).await {
            Ok(()) => context.runtime.sleep(PAUSE).await,
            Err(error) if is_no_thread(&error) => return Ok(()),
            // It is of somebody else by now, who has another user.
            Err(Error::Server(said)) if said.code == 1095 => return Ok(()),
            Err(error) => return Err(unreachable(&error)),
        }
    }
}

/// Takes the user lock of our client. Whoever has it is an earlier connection of ours.
async fn take_sign_of_life(
    listener: &mut Conn,
    speaker: &mut Conn,
    sign_of_life: &str,
    context: &NodeContext,
) -> Result<(), Failure> {
    loop {
        let taken: Option<Option<i64>> = listener
            .query_first(format!("SELECT GET_LOCK('{sign_of_life}', 0)"))
            .await
            .map_err(|error| unreachable(&error))?;
        if taken.flatten() == Some(1) {
            return Ok(());
        }
        let holder: Option<Option<u32>> = speaker
            .query_first(format!("SELECT IS_USED_LOCK('{sign_of_life}')"))
            .await
            .map_err(|error| unreachable(&error))?;
        if let Some(holder) = holder.flatten() {
            end(speaker, holder, context).await?;
        }
        context.runtime.sleep(PAUSE).await;
    }
}
