//! Where calls are served: the open file, and what this client has in its queues.
//!
//! One thread at a time. It may be the caller's own, if nobody else is at it and no other process
//! writes at this moment, or else the worker's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};

use rusqlite::Connection;
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::oneshot;

use super::connect::OpenFile;
use super::error::{Trouble, broken, rejected};
use super::queue::{GrantMessage, Queue, Tickets};
use super::sweep::Sweeper;
use super::verbs::{BEGIN, COMMIT, Verbs};
use super::wake::{GrantSocket, SocketDir};
use crate::locked::locked;
use crate::node::{Answer, Call, ClientId, Grant, Inbox, Verb};
use crate::runtime::Runtime;

/// A client that finds so many messages at once looks at all of its tickets: there may have been no room for
/// more. The kernel has room for eleven unless it is configured otherwise.
pub(super) const MAY_BE_FULL: usize = 8;

/// All executors of this process.
static EXECUTORS: Mutex<Vec<Weak<Executor>>> = Mutex::new(Vec::new());

/// Serves calls on the open file, one thread at a time.
pub(super) struct Executor {
    /// `None` while the file is not open.
    open: Mutex<Option<Open>>,
    /// A message may have come while another thread served calls, which has to look when it is done.
    message_came: AtomicBool,
    listener: Mutex<Option<(usize, Weak<dyn Inbox>)>>,
    runtime: Arc<dyn Runtime>,
    client: ClientId,
}

#[derive(Debug)]
struct Open {
    file: OpenFile,
    sockets: SocketDir,
    grant_socket: Option<GrantSocket>,
    tickets: Tickets,
    /// Grants whose new holders went before they could be notified.
    unheard: Vec<(Vec<u8>, Vec<u8>)>,
    sweeper: Sweeper,
}

/// What came of some calls, once it is in the file.
#[derive(Debug, Default)]
struct Outcome {
    answers: Vec<Answer>,
    grants: Vec<Grant>,
}

impl Executor {
    pub(super) fn new(runtime: &Arc<dyn Runtime>, client: ClientId) -> Arc<Self> {
        let executor = Arc::new(Self {
            open: Mutex::new(None),
            message_came: AtomicBool::new(false),
            listener: Mutex::new(None),
            runtime: Arc::clone(runtime),
            client,
        });
        locked(&EXECUTORS).push(Arc::downgrade(&executor));
        executor
    }

    pub(super) fn listen(&self, client: ClientId, node: usize, inbox: Weak<dyn Inbox>) {
        if client == self.client {
            *locked(&self.listener) = Some((node, inbox));
        }
    }

    pub(super) fn is_open(&self) -> bool {
        locked(&self.open).is_some()
    }

    /// Opens it with a file that is fit to keep locks.
    pub(super) fn open(&self, file: OpenFile) {
        let open = Open {
            sockets: SocketDir::beside(&file.place().real),
            file,
            grant_socket: None,
            tickets: Tickets::default(),
            unheard: Vec::new(),
            sweeper: Sweeper::default(),
        };
        *locked(&self.open) = Some(open);
    }

    /// Closes all files of this process that were removed or replaced. They have to be closed before
    /// one is opened again: SQLite shares what it knows of a file among them.
    pub(super) fn close_all_moved() {
        let mut all = locked(&EXECUTORS);
        all.retain(|executor| executor.strong_count() > 0);
        let executors: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
        drop(all);
        for executor in executors {
            // The thread that has it open has looked, or will.
            let Ok(mut open) = executor.open.try_lock() else { continue };
            let moved = open.take_if(|open| !open.file.is_current(executor.runtime.now()));
            drop(open);
            if moved.is_some() {
                executor.tell(|node, inbox| inbox.interrupted(node));
            }
        }
    }

    /// Closes the file.
    pub(super) fn close(&self) {
        let open = locked(&self.open).take();
        drop(open);
    }

