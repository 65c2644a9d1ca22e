//! Opening a connection, and finding out who answers.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Connection, Error, Row};

use super::address::Address;
use super::error::{POOLED, unreachable};
use super::schema::VERSION;
use super::verbs::Statements;
use crate::node::{ClientId, Failure, FailureKind, NodeContext};
use crate::runtime::{Moment, random_u64};

/// The first version that has all that is needed, as `server_version_num` has it.
const OLDEST: i32 = 120_000;
/// The first that has `idle_session_timeout`.
const ENDS_IDLE_SESSIONS: i32 = 140_000;

/// A call waits for the row of its lock this part of the time limit: others wait behind it.
const LOCK_LIMIT_SHARE: u32 = 4;
const LEAST_LOCK_LIMIT: Duration = Duration::from_millis(20);
/// A call is ended by the server after so many time limits, when it is of no use to anybody any more.
const STATEMENT_LIMITS: u32 = 4;
const LEAST_STATEMENT_LIMIT: Duration = Duration::from_secs(1);

/// How often it is looked whether the connection before has ended on the server.
const PAUSE: Duration = Duration::from_millis(20);
/// A backend that is older than our connection by more than this was not started for it: clocks do not run that differently.
const SLACK: Duration = Duration::from_millis(1);

/// What comes in without being asked for. Nothing moves on a connection unless this is asked.
pub(super) type Wire =
    Box<dyn FnMut(&mut Context<'_>) -> Poll<Option<Result<AsyncMessage, Error>>> + Send>;

pub(super) fn wire_of<S, T>(mut connection: Connection<S, T>) -> Wire
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    Box::new(move |cx| connection.poll_message(cx))
}

/// A connection that speaks SQL, one question after another.
pub(super) struct Session {
    pub(super) client: Arc<Client>,
    pub(super) wire: Wire,
}

/// What a server says of itself.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) version: i32,
    pub(super) version_text: String,
    pub(super) in_recovery: bool,
    pub(super) read_only: bool,
    pub(super) has_schema: bool,
    pub(super) may_use: bool,
    /// Of the schema; `None` if it has none, or if this role may not know.
    pub(super) schema_version: Option<i32>,
    /// Whether all tables of the schema are logged.
    pub(super) is_durable: bool,
    pub(super) role: String,
    pub(super) database: String,
    pub(super) backend: i32,
    /// How long ago the process was started that serves this connection.
    pub(super) backend_age: Duration,
    /// How long ago, by our clock, we began to connect.
    pub(super) our_age: Duration,
}

/// A connection that has been greeted.
pub(super) struct Connected {
    pub(super) session: Session,
    pub(super) statements: Arc<Statements>,
    /// Which start of which server this is.
    pub(super) start: String,
    /// The same, with the database and the schema: two nodes cannot be there.
    pub(super) place: String,
    /// The marker that was there; empty if there was none.
    pub(super) marker: String,
    /// What every call names, so that it runs on this connection or not at all.
    pub(super) name: String,
    /// How long the last question has taken.
    pub(super) took: Duration,
}

impl Session {
    /// Opens a connection, and nothing more.
    pub(super) async fn open(address: &Address) -> Result<Self, Failure> {
        let (client, wire) =
            address.tls.connect(&address.config).await.map_err(|error| unreachable(&error))?;
        let mut session = Self { client: Arc::new(client), wire };
        // What is set for the role or the database is for other work than this.
        session.run("SET statement_timeout = 0").await?;
        Ok(session)
    }

    /// Asks something. What comes meanwhile without being asked for is not for this connection: those who wait are
    /// told to ask again once it is up.
    pub(super) async fn ask<T>(
        &mut self,
        asking: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Failure> {
        let wire = &mut self.wire;
        let mut asking = pin!(asking);
        poll_fn(|cx| {
            let mut ended = None;
            loop {
                if let Poll::Ready(answer) = asking.as_mut().poll(cx) {
                    return Poll::Ready(answer.map_err(|error| unreachable(&error)));
                }
                if let Some(why) = ended {
                    return Poll::Ready(Err(why));
                }
                match wire(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Some(Ok(_))) => {}
                    Poll::Ready(Some(Err(error))) => ended = Some(unreachable(&error)),
                    Poll::Ready(None) => {
                        let text = "the server closed the connection";
                        ended = Some(Failure::new(FailureKind::Unreachable, text));
                    }
                }
            }
        })
        .await
    }

