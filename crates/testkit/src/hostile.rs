//! A server that says whatever a test wants it to say.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tempfile::TempDir;

use crate::tls::Certificates;

/// A server that is no Redis: a test says what it answers. Each connection has a thread of its own,
/// which ends with the connection or with the process.
pub struct HostileServer {
    addr: SocketAddr,
    accepted: Arc<AtomicUsize>,
    /// The directory of the certificates, and the authority to trust.
    tls: Option<(TempDir, PathBuf)>,
}

impl HostileServer {
    /// Starts one that treats each connection so.
    ///
    /// # Panics
    ///
    /// When there is no free port.
    pub fn start(treat: impl Fn(Conversation) + Send + Sync + 'static) -> Self {
        Self::serve(None, treat)
    }

    /// The same with TLS.
    ///
    /// # Panics
    ///
    /// When there is no free port, or no certificate can be made.
    pub fn start_with_tls(treat: impl Fn(Conversation) + Send + Sync + 'static) -> Self {
        let dir = TempDir::new().expect("a directory for certificates");
        let files = Certificates::write_to(dir.path());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions that the provider knows")
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_file(&files.server).expect("a certificate")],
                PrivateKeyDer::from_pem_file(&files.key).expect("its key"),
            )
            .expect("a certificate and its key");
        let config = Arc::new(config);
        let mut server = Self::serve(Some(config), treat);
        server.tls = Some((dir, files.ca));
        server
    }

    fn serve(
        tls: Option<Arc<ServerConfig>>,
        treat: impl Fn(Conversation) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("an address");
        let accepted = Arc::new(AtomicUsize::new(0));
        let (count, treat) = (Arc::clone(&accepted), Arc::new(treat));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                count.fetch_add(1, SeqCst);
                let (tls, treat) = (tls.clone(), Arc::clone(&treat));
                thread::spawn(move || {
                    // What is said in pieces arrives in pieces.
                    let _ = client.set_nodelay(true);
                    let stream: Box<dyn Stream> = match tls {
                        None => Box::new(client),
                        Some(config) => match ServerConnection::new(config) {
                            Ok(connection) => Box::new(StreamOwned::new(connection, client)),
                            Err(_) => return,
                        },
                    };
                    treat(Conversation { stream: BufReader::new(stream), port: addr.port() });
                });
            }
        });
        Self { addr, accepted, tls: None }
    }

    /// The URL of the server, for a node.
    #[must_use]
    pub fn url(&self) -> String {
        match &self.tls {
            None => format!("redis://{}", self.addr),
            Some((_, ca)) => {
                format!("rediss://localhost:{}?ca={}", self.addr.port(), ca.display())
            }
        }
    }

    /// How many connections it has accepted.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.accepted.load(SeqCst)
    }
}

impl fmt::Debug for HostileServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostileServer").field("addr", &self.addr).finish_non_exhaustive()
    }
}

trait Stream: Read + Write + Send {}

impl Stream for TcpStream {}
impl Stream for StreamOwned<ServerConnection, TcpStream> {}

/// One connection to a [`HostileServer`], from the server's side.
pub struct Conversation {
    stream: BufReader<Box<dyn Stream>>,
    port: u16,
}

impl Conversation {
    /// Reads the next command; `None` when the client has gone.
    pub fn command(&mut self) -> Option<Vec<Vec<u8>>> {
        let count = self.header(b'*')?;
        (0..count)
            .map(|_| {
                let mut part = vec![0; self.header(b'$')? + 2];
                self.stream.read_exact(&mut part).ok()?;
                part.truncate(part.len() - 2);
                Some(part)
            })
            .collect()
    }

    fn header(&mut self, kind: u8) -> Option<usize> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line).ok()?;
        let text = std::str::from_utf8(line.strip_prefix(&[kind])?).ok()?;
        text.trim_end().parse().ok()
    }

    /// Sends these bytes.
    ///
    /// # Errors
    ///
    /// When the client has gone.
    pub fn say(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        let stream = self.stream.get_mut();
        stream.write_all(bytes.as_ref())?;
        stream.flush()
    }

    /// Sends these bytes again and again, until the client has gone.
    pub fn say_for_ever(&mut self, bytes: impl AsRef<[u8]>) {
        while self.say(&bytes).is_ok() {}
    }

    /// Answers as a Redis server would that locks can be kept on, until the greeting is over.
    /// Returns the first command after it; `None` when the client has gone.
    pub fn greet(&mut self) -> Option<Vec<Vec<u8>>> {
        self.greet_until(|_| false)
    }

    /// The same, but only up to the first command that is `last`, which is answered as well.
    pub fn greet_until(&mut self, last: impl Fn(&[u8]) -> bool) -> Option<Vec<Vec<u8>>> {
        loop {
            let command = self.command()?;
            let Some(reply) = greeting(&command, self.port) else { return Some(command) };
            self.say(reply).ok()?;
            if command.first().is_some_and(|name| last(name)) {
                return Some(command);
            }
        }
    }
}

impl fmt::Debug for Conversation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conversation").field("port", &self.port).finish_non_exhaustive()
    }
}

/// The reply to a command of the greeting; `None` for any other command. Each server has a run id of
/// its own, by its port.
fn greeting(command: &[Vec<u8>], port: u16) -> Option<Vec<u8>> {
    let parts: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
    let reply = match *parts.as_slice() {
        [b"HELLO", ..] => b"%2\r\n$2\r\nid\r\n:7\r\n$4\r\nrole\r\n$6\r\nmaster\r\n".to_vec(),
        [b"SELECT", ..] => b"+OK\r\n".to_vec(),
        [b"INFO", ..] => {
            bulk(&format!("redis_version:7.4.0\r\nrole:master\r\nrun_id:{port:040}\r\n"))
        }
        [b"SCRIPT", ..] => bulk(&"0".repeat(40)),
        // The look at the marker, the one script without a key that scans nothing.
        [b"EVAL", source, b"0", ..] if !contains(source, b"SCAN") => bulk(""),
        [b"SUBSCRIBE", channel] => {
            let channel = bulk(&String::from_utf8_lossy(channel));
            [&b">3\r\n$9\r\nsubscribe\r\n"[..], &channel, b":1\r\n"].concat()
        }
        [b"CLIENT", ..] => b"+OK\r\n".to_vec(),
        [b"CONFIG", ..] => b"%0\r\n".to_vec(),
        [b"TIME"] => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            let now = now.unwrap_or_default();
            let (seconds, micros) = (now.as_secs().to_string(), now.subsec_micros().to_string());
            [b"*2\r\n".to_vec(), bulk(&seconds), bulk(&micros)].concat()
        }
        [b"GET", ..] => b"_\r\n".to_vec(),
        _ => return None,
    };
    Some(reply)
}

fn bulk(text: &str) -> Vec<u8> {
    format!("${}\r\n{text}\r\n", text.len()).into_bytes()
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
