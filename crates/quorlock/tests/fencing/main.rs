//! A client is paused while it holds a lock, and writes when another one has it: what becomes of the
//! write, with each check of `docs/recipes/fencing.md` and without it.

mod database;
mod http;
mod page;
mod processes;
mod redis;
mod value;

use std::time::Duration;

use quorlock::Locker;
use quorlock_testkit::StillWorld;

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(60);

/// What a lock protects: a number, which is one once the first holder has written it.
trait Store {
    /// A holder writes; whether the store took it. A store that checks nothing has no use for the
    /// fence.
    fn write(&self, fence: u64, value: i64) -> bool;

    fn read(&self) -> i64;
}

/// What became of a write that came too late.
#[derive(Debug, PartialEq, Eq)]
struct Late {
    is_taken: bool,
    /// What the store has after it.
    value: i64,
}

const REFUSED: Late = Late { is_taken: false, value: 2 };
/// The work of the second holder is lost.
const GOT_THROUGH: Late = Late { is_taken: true, value: 3 };

/// The first holder does not look at its guard between its last write and the end of its pause: it
/// cannot, and with `fixed` nobody extends the lock for it meanwhile.
async fn late_write(store: &impl Store, first: &Locker, second: &Locker) -> Late {
    let early = first.lock("account/42").fixed().await.expect("free");
    assert!(store.write(early.fence(), 1));
    let late = second.lock("account/42").wait(LONG).await.expect("when the lease has ended");
    assert!(store.write(late.fence(), 2));

    let is_taken = store.write(early.fence(), 3);
    let outcome = Late { is_taken, value: store.read() };

    assert!(!early.is_held(), "it learns of its loss when it looks");
    assert!(store.write(late.fence(), 4), "the holder may write again");
    assert_eq!(store.read(), 4);
    outcome
}

/// The same with nodes in memory, where leases end in no time. For tests with a paused clock.
async fn late_write_in_still_world(store: &impl Store) -> Late {
    let world = StillWorld::new();
    late_write(store, &world.locker().await, &world.locker().await).await
}
