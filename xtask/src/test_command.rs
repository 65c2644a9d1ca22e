//! `cargo xtask test`: prepares the machine, runs the tests and counts them.

use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::project::Project;
use crate::python_peers::{self, Peers};
use crate::tally::Tally;
use crate::{curator_peer, debian, go_peer};

/// How long the output may be silent before a look is taken whether cargo has ended.
const QUIET: Duration = Duration::from_millis(500);

/// The environment variable that lists what tests may not lack. Without it, as under plain `cargo test`, a test that
/// needs what a machine has not is skipped.
pub(crate) const REQUIRES: &str = "QUORLOCK_TEST_REQUIRES";

/// What is there once all packages are installed.
const INSTALLED: &str = "redis-server,cc,postgres,pgbouncer,mariadb,chromium,valgrind,etcd,java,zookeeper,go-mutex,curator";

/// The clients of other libraries that the tests share locks with.
struct Foreign {
    /// `None` without a Python that they can be installed for.
    python: Option<Peers>,
    /// The program that locks with etcd's own Go library.
    go_mutex: PathBuf,
    /// The class path of the one that locks with Curator.
    curator: String,
}

/// Runs the tests. The last line printed is the summary.
pub(crate) fn run(project: &Project, extra: &[String]) -> Result<ExitCode> {
    let mut notes = Vec::new();
    let peers = prepare(project, &mut notes)?;

    let mut command = project.cargo(test_arguments(extra));
    command.env(REQUIRES, required(peers.python.as_ref()));
    command.env("QUORLOCK_TEST_GO_MUTEX", &peers.go_mutex);
    command.env("QUORLOCK_TEST_CURATOR", &peers.curator);
    if let Some(peers) = &peers.python {
        command.env("QUORLOCK_TEST_PYTHON", &peers.python);
        if let Some(valkey) = &peers.valkey {
            command.env("QUORLOCK_TEST_VALKEY", valkey);
        }
    }
    let (status, tally) = count(&mut command, &mut io::stdout(), &mut notes)?;

    if !status.success() && tally.is_good() {
        notes.push(format!("`cargo test` failed ({status}) beside the tests: see above"));
    }
    if tally.is_empty() {
        notes.push("no test ran: see above, or widen the arguments".to_owned());
    }
    // Said again here, because what was said at the start has long scrolled away.
    for note in &notes {
        eprintln!("note: {note}");
    }
    println!("{tally}");
    Ok(if status.success() && tally.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What no test may lack.
fn required(peers: Option<&Peers>) -> String {
    let python = peers.map(|_| "python");
    let valkey = peers.and_then(|peers| peers.valkey.as_ref()).map(|_| "valkey");
    let peers = python.into_iter().chain(valkey);
    [INSTALLED].into_iter().chain(peers).collect::<Vec<_>>().join(",")
}

/// Installs what is missing. What cannot be had, and the tests can do without, becomes a note.
fn prepare(project: &Project, notes: &mut Vec<String>) -> Result<Foreign> {
    let python = python_peers::find_python();
    let mut packages: Vec<_> = debian::missing_redis().into_iter().collect();
    packages.extend(debian::missing_c_compiler());
    packages.extend(debian::missing_postgres());
    packages.extend(debian::missing_mariadb());
    packages.extend(debian::missing_pgbouncer());
    packages.extend(debian::missing_chromium());
    packages.extend(debian::missing_valgrind());
    packages.extend(debian::missing_etcd());
    packages.extend(debian::missing_zookeeper());
    packages.extend(go_peer::missing_package());
    packages.extend(curator_peer::missing_packages());
    packages.extend(python.as_deref().ok().and_then(python_peers::missing_package));
    debian::install(&packages)?;
    if let Some(redis) = debian::missing_redis() {
        bail!("`{}` is installed but not on the PATH: add its folder to the PATH", redis.name);
    }
    if debian::missing_postgres().is_some() {
        bail!(
            "`postgresql` is installed but no `postgres` is on the PATH: add its folder to the PATH"
        );
    }
    if let Some(package) = debian::missing_etcd()
        .chain(debian::missing_zookeeper())
        .chain(debian::missing_mariadb())
        .next()
    {
        bail!(
            "`{}` is installed but not found: add the folder of its programs to the PATH",
            package.name
        );
    }
    if !debian::missing_c_compiler().is_empty() {
        bail!("`gcc` is installed but no `cc` is on the PATH: add its folder to the PATH");
    }

    let (go_mutex, curator) = (go_peer::prepare(project)?, curator_peer::prepare(project)?);
    let python = match python {
        Ok(python) => Some(python_peers::prepare(project, &python)?),
        Err(reason) => {
            notes.push(format!(
                "the tests with a foreign client and with Valkey are skipped: {reason}"
            ));
            None
        }
    };
    if python.as_ref().is_some_and(|peers| peers.valkey.is_none()) {
        notes.push("the tests with Valkey are skipped: no server program runs here".to_owned());
    }
    for note in notes {
        println!("note: {note}");
    }
    Ok(Foreign { python, go_mutex, curator })
}

/// The arguments for cargo. Without a choice of targets `cargo test` runs the unit, integration
/// and documentation tests once each and builds the examples; `--all-targets` would run the
/// benchmarks too and leave the documentation out.
fn test_arguments(extra: &[String]) -> Vec<&str> {
    let mut arguments = vec!["test", "--all-features", "--no-fail-fast"];
    if !names_packages(extra) {
        arguments.push("--workspace");
    }
    arguments.extend(extra.iter().map(String::as_str));
    arguments
}

/// Whether the arguments choose packages. `--workspace` would overrule the choice.
fn names_packages(extra: &[String]) -> bool {
    let for_cargo = extra.iter().take_while(|arg| *arg != "--");
    for_cargo.into_iter().any(|arg| {
        arg.starts_with("--package") || (arg.starts_with("-p") && !arg.starts_with("--"))
    })
}

/// Runs the command, copies its output to `out` as it comes, and counts the tests in it.
fn count(
    command: &mut Command,
    out: &mut impl Write,
    notes: &mut Vec<String>,
) -> Result<(ExitStatus, Tally)> {
    let mut child =
        command.stdout(Stdio::piped()).spawn().context("`cargo test` does not start")?;
    let lines = lines(&mut child)?;
    let mut tally = Tally::default();
    loop {
        match lines.recv_timeout(QUIET) {
            Ok(line) => {
                out.write_all(&line)?;
                tally.read(&String::from_utf8_lossy(&line));
            }
            Err(RecvTimeoutError::Disconnected) => break,
            // A process left behind by a test keeps the pipe open: its end would never come.
            Err(RecvTimeoutError::Timeout) if child.try_wait()?.is_some() => {
                notes.push("a process started by a test is still running".to_owned());
                break;
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
    tally.close();
    Ok((child.wait()?, tally))
}

/// The lines of the child's output, with their line ends, read on a thread of its own.
fn lines(child: &mut Child) -> Result<Receiver<Vec<u8>>> {
    let output = child.stdout.take().context("the output of `cargo test` is not piped")?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
            if sender.send(std::mem::take(&mut line)).is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn all_packages_unless_some_are_named() {
        assert!(test_arguments(&[]).contains(&"--workspace"));
        assert!(test_arguments(&words("-- -p")).contains(&"--workspace"));
        assert!(test_arguments(&words("--exclude xtask")).contains(&"--workspace"));
        for named in ["-p quorlock", "-pquorlock", "--package quorlock", "--package=quorlock"] {
            assert!(!test_arguments(&words(named)).contains(&"--workspace"), "{named}");
        }
    }

    #[test]
    fn output_is_copied_and_counted() {
        let (mut out, mut notes) = (Vec::new(), Vec::new());
        let script = "echo running 1 test; echo 'test result: ok. 1 passed; 0 failed'; exit 3";
        let mut command = Command::new("sh");
        let (status, tally) = count(command.args(["-c", script]), &mut out, &mut notes).unwrap();
        assert_eq!(status.code(), Some(3));
        assert_eq!(tally.to_string(), "1 passed, 0 failed, 0 skipped");
        assert_eq!(out, b"running 1 test\ntest result: ok. 1 passed; 0 failed\n");
        assert!(notes.is_empty(), "{notes:?}");
    }

    #[test]
    fn a_process_left_behind_does_not_hold_up_the_run() {
        let (mut out, mut notes) = (Vec::new(), Vec::new());
        let script = "echo 'test result: ok. 2 passed; 0 failed'; sleep 8 2>/dev/null &";
        let mut command = Command::new("sh");
        let started = Instant::now();
        let (status, tally) = count(command.args(["-c", script]), &mut out, &mut notes).unwrap();
        assert!(status.success());
        assert_eq!(tally.to_string(), "2 passed, 0 failed, 0 skipped");
        assert!(started.elapsed() < Duration::from_secs(7), "waited for the process");
        assert_eq!(notes, ["a process started by a test is still running"]);
    }
}
