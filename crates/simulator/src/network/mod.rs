//! Ordered connections over paths that delay, hold back and break.
//!
//! ```text
//!   link (client) ── Up: hello, requests, fin ──▶ server        in order, each with its delay
//!                 ◀── Down: welcome, replies, grants, reset ──
//! ```
//!
//! A path that is cut holds back what is on it, as TCP does, and lets go of it when it is mended. A
//! connection that its client has given up may still hold requests: they run late, unless the server
//! was started anew or was asked to end that connection.

mod link;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use quorlock::node::{ClientId, Grant, Secret};
use quorlock_protocol::Window;

use crate::nodes::{Asked, Execution, Served, digest_of, lock_index, reply};
use crate::random::Random;
use crate::trace::{Executed, What};
use crate::world::{Event, State, WALL_START};
pub(crate) use link::{Link, SimulatedNode};

pub(crate) type ConnId = u32;
pub(crate) type LinkId = u32;

/// The way between one process and one node.
pub(crate) struct Path {
    random: Random,
    base: u64,
    /// What faults add to the delay, for the time of the fault.
    pub(crate) extra: u64,
    /// So many faults hold back what goes to the node.
    pub(crate) cut_up: u32,
    /// And what comes from it.
    pub(crate) cut_down: u32,
}

/// A connection.
pub(crate) struct Conn {
    pub(crate) process: usize,
    pub(crate) node: usize,
    link: LinkId,
    up: VecDeque<(u64, Up)>,
    down: VecDeque<(u64, Down)>,
    up_last: u64,
    down_last: u64,
    client_open: bool,
    server_open: bool,
    /// Which client listens to grant messages on it.
    listener: Option<ClientId>,
    /// Which start of the server has greeted it.
    run_id: u64,
    /// When a server that is busy looks at it again.
    looks_at: u64,
}

/// What a client sends.
#[derive(Debug)]
pub(crate) enum Up {
    /// The beginning: who it is, and which connection it had before, to which start of the server.
    Hello {
        client: ClientId,
        before: Option<(ConnId, u64)>,
        /// The digest of the set of nodes that it was given.
        set: Arc<str>,
    },
    Request {
        request: u32,
        sent: u64,
        asked: Asked,
        /// Whether it lies in the command of the one before it.
        together: bool,
    },
    Fin,
}

/// What a server sends.
#[derive(Debug)]
pub(crate) enum Down {
    Welcome { run_id: u64, votes: bool },
    Refused,
    Reply { request: u32, served: Served },
    Grant(Grant),
    Reset,
}

pub(crate) struct Network {
    paths: Vec<Vec<Path>>,
    conns: BTreeMap<ConnId, Conn>,
    next_conn: ConnId,
    next_request: u32,
    /// Whether a client that connects again has its old connection ended on the server first.
    kills: bool,
    /// For what happens to connections that are given up.
    random: Random,
    /// The latest grant messages, as an eavesdropper has them.
    overheard: VecDeque<(ClientId, Grant)>,
}

/// So many messages an eavesdropper remembers.
const OVERHEARD: usize = 32;

impl Network {
    pub(crate) fn new(seed: u64, processes: usize, nodes: usize) -> Self {
        let path = |process: usize, node: usize| {
            let mut random = Random::new(seed, 1_000 + (process * 100 + node) as u64);
            let base = random.between(50_000, 1_500_000);
            Path { random, base, extra: 0, cut_up: 0, cut_down: 0 }
        };
        let paths = (0..processes).map(|process| (0..nodes).map(|n| path(process, n)).collect());
        let mut random = Random::new(seed, 2);
        // Not every user has the right to it.
        let kills = random.percent(75);
        let paths = paths.collect();
        let (conns, overheard) = (BTreeMap::new(), VecDeque::new());
        Self { paths, conns, next_conn: 1, next_request: 1, kills, random, overheard }
    }

    pub(crate) fn path(&mut self, process: usize, node: usize) -> &mut Path {
        &mut self.paths[process][node]
    }

    /// How many connections servers believe to have.
    pub(crate) fn open(&self) -> usize {
        self.conns.values().filter(|conn| conn.server_open).count()
    }

    fn overhear(&mut self, client: ClientId, grant: Grant) {
        self.overheard.push_back((client, grant));
        if self.overheard.len() > OVERHEARD {
            self.overheard.pop_front();
        }
    }

    /// The connections of a node.
    fn of_node(&self, node: usize) -> Vec<ConnId> {
        let of = self.conns.iter().filter(|(_, conn)| conn.node == node);
        of.map(|(id, _)| *id).collect()
    }

    /// The connections over a path.
    fn over(&self, process: usize, node: usize) -> Vec<ConnId> {
        let over = |conn: &Conn| conn.process == process && conn.node == node;
        self.conns.iter().filter(|(_, conn)| over(conn)).map(|(id, _)| *id).collect()
    }
}

impl Path {
    fn delay(&mut self) -> u64 {
        let jitter = self.random.below(self.base);
        // A packet that got lost and was sent again, within what a node may take.
        let again = if self.random.below(400) == 0 { self.random.below(30_000_000) } else { 0 };
        self.base + jitter + again + self.extra
    }
}

