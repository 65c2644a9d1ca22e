//! How a server is set up, and what that means for the locks on it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::RedisNode;
use super::address::{Address, Place};
use super::connect::{Wire, check_role, field, greet, identity, refuse_error, text};
use super::diagnose;
use super::dialect::{DialectState, RestsOn};
use super::error::SHOWN;
use super::forget::forget_over;
use super::init::within;
use super::resp::{Command, Value};
use crate::Error;
use crate::admin::examine::{Examination, Unnotified, diagnose_round_trips, try_out};
use crate::node::{Failure, FailureKind, Node, NodeContext};
use crate::runtime::BoxFuture;
use crate::text::harmless;

/// So often the server is asked for its time at the most.
const SAMPLES: usize = 7;

const UNNOTIFIED: Unnotified = Unnotified::Wrong(
    "give the user +subscribe, +publish and &:quorlock:inbox:* (with a prefix, &PREFIX:quorlock:inbox:*), \
     and let nothing between here and the server drop messages",
);

/// Looks a server over.
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
        examination.text("kind", "redis");
        examination.text("dialect", context.options.redis.dialect.to_string());
        examination.flag("tls", address.tls.is_some());
        examination.flag("local", matches!(address.place, Place::Unix(_)));
        let limit = 2 * context.settings.connect_limit;
        let looked = tokio::select! {
            // First: over a server that sends without end, the time would never be looked at.
            biased;
            () = context.runtime.sleep(limit) => {
                let text = format!("no answer within {limit:?}; is it up, and is the address right?");
                Err(Failure::new(FailureKind::Unreachable, text))
            }
            looked = look(&mut examination, &address, &context) => looked,
        };
        let mut wire = match looked {
            // What stands in the way was found: a lock cannot be tried out.
            Ok(_) if !examination.usable => return examination,
            Ok(wire) => wire,
            Err(failure) => {
                examination.fail(&failure);
                return examination;
            }
        };
        let opened =
            RedisNode::new(index, &url, &context).map(|node| Arc::new(node) as Arc<dyn Node>);
        let tried = try_out(&mut examination, opened, &context, &name, UNNOTIFIED).await;
        let forgetting = forget_over(&mut wire, &context.options.redis.prefix, tried.as_slice());
        // If it cannot be forgotten, it goes by itself.
        let _ = within(&context, forgetting).await;
        examination
    }))
}

/// Asks the server, over a connection of its own. Fails if it cannot be a node.
async fn look(
    examination: &mut Examination,
    address: &Address,
    context: &NodeContext,
) -> Result<Wire, Failure> {
    let (options, max_ttl) = (&context.options.redis, context.settings.max_ttl);
    let rests_on = options.dialect.rests_on(options, max_ttl);
    let mut dialect = DialectState::new(options, max_ttl, &context.members);
    let marker_key = dialect.marker_key().map(<[u8]>::to_vec);
    let mut wire = Wire::open(address).await?;
    let mut commands = Vec::new();
    greet(address, &mut commands);
    Command::new(&mut commands, 2).arg(b"SELECT").number(u64::from(address.db));
    Command::new(&mut commands, 1).arg(b"INFO");
    for setting in ["appendfsync", "save"] {
        Command::new(&mut commands, 3).arg(b"CONFIG").arg(b"GET").arg(setting.as_bytes());
    }
    if let Some(key) = &marker_key {
        Command::new(&mut commands, 1).arg(b"TIME");
        Command::new(&mut commands, 2).arg(b"GET").arg(key);
    }
    wire.send(&commands).await?;
    let (_, role) = wire.reply(|hello| identity(&hello)).await??;
    wire.reply(|selected| refuse_error(&selected)).await??;
    let info = wire.reply(|info| text(&info)).await??;
    let appendfsync = wire.reply(|reply| value(&reply)).await?;
    let save = wire.reply(|reply| value(&reply)).await?;

    describe(examination, &info);
    check_role(&role)?;
    diagnose::persistence(examination, &info, appendfsync.as_deref(), save.as_deref(), rests_on);
    diagnose::memory(examination, &info, rests_on);
    diagnose::company(examination, &info, rests_on);
    if marker_key.is_some() {
        let now = wire.reply(|reply| refuse_error(&reply).map(|()| time(&reply))).await??;
        let now_us = now.and_then(|now| now.duration_since(SystemTime::UNIX_EPOCH).ok());
        let now_us = now_us.map_or(0, |now| u64::try_from(now.as_micros()).unwrap_or(u64::MAX));
        let marker = wire.reply(|reply| refuse_error(&reply).map(|()| bytes(&reply))).await??;
        dialect.connected_to(field(&info, "run_id").unwrap_or_default());
        let quarantine = rests_on.quarantine.unwrap_or_default();
        if let Some(marker) = dialect.read_marker(&marker, now_us) {
            diagnose::marker(examination, &marker, &context.members, options, quarantine);
        }
    }
    measure(examination, &mut wire, context, rests_on).await?;
    Ok(wire)
}

