//! How a database is set up, and what that means for the locks in it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::PostgresNode;
use super::address::Address;
use super::connect::{Facts, Session, refuse_pooler};
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
const NEARLY_FULL: i64 = 80;

const UNNOTIFIED: Unnotified = Unnotified::Wrong(
    "let nothing between here and the server drop notifications, as a pooler does",
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
        examination.text("kind", "postgres");
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
            PostgresNode::new(index, &url, &context).map(|node| Arc::new(node) as Arc<dyn Node>);
        let tried = try_out(&mut examination, opened, &context, &name, UNNOTIFIED).await;
        // If it cannot be forgotten, it goes by itself.
        let forgetting = forget_over(&mut session, &address.schema, tried.as_slice());
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
    let began = context.runtime.now();
    let mut session = Session::open(address).await?;
    let facts = session.facts(&address.schema, || context.runtime.now().since(began)).await?;
    describe(examination, &facts);
    facts.check_server()?;
    facts.check_schema(address)?;
    refuse_pooler(address, &mut session, &facts).await?;
    let row = session.row(include_str!("sql/setup.sql"), &[]).await?;
    let text = |column| row.get::<_, String>(column);
    let system = text("system");
    examination.text("identity", format!("{system}/{}/{}", facts.database, address.schema));
    examination.flag("tls", row.get("tls"));
    for name in ["fsync", "synchronous_commit"] {
        examination.text(name, text(name));
    }
    diagnose_setup(examination, &facts, row.get("fsync"));
    diagnose_connections(examination, row.get("connections"), row.get("max_connections"));
    measure(examination, &mut session, context).await?;
    let mut speaker = Speaker::greet(session, address, context).await?;
    let marker = speaker.marker(context, Verb::Look).await?;
    let options = &context.options.postgres;
    let quarantine = options.quarantine(context.settings.max_ttl);
    let how = (options.trust_new_nodes, &b""[..]);
    diagnose_marker(examination, &marker, &context.members, how, quarantine);
    Ok(speaker.session)
}

fn describe(examination: &mut Examination, facts: &Facts) {
    examination.text("server", format!("PostgreSQL {}", facts.version_text));
    examination.text("role", if facts.in_recovery { "standby" } else { "primary" });
    examination.text("user", facts.role.as_str());
    if let Some(version) = facts.schema_version {
        examination.number("schema_version", version);
        examination.flag("durable", facts.is_durable);
    }
}

/// What a server forgets it notices by itself, however it is set up.
fn diagnose_setup(examination: &mut Examination, facts: &Facts, fsync: &str) {
    const CHECK: &str = "persistence";
    if !facts.is_durable {
        let text = "its tables are unlogged: a clean restart keeps locks, and after a crash or a failover it casts no \
                    vote for a while";
        return examination.ok(CHECK, text);
    }
    if fsync == "off" {
        let text = "its tables are logged, and fsync is off: a crash of the machine may damage the whole database";
        return examination.warn(CHECK, text, "set fsync = on");
    }
    examination.ok(CHECK, "its tables are logged: a crash of the server keeps locks as well");
}

/// Each locker keeps a connection.
fn diagnose_connections(examination: &mut Examination, used: i64, most: i64) {
    const CHECK: &str = "connections";
    examination.number("connections", used);
    examination.number("max_connections", most);
    let text = format!("{used} of {most} connections are in use");
    if used * 100 >= most * NEARLY_FULL {
        examination.warn(CHECK, text, "raise max_connections: each locker keeps one");
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
        let row = session.row(include_str!("sql/time.sql"), &[]).await?;
        let round_trip = context.runtime.now().since(sent);
        let server_us: i64 = row.get(0);
        let server =
            SystemTime::UNIX_EPOCH + Duration::from_micros(server_us.max(0).unsigned_abs());
        samples.push((round_trip, server, wall + round_trip / 2));
    }
    samples.sort_by_key(|sample| sample.0);
    let (shortest, server, ours) = samples[0];
    let round_trips = samples.iter().map(|sample| sample.0).collect();
    diagnose_round_trips(examination, round_trips, &context.settings);
    let options = &context.options.postgres;
    let window = Some((options.clock_behind, options.clock_ahead));
    diagnose_clock(examination, (server, ours), shortest, window);
    Ok(())
}
