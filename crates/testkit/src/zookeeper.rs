//! Real ZooKeeper servers in child processes.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::clock::{ControlPage, Moves};
use crate::ensemble::{self, Home, Member, Shared};
use crate::skipping;

/// Where Debian's package has the server. The file names all others that it needs, except for one
/// that writes the log.
const SERVER: &str = "/usr/share/java/zookeeper.jar";
const LOG_WRITER: &str = "/usr/share/java/slf4j-simple.jar";

/// The class that is run. With one member only, it runs that without a quorum.
const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// A small machine that starts fast rather than runs fast.
const JAVA: [&str; 3] = ["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];

/// One that runs for long.
const DURABLE_JAVA: [&str; 2] = ["-Xmx256m", "-XX:+UseG1GC"];

/// The settings of every member. A tick is 0.1 s: a silent leader is given up after 2 s.
const SETTINGS: &str = "tickTime=100
initLimit=50
syncLimit=20
minSessionTimeout=200
maxSessionTimeout=60000
clientPortAddress=127.0.0.1
maxClientCnxns=0
4lw.commands.whitelist=*
admin.enableServer=false
forceSync=no
";

/// Which of a member's ports is for what.
const CLIENTS: usize = 0;
const FOLLOWERS: usize = 1;
const ELECTION: usize = 2;

/// A ZooKeeper ensemble of the test's own, on free ports of 127.0.0.1.
///
/// Sessions may be as short as 0.2 s. The members are killed when this is dropped, and when the
/// test's process ends in whatever way.
#[derive(Debug)]
pub struct ZooKeeperEnsemble {
    members: Vec<Member>,
}

impl ZooKeeperEnsemble {
    /// Starts an ensemble, and waits until all members serve clients.
    ///
    /// # Panics
    ///
    /// When a member does not come up. The message has the end of its log.
    #[must_use]
    pub fn start(members: usize) -> Self {
        Self::start_with(members, &[])
    }

    /// As [`start`](Self::start), with more settings for every member, such as
    /// `&[("extendedTypesEnabled", "true")]`. They win over those that are given anyway.
    ///
    /// # Panics
    ///
    /// When a member does not come up. The message has the end of its log.
    #[must_use]
    pub fn start_with(members: usize, extra: &[(&str, &str)]) -> Self {
        Self::start_as(&JAVA, members, extra, false)
    }

    /// Starts an ensemble as one that is in use: what it acknowledges was written to the disks of a majority, and its
    /// machines are made to run rather than to start.
    ///
    /// # Panics
    ///
    /// When a member does not come up. The message has the end of its log.
    #[must_use]
    pub fn start_durable(members: usize) -> Self {
        Self::start_as(&DURABLE_JAVA, members, &[("forceSync", "yes")], false)
    }

    /// As [`start`](Self::start), with a wall clock of its own for each member, which
    /// [`jump_ms`](Self::jump_ms) sets. The clocks that count what has passed stay true.
    ///
    /// # Panics
    ///
    /// When a member does not come up. The message has the end of its log.
    #[must_use]
    pub fn start_with_clocks(members: usize) -> Self {
        Self::start_as(&JAVA, members, &[], true)
    }

    fn start_as(
        machine: &[&str],
        members: usize,
        extra: &[(&str, &str)],
        own_clocks: bool,
    ) -> Self {
        let java = skipping::program("java").into_os_string();
        let class_path = skipping::zookeeper();
        let homes: Vec<_> = (0..members).map(|_| Home::new("zookeeper", 3)).collect();
        let peers: String =
            homes.iter().enumerate().map(|(index, home)| peer(index, home)).collect();
        let launch = |(index, home)| {
            // One alone is not told of itself: it would look for others to elect it.
            let peers = if members == 1 { "" } else { &peers };
            let settings = write_settings(index, &home, peers, extra);
            let clock = own_clocks.then(|| ControlPage::new(home.dir(), Moves::Wall));
            let arguments = arguments(machine, &class_path, &settings);
            Member::launch_by(clock, java.clone(), arguments, home)
        };
        let ensemble = Self { members: homes.into_iter().enumerate().map(launch).collect() };
        ensemble.wait_until_healthy();
        ensemble
    }

    /// An ensemble for all tests of this process that do no harm to its members. Each keeps to nodes
    /// below a [`fresh_prefix`](crate::fresh_prefix).
    ///
    /// # Panics
    ///
    /// When a member does not come up. The message has the end of its log.
    #[must_use]
    pub fn shared(members: usize) -> &'static Self {
        static SHARED: Shared<ZooKeeperEnsemble> = Shared::new();
        SHARED.get(members, Self::start, |ensemble| &ensemble.members)
    }

    /// Where clients find the members: `127.0.0.1:PORT` of each.
    #[must_use]
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| member.addr().to_string()).collect()
    }

    /// All endpoints in one: `zookeeper://127.0.0.1:PORT,127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("zookeeper://{}", self.endpoints().join(","))
    }

    /// The same for locks that are shared with Curator: `zookeeper+curator://127.0.0.1:PORT,127.0.0.1:PORT`.
    #[must_use]
    pub fn curator_url(&self) -> String {
        format!("zookeeper+curator://{}", self.endpoints().join(","))
    }

    /// Waits until a member leads, and returns which. One alone leads itself.
    ///
    /// # Panics
    ///
    /// When none does for a long time, as without a majority.
    #[must_use]
    pub fn leader(&self) -> usize {
        ensemble::leader(&self.members, last_change_led)
    }

    /// The process of a member, or its last one if it is down.
    #[must_use]
    pub fn pid(&self, member: usize) -> u32 {
        self.members[member].pid()
    }

    /// Stops a member where it is, and waits until it stands still.
    ///
    /// # Panics
    ///
    /// When it is down.
    pub fn stop(&self, member: usize) {
        self.members[member].stop();
    }

    /// Lets a stopped member go on.
    ///
    /// # Panics
    ///
    /// When it is down.
    pub fn cont(&self, member: usize) {
        self.members[member].cont();
    }

    /// Kills a member, stopped or not, and waits until it is gone.
    pub fn kill(&self, member: usize) {
        self.members[member].kill();
    }

    /// Starts a member again where it was, with what it had stored, and waits until all that run
    /// serve clients. While they are no majority they cannot, and are not waited for.
    ///
    /// It is killed first if it still runs.
    ///
    /// # Panics
    ///
    /// When it does not come up.
    pub fn restart(&self, member: usize) {
        self.members[member].relaunch();
        self.wait_until_healthy();
    }

    /// The same without what it had stored: it knows neither nodes nor sessions. A member that is not alone is told of
    /// both by the others.
    ///
    /// # Panics
    ///
    /// When it does not come up.
    pub fn restart_empty(&self, member: usize) {
        self.members[member].kill();
        let stored = self.members[member].home_dir().join("data").join("version-2");
        fs::remove_dir_all(stored).expect("what it had stored");
        self.restart(member);
    }

    /// Moves the clock of a member by so many milliseconds at once: forward, or back if negative.
    ///
    /// # Panics
    ///
    /// When it has none of its own.
    pub fn jump_ms(&self, member: usize, by_ms: i64) {
        self.members[member].jump_ms(by_ms);
    }

    fn wait_until_healthy(&self) {
        ensemble::wait_until_healthy(&self.members, |member| {
            state(member).is_some_and(|state| field(&state, "Mode").is_some())
        });
    }
}

