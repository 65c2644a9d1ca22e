//! The service that locks with etcd's own Go library, which the tests share locks with.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::debian::Package;
use crate::project::{Project, find_program, run};

/// Its sources, with the versions of all that it uses.
const SOURCES: &str = "crates/quorlock/tests/nodes/etcd/go_mutex";

/// Go's package, unless the machine has it.
pub(crate) fn missing_package() -> Option<Package> {
    let why = "tests share locks with a service that uses etcd's own Go library";
    find_program("go").is_none().then_some(Package { name: "golang-go", why })
}

/// Builds the program, unless it is up to date, and returns where it is.
pub(crate) fn prepare(project: &Project) -> Result<PathBuf> {
    let program = project.target.join("peers-go").join("go-mutex");
    if !program.is_file() {
        println!(
            "building {} with etcd's Go library, which is fetched for that: the tests share locks with it",
            program.display()
        );
    }
    // Go knows by itself what has changed.
    run(Command::new("go")
        .current_dir(project.root.join(SOURCES))
        // The Go that is there, and the versions that are written down.
        .env("GOTOOLCHAIN", "local")
        .args(["build", "-mod=readonly", "-trimpath", "-o"])
        .args([program.as_os_str(), ".".as_ref()]))
    .context("the service that locks in Go was not built: see that its modules can be fetched, and run again")?;
    Ok(program)
}
