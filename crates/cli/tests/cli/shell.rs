//! A shell with job control on a terminal, and somebody who types.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use quorlock_testkit::DEADLINE;
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};
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
        Self::on_new_terminal(nodes).expect("a shell on a terminal")
    }

    fn on_new_terminal(nodes: &Nodes) -> io::Result<Self> {
        let (keyboard, other_end) = terminal()?;
        let mut output = keyboard.try_clone()?;
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
        let shell = command
            .stdin(other_end.try_clone()?)
            .stdout(other_end.try_clone()?)
            .stderr(other_end)
            .spawn()?;

        let screen = Arc::<Mutex<String>>::default();
        let shown = Arc::clone(&screen);
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // It fails when the last process on the terminal has ended.
            while let Ok(count) = output.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]);
                shown.lock().expect("nobody panics with it").push_str(&text);
            }
        });
        let mut shell = Self { shell, keyboard, screen, read: 0 };
        shell.sees("$ ");
        Ok(shell)
    }

    pub(crate) fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).expect("the terminal is there");
    }

    /// Waits until the text stands on the screen, after everything that was waited for before, and
    /// returns what stands between.
    pub(crate) fn sees(&mut self, text: &str) -> String {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let screen = self.screen.lock().expect("nobody panics with it").clone();
            let unread = &screen[self.read..];
            if let Some(at) = unread.find(text) {
                self.read += at + text.len();
                return unread[..at].to_owned();
            }
            assert!(Instant::now() < deadline, "no {text:?} on the screen: {unread:?}");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// The exit code of the last command, when it has ended.
    pub(crate) fn exit_code(&mut self) -> String {
        self.types("echo co\"\"de=$?=\n");
        self.sees("code=");
        self.sees("=")
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // What waits in the background outlives the shell: nobody hangs up on it.
        for id in in_session(self.shell.id()) {
            let _ = kill_process(id, Signal::KILL);
        }
        let _ = self.shell.wait();
    }
}

/// The processes of a session, its leader included.
fn in_session(leader: u32) -> Vec<Pid> {
    let stats = fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| {
        let id = entry.ok()?.file_name().to_str()?.parse().ok()?;
        Some((Pid::from_raw(id)?, fs::read_to_string(format!("/proc/{id}/stat")).ok()?))
    });
    // Behind the name, which may have anything in it: state, parent, group, session.
    let session = |stat: &str| stat.rsplit_once(") ")?.1.split(' ').nth(3)?.parse::<u32>().ok();
    stats.filter(|(_, stat)| session(stat) == Some(leader)).map(|(id, _)| id).collect()
}

/// Both ends of a terminal: where somebody sits, and where programs run.
fn terminal() -> io::Result<(File, File)> {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&terminal)?;
    unlockpt(&terminal)?;
    let wide = Winsize { ws_row: 24, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&terminal, wide)?;
    let path = ptsname(&terminal, Vec::new())?;
    let path = Path::new(OsStr::from_bytes(path.as_bytes()));
    // It does not become the terminal that controls the tests.
    let flags = i32::try_from(OFlags::NOCTTY.bits()).unwrap_or_default();
    let other_end = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    Ok((File::from(terminal), other_end))
}
