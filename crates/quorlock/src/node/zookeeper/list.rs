//! Which locks are held: the buckets one after another, some of their nodes at a time.

use super::keys::{BUCKETS, parse_name};
use super::record;
use super::store::{ZooKeeperStore, written_us};
use super::trouble::Trouble;
use super::wire::Request;
use crate::node::Listed;

/// So many locks are read at once for a list, and as many buckets.
const READ_AT_ONCE: usize = 256;
const BUCKETS_AT_ONCE: usize = 32;

impl ZooKeeperStore {
    /// Some of the locks of some buckets, from a position on, and where to go on.
    pub(super) async fn page(&self, from: &[u8]) -> Result<Listed, Trouble> {
        let connection = self.client.connection().await?;
        let (first, after) = parse_position(from);
        let last = (first + BUCKETS_AT_ONCE).min(BUCKETS);
        let keys = &self.client.keys;
        drop(connection.send(Request::sync(&keys.locks())));
        let lists: Vec<_> = (first..last)
            .map(|bucket| (bucket, connection.children(&keys.bucket(bucket))))
            .collect();
        let mut children = Vec::new();
        for (bucket, list) in lists {
            let mut list = list.await?;
            list.sort_unstable();
            list.retain(|child| bucket > first || *child > after);
            children.extend(list.into_iter().map(|child| (bucket, child)));
        }
        let is_all = children.len() <= READ_AT_ONCE;
        children.truncate(READ_AT_ONCE);
        let next = match children.last() {
            Some((bucket, child)) if !is_all => Some(format!("{bucket} {child}").into_bytes()),
            _ if last < BUCKETS => Some(format!("{last} ").into_bytes()),
            _ => None,
        };
        let reads: Vec<_> = children
            .iter()
            .map(|(bucket, child)| connection.data(&format!("{}/{child}", keys.bucket(*bucket))))
            .collect();
        let mut names = Vec::new();
        let now = self.runtime.now();
        for ((_, child), read) in children.iter().zip(reads) {
            let Some((data, stat)) = read.await? else { continue };
            let written_us = written_us(&stat);
            let Some((state, terms)) = record::decode(&data, written_us) else { continue };
            let found = self.found(0, state, &terms, written_us);
            if !found.as_it_seems(now).holds.is_empty() {
                names.extend(parse_name(child));
            }
        }
        Ok(Listed { names, next })
    }
}

/// From which bucket a list goes on, and behind which of its children.
fn parse_position(from: &[u8]) -> (usize, String) {
    let text = String::from_utf8_lossy(from);
    let (bucket, child) = text.split_once(' ').unwrap_or(("0", ""));
    (bucket.parse().unwrap_or(0).min(BUCKETS), child.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_goes_on_where_it_left_off() {
        assert_eq!(parse_position(b""), (0, String::new()));
        assert_eq!(parse_position(b"32 "), (32, String::new()));
        assert_eq!(parse_position(b"255 a%20b"), (255, "a%20b".to_owned()));
        assert_eq!(parse_position(b"x y"), (0, "y".to_owned()));
    }
}
