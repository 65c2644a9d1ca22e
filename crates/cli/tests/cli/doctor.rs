//! `quorlock doctor` on servers that are well, and on others.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use quorlock_testkit::{RedisServer, Reply, test};
use serde_json::Value;

use crate::nodes::quorlock;
use crate::process::outcome;

/// What the doctor found.
struct Found(Value);

impl Found {
    /// The findings of all nodes, or of one.
    fn findings(&self, node: Option<usize>) -> &Vec<Value> {
        let place = node.map_or(&self.0, |node| &self.0["nodes"][node]);
        place["findings"].as_array().expect("findings")
    }

    /// How a check came out: its severity, text and remedy.
    fn of(&self, node: Option<usize>, check: &str) -> (&str, &str, Option<&str>) {
        let found = self.findings(node).iter().find(|finding| finding["check"] == check);
        let found = found.unwrap_or_else(|| panic!("no {check}: {:#}", self.0));
        let text = |name: &str| found[name].as_str();
        (
            text("severity").expect("as the test has it"),
            text("text").expect("as the test has it"),
            text("remedy"),
        )
    }

    fn fact(&self, node: usize, name: &str) -> &Value {
        &self.0["nodes"][node]["facts"][name]
    }
}

/// The program under test, with a time limit that a busy machine keeps too. It trusts no server by
/// itself.
fn of_urls(urls: &[String]) -> Command {
    let mut command = quorlock();
    command.env("QUORLOCK_NODE_LIMIT", "2s").env_remove("QUORLOCK_TRUST_NEW_NODES");
    command.env("QUORLOCK_NODES", urls.join(",")).arg("doctor");
    command
}

/// The same in the other dialect.
fn redlock(urls: &[String]) -> Command {
    let mut command = of_urls(urls);
    command.args(["--dialect", "redlock"]);
    command
}

/// A server that was told that it is new.
fn marked(server: RedisServer) -> RedisServer {
    mark(&[server.url()]);
    server
}

fn mark(urls: &[String]) {
    let mut init = quorlock();
    init.env("QUORLOCK_NODES", urls.join(",")).args(["init", "--yes", "--force"]);
    let init = outcome(&mut init);
    assert_eq!(init.code, Some(0), "{init:?}");
}

fn examine(command: &mut Command, code: i32) -> Found {
    let run = outcome(command.arg("--json"));
    assert_eq!((run.code, run.stderr.as_str()), (Some(code), ""), "{run:?}");
    let found: Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert_eq!(found["exit_code"], code, "{found:#}");
    Found(found)
}

fn durable(count: usize) -> Vec<RedisServer> {
    let server = |_| RedisServer::builder().appendonly(true).start();
    let servers: Vec<_> = (0..count).map(server).collect();
    mark(&urls(&servers));
    servers
}

fn urls(servers: &[RedisServer]) -> Vec<String> {
    servers.iter().map(RedisServer::url).collect()
}

