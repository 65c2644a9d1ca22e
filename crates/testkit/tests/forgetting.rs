//! What servers keep and what they lose, over restarts, power losses and evictions.

use std::panic::{AssertUnwindSafe, catch_unwind};

use quorlock_testkit::{AppendFsync, RedisServer, RedisServerBuilder, Reply, test};

fn set(server: &RedisServer, key: &str) {
    assert_eq!(server.command(&["SET", key, "value"]), Reply::Simple("OK".into()));
}

/// The keys in the server, in order.
fn keys(server: &RedisServer) -> Vec<String> {
    let Reply::Array(keys) = server.command(&["KEYS", "*"]) else { panic!("no keys") };
    let text = |key| match key {
        Reply::Bulk(Some(key)) => String::from_utf8(key).expect("a plain name"),
        other => panic!("{other:?}"),
    };
    let mut keys: Vec<_> = keys.into_iter().map(text).collect();
    keys.sort_unstable();
    keys
}

fn setting(server: &RedisServer, name: &str) -> Reply {
    match server.command(&["CONFIG", "GET", name]) {
        Reply::Array(mut pair) => pair.pop().expect("a setting"),
        other => panic!("{other:?}"),
    }
}

/// A Redis server with these options, and a Valkey server if there is one.
fn each(options: impl Fn(RedisServerBuilder) -> RedisServerBuilder) -> Vec<RedisServer> {
    let valkey = std::env::var_os("QUORLOCK_TEST_VALKEY");
    if valkey.is_none() {
        eprintln!("without Valkey: QUORLOCK_TEST_VALKEY does not name a server");
    }
    let redis = RedisServer::builder();
    let valkey = valkey.map(|program| RedisServer::builder().program(program));
    [redis].into_iter().chain(valkey).map(|builder| options(builder).start()).collect()
}

#[test]
fn restarted_empty_it_has_nothing_on_the_same_port() {
    let plain = each(|builder| builder);
    let appending = each(|builder| builder.appendonly(true));
    let dumping = each(|builder| builder.arg("--save", "3600 1"));
    for server in plain.iter().chain(&appending).chain(&dumping) {
        set(server, "key");
        if setting(server, "save") != Reply::bulk("") {
            assert_eq!(server.command(&["SAVE"]), Reply::Simple("OK".into()));
            server.restart();
            assert_eq!(keys(server), ["key"], "no dump, nothing to forget");
        }
        let (pid, url) = (server.pid(), server.url());
        server.restart_empty();
        assert_ne!(server.pid(), pid);
        assert_eq!(server.url(), url);
        assert!(keys(server).is_empty());
        set(server, "later");
    }
    for server in &appending {
        server.restart();
        assert_eq!(keys(server), ["later"], "it no longer keeps its data");
    }
}

#[test]
fn a_kill_loses_nothing_of_an_aof() {
    for (when, name) in [(AppendFsync::Always, "always"), (AppendFsync::EverySecond, "everysec")] {
        for server in each(|builder| builder.appendfsync(when)) {
            assert_eq!(setting(&server, "appendfsync"), Reply::bulk(name));
            set(&server, "key");
            // Only what was written counts; a server whose disk is slow may hold it back.
            let _ = server.aof_mark();
            server.restart();
            assert_eq!(keys(&server), ["key"]);
        }
    }
}

#[test]
fn a_power_loss_takes_what_came_after_the_mark() {
    for server in each(|builder| builder.appendfsync(AppendFsync::EverySecond)) {
        set(&server, "before");
        let mark = server.aof_mark();
        set(&server, "after");
        server.command(&["DEL", "before"]);
        server.crash_losing_since(mark);
        assert_eq!(keys(&server), ["before"]);

        // The server goes on with the same file, so the mark is good for another time.
        set(&server, "again");
        assert_eq!(keys(&server), ["again", "before"]);
        let later = server.aof_mark();
        assert_ne!(later, mark);
        set(&server, "after");
        server.crash_losing_since(later);
        assert_eq!(keys(&server), ["again", "before"]);
        server.crash_losing_since(mark);
        assert_eq!(keys(&server), ["before"]);
    }
}

