//! Having a server forget locks, over a connection of its own.

use std::sync::Arc;

use super::address::Address;
use super::connect::{Wire, greet, identity, refuse_error};
use super::init::within;
use super::resp::{Command, Value};
use super::scripts::{FORGET, FORGET_FENCES};
use crate::Error;
use crate::admin::forget::Kept;
use crate::name::Name;
use crate::node::{Failure, NodeContext};
use crate::runtime::{BoxFuture, wall_us};
use quorlock_protocol::MOST_AHEAD_US;

/// So few at a time that nobody else has to wait for long.
const AT_A_TIME: usize = 256;

pub(in crate::node) fn forget(
    index: usize,
    url: &str,
    context: &NodeContext,
    names: &Arc<[Name]>,
) -> Result<BoxFuture<'static, Kept>, Error> {
    let address = Address::parse(index, url)?;
    let (context, names) = (context.clone(), Arc::clone(names));
    Ok(Box::pin(async move {
        let asking = async {
            let mut wire = connect(&address).await?;
            forget_over(&mut wire, &context.options.redis.prefix, &names).await
        };
        let kept = within(&context, asking).await.and_then(|kept| kept);
        (address.label, kept)
    }))
}

/// Has a server forget the fence of a lock if it is above what any holder can have been given. Says whether it
/// has.
pub(in crate::node) fn forget_fence(
    index: usize,
    url: &str,
    context: &NodeContext,
    name: &Name,
) -> Result<BoxFuture<'static, Kept>, Error> {
    let address = Address::parse(index, url)?;
    let (context, name) = (context.clone(), name.clone());
    Ok(Box::pin(async move {
        let asking = async {
            let mut wire = connect(&address).await?;
            let most = wall_us(&*context.runtime).saturating_add(MOST_AHEAD_US);
            let mut bytes = Vec::new();
            Command::new(&mut bytes, 5)
                .arg(b"EVAL")
                .arg(FORGET_FENCES.source.as_bytes())
                .number(1)
                .arg2(&context.options.redis.prefix, name.as_bytes())
                .number(most);
            wire.send(&bytes).await?;
            wire.reply(|reply| count(&reply)).await?
        };
        let forgotten = within(&context, asking).await.and_then(|forgotten| forgotten);
        (address.label, forgotten)
    }))
}

async fn connect(address: &Address) -> Result<Wire, Failure> {
    let mut wire = Wire::open(address).await?;
    let mut greeting = Vec::new();
    greet(address, &mut greeting);
    Command::new(&mut greeting, 2).arg(b"SELECT").number(u64::from(address.db));
    wire.send(&greeting).await?;
    wire.reply(|hello| identity(&hello)).await??;
    wire.reply(|selected| refuse_error(&selected)).await??;
    Ok(wire)
}

fn count(reply: &Value<'_>) -> Result<i64, Failure> {
    match reply {
        Value::Int(count) => Ok(*count),
        other => refuse_error(other).map(|()| 0),
    }
}

/// The same over a connection that is there. Returns how many are held or wanted, and were not changed.
pub(super) async fn forget_over(
    wire: &mut Wire,
    prefix: &[u8],
    names: &[Name],
) -> Result<i64, Failure> {
    let mut kept = 0;
    for some in names.chunks(AT_A_TIME) {
        let mut bytes = Vec::new();
        let command = Command::new(&mut bytes, 3 + some.len());
        let command = command.arg(b"EVAL").arg(FORGET.source.as_bytes()).number(some.len() as u64);
        some.iter().fold(command, |command, name| command.arg2(prefix, name.as_bytes()));
        wire.send(&bytes).await?;
        kept += wire.reply(|reply| count(&reply)).await??;
    }
    Ok(kept)
}