/// The reply to `GET`; nothing if there is nothing.
pub(super) fn bytes(reply: &Value<'_>) -> Vec<u8> {
    match reply {
        Value::Bulk(bytes) => bytes.to_vec(),
        _ => Vec::new(),
    }
}

/// The reply to `CONFIG GET` with one name; `None` if the user may not ask.
fn value(reply: &Value<'_>) -> Option<String> {
    let (Value::Map(parts) | Value::Array(parts)) = reply else { return None };
    match parts.get(1)? {
        Value::Bulk(text) => Some(harmless(&String::from_utf8_lossy(text), SHOWN).into_owned()),
        _ => None,
    }
}

fn describe(examination: &mut Examination, info: &str) {
    let version = match field(info, "valkey_version") {
        Some(version) => format!("Valkey {version}"),
        None => {
            format!("Redis {}", field(info, "redis_version").unwrap_or("of an unknown version"))
        }
    };
    examination.text("server", version);
    for (name, key) in [("role", "role"), ("identity", "run_id")] {
        if let Some(text) = field(info, key) {
            examination.text(name, text);
        }
    }
    for (name, key) in [("uptime_s", "uptime_in_seconds"), ("maxmemory_bytes", "maxmemory")] {
        if let Some(number) = field(info, key).and_then(|text| text.parse::<i64>().ok()) {
            examination.number(name, number);
        }
    }
    if let Some(policy) = field(info, "maxmemory_policy") {
        examination.text("maxmemory_policy", policy);
    }
    // In seconds, with a fraction.
    let cpu = ["used_cpu_user", "used_cpu_sys"].map(|key| field(info, key)?.parse::<f64>().ok());
    if let [Some(user), Some(system)] = cpu {
        examination.number("cpu_used_us", ((user + system) * 1e6) as i64);
    }
}

struct Sample {
    round_trip: Duration,
    /// The server's time, and ours in the middle of the round trip.
    clocks: Option<(SystemTime, SystemTime)>,
}

/// Round trips, and the server's clock beside our own.
async fn measure(
    examination: &mut Examination,
    wire: &mut Wire,
    context: &NodeContext,
    rests_on: RestsOn,
) -> Result<(), Failure> {
    let mut samples: Vec<Sample> = Vec::new();
    let start = context.runtime.now();
    // Over a slow line a few have to do.
    while samples.is_empty()
        || samples.len() < SAMPLES
            && context.runtime.now().since(start) < context.settings.connect_limit / 2
    {
        let mut command = Vec::new();
        Command::new(&mut command, 1).arg(b"TIME");
        let (sent, wall) = (context.runtime.now(), context.runtime.wall());
        wire.send(&command).await?;
        // A user who may not ask for the time still makes a round trip.
        let server = wire.reply(|reply| time(&reply)).await?;
        let round_trip = context.runtime.now().since(sent);
        let clocks = server.map(|server| (server, wall + round_trip / 2));
        samples.push(Sample { round_trip, clocks });
    }
    samples.sort_by_key(|sample| sample.round_trip);
    let shortest = &samples[0];
    let trips = samples.iter().map(|sample| sample.round_trip).collect();
    diagnose_round_trips(examination, trips, &context.settings);
    match shortest.clocks {
        Some(clocks) => diagnose::clock(examination, clocks, shortest.round_trip, rests_on),
        None => examination.ok("clock", "its clock is not known: this user may not ask for TIME"),
    }
    Ok(())
}

pub(super) fn time(reply: &Value<'_>) -> Option<SystemTime> {
    let Value::Array(parts) = reply else { return None };
    let number = |index: usize| match parts.get(index)? {
        Value::Bulk(digits) => std::str::from_utf8(digits).ok()?.parse::<u64>().ok(),
        _ => None,
    };
    let since = Duration::from_secs(number(0)?).checked_add(Duration::from_micros(number(1)?))?;
    SystemTime::UNIX_EPOCH.checked_add(since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_server_is_read() {
        let bulk = |text: &'static str| Value::Bulk(text.as_bytes());
        let read = time(&Value::Array(vec![bulk("1790000000"), bulk("5")]));
        let expected = Duration::from_secs(1_790_000_000) + Duration::from_micros(5);
        assert_eq!(read, Some(SystemTime::UNIX_EPOCH + expected));
        assert_eq!(time(&Value::Error(b"NOPERM")), None);
        assert_eq!(time(&Value::Array(vec![bulk("18446744073709551615"), bulk("5")])), None);
    }
}
