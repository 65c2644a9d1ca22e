//! A service that locks with another library, in a process of its own.

use std::cell::RefCell;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use quorlock_testkit::DEADLINE;

/// Such a service. It is killed when this is dropped: its locks are free once its session has ended.
pub(super) struct Peer {
    process: Child,
    input: ChildStdin,
    answers: Receiver<String>,
    /// An answer that was looked at, and is still to be taken.
    next: RefCell<Option<String>>,
}

impl Peer {
    /// Starts it, and waits until it can be asked.
    pub(super) fn start(command: &mut Command) -> Self {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let output = BufReader::new(process.stdout.take().expect("piped"));
        let (said, answers) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = said.send(line);
            }
        });
        let input = process.stdin.take().expect("piped");
        let peer = Self { process, input, answers, next: RefCell::default() };
        assert_eq!(peer.answer(), "ready");
        peer
    }

    /// What it says next.
    fn answer(&self) -> String {
        let next = self.next.take();
        next.unwrap_or_else(|| {
            self.answers.recv_timeout(DEADLINE).expect("an answer of the service")
        })
    }

    /// Whether it has said nothing yet.
    pub(super) fn is_silent(&self) -> bool {
        let mut next = self.next.borrow_mut();
        *next = next.take().or_else(|| self.answers.try_recv().ok());
        next.is_none()
    }

    /// Tries to take a lock. Its fence, unless it is held.
    pub(super) fn try_lock(&mut self, name: &str) -> Option<u64> {
        self.tell("try", name);
        self.locked(name)
    }

    /// Begins to wait for a lock: it says once that it [has](Self::locked) it.
    pub(super) fn begin_to_lock(&mut self, name: &str) {
        self.tell("lock", name);
    }

    /// The fence of a lock that it has got; `None` if it was refused.
    pub(super) fn locked(&self, name: &str) -> Option<u64> {
        let answer = self.answer();
        if answer == format!("refused {name}") {
            return None;
        }
        let fence = answer.strip_prefix(&format!("locked {name} "));
        let fence = fence.unwrap_or_else(|| panic!("neither locked nor refused: {answer}"));
        Some(fence.parse().expect("a number"))
    }

    pub(super) fn unlock(&mut self, name: &str) {
        self.tell("unlock", name);
        assert_eq!(self.answer(), format!("unlocked {name}"));
    }

    /// Kills it, as it stands.
    pub(super) fn kill(&mut self) {
        self.process.kill().expect("it can be killed");
        self.process.wait().expect("it is gone");
    }

    fn tell(&mut self, command: &str, name: &str) {
        writeln!(self.input, "{command} {name}").expect("it listens");
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
