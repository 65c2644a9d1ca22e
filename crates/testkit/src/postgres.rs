//! A real PostgreSQL server in a child process.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

use crate::server::ReservedPort;
use crate::skipping::lacks;
use crate::spawner::{self, UNLESS_ORPHANED};
use crate::tls::Certificates;
use crate::{DEADLINE, POLL_EVERY};

/// The server refuses to run as root; Debian's package brings this user for it.
const USER: &str = "postgres";

/// Where Debian keeps the programs, by version: they are not on the PATH.
const DEBIAN: &str = "/usr/lib/postgresql";

/// How every server is set up, before what a test wants otherwise.
const SETTINGS: &[&str] = &[
    "listen_addresses=127.0.0.1",
    "fsync=off",
    "max_connections=60",
    "shared_buffers=4MB",
    // In files of its directory: what lies in /dev/shm could be left behind.
    "dynamic_shared_memory_type=mmap",
];

/// A PostgreSQL server of the test's own, with an empty database. It listens on a unix socket in a
/// directory of its own, and on a port of this machine.
///
/// It can crash, be restarted, and have a standby. It is stopped when this is dropped, and when the test's process ends
/// in whatever way.
#[derive(Debug)]
pub struct PostgresServer {
    child: Mutex<Child>,
    programs: PathBuf,
    settings: Vec<String>,
    port: ReservedPort,
    dir: TempDir,
}

impl PostgresServer {
    /// Makes a database and starts a server for it.
    ///
    /// # Panics
    ///
    /// When there is no PostgreSQL on this machine, or it does not come up. The message has what
    /// it wrote.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with settings, such as `max_connections=9`.
    ///
    /// # Panics
    ///
    /// When there is no PostgreSQL on this machine, or it does not come up. The message has what
    /// it wrote.
    #[must_use]
    pub fn start_with(settings: &[&str]) -> Self {
        let programs = find_programs();
        let dir = home();
        let (first, rest) = as_its_user(&programs.join("initdb"));
        succeed(
            Command::new(first)
                .args(rest)
                .args(["--username", USER, "--auth", "trust", "--encoding", "UTF8"])
                // Nothing here has to survive the machine.
                .args(["--no-locale", "--no-sync", "--pgdata"])
                .arg(dir.path().join("data"))
                // It looks at where it stands, which its user may not be allowed to.
                .current_dir(dir.path()),
        );
        Self::run(programs, dir, settings.iter().map(|&setting| setting.to_owned()).collect())
    }

