//! Real etcd servers in child processes.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::ensemble::{self, Home, Member, Shared};
use crate::network::Network;
use crate::skipping;
use crate::tls::Certificates;

/// The program that is run.
const ETCD: &str = "etcd";

/// Which of a member's ports is for what. The first is for clients.
const PEERS: usize = 1;
const SECURE: usize = 2;

/// An etcd cluster of the test's own, on free ports of 127.0.0.1.
///
/// A member that does not hear from the leader takes the lead after 0.2 to 0.4 s. The members are
/// killed when this is dropped, and when the test's process ends in whatever way.
#[derive(Debug)]
pub struct EtcdCluster {
    members: Vec<Member>,
    /// If they have one of their own. It ends after them.
    network: Option<Network>,
}

/// Where a member speaks TLS, and what it asks of its clients.
#[derive(Debug)]
pub struct EtcdTls {
    /// `127.0.0.1:PORT`.
    pub endpoint: String,
    /// The authority that a client has to trust, as a PEM file.
    pub ca: PathBuf,
    /// A certificate that a client has to show.
    pub cert: PathBuf,
    /// The key of that.
    pub key: PathBuf,
}

impl EtcdCluster {
    /// Starts one member that speaks TLS on a port of its own, and lets nobody in there without a certificate.
    ///
    /// # Panics
    ///
    /// When it does not come up. The message has the end of its log.
    #[must_use]
    pub fn start_with_tls() -> (Self, EtcdTls) {
        let program = skipping::program(ETCD).into_os_string();
        let home = Home::new(ETCD, 3);
        let Certificates { ca, server: cert, key } = Certificates::write_to(home.dir());
        let endpoint = format!("127.0.0.1:{}", home.port(SECURE));
        let mut args = arguments(0, &home, &peer(0, &home));
        let urls = format!("{},https://{endpoint}", url(home.for_clients()));
        args.extend(["--listen-client-urls".into(), urls.into(), "--client-cert-auth".into()]);
        for (name, file) in
            [("--cert-file", &cert), ("--key-file", &key), ("--trusted-ca-file", &ca)]
        {
            args.extend([name.into(), file.into()]);
        }
        let cluster = Self { members: vec![Member::launch(program, args, home)], network: None };
        cluster.wait_until_healthy();
        (cluster, EtcdTls { endpoint, ca, cert, key })
    }

    /// Starts a cluster, and waits until all members are healthy.
    ///
    /// # Panics
    ///
    /// When a member does not come up. The message has the end of its log.
    #[must_use]
    pub fn start(members: usize) -> Self {
        Self::start_with(members, &[])
    }

    /// As [`start`](Self::start), with more arguments for every member, such as
    /// `&["--quota-backend-bytes", "16777216"]`. They win over those that are given anyway.
    ///
    /// # Panics
    ///
    /// When a member does not come up. The message has the end of its log.
    #[must_use]
    pub fn start_with(members: usize, extra: &[&str]) -> Self {
        Self::start_on(None, members, extra)
    }

    /// Starts a cluster in a network of its own, in which members can be cut off: see [`cut_off`](Self::cut_off).
    ///
    /// That takes root. Without it the test is skipped.
    ///
    /// # Panics
    ///
    /// When a member does not come up. The message has the end of its log.
    #[must_use]
    pub fn start_in_network(members: usize) -> Self {
        // Before anything else, so that nothing has to be undone if it is missing.
        let _ = skipping::program(ETCD);
        Self::start_on(Some(Network::new(members)), members, &[])
    }

    fn start_on(network: Option<Network>, members: usize, extra: &[&str]) -> Self {
        let program = skipping::program(ETCD).into_os_string();
        let home = |member| match &network {
            Some(network) => Home::on(ETCD, 2, network.hosts(member)),
            None => Home::new(ETCD, 2),
        };
        let homes: Vec<_> = (0..members).map(home).collect();
        let peers: Vec<_> =
            homes.iter().enumerate().map(|(index, home)| peer(index, home)).collect();
        let peers = peers.join(",");
        let launch = |(index, home)| {
            let mut args = arguments(index, &home, &peers);
            args.extend(fsync_off(&program).map(OsString::from));
            args.extend(extra.iter().map(OsString::from));
            let (program, args) = match &network {
                Some(network) => network.inside(index, &program, args),
                None => (program.clone(), args),
            };
            Member::launch(program, args, home)
        };
        let members = homes.into_iter().enumerate().map(launch).collect();
        let cluster = Self { members, network };
        cluster.wait_until_healthy();
        cluster
    }

    /// Starts a cluster as one that is in use: it has etcd's own defaults of time, and what it acknowledges was written to
    /// the disks of a majority.
    ///
    /// # Panics
    ///
    /// When a member does not come up. The message has the end of its log.
    #[must_use]
    pub fn start_durable(members: usize) -> Self {
        let program = skipping::program(ETCD).into_os_string();
        let fsync_on = fsync_off(&program).map(|off| format!("{off}=false"));
        let usual = ["--heartbeat-interval", "100", "--election-timeout", "1000"];
        let all: Vec<_> = usual.into_iter().chain(fsync_on.as_deref()).collect();
        Self::start_with(members, &all)
    }

