//! Setting a database up and marking it as new, over a connection of its own.

use std::time::Duration;

use super::address::Address;
use super::connect::{Facts, Session};
use super::replies::{Sending, read};
use super::schema;
use super::verbs::{Caller, Statements};
use crate::Error;
use crate::admin::init::{Claimed, Look};
use crate::drive::ListProgress;
use crate::name::Name;
use crate::node::{
    Answer, Failure, FailureKind, Listed, Mark, Marker, MarkerState, NodeContext, Request, Verb,
    Writes, marker,
};
use crate::runtime::{BoxFuture, random_u64, wall_us};

/// So many locks of a node are named at the least, if it holds so many.
const MOST_NAMES: usize = 20;

/// Finds out which set of nodes a database belongs to, and how to make it ours.
pub(in crate::node) fn init(
    index: usize,
    url: &str,
    context: &NodeContext,
) -> Result<BoxFuture<'static, Look>, Error> {
    let address = Address::parse(index, url)?;
    let context = context.clone();
    Ok(Box::pin(async move {
        let node = address.label.clone();
        let looked = within(&context, Database::look(address, &context)).await;
        match looked.and_then(|looked| looked) {
            Ok((marker, locks, database)) => {
                let claim: BoxFuture<'static, Result<Claimed, Failure>> =
                    Box::pin(database.claim(context));
                Look { node, marker: Ok(Some(marker)), locks, claim: Some(claim) }
            }
            Err(failure) => Look::failed(node, failure),
        }
    }))
}

pub(super) async fn within<T>(
    context: &NodeContext,
    future: impl Future<Output = T>,
) -> Result<T, Failure> {
    let limit = 2 * context.settings.connect_limit;
    tokio::select! {
        biased;
        () = context.runtime.sleep(limit) => {
            let text = format!("no answer within {limit:?}; is it up, and is the address right?");
            Err(Failure::new(FailureKind::Unreachable, text))
        }
        done = future => Ok(done),
    }
}

/// A database that is spoken to with its own functions, outside of any locker.
pub(super) struct Speaker {
    pub(super) session: Session,
    pub(super) caller: Caller,
    statements: Statements,
}

impl Speaker {
    /// Greets a database that is set up.
    pub(super) async fn greet(
        mut session: Session,
        address: &Address,
        context: &NodeContext,
    ) -> Result<Self, Failure> {
        let name = format!("{}:{:016x}", context.client, random_u64(&*context.runtime));
        session.run(&format!("SET quorlock.session = '{name}'")).await?;
        let greeting = format!("SELECT identity FROM {}.greet(0)", address.schema);
        let start: String = session.row(&greeting, &[]).await?.get(0);
        let options = &context.options.postgres;
        let mut caller = Caller::new(options, context.settings.max_ttl, &context.members);
        caller.connected(&name, &start);
        let client = std::sync::Arc::clone(&session.client);
        let statements = session.ask(Statements::prepare(&client, &address.schema)).await?;
        Ok(Self { session, caller, statements })
    }

    pub(super) async fn ask(
        &mut self,
        context: &NodeContext,
        verb: Verb<'_>,
    ) -> Result<Answer, Failure> {
        let (name, sent_us) = (Name::of_no_lock(), wall_us(&*context.runtime));
        let request = Request { name: &name, sent: context.runtime.now(), wall_us: sent_us, verb };
        let (function, arguments) = self.caller.encode(&request);
        let client = std::sync::Arc::clone(&self.session.client);
        let asking = self.statements.ask(&client, function, &arguments);
        let row = self.session.ask(asking).await?;
        let now_us = wall_us(&*context.runtime);
        let sending = Sending { function, sent_us, now_us, again: false };
        match read(sending, &self.caller, &row) {
            Answer::Failed(failure) => Err(failure),
            answer => Ok(answer),
        }
    }

    pub(super) async fn marker(
        &mut self,
        context: &NodeContext,
        verb: Verb<'_>,
    ) -> Result<Marker, Failure> {
        match self.ask(context, verb).await? {
            Answer::Marker(Some(marker)) => Ok(*marker),
            _ => Err(Failure::new(FailureKind::Broken, "its marker cannot be read")),
        }
    }