    /// Serves a call on the thread of its caller, which costs a fraction of what it takes to wake
    /// another. It does not wait for anything: `Err` if it would have to, and the call has not run.
    ///
    /// `in_order` says whether all calls before it have run.
    pub(super) fn serve_at_once(
        self: &Arc<Self>,
        call: Call,
        in_order: impl FnOnce() -> bool,
    ) -> Result<(), Call> {
        let open = match self.open.try_lock() {
            Ok(open) => open,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(call),
        };
        // Asked behind the lock: a call that comes later finds it taken, and queues up.
        if open.is_none() || !in_order() {
            return Err(call);
        }
        match self.serve_with(open, std::slice::from_ref(&call)) {
            Ok(mut answers) => {
                call.answer(answers.remove(0));
                Ok(())
            }
            Err(Trouble::Busy | Trouble::Closed) => Err(call),
            Err(Trouble::Failed(why)) => {
                call.answer(Answer::Failed(why));
                Ok(())
            }
        }
    }

    /// Does what the calls ask for, in order and in one transaction. All of it is in the file when
    /// this returns, or nothing.
    pub(super) fn serve<'a>(
        self: &Arc<Self>,
        calls: impl IntoIterator<Item = &'a Call>,
    ) -> Result<Vec<Answer>, Trouble> {
        self.serve_with(locked(&self.open), calls)
    }

    fn serve_with<'a>(
        self: &Arc<Self>,
        mut open: MutexGuard<'_, Option<Open>>,
        calls: impl IntoIterator<Item = &'a Call>,
    ) -> Result<Vec<Answer>, Trouble> {
        let Some(executor) = open.as_mut() else { return Err(Trouble::Closed) };
        let outcome = executor.serve(self, calls);
        let closed = match outcome {
            Ok(_) | Err(Trouble::Busy) => None,
            // Closing it rolls back what was begun.
            Err(Trouble::Closed | Trouble::Failed(_)) => open.take(),
        };
        drop(open);
        if closed.is_some_and(|closed| !closed.tickets.is_empty()) {
            self.tell(|node, inbox| inbox.interrupted(node));
        }
        let answers = outcome.map(|Outcome { answers, grants }| {
            self.report(grants);
            answers
        });
        if self.message_came.load(Ordering::SeqCst) {
            self.look();
        }
        answers
    }

    /// Something has arrived for this client: looks into the file whose turn it is.
    fn look(self: &Arc<Self>) {
        // The thread that serves calls sees this when it is done, if it did not before.
        self.message_came.store(true, Ordering::SeqCst);
        while self.message_came.load(Ordering::SeqCst) {
            let Ok(mut open) = self.open.try_lock() else { return };
            self.message_came.store(false, Ordering::SeqCst);
            let Some(executor) = open.as_mut() else { return };
            let grants = executor.look(self);
            // It is opened again with the next call.
            let closed = matches!(grants, Err(Trouble::Closed)).then(|| open.take());
            drop(open);
            drop(closed);
            match grants {
                Ok(grants) => self.report(grants),
                Err(_) => self.tell(|node, inbox| inbox.interrupted(node)),
            }
        }
    }

    fn report(&self, grants: Vec<Grant>) {
        for grant in grants {
            self.tell(|node, inbox| inbox.granted(node, grant));
        }
    }

    /// Nothing is locked while the listener is notified: it may submit calls.
    fn tell(&self, tell: impl FnOnce(usize, &dyn Inbox)) {
        let listener = locked(&self.listener).clone();
        if let Some((node, inbox)) = listener
            && let Some(inbox) = inbox.upgrade()
        {
            tell(node, &*inbox);
        }
    }

    fn is_listened_to(&self) -> bool {
        locked(&self.listener).as_ref().is_some_and(|(_, inbox)| inbox.strong_count() > 0)
    }
}

