//! The verbs, on lines.
//!
//! | verb | writes | if |
//! | --- | --- | --- |
//! | acquire | our key | nobody is in the line |
//! | wait | our key, which stands behind the others | it is not there |
//! | extend, wait again | our key with a lease that was granted just now | nobody has changed it since |
//! | note | the value of our key | nobody has changed it since |
//! | release, force | deletes a key | it is the one that was made then |
//!
//! A key that is put again keeps the revision that made it, and so its place.
//!
//! # Requests whose fate is not known
//!
//! All but the first two name the key as it was, and come too late once it is gone. A key that may still be *made* is
//! looked for until the lease that it names has ended, and deleted: a put with a lease that is not there fails.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::line::{Contender, Line, fence};
use super::store::{MutexStore, has_place, is_empty, put};
use super::turns::Mine;
use crate::name::Name;
use crate::node::contenders::{Turn, Value, Waiter};
use crate::node::etcd::leases::Lease;
use crate::node::etcd::messages::{
    PutRequest, Request as Operation, RequestOp, TxnRequest, TxnResponse,
};
use crate::node::etcd::store::is_version;
use crate::node::lanes::{Attempts, Remember, Serve};
use crate::node::{
    Answer, Call, Failure, FailureKind, Holder, Inbox, Proposal, Queued, Seen, Ticket, Verb,
};
use crate::runtime::{Moment, wall_us};
use crate::token::Token;

/// What is known of a lock from the calls before.
#[derive(Debug, Default)]
pub(super) struct Known {
    mine: Option<Own>,
    /// Keys that may be made until then, of these tokens.
    may_be_made: HashMap<Token, Moment>,
    /// Any other write was sent whose fate is not known.
    is_unsure: bool,
}

/// A key of ours.
#[derive(Debug, Clone)]
struct Own {
    place: i64,
    version: i64,
    value: Value,
    /// Whether it has been seen to be the first. It stays so then.
    holds: bool,
}

impl Remember for Known {
    fn is_unsure(&self) -> bool {
        self.is_unsure || !self.may_be_made.is_empty()
    }

    fn stale(&mut self) {
        self.mine = None;
    }
}

impl Known {
    /// Our key, if it is that of this token.
    fn of(&self, token: &Token) -> Option<Own> {
        self.mine.clone().filter(|own| own.value.token == *token)
    }

    /// What was just read of it.
    fn found(&mut self, found: &Contender, holds: bool) -> Option<Own> {
        let Contender { place, version, ours, .. } = found.clone();
        self.mine = ours.map(|value| Own { place, version, value, holds });
        self.mine.clone()
    }
}

impl Serve for Arc<MutexStore> {
    type Known = Known;

    async fn attempt(
        &self,
        call: &Call,
        known: &mut Known,
        attempts: &mut Attempts,
    ) -> Result<Answer, Failure> {
        let request = call.request();
        let now = self.runtime.now();
        known.may_be_made.retain(|_, until| *until > now);
        let asked = Asked { store: self, name: request.name, known, attempts };
        match request.verb {
            Verb::Acquire { token, ttl, proposal } => asked.acquire(token, ttl, proposal).await,
            Verb::Wait { token, ttl, ticket, proposal, .. } => {
                asked.wait(token, ttl, &ticket, proposal).await
            }
            Verb::Extend { token, ttl, participant: None, .. } => asked.extend(token, ttl).await,
            Verb::Release { token, participant: None, .. } => asked.release(token).await,
            Verb::Confirm { token, fence } => asked.confirm(token, fence).await,
            Verb::SetNote { token, note, keep } => asked.set_note(token, note, keep).await,
            Verb::ForceRelease { holder } => asked.force_release(holder).await,
            Verb::Inspect => asked.inspect().await,
            Verb::List { from } => {
                self.list(from).await.map(|listed| Answer::Listed(Box::new(listed)))
            }
            // Nobody takes part in a lock here.
            Verb::Extend { .. } | Verb::Release { .. } => Ok(Answer::Refused),
            Verb::Look | Verb::Mark(_) => Ok(Answer::Marker(None)),
        }
    }

    fn listen(&self, node: usize, inbox: Weak<dyn Inbox>) {
        self.set_inbox(node, inbox);
    }

    async fn close(&self) {
        self.leave_all().await;
    }
}

