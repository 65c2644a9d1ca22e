//! An ensemble as a store: one node for each lock, and one multi for each write. The versions are those of the node's
//! data, and of its bucket.
//!
//! # Versions
//!
//! A node that is deleted and created again counts its versions from zero. A write that is late could then meet the
//! version that it names, of another lock's life. So whoever deletes a lock raises the version of its bucket in the same
//! multi, and every write of a lock names that version too.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::sync::watch;

use super::client::Client;
use super::connection::Connection;
use super::grants;
use super::keys::{BUCKETS, bucket_of};
use super::life::Life;
use super::record::{self, Term, terms};
use super::trouble::Trouble;
use super::wire::{Code, CreateMode, Request, Stat};
use super::{WINDOW, clocks_apart};
use crate::locked::locked;
use crate::name::Name;
use crate::node::cas::{Change, Found, Store, Window, Written};
use crate::node::{ClientId, Failure, FailureKind, Inbox, Listed};
use crate::runtime::{Runtime, random_u64, wall_us};

/// A node whose data has a higher version is deleted and created with the next write, before its versions wrap.
const WORN: i32 = 1 << 30;

/// An ensemble, as one client sees it.
#[derive(Debug)]
pub(super) struct ZooKeeperStore {
    pub(super) client: Arc<Client>,
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) me: ClientId,
    /// The versions of the buckets, as far as they are known.
    epochs: Mutex<Vec<Option<i32>>>,
    /// How far the leader's clock was ahead of ours at the last write, in microseconds. For what is shown, and for
    /// when to look whether a hold is over.
    offset_us: AtomicI64,
    pub(super) life: Arc<Mutex<Life>>,
    pub(super) inbox: Mutex<Option<(usize, Weak<dyn Inbox>)>>,
    /// Whether grant messages arrive.
    pub(super) is_listening: watch::Sender<bool>,
    /// Whether the client wants nothing more.
    pub(super) is_closed: watch::Sender<bool>,
}

/// A version of a lock: that of its bucket, and that of its own, if there is such a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) epoch: i32,
    pub(super) own: Option<i32>,
}

impl Version {
    /// As a number that is zero if nothing is known.
    fn pack(self) -> i64 {
        let own = self.own.map_or(0, |own| i64::from(own) + 1);
        i64::from(self.epoch) << 32 | own
    }

    pub(super) fn unpack(packed: i64) -> Self {
        let own = packed & 0xffff_ffff;
        let epoch = i32::try_from(packed >> 32).unwrap_or_default();
        Self { epoch, own: i32::try_from(own - 1).ok().filter(|own| *own >= 0) }
    }
}

impl ZooKeeperStore {
    pub(super) fn new(client: Client, me: ClientId, runtime: &Arc<dyn Runtime>) -> Self {
        Self {
            client: Arc::new(client),
            runtime: Arc::clone(runtime),
            me,
            epochs: Mutex::new(vec![None; BUCKETS]),
            offset_us: AtomicI64::new(0),
            life: Arc::default(),
            inbox: Mutex::default(),
            is_listening: watch::Sender::new(false),
            is_closed: watch::Sender::new(false),
        }
    }

    pub(super) fn failure(&self, trouble: Trouble) -> Failure {
        trouble.failure(self.client.keys.chroot())
    }

    /// Reads a lock. With `is_synced` as of no earlier than now: a member may lag behind the others.
    pub(super) async fn read_on(
        &self,
        connection: &Connection,
        name: &Name,
        is_synced: bool,
    ) -> Result<Found, Trouble> {
        let (keys, bucket) = (&self.client.keys, bucket_of(name));
        let path = keys.lock(name);
        let synced = is_synced.then(|| connection.send(Request::sync(&path)));
        let (epoch, data) = (connection.stat(&keys.bucket(bucket)), connection.data(&path));
        if let Some(synced) = synced {
            synced.await?;
        }
        let Some(epoch) = epoch.await?.map(|stat| stat.version) else {
            return Ok(Found::default());
        };
        locked(&self.epochs)[bucket] = Some(epoch);
        let Some((data, stat)) = data.await? else {
            let version = Version { epoch, own: None }.pack();
            return Ok(Found { version, ..Found::default() });
        };
        let written_us = written_us(&stat);
        let Some((state, terms)) = record::decode(&data, written_us) else {
            let text = format!("the node {path} is no lock of quorlock");
            return Err(Failure::new(FailureKind::WrongType, text).into());
        };
        let version = Version { epoch, own: Some(stat.version) }.pack();
        Ok(self.found(version, state, &terms, written_us))
    }

