//! Having a database forget locks, over a connection of its own.

use std::sync::Arc;

use tokio_postgres::types::Type;

use super::address::Address;
use super::connect::Session;
use super::init::within;
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
            let mut session = Session::open(&address).await?;
            forget_over(&mut session, &address.schema, &names).await
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
            let sql = format!("SELECT {}.forget_fence($1, $2)", address.schema);
            let name = name.as_bytes();
            let row = session.row(&sql, &[(&name, Type::BYTEA), (&most, Type::INT8)]).await?;
            Ok(row.get(0))
        };
        let forgotten = within(&context, asking).await.and_then(|forgotten| forgotten);
        (address.label, forgotten)
    }))
}

/// The same over a connection that is there. Returns how many are held or wanted, and were not changed.
pub(super) async fn forget_over(
    session: &mut Session,
    schema: &str,
    names: &[Name],
) -> Result<i64, Failure> {
    let mut kept = 0;
    for some in names.chunks(AT_A_TIME) {
        let some: Vec<&[u8]> = some.iter().map(Name::as_bytes).collect();
        let sql = format!("SELECT {schema}.forget($1)");
        let row = session.row(&sql, &[(&some, Type::BYTEA_ARRAY)]).await?;
        kept += row.get::<_, i64>(0);
    }
    Ok(kept)
}