    /// The server that the tests of a process share. Each of them keeps to a schema or a database of its own, and leaves
    /// the server as it is.
    ///
    /// # Panics
    ///
    /// When there is no PostgreSQL on this machine, or it does not come up. The message has what
    /// it wrote.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<PostgresServer> = OnceLock::new();
        SHARED.get_or_init(|| {
            let server = Self::start();
            let dir = server.dir.path().to_owned();
            spawner::remove_at_the_end(&[dir]).expect("`sh` can be started");
            server
        })
    }

    /// Starts a standby of this server, which follows it as soon as it can and not sooner.
    ///
    /// # Panics
    ///
    /// When it does not come up. The message has what it wrote.
    #[must_use]
    pub fn standby(&self) -> Self {
        let dir = home();
        let (first, rest) = as_its_user(&self.programs.join("pg_basebackup"));
        succeed(
            Command::new(first)
                .args(rest)
                .args([
                    "--username",
                    USER,
                    "--write-recovery-conf",
                    "--checkpoint",
                    "fast",
                    "--no-sync",
                    "--host",
                ])
                .arg(self.dir.path())
                .arg("--port")
                .arg(self.port.number().to_string())
                .arg("--pgdata")
                .arg(dir.path().join("data"))
                .current_dir(dir.path()),
        );
        Self::run(self.programs.clone(), dir, self.settings.clone())
    }

    /// Has a standby become a primary, and waits until it is one.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub fn promote(&self) {
        assert_eq!(self.sql("SELECT pg_promote()", &[]), "t\n");
    }

    fn run(programs: PathBuf, dir: TempDir, settings: Vec<String>) -> Self {
        let port = ReservedPort::new();
        let child = Mutex::new(launch(&programs, dir.path(), port.number(), &settings));
        let server = Self { child, programs, settings, port, dir };
        server.wait_until_ready();
        server
    }

    /// Where it listens on this machine.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// The URL of its database, for a user with all rights.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(USER)
    }

    /// The same for another user, or a user with a password, as `user:password`.
    #[must_use]
    pub fn url_of(&self, user: &str) -> String {
        format!("postgres://{user}@{}/postgres", self.addr())
    }

    /// The URL of its database by its socket.
    #[must_use]
    pub fn socket_url(&self) -> String {
        let (dir, port) = (self.dir.path().display(), self.port.number());
        format!("postgres://{USER}@/postgres?host={dir}&port={port}")
    }

    /// Runs some SQL with `psql`, and returns what that prints: rows with `|` between their columns,
    /// and for other commands what the server says of them, such as `UPDATE 1`.
    ///
    /// `:name` in it stands for the variable of that name.
    ///
    /// # Panics
    ///
    /// When the server does not take it. The message has what it said.
    pub fn sql(&self, sql: &str, variables: &[(&str, i64)]) -> String {
        match self.psql(USER, sql, variables) {
            Ok(printed) => printed,
            Err(said) => panic!("{sql}\n{said}"),
        }
    }

    /// The same as another user. Returns what the server has against it.
    ///
    /// # Errors
    ///
    /// What `psql` says.
    pub fn sql_as(&self, user: &str, sql: &str) -> Result<String, String> {
        self.psql(user, sql, &[])
    }

    /// Puts a line before those of `pg_hba.conf`, which say how users log in, and has the server read it.
    ///
    /// # Panics
    ///
    /// When that cannot be done.
    pub fn put_before_hba(&self, line: &str) {
        let file = self.dir.path().join("data/pg_hba.conf");
        let before = fs::read_to_string(&file).expect("the file");
        fs::write(&file, format!("{line}\n{before}")).expect("the file");
        self.sql("SELECT pg_reload_conf()", &[]);
    }

    /// Has it speak TLS to those who want it. Returns the file of the authority that vouches for it as `localhost` and
    /// `127.0.0.1`.
    ///
    /// # Panics
    ///
    /// When that cannot be done.
    #[must_use]
    pub fn use_tls(&self) -> PathBuf {
        let files = Certificates::write_to(self.dir.path());
        let mut key = Command::new("chmod");
        succeed(key.arg("600").arg(&files.key));
        if geteuid().is_root() {
            let mut owner = Command::new("chown");
            succeed(owner.arg(format!("{USER}:")).args([&files.server, &files.key]));
        }
        for (setting, file) in [("ssl_cert_file", &files.server), ("ssl_key_file", &files.key)] {
            self.sql(&format!("ALTER SYSTEM SET {setting} = '{}'", file.display()), &[]);
        }
        self.sql("ALTER SYSTEM SET ssl = on", &[]);
        self.sql("SELECT pg_reload_conf()", &[]);
        let deadline = Instant::now() + DEADLINE;
        while self.sql("SHOW ssl", &[]) != "on\n" {
            assert!(Instant::now() < deadline, "it does not speak TLS");
            thread::sleep(POLL_EVERY);
        }
        files.ca
    }

    /// The server's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child().id()
    }

    /// Kills one of its processes, after which it ends all others, and starts them anew by itself. What was in unlogged
    /// tables is gone then.
    ///
    /// # Panics
    ///
    /// When it does not come back.
    pub fn crash(&self) {
        let pid =
            self.sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'", &[]);
        kill(pid.trim().parse().expect("a pid"), Signal::KILL);
        let gone = Path::new("/proc").join(pid.trim());
        let deadline = Instant::now() + DEADLINE;
        while gone.exists() {
            assert!(Instant::now() < deadline, "a killed process is still there");
            thread::sleep(POLL_EVERY);
        }
        self.wait_until_ready();
    }

    /// Ends it as an operator would, and starts it again.
    ///
    /// # Panics
    ///
    /// When it does not come back.
    pub fn restart(&self) {
        self.stop();
        self.start_again();
    }

    /// Ends it as an operator would.
    ///
    /// # Panics
    ///
    /// When it does not end.
    pub fn stop(&self) {
        let mut child = self.child();
        let _ = kill_process(Pid::from_child(&child), Signal::INT);
        wait(&mut child);
    }

    /// Kills all its processes at the same moment.
    ///
    /// # Panics
    ///
    /// When they do not end.
    pub fn kill(&self) {
        let mut child = self.child();
        let pid = child.id();
        let children =
            fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        // The first of all: it would start the others anew.
        let _ = child.kill();
        for pid in children.split_whitespace() {
            kill(pid.parse().expect("a pid"), Signal::KILL);
        }
        wait(&mut child);
        let deadline = Instant::now() + DEADLINE;
        while children.split_whitespace().any(|pid| Path::new("/proc").join(pid).exists()) {
            assert!(Instant::now() < deadline, "killed processes are still there");
            thread::sleep(POLL_EVERY);
        }
    }

    /// Starts it again after it was ended.
    ///
    /// # Panics
    ///
    /// When it does not come up.
    pub fn start_again(&self) {
        *self.child() = launch(&self.programs, self.dir.path(), self.port.number(), &self.settings);
        self.wait_until_ready();
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn psql(&self, user: &str, sql: &str, variables: &[(&str, i64)]) -> Result<String, String> {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["--no-psqlrc", "--no-align", "--tuples-only", "--username", user, "--host"])
            .arg(self.dir.path())
            .arg("--port")
            .arg(self.port.number().to_string())
            .args(["--dbname", "postgres", "--set", "ON_ERROR_STOP=1", "--file", "-"]);
        for (name, value) in variables {
            psql.arg("--set").arg(format!("{name}={value}"));
        }
        let mut psql = psql
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("psql stands beside the server");
        // One that ended already tells why on its stderr.
        let _ = psql.stdin.take().expect("piped").write_all(sql.as_bytes());
        let output = psql.wait_with_output().expect("psql can be waited for");
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    fn wait_until_ready(&self) {
        let deadline = Instant::now() + DEADLINE;
        while let Err(said) = self.psql(USER, "SELECT 1", &[]) {
            let ended = self.child().try_wait().expect("a child can be waited for");
            if ended.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(log(self.dir.path())).unwrap_or_default();
                panic!("postgres is not there ({ended:?}): {said}\nIts log:\n{log}");
            }
            thread::sleep(POLL_EVERY);
        }
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        let mut child = self.child();
        // The directory is removed after this, when nothing writes to it any more. It is told to end
        // at once, and not killed: then its children and its shared memory would be left behind.
        if let Ok(None) = child.try_wait() {
            // It has not been waited for, so the pid is still its own.
            let _ = kill_process(Pid::from_child(&child), Signal::QUIT);
        }
        let deadline = Instant::now() + DEADLINE;
        while let Ok(None) = child.try_wait() {
            if Instant::now() > deadline {
                let _ = child.kill();
            }
            thread::sleep(POLL_EVERY);
        }
    }
}