    pub(super) fn found(
        &self,
        version: i64,
        state: crate::node::cas::State,
        terms: &[Term],
        written_us: u64,
    ) -> Found {
        let (now, ours_us) = (self.runtime.now(), wall_us(&*self.runtime));
        let leader_us = ours_us.saturating_add_signed(self.offset_us.load(Ordering::Relaxed));
        let until = |end_us: u64| {
            let micros = Duration::from_micros(end_us.abs_diff(leader_us));
            if end_us > leader_us { now.after(micros) } else { now.before(micros) }
        };
        let holds = terms.iter().map(|term| term.hold(written_us, until)).collect();
        Found { version, state, holds }
    }

    /// What a write has shown of the leader's clock. A failure if that is not near ours.
    fn compare_clocks(&self, leader_us: u64, sent_us: u64, received_us: u64) -> Option<Failure> {
        let apart = clocks_apart(leader_us, sent_us, received_us);
        let micros = |us: u64| i64::try_from(us).unwrap_or(i64::MAX);
        let ahead_us = micros(leader_us) - micros(sent_us.midpoint(received_us));
        // A clock that is far off may be set right at any moment.
        let offset_us = if apart.is_none() { ahead_us } else { 0 };
        self.offset_us.store(offset_us, Ordering::Relaxed);
        apart
    }

    async fn try_write(
        &self,
        name: &Name,
        found: &Found,
        change: &Change,
    ) -> Result<Written, Trouble> {
        let connection = self.client.connection().await?;
        let terms = terms(&found.holds, change.holds);
        let data = record::encode(&change.state, &terms);
        let write = self.requests(name, found, change, &data);
        // Sent before the write, and so done before it.
        let waits_for = change.state.longest_ttl(self.me);
        let announced = waits_for.and_then(|ttl| self.say_alive(&connection, ttl));
        let sent_us = wall_us(&*self.runtime);
        let done = connection.multi(&write.parts);
        // ZooKeeper 3.8 does not say when a multi has created a node: that is asked right behind it.
        let path = self.client.keys.lock(name);
        let created = write.is_new.then(|| connection.stat(&path));
        let announced = match announced {
            Some(announced) => announced.await.unwrap_or(Ok(())),
            None => Ok(()),
        };
        let done = done.await?;
        let received_us = wall_us(&*self.runtime);
        let failed = done.iter().enumerate().find_map(|(at, part)| match part {
            Err(Code::OTHER_PART) | Ok(_) => None,
            Err(code) => Some((at, *code)),
        });
        if let Some((at, code)) = failed {
            return self.not_written(&connection, name, &write, at, code).await;
        }
        if let Err(trouble) = announced {
            // The ticket is written, and would be passed over.
            let text =
                format!("it cannot note that this client is there: {}", self.failure(trouble));
            return Err(Failure::new(FailureKind::Broken, text).into());
        }
        // Unless another client has written it meanwhile: then it is read.
        let is_as_created = |stat: &Stat| stat.version == 0;
        let stat = match (done.get(write.lock), created) {
            (Some(Ok(None)), Some(created)) => created.await?.filter(is_as_created),
            (Some(Ok(None)), None) => connection.stat(&path).await?.filter(is_as_created),
            (Some(Ok(stat)), _) => *stat,
            _ => None,
        };
        let Some(stat) = stat else {
            let text = "its answer makes no sense";
            return Err(Failure::new(FailureKind::Broken, text).into());
        };
        let written_us = written_us(&stat);
        let off = self.compare_clocks(written_us, sent_us, received_us);
        let mut state = change.state.clone();
        state.set_seen(written_us, WINDOW.ahead);
        let version = Version { epoch: write.epoch_after, own: Some(stat.version) };
        locked(&self.epochs)[bucket_of(name)] = Some(write.epoch_after);
        let mut now = self.found(version.pack(), state, &terms, written_us);
        if let Some(failure) = off {
            return Ok(Written::Apart(now, failure));
        }
        // This write has shown that they are over.
        now.holds.retain(|hold| hold.end_us > written_us);
        Ok(Written::Done(now))
    }

