//! A terminal, for what only happens on one.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use quorlock_testkit::eventually;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// A run of the program on a terminal of its own.
pub(crate) struct OnTerminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl OnTerminal {
    pub(crate) fn start(command: &mut Command) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&ours).expect("ours");
        unlockpt(&ours).expect("usable");
        let path = ptsname(&ours, Vec::new()).expect("a name").into_string().expect("plain");
        let open = || OpenOptions::new().read(true).write(true).open(&path).expect("it opens");
        let child = command.stdin(open()).stdout(open()).stderr(open()).spawn().expect("it starts");
        // What the parent has opened of it has to go, or the end is never seen.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let keyboard = File::from(ours);
        let mut output = keyboard.try_clone().expect("a second handle");
        let screen = Arc::new(Mutex::new(String::new()));
        let shown = Arc::clone(&screen);
        let reader = thread::spawn(move || {
            let mut bytes = [0; 1_024];
            // The end of a terminal is an error.
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                shown.lock().expect("no panic").push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Self { child, keyboard, screen, reader: Some(reader) }
    }

    /// What was shown so far, what was typed included.
    pub(crate) fn screen(&self) -> String {
        self.screen.lock().expect("no panic").clone()
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).expect("somebody reads it");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the program runs");
    }

    /// Waits for the end: its code, and all that was shown.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        eventually("the program ends", || self.child.try_wait().expect("a child").is_some());
        self.reader.take().expect("only taken here").join().expect("it was read");
        (self.child.wait().expect("it has ended").code(), self.screen())
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // After a failed test.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