impl Open {
    fn serve<'a>(
        &mut self,
        executor: &Arc<Executor>,
        calls: impl IntoIterator<Item = &'a Call>,
    ) -> Result<Outcome, Trouble> {
        let now = executor.runtime.now();
        if !self.file.is_current(now) {
            return Err(Trouble::Closed);
        }
        if let Some(why) = self.file.grants_nothing(now) {
            let answers = calls.into_iter().map(|_| Answer::Failed(why.clone())).collect();
            return Ok(Outcome { answers, grants: Vec::new() });
        }
        self.file.connection.prepare_cached(BEGIN)?.execute([])?;
        let mut messages = Vec::new();
        let outcome = self.outcome(executor, calls, &mut messages);
        let mut outcome = outcome.map_err(|error| rejected(&error))?;
        commit(&self.file.connection)?;
        self.file.mark.settle(&self.file.connection);
        if !messages.is_empty() {
            outcome.grants.extend(self.send(executor, messages));
        }
        Ok(outcome)
    }

    fn outcome<'a>(
        &mut self,
        executor: &Arc<Executor>,
        calls: impl IntoIterator<Item = &'a Call>,
        messages: &mut Vec<GrantMessage>,
    ) -> rusqlite::Result<Outcome> {
        let Self { file, sockets, grant_socket, tickets, unheard, sweeper } = self;
        let mut outcome = Outcome::default();
        let mut verbs = Verbs {
            connection: &file.connection,
            now: executor.runtime.now(),
            me: executor.client,
            sockets,
            mark: &file.mark,
        };
        look(grant_socket.as_ref(), tickets, &verbs, &mut outcome.grants)?;
        let will_notify =
            &mut |verbs: &mut Verbs<'_>| can_be_notified(grant_socket, file, executor, verbs);
        let mut queue = Queue { tickets, will_notify, messages };
        for (name, token) in unheard.drain(..) {
            queue.take_back(&mut verbs, &name, &token)?;
        }
        let (mut grants, mut near) = (0, None);
        for call in calls {
            let request = call.request();
            let answer = verbs.answer(&request, &mut queue)?;
            let granted = matches!(
                (&request.verb, &answer),
                (Verb::Acquire { .. } | Verb::Wait { .. }, Answer::Granted { .. })
            );
            if granted {
                grants += 1;
                near = Some(call);
            }
            outcome.answers.push(answer);
        }
        if let Some(near) = near {
            sweeper.after(grants, near.request().name.as_bytes(), &mut verbs)?;
        }
        Ok(outcome)
    }

    /// The grants are in the file: notifies the new holders. A holder that went since it was called
    /// cannot be notified, and the next one gets the lock. Returns what was found to be ours meanwhile.
    fn send(&mut self, executor: &Arc<Executor>, messages: Vec<GrantMessage>) -> Vec<Grant> {
        for GrantMessage { peer, waiter, name, token } in messages {
            if !peer.tell(waiter) {
                self.unheard.push((name, token));
            }
        }
        if self.unheard.is_empty() {
            return Vec::new();
        }
        // If it cannot be done now, the next call that comes here does it, or else the record ends
        // by itself. The calls that led here have run in any case.
        self.serve(executor, []).map(|outcome| outcome.grants).unwrap_or_default()
    }

    /// A look without a call. It reads only, so that it waits for nobody.
    fn look(&mut self, executor: &Executor) -> Result<Vec<Grant>, Trouble> {
        if !self.file.is_current(executor.runtime.now()) {
            return Err(Trouble::Closed);
        }
        let mut grants = Vec::new();
        let verbs = Verbs {
            connection: &self.file.connection,
            now: executor.runtime.now(),
            me: executor.client,
            sockets: &mut self.sockets,
            mark: &self.file.mark,
        };
        look(self.grant_socket.as_ref(), &mut self.tickets, &verbs, &mut grants)?;
        Ok(grants)
    }
}

