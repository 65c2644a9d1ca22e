//! A real MariaDB server in a child process.

use std::ffi::OsString;
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
use crate::skipping::{lacks, program};
use crate::spawner;
use crate::tls::Certificates;
use crate::{DEADLINE, POLL_EVERY};

/// A user with all rights, from anywhere, without a password.
const USER: &str = "admin";
/// The database of its URL.
const DATABASE: &str = "locks";

/// Debian keeps the server in a folder that is not on the PATH of every user.
const DEBIAN: &str = "/usr/sbin/mariadbd";

/// How every server is set up, before what a test wants otherwise.
const SETTINGS: &[&str] = &[
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--skip-log-bin",
    "--performance-schema=OFF",
    "--max-connections=400",
    "--innodb-buffer-pool-size=8M",
    "--innodb-log-file-size=8M",
    "--innodb-flush-log-at-trx-commit=0",
];

/// What keeps each transaction that was answered over a crash.
const DURABLE: &str = "--innodb-flush-log-at-trx-commit=1";

/// Run at each start.
const INIT: &str = "CREATE USER IF NOT EXISTS 'admin'@'%';
GRANT ALL ON *.* TO 'admin'@'%' WITH GRANT OPTION;
CREATE DATABASE IF NOT EXISTS locks;
";

/// A MariaDB server of the test's own, with an empty database. It listens on a unix socket in a directory of its own, and on
/// a port of this machine. It does not wait for its disk, unless it is a [durable](Self::durable) one.
///
/// It can crash and be restarted. It is killed when this is dropped, and when the test's process ends in whatever way.
#[derive(Debug)]
pub struct MariaDbServer {
    child: Mutex<Child>,
    settings: Vec<String>,
    port: ReservedPort,
    dir: TempDir,
}

impl MariaDbServer {
    /// Makes a database and starts a server for it.
    ///
    /// # Panics
    ///
    /// When there is no MariaDB on this machine, or it does not come up. The message has what it wrote.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// One that has written each transaction to its disk before it answers.
    ///
    /// # Panics
    ///
    /// When there is no MariaDB on this machine, or it does not come up. The message has what it wrote.
    #[must_use]
    pub fn durable() -> Self {
        Self::start_with(&[DURABLE])
    }

    /// The same with settings, such as `--max-connections=9`.
    ///
    /// # Panics
    ///
    /// When there is no MariaDB on this machine, or it does not come up. The message has what it wrote.
    #[must_use]
    pub fn start_with(settings: &[&str]) -> Self {
        Self::on(home(), template(), settings)
    }

    /// One that offers TLS, under the names `localhost` and `127.0.0.1`, and is reached by `127.0.0.2` as well. Returns the
    /// authority that vouches for it too.
    ///
    /// # Panics
    ///
    /// When there is no MariaDB on this machine, or it does not come up. The message has what it wrote.
    #[must_use]
    pub fn with_tls() -> (Self, PathBuf) {
        let dir = home();
        let files = Certificates::write_to(dir.path());
        let cert = format!("--ssl-cert={}", files.server.display());
        let key = format!("--ssl-key={}", files.key.display());
        let server =
            Self::on(dir, template(), &["--bind-address=127.0.0.1,127.0.0.2", &cert, &key]);
        (server, files.ca)
    }

    /// Another server, with a copy of what is in the directory of this one, which must not run.
    ///
    /// # Panics
    ///
    /// When it does not come up. The message has what it wrote.
    #[must_use]
    pub fn copy(&self, settings: &[&str]) -> Self {
        Self::on(home(), &self.dir.path().join("data"), settings)
    }

    fn on(dir: TempDir, data: &Path, settings: &[&str]) -> Self {
        succeed(Command::new("cp").arg("-a").arg(data).arg(dir.path().join("data")));
        fs::write(dir.path().join("init.sql"), INIT).expect("a file");
        let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
        let port = ReservedPort::new();
        let child = Mutex::new(launch(dir.path(), port.number(), &settings));
        let server = Self { child, settings, port, dir };
        server.wait_until_ready();
        server
    }