#[test]
fn servers_that_are_well_are_told_so_and_nothing_is_left_on_them() {
    let servers = durable(3);
    let found = examine(&mut of_urls(&urls(&servers)), 0);
    assert_eq!(found.0["severity"], "ok", "{:#}", found.0);
    assert_eq!(found.0["quorum"]["nodes"], 3);
    assert_eq!(found.0["quorum"]["needed"], 2);
    assert_eq!(found.0["quorum"]["usable"], 3);
    assert_eq!(found.0["quorum"]["may_fail"], 1);
    assert_eq!(found.0["settings"]["ttl_ms"], 10_000);
    assert_eq!(found.0["settings"]["node_limit_ms"], 2_000);
    for (index, server) in servers.iter().enumerate() {
        assert_eq!(found.0["nodes"][index]["node"], format!("redis://{}", server.addr()));
        assert_eq!(found.0["nodes"][index]["usable"], true);
        let checks = ["persistence", "eviction", "time-limit", "clock", "rights", "wake-up"];
        for check in checks.into_iter().chain(["marker"]) {
            assert_eq!(found.of(Some(index), check).0, "ok", "{check}: {:#}", found.0);
        }
        assert!(found.fact(index, "server").as_str().unwrap().starts_with("Redis "));
        assert_eq!(found.fact(index, "role"), "master");
        assert_eq!(found.fact(index, "appendonly"), true);
        assert_eq!(found.fact(index, "appendfsync"), "always");
        for number in ["round_trip_min_us", "round_trip_median_us", "clock_offset_us", "wake_up_us"]
        {
            assert!(found.fact(index, number).is_i64(), "{number}: {:#}", found.0);
        }
        assert_eq!(found.fact(index, "marker"), "of this start");
        assert_eq!(found.fact(index, "quarantine_ms"), 0);
        let own = server.command(&["EXISTS", ":quorlock:set", ":quorlock:sweep"]);
        assert_eq!(server.command(&["DBSIZE"]), own, "nothing but what is about the server");
    }
    assert_eq!(found.0["settings"]["dialect"], "strict");
    assert_eq!(found.0["settings"]["max_ttl_ms"], 30_000);
    assert_eq!(found.0["settings"]["clock_ahead_ms"], 300);

    let table = outcome(&mut of_urls(&urls(&servers)));
    assert_eq!((table.code, table.stderr.as_str()), (Some(0), ""), "{table:?}");
    assert!(table.stdout.contains("3 of 3 nodes can be used, and 1 of them may fail"), "{table:?}");
    let class =
        "AP: 3 independent Redis servers; survives the loss of 1; one that may have forgotten";
    assert!(table.stdout.contains(class), "{table:?}");
    assert!(table.stdout.starts_with("3 nodes, dialect strict, max TTL 30.0s, TTL 10.0s"));
    assert!(!table.stdout.contains("warn") && !table.stdout.contains("error"), "{table:?}");
}

#[test]
fn a_dead_server_is_an_error_and_too_many_of_them_are_the_end() {
    let servers = durable(3);
    servers[1].kill();
    let found = examine(&mut of_urls(&urls(&servers)), 1);
    let (severity, text, _) = found.of(None, "quorum");
    assert_eq!((severity, text), ("warn", "2 of 3 nodes can be used, all of which are needed"));
    let (severity, text, remedy) = found.of(Some(1), "usable");
    assert_eq!(severity, "error");
    assert!(text.contains("cannot connect") && remedy.unwrap().contains("start it"), "{text}");
    assert_eq!(found.0["nodes"][1]["usable"], false);

    servers[2].kill();
    let found = examine(&mut of_urls(&urls(&servers)), 69);
    assert_eq!(found.of(None, "quorum").1, "1 of 3 nodes can be used, and 2 are needed");
    assert_eq!(found.0["quorum"]["may_fail"], 0);
}

#[test]
fn a_server_that_hangs_is_told_from_one_that_is_well() {
    let servers = durable(1);
    servers[0].pause();
    let found = examine(of_urls(&urls(&servers)).args(["--connect-limit", "100ms"]), 69);
    assert!(found.of(Some(0), "usable").1.contains("no answer within 200ms"), "{:#}", found.0);
}

#[test]
fn one_server_behind_two_urls_is_a_mistake_in_the_settings() {
    let servers = durable(2);
    let mut urls = urls(&servers);
    urls.push(urls[0].replace("127.0.0.1", "localhost"));
    let found = examine(&mut of_urls(&urls), 78);
    let (severity, text, remedy) = found.of(None, "duplicate");
    assert_eq!(severity, "error");
    assert!(text.contains("localhost") && text.contains("is the same server as"), "{text}");
    assert!(remedy.unwrap().contains("name every server once"));
}

