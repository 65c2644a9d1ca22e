//! The check in the same transaction as the work.
//!
//! ```text
//!   A   lock ── paused ──────────────── begin ── check_in: lost ── rolled back
//!   B                     lock ── begin ── check_in ── … ── commit
//!   C                                           lock ── waits for B's commit ──▶
//! ```

use tokio_postgres::Transaction;
use tokio_postgres::types::Type;

use super::error::{rejected, unreachable};
use crate::node::{Failure, FailureKind};
use crate::{Error, Guard, Loss};

impl Guard {
    /// Has a transaction in the same database end before anybody else gets this lock, or fails if somebody has got it
    /// already.
    ///
    /// So a holder that was paused, and comes too late, cannot commit; and one that is in time need not fear that it is
    /// paused between this and its commit. Call it first in the transaction, or at any time before the commit. The holder can
    /// extend the lock and release it meanwhile; who wants it next waits for the end of the transaction, and is
    /// told so if that takes long.
    ///
    /// For lockers on one PostgreSQL node. The role of the transaction needs the same rights in the schema of the locks as one
    /// that locks.
    ///
    /// ```no_run
    /// # async fn f(locker: quorlock::Locker, mut client: tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let guard = locker.lock("orders").await?;
    /// let transaction = client.transaction().await?;
    /// guard.check_in(&transaction).await?;
    /// transaction.execute("UPDATE orders SET state = 'billed' WHERE state = 'open'", &[]).await?;
    /// transaction.commit().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Lost`] if the lock is another's by now, or if it does not lie in the database of the transaction: roll
    /// it back. [`Error::Node`] if the database cannot tell; the transaction is of no more use then. [`Error::Misuse`] if
    /// this locker has other nodes than one PostgreSQL database.
    ///
    /// # Cancel safety
    /// A transaction whose check was not answered must not be committed.
    pub async fn check_in(&self, transaction: &Transaction<'_>) -> Result<(), Error> {
        let claim = self.claim();
        let place = match &*claim.core.nodes {
            [node] => node.label().strip_prefix("postgres://"),
            _ => None,
        };
        let Some(place) = place else {
            return Err(Error::misuse(
                "a transaction checks in with a lock that does not lie in one PostgreSQL database alone",
                "use one postgres:// node, or let the transaction compare fences: docs/recipes/fencing.md",
            ));
        };
        let schema = place.split_once("?schema=").map_or("quorlock", |(_, schema)| schema);
        let sql = format!("SELECT {schema}.check_in($1, $2, $3)");
        let (name, token) = (claim.name.as_bytes(), claim.token.text().to_vec());
        let fence = i64::try_from(self.fence()).unwrap_or(i64::MAX);
        let arguments: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
            [(&name, Type::BYTEA), (&token, Type::BYTEA), (&fence, Type::INT8)];
        match transaction.query_typed(&sql, &arguments).await {
            Ok(rows) if rows.first().is_some_and(|row| row.get(0)) => Ok(()),
            Ok(_) => Err(Error::Lost { name: claim.name.clone(), reason: Loss::Gone }),
            Err(error) => {
                let failure = match error.as_db_error() {
                    Some(said) => rejected(said),
                    None => Failure::new(FailureKind::Broken, unreachable(&error).to_string()),
                };
                Err(Error::Node { node: format!("postgres://{place}"), failure })
            }
        }
    }
}