    /// A cluster for all tests of this process that do no harm to its members. Each keeps to keys
    /// that begin with a [`fresh_prefix`](crate::fresh_prefix).
    ///
    /// # Panics
    ///
    /// When a member does not come up. The message has the end of its log.
    #[must_use]
    pub fn shared(members: usize) -> &'static Self {
        static SHARED: Shared<EtcdCluster> = Shared::new();
        SHARED.get(members, Self::start, |cluster| &cluster.members)
    }

    /// Where clients find the members: `127.0.0.1:PORT` of each.
    #[must_use]
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| member.addr().to_string()).collect()
    }

    /// All endpoints in one: `etcd://127.0.0.1:PORT,127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("etcd://{}", self.endpoints().join(","))
    }

    /// The same for locks that are shared with Go's clients: `etcd+mutex://127.0.0.1:PORT,127.0.0.1:PORT`.
    #[must_use]
    pub fn mutex_url(&self) -> String {
        format!("etcd+mutex://{}", self.endpoints().join(","))
    }

    /// Waits until a member leads, and returns which.
    ///
    /// # Panics
    ///
    /// When none does for a long time, as without a majority.
    #[must_use]
    pub fn leader(&self) -> usize {
        ensemble::leader(&self.members, term_led)
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

    /// Starts a member again where it was, with what it had stored, and waits until all that run are
    /// healthy. While they are no majority they cannot be, and are not waited for.
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

    /// Cuts a member off from the other members, and from clients as well if `clients` says so. Nothing is refused: what
    /// is sent does not arrive.
    ///
    /// # Panics
    ///
    /// If the cluster has no [network of its own](Self::start_in_network).
    pub fn cut_off(&self, member: usize, clients: bool) {
        self.network().set(member, false, !clients);
    }

    /// Ends that.
    ///
    /// # Panics
    ///
    /// If the cluster has no network of its own.
    pub fn reconnect(&self, member: usize) {
        self.network().set(member, true, true);
    }

    fn network(&self) -> &Network {
        self.network.as_ref().expect("a cluster that was started in a network")
    }

    /// Where a member keeps what it has stored.
    #[must_use]
    pub fn data_dir(&self, member: usize) -> PathBuf {
        data_dir(self.members[member].dir())
    }

    /// Whether the process of a member is there.
    #[must_use]
    pub fn is_running(&self, member: usize) -> bool {
        self.members[member].goes()
    }

    fn wait_until_healthy(&self) {
        ensemble::wait_until_healthy(&self.members, is_healthy);
    }
}

/// The arguments of a member, of which `peers` lists all.
fn arguments(index: usize, home: &Home, peers: &str) -> Vec<OsString> {
    let clients = url(home.for_clients());
    let own = url(home.for_members(PEERS));
    let settings = [
        ("--name", name(index)),
        ("--listen-client-urls", clients.clone()),
        ("--advertise-client-urls", clients),
        ("--listen-peer-urls", own.clone()),
        ("--initial-advertise-peer-urls", own),
        ("--initial-cluster", peers.to_owned()),
        ("--heartbeat-interval", "20".to_owned()),
        ("--election-timeout", "200".to_owned()),
    ];
    let data = ["--data-dir".into(), data_dir(home.dir()).into()];
    let settings = settings.into_iter().flat_map(|(name, value)| [name.into(), value.into()]);
    data.into_iter().chain(settings).collect()
}

/// A member as the others are told of it.
fn peer(index: usize, home: &Home) -> String {
    format!("{}={}", name(index), url(home.for_members(PEERS)))
}

fn data_dir(home: &Path) -> PathBuf {
    home.join("data")
}

fn name(index: usize) -> String {
    format!("member-{index}")
}

fn url(addr: SocketAddr) -> String {
    format!("http://{addr}")
}

/// The argument that leaves out waiting for the disk, which no test needs: a killed process loses
/// nothing that it wrote. Not every version has it.
fn fsync_off(program: &OsString) -> Option<&'static str> {
    const ARGUMENT: &str = "--unsafe-no-fsync";
    static KNOWN: OnceLock<bool> = OnceLock::new();
    let known = KNOWN.get_or_init(|| {
        let help = Command::new(program).arg("--help").output();
        help.is_ok_and(|help| {
            [help.stdout, help.stderr]
                .iter()
                .any(|text| String::from_utf8_lossy(text).contains(ARGUMENT))
        })
    });
    known.then_some(ARGUMENT)
}

/// Whether a member has a leader and answers reads.
fn is_healthy(member: &Member) -> bool {
    let answer = member.ask("GET /health HTTP/1.0\r\n\r\n");
    answer.is_ok_and(|answer| answer.contains(r#""health":"true""#))
}

/// The term that a member leads, by its own word.
fn term_led(member: &Member) -> Option<u64> {
    let question = "POST /v3/maintenance/status HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}";
    let status = member.ask(question).ok()?;
    let leads = field(&status, "leader")? == field(&status, "member_id")?;
    if leads { field(&status, "raft_term")?.parse().ok() } else { None }
}

/// A field that is a string, of an answer in which no other has this name.
fn field<'a>(json: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = json.split_once(&format!("\"{name}\":\""))?;
    Some(rest.split_once('"')?.0)
}
