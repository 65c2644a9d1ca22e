//! Having a server forget locks, over a connection of its own.

use std::sync::Arc;

use super::address::Address;
use super::connect::{Wire, greet, identity, refuse_error};
use super::init::within;
use super::resp::{Command, Value};
use crate::Error;
use crate::forget::Kept;
use crate::name::Name;
use crate::node::{Failure, Setting};
use crate::runtime::BoxFuture;

const FORGET: &str = include_str!("lua/forget.lua");

/// So few at a time that nobody else has to wait for long.
const AT_A_TIME: usize = 256;

pub(in crate::node) fn forget(
    index: usize,
    url: &str,
    setting: &Setting,
    names: &Arc<[Name]>,
) -> Result<BoxFuture<'static, Kept>, Error> {
    let address = Address::parse(index, url)?;
    let (setting, names) = (setting.clone(), Arc::clone(names));
    Ok(Box::pin(async move {
        let asking = async {
            let mut wire = Wire::open(&address).await?;
            let mut greeting = Vec::new();
            greet(&address, &mut greeting);
            Command::new(&mut greeting, 2).arg(b"SELECT").number(u64::from(address.db));
            wire.send(&greeting).await?;
            wire.reply(|hello| identity(&hello)).await??;
            wire.reply(|selected| refuse_error(&selected)).await??;
            forget_over(&mut wire, &setting.settings.prefix, &names).await
        };
        let kept = within(&setting, asking).await.and_then(|kept| kept);
        (address.label, kept)
    }))
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
        let command = command.arg(b"EVAL").arg(FORGET.as_bytes()).number(some.len() as u64);
        some.iter().fold(command, |command, name| command.arg2(prefix, name.as_bytes()));
        wire.send(&bytes).await?;
        kept += wire
            .reply(|reply| match reply {
                Value::Int(kept) => Ok(kept),
                other => refuse_error(&other).map(|()| 0),
            })
            .await??;
    }
    Ok(kept)
}