    /// The parts of the multi for a change.
    fn requests(&self, name: &Name, found: &Found, change: &Change, data: &[u8]) -> Parts {
        let (keys, bucket) = (&self.client.keys, bucket_of(name));
        let mut version = Version::unpack(found.version);
        if found.version == 0 {
            // Nothing is known, or that there is nothing: that is what the write asks for.
            version.epoch = locked(&self.epochs)[bucket].unwrap_or(0);
        }
        let (path, bucket) = (keys.lock(name), keys.bucket(bucket));
        let create = |path: &str, mode| Request::create(path, &[], self.client.acl(), mode);
        let is_worn = version.own.is_some_and(|own| own >= WORN);
        let mut parts = vec![if is_worn {
            Request::set_data(&bucket, &[], version.epoch)
        } else {
            Request::check(&bucket, version.epoch)
        }];
        let mut client = None;
        if let Some(message) = &change.message {
            client = Some(parts.len());
            parts.push(Request::check(&keys.alive(message.client), -1));
        }
        match version.own {
            Some(own) if is_worn => {
                parts.push(Request::delete_version(&path, own));
                parts.push(create(&path, CreateMode::Persistent));
                parts.push(Request::set_data(&path, data, 0));
            }
            Some(own) => parts.push(Request::set_data(&path, data, own)),
            // Only what sets data is answered with when that was.
            None => {
                parts.push(create(&path, CreateMode::Persistent));
                parts.push(Request::set_data(&path, data, 0));
            }
        }
        let lock = parts.len() - 1;
        let mut message = None;
        if let Some(to) = &change.message {
            message = Some(parts.len());
            let path = grants::path(keys, to.client, &to.grant);
            parts.push(create(&path, CreateMode::Ephemeral));
        }
        let epoch_after = version.epoch.wrapping_add(i32::from(is_worn));
        Parts { parts, client, lock, message, epoch_after, is_new: version.own.is_none() }
    }

    /// Why nothing was written.
    async fn not_written(
        &self,
        connection: &Connection,
        name: &Name,
        write: &Parts,
        at: usize,
        code: Code,
    ) -> Result<Written, Trouble> {
        let is_of = |part: Option<usize>| part == Some(at);
        match code {
            Code::NO_NODE if at == 0 && write.is_new => {
                let bucket = self.client.keys.bucket(bucket_of(name));
                let create =
                    Request::create(&bucket, &[], self.client.acl(), CreateMode::Persistent);
                match connection.send(create).await {
                    Ok(_) | Err(Trouble::Code(Code::EXISTS)) => {}
                    Err(trouble) => return Err(trouble),
                }
            }
            Code::NO_NODE if is_of(write.client) || is_of(write.message) => {
                return Ok(Written::Gone);
            }
            Code::OTHER_VERSION | Code::NO_NODE | Code::EXISTS => {}
            code => return Err(Trouble::Code(code)),
        }
        // What the others have written is known to this member: it comes before the refusal.
        Ok(Written::Conflict(self.read_on(connection, name, false).await?))
    }

    pub(super) async fn read_now(&self, name: &Name) -> Result<Found, Failure> {
        let connection = self.client.connection().await?;
        let found = self.read_on(&connection, name, true).await;
        found.map_err(|trouble| self.failure(trouble))
    }

