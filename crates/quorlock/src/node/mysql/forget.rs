//! Having a database forget locks, over a connection of its own.

use std::sync::Arc;

use mysql_async::Row;

use super::address::Address;
use super::connect::Session;
use super::init::within;
use crate::Error;
use crate::admin::forget::Kept;
use crate::name::Name;
use crate::node::{Failure, FailureKind, NodeContext};
use crate::runtime::{BoxFuture, wall_us};
use quorlock_protocol::MOST_AHEAD_US;

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
            let mut session = Session::open(&address).await?;
            forget_over(&mut session, &names).await
        };
        let kept = within(&context, asking).await.and_then(|kept| kept);
        (address.label, kept)
    }))
}

/// Has a database forget the fence of a lock if it is above what any holder can have been given. Says whether it has.
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
            let mut session = Session::open(&address).await?;
            let most = wall_us(&*context.runtime).saturating_add(MOST_AHEAD_US);
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            let params = vec![name.as_bytes().into(), most.into()];
            count(&session.row("CALL quorlock_forget_fence(?, ?)", params).await?)
        };
        let forgotten = within(&context, asking).await.and_then(|forgotten| forgotten);
        (address.label, forgotten)
    }))
}

/// The same over a connection that is there. Returns how many are held or wanted, and were not changed.
pub(super) async fn forget_over(session: &mut Session, names: &[Name]) -> Result<i64, Failure> {
    let mut kept = 0;
    for name in names {
        let params = vec![name.as_bytes().into()];
        kept += count(&session.row("CALL quorlock_forget(?)", params).await?)?;
    }
    Ok(kept)
}

fn count(row: &Row) -> Result<i64, Failure> {
    let count = row.get_opt::<i64, _>("kept").and_then(Result::ok);
    count.ok_or_else(|| Failure::new(FailureKind::Broken, "an answer has no count"))
}
