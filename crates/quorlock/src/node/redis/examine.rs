//! How a server is set up, and what that means for the locks on it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::RedisNode;
use super::address::{Address, Place};
use super::connect::{Wire, check_role, evicts, field, greet, identity, refuse_error, text};
use super::resp::{Command, Value};
use crate::Error;
use crate::examine::{Examination, Untold, judge_round_trip, shown, try_out};
use crate::node::{Failure, FailureKind, Node, Setting};
use crate::runtime::BoxFuture;

/// So often the server is asked for its time at the most.
const SAMPLES: usize = 7;

/// A clock that differs by more than this is not kept by anybody.
const CLOCK_TOLERANCE: Duration = Duration::from_millis(100);

const KEEP_EVERYTHING: &str = "set appendonly yes and appendfsync always; or start a server that has \
                               stopped only after the longest TTL, 30s by default, has passed";

const UNTOLD: Untold = Untold::Wrong(
    "give the user +subscribe, +publish and &quorlock:inbox:*, and let nothing between here and the \
     server drop messages",
);

/// Looks a server over.
pub(in crate::node) fn examine(
    index: usize,
    url: &str,
    setting: &Setting,
    name: &[u8],
) -> Result<BoxFuture<'static, Examination>, Error> {
    let address = Address::parse(index, url)?;
    let (url, setting, name) = (url.to_owned(), setting.clone(), name.to_vec());
    Ok(Box::pin(async move {
        let mut examination = Examination::new(address.label.as_str());
        examination.text("kind", "redis");
        examination.flag("tls", address.tls.is_some());
        examination.flag("local", matches!(address.place, Place::Unix(_)));
        let limit = 2 * setting.settings.connect_limit;
        let looked = tokio::select! {
            looked = look(&mut examination, &address, &setting) => looked,
            () = setting.runtime.sleep(limit) => {
                let text = format!("no answer within {limit:?}; is it up, and is the address right?");
                Err(Failure::new(FailureKind::Unreachable, text))
            }
        };
        if let Err(failure) = looked {
            examination.fail(&failure);
            return examination;
        }
        let opened =
            RedisNode::new(index, &url, &setting).map(|node| Arc::new(node) as Arc<dyn Node>);
        try_out(&mut examination, opened, &setting, &name, UNTOLD).await;
        examination
    }))
}

/// Asks the server, over a connection of its own. Fails if it cannot be a node.
async fn look(
    examination: &mut Examination,
    address: &Address,
    setting: &Setting,
) -> Result<(), Failure> {
    let mut wire = Wire::open(address).await?;
    let mut commands = Vec::new();
    greet(address, &mut commands);
    Command::new(&mut commands, 2).arg(b"SELECT").number(u64::from(address.db));
    Command::new(&mut commands, 1).arg(b"INFO");
    for setting in ["appendfsync", "save"] {
        Command::new(&mut commands, 3).arg(b"CONFIG").arg(b"GET").arg(setting.as_bytes());
    }
    wire.send(&commands).await?;
    let (_, role) = wire.reply(|hello| identity(&hello)).await??;
    wire.reply(|selected| refuse_error(&selected)).await??;
    let info = wire.reply(|info| text(&info)).await??;
    let appendfsync = wire.reply(|reply| value(&reply)).await?;
    let save = wire.reply(|reply| value(&reply)).await?;

    describe(examination, &info);
    check_role(&role)?;
    judge_persistence(examination, &info, appendfsync.as_deref(), save.as_deref());
    judge_memory(examination, &info);
    judge_company(examination, &info);
    measure(examination, &mut wire, setting).await
}

