//! An ensemble as one client sees it: its session, its watches, and whom to tell.

use std::sync::{Arc, Mutex, Weak};

use futures_util::stream::{self, StreamExt as _};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;

use super::line::Line;
use super::paths::{Paths, above};
use super::watches::{News, Watches};
use crate::locked::locked;
use crate::name::Name;
use crate::node::contenders::Turns;
use crate::node::zookeeper::client::Client;
use crate::node::zookeeper::connection::{Connection, LONG_AT_ONCE};
use crate::node::zookeeper::trouble::Trouble;
use crate::node::zookeeper::wire::{Code, CreateMode, Event, Request};
use crate::node::{Failure, FailureKind, Inbox, Listed};
use crate::runtime::Runtime;

/// So many nodes are looked at for a page of a list.
const NODES_PER_PAGE: usize = 256;
/// The paths that are still to be looked at are no longer than this.
const MOST_BELOW: usize = 16 << 20;
/// Between the paths that are still to be looked at. No path has it.
const BETWEEN: u8 = b'\0';
/// ZooKeeper's own nodes.
const RESERVED: &str = "/zookeeper";

#[derive(Debug)]
pub(super) struct CuratorStore {
    pub(super) client: Client,
    pub(super) paths: Paths,
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) turns: Turns,
    watches: Mutex<Watches>,
    /// The session of the latest connection; zero before the first.
    session: Mutex<i64>,
    inbox: Mutex<Option<(usize, Weak<dyn Inbox>)>>,
    /// Whether the client wants nothing more.
    pub(super) is_closed: watch::Sender<bool>,
}

impl CuratorStore {
    pub(super) fn new(client: Client, chroot: String, runtime: &Arc<dyn Runtime>) -> Self {
        Self {
            client,
            paths: Paths::new(chroot),
            runtime: Arc::clone(runtime),
            turns: Turns::default(),
            watches: Mutex::default(),
            session: Mutex::default(),
            inbox: Mutex::default(),
            is_closed: watch::Sender::new(false),
        }
    }

    /// For people.
    pub(super) fn failure(&self, trouble: Trouble) -> Failure {
        trouble.failure(self.paths.top())
    }

    pub(super) fn set_inbox(&self, node: usize, inbox: Weak<dyn Inbox>) {
        *locked(&self.inbox) = Some((node, inbox));
    }

    pub(super) fn tell(&self, what: impl FnOnce(usize, &dyn Inbox)) {
        let to = locked(&self.inbox).clone();
        if let Some((node, inbox)) = to
            && let Some(inbox) = inbox.upgrade()
        {
            what(node, &*inbox);
        }
    }

    /// There is a connection. If it has another session than the one before, everything that was of that one is gone, and
    /// holders learn of it before anything is answered.
    pub(super) fn take_up(&self, connection: &Arc<Connection>) {
        let before = std::mem::replace(&mut *locked(&self.session), connection.id.number);
        self.client.keep(connection);
        if before != 0 && before != connection.id.number {
            locked(&self.watches).clear();
            self.turns.end_all();
            self.tell(|node, inbox| {
                inbox.session_ended(node);
                inbox.interrupted(node);
            });
        }
        self.client.set_up(connection);
    }

    /// Who wants a lock, as of no earlier than the call.
    pub(super) async fn read(&self, connection: &Connection, lock: &str) -> Result<Line, Trouble> {
        let (synced, children) = (connection.send(Request::sync(lock)), connection.children(lock));
        synced.await?;
        children.await.map(Line::new)
    }

    /// Makes an entry, and reads the line behind it. Returns the last part of its path, and the change that made it.
    pub(super) async fn make(
        &self,
        connection: &Connection,
        lock: &str,
        entry: &str,
        data: &[u8],
    ) -> Result<(String, i64, Line), Trouble> {
        loop {
            let life = CreateMode::EphemeralSequential;
            let create = Request::create(entry, data, self.client.acl(), life);
            let (made, children) = (connection.send(create), connection.children(lock));
            match made.await {
                Ok(bytes) => {
                    let (path, stat) = Connection::read_created(&bytes)?;
                    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
                    return Ok((name, stat.created, Line::new(children.await?)));
                }
                // It goes by itself once the last entry has.
                Err(Trouble::Code(Code::NO_NODE)) => self.make_above(connection, entry).await?,
                Err(trouble) => return Err(trouble),
            }
        }
    }

    /// Makes what lies above an entry, as Curator does.
    async fn make_above(&self, connection: &Connection, entry: &str) -> Result<(), Trouble> {
        let creates = above(entry).map(|path| {
            connection.send(Request::create(path, &[], self.client.acl(), CreateMode::Container))
        });
        for create in creates.collect::<Vec<_>>() {
            match create.await {
                Ok(_) | Err(Trouble::Code(Code::EXISTS)) => {}
                Err(trouble) => return Err(trouble),
            }
        }
        Ok(())
    }

    /// Deletes an entry. Says whether it was there.
    pub(super) async fn remove(
        &self,
        connection: &Connection,
        path: &str,
    ) -> Result<bool, Trouble> {
        match connection.send(Request::delete(path)).await {
            Ok(_) => Ok(true),
            Err(Trouble::Code(Code::NO_NODE)) => Ok(false),
            Err(trouble) => Err(trouble),
        }
    }

    /// Whether an entry is there, by the word of the ensemble: it knows this session then.
    pub(super) async fn confirm(
        &self,
        connection: &Connection,
        path: &str,
    ) -> Result<bool, Trouble> {
        let parts = connection.multi(&[Request::check(path, -1)]).await?;
        match parts.as_slice() {
            [Ok(_)] => Ok(true),
            [Err(Code::NO_NODE)] => Ok(false),
            [Err(code)] => Err(Trouble::Code(*code)),
            _ => Ok(false),
        }
    }

