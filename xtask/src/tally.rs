//! The count of tests, read from what the test programs print.

use std::fmt;

/// How many tests passed, failed and were skipped, over all test programs of a run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    passed: u64,
    failed: u64,
    skipped: u64,
    /// A test program has said `running N tests` and has not given its result.
    open: bool,
}

impl Tally {
    /// Takes in one line of output; lines that are no result change nothing.
    pub(crate) fn read(&mut self, line: &str) {
        let line = line.trim_end();
        if is_start(line) {
            self.close();
            self.open = true;
        } else if let Some(result) = line.strip_prefix("test result: ") {
            self.open = false;
            self.add(result);
        }
    }

    /// Ends the program being read. One that was killed or aborted gives no result: it counts as
    /// one failed test, or the summary would look as if all were well.
    pub(crate) fn close(&mut self) {
        if self.open {
            self.open = false;
            self.failed += 1;
        }
    }

    /// Whether at least one test ran, and none failed.
    pub(crate) fn is_good(&self) -> bool {
        self.passed > 0 && self.failed == 0
    }

    /// Whether no test ran at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.passed + self.failed == 0
    }

    /// Adds `ok. 3 passed; 0 failed; 1 ignored; 0 measured; …`. The verdict may be coloured, so it
    /// is cut off unread.
    fn add(&mut self, result: &str) {
        let counts = result.split_once(". ").map_or(result, |(_verdict, counts)| counts);
        for part in counts.split("; ") {
            let Some((number, label)) = part.split_once(' ') else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match label {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.skipped += number,
                _ => {}
            }
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// Whether the line is `running N tests`, by which a test program begins.
fn is_start(line: &str) -> bool {
    line.strip_prefix("running ")
        .and_then(|rest| rest.strip_suffix(" tests").or_else(|| rest.strip_suffix(" test")))
        .is_some_and(|number| number.parse::<u64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(output: &str) -> Tally {
        let mut tally = Tally::default();
        output.lines().for_each(|line| tally.read(line));
        tally.close();
        tally
    }

    #[test]
    fn results_of_all_programs_are_added_up() {
        let tally = tally(
            "running 4 tests\n\
             test a ... ok\n\
             test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.02s\n\
             \n\
             running 3 tests\n\
             test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 9 filtered out; finished in 1.10s\n",
        );
        assert_eq!(tally.to_string(), "4 passed, 2 failed, 1 skipped");
        assert!(!tally.is_good());
    }

    #[test]
    fn coloured_verdicts_are_read() {
        let tally = tally(
            "test result: \u{1b}[32mok\u{1b}(B\u{1b}[m. 7 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n",
        );
        assert_eq!(tally.to_string(), "7 passed, 0 failed, 0 skipped");
        assert!(tally.is_good());
    }

    #[test]
    fn other_lines_do_not_count() {
        let tally = tally("test result\nsaid: test result: ok. 5 passed; 0 failed\nrunning away\n");
        assert_eq!(tally, Tally::default());
    }

    #[test]
    fn a_program_without_a_result_counts_as_failed() {
        let cut_short = "running 2 tests\ntest a ... ok\n";
        assert_eq!(tally(cut_short).to_string(), "0 passed, 1 failed, 0 skipped");
        let followed = format!("{cut_short}running 1 test\ntest result: ok. 1 passed; 0 failed\n");
        assert_eq!(tally(&followed).to_string(), "1 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn nothing_run_is_not_good() {
        assert!(!Tally::default().is_good());
        assert!(Tally::default().is_empty());
        let only_skipped = tally("test result: ok. 0 passed; 0 failed; 3 ignored; 0 measured\n");
        assert!(only_skipped.is_empty());
        assert!(!only_skipped.is_good());
    }
}