#[test]
fn a_replica_is_refused_and_its_primary_warned_about() {
    let primary = marked(RedisServer::builder().appendonly(true).start());
    let replica = RedisServer::builder().replica_of(primary.port()).start();
    quorlock_testkit::eventually("the replica is connected", || {
        let Reply::Bulk(Some(info)) = primary.command(&["INFO", "replication"]) else { panic!() };
        String::from_utf8_lossy(&info).contains("connected_slaves:1")
    });
    let found = examine(&mut of_urls(&[replica.url()]), 69);
    let (severity, text, _) = found.of(Some(0), "usable");
    assert_eq!(severity, "error");
    assert!(text.contains("name its primary instead"), "{text}");
    let found = examine(&mut redlock(&[primary.url()]), 0);
    assert_eq!(found.of(Some(0), "replicas").0, "warn");
    assert_eq!(found.fact(0, "replicas"), 1);
    // One that takes its place is another start, and waits before it votes.
    let found = examine(&mut of_urls(&[primary.url()]), 0);
    let (severity, text, _) = found.of(Some(0), "replicas");
    assert!(severity == "ok" && text.contains("casts no vote for 30 s"), "{text}");
}

#[test]
fn eviction_is_an_error_or_a_warning_by_the_dialect() {
    let server = RedisServer::builder().appendonly(true).arg("--maxmemory", "100mb");
    let server = marked(server.arg("--maxmemory-policy", "allkeys-lru").start());
    for (mut command, code, is) in
        [(of_urls(&[server.url()]), 69, "error"), (redlock(&[server.url()]), 0, "warn")]
    {
        let found = examine(&mut command, code);
        let (severity, text, remedy) = found.of(Some(0), "eviction");
        assert_eq!(severity, is);
        assert!(text.contains("allkeys-lru") && remedy.unwrap().contains("noeviction"), "{text}");
        assert_eq!(found.fact(0, "maxmemory_policy"), "allkeys-lru");
    }
}

#[test]
fn whether_a_node_votes_is_said_and_when_it_will() {
    let server = RedisServer::builder().appendonly(true).start();
    let look = |code| examine(&mut of_urls(&[server.url()]), code);
    let assert_found = |found: &Found, says: &str, remedy_says: &str| {
        let (severity, text, remedy) = found.of(Some(0), "marker");
        assert_eq!(severity, "error", "{text}");
        assert!(text.contains(says), "{text}");
        assert!(remedy.expect("a remedy").contains(remedy_says), "{remedy:?}");
        assert_eq!(found.0["nodes"][0]["usable"], false);
    };
    let new = look(69);
    assert_found(&new, "it has no mark", "run quorlock init if no lock was ever taken there");
    assert_found(&new, "it votes in 30 s, which begin with this look", "wait");
    assert_eq!(new.fact(0, "marker"), "none");
    assert_eq!(new.fact(0, "quarantine_ms"), 30_500);
    let waiting = look(69);
    assert_found(&waiting, "its set of nodes is new", "wait");
    let left = waiting.fact(0, "quarantine_ms").as_u64().expect("a time");
    assert!((1..30_500).contains(&left), "{left}");

    let server = marked(server);
    assert_eq!(examine(&mut of_urls(&[server.url()]), 0).of(Some(0), "marker").0, "ok");
    server.restart();
    let restarted = examine(&mut of_urls(&[server.url()]), 69);
    assert_found(&restarted, "it was restarted", "votes again by itself");
    assert_found(&restarted, "it votes in 30 s, which begin with this look", "wait");
    assert_eq!(restarted.fact(0, "marker"), "of another start");

    let new = RedisServer::start();
    let found = examine(of_urls(&[new.url()]).env("QUORLOCK_TRUST_NEW_NODES", "1"), 0);
    let (severity, text, remedy) = found.of(Some(0), "marker");
    assert_eq!(severity, "warn", "{text}");
    assert!(remedy.unwrap().contains("unset QUORLOCK_TRUST_NEW_NODES"));
}

