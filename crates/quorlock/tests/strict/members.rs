//! The set of nodes is something that all clients agree on: two lists that differ can have majorities without a
//! common node.

use std::time::Duration;

use quorlock::admin::{Changed, MemberChange, MemberState, Progress};
use quorlock::{Dialect, Error, Locker};
use quorlock_testkit::{DEADLINE, Proxy, RedisServer, eventually_async as eventually, test};

use crate::NAME;
use crate::world::{QUARANTINE, World, assert_both_hold, marker, text};

/// The name of a server in a set.
fn name(server: &RedisServer) -> String {
    server.addr().to_string()
}

async fn client_of(world: &World, urls: &[String]) -> Locker {
    world.builder().nodes(urls.to_vec()).connect().await.expect("servers that are up")
}

/// Two clients whose lists have a node in common, and majorities that have none.
async fn lists(dialect: Dialect, shared: usize) -> (World, [Vec<String>; 2]) {
    let world = World::with(dialect, |server| server).await;
    let first = world.urls();
    let mut second = first[..shared].to_vec();
    for _ in shared..3 {
        second.push(world.another_server());
    }
    (world, [first, second])
}

#[test]
async fn a_client_with_another_list_is_refused_and_told_both() {
    for shared in [1, 2] {
        let (world, [first, second]) = lists(Dialect::Strict, shared).await;
        let holder = client_of(&world, &first).await;
        let guard = holder.try_lock(NAME).await.expect("free");
        let other = client_of(&world, &second).await;
        // One that waits is not left to wait for what never comes.
        for error in [
            other.try_lock(NAME).await.expect_err("another list"),
            other.lock(NAME).await.expect_err("another list"),
        ] {
            assert!(matches!(error, Error::Misuse { .. }), "{error:?}");
            let names = |urls: &[String]| {
                let mut names: Vec<_> =
                    urls.iter().map(|url| url.trim_start_matches("redis://").to_owned()).collect();
                names.sort();
                names.join(", ")
            };
            for list in [&first, &second] {
                assert!(error.to_string().contains(&names(list)), "{error}");
            }
        }
        assert!(guard.is_held());
    }
}

/// What happens where nothing is done about it.
#[test]
async fn in_redlock_both_hold_it() {
    let (world, [first, second]) = lists(Dialect::Redlock, 1).await;
    let away = Proxy::in_front_of(world.servers[0].addr());
    let first = [away.url(), first[1].clone(), first[2].clone()];
    let second = [away.url(), second[1].clone(), second[2].clone()];
    let holder = client_of(&world, &first).await;
    let other = client_of(&world, &second).await;
    away.refuse(true);
    away.cut();
    world.reached_by(&holder, |reached| !reached[0]).await;
    let guard = holder.try_lock(NAME).await.expect("two of three");
    world.reached_by(&other, |reached| !reached[0]).await;
    assert_both_hold(&guard, other.try_lock(NAME).await);
}

/// The order of a list is of no meaning, nor is the address of a node that has a name.
#[test]
async fn the_same_nodes_are_the_same_set_however_they_are_listed() {
    let world = World::new(Dialect::Strict).await;
    let way = Proxy::in_front_of(world.servers[1].addr());
    let urls = [world.servers[2].url(), way.url(), world.servers[0].url()];
    let locker = client_of(&world, &urls).await;
    let guard = locker.try_lock(NAME).await.expect("free");
    guard.release().await.expect("released");
}

async fn change(world: &World, change: &MemberChange, gone: bool) -> Result<Changed, Error> {
    world.builder().nodes(world.urls()).admin().change_members(change, gone).await
}

/// The third server gives its place to another.
#[test]
async fn a_member_is_replaced_and_at_no_time_both_sets_vote() {
    let world = World::new(Dialect::Strict).await;
    let new = world.another_server();
    let replace = MemberChange::Replace { old: name(&world.servers[2]), new: new.clone() };
    let new_urls = [world.servers[0].url(), world.servers[1].url(), new];
    let holder = world.client().await;
    let guard = holder.try_lock(NAME).await.expect("free");

    let changed = change(&world, &replace, false).await.expect("all are up");
    assert!(matches!(changed.progress, Progress::Forming(_)), "{changed:?}");
    assert!(guard.is_held(), "it is valid until its end");
    let error = world.client().await.try_lock("other").await.expect_err("closed");
    let new_name = new_urls[2].trim_start_matches("redis://");
    assert!(matches!(error, Error::Misuse { .. }), "{error:?}");
    assert!(error.to_string().contains(new_name), "{error}");
    guard.extend().await.expect_err("no majority extends it");
    let successor = client_of(&world, &new_urls).await;
    let error = successor.try_lock("other").await.expect_err("too early");
    assert!(matches!(error, Error::Quarantined { .. }), "{error:?}");
    assert!(guard.is_held());

    world.pass(QUARANTINE);
    assert!(!guard.is_held());
    // The clients of the new set complete it by themselves.
    let taken = successor.lock(NAME).wait(DEADLINE).await.expect("the new set votes");
    assert!(taken.is_held());
    let changed = change(&world, &replace, false).await.expect("it is done");
    assert_eq!(changed.progress, Progress::Done);
    assert!(changed.report.nodes.iter().all(|node| matches!(node.state, MemberState::Votes)));
    let error = world.client().await.lock(NAME).await.expect_err("the old list");
    assert!(matches!(error, Error::Misuse { .. }), "{error:?}");
    assert!(taken.is_held());
}

