//! Marking a server as new, over a connection of its own.

use super::address::Address;
use super::connect::{Wire, check_role, check_version, field, greet, identity, refuse_error, text};
use super::examine::{bytes, time};
use super::marker::{self, Shared, Standing};
use super::replies::{Reading, read};
use super::resp::{Command, Value};
use super::verbs::{self, By, Strict};
use crate::init::{InitState, Look, Refusal};
use crate::name::Name;
use crate::node::{Answer, Failure, FailureKind, Request, Setting, Verb};
use crate::runtime::{BoxFuture, wall_us};
use crate::{Dialect, Error};

/// So many locks of a node are named at the least, if it holds so many.
const MOST_NAMES: usize = 20;

const INIT: &str = include_str!("lua/init.lua");

/// Finds out whether a server can be marked as new, and how.
pub(in crate::node) fn init(
    index: usize,
    url: &str,
    setting: &Setting,
) -> Result<BoxFuture<'static, Look>, Error> {
    let address = Address::parse(index, url)?;
    let setting = setting.clone();
    Ok(Box::pin(async move {
        let node = address.label.clone();
        if setting.settings.dialect != Dialect::Strict {
            return Look::settled(node, InitState::NotNeeded);
        }
        let looked = within(&setting, Server::look(&address, &setting)).await;
        match looked.and_then(|looked| looked) {
            Ok((state, locks, server)) => {
                let mark: BoxFuture<'static, InitState> =
                    Box::pin(async move { server.mark(&setting).await });
                Look { node, state, locks, mark: Some(mark) }
            }
            Err(failure) => Look::settled(node, InitState::Failed(failure)),
        }
    }))
}

pub(super) async fn within<T>(
    setting: &Setting,
    future: impl Future<Output = T>,
) -> Result<T, Failure> {
    let limit = 2 * setting.settings.connect_limit;
    tokio::select! {
        done = future => Ok(done),
        () = setting.runtime.sleep(limit) => {
            let text = format!("no answer within {limit:?}; is it up, and is the address right?");
            Err(Failure::new(FailureKind::Unreachable, text))
        }
    }
}

/// A server that was looked at.
struct Server {
    wire: Wire,
    key: Vec<u8>,
    /// What is there; empty if nothing is.
    marker: Vec<u8>,
    /// What is to be there.
    new: String,
}

impl Server {
    /// Changes nothing.
    async fn look(
        address: &Address,
        setting: &Setting,
    ) -> Result<(InitState, Vec<Name>, Self), Failure> {
        let settings = &setting.settings;
        let key = marker::key(settings);
        let mut wire = Wire::open(address).await?;
        let mut commands = Vec::new();
        greet(address, &mut commands);
        Command::new(&mut commands, 2).arg(b"SELECT").number(u64::from(address.db));
        Command::new(&mut commands, 1).arg(b"INFO");
        Command::new(&mut commands, 1).arg(b"TIME");
        Command::new(&mut commands, 2).arg(b"GET").arg(&key);
        wire.send(&commands).await?;
        let (_, role) = wire.reply(|hello| identity(&hello)).await??;
        check_role(&role)?;
        wire.reply(|selected| refuse_error(&selected)).await??;
        let info = wire.reply(|info| text(&info)).await??;
        check_version(&info)?;
        let run_id = field(&info, "run_id").unwrap_or_default().to_owned();
        if let Err(other) = setting.servers.claim(&run_id, address.index, &address.label) {
            let text = format!("is the same server as {other}");
            return Err(Failure::new(FailureKind::Duplicate, text));
        }
        let now = wire.reply(|reply| refuse_error(&reply).map(|()| time(&reply))).await??;
        let now_us = now.and_then(|now| now.duration_since(std::time::UNIX_EPOCH).ok());
        let now_us = now_us.map_or(0, |now| u64::try_from(now.as_micros()).unwrap_or(u64::MAX));
        let marker = wire.reply(|reply| refuse_error(&reply).map(|()| bytes(&reply))).await??;

        let ours = Shared::of(settings);
        let standing = marker::standing(&marker, &run_id, ours, now_us);
        let new = marker::of_a_new_server(&run_id, ours);
        let mut server = Self { wire, key, marker, new };
        let locks = server.locks(setting, &run_id).await?;
        let state = match standing {
            Standing::Voting => InitState::Voting,
            Standing::OtherStart => InitState::Refused(Refusal::Restarted),
            Standing::OtherSettings(Shared { max_ttl, clock_ahead }) => {
                InitState::Refused(Refusal::OtherSettings { max_ttl, clock_ahead })
            }
            Standing::Unmarked | Standing::Quiet(_) => InitState::Left,
        };
        Ok((state, locks, server))
    }

    /// Some of the locks that somebody holds there.
    async fn locks(&mut self, setting: &Setting, run_id: &str) -> Result<Vec<Name>, Failure> {
        let mut strict = Strict::new(&setting.settings);
        strict.connected_to(run_id, b"");
        let prefix = setting.settings.prefix.clone();
        let mut dialect =
            verbs::Dialect { prefix, strict: Some(strict), ..verbs::Dialect::default() };
        // Of no meaning, but there has to be one.
        let name =
            Name::new("-").map_err(|error| Failure::new(FailureKind::Unfit, error.to_string()))?;
        let mut names = Vec::new();
        let mut from = Vec::new();
        loop {
            let wall_us = wall_us(&*setting.runtime);
            let sent = setting.runtime.now();
            let request = Request { name: &name, sent, wall_us, verb: Verb::List { from: &from } };
            let mut command = Vec::new();
            let asked = dialect.encode(&request, By::Source, &mut command);
            self.wire.send(&command).await?;
            let listed = self
                .wire
                .reply(|reply| read(asked, &mut dialect, || wall_us, || wall_us, &reply))
                .await?;
            let listed = match listed {
                Reading::Answer(Answer::Listed(listed)) => listed,
                Reading::Answer(Answer::Failed(failure)) => return Err(failure),
                _ => return Err(Failure::new(FailureKind::Broken, "its locks cannot be listed")),
            };
            names.extend(listed.names);
            match listed.next {
                Some(next) if names.len() < MOST_NAMES => from = next,
                _ => return Ok(names),
            }
        }
    }

    async fn mark(mut self, setting: &Setting) -> InitState {
        let mut command = Vec::new();
        Command::new(&mut command, 6)
            .arg(b"EVAL")
            .arg(INIT.as_bytes())
            .number(1)
            .arg(&self.key)
            .arg(&self.marker)
            .arg(self.new.as_bytes());
        let asking = async {
            self.wire.send(&command).await?;
            self.wire.reply(|reply| refuse_error(&reply).map(|()| reply == Value::Int(1))).await?
        };
        match within(setting, asking).await.and_then(|marked| marked) {
            Ok(true) => InitState::Marked,
            Ok(false) => {
                let text = "was marked by somebody else at the same moment; look at it again";
                InitState::Failed(Failure::new(FailureKind::Rejected, text))
            }
            Err(failure) => InitState::Failed(failure),
        }
    }
}
