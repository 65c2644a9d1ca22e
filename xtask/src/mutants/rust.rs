//! Rust with mistakes in it, made by cargo-mutants.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::Part;
use super::explained::{Explained, Survivor, Tally};
use crate::project::{Project, command_line, find_program, run as run_command};
use crate::test_command::REQUIRES;

/// The version of cargo-mutants to install where there is none.
const CARGO_MUTANTS: &str = "27.1.0";

/// Some of the code, and the tests that have to notice a mistake in it.
pub(super) struct Area {
    pub(super) name: &'static str,
    folder: &'static str,
    package: &'static str,
    /// What is run for each mutant: seconds each.
    tests: &'static [&'static str],
}

pub(super) const AREAS: [Area; 2] = [
    Area {
        name: "protocol",
        folder: "crates/protocol/src/",
        package: "quorlock-protocol",
        // Without a look for tests in its documentation: there are none.
        tests: &["--test-package=quorlock-protocol", "--cargo-test-arg=--tests"],
    },
    // The simulator runs these rounds under every fault, and the others take them one by one.
    Area {
        name: "drive",
        folder: "crates/quorlock/src/drive/",
        package: "quorlock",
        tests: &[
            "--test-package=quorlock,quorlock-simulator",
            "--all-features",
            "--cargo-test-arg=--test=seeds",
            "--cargo-test-arg=--test=locking",
        ],
    },
];

/// It has found mutants that survive, or that hang: its lists say which.
const FOUND: [i32; 3] = [0, 2, 3];

/// Makes the mutants of an area, and checks that its tests catch them.
pub(super) fn run(project: &Project, area: &Area, part: &Part) -> Result<bool> {
    let explained = Explained::read(&project.root)?;
    let program = match find_program("cargo-mutants") {
        Some(program) => program,
        None => install(project)?,
    };
    let folder = project.target.join("mutants").join(area.name);
    fs::create_dir_all(&folder)?;
    let globs: Vec<_> = match part.files.as_slice() {
        [] => vec![format!("--file={}*.rs", area.folder)],
        files => files.iter().map(|text| format!("--file={}*{text}*", area.folder)).collect(),
    };
    let mut command = Command::new(program);
    command
        .current_dir(&project.root)
        // One for all, so that what does not change is built once.
        .env("CARGO_TARGET_DIR", project.target.join("mutants").join("build"))
        // That a property fails is enough: nobody reads the smallest case of it.
        .env("PROPTEST_MAX_SHRINK_ITERS", "0")
        // A test that is skipped notices nothing.
        .env(REQUIRES, "redis-server")
        // On a machine that is busy a test that passes must not seem to hang.
        .args(["mutants", "--dir=.", "--jobs=1", "--no-times", "--no-config"])
        .arg("--minimum-test-timeout=120")
        .arg(format!("--package={}", area.package))
        .args(globs)
        .args(area.tests)
        .arg("--output")
        .arg(&folder);
    if !part.again {
        command.arg("--iterate");
    }
    if let Some((which, of)) = part.shard {
        command.arg(format!("--shard={which}/{of}"));
    }
    let line = command_line(&command);
    println!("    {line}");
    let status = command.status().with_context(|| format!("`{line}` does not start"))?;
    if !status.code().is_some_and(|code| FOUND.contains(&code)) {
        bail!("`{line}` failed ({status}): its message is above");
    }
    let tally = tally(&project.root, &folder)?;
    let covers =
        |file: &str| part.shard.is_none() && file.starts_with(area.folder) && part.takes(file);
    Ok(tally.check(area.name, &explained, covers))
}

/// Reads what became of each mutant. One that hangs is caught, and one that cannot be built is none: a run that
/// goes on counts it with those that were caught before, so that they are written down here.
fn tally(root: &Path, folder: &Path) -> Result<Tally> {
    let out = folder.join("mutants.out");
    let read = |list: &str| fs::read_to_string(out.join(list)).unwrap_or_default();
    let before = fs::read_to_string(folder.join("unviable")).unwrap_or_default();
    let now = read("unviable.txt");
    let unviable: BTreeSet<_> = before.lines().chain(now.lines()).collect();
    fs::write(folder.join("unviable"), unviable.iter().copied().collect::<Vec<_>>().join("\n"))?;
    let lists = ["caught.txt", "previously_caught.txt", "timeout.txt"].map(read);
    let caught = lists.iter().flat_map(|list| list.lines());
    let caught = caught.filter(|mutant| !unviable.contains(mutant)).count();
    let mut tally = Tally { caught, ..Tally::default() };
    for mutant in read("missed.txt").lines() {
        let survivor = survivor(mutant, |file| fs::read_to_string(root.join(file)).ok());
        tally.survivors.insert(survivor.with_context(|| format!("`{mutant}` names no line"))?);
    }
    Ok(tally)
}

/// Reads `FILE:LINE:COLUMN: WHAT`.
fn survivor(mutant: &str, read: impl Fn(&str) -> Option<String>) -> Option<Survivor> {
    let (place, becomes) = mutant.split_once(": ")?;
    let mut place = place.split(':');
    let (file, line) = (place.next()?, place.next()?.parse::<usize>().ok()?);
    let text = read(file)?;
    let line = text.lines().nth(line.checked_sub(1)?)?.trim().to_owned();
    Some(Survivor { file: file.to_owned(), line, becomes: becomes.to_owned() })
}

/// Installs cargo-mutants into the target folder, unless that was done before.
fn install(project: &Project) -> Result<PathBuf> {
    let folder = project.target.join("tools").join(format!("cargo-mutants-{CARGO_MUTANTS}"));
    let program = folder.join("bin").join("cargo-mutants");
    if !program.is_file() {
        println!(
            "installing cargo-mutants {CARGO_MUTANTS} into {}: it makes the mistakes that the tests \
             have to notice (a minute or two, once)",
            folder.display()
        );
        let arguments = ["install", "cargo-mutants", "--quiet", "--locked", "--debug", "--version"];
        run_command(
            project
                .cargo(arguments)
                .arg(CARGO_MUTANTS)
                .arg("--root")
                .arg(&folder)
                .env("CARGO_PROFILE_DEV_DEBUG", "0")
                .env_remove("CARGO_TARGET_DIR"),
        )?;
    }
    Ok(program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mutant_is_known_by_the_text_of_its_line() {
        let read = |file: &str| (file == "a/b.rs").then(|| "fn a() {\n    1 < 2\n}\n".to_owned());
        let found = survivor("a/b.rs:2:7: replace < with <= in a", read).unwrap();
        assert_eq!(
            found,
            Survivor {
                file: "a/b.rs".to_owned(),
                line: "1 < 2".to_owned(),
                becomes: "replace < with <= in a".to_owned(),
            }
        );
        assert_eq!(survivor("a/c.rs:2:7: replace", read), None);
        assert_eq!(survivor("a/b.rs:9:7: replace", read), None);
    }
}
