//! What an ensemble is, and what that means for the locks in it.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::timeout;

use super::address::Address;
use super::client::Client;
use super::connection::Connection;
use super::forget::forget_all;
use super::store::ZooKeeperStore;
use super::trouble::Trouble;
use super::wire::{CreateMode, Request};
use super::{USUAL_LIMIT, WINDOW};
use crate::Error;
use crate::admin::examine::{Examination, Unnotified, diagnose_round_trips, shown, try_out};
use crate::node::clock_window::KEEP_TIME;
use crate::node::dial::dial;
use crate::node::{Failure, Node, NodeContext};
use crate::runtime::{BoxFuture, wall_us};

const UNNOTIFIED: Unnotified = Unnotified::Wrong(
    "let this user create, read and delete nodes below CHROOT/clients: grant messages are nodes there",
);
/// Where members say who they are. Everybody may read it.
const CONFIG: &str = "/zookeeper/config";
/// So many round trips are measured.
const SAMPLES: usize = 5;
/// A member says no more than this of itself.
const LONGEST_STATE: u64 = 16 << 10;

/// Looks an ensemble over.
pub(in crate::node) fn examine(
    index: usize,
    url: &str,
    context: &NodeContext,
    name: &[u8],
) -> Result<BoxFuture<'static, Examination>, Error> {
    let address = Address::parse(index, url)?;
    let client = Client::new(&address, USUAL_LIMIT)?;
    let opened = super::open(index, url, context).map(|node| Arc::new(node) as Arc<dyn Node>);
    let (context, name) = (context.clone(), name.to_vec());
    Ok(Box::pin(async move {
        let mut examination = Examination::new(address.label.as_str());
        examination.text("kind", "zookeeper");
        examination.text("chroot", address.chroot.as_str());
        if let Err(failure) = look(&mut examination, &client, &context, address.tls.is_some()).await
        {
            examination.fail(&failure);
            return examination;
        }
        let tried = try_out(&mut examination, opened, &context, &name, UNNOTIFIED).await;
        let store = ZooKeeperStore::new(client, context.client, &context.runtime);
        // If it cannot be forgotten, it goes by itself.
        let _ = forget_all(&store, tried.as_slice()).await;
        examination
    }))
}

/// Asks all members that are named.
async fn look(
    examination: &mut Examination,
    client: &Client,
    context: &NodeContext,
    is_secure: bool,
) -> Result<(), Failure> {
    let connection = diagnose_members(examination, client, is_secure).await?;
    if let Some((zxid, since_ms)) = client.identity() {
        examination.text("identity", format!("zookeeper locks {zxid:x} of {since_ms}"));
    }
    let chroot = client.keys.chroot();
    compare_clocks(examination, client, &connection, context)
        .await
        .map_err(|trouble| trouble.failure(chroot))?;
    measure(examination, &connection, context).await.map_err(|trouble| trouble.failure(chroot))?;
    diagnose_ensemble(examination, &connection).await;
    connection.close().await;
    Ok(())
}

/// How long it takes to ask the leader.
pub(super) async fn measure(
    examination: &mut Examination,
    connection: &Connection,
    context: &NodeContext,
) -> Result<(), Trouble> {
    let mut samples = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        let sent = context.runtime.now();
        connection.send(Request::sync("/")).await?;
        samples.push(context.runtime.now().since(sent));
    }
    let mut settings = context.settings.clone();
    settings.fit(&[super::capabilities()], None);
    diagnose_round_trips(examination, samples, &settings);
    Ok(())
}

/// Asks all members that are named, and returns a session with one of them.
pub(super) async fn diagnose_members(
    examination: &mut Examination,
    client: &Client,
    is_secure: bool,
) -> Result<Arc<Connection>, Failure> {
    let (events, _reports) = unbounded_channel();
    let mut first = None;
    for at in 0..client.len() {
        let name = client.member(at).0.to_owned();
        match client.greet(at, &events).await {
            Ok(connection) => {
                first.get_or_insert(connection);
                diagnose_member(examination, client, at, is_secure).await;
            }
            Err(failure) => {
                let text = format!("{name}: {failure}");
                examination.warn("member", text, "start it, or take it out of the URL");
                client.passed_over(at, &failure);
            }
        }
    }
    match first {
        Some(connection) => Ok(connection),
        // Says what each of them has said.
        None => Ok(client.dial(&events).await?.1),
    }
}

/// How large it is, and how long sessions last there.
pub(super) async fn diagnose_ensemble(examination: &mut Examination, connection: &Connection) {
    examination.number("session_ms", connection.session.as_millis());
    // A user may have no right to it.
    if let Ok(Some((config, _))) = connection.data(CONFIG).await {
        let voting = voting_members(&String::from_utf8_lossy(&config));
        examination.number("ensemble_members", voting);
        diagnose_size(examination, voting);
    } else {
        let text = "CP: one ZooKeeper ensemble; how many members it has is not known";
        examination.ok("class", text);
    }
}

