//! A value in Redis, with the lock on other servers.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use quorlock::Locker;
use quorlock_testkit::{RedisServer, Reply, servers, test};

use super::{GOT_THROUGH, REFUSED, Store, late_write, page};

const SCRIPT: &str = include_str!("../../../../docs/recipes/fenced_set.lua");
const RECIPES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/recipes");
/// Long enough to be worth something in the strict dialect, which takes half a second off.
const TTL: Duration = Duration::from_secs(2);

struct Fenced(RedisServer);

impl Fenced {
    fn run(&self, args: &[&str]) -> Reply {
        self.0.command(&[&["EVAL", SCRIPT, "1", "account/42"], args].concat())
    }

    fn field(&self, name: &str) -> Reply {
        self.0.command(&["HGET", "account/42", name])
    }
}

impl Store for Fenced {
    fn write(&self, fence: u64, value: i64) -> bool {
        match self.run(&[&fence.to_string(), &value.to_string()]) {
            Reply::Int(1) => true,
            Reply::Int(0) => false,
            other => panic!("{other:?}"),
        }
    }

    fn read(&self) -> i64 {
        number(&self.field("value"))
    }
}

struct Bare(RedisServer);

impl Store for Bare {
    fn write(&self, _: u64, value: i64) -> bool {
        self.0.command(&["SET", "account/42", &value.to_string()]) == Reply::Simple("OK".into())
    }

    fn read(&self) -> i64 {
        number(&self.0.command(&["GET", "account/42"]))
    }
}

fn number(reply: &Reply) -> i64 {
    let Reply::Bulk(Some(text)) = reply else { panic!("{reply:?}") };
    String::from_utf8_lossy(text).parse().expect("a number")
}

fn bulk(text: &str) -> Reply {
    Reply::Bulk(Some(text.as_bytes().to_vec()))
}

/// On three servers, with leases that end when their time is over.
async fn late_write_on_servers(store: &impl Store) -> super::Late {
    let nodes = servers(3);
    let connect = || {
        let builder = Locker::builder().nodes(nodes.iter().map(RedisServer::url));
        builder
            .ttl(TTL)
            .node_limit(TTL / 5)
            .redis(quorlock::RedisOptions::default().trust_new_nodes(true))
            .connect()
    };
    let (first, second) = (connect().await.expect("a locker"), connect().await.expect("a locker"));
    late_write(store, &first, &second).await
}

#[test]
async fn the_script_refuses_the_late_write() {
    assert_eq!(late_write_on_servers(&Fenced(RedisServer::start())).await, REFUSED);
}

#[test]
async fn a_plain_set_does_not() {
    assert_eq!(late_write_on_servers(&Bare(RedisServer::start())).await, GOT_THROUGH);
}

#[test]
fn numbers_are_compared_to_the_last_digit_and_stored_as_they_are() {
    let store = Fenced(RedisServer::start());
    let rising = ["9", "10", "1794813038924468", "9007199254740993", "18446744073709551615"];
    for pair in rising.windows(2) {
        assert_eq!(store.run(&[pair[0], "a"]), Reply::Int(1), "{}", pair[0]);
        assert_eq!(store.run(&[pair[1], "b"]), Reply::Int(1), "{}", pair[1]);
        assert_eq!(store.run(&[pair[0], "c"]), Reply::Int(0), "{} after {}", pair[0], pair[1]);
        assert_eq!((store.field("fence"), store.field("value")), (bulk(pair[1]), bulk("b")));
        store.0.command(&["DEL", "account/42"]);
    }
    assert!(store.write(9_007_199_254_740_993, 1));
    assert!(!store.write(9_007_199_254_740_992, 2), "as doubles they are the same");
}

#[test]
fn without_a_value_the_fence_is_raised_and_the_value_stays() {
    let store = Fenced(RedisServer::start());
    assert_eq!(store.run(&["33", "old"]), Reply::Int(1));
    assert_eq!(store.run(&["34"]), Reply::Int(1));
    assert_eq!(store.run(&["33", "new"]), Reply::Int(0));
    assert_eq!(store.run(&["33"]), Reply::Int(0));
    assert_eq!((store.field("fence"), store.field("value")), (bulk("34"), bulk("old")));
}

#[test]
fn what_is_no_fence_is_an_error_and_changes_nothing() {
    let store = Fenced(RedisServer::start());
    for text in ["", "0", "-1", "1e9", "0x22", "034", "34 ", "a"] {
        let reply = store.run(&[text, "new"]);
        let Reply::Error(said) = &reply else { panic!("{text:?}: {reply:?}") };
        assert!(said.contains("the fence of a holder"), "{said}");
    }
    assert_eq!(store.0.command(&["EXISTS", "account/42"]), Reply::Int(0));
}

#[test]
fn the_commands_of_the_page_work() {
    let server = RedisServer::start();
    let here = format!("redis-cli -p {}", server.port());
    let printed = |line: &str| {
        let output = Command::new("sh")
            .args(["-c", &line.replacen("redis-cli", &here, 1)])
            .current_dir(Path::new(RECIPES))
            .output()
            .expect("a shell");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let lines: Vec<_> = page::shell().map(printed).collect();
    assert_eq!(lines, ["1\n", "the text of the holder 34\n"]);
}
