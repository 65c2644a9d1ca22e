//! Which locks are held: the buckets one after another, some of their nodes at a time.

use futures_util::stream::{self, StreamExt as _};

use super::connection::LONG_AT_ONCE;
use super::keys::{BUCKETS, parse_name};
use super::record;
use super::store::{ZooKeeperStore, written_us};
use super::trouble::Trouble;
use super::wire::Request;
use crate::node::Listed;

/// So many locks are read for a page of a list, and at most so many buckets.
const LOCKS_PER_PAGE: usize = 256;
const BUCKETS_PER_PAGE: usize = 32;

impl ZooKeeperStore {
    /// Some of the locks of some buckets, from a position on, and where to go on.
    pub(super) async fn page(&self, from: &[u8]) -> Result<Listed, Trouble> {
        let connection = self.client.connection().await?;
        let (first, after) = parse_position(from);
        let last = (first + BUCKETS_PER_PAGE).min(BUCKETS);
        let keys = &self.client.keys;
        drop(connection.send(Request::sync(&keys.locks())));
        // A server may answer with more than there can be. So no more is kept than what the page is for.
        let mut lists = stream::iter(first..last)
            .map(|bucket| {
                let list = connection.children(&keys.bucket(bucket));
                async move { (bucket, list.await) }
            })
            .buffered(LONG_AT_ONCE);
        let mut children = Vec::new();
        while children.len() <= LOCKS_PER_PAGE
            && let Some((bucket, list)) = lists.next().await
        {
            let mut list = list?;
            list.sort_unstable();
            list.retain(|child| bucket > first || *child > after);
            let room = LOCKS_PER_PAGE + 1 - children.len();
            children.extend(list.into_iter().map(|child| (bucket, child)).take(room));
        }
        drop(lists);
        let is_all = children.len() <= LOCKS_PER_PAGE;
        children.truncate(LOCKS_PER_PAGE);
        let next = match children.last() {
            Some((bucket, child)) if !is_all => Some(format!("{bucket} {child}").into_bytes()),
            _ if last < BUCKETS => Some(format!("{last} ").into_bytes()),
            _ => None,
        };
        let mut reads = stream::iter(children)
            .map(|(bucket, child)| {
                let read = connection.data(&format!("{}/{child}", keys.bucket(bucket)));
                async move { (child, read.await) }
            })
            .buffered(LONG_AT_ONCE);
        let mut names = Vec::new();
        let now = self.runtime.now();
        while let Some((child, read)) = reads.next().await {
            let Some((data, stat)) = read? else { continue };
            let written_us = written_us(&stat);
            let Some((state, terms)) = record::decode(&data, written_us) else { continue };
            let found = self.found(0, state, &terms, written_us);
            if !found.as_it_seems(now).holds.is_empty() {
                names.extend(parse_name(&child));
            }
        }
        drop(reads);
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
