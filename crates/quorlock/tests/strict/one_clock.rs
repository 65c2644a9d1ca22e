//! The clock of one server of three: two seconds ahead, two behind, a tenth too fast. Clients have the
//! settings that they have by default.
//!
//! All clocks stand still but for what is done by hand, so that no machine is too slow for a second.

use std::time::Duration;

use quorlock::node::FailureKind;
use quorlock::{Builder, Dialect, Drift, Error, Guard, Locker, RedisOptions};
use quorlock_testkit::{DEADLINE, Proxy, RedisServer, test};

use crate::world::{World, assert_both_hold};
use crate::{BOTH, NAME};

/// The one whose clock it is. The first client holds the lock there and on the server before it; to the
/// second client, it makes a majority with the one after it.
const MOVED: usize = 1;

struct Stage {
    world: World,
    drift: Option<Drift>,
    /// The way of the first client to the third server, which is closed.
    away: Proxy,
}

impl Stage {
    async fn new(dialect: Dialect) -> Self {
        let world = World::unused(dialect, |server| server);
        world.stop_clocks();
        let away = Proxy::in_front_of(world.servers[2].addr());
        away.refuse(true);
        let stage = Self { world, drift: None, away };
        stage.world.mark(stage.builder(), stage.options()).await;
        // Nobody looks at when the servers were new.
        stage.world.pass(Duration::from_secs(60));
        stage
    }

    fn options(&self) -> RedisOptions {
        RedisOptions::default().dialect(self.world.dialect)
    }

    fn builder(&self) -> Builder {
        let builder = Locker::builder()
            .redis(self.options())
            .connect_limit(DEADLINE)
            .runtime(self.world.time());
        match self.drift {
            Some(drift) => builder.drift(drift),
            None => builder,
        }
    }

    /// The first client.
    async fn first(&self) -> Locker {
        let urls = self.world.servers[..2].iter().map(RedisServer::url);
        let builder = self.builder().nodes(urls.chain([self.away.url()]));
        let locker = builder.connect().await.expect("two of three");
        self.world.reached_by(&locker, |reached| reached == [true, true, false]).await;
        locker
    }

    /// Another client asks for the lock. If it does not get it, nothing of it is left.
    async fn another(&self) -> Result<Guard, Error> {
        let locker = self.builder().nodes(self.world.urls()).connect().await.expect("all three");
        self.world.all_reached_by(&locker).await;
        let taken = locker.try_lock(NAME).await;
        if taken.is_err() {
            locker.shutdown().await;
        }
        taken
    }

    /// Asserts that the one server refuses the holder for its clock.
    fn assert_refused(&self, error: &Error, says: &str) {
        let Error::NoQuorum { answers, .. } = error else { panic!("{error:?}") };
        let url = self.world.servers[MOVED].url();
        let answer = answers.0.iter().find(|answer| answer.node == url).expect("by its name");
        let failure = answer.failure.as_ref().expect("a reason");
        assert_eq!(failure.kind(), FailureKind::Clock, "{failure}");
        assert!(failure.to_string().contains(says), "{failure}");
    }
}

/// Its record seems to have ended with a second and a half to go.
#[test]
async fn two_seconds_ahead() {
    for dialect in BOTH {
        let stage = Stage::new(dialect).await;
        let first = stage.first().await.try_lock(NAME).fixed().await.expect("free");
        stage.world.pass(Duration::from_millis(8_500));
        stage.another().await.expect_err("it is held");
        stage.world.servers[MOVED].clock().jump_ms(2_000);
        let second = stage.another().await;
        if dialect == Dialect::Redlock {
            assert_both_hold(&first, second);
            continue;
        }
        second.expect_err("no majority");
        assert!(first.is_held(), "all the while");
        let error = first.extend().await.expect_err("one of three");
        stage.assert_refused(&error, "its clock is 2.0s ahead of this machine's");
    }
}

/// It is behind when the lock is granted, and then set right: what it granted ends two seconds early.
#[test]
async fn two_seconds_behind() {
    for dialect in BOTH {
        let stage = Stage::new(dialect).await;
        let client = stage.first().await;
        let clock = stage.world.servers[MOVED].clock();
        clock.jump_ms(-2_000);
        let early = client.try_lock(NAME).fixed().await;
        clock.jump_ms(2_000);
        let first = if dialect == Dialect::Redlock {
            early.expect("free")
        } else {
            let error = early.expect_err("one of three");
            stage.assert_refused(&error, "its clock is 2.0s behind this machine's");
            client.try_lock(NAME).fixed().await.expect("free, and all clocks are right")
        };
        stage.world.pass(Duration::from_millis(8_500));
        let second = stage.another().await;
        if dialect == Dialect::Redlock {
            assert_both_hold(&first, second);
        } else {
            second.expect_err("no majority");
            assert!(first.is_held(), "all the while");
        }
    }
}

/// It gains a tenth of a second in each. At 9.3 seconds it shows 10.23 of a lease of ten.
#[test]
async fn a_tenth_too_fast() {
    // What strict takes off for clocks that run apart, and too little for a tenth.
    let little = Drift { base: Duration::from_millis(2), per_mille: 10 };
    for (dialect, drift) in [
        (Dialect::Strict, None),
        (Dialect::Redlock, Some(little)),
        // A tenth, by default.
        (Dialect::Redlock, None),
    ] {
        let mut stage = Stage::new(dialect).await;
        stage.drift = drift;
        let first = stage.first().await.try_lock(NAME).fixed().await.expect("free");
        for step_ms in [1_000; 9].into_iter().chain([300]) {
            if first.is_held() {
                stage.another().await.expect_err("it is held");
            }
            stage.world.pass(Duration::from_millis(step_ms));
            let gained_ms = step_ms / 10;
            stage.world.servers[MOVED].clock().jump_ms(gained_ms.cast_signed());
        }
        let second = stage.another().await;
        match (dialect, drift) {
            (Dialect::Redlock, Some(_)) => assert_both_hold(&first, second),
            (Dialect::Redlock, None) => {
                assert!(second.is_ok(), "its record has ended: {second:?}");
                assert!(!first.is_held(), "it has stopped to believe in it before");
            }
            _ => {
                second.expect_err("no majority");
                assert!(first.is_held(), "all the while");
                let error = first.extend().await.expect_err("one of three");
                stage.assert_refused(&error, "ms ahead of this machine's");
            }
        }
    }
}
