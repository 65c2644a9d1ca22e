//! What is seen to on a server while a connection lasts: old locks are cleared away, and how the server is
//! set up is looked at again, as at the greeting.
//!
//! All of it is one script, `dialect/lua/tend.lua`, which every client sends now and then and nobody waits for.

use std::sync::Arc;
use std::time::Duration;

use super::connect::{check_role, evicts, field, refuse_eviction};
use super::resp::Value;
use crate::name::Name;
use crate::node::{Answer, Call, Failure, Request, Round, Verb};
use crate::runtime::Moment;

/// A client tends a server so often, or up to twice as often, by chance.
const EVERY: Duration = Duration::from_secs(10);
/// So often while there is much to clear away.
const SOON: Duration = Duration::from_millis(200);

/// What the last reply said.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tended {
    /// Whether the next step should come soon.
    more: bool,
    /// How many keys the server has thrown away.
    evicted: u64,
}

impl Tended {
    /// Of a server that has been greeted, by its `INFO`.
    pub(super) fn greeted(info: &str) -> Self {
        Self { more: false, evicted: evicted(info) }
    }

    /// The same for a start of a server that was connected to before: what it has thrown away since then
    /// counts, whether or not anybody was there.
    pub(super) fn since(self, before: &Self) -> Self {
        Self { more: false, evicted: before.evicted.min(self.evicted) }
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// When to tend the server again.
    pub(super) fn rest(&self, random: u64) -> Duration {
        let longest = if self.more { SOON } else { EVERY };
        longest / 2 + (longest / 2).mul_f64((random >> 11) as f64 / (1u64 << 53) as f64)
    }

    /// Takes a reply in. Where servers have markers, `voter` is how that of a server begins that votes, or will by
    /// itself. Returns whether this one is such a server, as far as it is known. Fails if it cannot be a node any
    /// longer.
    pub(super) fn take_in(
        &mut self,
        node: &str,
        voter: Option<&[u8]>,
        reply: &Value<'_>,
    ) -> Result<bool, Failure> {
        // A user who may not do so leaves it to others: most likely it is an error.
        let Value::Array(parts) = reply else { return Ok(true) };
        let [Value::Int(more), Value::Bulk(info), Value::Bulk(marker)] = parts.as_slice() else {
            return Ok(true);
        };
        self.more = *more == 1;
        let info = String::from_utf8_lossy(info);
        let Some(role) = field(&info, "role") else { return Ok(true) };
        let strict = voter.is_some();
        let before = std::mem::replace(&mut self.evicted, evicted(&info));
        if self.evicted > before {
            let count = self.evicted - before;
            let so = if strict { "casts no vote for a while" } else { "may have lost locks" };
            tracing::warn!(node, "has thrown away {count} keys for want of memory, and {so}");
        }
        check_role(role)?;
        if let Some(voter) = voter {
            refuse_eviction(&info)?;
            return Ok(marker.starts_with(voter));
        }
        if let Some(policy) = evicts(&info).filter(|_| self.evicted > before) {
            tracing::warn!(node, "its maxmemory-policy is {policy}: set noeviction");
        }
        Ok(true)
    }
}

fn evicted(info: &str) -> u64 {
    field(info, "evicted_keys").and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Stands in the queue of calls, and is told nothing.
struct Nobody {
    name: Name,
    sent: Moment,
}

/// A call in whose place a server is tended; `None` never, since there is a name.
pub(super) fn call(sent: Moment) -> Option<Call> {
    let name = Name::new("-").ok()?;
    Some(Call::new(Arc::new(Nobody { name, sent }), 0))
}

impl Round for Nobody {
    fn request(&self, _node: usize) -> Request<'_> {
        Request { name: &self.name, sent: self.sent, wall_us: 0, verb: Verb::Inspect }
    }

    fn cast(self: Arc<Self>, _node: usize, _answer: Answer) {}

    fn overdue(self: Arc<Self>, _node: usize, _why: Failure) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::FailureKind;

    const VOTER: &[u8] = b"formed ab ";

    fn take(tended: &mut Tended, more: i64, info: &str) -> Result<bool, Failure> {
        take_marked(tended, more, info, b"formed ab 0123")
    }

    fn take_marked(
        tended: &mut Tended,
        more: i64,
        info: &str,
        marker: &[u8],
    ) -> Result<bool, Failure> {
        let parts = vec![Value::Int(more), Value::Bulk(info.as_bytes()), Value::Bulk(marker)];
        tended.take_in("here", Some(VOTER), &Value::Array(parts))
    }

    #[test]
    fn a_server_that_was_emptied_is_found_by_who_asks_for_nothing() {
        let mut tended = Tended::default();
        assert!(take(&mut tended, 0, "role:master\n").unwrap());
        assert!(!take_marked(&mut tended, 0, "role:master\n", b"").unwrap());
        assert!(!take_marked(&mut tended, 0, "role:master\n", b"formed cd 0123").unwrap());
        assert!(take_marked(&mut tended, 0, "", b"").unwrap(), "it was not asked");
    }

    #[test]
    fn a_server_that_could_not_be_greeted_any_more_is_refused() {
        let greeted = |evicted| Tended::greeted(&format!("# Stats\r\nevicted_keys:{evicted}\r\n"));
        assert_eq!(greeted(7).since(&greeted(3)).evicted(), 3);
        assert_eq!(greeted(0).since(&greeted(3)).evicted(), 0, "the count was set back");
        let mut tended = greeted(3);
        assert_eq!(tended.evicted(), 3);
        let sound = "maxmemory:9\nmaxmemory_policy:noeviction\nevicted_keys:3\nrole:master\n";
        take(&mut tended, 0, sound).expect("it is as it was");
        take(&mut tended, 0, "").expect("nothing was asked");
        let replica = take(&mut tended, 0, &sound.replace("master", "slave")).unwrap_err();
        assert!(replica.kind() == FailureKind::Unfit && replica.to_string().contains("is a slave"));
        let evicts = take(&mut tended, 0, &sound.replace("noeviction", "volatile-lru"));
        assert!(evicts.unwrap_err().to_string().contains("volatile-lru"));
        take(&mut tended, 0, &sound.replace("keys:3", "keys:8")).expect("it is over");
        assert_eq!(tended.evicted(), 8);
        let denied = Value::Error(b"NOPERM");
        tended.take_in("here", Some(VOTER), &denied).expect("others do so");
    }

    #[test]
    fn the_next_step_comes_soon_while_there_is_much_to_do() {
        let mut tended = Tended::default();
        assert_eq!((tended.rest(0), tended.rest(u64::MAX) > EVERY * 9 / 10), (EVERY / 2, true));
        take(&mut tended, 1, "").unwrap();
        assert!(tended.rest(u64::MAX) <= SOON);
        take(&mut tended, 0, "").unwrap();
        assert_eq!(tended.rest(0), EVERY / 2);
    }
}
