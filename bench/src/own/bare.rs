//! The limit: blocking sockets, write to all, read from all, and nothing else.
//!
//! Some names at once are one write per node, and their replies are read together: a connection
//! that is filled as well as it can be.

use std::io::{BufRead, BufReader, Read, Write, stdin};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use quorlock_testkit::Client;

use super::cycle::report;
use super::release::{Release, TOKEN};
use crate::cpu;
use crate::order::Order;
use crate::peers::Cycles;

/// The hidden benchmark that gives back what it gets.
pub const ECHO: &str = "echo";

/// One connection to each server.
pub struct Bare {
    sockets: Vec<TcpStream>,
    release: Release,
    /// The server, if it is one that only gives bytes back. It ends when its stdin does.
    echo: Option<Child>,
}

impl Bare {
    pub fn to_servers(urls: &[String]) -> Result<Self> {
        let mut bare = Self { sockets: Vec::new(), release: Release::on_none(), echo: None };
        for url in urls {
            let addr = url.strip_prefix("redis://").context("a URL of another kind")?;
            let socket = connect(addr)?;
            bare.release = Release::on(&mut Client::over(socket.try_clone()?))?;
            bare.sockets.push(socket);
        }
        Ok(bare)
    }

    /// To so many sockets of a process that gives back what it gets.
    pub fn to_echoes(count: usize) -> Result<Self> {
        let mut echo = Command::new(std::env::current_exe()?)
            .args([ECHO, &count.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let addrs = BufReader::new(echo.stdout.take().context("no stdout")?);
        let sockets = addrs.lines().take(count).map(|addr| connect(&addr?));
        let sockets = sockets.collect::<Result<_>>()?;
        Ok(Self { sockets, release: Release::on_none(), echo: Some(echo) })
    }

    pub fn cycles(&mut self, order: &Order) -> Result<Cycles> {
        let (at_once, count): (u64, u64) = (order.number("concurrency")?, order.number("count")?);
        let limit = Duration::try_from_secs_f64(order.number("seconds")?)?;
        let prefix = order.text("name")?;
        let (cpu, start) = (cpu::own_seconds(), Instant::now());
        let mut samples = Vec::new();
        let mut serial = 0;
        while serial < count && start.elapsed() < limit {
            let begun = Instant::now();
            let names = serial..(serial + at_once).min(count);
            let names: Vec<_> = names.map(|serial| format!("{prefix}/{serial}")).collect();
            self.round(&names, &|name| vec!["SET", name, TOKEN, "NX", "PX", "10000"], "+OK\r\n")?;
            let release = self.release.clone();
            self.round(&names, &|name| release.command(name), ":1\r\n")?;
            let took = begun.elapsed();
            samples.extend(names.iter().map(|_| took));
            serial += at_once;
        }
        Ok(report(samples, start.elapsed(), cpu::own_seconds() - cpu))
    }

    /// One command for each name, to all, and their replies.
    fn round<'a>(
        &mut self,
        names: &'a [String],
        parts: &'a dyn Fn(&'a str) -> Vec<&'a str>,
        reply: &str,
    ) -> Result<()> {
        let mut commands = Vec::new();
        for name in names {
            let parts = parts(name);
            write!(commands, "*{}\r\n", parts.len())?;
            for part in parts {
                write!(commands, "${}\r\n{part}\r\n", part.len())?;
            }
        }
        for socket in &mut self.sockets {
            socket.write_all(&commands)?;
        }
        let expected = match self.echo {
            Some(_) => commands,
            None => reply.repeat(names.len()).into_bytes(),
        };
        let mut replies = vec![0; expected.len()];
        for socket in &mut self.sockets {
            socket.read_exact(&mut replies)?;
            ensure!(replies == expected, "a reply was not as expected");
        }
        Ok(())
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        if let Some(echo) = &mut self.echo {
            drop(echo.stdin.take());
            // Whatever it ends with.
            let _ = echo.wait();
        }
    }
}

fn connect(addr: &str) -> Result<TcpStream> {
    let socket = TcpStream::connect(addr).context("connect")?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// Listens at `count` places and tells where; gives back what it gets until its stdin ends.
pub fn echo(count: &str) -> Result<()> {
    for _ in 0..count.parse::<usize>()? {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        println!("{}", listener.local_addr()?);
        std::thread::spawn(move || -> Result<()> {
            let mut socket = listener.accept()?.0;
            socket.set_nodelay(true)?;
            let mut bytes = vec![0; 256 * 1_024];
            loop {
                let length = socket.read(&mut bytes)?;
                ensure!(length > 0, "closed");
                socket.write_all(&bytes[..length])?;
            }
        });
    }
    stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
