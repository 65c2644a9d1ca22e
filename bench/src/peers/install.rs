//! Puts the peers' programs and libraries into the target folder, each in the way of its ecosystem.
//!
//! What cannot be installed is no error: its systems are named as missing, with the reason.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::Made;

/// Beside what was installed: what it was made from.
const STAMP: &str = "made-from";

/// How to start the peers of each ecosystem, or why that is not possible.
pub struct Tools {
    commands: BTreeMap<Made, Result<Vec<OsString>, String>>,
    /// What the peers complain about goes here.
    pub logs: PathBuf,
}

impl Tools {
    /// This program alone.
    pub fn own(target: &Path) -> Result<Self> {
        let logs = target.join("logs");
        fs::create_dir_all(&logs)?;
        let here = vec![std::env::current_exe()?.into(), crate::own::PEER.into()];
        Ok(Self { commands: [(Made::Here, Ok(here))].into(), logs })
    }

    /// Installs what is missing or out of date into `target`.
    pub fn all(target: &Path) -> Result<Self> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
        let mut tools = Self::own(target)?;
        let makers: [(Made, &str, Maker); 4] = [
            (Made::Go, "go", go),
            (Made::Node, "node", node),
            (Made::Python, "python", python),
            (Made::Java, "java", java),
        ];
        for (made, folder, maker) in makers {
            let (source, target) = (source.join(folder), target.join(folder));
            let done = fs::create_dir_all(&target)
                .map_err(Into::into)
                .and_then(|()| maker(&source, &target));
            tools.commands.insert(made, done.map_err(|error| format!("{error:#}")));
        }
        Ok(tools)
    }

    pub fn command(&self, made: Made) -> Result<&[OsString], &str> {
        match self.commands.get(&made) {
            Some(Ok(command)) => Ok(command),
            Some(Err(reason)) => Err(reason),
            None => Err("not asked for"),
        }
    }
}

type Maker = fn(&Path, &Path) -> Result<Vec<OsString>>;

fn go(source: &Path, target: &Path) -> Result<Vec<OsString>> {
    let program = target.join("peers");
    // It knows itself what is out of date.
    let mut build = Command::new("go");
    build.args(["build", "-mod=readonly", "-o"]).arg(&program).arg(".").current_dir(source);
    run(&mut build)?;
    Ok(vec![program.into()])
}

fn node(source: &Path, target: &Path) -> Result<Vec<OsString>> {
    let files = ["package.json", "package-lock.json"];
    unless_done(target, &contents(source, &files)?, || {
        for file in files {
            fs::copy(source.join(file), target.join(file))?;
        }
        run(Command::new("npm").args(["ci", "--no-audit", "--no-fund"]).current_dir(target))
    })?;
    // Beside its libraries, where it finds them.
    fs::copy(source.join("main.js"), target.join("main.js"))?;
    Ok(vec!["node".into(), target.join("main.js").into()])
}

fn python(source: &Path, target: &Path) -> Result<Vec<OsString>> {
    let inner = target.join("bin").join("python");
    let list = source.join("requirements.txt");
    unless_done(target, &contents(source, &["requirements.txt"])?, || {
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(target))?;
        let mut install = Command::new(&inner);
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        run(install.args(["--no-deps", "--requirement"]).arg(&list))?;
        run(Command::new(&inner).args(["-m", "pip", "check"]))
    })?;
    Ok(vec![inner.into(), source.join("main.py").into()])
}

fn java(source: &Path, target: &Path) -> Result<Vec<OsString>> {
    let classes = ["Main", "Locks", "RedissonLocks", "CuratorLocks"];
    let classes = classes.map(|class| format!("src/main/java/{class}.java"));
    let files: Vec<_> = classes.iter().map(String::as_str).chain(["pom.xml"]).collect();
    unless_done(target, &contents(source, &files)?, || {
        let mut folder = OsString::from("-Dbuild.folder=");
        folder.push(target);
        let mut compile = Command::new("mvn");
        compile.args(["--quiet", "--batch-mode", "compile"]).arg(folder).current_dir(source);
        run(&mut compile)
    })?;
    let mut path = target.join("classes").into_os_string();
    path.push(":");
    path.push(target.join("lib").join("*"));
    Ok(vec!["java".into(), "-cp".into(), path, "Main".into()])
}

/// Does something unless it was done before, from the same.
fn unless_done(target: &Path, made_from: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let stamp = target.join(STAMP);
    if fs::read_to_string(&stamp).is_ok_and(|stamped| stamped == made_from) {
        return Ok(());
    }
    eprintln!("installing into {}", target.display());
    work()?;
    // Last, so that what was broken off is done again.
    Ok(fs::write(stamp, made_from)?)
}

fn contents(source: &Path, files: &[&str]) -> Result<String> {
    files.iter().map(|file| Ok(fs::read_to_string(source.join(file))?)).collect()
}

/// Runs it to its end. If it fails, the reason is the last thing that it says.
fn run(command: &mut Command) -> Result<()> {
    let name = Path::new(command.get_program()).file_name().unwrap_or_default().to_owned();
    let name = name.to_string_lossy();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("`{name}` does not start: is it installed?"))?;
    if !output.status.success() {
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let said = text.lines().rev().find(|line| !line.trim().is_empty());
        bail!("`{name}` failed: {}", said.unwrap_or("without a word").trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_installed_has_a_reason() {
        let reason = |command: &mut Command| format!("{:#}", run(command).unwrap_err());
        let missing = reason(&mut Command::new("no-program-has-this-name"));
        assert!(missing.contains("`no-program-has-this-name` does not start"), "{missing}");
        let failing = reason(Command::new("sh").args(["-c", "echo one; echo two >&2; false"]));
        assert_eq!(failing, "`sh` failed: two");
    }

    #[test]
    fn it_is_done_again_only_when_something_has_changed() -> Result<()> {
        let target = tempfile::tempdir()?;
        let mut done = 0;
        for made_from in ["a", "a", "b"] {
            unless_done(target.path(), made_from, || {
                done += 1;
                Ok(())
            })?;
        }
        assert_eq!(done, 2);
        assert!(unless_done(target.path(), "c", || bail!("broken off")).is_err());
        unless_done(target.path(), "c", || {
            done += 1;
            Ok(())
        })?;
        assert_eq!(done, 3);
        Ok(())
    }
}