    pub(super) async fn run(&mut self, sql: &str) -> Result<(), Failure> {
        let client = Arc::clone(&self.client);
        self.ask(client.batch_execute(sql)).await
    }

    /// Asks for one row.
    pub(super) async fn row(
        &mut self,
        sql: &str,
        params: &[(&(dyn ToSql + Sync), Type)],
    ) -> Result<Row, Failure> {
        let client = Arc::clone(&self.client);
        self.ask(client.query_typed_one(sql, params)).await
    }

    /// Finds out what the server is. `began` is when we began to connect, and `now` says what time it is.
    pub(super) async fn facts(
        &mut self,
        schema: &str,
        age: impl Fn() -> Duration,
    ) -> Result<Facts, Failure> {
        let sql = include_str!("sql/facts.sql");
        let row = self.row(sql, &[(&schema, Type::TEXT)]).await?;
        let our_age = age();
        let mut facts = read_facts(&row, our_age).map_err(|error| unreachable(&error))?;
        if facts.may_use && row.get::<_, bool>("has_version") {
            let version = self.row(&format!("SELECT {schema}.version()"), &[]).await?;
            facts.schema_version = Some(version.get(0));
        }
        Ok(facts)
    }
}

fn read_facts(row: &Row, our_age: Duration) -> Result<Facts, Error> {
    let age_us: i64 = row.try_get("backend_age_us")?;
    Ok(Facts {
        version: row.try_get("version")?,
        version_text: row.try_get("version_text")?,
        in_recovery: row.try_get("in_recovery")?,
        read_only: row.try_get("read_only")?,
        has_schema: row.try_get("has_schema")?,
        may_use: row.try_get("may_use")?,
        schema_version: None,
        is_durable: row.try_get("is_durable")?,
        role: row.try_get("role")?,
        database: row.try_get("database")?,
        backend: row.try_get("backend")?,
        backend_age: Duration::from_micros(age_us.max(0).unsigned_abs()),
        our_age,
    })
}

impl Facts {
    /// Whether the server can keep locks at all, set up for them or not.
    pub(super) fn check_server(&self) -> Result<(), Failure> {
        let text = if self.version < OLDEST {
            format!("is PostgreSQL {}; 12 or later is needed", self.version_text)
        } else if self.in_recovery {
            "is a standby, whose votes do not last; name its primary instead".to_owned()
        } else if self.read_only {
            format!(
                "may only be read by the role {}; set default_transaction_read_only = off for it",
                self.role
            )
        } else {
            return Ok(());
        };
        Err(Failure::new(FailureKind::Unfit, text))
    }

    /// Whether it is set up for locks, as this version needs it.
    pub(super) fn check_schema(&self, address: &Address) -> Result<(), Failure> {
        let Address { schema, durable, .. } = address;
        let Self { role, .. } = self;
        let set_up =
            "run quorlock init, or have its owner run what quorlock init --print-sql prints";
        let text = match self.schema_version {
            _ if !self.has_schema => {
                format!("the database {} has no schema {schema}: {set_up}", self.database)
            }
            _ if !self.may_use => format!(
                "the role {role} may not use the schema {schema}; have its owner run SELECT {schema}.let_lock('{role}')"
            ),
            None => format!("the schema {schema} is none of Quorlock's, or not whole: {set_up}"),
            Some(version) if version < VERSION => format!(
                "the schema {schema} has version {version}, and {VERSION} is needed: {set_up}"
            ),
            Some(version) if version > VERSION => format!(
                "the schema {schema} has version {version}, and this client knows {VERSION}; use the version of Quorlock \
                 that has set it up, or a later one"
            ),
            Some(_) if *durable == Some(true) && !self.is_durable => format!(
                "the tables of the schema {schema} are unlogged, and durable=1 is asked for; run quorlock init with it \
                 once no lock is held, or leave it out"
            ),
            Some(_) => return Ok(()),
        };
        Err(Failure::new(FailureKind::Unfit, text))
    }
}