impl State {
    /// Opens a connection at a time, with its first message.
    fn open(&mut self, process: usize, node: usize, link: LinkId, at: u64, hello: Up) -> ConnId {
        let id = self.network.next_conn;
        self.network.next_conn += 1;
        let conn = Conn {
            process,
            node,
            link,
            up: VecDeque::new(),
            down: VecDeque::new(),
            up_last: 0,
            down_last: 0,
            client_open: true,
            server_open: false,
            listener: None,
            run_id: 0,
            looks_at: 0,
        };
        self.network.conns.insert(id, conn);
        // A round trip of its own comes before anything is said.
        let greeted = at + 2 * self.network.path(process, node).delay();
        self.send_up(id, greeted, hello);
        id
    }

    /// Sends a request at a time, and returns its number.
    fn request(&mut self, conn: ConnId, at: u64, asked: Asked, together: bool) -> u32 {
        let request = self.network.next_request;
        self.network.next_request += 1;
        self.send_up(conn, at, Up::Request { request, sent: at, asked, together });
        request
    }

    fn send_up(&mut self, id: ConnId, at: u64, message: Up) {
        let Some(conn) = self.network.conns.get_mut(&id) else { return };
        let slow = self.servers[conn.node].slow;
        let arrives = if matches!(message, Up::Request { together: true, .. }) {
            conn.up_last
        } else {
            let delay = self.network.paths[conn.process][conn.node].delay();
            (at + delay + slow).max(conn.up_last)
        };
        conn.up_last = arrives;
        conn.up.push_back((arrives, message));
        self.at(arrives, Event::Up(id));
    }

    fn send_down(&mut self, id: ConnId, message: Down) {
        let now = self.now;
        let Some(conn) = self.network.conns.get_mut(&id) else { return };
        if !conn.client_open {
            return;
        }
        let delay = self.network.paths[conn.process][conn.node].delay();
        let arrives = (now + delay).max(conn.down_last);
        conn.down_last = arrives;
        conn.down.push_back((arrives, message));
        self.at(arrives, Event::Down(id));
    }

    /// Takes in what has arrived at a server.
    pub(crate) fn flow_up(&mut self, id: ConnId) {
        loop {
            let now = self.now;
            let Some(conn) = self.network.conns.get_mut(&id) else { return };
            let node = conn.node;
            let held =
                self.network.paths[conn.process][node].cut_up > 0 || self.servers[node].stopped > 0;
            if held || conn.up.front().is_none_or(|(arrives, _)| *arrives > now) {
                return;
            }
            let server = &mut self.servers[node];
            if server.service > 0
                && let Some((_, Up::Request { together, .. })) = conn.up.front()
            {
                if now < server.busy_until {
                    let busy_until = server.busy_until;
                    if std::mem::replace(&mut conn.looks_at, busy_until) != busy_until {
                        self.at(busy_until, Event::Up(id));
                    }
                    return;
                }
                let share = if *together { Window::AS_ONE as u64 } else { 1 };
                server.busy_until = now + server.service / share;
            }
            let Some((_, message)) = conn.up.pop_front() else { return };
            let open = conn.server_open;
            match message {
                Up::Hello { .. } if !self.servers[node].up => self.send_down(id, Down::Refused),
                Up::Hello { client, before, set } => self.greet(id, client, before, &set),
                Up::Request { request, sent, asked, .. } if open => {
                    self.serve(id, request, sent, &asked);
                }
                Up::Request { .. } => self.send_down(id, Down::Reset),
                Up::Fin => {
                    self.network.conns.remove(&id);
                    return;
                }
            }
        }
    }

    fn greet(&mut self, id: ConnId, client: ClientId, before: Option<(ConnId, u64)>, set: &str) {
        let Some(conn) = self.network.conns.get_mut(&id) else { return };
        let server = &self.servers[conn.node];
        let (run_id, votes) = (server.run_id, server.votes_for(set));
        conn.server_open = true;
        conn.listener = Some(client);
        conn.run_id = run_id;
        if let Some((before, of_run)) = before
            && of_run == run_id
            && self.network.kills
        {
            self.network.conns.remove(&before);
        }
        self.send_down(id, Down::Welcome { run_id, votes });
    }