#[test]
fn clients_and_nodes_that_do_not_agree_are_an_error() {
    let servers = durable(3);
    let mut other = quorlock();
    other.env("QUORLOCK_NODES", urls(&servers).join(","));
    let init = outcome(other.args(["init", "--yes", "--force", "--max-ttl", "20s"]));
    assert_eq!(init.code, Some(0), "{init:?}");
    let found = examine(&mut of_urls(&urls(&servers)), 69);
    let (severity, text, remedy) = found.of(Some(2), "set");
    assert_eq!(severity, "error");
    assert!(text.contains("max_ttl of 20s") && text.contains("max_ttl of 30s"), "{text}");
    assert!(remedy.unwrap().contains("quorlock init --force"));
    assert_eq!(found.fact(2, "max_ttl_ms"), 20_000);

    // One of them alone is another set.
    let mut other = quorlock();
    other.env("QUORLOCK_NODES", servers[2].url());
    assert_eq!(outcome(other.args(["init", "--yes", "--force"])).code, Some(0));
    mark(&urls(&servers)[..2]);
    let found = examine(&mut of_urls(&urls(&servers)), 69);
    for (node, server) in servers.iter().enumerate() {
        let (severity, text, _) = found.of(Some(node), "set");
        assert_eq!(severity, "error");
        assert!(text.contains("belongs to the set of nodes"), "{text}");
        assert!(text.contains(&server.addr().to_string()), "{text}");
    }
}

#[test]
fn a_clock_outside_of_the_window_is_an_error() {
    let server = marked(RedisServer::builder().own_clock().start());
    server.clock().jump_ms(5_000);
    let found = examine(&mut of_urls(&[server.url()]), 69);
    let (severity, text, remedy) = found.of(Some(0), "clock");
    assert_eq!(severity, "error");
    assert!(text.contains("ahead of") && text.contains("casts no vote"), "{text}");
    assert!(remedy.unwrap().contains("chrony"));
    let found = examine(&mut redlock(&[server.url()]), 0);
    assert_eq!(found.of(Some(0), "clock").0, "warn");
}

#[test]
fn nodes_that_agree_with_each_other_are_right_and_this_machine_is_wrong() {
    let server = |_| RedisServer::builder().own_clock().start();
    let servers: Vec<_> = (0..3).map(server).collect();
    mark(&urls(&servers));
    for (by_ms, side) in [(-7_000, "ahead"), (12_000, "behind")] {
        servers.iter().for_each(|server| server.clock().jump_ms(by_ms));
        let found = examine(&mut of_urls(&urls(&servers)), 69);
        let (severity, text, remedy) = found.of(None, "clock");
        assert_eq!(severity, "error");
        assert!(text.contains("it is the clock of this machine that is"), "{text}");
        assert!(text.ends_with(side) && remedy.unwrap().contains("this machine"), "{text}");
        let mut run = quorlock();
        run.env("QUORLOCK_NODES", urls(&servers).join(",")).env("QUORLOCK_NODE_LIMIT", "2s");
        let run = outcome(run.args(["run", "-n", "x", "--", "true"]));
        assert_eq!(run.code, Some(69), "{run:?}");
        let said = format!("it is the clock of this machine that is {side}, so set that one right");
        assert!(run.stderr.contains(&said), "{run:?}");
    }
    // One of them alone is wrong itself.
    servers.iter().for_each(|server| server.clock().true_time());
    servers[0].clock().jump_ms(5_000);
    let found = examine(&mut of_urls(&urls(&servers)), 1);
    assert!(!found.findings(None).iter().any(|found| found["check"] == "clock"), "{:#}", found.0);
}

