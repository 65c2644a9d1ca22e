//! The users in `docs/operations/rights.md`, as they are written there: they can do everything with their
//! own locks, and nothing with those of others.

use std::process::Command;

use quorlock_testkit::{RedisServer, Reply, eventually, test};

use serde_json::Value;

use crate::nodes::quorlock;
use crate::operations::blocks;
use crate::process::{Running, outcome};

const DIALECTS: [&str; 2] = ["strict", "redlock"];

/// Gives the server the user of the page, by this name and with this prefix.
fn admit(server: &RedisServer, user: &str, more: &str) {
    let block = &blocks("rights.md", "redis")[0];
    let rule = format!("{} {more}", block.replace("app", user));
    let rule: Vec<_> = rule.split_whitespace().collect();
    assert_eq!(server.command(&rule), Reply::Simple("OK".into()), "{rule:?}");
}

fn by(user: &str, server: &RedisServer, dialect: &str, subcommand: &str) -> Command {
    let mut command = quorlock();
    command.env("QUORLOCK_NODES", format!("redis://{user}:a-password@{}", server.addr()));
    command.env("QUORLOCK_PREFIX", format!("{user}:")).env("QUORLOCK_DIALECT", dialect);
    command.arg(subcommand);
    command
}

fn inboxes(server: &RedisServer) -> Vec<String> {
    match server.command(&["PUBSUB", "CHANNELS", "*"]) {
        Reply::Array(channels) => channels
            .into_iter()
            .map(|channel| match channel {
                Reply::Bulk(Some(channel)) => String::from_utf8(channel).expect("text"),
                other => panic!("{other:?}"),
            })
            .collect(),
        other => panic!("{other:?}"),
    }
}

fn nothing_was_denied(server: &RedisServer) {
    assert_eq!(server.command(&["ACL", "LOG"]), Reply::Array(vec![]), "a right is missing");
}

#[test]
fn the_user_of_the_page_can_do_everything_with_its_locks() {
    for dialect in DIALECTS {
        let server = RedisServer::start();
        admit(&server, "app", "");
        server.command(&["ACL", "LOG", "RESET"]);
        let app = |subcommand| by("app", &server, dialect, subcommand);
        if dialect == "strict" {
            let init = outcome(app("init").arg("--yes"));
            assert_eq!(init.code, Some(0), "{init:?}");
        }
        let first = outcome(app("acquire").args(["--ttl", "25s", "nightly"]));
        assert_eq!(first.code, Some(0), "{first:?}");
        let waiter = Running::start(app("run").args(["nightly", "--", "echo", "my turn"]));
        eventually("it waits", || {
            server.command(&["ZCARD", "app:nightly:quorlock:queue"]) == Reply::Int(1)
        });
        let status = outcome(app("status").arg("nightly"));
        assert!(status.stdout.contains("is held by"), "{status:?}");
        let list = outcome(&mut app("list"));
        assert!(list.code == Some(0) && list.stdout.contains("nightly"), "{list:?}");
        let extended =
            outcome(app("extend").arg("nightly").env("QUORLOCK_TOKEN", first.stdout.trim()));
        assert_eq!(extended.code, Some(0), "{extended:?}");
        let released =
            outcome(app("release").arg("nightly").env("QUORLOCK_TOKEN", first.stdout.trim()));
        assert_eq!(released.code, Some(0), "{released:?}");
        let waiter = waiter.end();
        assert_eq!((waiter.code, &*waiter.stdout), (Some(0), "my turn\n"), "{waiter:?}");
        assert_eq!(waiter.stderr, "", "nothing to warn of");
        nothing_was_denied(&server);

        // The operator's user asks for settings besides.
        admit(&server, "app", "+config|get");
        let doctor = outcome(app("doctor").arg("--json"));
        assert_eq!(doctor.code, Some(0), "{doctor:?}");
        let found: Value = serde_json::from_str(&doctor.stdout).expect("JSON");
        let findings = found["nodes"][0]["findings"].as_array().expect("findings");
        for check in ["wake-up", "rights"] {
            let finding = findings.iter().find(|finding| finding["check"] == check);
            assert_eq!(finding.map(|it| &it["severity"]), Some(&"ok".into()), "{found:#}");
        }
        assert!(!doctor.stdout.contains("may not ask"), "{doctor:?}");
        nothing_was_denied(&server);
    }
}

#[test]
fn a_user_of_another_prefix_neither_sees_nor_tells_nor_takes_anything() {
    for dialect in DIALECTS {
        let server = RedisServer::start();
        admit(&server, "app", "");
        admit(&server, "other", "");
        let held =
            outcome(by("app", &server, dialect, "acquire").args(["--ttl", "25s", "nightly"]));
        assert_eq!(held.code, Some(0), "{held:?}");
        let waiter = Running::start(by("app", &server, dialect, "acquire").arg("nightly"));
        eventually("it waits", || {
            server.command(&["ZCARD", "app:nightly:quorlock:queue"]) == Reply::Int(1)
        });
        let inbox = inboxes(&server).pop().expect("a waiter");
        assert!(inbox.starts_with("app:"), "{inbox}");

        let mut other = server.connect().expect("a connection");
        let login = other.command(&["AUTH", "other", "a-password"]).expect("an answer");
        assert_eq!(login, Reply::Simple("OK".into()));
        for denied in [
            &["PUBLISH", &*inbox, "hello"][..],
            &["SUBSCRIBE", &inbox],
            &["PSUBSCRIBE", "*"],
            &["PUBSUB", "CHANNELS", "*"],
            &["GET", "app:nightly"],
            &["GET", "app::quorlock:set"],
            &["HGET", "app:nightly:quorlock:waiters", "x"],
            &["EVAL", "return redis.call('PUBLISH', ARGV[1], 'hello')", "0", &inbox],
            &["EVAL", "return redis.call('DEL', 'app:nightly')", "0"],
        ] {
            let reply = other.command(denied).expect("an answer");
            assert!(matches!(&reply, Reply::Error(_)), "{denied:?}: {reply:?}");
        }
        let list = outcome(&mut by("other", &server, dialect, "list"));
        assert_eq!((list.code, &*list.stdout), (Some(0), "no lock is held\n"), "{list:?}");
        // The same name is another lock.
        let own = outcome(by("other", &server, dialect, "run").args(["nightly", "--", "true"]));
        assert_eq!(own.code, Some(0), "{own:?}");

        let released = outcome(
            by("app", &server, dialect, "release")
                .arg("nightly")
                .env("QUORLOCK_TOKEN", held.stdout.trim()),
        );
        assert_eq!(released.code, Some(0), "{released:?}");
        assert_eq!(waiter.end().code, Some(0));
    }
}
