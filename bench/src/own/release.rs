//! How the limits release a lock: by the shortest command that the server has.

use std::net::TcpStream;

use anyhow::{Result, bail};
use quorlock_testkit::{Client, Reply};

pub const TOKEN: &str = "0123456789abcdef0123456789abcdef01234567";

const SCRIPT: &str =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0";

/// The words before the name.
#[derive(Clone)]
pub struct Release(Vec<String>);

impl Release {
    pub fn on(server: &mut Client<TcpStream>) -> Result<Self> {
        if let Reply::Int(0) = server.command(&["DELIFEQ", "bench/none", TOKEN])? {
            return Ok(Self(vec!["DELIFEQ".to_owned()]));
        }
        let loaded = server.command(&["SCRIPT", "LOAD", SCRIPT])?;
        let Reply::Bulk(Some(sha)) = loaded else {
            bail!("the server does not load scripts: {loaded:?}");
        };
        Ok(Self::by_script(String::from_utf8(sha)?))
    }

    /// Nothing that any server knows, but as long as the real one.
    pub fn on_none() -> Self {
        Self::by_script("0".repeat(40))
    }

    fn by_script(sha: String) -> Self {
        Self(vec!["EVALSHA".to_owned(), sha, "1".to_owned()])
    }

    pub fn command<'a>(&'a self, name: &'a str) -> Vec<&'a str> {
        self.0.iter().map(String::as_str).chain([name, TOKEN]).collect()
    }
}