#[test]
fn what_a_server_forgets_is_said() {
    let server = marked(RedisServer::start());
    let found = examine(&mut of_urls(&[server.url()]), 0);
    let (severity, text, _) = found.of(Some(0), "persistence");
    assert!(severity == "ok" && text.contains("casts no vote for 30 s after that"), "{text}");
    let persistence = |severity: &str, says: &str| {
        let found = examine(&mut redlock(&[server.url()]), 0);
        let (found_severity, text, remedy) = found.of(Some(0), "persistence");
        assert_eq!(found_severity, severity, "{text}");
        assert!(text.contains(says), "{text}");
        assert_eq!(remedy.is_some(), severity != "ok");
    };
    persistence("warn", "appendonly no");
    server.command(&["CONFIG", "SET", "appendonly", "yes"]);
    server.command(&["CONFIG", "SET", "appendfsync", "everysec"]);
    persistence("warn", "last second");
    server.command(&["CONFIG", "SET", "appendfsync", "always"]);
    persistence("ok", "forgets no lock");
}

const RIGHTS: &str = "on >hunter2 +hello +info +client|kill +select +set +get +del +pttl +pexpire +type \
                      +time +eval +evalsha +script|load";
const QUEUE_RIGHTS: &str =
    "+zadd +zcard +zrange +zscore +zpopmin +zrem +hset +hget +hdel +subscribe";

fn url_of_user(server: &RedisServer, rights: &str) -> String {
    let mut command = vec!["ACL", "SETUSER", "alice", "reset"];
    command.extend(rights.split_whitespace());
    assert_eq!(server.command(&command), Reply::Simple("OK".into()));
    format!("redis://alice:hunter2@{}", server.addr())
}

#[test]
fn missing_rights_are_found_by_trying() {
    let server = marked(RedisServer::builder().appendonly(true).start());
    let examined = |command: &mut Command, code| {
        let found = examine(command, code);
        assert!(!found.0.to_string().contains("hunter2"), "{:#}", found.0);
        assert_eq!(server.kept(), 0, "something is left");
        found
    };
    let of_user =
        |rights: &str, code| examined(&mut of_urls(&[url_of_user(&server, rights)]), code);
    let of_user_in_redlock =
        |rights: &str, code| examined(&mut redlock(&[url_of_user(&server, rights)]), code);
    let all = format!("{RIGHTS} {QUEUE_RIGHTS} ~*");

    let found = of_user(&format!("{all} +publish &:quorlock:inbox:* +config|get"), 0);
    assert_eq!(found.0["severity"], "ok", "{:#}", found.0);

    // Without the right to ask for them, settings are not known, and that is not an error.
    let found = of_user_in_redlock(&format!("{all} -time +publish &:quorlock:inbox:*"), 0);
    let (severity, text, _) = found.of(Some(0), "persistence");
    assert!(severity == "warn" && text.contains("may not ask"), "{text}");
    assert!(found.of(Some(0), "clock").1.contains("may not ask"), "{:#}", found.0);
    // But the strict dialect rests on the time.
    let found = of_user(&format!("{all} -time +publish &:quorlock:inbox:*"), 69);
    let (severity, text, _) = found.of(Some(0), "usable");
    assert!(severity == "error" && text.contains("+time"), "{text}");

    let found = of_user(&format!("{all} &:quorlock:inbox:*"), 0);
    let (severity, text, remedy) = found.of(Some(0), "wake-up");
    assert!(severity == "warn" && text.contains("not told of their turn"), "{text}");
    assert!(remedy.unwrap().contains("+publish"), "{remedy:?}");

    let found = of_user(&format!("{all} +publish resetchannels"), 0);
    assert_eq!(found.of(Some(0), "wake-up").0, "warn");

    let found = of_user(&format!("{RIGHTS} ~*"), 0);
    let (severity, text, _) = found.of(Some(0), "queue");
    assert!(severity == "warn" && text.contains("cannot queue up"), "{text}");

    let found = of_user(&format!("{all} +publish &* -set"), 69);
    let (severity, text, _) = found.of(Some(0), "usable");
    assert!(severity == "error" && text.contains("a lock cannot be taken"), "{text}");
    let found = of_user_in_redlock(&format!("{all} +publish &* -pexpire -pttl"), 69);
    assert!(found.of(Some(0), "usable").1.contains("a lock cannot be extended"), "{:#}", found.0);
}