/// One call that is served.
struct Asked<'a> {
    store: &'a Arc<MutexStore>,
    name: &'a Name,
    known: &'a mut Known,
    attempts: &'a mut Attempts,
}

impl Asked<'_> {
    async fn acquire(
        mut self,
        token: &Token,
        ttl: Duration,
        proposal: Option<Proposal>,
    ) -> Result<Answer, Failure> {
        let key = self.key(token);
        let value = Value::new(token, proposal.is_some(), None);
        let line = self.store.keys.line(self.name);
        let made = self.make(token, ttl, &value, vec![is_empty(line)], Vec::new()).await?;
        if let Made::Done { place, .. } = made {
            return Ok(self.granted(place, place, value, ttl));
        }
        let line = made.line(self.store, self.name).await?;
        let Some(first) = line.first()? else {
            // There are none but those of other names that begin with this one and a slash.
            return self.acquire_among_others(token, ttl, value).await;
        };
        if first.key != key {
            let mine = line.get(&key).map(|mine| mine.place);
            return self.refused(token, mine).await;
        }
        // An earlier attempt was not answered.
        self.known.may_be_made.remove(token);
        let own = self.known.found(first, true);
        Ok(Answer::Granted { fence: own.map_or(0, |own| own.fence()) })
    }

    /// Another holds the lock. Nobody releases what was refused, so that nothing of ours may be left in the line, nor
    /// come into it by an earlier attempt that was not answered.
    async fn refused(self, token: &Token, mine: Option<i64>) -> Result<Answer, Failure> {
        if let Some(place) = mine {
            self.known.is_unsure = true;
            self.store.remove(&self.key(token), place).await?;
            self.known.is_unsure = false;
        }
        self.known.mine = None;
        self.sweep(token);
        Ok(Answer::Refused)
    }

    /// Takes a place in the line, and leaves it unless it is the first.
    async fn acquire_among_others(
        mut self,
        token: &Token,
        ttl: Duration,
        value: Value,
    ) -> Result<Answer, Failure> {
        // From here on our key may be there.
        self.known.is_unsure = true;
        let (line, own) = self.join(token, ttl, value).await?;
        if line.first()?.is_some_and(|first| first.place == own.place) {
            self.known.is_unsure = false;
            return Ok(self.holds(own));
        }
        self.refused(token, Some(own.place)).await
    }

    async fn wait(
        mut self,
        token: &Token,
        ttl: Duration,
        ticket: &Ticket,
        proposal: Option<Proposal>,
    ) -> Result<Answer, Failure> {
        let Ticket { client, waiter, secret, sent, .. } = *ticket;
        let key = self.key(token);
        let is_waiting =
            self.known.of(token).is_some_and(|own| self.store.turns.is_waiting(&key, own.place));
        // Before the line is read.
        let stream = if is_waiting { None } else { self.store.watch_line(self.name).await };
        let value = Value::new(token, proposal.is_some(), Some(client));
        let (line, own) = self.join(token, ttl, value).await?;
        let Some(first) = line.first()?.filter(|first| first.place != own.place) else {
            self.store.turn_has_come(&key, own.place);
            return Ok(self.holds(own));
        };
        let record = first.record(wall_us(&*self.store.runtime));
        let others = line.is_any_behind(own.place);
        let (is_fenced, ttl) = (own.value.is_fenced, own.value.ttl);
        let waiter = Waiter { waiter, sent, secret, is_fenced, ttl, others };
        let mine = Mine { name: self.name.clone(), key, place: own.place };
        match self.store.wait_for_turn(mine, waiter, &line, stream) {
            Turn::Mine => Ok(self.holds(own)),
            Turn::NotYet { .. } => {
                let ticket_no = fence(own.place);
                let queued = Queued { ticket_no, record: Some(record), will_notify: true };
                Ok(Answer::Queued(Box::new(queued)))
            }
        }
    }

    async fn extend(mut self, token: &Token, ttl: Duration) -> Result<Answer, Failure> {
        while let Some(own) = self.held(token).await? {
            if let Some(own) = self.put_again(own, ttl).await? {
                return Ok(self.holds(own));
            }
            self.known.mine = None;
        }
        Ok(Answer::Refused)
    }

    async fn confirm(mut self, token: &Token, fence: u64) -> Result<Answer, Failure> {
        match self.held(token).await? {
            Some(own) if fence <= own.fence() => Ok(Answer::Granted { fence: own.fence() }),
            Some(own) => {
                let text = format!("gives out fences of its own: this is {}", own.fence());
                Err(Failure::new(FailureKind::Rejected, text))
            }
            None => Ok(Answer::Refused),
        }
    }

    async fn set_note(
        mut self,
        token: &Token,
        note: &str,
        keep: Duration,
    ) -> Result<Answer, Failure> {
        while let Some(own) = self.held(token).await? {
            let value = own.value.with_note(note, keep, wall_us(&*self.store.runtime));
            let key = self.key(token);
            let put = PutRequest {
                key: key.clone(),
                value: value.encode(),
                // It lasts no longer for that.
                ignore_lease: true,
                ..PutRequest::default()
            };
            let txn = TxnRequest {
                compare: vec![is_version(key, own.version)],
                success: vec![RequestOp { request: Some(Operation::Put(put)) }],
                failure: Vec::new(),
            };
            self.known.is_unsure = true;
            let answer =
                self.store.txn(txn).await.map_err(crate::node::etcd::client::Trouble::failure)?;
            self.known.is_unsure = false;
            if answer.succeeded {
                let version = revision(&answer);
                self.known.mine = Some(Own { version, value, ..own });
                return Ok(Answer::Done);
            }
            self.known.mine = None;
        }
        Ok(Answer::Refused)
    }

    async fn release(self, token: &Token) -> Result<Answer, Failure> {
        let key = self.key(token);
        let known = self.known.of(token);
        let is_mine = |own: &Own| own.holds || self.store.turns.is_mine(&key, own.place);
        let place = match known.filter(is_mine) {
            Some(own) => Some((own.place, true)),
            None => {
                let line = self.store.read(self.name).await?;
                let first = line.first().ok().flatten().map(|first| first.place);
                line.get(&key).map(|mine| (mine.place, first == Some(mine.place)))
            }
        };
        let Some((place, holds)) = place else { return Ok(self.gone(token)) };
        self.store.turns.end(&key);
        let answer = if holds { Answer::Done } else { Answer::Refused };
        // Whatever becomes of this request: if the key is gone when it is sent again, this was true.
        let before = self.attempts.released.replace(answer.clone());
        match self.store.remove(&key, place).await {
            Ok(true) => {
                self.known.mine = None;
                self.sweep(token);
                Ok(answer)
            }
            Ok(false) => {
                self.attempts.released = before;
                Ok(self.gone(token))
            }
            Err(failure) => {
                if !may_run(&failure) {
                    self.attempts.released = before;
                }
                Err(failure)
            }
        }
    }

    /// There is no key of this token, or not any more.
    fn gone(self, token: &Token) -> Answer {
        self.store.turns.end(&self.key(token));
        self.known.mine = None;
        self.sweep(token);
        self.attempts.released.take().unwrap_or(Answer::Refused)
    }

    /// A key that may still be made is nobody's: no request has this token again.
    fn sweep(&self, token: &Token) {
        if let Some(until) = self.known.may_be_made.get(token) {
            self.store.sweep(self.key(token), *until);
        }
    }

    async fn force_release(self, holder: Holder) -> Result<Answer, Failure> {
        let line = self.store.read(self.name).await?;
        let Some(first) = line.first()?.filter(|first| first.holder() == holder) else {
            return Ok(self.attempts.released.take().unwrap_or(Answer::Refused));
        };
        self.attempts.released = Some(Answer::Done);
        match self.store.remove(&first.key, first.place).await? {
            true => Ok(Answer::Done),
            false => Ok(Answer::Refused),
        }
    }

    async fn inspect(self) -> Result<Answer, Failure> {
        let line = self.store.read(self.name).await?;
        let wall_us = wall_us(&*self.store.runtime);
        let Some(first) = line.first()? else {
            return Ok(Answer::Seen(Box::new(Seen::new(None, None, Some(0)))));
        };
        let mut record = first.record(wall_us);
        let note = first.ours.as_ref().and_then(|value| value.note.as_ref());
        let note =
            note.filter(|(until_us, _)| *until_us > wall_us).map(|(_, note)| note.as_bytes());
        if record.remaining.is_none() {
            record.remaining = self.store.lease_remaining(first.lease).await;
        }
        let waiters = line.len() as u64 - 1;
        Ok(Answer::Seen(Box::new(Seen::new(Some(record), note, Some(waiters)))))
    }

    fn key(&self, token: &Token) -> Vec<u8> {
        self.store.keys.of(self.name, token)
    }

    /// Our key, if it holds the lock.
    async fn held(&mut self, token: &Token) -> Result<Option<Own>, Failure> {
        let key = self.key(token);
        let is_mine = |own: &Own| own.holds || self.store.turns.is_mine(&key, own.place);
        if let Some(own) = self.known.of(token).filter(is_mine) {
            return Ok(Some(own));
        }
        let line = self.store.read(self.name).await?;
        let found = line.first()?.filter(|first| first.key == key);
        if found.is_none() {
            self.store.turns.end_held(&key);
        }
        Ok(found.and_then(|found| self.known.found(found, true)))
    }

    /// Our key stands in the line that is returned, lasts so long from now on, and no less than before.
    async fn join(
        &mut self,
        token: &Token,
        ttl: Duration,
        value: Value,
    ) -> Result<(Line, Own), Failure> {
        let key = self.key(token);
        loop {
            if let Some(own) = self.known.of(token)
                && let Some(own) = self.put_again(own, ttl).await?
            {
                let line = self.store.read(self.name).await?;
                if line.has(&key, own.place) {
                    return Ok((line, own));
                }
            }
            // It is not there, or may have been deleted since it was put.
            self.known.mine = None;
            let compare = vec![has_place(key.clone(), 0)];
            let reads = vec![self.store.reads(self.name)];
            let made = self.make(token, ttl, &value, compare, reads).await?;
            let place = made.place();
            let line = made.line(self.store, self.name).await?;
            if let Some(place) = place.filter(|place| line.has(&key, *place)) {
                let value = value.kept(ttl, wall_us(&*self.store.runtime));
                let own = Own { place, version: place, value, holds: false };
                self.known.mine = Some(own.clone());
                return Ok((line, own));
            }
            // An earlier attempt was not answered, or another process has the token.
            if let Some(found) = line.get(&key) {
                self.known.may_be_made.remove(token);
                if self.known.found(found, false).is_none() {
                    let text = "the value of our key is of a later version of quorlock";
                    return Err(Failure::new(FailureKind::WrongType, text));
                }
            }
        }
    }

    /// Has our key last so long from now on, and no less than before. `None` if it is not as it was known.
    async fn put_again(&mut self, own: Own, ttl: Duration) -> Result<Option<Own>, Failure> {
        let value = own.value.clone().kept(ttl, wall_us(&*self.store.runtime));
        let key = self.key(&value.token);
        self.known.is_unsure = true;
        let put_it = |lease| TxnRequest {
            compare: vec![is_version(key.clone(), own.version)],
            success: vec![put(key.clone(), value.encode(), lease)],
            failure: Vec::new(),
        };
        let answer = self.store.txn_with_lease(value.ttl, put_it).await?;
        self.known.is_unsure = false;
        if !answer.succeeded {
            return Ok(None);
        }
        let own = Own { version: revision(&answer), value, ..own };
        self.known.mine = Some(own.clone());
        Ok(Some(own))
    }

    /// Makes our key, if `compare` is true, and reads the line then or otherwise.
    async fn make(
        &mut self,
        token: &Token,
        ttl: Duration,
        value: &Value,
        compare: Vec<crate::node::etcd::messages::Compare>,
        then: Vec<RequestOp>,
    ) -> Result<Made, Failure> {
        let key = self.key(token);
        let before = self.known.may_be_made.get(token).copied();
        let runtime = &self.store.runtime;
        let text = value.clone().kept(ttl, wall_us(&**runtime)).encode();
        let make_it = |lease: Lease| {
            // A clock may be slower than another.
            let lasts = Duration::from_secs(lease.seconds) * 11 / 10;
            let until = runtime.now().after(lasts);
            self.known.may_be_made.insert(*token, before.map_or(until, |it| it.max(until)));
            let put = put(key.clone(), text.clone(), lease);
            let success = [vec![put], then.clone()].concat();
            let failure = vec![self.store.reads(self.name)];
            TxnRequest { compare: compare.clone(), success, failure }
        };
        let answer = self.store.txn_with_lease(ttl, make_it).await;
        if !matches!(&answer, Err(failure) if may_run(failure)) {
            match before {
                Some(before) => self.known.may_be_made.insert(*token, before),
                None => self.known.may_be_made.remove(token),
            };
        }
        let answer = answer?;
        match answer.succeeded {
            true => Ok(Made::Done { place: revision(&answer), answer }),
            false => Ok(Made::NotDone(answer)),
        }
    }

    /// A key that was just made holds the lock.
    fn granted(self, place: i64, version: i64, value: Value, ttl: Duration) -> Answer {
        let value = value.kept(ttl, wall_us(&*self.store.runtime));
        self.holds(Own { place, version, value, holds: true })
    }

    fn holds(self, own: Own) -> Answer {
        let own = Own { holds: true, ..own };
        let fence = own.fence();
        self.known.mine = Some(own);
        Answer::Granted { fence }
    }
}

