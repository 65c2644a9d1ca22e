//! Users without the rights that locks need are told which.

use quorlock::Dialect;
use quorlock_testkit::{RedisServer, Reply, test};

use crate::world::World;
use crate::{BOTH, NAME};

fn url_of_user(server: &RedisServer, rights: &[&str]) -> String {
    let mut command = vec!["ACL", "SETUSER", "alice", "reset", "on", ">wonderland"];
    command.extend(rights);
    assert_eq!(server.command(&command), Reply::Simple("OK".into()));
    format!("redis://alice:wonderland@{}", server.addr())
}

#[test]
async fn without_scripts_there_is_no_connection() {
    for dialect in BOTH {
        let world = World::new(dialect).await;
        let url = url_of_user(&world.servers[0], &["~*", "&*", "+@all", "-@scripting"]);
        let error = world.builder().nodes([url]).connect().await.expect_err("no scripts");
        let text = error.to_string();
        assert!(text.contains("give the user these rights"), "{text}");
        assert!(text.contains("+eval +evalsha +script|load"), "{text}");
        assert!(!text.contains("wonderland"), "{text}");
    }
}

/// The keys of the locks are not all that the dialect needs.
#[test]
async fn without_the_mark_of_the_server_there_is_no_lock() {
    let world = World::unused(Dialect::Strict, |server| server);
    let builder = || world.builder().redis(world.options().trust_new_nodes(true));
    let keys = format!("~{NAME}*");
    let url = url_of_user(&world.servers[0], &[&keys, "&*", "+@all"]);
    let locker = builder().nodes([&url]).connect().await.expect("a server that is up");
    let error = locker.try_lock(NAME).await.expect_err("not its key").to_string();
    assert!(error.contains("~PREFIX:quorlock:set"), "{error}");
    let url = url_of_user(&world.servers[0], &[&keys, "~:quorlock:set", "&*", "+@all"]);
    let locker = builder().nodes([&url]).connect().await.expect("a server that is up");
    locker.try_lock(NAME).await.expect("all its rights").release().await.expect("released");
}
