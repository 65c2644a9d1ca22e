//! Deleting locks that nobody has used for a day. After that the time of day alone makes every new fence higher.
//!
//! Whoever creates a lock looks, now and then, at some others of the same bucket: so there are never many more than are
//! used in a day, and a client that creates none does nothing.

use std::sync::Arc;
use std::time::Duration;

use super::connection::Connection;
use super::keys::{bucket_of, parse_name};
use super::record;
use super::store::{Version, ZooKeeperStore, written_us};
use super::trouble::Trouble;
use crate::name::Name;
use crate::runtime::wall_us;

/// A lock is kept so long after its last use.
const KEPT: Duration = Duration::from_secs(26 * 3_600);
/// One in so many creations looks at so many locks.
const SELDOM: usize = 8;
const LOOKED_AT: usize = 64;

impl ZooKeeperStore {
    /// A lock was created: perhaps others have to go. Goes on in the background.
    pub(super) fn sweep_beside(self: &Arc<Self>, name: &Name) {
        if self.random_below(SELDOM) > 0 {
            return;
        }
        let (store, bucket) = (Arc::clone(self), bucket_of(name));
        self.runtime.spawn(Box::pin(async move {
            // What is left over is found another time.
            let _ = store.sweep(bucket, KEPT).await;
        }));
    }

    /// Deletes some locks of a bucket that nobody has used for so long. Returns how many were looked at.
    pub(super) async fn sweep(&self, bucket: usize, kept: Duration) -> Result<usize, Trouble> {
        let connection = self.client.connection().await?;
        let path = self.client.keys.bucket(bucket);
        let mut children = connection.children(&path).await?;
        if children.len() > LOOKED_AT {
            let first = self.random_below(children.len());
            children.rotate_left(first);
            children.truncate(LOOKED_AT);
        }
        let stats: Vec<_> =
            children.iter().map(|child| connection.stat(&format!("{path}/{child}"))).collect();
        let old_us = old_us(wall_us(&*self.runtime), kept);
        for (child, stat) in children.iter().zip(stats) {
            let Some(stat) = stat.await? else { continue };
            if let Some(name) = parse_name(child).filter(|_| written_us(&stat) < old_us) {
                self.forget_old(&connection, &name, stat.version, old_us).await?;
            }
        }
        Ok(children.len())
    }

    /// Deletes a lock that nobody has written since this version. Those who waited then have gone long ago.
    ///
    /// When it was written is the word of a leader, whose clock may have been far behind. A fence that is as old says the
    /// same by the clocks of those who took the lock.
    async fn forget_old(
        &self,
        connection: &Connection,
        name: &Name,
        version: i32,
        old_us: u64,
    ) -> Result<(), Trouble> {
        let Some((data, stat)) = connection.data(&self.client.keys.lock(name)).await? else {
            return Ok(());
        };
        if stat.version != version || record::last_fence(&data) >= old_us {
            return Ok(());
        }
        let found = self.read_on(connection, name, false).await?;
        if Version::unpack(found.version).own != Some(version) {
            return Ok(());
        }
        if let Some(found) = self.judged(name, found).await?.filter(|it| it.holds.is_empty()) {
            // If another client was faster, it is in use.
            self.delete(name, &found).await?;
        }
        Ok(())
    }
}

/// What is older than this may be forgotten.
fn old_us(now_us: u64, kept: Duration) -> u64 {
    now_us.saturating_sub(u64::try_from(kept.as_micros()).unwrap_or(u64::MAX))
}
