//! `cargo xtask verify`, which checks and changes no source file, and its counterpart
//! `cargo xtask fix`.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::project::{Project, find_program, run};
use crate::steps::Steps;

/// The version of cargo-deny to install where there is none.
const CARGO_DENY: &str = "0.20.2";

/// Runs all checks. `--locked` keeps cargo from writing the lock file.
pub(crate) fn verify(project: &Project) -> Result<ExitCode> {
    let mut steps = Steps::default();

    steps.run("format", &mut project.cargo(["fmt", "--all", "--check"]));
    let everything = ["--workspace", "--all-targets", "--all-features"];
    steps.run("lints, all features", &mut clippy(project, &everything));
    // Without the other packages and without tests: what they turn on in shared dependencies
    // would hide a feature that the library forgot to ask for.
    steps.run("lints, library by default", &mut clippy(project, &["--package=quorlock"]));
    let bare = ["--package=quorlock", "--no-default-features"];
    steps.run("lints, library with no features", &mut clippy(project, &bare));
    steps.run("documents", &mut document(project));

    if let Some(bench) = bench_manifest(project) {
        steps.run(
            "format, benchmark",
            project.cargo(["fmt", "--check", "--manifest-path"]).arg(&bench),
        );
        let mut command = project.cargo(["clippy", "--locked", "--all-targets", "--all-features"]);
        command.arg("--manifest-path").arg(&bench);
        command.arg("--target-dir").arg(project.target.join("bench"));
        steps.run("lints, benchmark", command.args(["--", "-D", "warnings"]));
    }

    steps.run_with("licences and sources", || check_dependencies(project));

    Ok(steps.finish("`cargo xtask fix` puts the format and some lints right"))
}

/// Lets the formatter and the linter change the source.
pub(crate) fn fix(project: &Project) -> Result<ExitCode> {
    let lints =
        ["clippy", "--fix", "--allow-dirty", "--allow-staged", "--all-targets", "--all-features"];
    let mut steps = Steps::default();

    steps.run("lints", project.cargo(lints).arg("--workspace"));
    let bench = bench_manifest(project);
    if let Some(bench) = &bench {
        let mut command = project.cargo(lints);
        command.arg("--manifest-path").arg(bench);
        steps
            .run("lints, benchmark", command.arg("--target-dir").arg(project.target.join("bench")));
    }
    // After the lints, because their changes can need a new format.
    steps.run("format", &mut project.cargo(["fmt", "--all"]));
    if let Some(bench) = &bench {
        steps.run("format, benchmark", project.cargo(["fmt", "--manifest-path"]).arg(bench));
    }

    Ok(steps.finish("put right by hand what is named above"))
}

fn clippy(project: &Project, selection: &[&str]) -> Command {
    let mut command = project.cargo(["clippy", "--locked"]);
    command.args(selection).args(["--", "-D", "warnings"]);
    command
}

fn document(project: &Project) -> Command {
    let mut command =
        project.cargo(["doc", "--locked", "--workspace", "--all-features", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    command
}

/// The benchmark is a workspace of its own, and need not be there.
fn bench_manifest(project: &Project) -> Option<PathBuf> {
    let manifest = project.root.join("bench").join("Cargo.toml");
    manifest.is_file().then_some(manifest)
}

/// Checks the dependencies against `deny.toml`.
fn check_dependencies(project: &Project) -> Result<()> {
    let program = match find_program("cargo-deny") {
        Some(program) => program,
        None => install_cargo_deny(project)?,
    };
    run(Command::new(program).current_dir(&project.root).args([
        "--locked",
        "check",
        "--hide-inclusion-graph",
        "licenses",
        "bans",
        "sources",
    ]))
}

/// Installs cargo-deny into the target folder, unless that was done before.
fn install_cargo_deny(project: &Project) -> Result<PathBuf> {
    // With the version in its name, the folder of an older pin is never taken for this one.
    let folder = project.target.join("tools").join(format!("cargo-deny-{CARGO_DENY}"));
    let program = folder.join("bin").join("cargo-deny");
    if !program.is_file() {
        println!(
            "installing cargo-deny {CARGO_DENY} into {}: it checks the licences and sources of \
             the dependencies (a minute or two, once)",
            folder.display()
        );
        // A debug build: the release build takes three times as long and saves a second.
        let arguments = ["install", "cargo-deny", "--quiet", "--locked", "--debug", "--version"];
        run(project
            .cargo(arguments)
            .arg(CARGO_DENY)
            .arg("--root")
            .arg(&folder)
            .env("CARGO_PROFILE_DEV_DEBUG", "0")
            // Built in a temporary folder, which goes away after it.
            .env_remove("CARGO_TARGET_DIR"))?;
    }
    Ok(program)
}
