//! A network of their own for the members of a cluster, in which each of them can be cut off.
//!
//! ```text
//!   this machine ── hub: clients ──┬── member 0 ──┬── hub: members
//!                                  ├── member 1 ──┤
//!                                  └── member 2 ──┘
//! ```
//!
//! Each member is in a network namespace with two interfaces: to where its clients are, and to the other members. An
//! interface that is down loses what is sent, without a word to either side, as a broken cable does.

use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use crate::skipping;

/// How many can be there at a time, of all processes of this machine.
const MOST: u8 = 255;

/// Run by `sh`, whose input ends when the network is dropped, or with the process that made it.
const REMOVE_AT_THE_END: &str = r#"cat >&2
ip link del "$1"
shift
for namespace; do ip netns del "$namespace"; done"#;

/// The first half of addresses that are set aside for measurements and used by nobody else.
const CLIENTS: [u8; 2] = [198, 18];
/// The second half of them.
const MEMBERS: [u8; 2] = [198, 19];

/// It ends with this value, or with this process.
#[derive(Debug)]
pub(crate) struct Network {
    number: u8,
    remover: Child,
}

impl Network {
    /// Makes one. Where that cannot be done, the test is skipped.
    pub(crate) fn new(members: usize) -> Self {
        let _ = skipping::program("ip");
        let network = Self::reserve(members);
        network.build(members).unwrap_or_else(|error| {
            skipping::lacks("network", format_args!("no network can be made here: {error}"))
        });
        network
    }

    /// Finds a number that nobody uses.
    fn reserve(members: usize) -> Self {
        for number in 0..MOST {
            match ip(&["netns", "add", &hub(number)]) {
                Ok(()) => {
                    let names = (0..members).map(|member| namespace(number, member));
                    let remover = remover(&root_interface(number), names.chain([hub(number)]));
                    return Self { number, remover: remover.expect("`sh` can be started") };
                }
                Err(error) if error.to_string().contains("exists") => {}
                Err(error) => skipping::lacks(
                    "network",
                    format_args!("no network namespace can be made here, run it as root: {error}"),
                ),
            }
        }
        panic!("{MOST} networks are there already; `ip netns list` shows them");
    }

    fn build(&self, members: usize) -> io::Result<()> {
        let (hub, root) = (hub(self.number), root_interface(self.number));
        for bridge in ["clients", "members"] {
            inside(&hub, &["link", "add", bridge, "type", "bridge"])?;
            inside(&hub, &["link", "set", bridge, "up"])?;
        }
        ip(&["link", "add", &root, "type", "veth", "peer", "name", "root", "netns", &hub])?;
        ip(&["addr", "add", &format!("{}/24", self.address(CLIENTS, 254)), "dev", &root])?;
        ip(&["link", "set", &root, "up"])?;
        inside(&hub, &["link", "set", "root", "master", "clients", "up"])?;
        for member in 0..members {
            let name = namespace(self.number, member);
            ip(&["netns", "add", &name])?;
            inside(&name, &["link", "set", "lo", "up"])?;
            for (bridge, host) in ["clients", "members"].into_iter().zip(self.hosts(member)) {
                let there = format!("{bridge}{member}");
                let pair = ["link", "add", bridge, "type", "veth", "peer", "name", &there];
                inside(&name, &[&pair[..], &["netns", &hub]].concat())?;
                inside(&name, &["addr", "add", &format!("{host}/24"), "dev", bridge])?;
                inside(&name, &["link", "set", bridge, "up"])?;
                inside(&hub, &["link", "set", &there, "master", bridge, "up"])?;
            }
        }
        Ok(())
    }

    /// Where a member is for clients, and for the other members.
    pub(crate) fn hosts(&self, member: usize) -> [IpAddr; 2] {
        let host = u8::try_from(member + 1).expect("a few members");
        [self.address(CLIENTS, host), self.address(MEMBERS, host)]
    }

    fn address(&self, [a, b]: [u8; 2], host: u8) -> IpAddr {
        Ipv4Addr::new(a, b, self.number, host).into()
    }

    /// What starts a program where a member is.
    pub(crate) fn inside(
        &self,
        member: usize,
        program: &OsStr,
        args: Vec<OsString>,
    ) -> (OsString, Vec<OsString>) {
        let name = namespace(self.number, member);
        let mut all: Vec<OsString> = ["netns", "exec", &name].map(OsString::from).to_vec();
        all.push(program.to_owned());
        all.extend(args);
        ("ip".into(), all)
    }

    /// Whether a member reaches the other members and clients, and they it.
    pub(crate) fn set(&self, member: usize, members: bool, clients: bool) {
        for (bridge, is_up) in [("members", members), ("clients", clients)] {
            let (interface, state) =
                (format!("{bridge}{member}"), if is_up { "up" } else { "down" });
            inside(&hub(self.number), &["link", "set", &interface, state])
                .expect("an interface of our own");
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        drop(self.remover.stdin.take());
        // It has no way to fail that matters to a test.
        let _ = self.remover.wait();
    }
}

fn hub(number: u8) -> String {
    format!("quorlock-{number}-hub")
}

fn namespace(number: u8, member: usize) -> String {
    format!("quorlock-{number}-{member}")
}

/// How this machine is connected. A name of at most 15 bytes.
fn root_interface(number: u8) -> String {
    format!("quorlock-{number}")
}

/// Removes all of it in the end, whether this process ends well or not.
fn remover(link: &str, namespaces: impl Iterator<Item = String>) -> io::Result<Child> {
    Command::new("sh")
        .args(["-c", REMOVE_AT_THE_END, "sh", link])
        .args(namespaces)
        // What interrupts the tests must not interrupt the removal.
        .process_group(0)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
}

fn inside(namespace: &str, args: &[&str]) -> io::Result<()> {
    ip(&[&["-n", namespace], args].concat())
}

fn ip(args: &[&str]) -> io::Result<()> {
    let output = Command::new("ip").args(args).stdin(Stdio::null()).output()?;
    match output.status.success() {
        true => Ok(()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(io::Error::other(format!("ip {}: {}", args.join(" "), said.trim())))
        }
    }
}