/// What the server's program needs, or nothing where it is not installed.
pub(crate) fn find_class_path() -> Option<OsString> {
    let files = [SERVER, LOG_WRITER];
    files.iter().all(|file| Path::new(file).is_file()).then(|| files.join(":").into())
}

fn arguments(machine: &[&str], class_path: &OsString, settings: &Path) -> Vec<OsString> {
    let mut args: Vec<_> = machine.iter().map(OsString::from).collect();
    args.extend(["-cp".into(), class_path.into(), MAIN.into(), settings.into()]);
    args
}

/// Writes the files that a member reads when it starts, and returns where its settings are.
fn write_settings(index: usize, home: &Home, peers: &str, extra: &[(&str, &str)]) -> PathBuf {
    let data = home.dir().join("data");
    let mut settings =
        format!("{SETTINGS}dataDir={}\nclientPort={}\n{peers}", data.display(), home.port(CLIENTS));
    for (name, value) in extra {
        writeln!(settings, "{name}={value}").expect("a string takes what is written");
    }
    let file = home.dir().join("zoo.cfg");
    fs::create_dir(&data)
        .and_then(|()| fs::write(data.join("myid"), index.to_string()))
        .and_then(|()| fs::write(&file, settings))
        .expect("the member's directory can be written to");
    file
}

/// A member as all are told of it.
fn peer(index: usize, home: &Home) -> String {
    format!("server.{index}=127.0.0.1:{}:{}\n", home.port(FOLLOWERS), home.port(ELECTION))
}

/// What a member says of itself, if it says anything.
fn state(member: &Member) -> Option<String> {
    member.ask("srvr").ok()
}

/// The number of the last change of a member that leads, by its own word. Who takes the lead begins
/// with a number that is higher than all before.
fn last_change_led(member: &Member) -> Option<u64> {
    let state = state(member)?;
    if !matches!(field(&state, "Mode")?, "leader" | "standalone") {
        return None;
    }
    u64::from_str_radix(field(&state, "Zxid")?.strip_prefix("0x")?, 16).ok()
}

/// A line `name: value`. A member that serves no clients has none.
fn field<'a>(state: &'a str, name: &str) -> Option<&'a str> {
    state.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}
