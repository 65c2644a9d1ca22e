//! The servers of one test, and what stands on them.

use std::process::{Command, Stdio};

use quorlock_testkit::{RedisServer, Reply, eventually, servers};

/// What would change the settings of the program under test.
const VARIABLES: [&str; 15] = [
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
];

/// The program under test, with no settings from outside.
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

    /// On how many servers the key is.
    pub(crate) fn holding(&self, key: &str) -> usize {
        self.0.iter().filter(|server| server.command(&["EXISTS", key]) == Reply::Int(1)).count()
    }

    /// Waits until the key is on no server: a program that has ended has asked all of them to drop it,
    /// and one may take longer than its time limit to do so.
    pub(crate) fn all_let_go(&self, key: &str) {
        eventually("every node lets go", || self.holding(key) == 0);
    }

    /// Takes the lock as somebody else would, for longer than any test runs.
    pub(crate) fn take(&self, key: &str) {
        for server in &self.0 {
            let reply = server.command(&["SET", key, "somebody else", "NX", "PX", "600000"]);
            assert_eq!(reply, Reply::Simple("OK".into()));
        }
    }

    /// Removes the key, whoever's it is.
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
