//! The file that tells a server what its clock shows.
//!
//! Its layout is described in `clock/server_clock.c`, which reads it. It is written like any file:
//! the system shows a write to every process that has the file mapped.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::time::{ClockId, clock_gettime};

use super::library;

const TURN_AT: u64 = 0;
const PID_AT: u64 = 4;
const SETTINGS_AT: u64 = 8;
const SETTING_LENGTH: u64 = (CLOCKS.len() * 3 * size_of::<i64>()) as u64;

/// The clocks that have a line in a setting, in its order.
const CLOCKS: [ClockId; 3] = [ClockId::Realtime, ClockId::Monotonic, ClockId::Boottime];

const BILLION: i64 = 1_000_000_000;

/// Which clocks a test moves. The others stay true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moves {
    Wall,
    WallAndMonotonic,
}

/// The control page of one server.
#[derive(Debug)]
pub(crate) struct ControlPage {
    file: File,
    environment: [(&'static str, OsString); 2],
    moves: Moves,
    setting: Mutex<Setting>,
}

#[derive(Debug, Default)]
struct Setting {
    turn: u8,
    lines: [Line; CLOCKS.len()],
}

/// What a clock shows, for each true time. The default is the true time itself.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    anchor_ns: i64,
    offset_ns: i64,
    drift_ppb: i64,
}

impl Line {
    /// How far the clock is ahead at the true time `now_ns`.
    fn ahead_ns(&self, now_ns: i64) -> i64 {
        let drifted = i128::from(now_ns - self.anchor_ns) * i128::from(self.drift_ppb);
        let drifted = drifted / i128::from(BILLION);
        self.offset_ns + i64::try_from(drifted).expect("a drift of fewer than 292 years")
    }
}

impl ControlPage {
    /// Makes the page in `dir`, showing the true time.
    pub(crate) fn new(dir: &Path, moves: Moves) -> Self {
        let (page, library) = (dir.join("clock"), dir.join("clock.so"));
        let make = || {
            // The build's folder may have a space in its name, which LD_PRELOAD cannot have.
            symlink(library::path(), &library)?;
            let file = File::options().read(true).write(true).create_new(true).open(&page)?;
            file.set_len(SETTINGS_AT + 2 * SETTING_LENGTH)?;
            std::io::Result::Ok(file)
        };
        Self {
            file: make().expect("the server's directory can be written to"),
            environment: [("LD_PRELOAD", library.into()), ("QUORLOCK_TEST_CLOCK", page.into())],
            moves,
            setting: Mutex::default(),
        }
    }