#[test]
fn a_mark_of_another_aof_is_refused() {
    let refused = |server: &RedisServer, mark| {
        let panic = catch_unwind(AssertUnwindSafe(|| server.crash_losing_since(mark)));
        let panic = panic.expect_err("it was taken");
        let message = panic.downcast_ref::<String>().expect("a message");
        assert!(message.contains("is not in this AOF"), "{message}");
    };
    let [longer, shorter] = [(); 2].map(|()| RedisServer::builder().appendonly(true).start());
    set(&longer, "key");
    let mark = longer.aof_mark();
    refused(&shorter, mark);

    assert!(matches!(longer.command(&["BGREWRITEAOF"]), Reply::Simple(_)));
    quorlock_testkit::eventually("the AOF is rewritten", || {
        let Reply::Bulk(Some(info)) = longer.command(&["INFO", "persistence"]) else {
            return false;
        };
        let info = String::from_utf8_lossy(&info);
        info.contains("aof_rewrite_in_progress:0") && info.contains("aof_rewrites:1")
    });
    for count in 0..10 {
        set(&longer, &format!("as-long-as-before-{count}"));
    }
    refused(&longer, mark);
}

#[test]
fn without_an_aof_there_is_no_mark() {
    let server = RedisServer::start();
    let panic = catch_unwind(AssertUnwindSafe(|| server.aof_mark())).expect_err("a mark");
    let message = panic.downcast_ref::<String>().expect("a message");
    assert!(message.contains("start it with `appendonly`"), "{message}");
}

#[test]
fn flushed_it_has_nothing_yet_runs_on() {
    for server in each(|builder| builder) {
        set(&server, "key");
        let run_id = server.run_id();
        assert_eq!(run_id.len(), 40);
        assert_eq!(server.command(&["FLUSHALL"]), Reply::Simple("OK".into()));
        assert!(keys(&server).is_empty());
        assert_eq!(server.run_id(), run_id);
    }
}

#[test]
fn every_start_has_a_run_id_of_its_own() {
    for server in each(|builder| builder.appendonly(true)) {
        let mut run_ids = vec![server.run_id()];
        server.pause();
        server.resume();
        assert_eq!(server.run_id(), run_ids[0]);

        let mark = server.aof_mark();
        server.restart();
        run_ids.push(server.run_id());
        server.crash_losing_since(mark);
        run_ids.push(server.run_id());
        server.restart_empty();
        run_ids.push(server.run_id());
        run_ids.sort_unstable();
        run_ids.dedup();
        assert_eq!(run_ids.len(), 4);
    }
}

#[test]
fn full_it_drops_keys_that_would_expire_and_no_others() {
    for server in each(|builder| builder.maxmemory(4_000_000, "volatile-lru")) {
        set(&server, "lasting");
        let put = |key: &str| server.command(&["SET", key, &"x".repeat(10_000), "PX", "3600000"]);
        put("lock");
        // Which ones go is left to chance within a second: so many are put that none is spared.
        let gone = (0..20_000).any(|number| {
            assert_eq!(put(&format!("other-{number}")), Reply::Simple("OK".into()));
            server.command(&["EXISTS", "lock"]) == Reply::Int(0)
        });
        assert!(gone, "not dropped");
        assert_eq!(server.command(&["EXISTS", "lasting"]), Reply::Int(1));
    }
}

#[test]
fn full_it_refuses_to_store_more_if_it_may_drop_nothing() {
    for server in each(|builder| builder.maxmemory(4_000_000, "noeviction")) {
        let put = |key: &str| server.command(&["SET", key, &"x".repeat(10_000), "PX", "3600000"]);
        let refusal = (0..20_000).find_map(|number| match put(&format!("{number}")) {
            Reply::Error(text) => Some(text),
            _ => None,
        });
        assert!(refusal.expect("a refusal").starts_with("OOM"));
        assert_eq!(server.command(&["EXISTS", "0"]), Reply::Int(1));
    }
}
