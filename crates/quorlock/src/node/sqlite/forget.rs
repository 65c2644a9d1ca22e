//! Having a file forget locks.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{OptionalExtension, Transaction, TransactionBehavior, params};

use super::address::Address;
use super::boot;
use super::connect::OpenFile;
use super::error::{Trouble, busy};
use super::verbs::nanos;
use crate::Error;
use crate::admin::forget::Kept;
use crate::name::Name;
use crate::node::{Failure, NodeContext};
use crate::runtime::BoxFuture;

/// While another process writes.
pub(super) const PAUSE: Duration = Duration::from_millis(1);

const FORGET: &str = "
    DELETE FROM lock WHERE name = ?1 AND expires_ns <= ?2
    AND NOT EXISTS (SELECT 1 FROM ticket WHERE ticket.name = ?1)
    RETURNING number";
const KEPT: &str = "SELECT 1 FROM lock WHERE name = ?1";

pub(in crate::node) fn forget(
    index: usize,
    url: &str,
    context: &NodeContext,
    names: &Arc<[Name]>,
) -> Result<BoxFuture<'static, Kept>, Error> {
    let address = Address::parse(index, url)?;
    let (context, names) = (context.clone(), Arc::clone(names));
    Ok(Box::pin(async move {
        let kept = forget_at(&address, &context, &names).await;
        (address.label, kept)
    }))
}

/// The same, tried again while other processes write.
pub(super) async fn forget_at(
    address: &Address,
    context: &NodeContext,
    names: &[Name],
) -> Result<i64, Failure> {
    let (start, limit) = (context.runtime.now(), context.settings.connect_limit);
    loop {
        match forget_all(address, context, names) {
            Ok(kept) => return Ok(kept),
            Err(Trouble::Failed(failure)) => return Err(failure),
            Err(Trouble::Busy | Trouble::Closed) => {}
        }
        if context.runtime.now().since(start) >= limit {
            return Err(busy(limit));
        }
        context.runtime.sleep(PAUSE).await;
    }
}

/// Returns how many are held or wanted, and were not changed.
fn forget_all(address: &Address, context: &NodeContext, names: &[Name]) -> Result<i64, Trouble> {
    // A claim of its own: the file may be in use by a node of this process.
    let context = NodeContext { servers: Arc::default(), ..context.clone() };
    let file = OpenFile::open(address, &context)?;
    let all = Transaction::new_unchecked(&file.connection, TransactionBehavior::Immediate)?;
    let now = nanos(context.runtime.now());
    let mut kept = 0;
    for name in names {
        let mut forget = all.prepare_cached(FORGET)?;
        let fence = forget.query_row(params![name.as_bytes(), now], |row| row.get(0)).optional()?;
        if let Some(fence) = fence {
            boot::raise_floor(&all, fence)?;
        }
        kept += i64::from(all.prepare_cached(KEPT)?.exists([name.as_bytes()])?);
    }
    all.commit()?;
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::super::verbs::tests::read_no_more_than_they_need;
    use super::super::{queue, verbs};
    use super::*;

    #[test]
    fn no_name_is_looked_for_in_all_of_the_file() {
        let schema = format!("{}{}", verbs::SCHEMA, queue::SCHEMA);
        read_no_more_than_they_need(&schema, &[FORGET, KEPT]);
    }
}