    /// A line is about to be read for waiting in it: from now on it is watched.
    pub(super) fn begin_to_watch(&self, connection: &Connection, lock: &str) {
        let mut watches = locked(&self.watches);
        if watches.begin(lock) {
            // What is sent later is answered later: nobody has to wait for this.
            drop(connection.send(Request::add_watch(lock)));
        }
    }

    /// It was read, and an entry of ours waits there. Says whether its turn has come since.
    pub(super) fn watch_for(&self, lock: &str, entry: &str, line: &Line) -> bool {
        locked(&self.watches).wait(lock, entry, line.ahead_of(entry))
    }

    /// Whoever was about to read a line has done so, or has failed.
    pub(super) fn end_reading(&self, lock: &str) {
        let mut watches = locked(&self.watches);
        if watches.end(lock) {
            self.unwatch(lock);
        }
    }

    /// Nobody waits with this entry any more.
    pub(super) fn stop_watching(&self, lock: &str, entry: &str) {
        let mut watches = locked(&self.watches);
        if watches.leave(lock, entry) {
            self.unwatch(lock);
        }
    }

    /// While the watches are locked, so that a new one is not begun before.
    fn unwatch(&self, lock: &str) {
        if let Some(connection) = self.client.current() {
            drop(connection.send(Request::remove_watches(lock)));
        }
    }

    /// Takes events in until the connection ends.
    pub(super) async fn take_events(&self, events: &mut UnboundedReceiver<Event>) {
        while let Some(event) = events.recv().await {
            let Event::Deleted(path) = event else { continue };
            let news = {
                let mut watches = locked(&self.watches);
                let (news, idle) = watches.deleted(&path);
                if let Some(lock) = idle {
                    self.unwatch(&lock);
                }
                news
            };
            let Some((lock, _)) = path.rsplit_once('/') else { continue };
            self.bring(lock, news);
        }
    }

    fn bring(&self, lock: &str, news: Vec<News>) {
        for news in news {
            match news {
                News::Turn(entry) => self.turn_has_come(&format!("{lock}/{entry}")),
                News::Gone(entry) => self.lost(&format!("{lock}/{entry}")),
            }
        }
    }

    /// The turn of an entry has come: the client is notified, if it waits for that.
    pub(super) fn turn_has_come(&self, path: &str) {
        if let Some((waiter, place)) = self.turns.come_any(path.as_bytes()) {
            let grant = waiter.grant(place.unsigned_abs());
            self.tell(|node, inbox| inbox.granted(node, grant));
        }
    }

    /// An entry that waited is gone: the client asks again, and stands behind the others then.
    fn lost(&self, path: &str) {
        self.turns.end(path.as_bytes());
        self.tell(|node, inbox| inbox.interrupted(node));
    }

    /// After a connection has broken: watches all lines again, and looks who has left meanwhile.
    pub(super) async fn look_again(&self, connection: &Connection) -> Result<(), Trouble> {
        let waited_for = locked(&self.watches).waited_for();
        for lock in waited_for {
            locked(&self.watches).begin(&lock);
            drop(connection.send(Request::add_watch(&lock)));
            let line = self.read(connection, &lock).await;
            let entries = locked(&self.watches).entries(&lock);
            if let Ok(line) = &line {
                for entry in entries {
                    if !line.contains(&entry) {
                        self.stop_watching(&lock, &entry);
                        self.lost(&format!("{lock}/{entry}"));
                    } else if self.watch_for(&lock, &entry, line) {
                        self.stop_watching(&lock, &entry);
                        self.turn_has_come(&format!("{lock}/{entry}"));
                    }
                }
            }
            self.end_reading(&lock);
            line?;
        }
        Ok(())
    }

    /// Some of the locks that are held by clients of this library: of the nodes in `from`, and then of those below them.
    pub(super) async fn list(
        &self,
        connection: &Connection,
        from: &[u8],
    ) -> Result<Listed, Trouble> {
        let from = if from.is_empty() { self.paths.top().as_bytes() } else { from };
        let from = from.split(|byte| *byte == BETWEEN);
        let mut todo: Vec<_> =
            from.map(|path| String::from_utf8_lossy(path).into_owned()).collect();
        let later = todo.split_off(todo.len().min(NODES_PER_PAGE));
        connection.send(Request::sync(self.paths.top())).await?;
        // A server may answer with more than there can be.
        let mut lists = stream::iter(todo)
            .map(|path| {
                let children = connection.children(&path);
                async move { (path, children.await) }
            })
            .buffered(LONG_AT_ONCE);
        let (mut names, mut below) = (Vec::new(), later);
        while let Some((path, children)) = lists.next().await {
            let children = children?;
            let path = path.trim_end_matches('/');
            let others = children.iter().filter(|child| super::paths::number(child).is_none());
            below.extend(others.map(|child| format!("{path}/{child}")).filter(|it| it != RESERVED));
            if below.iter().map(String::len).sum::<usize>() > MOST_BELOW {
                let text =
                    "there are too many nodes for a list of locks; name a chroot that has fewer";
                return Err(Failure::new(FailureKind::Broken, text).into());
            }
            let Some(first) = Line::new(children).first().map(|first| format!("{path}/{first}"))
            else {
                continue;
            };
            let ours = connection
                .data(&first)
                .await?
                .is_some_and(|(data, _)| crate::node::contenders::Value::decode(&data).is_some());
            names.extend(self.paths.name(path).filter(|_: &Name| ours));
        }
        drop(lists);
        let next = (!below.is_empty()).then(|| below.join("\0").into_bytes());
        Ok(Listed { names, next })
    }
}