    pub(super) async fn write_now(
        &self,
        name: &Name,
        found: &Found,
        change: &Change,
    ) -> Result<Written, Failure> {
        let written = self.try_write(name, found, change).await;
        written.map_err(|trouble| self.failure(trouble))
    }

    /// This member knows of all that the others had done when a write of ours was refused.
    async fn absent_now(&self, clients: &[ClientId]) -> Result<Vec<ClientId>, Trouble> {
        let connection = self.client.connection().await?;
        let sent = clients.iter().map(|client| connection.stat(&self.client.keys.alive(*client)));
        let looks: Vec<_> = sent.collect();
        let mut absent = Vec::new();
        for (client, look) in clients.iter().zip(looks) {
            if look.await?.is_none() {
                absent.push(*client);
            }
        }
        Ok(absent)
    }

    /// A random number below an end.
    pub(super) fn random_below(&self, end: usize) -> usize {
        let end = u64::try_from(end.max(1)).unwrap_or(1);
        usize::try_from(random_u64(&*self.runtime) % end).unwrap_or(0)
    }
}

/// The parts of a write.
struct Parts {
    parts: Vec<Request>,
    /// Which of them looks whether the client of a message is there.
    client: Option<usize>,
    /// Which of them says what the lock's node is like after it.
    lock: usize,
    message: Option<usize>,
    epoch_after: i32,
    /// Whether there was no such lock before.
    is_new: bool,
}

impl Store for Arc<ZooKeeperStore> {
    async fn read(&self, name: &Name) -> Result<Found, Failure> {
        self.read_now(name).await
    }

    async fn write(&self, name: &Name, found: &Found, change: &Change) -> Result<Written, Failure> {
        let written = self.write_now(name, found, change).await?;
        if found.version == 0 && matches!(written, Written::Done(_)) {
            self.sweep_beside(name);
        }
        Ok(written)
    }

    async fn absent(&self, clients: &[ClientId]) -> Result<Vec<ClientId>, Failure> {
        self.absent_now(clients).await.map_err(|trouble| self.failure(trouble))
    }

    async fn list(&self, from: &[u8]) -> Result<Listed, Failure> {
        self.page(from).await.map_err(|trouble| self.failure(trouble))
    }

    fn window(&self) -> Option<Window> {
        Some(WINDOW)
    }

    fn is_listening(&self) -> bool {
        *self.is_listening.borrow()
    }

    fn listen(&self, node: usize, inbox: Weak<dyn Inbox>) {
        *locked(&self.inbox) = Some((node, inbox));
    }

    async fn close(&self) {
        self.is_closed.send_replace(true);
        let Some(connection) = self.client.close() else { return };
        let is_known = locked(&self.life).said_on.strong_count() > 0;
        if is_known {
            let mine = self.client.keys.client(self.me);
            let left = connection.children(&mine).await.unwrap_or_default();
            for child in left {
                drop(connection.send(Request::delete(&format!("{mine}/{child}"))));
            }
            // If it fails, the ensemble deletes it before long.
            drop(connection.send(Request::delete(&mine)));
        }
        connection.close().await;
    }
}

/// When a node was written, by the clock of the leader, in microseconds.
pub(super) fn written_us(stat: &Stat) -> u64 {
    u64::try_from(stat.written_ms).unwrap_or(0).saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_of_a_bucket_and_one_of_a_lock_are_one_number() {
        assert_eq!(Version { epoch: 0, own: None }.pack(), 0);
        let all = [0, 1, WORN, i32::MAX].into_iter().flat_map(|epoch| {
            [None, Some(0), Some(1), Some(WORN), Some(i32::MAX - 1)].map(|own| (epoch, own))
        });
        let mut seen = std::collections::HashSet::new();
        for (epoch, own) in all {
            let version = Version { epoch, own };
            assert_eq!(Version::unpack(version.pack()), version);
            assert!(seen.insert(version.pack()));
        }
    }
}
