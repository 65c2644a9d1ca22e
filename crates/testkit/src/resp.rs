//! A tiny blocking RESP2 client, for looking at a server behind the product's back.

use std::io::{self, BufRead, BufReader, Error, ErrorKind, Read, Write};

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `+OK` and its like.
    Simple(String),
    /// `-ERR …`, without the dash.
    Error(String),
    /// `:1`.
    Int(i64),
    /// A string of bytes. `None` is the nil reply, also when the server sent a nil array.
    Bulk(Option<Vec<u8>>),
    /// Replies within a reply.
    Array(Vec<Reply>),
}

impl Reply {
    /// The bulk reply that holds `bytes`, to compare with.
    #[must_use]
    pub fn bulk(bytes: impl Into<Vec<u8>>) -> Self {
        Self::Bulk(Some(bytes.into()))
    }
}

/// A client on a stream: TCP, a unix socket, TLS.
///
/// It stays on one connection, so transactions and subscriptions work.
#[derive(Debug)]
pub struct Client<S: Read + Write> {
    stream: BufReader<S>,
}

impl<S: Read + Write> Client<S> {
    /// Speaks over `stream`, which is connected and blocking.
    pub fn over(stream: S) -> Self {
        Self { stream: BufReader::new(stream) }
    }

    /// Sends a command and reads its reply.
    ///
    /// # Errors
    ///
    /// When the stream breaks or times out, or what comes back is not RESP2. An error that the
    /// server answers is a [`Reply::Error`] instead.
    pub fn command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Reply> {
        self.send(args)?;
        self.receive()
    }

    /// Sends a command and leaves its reply for [`receive`](Self::receive).
    ///
    /// # Errors
    ///
    /// When the stream breaks or times out.
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<()> {
        let mut request = Vec::new();
        write_command(args, &mut request);
        self.write(&request)
    }

    /// Sends many commands in one write, and reads all replies.
    ///
    /// # Errors
    ///
    /// As for [`command`](Self::command).
    pub fn pipeline<A: AsRef<[u8]>>(&mut self, commands: &[Vec<A>]) -> io::Result<Vec<Reply>> {
        let mut requests = Vec::new();
        commands.iter().for_each(|args| write_command(args, &mut requests));
        self.write(&requests)?;
        commands.iter().map(|_| self.receive()).collect()
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let stream = self.stream.get_mut();
        stream.write_all(bytes)?;
        stream.flush()
    }

    /// Reads one reply.
    ///
    /// # Errors
    ///
    /// When the stream breaks, ends or times out, or what comes is not RESP2.
    pub fn receive(&mut self) -> io::Result<Reply> {
        let line = self.line()?;
        let mut chars = line.chars();
        let kind = chars.next();
        let rest = chars.as_str();
        match kind {
            Some('+') => Ok(Reply::Simple(rest.to_owned())),
            Some('-') => Ok(Reply::Error(rest.to_owned())),
            Some(':') => Ok(Reply::Int(number(rest)?)),
            Some('$' | '*') if rest == "-1" => Ok(Reply::Bulk(None)),
            Some('$') => self.bytes(number(rest)?),
            Some('*') => {
                let replies = (0..number::<usize>(rest)?).map(|_| self.receive());
                replies.collect::<io::Result<_>>().map(Reply::Array)
            }
            _ => Err(not_resp(&line)),
        }
    }

    fn bytes(&mut self, length: usize) -> io::Result<Reply> {
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes)?;
        if !bytes.ends_with(b"\r\n") {
            return Err(not_resp("a string without an end"));
        }
        bytes.truncate(length);
        Ok(Reply::bulk(bytes))
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None if line.is_empty() => Err(ErrorKind::UnexpectedEof.into()),
            None => Err(not_resp(&line)),
        }
    }
}

fn write_command<A: AsRef<[u8]>>(args: &[A], request: &mut Vec<u8>) {
    request.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    for arg in args {
        let arg = arg.as_ref();
        request.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        request.extend_from_slice(arg);
        request.extend_from_slice(b"\r\n");
    }
}

fn number<N: std::str::FromStr>(text: &str) -> io::Result<N> {
    text.parse().map_err(|_| not_resp(text))
}

fn not_resp(text: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("not RESP2: {text:?}"))
}