#[test]
fn a_user_of_certain_keys_names_one_of_them() {
    let server = marked(RedisServer::builder().appendonly(true).start());
    let rights = format!("{RIGHTS} {QUEUE_RIGHTS} +publish &* ~nightly*");
    let url = url_of_user(&server, &rights);
    let found = examine(&mut of_urls(std::slice::from_ref(&url)), 69);
    assert!(found.of(Some(0), "usable").1.contains("~PREFIX:quorlock:set"), "{:#}", found.0);
    let url = url_of_user(&server, &format!("{rights} ~:quorlock:set"));
    let found = examine(&mut of_urls(std::slice::from_ref(&url)), 69);
    assert!(found.of(Some(0), "usable").1.contains("~NAME*"), "{:#}", found.0);
    let found = examine(of_urls(&[url]).arg("nightly"), 0);
    assert_eq!(found.of(Some(0), "wake-up").0, "ok", "{:#}", found.0);
}

#[test]
fn a_slow_server_is_judged_by_the_limits() {
    let servers = durable(1);
    let proxy = quorlock_testkit::Proxy::in_front_of(servers[0].addr());
    proxy.delay(std::time::Duration::from_millis(240));
    let url = format!("redis://{}", proxy.addr());
    let found = examine(of_urls(&[url]).env_remove("QUORLOCK_NODE_LIMIT"), 69);
    let (severity, text, remedy) = found.of(Some(0), "time-limit");
    assert_eq!(found.0["settings"]["node_limit_ms"], 200);
    assert_eq!(severity, "warn", "{text}");
    assert!(remedy.unwrap().contains("--node-limit"), "{remedy:?}");
}

#[test]
fn the_file_of_this_machine_is_looked_over_as_well() {
    let home = tempfile::tempdir().unwrap();
    let look = || examine(quorlock().env("XDG_STATE_HOME", home.path()).arg("doctor"), 0);
    let found = look();
    let file = home.path().join("quorlock/locks.db");
    assert_eq!(found.fact(0, "path"), file.to_str().unwrap());
    assert_eq!(found.fact(0, "journal_mode"), "wal");
    assert_eq!(found.fact(0, "mode"), "0600");
    assert!(found.fact(0, "file_system").is_string());
    assert_eq!(found.of(Some(0), "permissions").0, "ok");
    assert_eq!(found.of(Some(0), "rights").0, "ok");

    fs::set_permissions(&file, Permissions::from_mode(0o666)).unwrap();
    let found = look();
    let (severity, text, remedy) = found.of(Some(0), "permissions");
    assert!(severity == "warn" && text.contains("every user"), "{text}");
    assert!(remedy.unwrap().contains("chmod"));
}

#[test]
fn mistakes_in_the_settings_give_78_and_no_findings() {
    for (args, says) in [
        (&["--node", "http://a"][..], "URL scheme \"http\""),
        (&["--node", "redis://a", "--ttl", "1ms"], "too short"),
        (&["--node", "redis://a", "--node-limit", "9s"], "not far below the TTL"),
    ] {
        let run = outcome(quorlock().arg("doctor").args(args));
        assert_eq!((run.code, run.stdout.as_str()), (Some(78), ""), "{run:?}");
        assert!(run.stderr.contains(says), "{run:?}");
    }
}

#[test]
fn colours_are_shown_where_they_are_wanted() {
    let home = tempfile::tempdir().unwrap();
    let coloured = |variables: &[&str]| {
        let mut command = quorlock();
        command.env("XDG_STATE_HOME", home.path()).env_remove("NO_COLOR").arg("doctor");
        for name in variables {
            command.env(name, "1");
        }
        outcome(&mut command).stdout.contains('\x1b')
    };
    assert!(!coloured(&[]), "nobody sees colours in a pipe");
    assert!(coloured(&["CLICOLOR_FORCE"]));
    assert!(!coloured(&["CLICOLOR_FORCE", "NO_COLOR"]));
}
