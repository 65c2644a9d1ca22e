//! A lock that two processes share, and servers whose clocks are wrong when one of them lets go of it.

use quorlock::{Dialect, Error, Owner};
use quorlock_testkit::test;

use crate::NAME;
use crate::world::World;

/// By such a clock everybody is over.
#[test]
async fn a_participant_is_not_over_by_a_clock_that_is_ahead() {
    for maker_first in [true, false] {
        let world = World::new(Dialect::Strict).await;
        let (maker, other, stranger) =
            (world.client().await, world.client().await, world.client().await);
        for locker in [&maker, &other, &stranger] {
            world.all_reached_by(locker).await;
        }
        let owner = maker.new_owner();
        let outer = maker.try_lock(NAME).owner(&owner).fixed().await.expect("free");
        let owner = Owner::from_id(&owner.id()).expect("an id");
        let inner = other.try_lock(NAME).owner(&owner).fixed().await.expect("held for the owner");
        let (first, last) = if maker_first { (outer, inner) } else { (inner, outer) };
        world.servers.iter().for_each(|server| server.clock().jump_ms(3_600_000));
        assert!(first.release().await.expect("released").is_still_held());
        world.servers.iter().for_each(|server| server.clock().jump_ms(-3_600_000));
        let error = stranger.try_lock(NAME).await.expect_err("the other one holds it");
        assert!(matches!(error, Error::Taken { .. }) && last.is_held(), "{error}");
        last.extend().await.expect("it is held");
        assert!(last.release().await.expect("released").is_freed());
        drop(stranger.try_lock(NAME).await.expect("free"));
    }
}