/// What one member says of itself, on a connection of its own.
async fn diagnose_member(
    examination: &mut Examination,
    client: &Client,
    at: usize,
    is_secure: bool,
) {
    let (name, host, port) = client.member(at);
    let state = if is_secure { None } else { timeout(USUAL_LIMIT, ask(host, port)).await.ok() };
    let state = state.flatten().unwrap_or_default();
    if let Some(version) = field(&state, "Zookeeper version") {
        let version = version.split(['-', ',']).next().unwrap_or(version);
        if examination.fact("server").is_none() {
            examination.text("server", format!("ZooKeeper {version}"));
        }
    }
    match field(&state, "Mode") {
        Some("leader") => {
            examination.text("leader", name);
            examination.ok("leader", format!("{name} leads"));
        }
        Some("standalone") => examination.ok("leader", format!("{name} stands alone")),
        Some(_) => {}
        None => {
            let why = match is_secure {
                true => "members are asked for that without TLS alone",
                false => "the command srvr is off there (4lw.commands.whitelist)",
            };
            let text = format!("whether {name} leads is not known: {why}");
            examination.ok("leader", text);
        }
    }
}

/// What a member answers to `srvr`, if it answers that.
async fn ask(host: &str, port: u16) -> Option<String> {
    let mut stream = dial(host, port).await.ok()?;
    stream.write_all(b"srvr").await.ok()?;
    let mut state = String::new();
    stream.take(LONGEST_STATE).read_to_string(&mut state).await.ok()?;
    Some(state)
}

/// A line `name: value`.
fn field<'a>(state: &'a str, name: &str) -> Option<&'a str> {
    state.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// How many members vote, by what lies in their configuration. One alone has none.
fn voting_members(config: &str) -> usize {
    let servers = config.lines().filter(|line| line.starts_with("server."));
    servers.filter(|line| !line.contains(":observer")).count().max(1)
}

/// The clock of the leader, by which the ensemble notes when something is written.
async fn compare_clocks(
    examination: &mut Examination,
    client: &Client,
    connection: &Connection,
    context: &NodeContext,
) -> Result<(), Trouble> {
    let path = format!("{}/clock-{}", client.keys.clients(), context.client);
    let sent_us = wall_us(&*context.runtime);
    let create = Request::create(&path, &[], client.acl(), CreateMode::Ephemeral);
    let (created, stat) = (connection.send(create), connection.stat(&path));
    created.await?;
    let took = Duration::from_micros(wall_us(&*context.runtime).saturating_sub(sent_us));
    let Some(stat) = stat.await? else { return Ok(()) };
    drop(connection.send(Request::delete(&path)));
    let leader_us = stat.written_ms.saturating_mul(1_000).saturating_add(500);
    let middle_us = i64::try_from(sent_us).unwrap_or(i64::MAX).saturating_add(micros(took) / 2);
    diagnose_clock(examination, leader_us.saturating_sub(middle_us), took / 2);
    Ok(())
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// So far is the leader's clock ahead of ours, as far as a round trip lets that be known.
fn diagnose_clock(examination: &mut Examination, offset_us: i64, uncertainty: Duration) {
    const CHECK: &str = "clock";
    examination.number("clock_offset_us", offset_us);
    examination.number("clock_uncertainty_us", micros(uncertainty));
    let off = Duration::from_micros(offset_us.unsigned_abs());
    let (side, allowed) = match offset_us {
        0.. => ("ahead of", WINDOW.ahead),
        _ => ("behind", WINDOW.behind),
    };
    let text = format!("the leader's clock is {} {side} that of this machine", shown(off));
    if off > allowed.saturating_add(uncertainty) {
        let text = format!("{text}, and may be {}: no lock can be taken", shown(allowed));
        examination.refuse(CHECK, text, KEEP_TIME);
    } else if off > allowed / 2 + uncertainty {
        let text = format!("{text}; from {} on no lock can be taken", shown(allowed));
        examination.warn(CHECK, text, KEEP_TIME);
    } else {
        let within = shown(off + uncertainty);
        examination.ok(CHECK, format!("the leader's clock is within {within} of this machine's"));
    }
}

fn diagnose_size(examination: &mut Examination, voting: usize) {
    let can_lose = voting.saturating_sub(1) / 2;
    if can_lose == 0 {
        examination.warn(
            "class",
            format!(
                "CP: one ZooKeeper ensemble of {voting}: no lock can be taken while a member is down"
            ),
            "run three members, or five",
        );
    } else {
        let text = format!(
            "CP: one ZooKeeper ensemble of {voting}; locks survive the loss of {can_lose}, and are not forgotten"
        );
        examination.ok("class", text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::examine::Severity;

    #[test]
    fn observers_are_no_members() {
        let config = "server.0=a:1:2:participant\nserver.1=b:1:2:observer;c:3\nversion=0\n";
        assert_eq!(voting_members(config), 1);
        assert_eq!(voting_members(&config.replace("observer", "participant")), 2);
        assert_eq!(voting_members(""), 1);
    }

    #[test]
    fn a_clock_is_warned_about_before_it_matters() {
        for (offset_ms, severity) in [
            (0, Severity::Ok),
            (150, Severity::Ok),
            (200, Severity::Warn),
            (302, Severity::Error),
            (-49, Severity::Ok),
            (-90, Severity::Warn),
            (-102, Severity::Error),
        ] {
            let mut examination = Examination::new("x");
            diagnose_clock(&mut examination, offset_ms * 1_000, Duration::from_millis(1));
            assert_eq!(examination.findings[0].severity, severity, "{offset_ms}");
            assert_eq!(examination.usable, severity < Severity::Error);
        }
    }
}