    fn serve(&mut self, id: ConnId, request: u32, sent: u64, asked: &Asked) {
        let now = self.now;
        let (conns, server) = (&self.network.conns, &mut self.servers);
        let Some(Conn { process, node, run_id, .. }) = conns.get(&id) else { return };
        let (process, node, run_id) = (*process, *node, *run_id);
        let server = &mut server[node];
        let listens = |conn: &Conn, client| {
            conn.node == node && conn.server_open && conn.listener == Some(client)
        };
        let listeners = |client| conns.values().any(|conn| listens(conn, client));
        let before = server.kept(&asked.name, now);
        let Execution { served, said, quarantined } =
            server.execute(asked, run_id, now, &listeners);
        let executed = Executed {
            request,
            node: node as u8,
            process: process as u8,
            sent,
            verb: asked.kind(),
            name: lock_index(&asked.name),
            token: digest_of(asked.token()),
            reply: reply(&served),
            clock: server.clock.at(now),
            before,
            after: server.kept(&asked.name, now),
        };
        if let Some(until) = quarantined {
            self.note(now, What::Quarantined { node: node as u8, until });
        }
        self.note(now, What::Executed(executed));
        self.send_down(id, Down::Reply { request, served });
        for (client, grant) in said {
            self.network.overhear(client, grant);
            let conns = self.network.conns.iter();
            let to: Vec<_> =
                conns.filter(|(_, conn)| listens(conn, client)).map(|(id, _)| *id).collect();
            for id in to {
                let to = self.network.conns.get(&id).map_or(0, |conn| conn.process);
                self.note(now, What::GrantMessage { node: node as u8, process: to as u8 });
                self.send_down(id, Down::Grant(grant));
            }
        }
    }

    /// Sends a process grant messages in the name of all its servers, by an attacker that knows everything
    /// but the secrets of messages that were not sent yet: for each of its tickets one that is made up,
    /// and all that were overheard, as they were and with another fence.
    pub(crate) fn forge(&mut self, process: usize) {
        let now = self.now;
        let conns = self.network.conns.iter();
        let open = conns.filter(|(_, conn)| conn.process == process && conn.server_open);
        let open: Vec<_> = open.filter_map(|(id, conn)| Some((*id, conn.listener?))).collect();
        let fence = (WALL_START + now) / 1_000 + 1_000_000;
        for (id, client) in open {
            let tickets = self.servers.iter().flat_map(|server| server.tickets(client));
            let tickets: BTreeSet<_> = tickets.map(|it| (it.waiter, it.sent)).collect();
            let guess = Secret::parse(&[b'0'; Secret::TEXT_BYTES]);
            let made = tickets.into_iter().filter_map(|(waiter, sent)| {
                Some(Grant { waiter, sent, secret: guess?, others: false, fence })
            });
            let heard = self.network.overheard.iter().filter(|(to, _)| *to == client);
            let heard = heard.flat_map(|(_, grant)| [*grant, Grant { fence, ..*grant }]);
            let messages: Vec<_> = made.chain(heard).collect();
            for message in messages {
                self.send_down(id, Down::Grant(message));
            }
        }
    }

    /// Hands over what has arrived at a client.
    pub(crate) fn flow_down(&mut self, id: ConnId) {
        loop {
            let now = self.now;
            let Some(conn) = self.network.conns.get_mut(&id) else { return };
            let held = self.network.paths[conn.process][conn.node].cut_down > 0;
            if held || conn.down.front().is_none_or(|(arrives, _)| *arrives > now) {
                return;
            }
            let Some((_, message)) = conn.down.pop_front() else { return };
            if !conn.client_open {
                return;
            }
            let (process, link) = (conn.process, conn.link);
            if let Down::Reply { request, .. } = &message {
                self.note(now, What::Answered { request: *request });
            }
            self.arrived(process, link, id, message);
        }
    }

    /// The client has no more use for a connection. What it has sent may yet arrive, in `limbo` even
    /// long after.
    fn give_up(&mut self, id: ConnId, at: u64, limbo: bool) {
        let late = if limbo && self.network.random.percent(50) {
            self.network.random.below(3_000_000_000)
        } else {
            0
        };
        let Some(conn) = self.network.conns.get_mut(&id) else { return };
        conn.client_open = false;
        conn.down.clear();
        let mut arrivals = Vec::new();
        for (arrives, _) in &mut conn.up {
            *arrives += late;
            arrivals.push(*arrives);
        }
        conn.up_last += late;
        for arrives in arrivals {
            self.at(arrives, Event::Up(id));
        }
        self.send_up(id, at, Up::Fin);
    }

    /// A connection breaks: the client is notified at once, and the server gets what is on the way.
    pub(crate) fn break_path(&mut self, process: usize, node: usize) {
        for id in self.network.over(process, node) {
            let Some(conn) = self.network.conns.get_mut(&id) else { continue };
            if conn.client_open {
                let (process, link) = (conn.process, conn.link);
                conn.client_open = false;
                conn.down.clear();
                self.arrived(process, link, id, Down::Reset);
                let now = self.now;
                self.give_up(id, now, true);
            }
        }
    }

    /// A server has gone: all its connections with it, and what is on the way to it.
    pub(crate) fn drop_server(&mut self, node: usize) {
        for id in self.network.of_node(node) {
            let Some(conn) = self.network.conns.get_mut(&id) else { continue };
            conn.server_open = false;
            conn.listener = None;
            conn.up.retain(|(_, message)| matches!(message, Up::Hello { .. } | Up::Fin));
            self.send_down(id, Down::Reset);
        }
    }

    /// Lets go of what was held back on a path.
    pub(crate) fn flush_path(&mut self, process: usize, node: usize) {
        let now = self.now;
        for id in self.network.over(process, node) {
            self.at(now, Event::Up(id));
            self.at(now, Event::Down(id));
        }
    }
}
