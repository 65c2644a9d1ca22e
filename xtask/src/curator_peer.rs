//! The service that locks with Curator, which the tests share locks with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::debian::Package;
use crate::project::{Project, find_program, run};

/// Its source, and what it uses.
const SOURCES: &str = "crates/quorlock/tests/nodes/curator/peer";
const FILES: [&str; 2] = ["pom.xml", "CuratorPeer.java"];

/// The copies of these beside what was built, which say what it was built from.
const STAMPS: &str = "built-from";

/// The packages of what builds it, as far as the machine lacks them.
pub(crate) fn missing_packages() -> impl Iterator<Item = Package> {
    let why = "tests share locks with a Java service that uses Curator";
    let compiler = Package { name: "default-jdk-headless", why };
    let maven = Package { name: "maven", why: "it fetches Curator for these tests" };
    [("javac", compiler), ("mvn", maven)]
        .into_iter()
        .filter_map(|(program, package)| find_program(program).is_none().then_some(package))
}

/// Builds it, unless it is up to date, and returns its class path.
pub(crate) fn prepare(project: &Project) -> Result<String> {
    let folder = project.target.join("peers-java");
    let sources = project.root.join(SOURCES);
    if !is_up_to_date(&sources, &folder) {
        println!(
            "building {} with Curator, which Maven fetches for that: the tests share locks with it",
            folder.display()
        );
        build(&sources, &folder)?;
    }
    let classes = folder.join("classes");
    let libraries = folder.join("lib").join("*");
    Ok(format!("{}:{}", classes.display(), libraries.display()))
}

fn build(sources: &Path, folder: &Path) -> Result<()> {
    run(Command::new("mvn")
        .current_dir(sources)
        .args(["-q", "-B", "compile"])
        .arg(format!("-Dpeer.target={}", folder.display())))
    .context(
        "the service that locks with Curator was not built: see that Maven's packages can be fetched, and run again",
    )?;
    // Last, so that what was broken off is done again.
    for name in FILES {
        fs::create_dir_all(folder.join(STAMPS))?;
        fs::copy(sources.join(name), stamp(folder, name))
            .with_context(|| format!("copying {name}"))?;
    }
    Ok(())
}

fn is_up_to_date(sources: &Path, folder: &Path) -> bool {
    FILES.iter().all(|name| {
        let source = fs::read(sources.join(name)).ok();
        source.is_some() && source == fs::read(stamp(folder, name)).ok()
    })
}

fn stamp(folder: &Path, name: &str) -> PathBuf {
    folder.join(STAMPS).join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_is_built_again() {
        let folder = std::env::temp_dir().join(format!("curator-peer-{}", std::process::id()));
        let (sources, built) = (folder.join("sources"), folder.join("built"));
        fs::create_dir_all(&sources).unwrap();
        fs::create_dir_all(built.join(STAMPS)).unwrap();
        assert!(!is_up_to_date(&sources, &built), "there is nothing");
        for name in FILES {
            fs::write(sources.join(name), "1").unwrap();
            assert!(!is_up_to_date(&sources, &built), "{name} is new");
            fs::write(stamp(&built, name), "1").unwrap();
        }
        assert!(is_up_to_date(&sources, &built));
        fs::write(sources.join(FILES[0]), "2").unwrap();
        assert!(!is_up_to_date(&sources, &built));
        fs::remove_dir_all(&folder).unwrap();
    }
}