/// The reply to `CONFIG GET` with one name; `None` if the user may not ask.
fn value(reply: &Value<'_>) -> Option<String> {
    let (Value::Map(parts) | Value::Array(parts)) = reply else { return None };
    match parts.get(1)? {
        Value::Bulk(text) => Some(String::from_utf8_lossy(text).into_owned()),
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
}

fn judge_persistence(
    examination: &mut Examination,
    info: &str,
    appendfsync: Option<&str>,
    save: Option<&str>,
) {
    const CHECK: &str = "persistence";
    let appends = field(info, "aof_enabled") == Some("1");
    examination.flag("appendonly", appends);
    for (name, value) in [("appendfsync", appendfsync), ("save", save)] {
        examination.text(name, value.unwrap_or("not known"));
    }
    if field(info, "aof_last_write_status").is_some_and(|status| status != "ok") {
        let text = "it cannot write its file (aof_last_write_status)";
        return examination.error(
            CHECK,
            text,
            "free some space on its disk, and look into its log",
        );
    }
    match (appends, appendfsync) {
        (true, Some("always")) => {
            examination.ok(CHECK, "it forgets no lock, even if its machine crashes");
        }
        (true, Some("everysec")) => examination.warn(
            CHECK,
            "if its machine crashes, it forgets the locks of the last second or two (appendfsync \
             everysec)",
            "set appendfsync always, or let such a machine come back only after the longest TTL",
        ),
        (true, Some(policy)) => {
            let text = format!(
                "if its machine crashes, it forgets what the system had not written (appendfsync \
                 {policy})"
            );
            examination.warn(CHECK, text, "set appendfsync always");
        }
        (true, None) => examination.warn(
            CHECK,
            "whether it forgets locks if its machine crashes is not known: this user may not ask for \
             appendfsync",
            "let the user +config|get, or look yourself: it should be always",
        ),
        (false, _) => examination.warn(
            CHECK,
            "it forgets its locks when it stops (appendonly no), and two may hold one lock then",
            KEEP_EVERYTHING,
        ),
    }
}

fn judge_memory(examination: &mut Examination, info: &str) {
    match evicts(info) {
        Some(policy) => {
            let text = format!(
                "it throws keys away when its memory is full, locks among them (maxmemory-policy \
                 {policy}), and two may hold one lock then"
            );
            let remedy = "set maxmemory-policy noeviction, or keep locks on a server of their own";
            examination.error("eviction", text, remedy);
        }
        None => examination.ok("eviction", "it throws no keys away"),
    }
}

/// Replicas and clusters promise what they do not keep.
fn judge_company(examination: &mut Examination, info: &str) {
    let replicas = field(info, "connected_slaves").and_then(|n| n.parse().ok()).unwrap_or(0);
    examination.number("replicas", replicas);
    if replicas > 0 {
        examination.warn(
            "replicas",
            format!(
                "it has {replicas} replica(s); one that takes its place lacks the latest locks"
            ),
            "let nothing put a replica in its place by itself, or wait for the longest TTL before",
        );
    }
    let cluster = field(info, "cluster_enabled") == Some("1");
    examination.flag("cluster", cluster);
    if cluster {
        examination.warn(
            "cluster",
            "it belongs to a cluster, which moves keys and replaces servers by replicas",
            "name independent servers instead",
        );
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
    setting: &Setting,
) -> Result<(), Failure> {
    let mut samples: Vec<Sample> = Vec::new();
    let start = setting.runtime.now();
    // Over a slow line a few have to do.
    while samples.is_empty()
        || samples.len() < SAMPLES
            && setting.runtime.now().since(start) < setting.settings.connect_limit / 2
    {
        let mut command = Vec::new();
        Command::new(&mut command, 1).arg(b"TIME");
        let (sent, wall) = (setting.runtime.now(), setting.runtime.wall());
        wire.send(&command).await?;
        // A user who may not ask for the time still makes a round trip.
        let server = wire.reply(|reply| time(&reply)).await?;
        let round_trip = setting.runtime.now().since(sent);
        let clocks = server.map(|server| (server, wall + round_trip / 2));
        samples.push(Sample { round_trip, clocks });
    }
    samples.sort_by_key(|sample| sample.round_trip);
    let (shortest, median) = (&samples[0], samples[samples.len() / 2].round_trip);
    examination.number("round_trip_min_us", shortest.round_trip.as_micros());
    examination.number("round_trip_median_us", median.as_micros());
    judge_round_trip(examination, median, &setting.settings);
    match shortest.clocks {
        Some((server, ours)) => judge_clock(examination, server, ours, shortest.round_trip),
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

fn judge_clock(
    examination: &mut Examination,
    server: SystemTime,
    ours: SystemTime,
    round_trip: Duration,
) {
    let (ahead, off) = match server.duration_since(ours) {
        Ok(ahead) => (true, ahead),
        Err(error) => (false, error.duration()),
    };
    let micros = i64::try_from(off.as_micros()).unwrap_or(i64::MAX);
    examination.number("clock_offset_us", if ahead { micros } else { -micros });
    // Nobody knows on which of the two ways the time was spent.
    let uncertainty = round_trip / 2;
    examination.number("clock_uncertainty_us", uncertainty.as_micros());
    let side = if ahead { "ahead of" } else { "behind" };
    if off > CLOCK_TOLERANCE + uncertainty {
        examination.warn(
            "clock",
            format!("its clock is {} {side} that of this machine", shown(off)),
            "let a daemon such as chrony keep the clocks of all machines: one that is set right by a \
             jump ends locks early or late",
        );
    } else {
        examination.ok(
            "clock",
            format!("its clock is within {} of this machine's", shown(off + uncertainty)),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examine::{Fact, Severity};

    fn clock(offset_ms: i64, round_trip_ms: u64) -> (Severity, String, Option<Fact>) {
        let ours = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let offset = Duration::from_millis(offset_ms.unsigned_abs());
        let server = if offset_ms < 0 { ours - offset } else { ours + offset };
        let mut examination = Examination::new("x");
        judge_clock(&mut examination, server, ours, Duration::from_millis(round_trip_ms));
        let finding = examination.findings[0].clone();
        (finding.severity, finding.text, examination.fact("clock_offset_us").cloned())
    }

    #[test]
    fn a_clock_is_off_only_beyond_what_the_round_trip_leaves_open() {
        assert_eq!(clock(100, 0).0, Severity::Ok);
        assert_eq!(clock(-150, 100).0, Severity::Ok);
        let (severity, text, offset) = clock(-151, 100);
        assert_eq!((severity, offset), (Severity::Warn, Some(Fact::Number(-151_000))));
        assert!(text.contains("151 ms behind"), "{text}");
        assert!(clock(5_000, 0).1.contains("5000 ms ahead"), "{}", clock(5_000, 0).1);
    }

    #[test]
    fn persistence_is_judged_by_what_a_crash_takes() {
        for (info, appendfsync, severity, says) in [
            ("aof_enabled:1", Some("always"), Severity::Ok, "forgets no lock"),
            ("aof_enabled:1", Some("everysec"), Severity::Warn, "last second"),
            ("aof_enabled:1", Some("no"), Severity::Warn, "appendfsync no"),
            ("aof_enabled:1", None, Severity::Warn, "may not ask"),
            ("aof_enabled:0", Some("always"), Severity::Warn, "appendonly no"),
            (
                "aof_enabled:1\naof_last_write_status:err",
                Some("always"),
                Severity::Error,
                "cannot write",
            ),
        ] {
            let mut examination = Examination::new("x");
            judge_persistence(&mut examination, info, appendfsync, Some(""));
            let finding = &examination.findings[0];
            assert_eq!(finding.severity, severity, "{finding:?}");
            assert!(finding.text.contains(says), "{finding:?}");
            assert_eq!(finding.remedy.is_some(), severity > Severity::Ok);
        }
    }

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