fn commit(connection: &Connection) -> Result<(), Trouble> {
    let commit = connection.prepare_cached(COMMIT).and_then(|mut commit| commit.execute([]));
    commit.map(drop).map_err(|error| Trouble::Failed(broken(&error)))
}

/// Looks up what messages have come for.
fn look(
    grant_socket: Option<&GrantSocket>,
    tickets: &mut Tickets,
    verbs: &Verbs<'_>,
    grants: &mut Vec<Grant>,
) -> rusqlite::Result<()> {
    let Some(grant_socket) = grant_socket.filter(|_| !tickets.is_empty()) else { return Ok(()) };
    let mut waiters: Vec<u64> = grant_socket.messages().collect();
    if waiters.len() >= MAY_BE_FULL {
        waiters.extend(tickets.waiters());
    }
    for waiter in waiters {
        grants.extend(tickets.look(verbs, waiter)?);
    }
    Ok(())
}

/// Makes sure that others can call this client, as they will have to.
fn can_be_notified(
    grant_socket: &mut Option<GrantSocket>,
    file: &OpenFile,
    executor: &Arc<Executor>,
    verbs: &mut Verbs<'_>,
) -> bool {
    if !executor.is_listened_to() {
        return false;
    }
    if grant_socket.as_ref().is_some_and(|grant_socket| grant_socket.can_be_called(verbs.sockets)) {
        return true;
    }
    // What is left of an old one must not be in the way.
    *grant_socket = None;
    let made =
        verbs.sockets.listen(executor.client, &file.place().real).and_then(|(made, ended)| {
            let socket = made.socket()?;
            executor.runtime.spawn(Box::pin(hear(socket, ended, Arc::downgrade(executor))));
            Ok(made)
        });
    match made {
        Ok(made) => {
            *grant_socket = Some(made);
            true
        }
        Err(error) => {
            let file = file.place().given.display();
            tracing::warn!(%file, "waiters have to poll: {error}");
            false
        }
    }
}

