//! The servers of one test, and what stands on them.

use std::process::{Command, Stdio};

use quorlock_testkit::{RedisServer, Reply, eventually, servers};

/// What would change the settings of the program under test.
const VARIABLES: [&str; 18] = [
    "QUORLOCK_NOTE",
    "QUORLOCK_TOKEN",
    "QUORLOCK_NAME",
    "QUORLOCK_OWNER",
    "QUORLOCK_HELD",
    "QUORLOCK_NODES",
    "QUORLOCK_LOG",
    "QUORLOCK_TTL",
    "QUORLOCK_WAIT",
    "QUORLOCK_PREFIX",
    "QUORLOCK_NODE_LIMIT",
    "QUORLOCK_CONNECT_LIMIT",
    "QUORLOCK_USERNAME",
    "QUORLOCK_PASSWORD",
    "QUORLOCK_PASSWORD_FILE",
    "QUORLOCK_DIALECT",
    "QUORLOCK_FENCE",
    "QUORLOCK_MAX_TTL",
];

/// The program under test, with no settings from outside. It takes the servers of a test for what they
/// are: new, with nothing to forget.
///
/// Signals that are ignored stay so in the program, and a shell that runs the tests in the
/// background ignores some: `env` puts them back before it becomes the program.
pub(crate) fn quorlock() -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_quorlock")]);
    for name in VARIABLES {
        command.env_remove(name);
    }
    // Where a script finds the program.
    command.env("QUORLOCK", env!("CARGO_BIN_EXE_quorlock"));
    command.env("QUORLOCK_CONFIG", "/dev/null").stdin(Stdio::null());
    command.env("QUORLOCK_TRUST_NEW_NODES", "1");
    command
}

/// Independent servers.
pub(crate) struct Nodes(pub(crate) Vec<RedisServer>);

impl Nodes {
    pub(crate) fn start(count: usize) -> Self {
        Self(servers(count))
    }

    /// The program under test, with these nodes.
    pub(crate) fn quorlock(&self, subcommand: &str) -> Command {
        let mut command = quorlock();
        command.env("QUORLOCK_NODES", self.urls()).arg(subcommand);
        command
    }

    /// What `QUORLOCK_NODES` is for these nodes.
    pub(crate) fn urls(&self) -> String {
        self.0.iter().map(RedisServer::url).collect::<Vec<_>>().join(",")
    }

    /// Blocks until so many stand in the queue for the lock on every server.
    pub(crate) fn wait_for_queue(&self, key: &str, length: i64) {
        let queue = format!("{key}:quorlock:queue");
        for server in &self.0 {
            eventually("the queue is so long", || {
                server.command(&["ZCARD", &queue]) == Reply::Int(length)
            });
        }
    }

    /// On how many servers somebody holds the lock; or the key is there, if it is one beside a lock.
    pub(crate) fn holding(&self, key: &str) -> usize {
        let holds = |server: &&RedisServer| match key.contains(":quorlock:") {
            true => server.command(&["EXISTS", key]) == Reply::Int(1),
            false => Record::on(server, key).is_some(),
        };
        self.0.iter().filter(holds).count()
    }

    /// Waits until nobody holds the lock on any server: a program that has ended has asked all of them to drop it,
    /// and one may take longer than its time limit to do so.
    pub(crate) fn all_released(&self, key: &str) {
        eventually("every node lets go", || self.holding(key) == 0);
    }

    /// Takes the lock as somebody else would, for longer than any test runs.
    pub(crate) fn take(&self, key: &str) {
        for server in &self.0 {
            assert_eq!(Record::on(server, key), None, "it is taken already");
            Record::write(server, key, "somebody else");
        }
    }

    /// Frees the lock, whichever client has it.
    pub(crate) fn delete(&self, key: &str) {
        for server in &self.0 {
            server.command(&["DEL", key]);
        }
    }

    /// Blocks until the program under test has connected to every server.
    pub(crate) fn wait_for_clients(&self) {
        self.wait_until_clients("a client of that name is connected", |count| count > 0);
    }

    /// Blocks until no more than so many runs are connected to any server.
    pub(crate) fn wait_for_clients_to_go(&self, most: usize) {
        self.wait_until_clients("the others are not connected any more", |count| count <= most);
    }

    fn wait_until_clients(&self, what: &str, is_right: impl Fn(usize) -> bool) {
        for server in &self.0 {
            eventually(what, || {
                let Reply::Bulk(Some(list)) = server.command(&["CLIENT", "LIST"]) else {
                    panic!("no list of clients");
                };
                is_right(String::from_utf8_lossy(&list).matches("name=quorlock").count())
            });
        }
    }
}

/// A lock in the `strict` dialect, as it lies on a server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) fence: u64,
    /// When it ends by the server's clock, in microseconds.
    pub(crate) expiry_us: u64,
    pub(crate) token: String,
}

impl Record {
    /// The lock on that server, if somebody holds it there.
    pub(crate) fn on(server: &RedisServer, key: &str) -> Option<Self> {
        let text = match server.command(&["GET", key]) {
            Reply::Bulk(text) => String::from_utf8(text?).expect("a record is a text"),
            other => panic!("no record: {other:?}"),
        };
        let record = text.strip_prefix("quorlock ").unwrap_or_else(|| panic!("no record: {text}"));
        let (fence, rest) = record.split_at(16);
        let (state, rest) = rest.split_at(1);
        let mut rest = rest.rsplitn(4, ' ');
        let mut number_from_behind =
            || -> u64 { rest.next().and_then(|text| text.parse().ok()).expect("a number") };
        let ttl_us = number_from_behind() * 1_000;
        let expiry_us = ttl_us + number_from_behind() + number_from_behind() * 1_000_000;
        // Behind the token stands who takes part, if somebody does.
        let token = rest.next().and_then(|text| text.split(' ').next());
        let token = token.expect("a token, or nothing in its place");
        let is_held = matches!(state, " " | "+" | "*") && expiry_us > time_us(server);
        let fence = fence.parse().expect("a number");
        is_held.then(|| Self { fence, expiry_us, token: token.to_owned() })
    }

    /// Makes the lock that of somebody, for longer than any test runs.
    pub(crate) fn write(server: &RedisServer, key: &str, token: &str) {
        let now_s = time_us(server) / 1_000_000;
        let record = format!("quorlock {:016} {token} {now_s} 0 600000", 1);
        assert_eq!(server.command(&["SET", key, &record]), Reply::Simple("OK".into()));
    }

    /// How long it lasts.
    pub(crate) fn left_ms(&self, server: &RedisServer) -> u64 {
        self.expiry_us.saturating_sub(time_us(server)) / 1_000
    }
}

fn time_us(server: &RedisServer) -> u64 {
    let Reply::Array(parts) = server.command(&["TIME"]) else { panic!("no time") };
    let mut parts = parts.into_iter().map(|part| match part {
        Reply::Bulk(Some(digits)) => String::from_utf8_lossy(&digits).parse().expect("a number"),
        other => panic!("no time: {other:?}"),
    });
    let mut number = || -> u64 { parts.next().expect("seconds and microseconds") };
    number() * 1_000_000 + number()
}