    /// The server that the tests of a process share. Each of them keeps to a [database](Self::fresh_database) of its own,
    /// and leaves the server as it is.
    ///
    /// # Panics
    ///
    /// When there is no MariaDB on this machine, or it does not come up. The message has what it wrote.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<MariaDbServer> = OnceLock::new();
        SHARED.get_or_init(|| {
            let server = Self::start();
            let dir = server.dir.path().to_owned();
            spawner::remove_at_the_end(&[dir]).expect("`sh` can be started");
            server
        })
    }

    /// Makes a database that nobody else has.
    #[must_use]
    pub fn fresh_database(&self) -> String {
        let name = crate::fresh_prefix().trim_matches('/').replace('-', "_");
        self.sql(&format!("CREATE DATABASE {name}"));
        name
    }

    /// Where it listens on this machine.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// The URL of its database, for a user with all rights.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of(USER, DATABASE)
    }

    /// The same for another user, as `user:password` if it has one, and another database.
    #[must_use]
    pub fn url_of(&self, user: &str, database: &str) -> String {
        format!("mysql://{user}@{}/{database}", self.addr())
    }

    /// The URL of its database by its socket.
    #[must_use]
    pub fn socket_url(&self) -> String {
        format!("mysql://{USER}@/{DATABASE}?socket={}", socket(self.dir.path()).display())
    }

    /// Runs some SQL in its database with `mariadb`, and returns what that prints: rows with tabs between their columns.
    ///
    /// # Panics
    ///
    /// When the server does not take it. The message has what it said.
    pub fn sql(&self, sql: &str) -> String {
        match self.client(USER, DATABASE, sql) {
            Ok(printed) => printed,
            Err(said) => panic!("{sql}\n{said}"),
        }
    }

    /// The same as another user. Returns what the server has against it.
    ///
    /// # Errors
    ///
    /// What `mariadb` says.
    pub fn sql_as(&self, user: &str, sql: &str) -> Result<String, String> {
        self.client(user, DATABASE, sql)
    }

    /// The server's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child().id()
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

    /// Kills it, and starts it again.
    ///
    /// # Panics
    ///
    /// When it does not come back.
    pub fn crash(&self) {
        self.kill();
        self.start_again();
    }

    /// Ends it as an operator would.
    ///
    /// # Panics
    ///
    /// When it does not end.
    pub fn stop(&self) {
        let mut child = self.child();
        let _ = kill_process(Pid::from_child(&child), Signal::TERM);
        wait(&mut child);
    }

    /// Kills it.
    ///
    /// # Panics
    ///
    /// When it does not end.
    pub fn kill(&self) {
        let mut child = self.child();
        let _ = child.kill();
        wait(&mut child);
    }

    /// Starts it again after it was ended.
    ///
    /// # Panics
    ///
    /// When it does not come up.
    pub fn start_again(&self) {
        *self.child() = launch(self.dir.path(), self.port.number(), &self.settings);
        self.wait_until_ready();
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn client(&self, user: &str, database: &str, sql: &str) -> Result<String, String> {
        let mut client = Command::new(program("mariadb"))
            .args(["--no-defaults", "--batch", "--skip-column-names", "--user", user, "--socket"])
            .arg(socket(self.dir.path()))
            .arg(database)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it is on the PATH");
        // One that ended already tells why on its stderr.
        let _ = client.stdin.take().expect("piped").write_all(sql.as_bytes());
        let output = client.wait_with_output().expect("it can be waited for");
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    fn wait_until_ready(&self) {
        let deadline = Instant::now() + DEADLINE;
        while let Err(said) = self.client(USER, DATABASE, "SELECT 1") {
            let ended = self.child().try_wait().expect("a child can be waited for");
            if ended.is_some() || Instant::now() > deadline {
                let log = fs::read_to_string(log(self.dir.path())).unwrap_or_default();
                panic!("mariadbd is not there ({ended:?}): {said}\nIts log:\n{log}");
            }
            thread::sleep(POLL_EVERY);
        }
    }
}

impl Drop for MariaDbServer {
    fn drop(&mut self) {
        // The directory is removed after this, when nothing writes to it any more.
        let mut child = self.child();
        if let Ok(None) = child.try_wait() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn home() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

fn wait(child: &mut Child) {
    let deadline = Instant::now() + DEADLINE;
    while let Ok(None) = child.try_wait() {
        assert!(Instant::now() < deadline, "the server does not end");
        thread::sleep(POLL_EVERY);
    }
}

/// An empty database, which takes seconds to be made: once for all servers of a process.
fn template() -> &'static Path {
    static TEMPLATE: OnceLock<PathBuf> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        // Before anything is made that would be left behind.
        server_program();
        let dir = tempfile::tempdir().expect("a directory").keep();
        spawner::remove_at_the_end(std::slice::from_ref(&dir)).expect("`sh` can be started");
        let data = dir.join("data");
        succeed(
            Command::new(program("mariadb-install-db"))
                .args([
                    "--no-defaults",
                    "--skip-test-db",
                    "--auth-root-authentication-method=normal",
                ])
                .args(as_this_user())
                .args(["--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0"])
                .arg(format!("--datadir={}", data.display())),
        );
        data
    })
}

fn launch(dir: &Path, port: u16, settings: &[String]) -> Child {
    let file = |option: &str, path: PathBuf| -> OsString {
        format!("--{option}={}", path.display()).into()
    };
    // Only as the first one.
    let mut args: Vec<OsString> = vec!["--no-defaults".into()];
    args.extend(as_this_user().map(OsString::from));
    args.push(file("datadir", dir.join("data")));
    args.push(file("socket", socket(dir)));
    args.push(file("pid-file", dir.join("pid")));
    args.push(file("init-file", dir.join("init.sql")));
    args.push(format!("--port={port}").into());
    args.extend(SETTINGS.iter().map(OsString::from));
    args.extend(settings.iter().map(OsString::from));
    File::create(log(dir))
        .and_then(|log| spawner::spawn(server_program().as_os_str(), &args, &[], &log))
        .expect("setpriv is part of every Debian")
}

/// It does not run as root unless it is told to.
fn as_this_user() -> Option<&'static str> {
    geteuid().is_root().then_some("--user=root")
}

fn socket(dir: &Path) -> PathBuf {
    dir.join("socket")
}

fn log(dir: &Path) -> PathBuf {
    dir.join("log")
}

fn succeed(command: &mut Command) {
    let output = command.output().expect("a program of this machine");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{said}", output.status);
}

fn server_program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut files =
        std::env::split_paths(&path).map(|folder| folder.join("mariadbd")).chain([DEBIAN.into()]);
    files
        .find(|file| file.is_file())
        .unwrap_or_else(|| lacks("mariadb", "no MariaDB is here: `cargo xtask test` installs it"))
}
