//! The limit: blocking sockets, write to all, read from all, and nothing else.

use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::{Context, Result, ensure};
use quorlock_testkit::{RedisServer, Reply};

const RELEASE: &str =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0";

/// One connection to each server.
pub struct Bare {
    sockets: Vec<TcpStream>,
    sha: String,
    command: Vec<u8>,
}

impl Bare {
    pub fn connect(servers: &[RedisServer]) -> Result<Self> {
        let mut sha = String::new();
        let mut sockets = Vec::new();
        for server in servers {
            let Reply::Bulk(Some(loaded)) = server.command(&["SCRIPT", "LOAD", RELEASE]) else {
                anyhow::bail!("the server does not load scripts");
            };
            sha = String::from_utf8(loaded)?;
            let socket = TcpStream::connect(server.addr()).context("connect")?;
            socket.set_nodelay(true)?;
            sockets.push(socket);
        }
        Ok(Self { sockets, sha, command: Vec::new() })
    }

    /// Lock and release.
    pub fn cycle(&mut self, name: &str) -> Result<()> {
        let token = "0123456789abcdef0123456789abcdef01234567";
        self.round(&["SET", name, token, "NX", "PX", "10000"], b"+OK\r\n")?;
        let sha = std::mem::take(&mut self.sha);
        self.round(&["EVALSHA", &sha, "1", name, token], b":1\r\n")?;
        self.sha = sha;
        Ok(())
    }

    fn round(&mut self, parts: &[&str], expected: &[u8]) -> Result<()> {
        self.command.clear();
        write!(self.command, "*{}\r\n", parts.len())?;
        for part in parts {
            write!(self.command, "${}\r\n{part}\r\n", part.len())?;
        }
        for socket in &mut self.sockets {
            socket.write_all(&self.command)?;
        }
        let mut reply = [0; 64];
        for socket in &mut self.sockets {
            let count = socket.read(&mut reply)?;
            ensure!(&reply[..count] == expected, "the server said {:?}", &reply[..count]);
        }
        Ok(())
    }
}
