//! A real PostgreSQL server in a child process.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

use crate::skipping::lacks;
use crate::spawner::{self, UNLESS_ORPHANED};
use crate::{DEADLINE, POLL_EVERY};

/// The server refuses to run as root; Debian's package brings this user for it.
const USER: &str = "postgres";

/// Where Debian keeps the programs, by version: they are not on the PATH.
const DEBIAN: &str = "/usr/lib/postgresql";

/// A PostgreSQL server of the test's own, with an empty database. It listens on a unix socket in a
/// directory of its own, and on no port.
///
/// It is stopped when this is dropped, and when the test's process ends in whatever way.
#[derive(Debug)]
pub struct PostgresServer {
    child: Child,
    programs: PathBuf,
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
        let programs = find_programs();
        let dir = tempfile::tempdir().expect("a directory");
        if geteuid().is_root() {
            succeed(Command::new("chown").arg(format!("{USER}:")).arg(dir.path()));
        }
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
        let child = launch(&programs, dir.path());
        let mut server = Self { child, programs, dir };
        server.wait_until_ready();
        server
    }

    /// Runs some SQL with `psql`, and returns what that prints: rows with `|` between their columns,
    /// and for other commands what the server says of them, such as `UPDATE 1`.
    ///
    /// `:name` in it stands for the variable of that name.
    ///
    /// # Panics
    ///
    /// When the server does not take it. The message has what it said.
    #[expect(clippy::must_use_candidate, reason = "what is printed is not always of interest")]
    pub fn sql(&self, sql: &str, variables: &[(&str, i64)]) -> String {
        match self.psql(sql, variables) {
            Ok(printed) => printed,
            Err(said) => panic!("{sql}\n{said}"),
        }
    }

    /// The server's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn psql(&self, sql: &str, variables: &[(&str, i64)]) -> Result<String, String> {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args(["--no-psqlrc", "--no-align", "--tuples-only", "--username", USER, "--host"])
            .arg(self.dir.path())
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

    fn wait_until_ready(&mut self) {
        let deadline = Instant::now() + DEADLINE;
        while let Err(said) = self.psql("SELECT 1", &[]) {
            let ended = self.child.try_wait().expect("a child can be waited for");
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
        // The directory is removed after this, when nothing writes to it any more. It is told to end
        // at once, and not killed: then its children and its shared memory would be left behind.
        if let Ok(None) = self.child.try_wait() {
            // It has not been waited for, so the pid is still its own.
            let _ = kill_process(Pid::from_child(&self.child), Signal::QUIT);
        }
        let deadline = Instant::now() + DEADLINE;
        while let Ok(None) = self.child.try_wait() {
            if Instant::now() > deadline {
                let _ = self.child.kill();
            }
            thread::sleep(POLL_EVERY);
        }
    }
}

fn launch(programs: &Path, dir: &Path) -> Child {
    // The kernel forgets what is to happen at the parent's death when the user changes, so it is told
    // again after that.
    let (first, mut args) = as_its_user(Path::new("setpriv"));
    args.extend(["--pdeathsig", "QUIT", "sh", "-c", UNLESS_ORPHANED].map(OsString::from));
    args.push(std::process::id().to_string().into());
    args.push(programs.join("postgres").into());
    args.extend(["-D".into(), dir.join("data").into(), "-k".into(), dir.into()]);
    for setting in [
        "listen_addresses=",
        "fsync=off",
        "max_connections=20",
        "shared_buffers=4MB",
        // In files of its directory: what lies in /dev/shm could be left behind.
        "dynamic_shared_memory_type=mmap",
    ] {
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
