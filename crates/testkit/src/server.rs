//! A real server in a child process.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;
use tokio::net::TcpSocket;

use crate::clock::ControlPage;
use crate::tls::Certificates;
use crate::{
    Client, DEADLINE, POLL_EVERY, RedisServerBuilder, Reply, ServerClock, eventually, spawner,
};

/// A Redis or Valkey server of the test's own.
///
/// It is killed when this is dropped, and when the test's process ends in whatever way.
#[derive(Debug)]
pub struct RedisServer {
    child: Mutex<Child>,
    parts: Parts,
}

/// What a server keeps over a restart.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    pub(crate) dir: TempDir,
    pub(crate) socket: PathBuf,
    pub(crate) port: Option<ReservedPort>,
    pub(crate) certificates: Option<Certificates>,
    pub(crate) password: Option<String>,
    pub(crate) clock: Option<ControlPage>,
}

/// A port that nobody else gets, also while its server is down.
///
/// The socket is bound but does not listen. With `SO_REUSEADDR`, which servers set too, that lets
/// the server bind the same port, yet the kernel gives it to no one who asks for any free port.
#[derive(Debug)]
pub(crate) struct ReservedPort {
    addr: SocketAddr,
    _bound: TcpSocket,
}

impl ReservedPort {
    pub(crate) fn new() -> Self {
        let bind = || {
            let socket = TcpSocket::new_v4()?;
            socket.set_reuseaddr(true)?;
            socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
            io::Result::Ok(Self { addr: socket.local_addr()?, _bound: socket })
        };
        bind().expect("a free port on 127.0.0.1")
    }

    pub(crate) fn number(&self) -> u16 {
        self.addr.port()
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl RedisServer {
    /// Starts a server with no options.
    ///
    /// # Panics
    ///
    /// When it does not come up. The message has the end of the server's log.
    #[must_use]
    pub fn start() -> Self {
        Self::builder().start()
    }

    /// The options of a server that is yet to be started.
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::new()
    }

    pub(crate) fn launch(parts: Parts) -> Self {
        Self { child: Mutex::new(parts.spawn()), parts }
    }

    /// Where a client finds the server, with the password and the authority if it has them.
    ///
    /// `redis://:PASSWORD@127.0.0.1:PORT`, `rediss://:PASSWORD@localhost:PORT?ca=PATH` or
    /// `redis+unix:///PATH?pass=PASSWORD`.
    #[must_use]
    pub fn url(&self) -> String {
        let password = self.parts.password.as_deref().map(|password| percent_encoded(password, ""));
        let Some(port) = &self.parts.port else {
            let path = percent_encoded(&self.parts.socket.to_string_lossy(), "/");
            // A URL without a host has no room for a password before it.
            let query = password.map(|password| format!("?pass={password}")).unwrap_or_default();
            return format!("redis+unix://{path}{query}");
        };
        let user = password.map(|password| format!(":{password}@")).unwrap_or_default();
        match &self.parts.certificates {
            Some(certificates) => {
                let ca = percent_encoded(&certificates.ca.to_string_lossy(), "/");
                format!("rediss://{user}localhost:{}?ca={ca}", port.number())
            }
            None => format!("redis://{user}{}", port.addr),
        }
    }

    /// The address of the TCP or TLS port.
    ///
    /// # Panics
    ///
    /// When the server listens on a unix socket only.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.parts.port.as_ref().expect("the server has no port, only a unix socket").addr
    }

