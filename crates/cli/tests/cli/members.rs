//! `quorlock nodes`: the set of nodes, as it is shown, refused and changed.

use std::process::Command;

use quorlock_testkit::{RedisServer, test};
use serde_json::Value;

use crate::nodes::{Nodes, quorlock};
use crate::process::{Outcome, outcome};

/// The program under test with some of the servers. It trusts no server by itself, and waits as short as it can.
fn on(servers: &[&RedisServer], args: &[&str]) -> Command {
    let urls: Vec<_> = servers.iter().map(|server| server.url()).collect();
    let mut command = quorlock();
    command.env("QUORLOCK_NODES", urls.join(",")).env_remove("QUORLOCK_TRUST_NEW_NODES");
    command.env("QUORLOCK_MAX_TTL", "1s").env("QUORLOCK_NODE_LIMIT", "200ms").args(args);
    command
}

fn done(servers: &[&RedisServer], args: &[&str]) -> Outcome {
    let run = outcome(&mut on(servers, args));
    assert_eq!(run.code, Some(0), "{args:?}: {run:?}");
    run
}

fn name(server: &RedisServer) -> String {
    server.addr().to_string()
}

const TRY: [&str; 5] = ["run", "-n", "x", "--", "true"];

#[test]
fn a_client_with_another_list_is_refused_with_both() {
    let Nodes(servers) = Nodes::start(5);
    let [a, b, c, d, e] = &servers[..] else { panic!("five") };
    done(&[a, b, c], &["init", "--yes"]);
    for others in [[a, b, d], [c, d, e]] {
        // One that waits is refused as well.
        for args in [&TRY[..], &["run", "x", "--", "true"]] {
            let run = outcome(&mut on(&others, args));
            assert_eq!((run.code, run.stdout.as_str()), (Some(78), ""), "{run:?}");
            for server in [a, b, c].into_iter().chain(others) {
                assert!(run.stderr.contains(&name(server)), "{run:?}");
            }
            assert!(run.stderr.contains("quorlock nodes"), "{run:?}");
        }
        // A client that only looks is not told to wait, nor to mark them as new.
        for look in [&["status", "x"][..], &["list"]] {
            let look = outcome(&mut on(&others, look));
            assert_eq!((look.code, look.stdout.as_str()), (Some(78), ""), "{look:?}");
            assert!(look.stderr.contains("belongs to the set of nodes"), "{look:?}");
            assert!(!look.stderr.contains("quorlock init"), "{look:?}");
        }
        let doctor = outcome(&mut on(&others, &["doctor"]));
        assert!(doctor.stdout.contains("belongs to the set of nodes"), "{doctor:?}");
    }
    done(&[c, a, b], &TRY);
    let mut other_ttl = on(&[a, b, c], &["status", "x"]);
    let status = outcome(other_ttl.env("QUORLOCK_MAX_TTL", "2s"));
    assert_eq!(status.code, Some(78), "{status:?}");
    assert!(status.stderr.contains("max_ttl"), "{status:?}");
}

#[test]
fn the_set_is_shown() {
    let Nodes(servers) = Nodes::start(3);
    let [a, b, c] = &servers[..] else { panic!("three") };
    let new = outcome(&mut on(&[a, b, c], &["nodes"]));
    assert_eq!(new.code, Some(69), "{new:?}");
    assert_eq!(new.stdout.matches("is new or was emptied").count(), 3, "{new:?}");
    done(&[a, b, c], &["init", "--yes"]);
    let shown = done(&[a, b, c], &["nodes"]);
    assert_eq!(shown.stdout.lines().last(), Some("3 of 3 vote, 2 are needed"), "{shown:?}");
    c.kill();
    let json = done(&[a, b, c], &["nodes", "--json"]);
    let shown: Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!((&shown["voting"], &shown["needed"]), (&2.into(), &2.into()), "{shown}");
    let states: Vec<_> = shown["nodes"].as_array().expect("nodes").iter().collect();
    assert_eq!((&states[0]["state"], &states[0]["name"]), (&"votes".into(), &name(a).into()));
    assert_eq!(states[2]["state"], "failed", "{shown}");
}

#[test]
fn a_member_is_replaced() {
    let Nodes(servers) = Nodes::start(4);
    let [a, b, c, d] = &servers[..] else { panic!("four") };
    done(&[a, b, c], &["init", "--yes"]);
    let change = ["nodes", "replace", &c.url(), &d.url()].map(str::to_owned);
    let change: Vec<&str> = change.iter().map(String::as_str).collect();
    let unsure = outcome(&mut on(&[a, b, c], &change));
    assert_eq!(unsure.code, Some(78), "{unsure:?}");
    assert!(unsure.stderr.contains("--yes"), "{unsure:?}");
    done(&[a, b, c], &TRY);

    let with_yes = [&change[..], &["--yes"]].concat();
    let changed = done(&[a, b, c], &with_yes);
    assert!(changed.stdout.contains("give all clients the new list of nodes"), "{changed:?}");
    done(&[a, b, d], &TRY);
    let old = outcome(&mut on(&[a, b, c], &TRY));
    assert_eq!(old.code, Some(78), "{old:?}");
    assert!(old.stderr.contains(&name(d)), "{old:?}");
    // Doing it again changes nothing.
    done(&[a, b, c], &with_yes);
}

#[test]
fn a_change_that_cannot_be_is_refused_and_changes_nothing() {
    let Nodes(servers) = Nodes::start(3);
    let [a, b, c] = &servers[..] else { panic!("three") };
    done(&[a, b], &["init", "--yes"]);
    for (args, says) in [
        (["remove", &c.url(), "--yes"], "is not a member of the set"),
        (["add", &a.url(), "--yes"], "is a member of the set already"),
        (["remove", "--yes", "redis://:hunter2@elsewhere"], "elsewhere:6379 is not a member"),
    ] {
        let run = outcome(&mut on(&[a, b], &[&["nodes"], &args[..]].concat()));
        assert_eq!(run.code, Some(78), "{run:?}");
        assert!(run.stderr.contains(says) && !run.stderr.contains("hunter2"), "{run:?}");
    }
    c.kill();
    let run = outcome(&mut on(&[a, b], &["nodes", "add", &c.url(), "--yes"]));
    assert_eq!(run.code, Some(78), "{run:?}");
    assert!(run.stderr.contains("nothing was changed"), "{run:?}");
    done(&[a, b], &TRY);
    let file = outcome(
        quorlock().args(["nodes", "add", "redis://a", "--yes"]).args(["--node", "sqlite:/tmp/x"]),
    );
    assert_eq!(file.code, Some(78), "{file:?}");
}
