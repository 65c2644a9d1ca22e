//! The options a server is started with.

use std::ffi::OsString;

use tempfile::TempDir;

use crate::RedisServer;
use crate::clock::{ControlPage, Moves};
use crate::server::{Parts, ReservedPort};
use crate::skipping;
use crate::tls::Certificates;

/// The program that is run unless another is given.
const REDIS: &str = "redis-server";

/// The options of a [`RedisServer`], from [`RedisServer::builder`].
///
/// Without any, the server listens on a free port of 127.0.0.1, has no password, and keeps nothing
/// over a restart.
#[derive(Clone, Debug)]
#[must_use]
pub struct RedisServerBuilder {
    program: OsString,
    listen: Listen,
    password: Option<String>,
    appendfsync: Option<AppendFsync>,
    replica_of: Option<u16>,
    clock: Option<Moves>,
    args: Vec<OsString>,
}

/// When a server that keeps its data has it on disk.
///
/// A kill loses nothing either way: what was written is with the system. What a power loss costs is
/// shown by [`RedisServer::crash_losing_since`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendFsync {
    /// Before the reply.
    Always,
    /// Once a second, as Redis does unless told otherwise. Replies do not wait for it.
    EverySecond,
}

#[derive(Clone, Copy, Debug)]
enum Listen {
    Tcp,
    Tls,
    UnixSocket,
}

impl RedisServerBuilder {
    pub(crate) fn new() -> Self {
        Self {
            program: REDIS.into(),
            listen: Listen::Tcp,
            password: None,
            appendfsync: None,
            replica_of: None,
            clock: None,
            args: Vec::new(),
        }
    }

    /// Runs this program instead of the `redis-server` in `PATH`.
    pub fn program(mut self, path: impl Into<OsString>) -> Self {
        self.program = path.into();
        self
    }

    /// Listens on a unix socket and on no port.
    pub fn unix_socket(mut self) -> Self {
        self.listen = Listen::UnixSocket;
        self
    }

    /// Speaks TLS on the port, with a certificate for `localhost` and `127.0.0.1` from an authority
    /// of its own (see [`RedisServer::tls_ca`]). Clients need no certificate.
    pub fn tls(mut self) -> Self {
        self.listen = Listen::Tls;
        self
    }

    /// Asks clients for this password.
    pub fn requirepass(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Keeps the data over a restart, even after a kill: every write is on disk before its reply.
    pub fn appendonly(mut self, on: bool) -> Self {
        self.appendfsync = on.then_some(AppendFsync::Always);
        self
    }

    /// Keeps the data over a restart, and has it on disk at these times.
    pub fn appendfsync(mut self, when: AppendFsync) -> Self {
        self.appendfsync = Some(when);
        self
    }

    /// Keeps to so many bytes of memory, of which an empty server needs about a million. What
    /// happens beyond is the policy: `noeviction` refuses writes, `volatile-lru` drops keys with an
    /// expiry, which locks are.
    pub fn maxmemory(self, bytes: u64, policy: &str) -> Self {
        self.arg("--maxmemory", bytes.to_string()).arg("--maxmemory-policy", policy)
    }

    /// Gives the server a wall clock of its own, which [`RedisServer::clock`] sets. Its monotonic
    /// clocks stay true.
    ///
    /// The first use compiles a small library and so needs a C compiler.
    pub fn own_clock(mut self) -> Self {
        self.clock = Some(Moves::Wall);
        self
    }

    /// As [`own_clock`](Self::own_clock), but the monotonic clocks jump and drift with the wall
    /// clock.
    pub fn own_clock_with_monotonic(mut self) -> Self {
        self.clock = Some(Moves::WallAndMonotonic);
        self
    }

    /// Follows the server at this port of 127.0.0.1.
    ///
    /// The replica is started when it answers, which may be before it has caught up.
    pub fn replica_of(mut self, port: u16) -> Self {
        self.replica_of = Some(port);
        self
    }

    /// Adds a setting, such as `.arg("--maxmemory-policy", "allkeys-lru")`. It wins over the
    /// settings that come from other options.
    pub fn arg(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.args.extend([name.into(), value.into()]);
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Panics
    ///
    /// When it does not come up. The message has the end of the server's log.
    #[must_use]
    pub fn start(self) -> RedisServer {
        let server = self.launch();
        server.wait_until_ready();
        server
    }

    /// Starts the server without waiting for it.
    pub(crate) fn launch(mut self) -> RedisServer {
        if self.program == REDIS {
            self.program = skipping::program(REDIS).into();
        }
        let dir = TempDir::with_prefix("quorlock-redis-").expect("a temporary directory");
        let socket = dir.path().join("redis.sock");
        let port = match self.listen {
            Listen::Tcp | Listen::Tls => Some(ReservedPort::new()),
            Listen::UnixSocket => None,
        };
        let certificates = match self.listen {
            Listen::Tls => Some(Certificates::write_to(dir.path())),
            Listen::Tcp | Listen::UnixSocket => None,
        };

        let mut args: Vec<OsString> = Vec::new();
        let mut set = |name: &str, value: OsString| args.extend([name.into(), value]);
        set("--bind", "127.0.0.1".into());
        set("--dir", dir.path().into());
        // Every server has the socket: the kit asks there, past the password, TLS and any proxy.
        set("--unixsocket", socket.as_os_str().into());
        set("--save", "".into());
        // A new replica is served at once rather than after waiting for others to join it.
        set("--repl-diskless-sync-delay", "0".into());
        let number = port.as_ref().map_or(0, ReservedPort::number).to_string().into();
        if let Some(certificates) = &certificates {
            set("--port", "0".into());
            set("--tls-port", number);
            set("--tls-cert-file", certificates.server.as_os_str().into());
            set("--tls-key-file", certificates.key.as_os_str().into());
            set("--tls-ca-cert-file", certificates.ca.as_os_str().into());
            set("--tls-auth-clients", "no".into());
        } else {
            set("--port", number);
        }
        if let Some(password) = &self.password {
            set("--requirepass", password.into());
        }
        if let Some(when) = self.appendfsync {
            set("--appendonly", "yes".into());
            let when = match when {
                AppendFsync::Always => "always",
                AppendFsync::EverySecond => "everysec",
            };
            set("--appendfsync", when.into());
        }
        if let Some(port) = self.replica_of {
            set("--replicaof", "127.0.0.1".into());
            args.push(port.to_string().into());
        }
        args.extend(self.args);
        let clock = self.clock.map(|moves| ControlPage::new(dir.path(), moves));

        RedisServer::launch(Parts {
            program: self.program,
            args,
            dir,
            socket,
            port,
            certificates,
            password: self.password,
            clock,
        })
    }
}