/// Whatever was interrupted is completed by doing it again.
#[test]
async fn a_change_that_was_interrupted_is_safe_and_goes_on() {
    let world = World::new(Dialect::Strict).await;
    let new = world.another_server();
    let way = Proxy::in_front_of(new.trim_start_matches("redis://").parse().expect("an address"));
    let replace = MemberChange::Replace { old: name(&world.servers[2]), new: way.url() };
    way.refuse(true);
    let error = change(&world, &replace, false).await.expect_err("the new one is away");
    assert!(error.to_string().contains("nothing was changed"), "{error}");
    let guard = world.client().await.try_lock(NAME).await.expect("nothing was changed");
    guard.release().await.expect("released");

    // Its third member was closed, and then the command was killed.
    way.refuse(false);
    let changed = change(&world, &replace, false).await.expect("all are up");
    assert!(matches!(changed.progress, Progress::Forming(_)), "{changed:?}");
    world.servers[1].kill();
    world.pass(QUARANTINE);
    let changed = change(&world, &replace, false).await.expect("it had begun");
    assert_eq!(changed.progress, Progress::Interrupted);
    let urls = [world.servers[0].url(), world.servers[1].url(), way.url()];
    let successor = client_of(&world, &urls).await;
    successor.try_lock(NAME).await.expect_err("not without all of its members");
    world.client().await.try_lock(NAME).await.expect_err("closed");
    world.servers[1].restart();
    let changed = change(&world, &replace, false).await.expect("all are up");
    assert!(matches!(changed.progress, Progress::Forming(_)), "it had forgotten: {changed:?}");
    world.pass(QUARANTINE);
    let changed = change(&world, &replace, false).await.expect("all are up");
    assert_eq!(changed.progress, Progress::Done, "{changed:?}");
    drop(successor.lock(NAME).wait(DEADLINE).await.expect("the new set votes"));
}

#[test]
async fn a_member_that_is_gone_leaves_only_if_an_operator_says_so() {
    let world = World::new(Dialect::Strict).await;
    world.servers[2].kill();
    let remove = MemberChange::Remove(name(&world.servers[2]));
    let error = change(&world, &remove, false).await.expect_err("it may come back");
    assert!(error.to_string().contains("--gone"), "{error}");
    let changed = change(&world, &remove, true).await.expect("the others are up");
    assert!(matches!(changed.progress, Progress::Forming(_)), "{changed:?}");
    world.pass(QUARANTINE);
    let changed = change(&world, &remove, true).await.expect("the others are up");
    assert_eq!(changed.progress, Progress::Done, "{changed:?}");
}

/// Another change of the same set would have a majority of its own.
#[test]
async fn a_second_change_waits_for_the_first() {
    let world = World::new(Dialect::Strict).await;
    let add = MemberChange::Add(world.another_server());
    change(&world, &add, false).await.expect("all are up");
    let remove = MemberChange::Remove(name(&world.servers[0]));
    let error = change(&world, &remove, false).await.expect_err("another is under way");
    assert!(error.to_string().contains("complete the change that was begun"), "{error}");
}

/// A node that forgot cannot tell whether its set was replaced meanwhile: only a quorum knows.
#[test]
async fn fewer_than_a_quorum_take_nobody_back() {
    let world = World::with(Dialect::Strict, |server| server).await;
    let away = Proxy::in_front_of(world.servers[0].addr());
    away.refuse(true);
    let urls = [away.url(), world.servers[1].url(), world.servers[2].url()];
    for server in &world.servers[1..] {
        server.command(&["FLUSHALL"]);
    }
    let locker = client_of(&world, &urls).await;
    locker.try_lock(NAME).await.expect_err("they have forgotten");
    world.pass(QUARANTINE);
    locker.lock(NAME).wait(Duration::from_millis(500)).await.expect_err("the third is away");
    let votes = |server| marker(server).is_some_and(|marker| marker.starts_with("formed "));
    assert!(!world.servers[1..].iter().any(votes));
    away.refuse(false);
    let forms = |server| marker(server).is_some_and(|marker| marker.starts_with("forming "));
    eventually("the set forms again", async || world.servers[1..].iter().all(forms)).await;
    world.pass(QUARANTINE);
    drop(locker.lock(NAME).wait(DEADLINE).await.expect("all of them are there"));
}

#[test]
async fn the_set_is_shown() {
    let world = World::new(Dialect::Strict).await;
    world.servers[1].command(&["FLUSHALL"]);
    world.servers[2].kill();
    let report =
        world.builder().nodes(world.urls()).admin().members().await.expect("good settings");
    assert_eq!((report.voting(), report.needed, report.members.len()), (1, 2, 3));
    let states: Vec<_> = report.nodes.iter().map(|node| &node.state).collect();
    assert!(
        matches!(*states, [MemberState::Votes, MemberState::New, MemberState::Failed(_)]),
        "{report:?}"
    );
    assert_eq!(text(&world.servers[1], ":quorlock:set"), None, "a look changes nothing");
}
