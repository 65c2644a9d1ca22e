//! Servers that are members of one whole: what etcd and ZooKeeper have in common here.

use std::any::Any;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use tempfile::TempDir;

use crate::clock::ControlPage;
use crate::server::{self, ReservedPort};
use crate::{POLL_EVERY, spawner};

/// How long members may take to come up, or to agree on a leader. It is long because several
/// of them start at once, and a machine of few cores may have other tests to run.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long one question to a member may take before it is asked again. One that is just starting
/// takes a connection and may never answer on it, so this is what a start may take longer.
const ANSWER_WITHIN: Duration = Duration::from_millis(300);

/// A part of the store that no other test gets: `/test-PROCESS-NUMBER`, a prefix of keys in etcd or
/// a path in ZooKeeper.
///
/// It is there for tests that share an ensemble. In ZooKeeper, nobody has made a node of that name
/// yet.
#[must_use]
pub fn fresh_prefix() -> String {
    static GIVEN: AtomicUsize = AtomicUsize::new(0);
    let number = GIVEN.fetch_add(1, Ordering::Relaxed);
    // Of one length, so that none is the beginning of another.
    format!("/test-{}-{number:06}", std::process::id())
}

/// A process and what it keeps over a restart.
#[derive(Debug)]
pub(crate) struct Member {
    child: Mutex<Child>,
    program: OsString,
    args: Vec<OsString>,
    /// Its own, if it has one.
    clock: Option<ControlPage>,
    home: Home,
}

/// Where a member lives: known to the others before any of them is started.
#[derive(Debug)]
pub(crate) struct Home {
    dir: TempDir,
    /// The first is for clients.
    ports: Vec<ReservedPort>,
}

impl Home {
    /// A directory and so many ports.
    pub(crate) fn new(kind: &str, ports: usize) -> Self {
        let dir = TempDir::with_prefix(format!("quorlock-{kind}-")).expect("a temporary directory");
        Self { dir, ports: (0..ports).map(|_| ReservedPort::new()).collect() }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn port(&self, which: usize) -> u16 {
        self.ports[which].number()
    }

    fn log(&self) -> PathBuf {
        self.dir().join("server.log")
    }
}

impl Member {
    pub(crate) fn launch(program: OsString, args: Vec<OsString>, home: Home) -> Self {
        Self::launch_by(None, program, args, home)
    }

    /// The same with a clock of its own.
    pub(crate) fn launch_by(
        clock: Option<ControlPage>,
        program: OsString,
        args: Vec<OsString>,
        home: Home,
    ) -> Self {
        let child = Mutex::new(spawn(&program, &args, clock.as_ref(), &home));
        Self { child, program, args, clock, home }
    }

    /// Moves its clock at once, forward or back.
    pub(crate) fn jump_ms(&self, by_ms: i64) {
        let clock = self.clock.as_ref().expect("a member with a clock of its own");
        assert_eq!(clock.pid(), self.pid(), "the member does not go by its own clock");
        clock.jump(by_ms.checked_mul(1_000_000).expect("a jump of fewer than 292 years"));
    }

    /// Where clients find it.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.home.ports[0].addr()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child().id()
    }

    pub(crate) fn stop(&self) {
        server::pause(server::running(&mut self.child()));
    }

    pub(crate) fn cont(&self) {
        server::resume(server::running(&mut self.child()));
    }

    /// Where it keeps what is to outlast it.
    pub(crate) fn home_dir(&self) -> &Path {
        self.home.dir()
    }

    pub(crate) fn kill(&self) {
        server::kill(&mut self.child());
    }

    /// Starts the process again, and does not wait for it.
    pub(crate) fn relaunch(&self) {
        let mut child = self.child();
        server::kill(&mut child);
        *child = spawn(&self.program, &self.args, self.clock.as_ref(), &self.home);
    }

    /// Whether the process is there and does not stand still.
    pub(crate) fn goes(&self) -> bool {
        let mut child = self.child();
        server::is_running(&mut child)
            && server::process_state(Pid::from_child(&child)) != Some('T')
    }

    /// Sends some bytes on a connection of its own, and returns all that comes until its end. One
    /// that does not go is not asked.
    pub(crate) fn ask(&self, question: &str) -> io::Result<String> {
        if !self.goes() {
            return Err(io::Error::other("the member is down or stands still"));
        }
        let mut stream = TcpStream::connect_timeout(&self.addr(), ANSWER_WITHIN)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.set_write_timeout(Some(ANSWER_WITHIN))?;
        stream.write_all(question.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    /// A test that panicked while it held the lock must not keep the member from being killed.
    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // The directory is removed after this, when nothing writes to it any more.
        self.kill();
    }
}

fn spawn(program: &OsString, args: &[OsString], clock: Option<&ControlPage>, home: &Home) -> Child {
    let variables = clock.map_or(&[][..], ControlPage::environment);
    let log = File::options().create(true).append(true).open(home.log());
    log.and_then(|log| spawner::spawn(program, args, variables, &log))
        .unwrap_or_else(|error| panic!("the member cannot be started with setpriv: {error}"))
}

/// Waits until all members that go are `healthy`, unless they are too few for that, and panics when
/// one ends or the time is up.
pub(crate) fn wait_until_healthy(members: &[Member], healthy: impl Fn(&Member) -> bool) {
    let going: Vec<_> = members.iter().filter(|member| member.goes()).collect();
    if going.len() <= members.len() / 2 {
        return;
    }
    let deadline = Instant::now() + PATIENCE;
    for member in going {
        while !healthy(member) {
            let fate = match member.child().try_wait() {
                Ok(None) if Instant::now() < deadline => {
                    thread::sleep(POLL_EVERY);
                    continue;
                }
                Ok(None) => format!("is not healthy within {PATIENCE:?}"),
                Ok(Some(status)) => format!("ended with {status}"),
                Err(error) => format!("cannot be waited for: {error}"),
            };
            let program = member.program.display();
            let log = server::log_tail(&member.home.log());
            panic!("{program} {fate}. Its log ends with:\n{log}");
        }
    }
}

/// Waits until a member leads, and returns which. `term` returns the term of a member that says it
/// leads: one that has lost the lead without noticing yet says so too, but of an earlier term.
pub(crate) fn leader(members: &[Member], term: impl Fn(&Member) -> Option<u64>) -> usize {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let leading = members.iter().enumerate();
        let leading = leading.filter_map(|(index, member)| Some((term(member)?, index)));
        if let Some((_, index)) = leading.max() {
            return index;
        }
        assert!(Instant::now() < deadline, "no member leads within {PATIENCE:?}");
        thread::sleep(POLL_EVERY);
    }
}

/// The ensembles that the tests of a process share, by their number of members.
#[derive(Debug)]
pub(crate) struct Shared<E: 'static>(Mutex<Option<HashMap<usize, &'static E>>>);

impl<E: Any> Shared<E> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Returns the ensemble of so many members, which the first to ask starts. It dies with this
    /// process, as every server here does, and its directories go too.
    pub(crate) fn get(
        &self,
        members: usize,
        start: impl FnOnce(usize) -> E,
        members_of: impl FnOnce(&E) -> &[Member],
    ) -> &'static E {
        // A start that panicked has put nothing in: the next tries again.
        let mut ensembles = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ensembles.get_or_insert_default().entry(members).or_insert_with(|| {
            let ensemble = Box::leak(Box::new(start(members)));
            let homes = members_of(ensemble).iter().map(|member| member.home.dir().to_owned());
            spawner::remove_at_the_end(&homes.collect::<Vec<_>>()).expect("`sh` can be started");
            ensemble
        })
    }
}