    /// The TCP or TLS port.
    ///
    /// # Panics
    ///
    /// When the server listens on a unix socket only.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.addr().port()
    }

    /// The certificate of the authority that signed the server's, as a PEM file.
    ///
    /// # Panics
    ///
    /// When the server has no TLS.
    #[must_use]
    pub fn tls_ca(&self) -> &Path {
        &self.parts.certificates.as_ref().expect("the server has no TLS").ca
    }

    /// The clock that the server was started with, to set it.
    ///
    /// # Panics
    ///
    /// When the server was started without [`own_clock`](RedisServerBuilder::own_clock).
    #[must_use]
    pub fn clock(&self) -> ServerClock<'_> {
        let page = self.parts.clock.as_ref().expect("the server has no clock of its own");
        ServerClock::new(self, page)
    }

    /// The number that the server drew when it started, as `INFO` has it.
    ///
    /// # Panics
    ///
    /// When the server does not answer.
    #[must_use]
    pub fn run_id(&self) -> String {
        self.info("server", "run_id").expect("every server has a run id")
    }

    /// How many keys it keeps for locks that are held or wanted: not the fences of past holders, which
    /// stay for a day, and not the mark of the server, nor where old ones are cleared away.
    ///
    /// # Panics
    ///
    /// When the server does not answer.
    #[must_use]
    pub fn kept(&self) -> i64 {
        let count = "local kept = 0
            for _, key in ipairs(redis.call('KEYS', '*')) do
              local value = redis.call('TYPE', key).ok == 'string' and redis.call('GET', key) or ''
              local past = key:match(':quorlock:fence$') or key:match(':quorlock:set$')
                or key:match(':quorlock:sweep$')
                or value:match('^quorlock %d+[=-]')
              if not past then kept = kept + 1 end
            end
            return kept";
        match self.command(&["EVAL", count, "0"]) {
            Reply::Int(kept) => kept,
            other => panic!("{other:?}"),
        }
    }

    /// The server's process, or its last one if it is down.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child().id()
    }

    /// Whether the process is there. A paused one is.
    ///
    /// # Panics
    ///
    /// When the system cannot tell.
    #[must_use]
    pub fn is_running(&self) -> bool {
        is_running(&mut self.child())
    }

    /// Stops the process where it is, and waits until it stands still.
    ///
    /// Its port still accepts connections and takes bytes, as the kernel does that.
    ///
    /// # Panics
    ///
    /// When the server is down.
    pub fn pause(&self) {
        pause(running(&mut self.child()));
    }

    /// Lets a paused process go on.
    ///
    /// # Panics
    ///
    /// When the server is down.
    pub fn resume(&self) {
        resume(running(&mut self.child()));
    }

    /// Kills the process, paused or not, and waits until it is gone.
    pub fn kill(&self) {
        kill(&mut self.child());
    }

    /// Starts the server again where it was, with the same options, and waits until it answers.
    ///
    /// It is killed first if it still runs. What it stored is lost, unless it is `appendonly`.
    ///
    /// # Panics
    ///
    /// When it does not come up.
    pub fn restart(&self) {
        self.restart_after(|_| {});
    }

    /// As [`restart`](Self::restart). While the server is down, `act` works on its directory.
    pub(crate) fn restart_after(&self, act: impl FnOnce(&Path)) {
        let mut child = self.child();
        kill(&mut child);
        act(self.dir());
        *child = self.parts.spawn();
        drop(child);
        self.wait_until_ready();
    }

    /// Runs a command on the server itself, on a connection of its own: past any proxy, without TLS
    /// and with the password given.
    ///
    /// # Panics
    ///
    /// When the server does not answer. An error it answers is a [`Reply::Error`].
    pub fn command<A: AsRef<[u8]>>(&self, args: &[A]) -> Reply {
        self.connect()
            .and_then(|mut client| client.command(args))
            .unwrap_or_else(|error| panic!("no answer from the server itself: {error}"))
    }

    /// A connection to the server itself, as [`command`](Self::command) uses it.
    ///
    /// # Errors
    ///
    /// When the server is down, stays silent, or does not take the password.
    pub fn connect(&self) -> io::Result<Client<UnixStream>> {
        let stream = UnixStream::connect(&self.parts.socket)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        stream.set_write_timeout(Some(DEADLINE))?;
        let mut client = Client::over(stream);
        if let Some(password) = &self.parts.password {
            let reply = client.command(&["AUTH", password])?;
            if reply != Reply::Simple("OK".into()) {
                return Err(io::Error::other(format!("AUTH: {reply:?}")));
            }
        }
        Ok(client)
    }

    /// Where the server keeps its files.
    pub(crate) fn dir(&self) -> &Path {
        self.parts.dir.path()
    }

    /// A field of a section of `INFO`, if the server has it.
    ///
    /// # Panics
    /// If the server does not answer.
    #[must_use]
    pub fn info(&self, section: &str, field: &str) -> Option<String> {
        let reply = self.command(&["INFO", section]);
        let Reply::Bulk(Some(text)) = &reply else { panic!("INFO {section}: {reply:?}") };
        let text = String::from_utf8_lossy(text);
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        fields.find(|(name, _)| *name == field).map(|(_, value)| value.to_owned())
    }

    /// Does something while the process stands still. One that is paused or down is left so.
    pub(crate) fn while_still(&self, act: impl FnOnce()) {
        let mut child = self.child();
        let pid = Pid::from_child(&child);
        let goes = is_running(&mut child) && process_state(pid) != Some('T');
        if goes {
            pause(pid);
        }
        act();
        if goes {
            resume(pid);
        }
    }

    pub(crate) fn wait_until_ready(&self) {
        let deadline = Instant::now() + DEADLINE;
        let pong = Reply::Simple("PONG".into());
        // The socket lies in the server's own directory, so no other server can answer there.
        while !self.connect().and_then(|mut c| c.command(&["PING"])).is_ok_and(|r| r == pong) {
            let fate = match self.child().try_wait() {
                Ok(None) if Instant::now() < deadline => {
                    thread::sleep(POLL_EVERY);
                    continue;
                }
                Ok(None) => format!("did not answer within {DEADLINE:?}"),
                Ok(Some(status)) => format!("ended with {status}"),
                Err(error) => format!("cannot be waited for: {error}"),
            };
            let program = self.parts.program.display();
            panic!("{program} {fate}. Its log ends with:\n{}", self.parts.log_tail());
        }
        let program = self.parts.program.display();
        assert!(
            self.parts.clock.as_ref().is_none_or(|clock| clock.pid() == self.pid()),
            "{program} does not go by its own clock: is it linked statically?\n{}",
            self.parts.log_tail()
        );
    }

    /// A test that panicked while it held the lock must not keep the server from being killed.
    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // The directory is removed after this, when nothing writes to it any more.
        self.kill();
    }
}