    /// Some of the locks that somebody holds there.
    async fn locks(&mut self, context: &NodeContext) -> Result<Vec<Name>, Failure> {
        let (mut names, mut from) = (Vec::new(), Vec::new());
        let mut progress = ListProgress::default();
        loop {
            let Answer::Listed(listed) = self.ask(context, Verb::List { from: &from }).await?
            else {
                return Err(Failure::new(FailureKind::Broken, "its locks cannot be listed"));
            };
            progress.step(&listed)?;
            let Listed { names: some, next } = *listed;
            names.extend(some);
            match next {
                Some(next) if names.len() < MOST_NAMES => from = next,
                _ => return Ok(names),
            }
        }
    }
}

/// A database that was looked at.
enum Database {
    /// It is not set up, or by an older version, or not as the URL asks for it.
    ToBeSetUp { session: Session, address: Address },
    Ready {
        speaker: Speaker,
        /// The marker that is there.
        seen: Vec<u8>,
    },
}

impl Database {
    /// Changes nothing, but for a schema of an older version, which is brought forward: only then can be said what is
    /// in it.
    async fn look(
        address: Address,
        context: &NodeContext,
    ) -> Result<(Marker, Vec<Name>, Self), Failure> {
        let mut session = Session::open(&address).await?;
        let facts = session.facts(&address.schema, || Duration::MAX).await?;
        facts.check_server()?;
        claim_place(&mut session, &address, &facts, context).await?;
        if !facts.has_schema || facts.may_use && facts.schema_version.is_none() {
            let absent = Marker::without_set(Vec::new(), MarkerState::Absent);
            return Ok((absent, Vec::new(), Self::ToBeSetUp { session, address }));
        }
        let is_older = facts.schema_version.is_some_and(|version| version < schema::VERSION);
        let is_otherwise = address.durable.is_some_and(|durable| durable != facts.is_durable);
        if is_older || is_otherwise && facts.schema_version == Some(schema::VERSION) {
            session.run(&schema::sql(&address)).await?;
        } else {
            facts.check_schema(&address)?;
        }
        let mut speaker = Speaker::greet(session, &address, context).await?;
        let marker = speaker.marker(context, Verb::Look).await?;
        let seen = marker.instance.clone();
        let locks = speaker.locks(context).await?;
        Ok((marker, locks, Self::Ready { speaker, seen }))
    }

    /// Has it carry the set, without a vote, if its marker is the one that was seen.
    async fn claim(self, context: NodeContext) -> Result<Claimed, Failure> {
        let (mut speaker, seen) = match self {
            Self::Ready { speaker, seen } => (speaker, seen),
            Self::ToBeSetUp { mut session, address } => {
                within(&context, session.run(&schema::sql(&address))).await??;
                let mut speaker = Speaker::greet(session, &address, &context).await?;
                // Nothing was there, and if something is by now it is of somebody who was faster.
                let marker = within(&context, speaker.marker(&context, Verb::Look)).await??;
                if marker.state != MarkerState::Absent {
                    return Err(marked_by_another());
                }
                (speaker, marker.instance)
            }
        };
        let nonce = random_u64(&*context.runtime);
        let writes = Writes::Forming(context.members.clone());
        let mark = Mark { seen, writes, nonce };
        let written = within(&context, speaker.marker(&context, Verb::Mark(&mark))).await??;
        if !marker::is_by(&written, nonce) {
            return Err(marked_by_another());
        }
        Ok(Box::pin(async move { vote(speaker, written.instance, &context).await }))
    }
}

/// Has it vote from now on. Returns the marker that is there then.
async fn vote(
    mut speaker: Speaker,
    seen: Vec<u8>,
    context: &NodeContext,
) -> Result<Marker, Failure> {
    let writes = Writes::Formed(context.members.clone());
    let mark = Mark { seen, writes, nonce: random_u64(&*context.runtime) };
    let marked = speaker.marker(context, Verb::Mark(&mark));
    within(context, marked).await.and_then(|marked| marked)
}

fn marked_by_another() -> Failure {
    let text = "was marked by somebody else at the same moment; look at it again";
    Failure::new(FailureKind::Rejected, text)
}

/// Refuses a database that another URL leads to as well.
async fn claim_place(
    session: &mut Session,
    address: &Address,
    facts: &Facts,
    context: &NodeContext,
) -> Result<(), Failure> {
    let row = session.row("SELECT system_identifier::text FROM pg_control_system()", &[]).await?;
    let system: String = row.get(0);
    let place = format!("{system}/{}/{}", facts.database, address.schema);
    context.servers.claim(&place, address.index, &address.label).map_err(|other| {
        let text = format!("is the same database as {other}");
        Failure::new(FailureKind::Duplicate, text)
    })
}
