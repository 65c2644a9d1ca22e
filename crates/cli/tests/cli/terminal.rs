//! A terminal with a program on it, and somebody who types.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use quorlock_testkit::{DEADLINE, eventually};
use rustix::fs::OFlags;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::nodes::{Nodes, quorlock};

/// A program in a session of its own on a terminal of its own.
///
/// What is typed is shown by the terminal as well: a test must not wait for what it has typed.
pub(crate) struct Terminal {
    program: Child,
    keyboard: File,
    screen: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
    /// How much of the screen was read.
    read: usize,
}

impl Terminal {
    /// Starts the program under test.
    pub(crate) fn start(command: &Command) -> Self {
        let args = [&[command.get_program()], &*command.get_args().collect::<Vec<_>>()].concat();
        Self::run(&args, command).expect("a program on a terminal")
    }

    /// Starts a shell with job control that finds the program in `$QUORLOCK`.
    pub(crate) fn shell(nodes: &Nodes) -> Self {
        let line = "env --default-signal bash --norc --noprofile --noediting -i";
        let args: Vec<_> = line.split(' ').map(OsStr::new).collect();
        let mut settings = quorlock();
        settings.env("QUORLOCK_NODES", nodes.urls()).env("PS1", "$ ");
        let mut shell = Self::run(&args, &settings).expect("a shell on a terminal");
        shell.sees("$ ");
        shell
    }

    /// Runs the program with the environment that the settings have.
    fn run(args: &[&OsStr], settings: &Command) -> io::Result<Self> {
        let (keyboard, other_end) = terminal()?;
        let mut output = keyboard.try_clone()?;
        let mut command = Command::new("setsid");
        command.arg("--ctty").args(args);
        // Colours are for the tests that are about them.
        command.env("TERM", "vt100").env("NO_COLOR", "1");
        for (name, value) in settings.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let program = command
            .stdin(other_end.try_clone()?)
            .stdout(other_end.try_clone()?)
            .stderr(other_end)
            .spawn()?;

        let screen = Arc::<Mutex<String>>::default();
        let shown = Arc::clone(&screen);
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            // It fails when the last process on the terminal has ended.
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]);
                shown.lock().expect("nobody panics with it").push_str(&text);
            }
        });
        Ok(Self { program, keyboard, screen, reader: Some(reader), read: 0 })
    }

    /// What was shown so far, what was typed included.
    pub(crate) fn screen(&self) -> String {
        self.screen.lock().expect("nobody panics with it").clone()
    }

    pub(crate) fn is_wide(&self, columns: u16) {
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.keyboard, size).expect("the terminal is there");
    }

    pub(crate) fn types(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).expect("the terminal is there");
    }

    /// Waits until the text stands on the screen, after everything that was waited for before, and
    /// returns what stands between.
    pub(crate) fn sees(&mut self, text: &str) -> String {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let screen = self.screen();
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

    /// Sends a signal to the program that was started.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.program), signal).expect("the program runs");
    }

    /// Waits for the end: its code, and all that was shown.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        eventually("the program ends", || self.program.try_wait().expect("a child").is_some());
        self.reader.take().expect("only taken here").join().expect("it was read");
        (self.program.wait().expect("it has ended").code(), self.screen())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // What waits in the background outlives the shell: nobody hangs up on it.
        for id in in_session(self.program.id()) {
            let _ = kill_process(id, Signal::KILL);
        }
        let _ = self.program.wait();
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