impl Parts {
    fn spawn(&self) -> Child {
        let log = File::options().create(true).append(true).open(self.log());
        let variables = self.clock.as_ref().map_or(&[][..], ControlPage::environment);
        log.and_then(|log| spawner::spawn(&self.program, &self.args, variables, &log))
            .unwrap_or_else(|error| panic!("the server cannot be started with setpriv: {error}"))
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("server.log")
    }

    fn log_tail(&self) -> String {
        log_tail(&self.log())
    }
}

/// The last lines of a log.
pub(crate) fn log_tail(log: &Path) -> String {
    let log = fs::read(log).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// The process, which is there.
pub(crate) fn running(child: &mut Child) -> Pid {
    assert!(is_running(child), "the server is down");
    Pid::from_child(child)
}

pub(crate) fn pause(pid: Pid) {
    kill_process(pid, Signal::STOP).expect("the server can be signalled");
    eventually("the server is paused", || process_state(pid) == Some('T'));
}

pub(crate) fn resume(pid: Pid) {
    kill_process(pid, Signal::CONT).expect("the server can be signalled");
    eventually("the server goes on", || process_state(pid) != Some('T'));
}

pub(crate) fn is_running(child: &mut Child) -> bool {
    child.try_wait().expect("a child can be waited for").is_none()
}

pub(crate) fn kill(child: &mut Child) {
    // Only a process that has not been waited for still owns its pid.
    if is_running(child) {
        // The whole group, as a server forks to write its files.
        kill_process_group(Pid::from_child(child), Signal::KILL).expect("the server can be killed");
        child.wait().expect("a child can be waited for");
    }
}

/// The letter that `/proc` shows for what the process is doing.
pub(crate) fn process_state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The program's name comes before it, in brackets, and may have brackets itself.
    stat.rsplit_once(") ")?.1.chars().next()
}

fn percent_encoded(text: &str, kept: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        let character = char::from(byte);
        if character.is_ascii_alphanumeric()
            || "-._~".contains(character)
            || kept.contains(character)
        {
            encoded.push(character);
        } else {
            write!(encoded, "%{byte:02X}").expect("a string takes what is written");
        }
    }
    encoded
}