    /// The variables that make a program go by this page.
    pub(crate) fn environment(&self) -> &[(&'static str, OsString)] {
        &self.environment
    }

    /// The process that said last that it goes by this page, or 0.
    pub(crate) fn pid(&self) -> u32 {
        let mut pid = [0; 4];
        self.file.read_exact_at(&mut pid, PID_AT).expect("the control page can be read");
        u32::from_ne_bytes(pid)
    }

    pub(crate) fn jump(&self, by_ns: i64) {
        self.change(|line, _| Line { offset_ns: line.offset_ns + by_ns, ..line });
    }

    /// Bends the lines at the present time, without a step.
    pub(crate) fn set_rate(&self, rate: f64) {
        let drift_ppb = ((rate - 1.0) * BILLION as f64).round() as i64;
        self.change(|line, now_ns| Line {
            anchor_ns: now_ns,
            offset_ns: line.ahead_ns(now_ns),
            drift_ppb,
        });
    }

    pub(crate) fn clear(&self) {
        self.change(|_, _| Line::default());
    }

    /// Gives each clock that moves the line that `change` makes of its line and its true time.
    fn change(&self, change: impl Fn(Line, i64) -> Line) {
        let mut setting = self.setting.lock().unwrap_or_else(PoisonError::into_inner);
        let moving = match self.moves {
            Moves::Wall => 1,
            Moves::WallAndMonotonic => CLOCKS.len(),
        };
        for (line, clock) in setting.lines.iter_mut().zip(CLOCKS).take(moving) {
            *line = change(*line, true_ns(clock));
        }
        setting.turn = setting.turn.wrapping_add(1);

        let lines = setting.lines.iter();
        let bytes: Vec<u8> = lines
            .flat_map(|line| [line.anchor_ns, line.offset_ns, line.drift_ppb])
            .flat_map(i64::to_ne_bytes)
            .collect();
        let at = SETTINGS_AT + u64::from(setting.turn & 1) * SETTING_LENGTH;
        let write = |bytes: &[u8], at| {
            self.file.write_all_at(bytes, at).expect("the control page can be written");
        };
        write(&bytes, at);
        // One byte cannot be seen half written.
        write(&[setting.turn], TURN_AT);
    }
}

fn true_ns(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * BILLION + time.tv_nsec
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::{Command, Stdio};

    use tempfile::TempDir;

    use super::*;

    const DAY_NS: i64 = 86_400 * BILLION;

    /// A program that goes by a page.
    struct Program {
        page: ControlPage,
        path: PathBuf,
        _dir: TempDir,
    }

    impl Program {
        fn new(moves: Moves) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("print_clocks");
            let source = concat!(env!("CARGO_MANIFEST_DIR"), "/clock/print_clocks.c");
            let mut cc = Command::new("cc");
            assert!(cc.arg(source).arg("-o").arg(&path).status().unwrap().success());
            Self { page: ControlPage::new(dir.path(), moves), path, _dir: dir }
        }

        /// What the program is shown, by the names it prints.
        fn shown_ns(&self) -> Vec<(String, i64)> {
            let variables = self.page.environment().iter().cloned();
            let output = Command::new(&self.path).envs(variables).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let lines = String::from_utf8(output.stdout).unwrap();
            let lines = lines.lines().map(|line| line.split_once(' ').unwrap());
            let shown: Vec<_> =
                lines.map(|(name, shown)| (name.to_owned(), shown.parse().unwrap())).collect();
            assert_eq!(shown.len(), 7);
            shown
        }

        /// How far each clock is ahead: at least and at most, in nanoseconds.
        fn ahead_ns(&self) -> Vec<(String, i64, i64)> {
            let before = CLOCKS.map(true_ns);
            let shown = self.shown_ns();
            let after = CLOCKS.map(true_ns);
            let bounds = |(name, shown_ns): (String, i64)| {
                let (clock, unit_ns) = match name.as_str() {
                    "realtime" => (0, 1),
                    "gettimeofday" => (0, 1_000),
                    // The coarse ones stand still between the kernel's ticks.
                    "realtime_coarse" | "time" => (0, BILLION),
                    "monotonic" => (1, 1),
                    "monotonic_coarse" => (1, BILLION),
                    "boottime" => (2, 1),
                    _ => panic!("{name}"),
                };
                (name, shown_ns - after[clock], shown_ns + unit_ns - before[clock])
            };
            shown.into_iter().map(bounds).collect()
        }

        /// Asserts how far the wall clock is ahead, and the monotonic clocks.
        fn assert_ahead(&self, wall_ns: i64, monotonic_ns: i64) {
            for (name, least, most) in self.ahead_ns() {
                let monotonic = name.starts_with("monotonic") || name == "boottime";
                let ahead_ns = if monotonic { monotonic_ns } else { wall_ns };
                let within = (least..=most).contains(&ahead_ns);
                assert!(within, "{name} is ahead by {least} to {most} ns, not {ahead_ns}");
            }
        }
    }

    #[test]
    fn an_untouched_page_shows_the_true_time() {
        Program::new(Moves::WallAndMonotonic).assert_ahead(0, 0);
    }

    #[test]
    fn every_way_to_ask_shows_the_jump() {
        let program = Program::new(Moves::Wall);
        program.page.jump(DAY_NS);
        program.assert_ahead(DAY_NS, 0);
        program.page.jump(-3 * DAY_NS);
        program.assert_ahead(-2 * DAY_NS, 0);
        program.page.clear();
        program.assert_ahead(0, 0);
    }

    #[test]
    fn monotonic_clocks_jump_if_asked_for() {
        let program = Program::new(Moves::WallAndMonotonic);
        program.page.jump(DAY_NS);
        program.assert_ahead(DAY_NS, DAY_NS);
    }

    #[test]
    fn no_clock_goes_below_zero() {
        let program = Program::new(Moves::WallAndMonotonic);
        program.page.jump(-200 * 365 * DAY_NS);
        let shown = program.shown_ns();
        assert!(shown.iter().all(|(_, shown_ns)| *shown_ns == 0), "{shown:?}");
    }

    #[test]
    fn a_program_says_that_it_goes_by_the_page() {
        let program = Program::new(Moves::Wall);
        assert_eq!(program.page.pid(), 0);
        let variables = program.page.environment().iter().cloned();
        let mut command = Command::new(&program.path);
        let mut child = command.envs(variables).stdout(Stdio::null()).spawn().unwrap();
        child.wait().unwrap();
        assert_eq!(program.page.pid(), child.id());
    }

    #[test]
    fn without_a_page_no_program_starts() {
        let program = Program::new(Moves::Wall);
        let [(preload, library), (page, _)] = program.page.environment() else { panic!() };
        let mut command = Command::new(&program.path);
        command.env(preload, library);
        for path in [None, Some("/nowhere/clock")] {
            let output = command.envs(path.map(|path| (page, path))).output().unwrap();
            assert_eq!(output.status.code(), Some(125), "{path:?}");
            assert!(output.stdout.is_empty());
        }
    }
}