impl Own {
    /// Zero if it is to have none.
    fn fence(&self) -> u64 {
        if self.value.is_fenced { fence(self.place) } else { 0 }
    }
}

/// What became of a key to be made.
enum Made {
    Done { place: i64, answer: TxnResponse },
    NotDone(TxnResponse),
}

impl Made {
    fn place(&self) -> Option<i64> {
        match self {
            Self::Done { place, .. } => Some(*place),
            Self::NotDone(_) => None,
        }
    }

    /// The line as it was then.
    async fn line(&self, store: &MutexStore, name: &Name) -> Result<Line, Failure> {
        match self {
            Self::Done { answer, .. } => store.line(name, answer, 1).await,
            Self::NotDone(answer) => store.line(name, answer, 0).await,
        }
    }
}

/// The revision of what a transaction has written.
fn revision(answer: &TxnResponse) -> i64 {
    answer.header.map_or(0, |header| header.revision)
}

/// Whether a request that failed may be done yet.
fn may_run(failure: &Failure) -> bool {
    matches!(failure.kind(), FailureKind::Silent | FailureKind::Broken)
}

#[cfg(test)]
mod tests {
    use quorlock_testkit::{EtcdCluster, fresh_prefix, test};

    use super::*;
    use crate::node::etcd::address::Address;
    use crate::node::etcd::client::Client;
    use crate::runtime::{Runtime, TokioRuntime};

