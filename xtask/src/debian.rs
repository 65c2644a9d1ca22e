//! Debian packages that the tests need and the machine lacks.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::project::{find_program, run};

/// What the tests run of ZooKeeper. It is no program, so it is not on the PATH.
const ZOOKEEPER: [&str; 2] = ["/usr/share/java/zookeeper.jar", "/usr/share/java/slf4j-simple.jar"];

/// A package to install, and what for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Package {
    pub(crate) name: &'static str,
    /// Reads on after the name: `redis-server: the tests start real Redis servers`.
    pub(crate) why: &'static str,
}

/// The Redis server's package, unless the machine has the program.
pub(crate) fn missing_redis() -> Option<Package> {
    let name = "redis-server";
    let why = "tests and benchmarks start real Redis servers of their own";
    find_program(name).is_none().then_some(Package { name, why })
}

/// The packages of a C compiler and what it needs, unless the machine has one.
pub(crate) fn missing_c_compiler() -> &'static [Package] {
    const PACKAGES: [Package; 2] = [
        Package { name: "gcc", why: "the clocks of the test servers are a small library in C" },
        // Only recommended by the compiler, and what is recommended is not installed.
        Package { name: "libc6-dev", why: "the compiler needs the headers of the C library" },
    ];
    if find_program("cc").is_some() { &[] } else { &PACKAGES }
}

/// The browser's package, unless the machine has the program.
pub(crate) fn missing_chromium() -> Option<Package> {
    let name = "chromium";
    let why = "the pictures of simulated runs are looked at in a real browser";
    find_program(name).is_none().then_some(Package { name, why })
}

/// The package of what counts instructions, unless the machine has it.
pub(crate) fn missing_valgrind() -> Option<Package> {
    let name = "valgrind";
    let why = "what a lock costs is counted in instructions, which no busy machine can change";
    find_program(name).is_none().then_some(Package { name, why })
}

/// PostgreSQL's package, unless the machine has the server.
pub(crate) fn missing_postgres() -> Option<Package> {
    let why = "the tests start real databases of their own";
    let server = find_program("postgres").is_some() || debian_has_postgres();
    (!server).then_some(Package { name: "postgresql", why })
}

/// MariaDB's packages, of which the machine lacks the program.
pub(crate) fn missing_mariadb() -> impl Iterator<Item = Package> {
    let server = Package {
        name: "mariadb-server-core",
        why: "tests start real MariaDB servers of their own",
    };
    let client = Package {
        name: "mariadb-client-core",
        why: "what tests leave in MariaDB can be looked at",
    };
    let has_server =
        find_program("mariadbd").is_some() || Path::new("/usr/sbin/mariadbd").is_file();
    let has_client = find_program("mariadb").is_some();
    (!has_server).then_some(server).into_iter().chain((!has_client).then_some(client))
}

/// The package of a pooler before PostgreSQL, unless the machine has the program.
pub(crate) fn missing_pgbouncer() -> Option<Package> {
    let name = "pgbouncer";
    let why = "locks in PostgreSQL are tried out behind a real pooler";
    find_program(name).is_none().then_some(Package { name, why })
}

/// The packages of etcd, of which the machine lacks the program.
pub(crate) fn missing_etcd() -> impl Iterator<Item = Package> {
    let server =
        Package { name: "etcd-server", why: "tests start real etcd clusters of their own" };
    let client = Package { name: "etcd-client", why: "what tests leave in etcd can be looked at" };
    [("etcd", server), ("etcdctl", client)]
        .into_iter()
        .filter_map(|(program, package)| find_program(program).is_none().then_some(package))
}

/// The packages of ZooKeeper and of what runs it, as far as the machine lacks them.
pub(crate) fn missing_zookeeper() -> impl Iterator<Item = Package> {
    // The package of the server does not ask for one that runs it.
    let java = Package { name: "default-jre-headless", why: "ZooKeeper is written in Java" };
    let why = "tests start real ZooKeeper ensembles of their own";
    let server = Package { name: "libzookeeper-java", why };
    let java = find_program("java").is_none().then_some(java);
    let found = ZOOKEEPER.iter().all(|file| Path::new(file).is_file());
    java.into_iter().chain((!found).then_some(server))
}

/// Debian keeps the server of each version in a folder that is not on the PATH.
fn debian_has_postgres() -> bool {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    versions.into_iter().any(|version| version.path().join("bin/postgres").is_file())
}

/// Installs the packages with `apt-get`; does nothing if there are none.
pub(crate) fn install(packages: &[Package]) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    for package in packages {
        println!("missing {}: {}", package.name, package.why);
    }
    let names: Vec<&str> = packages.iter().map(|package| package.name).collect();
    let names = names.join(" ");
    if find_program("apt-get").is_none() {
        bail!(
            "{names} cannot be installed: there is no `apt-get` here. \
             Install by hand what has the same name on this system, and run again"
        );
    }
    let rights = Rights::find(&names)?;

    println!("installing {names} with apt-get");
    if let Err(error) = run(rights.apt_get().arg("update")) {
        // One broken source among many makes the update fail; the package may come from another.
        println!("the package lists are not all fresh ({error:#}); trying to install all the same");
    }
    run(rights.apt_get().args(["install", "-y", "--no-install-recommends"]).args(names.split(' ')))
        .with_context(|| format!("installing {names}: install by hand, and run again"))
}

/// How `apt-get` gets the rights to install.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rights {
    Root,
    Sudo,
}

impl Rights {
    fn find(names: &str) -> Result<Self> {
        let output = Command::new("id").arg("-u").output().context("`id -u` does not start")?;
        if output.stdout.trim_ascii() == b"0" {
            return Ok(Self::Root);
        }
        if find_program("sudo").is_some() {
            return Ok(Self::Sudo);
        }
        bail!(
            "{names} cannot be installed: this user is not root and there is no `sudo`. \
             Run `apt-get install {names}` as root, and run again"
        )
    }

    fn apt_get(self) -> Command {
        // `env` stands in the command line because `sudo` hands no variables on.
        let mut command = match self {
            Self::Root => Command::new("env"),
            Self::Sudo => {
                let mut sudo = Command::new("sudo");
                sudo.arg("env");
                sudo
            }
        };
        // At run level 1 the package does not start a server of its own. Where it does so all the
        // same no harm is done: the tests use servers and ports of their own.
        command.args(["DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", "apt-get", "-qq"]);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::command_line;

    #[test]
    fn nothing_missing_is_nothing_done() {
        install(&[]).unwrap();
    }

    #[test]
    fn variables_reach_apt_get_through_sudo() {
        let direct = "env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -qq";
        assert_eq!(command_line(&Rights::Root.apt_get()), direct);
        assert_eq!(command_line(&Rights::Sudo.apt_get()), format!("sudo {direct}"));
    }
}