/// Looks whenever something arrives, until the socket is gone.
async fn hear(
    socket: std::os::unix::net::UnixDatagram,
    mut ended: oneshot::Receiver<()>,
    executor: Weak<Executor>,
) {
    let Ok(socket) = UnixDatagram::from_std(socket) else { return };
    loop {
        tokio::select! {
            _ = &mut ended => return,
            ready = socket.readable() => if ready.is_err() { return },
        }
        let Some(executor) = executor.upgrade() else { return };
        // The look reads all that is there, by the other handle of the socket. What arrives after
        // that is signalled again.
        let _empty: std::io::Result<()> = socket.try_io(Interest::READABLE, || {
            executor.look();
            Err(std::io::ErrorKind::WouldBlock.into())
        });
    }
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Executor").field("client", &self.client).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::address::Address;
    use super::*;
    use crate::name::Name;
    use crate::node::{
        Failure, NodeContext, NodeOptions, Request, Round, Secret, Ticket, TicketNumber,
    };
    use crate::runtime::{Moment, TokioRuntime};
    use crate::settings::Settings;
    use crate::token::Token;

    const TTL: Duration = Duration::from_secs(30);

    /// A client that asks for a lock, and does not care for the answer.
    struct Asking {
        name: Name,
        token: Token,
        sent: Moment,
        ticket: Option<Ticket>,
    }

    impl Round for Asking {
        fn request(&self, _node: usize) -> Request<'_> {
            let token = &self.token;
            let verb = match self.ticket {
                Some(ticket) => {
                    Verb::Wait { token, ttl: TTL, ticket, yielding: false, proposal: None }
                }
                None => {
                    Verb::Release { token, until: None, next: 0, queued: true, participant: None }
                }
            };
            Request { name: &self.name, sent: self.sent, wall_us: 0, verb }
        }

        fn cast(self: Arc<Self>, _node: usize, _answer: Answer) {}
        fn overdue(self: Arc<Self>, _node: usize, _why: Failure) {}
    }

    struct Deaf;

    impl Inbox for Deaf {
        fn granted(&self, _node: usize, _grant: Grant) {}
        fn interrupted(&self, _node: usize) {}
        fn unsettled(&self, _node: usize) {}
        fn session_ended(&self, _node: usize) {}
    }

    fn executor(url: &str) -> (Arc<Executor>, Arc<Deaf>) {
        let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime::current());
        let client = ClientId::random(&*runtime);
        let context = NodeContext::new(
            &[url],
            &[],
            &Settings::default(),
            &NodeOptions::default(),
            &runtime,
            client,
        )
        .unwrap();
        let address = Address::parse(0, url).unwrap();
        let executor = Executor::new(&context.runtime, client);
        let deaf = Arc::new(Deaf);
        executor.listen(client, 0, Arc::downgrade(&deaf) as Weak<dyn Inbox>);
        executor.open(OpenFile::open(&address, &context).unwrap());
        (executor, deaf)
    }

    fn call(executor: &Executor, token: Token, waiter: Option<u64>) -> Call {
        let (secret, ticket_no) = (Secret::random(&*executor.runtime), TicketNumber::New(1));
        let sent = executor.runtime.now();
        let ticket = waiter.map(|waiter| Ticket {
            client: executor.client,
            waiter,
            secret,
            ticket_no,
            sent,
            keep: Duration::MAX,
        });
        Call::new(Arc::new(Asking { name: Name::new("a").unwrap(), token, sent, ticket }), 0)
    }

    /// It was there when the record became its own, and not any more when it was to be notified.
    #[tokio::test]
    async fn a_waiter_that_dies_before_the_message_comes_does_not_keep_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", directory.path().join("locks.db").display());
        let executors = [executor(&url), executor(&url), executor(&url)];
        let tokens = [(); 3].map(|()| Token::random(&TokioRuntime::current()));
        for ((executor, _), token) in executors.iter().zip(tokens) {
            executor.serve([&call(executor, token, Some(1))]).unwrap();
        }
        let [(here, _), (dead, _), (next, _)] = &executors;
        let holder = || {
            let open = locked(&here.open);
            let holder = "SELECT token FROM lock WHERE name = x'61'";
            let connection = &open.as_ref().unwrap().file.connection;
            connection.query_row(holder, [], |row| row.get::<_, Vec<u8>>(0)).unwrap()
        };
        {
            let mut open = locked(&here.open);
            let open = open.as_mut().unwrap();
            open.file.connection.execute_batch(BEGIN).unwrap();
            let mut messages = Vec::new();
            let release = call(here, tokens[0], None);
            open.outcome(here, [&release], &mut messages).unwrap();
            open.file.connection.execute_batch(COMMIT).unwrap();
            dead.close();
            open.send(here, messages);
        }
        assert_eq!(holder(), *tokens[2].text());
        let grants = locked(&next.open).as_mut().unwrap().look(next).unwrap();
        assert_eq!(grants.len(), 1);
    }

    /// A thread that served calls when the message came has not seen it.
    #[tokio::test]
    async fn a_message_that_comes_while_the_executor_is_busy_is_looked_at_after_that() {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", directory.path().join("locks.db").display());
        let ((here, _), (there, _deaf)) = (executor(&url), executor(&url));
        let tokens = [(); 2].map(|()| Token::random(&TokioRuntime::current()));
        here.serve([&call(&here, tokens[0], Some(1))]).unwrap();
        there.serve([&call(&there, tokens[1], Some(1))]).unwrap();
        let taken = locked(&there.open);
        here.serve([&call(&here, tokens[0], None)]).unwrap();
        there.look();
        assert!(there.message_came.load(Ordering::SeqCst));
        assert!(there.serve_with(taken, []).is_ok());
        assert!(!there.message_came.load(Ordering::SeqCst));
        assert!(locked(&there.open).as_ref().unwrap().tickets.is_empty(), "it is told");
    }
}