    const TTL: Duration = Duration::from_secs(3);

    fn store(runtime: &Arc<dyn Runtime>) -> Arc<MutexStore> {
        let address = Address::parse(0, &EtcdCluster::shared(3).url()).unwrap();
        let client = Client::new(&address, TTL).unwrap();
        Arc::new(MutexStore::new(Arc::new(client), fresh_prefix(), runtime, TTL))
    }

    /// Puts a key into the line, as a request that was sent earlier may do it late.
    async fn put_late(store: &MutexStore, name: &Name, token: &Token) {
        let value = Value::new(token, false, None).encode();
        let key = store.keys.of(name, token);
        let put_it = |lease| {
            let success = vec![put(key.clone(), value.clone(), lease)];
            TxnRequest { success, ..TxnRequest::default() }
        };
        store.txn_with_lease(TTL, put_it).await.unwrap();
    }

    /// Whether a key is there a while later.
    async fn stays(store: &MutexStore, name: &Name, token: &Token) -> bool {
        store.runtime.sleep(TTL / 3).await;
        store.read(name).await.unwrap().get(&store.keys.of(name, token)).is_some()
    }

    #[test]
    async fn nothing_of_a_try_that_was_refused_comes_into_the_line_or_stays_there() {
        let runtime: Arc<dyn Runtime> = Arc::new(TokioRuntime::current());
        let (store, name) = (store(&runtime), Name::new("late").unwrap());
        let [holder, late, second] = [(); 3].map(|()| Token::random(&*runtime));
        put_late(&store, &name, &holder).await;
        let acquire = async |token: &Token| {
            let mut known = Known::default();
            // An earlier attempt was not answered.
            known.may_be_made.insert(*token, runtime.now().after(TTL));
            let (known, attempts) = (&mut known, &mut Attempts::default());
            let asked = Asked { store: &store, name: &name, known, attempts };
            assert!(matches!(asked.acquire(token, TTL, None).await, Ok(Answer::Refused)));
        };
        acquire(&late).await;
        put_late(&store, &name, &late).await;
        put_late(&store, &name, &second).await;
        acquire(&second).await;
        assert!(!stays(&store, &name, &late).await, "it was made late");
        assert!(!stays(&store, &name, &second).await, "it stood in the line");
        assert!(stays(&store, &name, &holder).await, "it is another's");
    }
}