/// Connects, checks that the database can be a node, and prepares all calls.
///
/// An earlier connection of this client is ended on the server first, so that none of its requests can run after those of
/// this one: it has the advisory lock of the client for as long as it lasts.
pub(super) async fn connect(
    address: &Address,
    context: &NodeContext,
    client: ClientId,
) -> Result<Connected, Failure> {
    let runtime = &context.runtime;
    let began = runtime.now();
    let age = || runtime.now().since(began);
    let mut session = Session::open(address).await?;
    let facts = session.facts(&address.schema, age).await?;
    facts.check_server()?;
    facts.check_schema(address)?;
    refuse_pooler(address, &mut session, &facts).await?;
    let id = client_number(client);
    let name = format!("{client}:{:016x}", random_u64(&**runtime));
    let sql = session_sql(&name, context.settings.node_limit, facts.version);
    session.run(&sql).await?;
    let asked: Moment = runtime.now();
    let greeting = format!("SELECT * FROM {}.greet($1)", address.schema);
    let row = session.row(&greeting, &[(&id, Type::INT8)]).await?;
    let took = runtime.now().since(asked);
    let [start, marker, channel] =
        ["identity", "marker", "channel"].map(|part| row.get::<_, String>(part));
    let sign_of_life: i64 = row.get("sign_of_life");
    let system = start.split('/').next().unwrap_or_default();
    let place = format!("{system}/{}/{}", facts.database, address.schema);
    if let Err(other) = context.servers.claim(&place, address.index, &address.label) {
        let text = format!("is the same database as {other}");
        return Err(Failure::new(FailureKind::Duplicate, text));
    }
    end_predecessor(&mut session, context, sign_of_life).await?;
    session.run(&format!("LISTEN \"{channel}\"")).await?;
    let speaker = Arc::clone(&session.client);
    let statements = session.ask(Statements::prepare(&speaker, &address.schema)).await?;
    let statements = Arc::new(statements);
    Ok(Connected { session, statements, start, place, marker, name, took })
}

/// What holds for all that is sent over a connection, whatever was set for the role or the database.
fn session_sql(name: &str, node_limit: Duration, version: i32) -> String {
    let lock_limit = (node_limit / LOCK_LIMIT_SHARE).max(LEAST_LOCK_LIMIT);
    let statement_limit = node_limit.saturating_mul(STATEMENT_LIMITS).max(LEAST_STATEMENT_LIMIT);
    // No setting of PostgreSQL is higher.
    let millis = |limit: Duration| limit.as_millis().min(i32::MAX.unsigned_abs().into());
    let idle = if version >= ENDS_IDLE_SESSIONS { "SET idle_session_timeout = 0;" } else { "" };
    format!(
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE, NOT DEFERRABLE;
         SET lock_timeout = {}; SET statement_timeout = {}; {idle}
         SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 3; SET tcp_keepalives_count = 3;
         SET synchronous_commit = on; SET quorlock.session = '{name}';",
        millis(lock_limit),
        millis(statement_limit),
    )
}

/// The number of a client, as its tickets name it.
pub(super) fn client_number(client: ClientId) -> i64 {
    // Of 16 hexadecimal digits.
    u64::from_str_radix(&client.to_string(), 16).unwrap_or_default().cast_signed()
}

/// A backend that was not started for this connection comes from a pooler. One that serves another connection as well, while
/// ours is open, is shared with it.
pub(super) async fn refuse_pooler(
    address: &Address,
    session: &mut Session,
    facts: &Facts,
) -> Result<(), Failure> {
    if facts.backend_age <= facts.our_age.saturating_add(facts.our_age / 100).saturating_add(SLACK)
    {
        return Ok(());
    }
    let mut other = Session::open(address).await?;
    let backend: i32 = other.row("SELECT pg_backend_pid()", &[]).await?.get(0);
    let ours: i32 = session.row("SELECT pg_backend_pid()", &[]).await?.get(0);
    if backend == facts.backend || ours != facts.backend {
        return Err(Failure::new(FailureKind::Unfit, POOLED));
    }
    Ok(())
}

/// Takes the lock of our client. Whoever has it is an earlier connection of ours, of the same role.
async fn end_predecessor(
    session: &mut Session,
    context: &NodeContext,
    sign_of_life: i64,
) -> Result<(), Failure> {
    loop {
        let row =
            session.row("SELECT pg_try_advisory_lock($1)", &[(&sign_of_life, Type::INT8)]).await?;
        if row.get(0) {
            return Ok(());
        }
        let ended = include_str!("sql/end_predecessor.sql");
        session.row(ended, &[(&sign_of_life, Type::INT8)]).await?;
        context.runtime.sleep(PAUSE).await;
    }
}
