//! A run of the program that a test talks to while it goes on.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use quorlock_testkit::{DEADLINE, eventually};
use rustix::process::{Pid, Signal, kill_process};

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    /// What ended it, if it did not end by itself.
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs it to its end, with nothing on its stdin.
pub(crate) fn outcome(command: &mut Command) -> Outcome {
    let mut run = Running::start(command);
    run.close_stdin();
    run.end()
}

/// A run that goes on. Its stdin is open until [`close_stdin`](Self::close_stdin).
pub(crate) struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Option<JoinHandle<String>>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self::start_with_stderr(command, Stdio::piped())
    }

    /// Starts it with a stderr that the test has made.
    pub(crate) fn start_with_stderr(command: &mut Command, stderr: impl Into<Stdio>) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .expect("the program starts");
        let stdout = child.stdout.take().expect("it is piped");
        let stderr = child.stderr.take();
        let (sender, lines) = channel();
        // Threads, so that a program that says nothing fails its test instead of hanging it.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let stderr = thread::spawn(move || {
            let mut text = Vec::new();
            let _ = stderr.map(|mut stderr| stderr.read_to_end(&mut text));
            String::from_utf8_lossy(&text).into_owned()
        });
        let stdin = child.stdin.take();
        Self { child, stdin, lines, stderr: Some(stderr) }
    }

    /// The next line on stdout.
    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(DEADLINE).expect("a line on stdout")
    }

    /// The next line on stdout: process ids.
    pub(crate) fn pids(&self) -> Vec<i32> {
        self.line().split(' ').map(|pid| pid.parse().expect("a process id")).collect()
    }

    pub(crate) fn write(&mut self, text: &str) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        stdin.write_all(text.as_bytes()).expect("somebody reads it");
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// The process that was started.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the program, and not to what it runs.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the program runs");
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_none()
    }

    /// Waits for the end.
    pub(crate) fn end(mut self) -> Outcome {
        eventually("the program ends", || !self.is_running());
        let status = self.child.wait().expect("it has ended");
        let stderr = self.stderr.take().expect("only taken here").join().expect("it was read");
        Outcome {
            code: status.code(),
            signal: status.signal(),
            stdout: self.lines.iter().fold(String::new(), |a, b| a + &b + "\n"),
            stderr,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After a failed test: SIGTERM ends what it runs as well, unless it is out of order.
        if self.is_running() {
            self.signal(Signal::TERM);
            self.signal(Signal::CONT);
            self.close_stdin();
            let deadline = Instant::now() + DEADLINE;
            while self.is_running() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(2));
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Whether a process is there and not dead: the dead stay in the list until they are collected.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with(['Z', 'X']))
}