/// A directory of its user's own.
fn home() -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    if geteuid().is_root() {
        succeed(Command::new("chown").arg(format!("{USER}:")).arg(dir.path()));
    }
    dir
}

fn kill(pid: i32, signal: Signal) {
    // It may have ended by itself.
    let _ = kill_process(Pid::from_raw(pid).expect("a pid"), signal);
}

fn wait(child: &mut Child) {
    let deadline = Instant::now() + DEADLINE;
    while let Ok(None) = child.try_wait() {
        assert!(Instant::now() < deadline, "the server does not end");
        thread::sleep(POLL_EVERY);
    }
}

fn launch(programs: &Path, dir: &Path, port: u16, settings: &[String]) -> Child {
    // The kernel forgets what is to happen at the parent's death when the user changes, so it is told
    // again after that.
    let (first, mut args) = as_its_user(Path::new("setpriv"));
    args.extend(["--pdeathsig", "QUIT", "sh", "-c", UNLESS_ORPHANED].map(OsString::from));
    args.push(std::process::id().to_string().into());
    args.push(programs.join("postgres").into());
    args.extend(["-D".into(), dir.join("data").into(), "-k".into(), dir.into()]);
    args.extend(["-p".into(), port.to_string().into()]);
    for setting in SETTINGS.iter().copied().chain(settings.iter().map(String::as_str)) {
        args.extend(["-c".into(), setting.into()]);
    }
    File::create(log(dir))
        .and_then(|log| spawner::spawn(&first, &args, &[], &log))
        .expect("setpriv is part of every Debian")
}

fn log(dir: &Path) -> PathBuf {
    dir.join("log")
}

/// A program and its first arguments, such that it does not run as root.
fn as_its_user(program: &Path) -> (OsString, Vec<OsString>) {
    if !geteuid().is_root() {
        return (program.into(), Vec::new());
    }
    let mut args =
        ["--reuid", USER, "--regid", USER, "--clear-groups"].map(OsString::from).to_vec();
    args.push(program.into());
    ("setpriv".into(), args)
}

fn succeed(command: &mut Command) {
    let output = command.output().expect("a program of this machine");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
}

/// The folder of the server's programs.
fn find_programs() -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let server = env::split_paths(&path).map(|folder| folder.join("postgres"));
    // A link leads to where its siblings are.
    let on_path = server.filter_map(|file| file.canonicalize().ok()).find(|file| file.is_file());
    let folder = on_path.and_then(|file| Some(file.parent()?.to_owned())).or_else(newest_of_debian);
    folder.unwrap_or_else(|| {
        lacks("postgres", "no PostgreSQL is here: `cargo xtask test` installs it")
    })
}

fn newest_of_debian() -> Option<PathBuf> {
    let version = |folder: &PathBuf| -> Option<u32> {
        folder.file_name().and_then(OsStr::to_str)?.parse().ok()
    };
    let folders = fs::read_dir(DEBIAN).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let with_server = folders.filter(|folder| folder.join("bin/postgres").is_file());
    Some(with_server.max_by_key(version)?.join("bin"))
}
