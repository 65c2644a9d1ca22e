//! The least that speaks to a ZooKeeper server: for tests that look at what is stored, or put something there.

#![expect(clippy::missing_panics_doc, reason = "a test ends when the member does not answer")]

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const SESSION_MS: i32 = 10_000;

const CREATE: i32 = 1;
const DELETE: i32 = 2;
const EXISTS: i32 = 3;
const GET_DATA: i32 = 4;
const SET_DATA: i32 = 5;
const GET_CHILDREN: i32 = 8;
const SYNC: i32 = 9;

const NO_NODE: i32 = -101;
const NODE_EXISTS: i32 = -110;

/// A session of a test's own with one member. It waits for every answer.
#[derive(Debug)]
pub struct ZooKeeperClient {
    stream: TcpStream,
    number: i32,
}

impl ZooKeeperClient {
    /// Begins a session with the member at `127.0.0.1:PORT`.
    ///
    /// # Errors
    /// If it does not take one.
    pub fn connect(endpoint: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(endpoint)?;
        stream.set_read_timeout(Some(ANSWER_WITHIN))?;
        stream.set_nodelay(true)?;
        let mut client = Self { stream, number: 0 };
        let hello = [
            &0_i32.to_be_bytes()[..],
            &0_i64.to_be_bytes(),
            &SESSION_MS.to_be_bytes(),
            &0_i64.to_be_bytes(),
            &bytes(&[0; 16]),
            &[0],
        ];
        client.write(&hello.concat())?;
        client.read()?;
        Ok(client)
    }

    /// The data of a node; `None` if there is none.
    pub fn data(&mut self, path: &str) -> Option<Vec<u8>> {
        let answer = self.ask(GET_DATA, &[&bytes(path.as_bytes()), &[0]])?;
        let length = i32::from_be_bytes(answer[..4].try_into().expect("four bytes"));
        let length = usize::try_from(length).unwrap_or(0);
        Some(answer[4..4 + length].to_vec())
    }

    /// Whether there is such a node.
    pub fn exists(&mut self, path: &str) -> bool {
        self.ask(EXISTS, &[&bytes(path.as_bytes()), &[0]]).is_some()
    }

    /// The names of all nodes right below one, in order. None if there is no such node.
    pub fn children(&mut self, path: &str) -> Vec<String> {
        let Some(answer) = self.ask(GET_CHILDREN, &[&bytes(path.as_bytes()), &[0]]) else {
            return Vec::new();
        };
        let mut rest = &answer[4..];
        let mut children = Vec::new();
        while !rest.is_empty() {
            let (length, behind) = rest.split_at(4);
            let length = i32::from_be_bytes(length.try_into().expect("four bytes"));
            let (name, behind) = behind.split_at(usize::try_from(length).expect("a length"));
            children.push(String::from_utf8(name.to_vec()).expect("text"));
            rest = behind;
        }
        children.sort_unstable();
        children
    }

    /// Stores data in a node, which is created if there is none, with all that lies above it.
    pub fn put(&mut self, path: &str, data: &[u8]) {
        let above = path.char_indices().skip(1).filter(|(_, char)| *char == '/');
        for (end, _) in above.collect::<Vec<_>>() {
            self.create(&path[..end], b"");
        }
        if !self.create(path, data) {
            let any_version = (-1_i32).to_be_bytes();
            self.ask(SET_DATA, &[&bytes(path.as_bytes()), &bytes(data), &any_version])
                .expect("a node");
        }
    }

    /// Deletes a node that has none below it. Returns whether it was there.
    pub fn delete(&mut self, path: &str) -> bool {
        let any_version = (-1_i32).to_be_bytes();
        self.ask(DELETE, &[&bytes(path.as_bytes()), &any_version]).is_some()
    }

    /// Waits until the member knows what the leader knew.
    pub fn sync(&mut self) {
        self.ask(SYNC, &[&bytes(b"/")]);
    }

    /// Returns whether it was not there before.
    fn create(&mut self, path: &str, data: &[u8]) -> bool {
        let anyone = [
            &1_i32.to_be_bytes()[..],
            &31_i32.to_be_bytes(),
            &bytes(b"world"),
            &bytes(b"anyone"),
            &0_i32.to_be_bytes(),
        ];
        let parts = [&bytes(path.as_bytes())[..], &bytes(data), &anyone.concat()];
        self.ask(CREATE, &parts).is_some()
    }

    /// The answer; `None` if there is no such node, or one already.
    fn ask(&mut self, what: i32, parts: &[&[u8]]) -> Option<Vec<u8>> {
        self.number += 1;
        let header = [self.number.to_be_bytes(), what.to_be_bytes()].concat();
        let answer = self.write(&[&header, &parts.concat()[..]].concat()).and_then(|()| {
            loop {
                let answer = self.read()?;
                // Anything else is an event.
                if answer[..4] == self.number.to_be_bytes() {
                    return Ok(answer);
                }
            }
        });
        let answer = answer.unwrap_or_else(|error| panic!("the member does not answer: {error}"));
        match i32::from_be_bytes(answer[12..16].try_into().expect("four bytes")) {
            0 => Some(answer[16..].to_vec()),
            NO_NODE | NODE_EXISTS => None,
            error => panic!("the member refuses with {error}"),
        }
    }

    fn write(&mut self, message: &[u8]) -> io::Result<()> {
        self.stream.write_all(&bytes(message))
    }

    fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length)?;
        let length = usize::try_from(i32::from_be_bytes(length)).map_err(io::Error::other)?;
        let mut message = vec![0; length];
        self.stream.read_exact(&mut message)?;
        Ok(message)
    }
}

/// Bytes behind their length.
fn bytes(bytes: &[u8]) -> Vec<u8> {
    let length = i32::try_from(bytes.len()).expect("a short message");
    [&length.to_be_bytes()[..], bytes].concat()
}
