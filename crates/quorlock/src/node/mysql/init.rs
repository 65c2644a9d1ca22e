//! Setting a database up and marking it as new, over a connection of its own.

use super::address::Address;
use super::connect::{Facts, Greeting, Session, check_schema, refuse_proxy};
use super::error::unreachable;
use super::replies::{Sending, read};
use super::schema;
use super::verbs::Caller;
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

/// A database that is spoken to with its own procedures, outside of any locker.
pub(super) struct Speaker {
    pub(super) session: Session,
    caller: Caller,
}

impl Speaker {
    /// Speaks to a database that has been greeted.
    pub(super) async fn new(
        mut session: Session,
        facts: &Facts,
        greeting: &Greeting,
        context: &NodeContext,
    ) -> Result<Self, Failure> {
        let name = format!("{}:{:016x}", context.client, random_u64(&*context.runtime));
        session.prepare(&name, greeting).await?;
        let options = &context.options.mysql;
        let mut caller = Caller::new(options, context.settings.max_ttl, &context.members);
        caller.connected(&name, &facts.identity(greeting));
        Ok(Self { session, caller })
    }

    async fn ask(&mut self, context: &NodeContext, verb: Verb<'_>) -> Result<Answer, Failure> {
        let (name, sent_us) = (Name::of_no_lock(), wall_us(&*context.runtime));
        let request = Request { name: &name, sent: context.runtime.now(), wall_us: sent_us, verb };
        let (procedure, arguments) = self.caller.encode(&request);
        let rows = procedure.call(&mut self.session.conn, arguments).await;
        let rows = rows.map_err(|error| unreachable(&error))?;
        let now_us = wall_us(&*context.runtime);
        let sending = Sending { procedure, sent_us, now_us, again: false };
        match read(sending, &self.caller, &rows).answer {
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
    /// It is not set up.
    ToBeSetUp { session: Session, facts: Facts },
    Ready {
        speaker: Speaker,
        /// The marker that is there.
        seen: Vec<u8>,
    },
}

impl Database {
    /// Changes nothing, but for procedures of an older version, which are brought forward: only then can be said what is
    /// in it.
    async fn look(
        address: Address,
        context: &NodeContext,
    ) -> Result<(Marker, Vec<Name>, Self), Failure> {
        let mut session = Session::open(&address).await?;
        let facts = session.facts().await?;
        facts.check_server()?;
        refuse_proxy(&mut session).await?;
        let place = facts.place(&address);
        if let Err(other) = context.servers.claim(&place, address.index, &address.label) {
            let text = format!("is the same database as {other}");
            return Err(Failure::new(FailureKind::Duplicate, text));
        }
        let Some(greeting) = session.greet(0).await? else {
            let absent = Marker::without_set(Vec::new(), MarkerState::Absent);
            return Ok((absent, Vec::new(), Self::ToBeSetUp { session, facts }));
        };
        let greeting = if greeting.version < schema::VERSION {
            set_up(&mut session).await?
        } else {
            check_schema(&address, Some(greeting))?
        };
        let mut speaker = Speaker::new(session, &facts, &greeting, context).await?;
        let marker = speaker.marker(context, Verb::Look).await?;
        let seen = marker.instance.clone();
        let locks = speaker.locks(context).await?;
        Ok((marker, locks, Self::Ready { speaker, seen }))
    }

    /// Has it carry the set, without a vote, if its marker is the one that was seen.
    async fn claim(self, context: NodeContext) -> Result<Claimed, Failure> {
        let (mut speaker, seen) = match self {
            Self::Ready { speaker, seen } => (speaker, seen),
            Self::ToBeSetUp { mut session, facts } => {
                let greeting = within(&context, set_up(&mut session)).await??;
                let mut speaker = Speaker::new(session, &facts, &greeting, &context).await?;
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

/// Makes the tables and the procedures. Several may do so at once: they come one after the other.
async fn set_up(session: &mut Session) -> Result<Greeting, Failure> {
    session.run("DO GET_LOCK(CONCAT('quorlock:setup:', LEFT(SHA1(DATABASE()), 16)), 30)").await?;
    for statement in schema::statements() {
        session.run(&statement).await?;
    }
    session.run("DO RELEASE_LOCK(CONCAT('quorlock:setup:', LEFT(SHA1(DATABASE()), 16)))").await?;
    let greeting = session.greet(0).await?;
    greeting.ok_or_else(|| {
        let text = "was set up, and its procedures cannot be called; grant the user EXECUTE on the database";
        Failure::new(FailureKind::Unfit, text)
    })
}
