//! Marking a server as new, over a connection of its own.

use super::address::Address;
use super::connect::{Wire, check_role, check_version, field, greet, identity, refuse_error, text};
use super::dialect::DialectState;
use super::replies::{Outcome, Sending, read};
use super::resp::{Command, Value};
use super::verbs::{By, Encoder};
use crate::Error;
use crate::admin::init::{Claimed, Look};
use crate::drive::ListProgress;
use crate::name::Name;
use crate::node::{
    Answer, Failure, FailureKind, Listed, Mark, Marker, NodeContext, Request, Verb, Writes, marker,
};
use crate::runtime::{BoxFuture, random_u64, wall_us};

/// So many locks of a node are named at the least, if it holds so many.
const MOST_NAMES: usize = 20;

/// Finds out which set of nodes a server belongs to, and how to make it ours.
pub(in crate::node) fn init(
    index: usize,
    url: &str,
    context: &NodeContext,
) -> Result<BoxFuture<'static, Look>, Error> {
    let address = Address::parse(index, url)?;
    let context = context.clone();
    Ok(Box::pin(async move {
        let node = address.label.clone();
        if !context.options.redis.has_markers() {
            return Look::without_marker(node);
        }
        let looked = within(&context, Server::look(&address, &context)).await;
        match looked.and_then(|looked| looked) {
            Ok((marker, locks, server)) => {
                let claim: BoxFuture<'static, Result<Claimed, Failure>> =
                    Box::pin(server.claim(context));
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
        // First: over a server that sends without end, the time would never be looked at.
        biased;
        () = context.runtime.sleep(limit) => {
            let text = format!("no answer within {limit:?}; is it up, and is the address right?");
            Err(Failure::new(FailureKind::Unreachable, text))
        }
        done = future => Ok(done),
    }
}

/// A server that was looked at.
struct Server {
    wire: Wire,
    encoder: Encoder,
    /// The marker that is there.
    seen: Vec<u8>,
}

impl Server {
    /// Changes nothing.
    async fn look(
        address: &Address,
        context: &NodeContext,
    ) -> Result<(Marker, Vec<Name>, Self), Failure> {
        let mut wire = Wire::open(address).await?;
        let mut commands = Vec::new();
        greet(address, &mut commands);
        Command::new(&mut commands, 2).arg(b"SELECT").number(u64::from(address.db));
        Command::new(&mut commands, 1).arg(b"INFO");
        wire.send(&commands).await?;
        let (_, role) = wire.reply(|hello| identity(&hello)).await??;
        check_role(&role)?;
        wire.reply(|selected| refuse_error(&selected)).await??;
        let info = wire.reply(|info| text(&info)).await??;
        check_version(&info)?;
        let run_id = field(&info, "run_id").unwrap_or_default().to_owned();
        if let Err(other) = context.servers.claim(&run_id, address.index, &address.label) {
            let text = format!("is the same server as {other}");
            return Err(Failure::new(FailureKind::Duplicate, text));
        }
        let options = &context.options.redis;
        let mut dialect = DialectState::new(options, context.settings.max_ttl, &context.members);
        dialect.connected_to(&run_id);
        let encoder = Encoder::new(&options.prefix, dialect);
        let mut server = Self { wire, encoder, seen: Vec::new() };
        let marker = server.marker(context, Verb::Look).await?;
        server.seen.clone_from(&marker.instance);
        let locks = server.locks(context).await?;
        Ok((marker, locks, server))
    }

    async fn ask(&mut self, context: &NodeContext, verb: Verb<'_>) -> Result<Answer, Failure> {
        let (name, wall_us) = (Name::of_no_lock(), wall_us(&*context.runtime));
        let request = Request { name: &name, sent: context.runtime.now(), wall_us, verb };
        let mut command = Vec::new();
        let sent = self.encoder.encode(&request, By::Source, &mut command);
        self.wire.send(&command).await?;
        let now_us = || crate::runtime::wall_us(&*context.runtime);
        let sending = Sending { sent, again: false, with_source: true };
        let encoder = &mut self.encoder;
        let read = |reply: Value<'_>| read(sending, encoder, || wall_us, now_us, || false, &reply);
        match self.wire.reply(read).await? {
            Outcome::Answered(Answer::Failed(failure)) => Err(failure),
            Outcome::Answered(answer) => Ok(answer),
            _ => Err(Failure::new(FailureKind::Broken, "does not run scripts as it should")),
        }
    }

    async fn marker(&mut self, context: &NodeContext, verb: Verb<'_>) -> Result<Marker, Failure> {
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

    /// Has it carry the set, without a vote, if its marker is the one that was seen.
    async fn claim(mut self, context: NodeContext) -> Result<Claimed, Failure> {
        let nonce = random_u64(&*context.runtime);
        let writes = Writes::Forming(context.members.clone());
        let mark = Mark { seen: self.seen.clone(), writes, nonce };
        let marker = within(&context, self.marker(&context, Verb::Mark(&mark))).await??;
        if !marker::is_by(&marker, nonce) {
            let text = "was marked by somebody else at the same moment; look at it again";
            return Err(Failure::new(FailureKind::Rejected, text));
        }
        self.seen = marker.instance;
        Ok(Box::pin(async move { self.vote(&context).await }))
    }

    /// Has it vote from now on. Returns the marker that is there then.
    async fn vote(mut self, context: &NodeContext) -> Result<Marker, Failure> {
        let writes = Writes::Formed(context.members.clone());
        let nonce = random_u64(&*context.runtime);
        let mark = Mark { seen: self.seen.clone(), writes, nonce };
        let marked = self.marker(context, Verb::Mark(&mark));
        within(context, marked).await.and_then(|marked| marked)
    }
}
