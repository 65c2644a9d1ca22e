//! A shell with job control on a terminal, and somebody who types.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use quorlock_testkit::DEADLINE;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::nodes::{Nodes, quorlock};

/// What is typed is shown by the terminal as well: a test must not wait for what it has typed.
pub(crate) struct Shell {
    shell: Child,
    keyboard: File,
    screen: Arc<Mutex<String>>,
    /// How much of the screen was read.
    read: usize,
}

impl Shell {
    /// Starts a shell that finds the program in `$QUORLOCK`.
    pub(crate) fn start(nodes: &Nodes) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let terminal = openpt(flags).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let wide = Winsize { ws_row: 24, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal, wide).unwrap();
        let path = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
        let other_end = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let end = || Stdio::from(other_end.try_clone().unwrap());

        // The settings of the program under test, for a shell in a session of its own.
        let mut command = Command::new("env");
        command.args(["--default-signal", "setsid", "--ctty", "bash", "--norc", "--noprofile"]);
        command.args(["--noediting", "-i"]);
        for (name, value) in quorlock().get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env("QUORLOCK_NODES", nodes.urls()).env("TERM", "vt100").env("PS1", "$ ");
        let shell = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();

        let keyboard = File::from(terminal);
        let mut output = keyboard.try_clone().unwrap();
        let screen = Arc::<Mutex<String>>::default();
        let shown = Arc::clone(&screen);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // It fails when the last process on the terminal has ended.
            while let Ok(count) = output.read(&mut bytes) {
                shown.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        let mut shell = Self { shell, keyboard, screen, read: 0 };
        shell.sees("$ ");
        shell
    }

    pub(crate) fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until the text stands on the screen, after everything that was waited for before, and
    /// returns what stands between.
    pub(crate) fn sees(&mut self, text: &str) -> String {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let screen = self.screen.lock().unwrap().clone();
            let unread = &screen[self.read..];
            if let Some(at) = unread.find(text) {
                self.read += at + text.len();
                return unread[..at].to_owned();
            }
            assert!(Instant::now() < deadline, "no {text:?} on the screen: {unread:?}");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits for the prompt, and asks for the exit code of the last command.
    pub(crate) fn exit_code(&mut self) -> String {
        self.types("echo code=$?=\n");
        self.sees("\ncode=");
        self.sees("=")
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // The terminal hangs up then, which ends what still runs on it.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
