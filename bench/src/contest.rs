//! All systems that can take part in something, on the same nodes, each in a process of its own.

use std::time::Duration;

use anyhow::Result;
use quorlock_testkit::RedisServer;
use serde::de::DeserializeOwned;
use tempfile::TempDir;

use crate::cpu;
use crate::order::Order;
use crate::own::Home;
use crate::peers::{Cycles, Kind, Process, System, Tools};

/// Who takes part.
pub struct Contest<'a> {
    tools: &'a Tools,
    servers: &'a [RedisServer],
    urls: Vec<String>,
    files: TempDir,
    pub entrants: Vec<Entrant>,
}

/// A system that takes part, or the reason why it does not any more.
pub struct Entrant {
    pub system: System,
    pub state: Result<Process, String>,
}

/// What one round of cycles says, of the client and of the servers.
#[derive(Debug, Clone)]
pub struct Sample {
    pub client: Cycles,
    pub server_cpu_seconds: f64,
}

impl<'a> Contest<'a> {
    /// Starts the systems one after the other.
    pub fn start(
        tools: &'a Tools,
        servers: &'a [RedisServer],
        systems: impl IntoIterator<Item = System>,
    ) -> Result<Self> {
        let urls = servers.iter().map(RedisServer::url).collect();
        Self::start_at(tools, servers, urls, systems)
    }

    /// The same by way of other addresses than the servers' own.
    pub fn start_at(
        tools: &'a Tools,
        servers: &'a [RedisServer],
        urls: Vec<String>,
        systems: impl IntoIterator<Item = System>,
    ) -> Result<Self> {
        let files = tempfile::tempdir()?;
        let mut contest = Self { tools, servers, urls, files, entrants: Vec::new() };
        for system in systems {
            let state = match system.refuses(servers.len()) {
                Some(reason) => Err(reason.to_owned()),
                None => contest.process(&system),
            };
            contest.entrants.push(Entrant { system, state });
        }
        Ok(contest)
    }

    /// A process of a system, which is ready.
    pub fn process(&self, system: &System) -> Result<Process, String> {
        let start = || {
            let mut process = Process::start(self.tools, system, &self.nodes_of(system))?;
            process.ready()?;
            anyhow::Ok(process)
        };
        start().map_err(|error| error.to_string())
    }

    pub fn nodes_of(&self, system: &System) -> Vec<String> {
        match system.kind {
            Kind::Quorlock(Home::File) => {
                vec![format!("sqlite:{}", self.files.path().join("locks.db").display())]
            }
            _ => self.urls.clone(),
        }
    }

    /// Starts those again that dropped out because of what happened to the nodes.
    pub fn restart(&mut self) {
        for index in 0..self.entrants.len() {
            let system = self.entrants[index].system;
            let may = system.refuses(self.servers.len()).is_none();
            if may && self.entrants[index].state.is_err() {
                self.entrants[index].state = self.process(&system);
            }
        }
    }

    /// One round of cycles of the system with this number.
    pub fn cycles(&mut self, index: usize, order: &Order, limit: Duration) -> Option<Sample> {
        let before = self.server_cpu_seconds();
        let client = self.entrants[index].run(order, limit)?;
        let server_cpu_seconds = self.server_cpu_seconds() - before;
        Some(Sample { client, server_cpu_seconds })
    }

    /// Of all servers; those that are down count with nothing.
    fn server_cpu_seconds(&self) -> f64 {
        self.servers.iter().filter_map(|server| cpu::seconds_of(server.pid()).ok()).sum()
    }

    /// The numbers of all systems, each time from another one on: what follows upon whom must not
    /// always be the same.
    pub fn turns(&self, round: usize) -> impl Iterator<Item = usize> + use<> {
        let count = self.entrants.len();
        (0..count).map(move |index| (index + round) % count)
    }
}

impl Entrant {
    /// Lets it do something. Who fails is out.
    pub fn run<T: DeserializeOwned>(&mut self, order: &Order, limit: Duration) -> Option<T> {
        let process = self.state.as_mut().ok()?;
        match process.go(order).and_then(|()| process.report(limit)) {
            Ok(report) => Some(report),
            Err(error) => {
                self.state = Err(error.to_string());
                None
            }
        }
    }
}
