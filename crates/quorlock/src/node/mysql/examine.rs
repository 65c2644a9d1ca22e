//! How a database is set up, and what that means for the locks in it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use mysql_async::prelude::Queryable as _;

use super::MysqlNode;
use super::address::Address;
use super::connect::{Facts, Greeting, Session, check_schema, refuse_proxy};
use super::error::unreachable;
use super::forget::forget_over;
use super::init::{Speaker, within};
use crate::Error;
use crate::admin::examine::{
    Examination, Unnotified, diagnose_clock, diagnose_marker, diagnose_round_trips, try_out,
};
use crate::node::{Failure, Node, NodeContext, Verb};
use crate::runtime::BoxFuture;

/// So often the server is asked for its time at the most.
const SAMPLES: usize = 7;
/// From so many hundredths of its connections on, a server is nearly full.
const NEARLY_FULL: u64 = 80;

/// The time there, in microseconds since 1970: the session's time zone is UTC.
const NOW: &str = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', SYSDATE(6)) AS now";

const UNNOTIFIED: Unnotified = Unnotified::Wrong(
    "let no proxy come between: grant messages come over one connection of the client's own",
);

/// Looks a database over.
pub(in crate::node) fn examine(
    index: usize,
    url: &str,
    context: &NodeContext,
    name: &[u8],
) -> Result<BoxFuture<'static, Examination>, Error> {
    let address = Address::parse(index, url)?;
    let (url, context, name) = (url.to_owned(), context.clone(), name.to_vec());
    Ok(Box::pin(async move {
        let mut examination = Examination::new(address.label.as_str());
        examination.text("kind", "mysql");
        examination.flag("local", address.is_local);
        let looked = within(&context, look(&mut examination, &address, &context)).await;
        let mut session = match looked.and_then(|looked| looked) {
            // What stands in the way was found: a lock cannot be tried out.
            Ok(_) if !examination.usable => return examination,
            Ok(session) => session,
            Err(failure) => {
                examination.fail(&failure);
                return examination;
            }
        };
        let opened =
            MysqlNode::new(index, &url, &context).map(|node| Arc::new(node) as Arc<dyn Node>);
        let tried = try_out(&mut examination, opened, &context, &name, UNNOTIFIED).await;
        // If it cannot be forgotten, it goes by itself.
        let forgetting = forget_over(&mut session, tried.as_slice());
        let _ = within(&context, forgetting).await;
        examination
    }))
}

/// Asks the server, over a connection of its own. Fails if it cannot be a node.
async fn look(
    examination: &mut Examination,
    address: &Address,
    context: &NodeContext,
) -> Result<Session, Failure> {
    let mut session = Session::open(address).await?;
    let facts = session.facts().await?;
    describe(examination, &facts);
    facts.check_server()?;
    refuse_proxy(&mut session).await?;
    examination.text("identity", facts.place(address));
    let cipher = status_of(&mut session, "SHOW SESSION STATUS LIKE 'Ssl_cipher'").await?;
    examination.flag("tls", !cipher.is_empty());
    let greeting = check_schema(address, session.greet(0).await?)?;
    examination.number("schema_version", greeting.version);
    examination.flag("durable", facts.keeps(&greeting));
    diagnose_setup(examination, &facts, &greeting);
    let used = status_of(&mut session, "SHOW GLOBAL STATUS LIKE 'Threads_connected'").await?;
    diagnose_connections(examination, &used, facts.get("max_connections"));
    let mut speaker = Speaker::new(session, &facts, &greeting, context).await?;
    measure(examination, &mut speaker.session, context).await?;
    let marker = speaker.marker(context, Verb::Look).await?;
    let options = &context.options.mysql;
    let quarantine = options.quarantine(context.settings.max_ttl);
    let how = (options.trust_new_nodes, &b""[..]);
    diagnose_marker(examination, &marker, &context.members, how, quarantine);
    Ok(speaker.session)
}

/// What the server says of one thing.
async fn status_of(session: &mut Session, sql: &str) -> Result<String, Failure> {
    let said: Option<(String, String)> =
        session.conn.query_first(sql).await.map_err(|error| unreachable(&error))?;
    Ok(said.map(|(_, value)| value).unwrap_or_default())
}

fn describe(examination: &mut Examination, facts: &Facts) {
    examination.text("server", facts.server());
    examination.text("user", facts.user.as_str());
    for name in ["innodb_flush_log_at_trx_commit", "log_bin", "sync_binlog"] {
        examination.text(name, facts.get(name));
    }
}

/// Whether the server may forget, which it notices by itself.
fn diagnose_setup(examination: &mut Examination, facts: &Facts, greeting: &Greeting) {
    const CHECK: &str = "persistence";
    if facts.keeps(greeting) {
        let text = "each transaction is on its disk before it is answered: a crash or a restart keeps locks, and after a \
                    failover it casts no vote for a while";
        return examination.ok(CHECK, text);
    }
    if facts.get("innodb_flush_log_at_trx_commit") != "1" {
        let text = "transactions are answered before they are on its disk: after any restart it casts no vote for a while";
        return examination.ok(CHECK, text);
    }
    examination.warn(
        CHECK,
        "it writes transactions to its disk, and may lose them all the same: after any restart it casts no vote for a while",
        "set sync_binlog = 1, and innodb_flush_method to one that flushes",
    );
}

/// Each locker keeps nine connections.
fn diagnose_connections(examination: &mut Examination, used: &str, most: &str) {
    const CHECK: &str = "connections";
    let (used, most): (u64, u64) = (used.parse().unwrap_or(0), most.parse().unwrap_or(0));
    examination.number("connections", used);
    examination.number("max_connections", most);
    let text = format!("{used} of {most} connections are in use");
    if used * 100 >= most * NEARLY_FULL {
        examination.warn(CHECK, text, "raise max_connections: each locker keeps nine");
    } else {
        examination.ok(CHECK, text);
    }
}

/// Round trips, and the server's clock beside our own.
async fn measure(
    examination: &mut Examination,
    session: &mut Session,
    context: &NodeContext,
) -> Result<(), Failure> {
    let mut samples = Vec::new();
    let start = context.runtime.now();
    // Over a slow line a few have to do.
    while samples.is_empty()
        || samples.len() < SAMPLES
            && context.runtime.now().since(start) < context.settings.connect_limit / 2
    {
        let (sent, wall) = (context.runtime.now(), context.runtime.wall());
        let row = session.row(NOW, Vec::new()).await?;
        let round_trip = context.runtime.now().since(sent);
        let server_us = row.get_opt::<i64, _>(0).and_then(Result::ok).unwrap_or_default();
        let server =
            SystemTime::UNIX_EPOCH + Duration::from_micros(server_us.max(0).unsigned_abs());
        samples.push((round_trip, server, wall + round_trip / 2));
    }
    samples.sort_by_key(|sample| sample.0);
    let (shortest, server, ours) = samples[0];
    let round_trips = samples.iter().map(|sample| sample.0).collect();
    diagnose_round_trips(examination, round_trips, &context.settings);
    let options = &context.options.mysql;
    let window = Some((options.clock_behind, options.clock_ahead));
    diagnose_clock(examination, (server, ours), shortest, window);
    Ok(())
}
