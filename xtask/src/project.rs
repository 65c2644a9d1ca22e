//! Where the project is, and how its commands start other programs.

use std::env;
use std::ffi::OsStr;
use std::iter;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The variables that `cargo run` sets for this program alone. Build scripts watch some of them:
/// handed on, they would make the same crate build again and again.
const SET_BY_CARGO_RUN: [&str; 3] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];

/// The project's folders.
#[derive(Debug)]
pub(crate) struct Project {
    /// The top of the repository.
    pub(crate) root: PathBuf,
    /// Cargo's target folder, where everything that is built or installed goes.
    pub(crate) target: PathBuf,
}

impl Project {
    /// Finds the project that this program was built from.
    pub(crate) fn find() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("the folder `xtask` has no parent: build it inside the repository")?
            .to_owned();
        // Not started at the top: a relative CARGO_TARGET_DIR counts from where the user stands.
        let output = cargo_command()
            .args(["metadata", "--no-deps", "--format-version=1", "--manifest-path"])
            .arg(root.join("Cargo.toml"))
            .stderr(Stdio::inherit())
            .output()
            .context("`cargo metadata` does not start: is `cargo` on the PATH?")?;
        if !output.status.success() {
            bail!("`cargo metadata` failed ({}): its message is above", output.status);
        }
        let target = target_directory(&String::from_utf8_lossy(&output.stdout))
            .context("`cargo metadata` names no `target_directory`: update the Rust toolchain")?;
        Ok(Self { root, target })
    }

    /// A `cargo` command at the top of the project.
    pub(crate) fn cargo<I, S>(&self, args: I) -> Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = cargo_command();
        command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target).args(args);
        command
    }
}

/// The file of the program `name` on the `PATH`.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Runs a command to its end, with its output shown; an error if it does not succeed.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = command_line(command);
    let status = command.status().with_context(|| format!("`{line}` does not start"))?;
    if !status.success() {
        bail!("`{line}` failed ({status}): its message is above");
    }
    Ok(())
}

/// The command as one would type it: the program without its folder, and the arguments.
pub(crate) fn command_line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let words = iter::once(name).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// Whether a command starts and succeeds. Its output is not shown.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

fn cargo_command() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if SET_BY_CARGO_RUN.iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command
}

/// Reads the one value needed, so that this program, which is built before all others, does not
/// have to wait for a JSON library. The last match counts: a package could have a key of that name
/// among its own metadata, and those come first.
fn target_directory(metadata: &str) -> Option<PathBuf> {
    let (_, after) = metadata.rsplit_once(r#""target_directory":""#)?;
    let (path, _) = after.split_once('"')?;
    Some(PathBuf::from(path.replace(r"\\", r"\")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_directory_is_the_last_one_named() {
        let metadata = r#"{"packages":[{"metadata":{"target_directory":"/no"}}],"target_directory":"/a b/target","version":1}"#;
        assert_eq!(target_directory(metadata), Some(PathBuf::from("/a b/target")));
    }

    #[test]
    fn no_target_directory_is_no_path() {
        assert_eq!(target_directory(r#"{"packages":[]}"#), None);
    }

    #[test]
    fn programs_are_found_on_the_path() {
        assert!(find_program("sh").is_some());
        assert_eq!(find_program("no-program-has-this-name"), None);
    }

    #[test]
    fn a_command_line_reads_as_typed() {
        let mut command = Command::new("/some/folder/cargo");
        assert_eq!(command_line(command.args(["fmt", "--all"])), "cargo fmt --all");
    }

    #[test]
    fn a_failing_program_is_an_error_that_names_it() {
        let error = run(&mut Command::new("false")).unwrap_err().to_string();
        assert!(error.contains("`false` failed"), "{error}");
        let error = run(&mut Command::new("no-program-has-this-name")).unwrap_err().to_string();
        assert!(error.contains("`no-program-has-this-name` does not start"), "{error}");
    }
}
