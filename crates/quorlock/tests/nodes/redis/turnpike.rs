//! A way to a server on which the first traveller can be stopped, while later ones pass.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

/// Passes connections on to a server. What the client of the first one sends can be held back, even
/// after that client has gone, as a slow router would.
pub(crate) struct Turnpike {
    addr: SocketAddr,
    stopped: Arc<AtomicBool>,
    held: Arc<Mutex<Vec<u8>>>,
    /// The first connection's socket to the server.
    first: Arc<Mutex<Option<TcpStream>>>,
}

impl Turnpike {
    pub(crate) fn in_front_of(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let this = Self {
            addr: listener.local_addr().expect("an address"),
            stopped: Arc::default(),
            held: Arc::default(),
            first: Arc::default(),
        };
        let (stopped, held, first) =
            (Arc::clone(&this.stopped), Arc::clone(&this.held), Arc::clone(&this.first));
        // The threads end with the process: they hold nothing that anybody waits for.
        thread::spawn(move || {
            for (index, client) in listener.incoming().enumerate() {
                let client = client.expect("a client");
                let server = TcpStream::connect(server).expect("the server");
                let clone = |stream: &TcpStream| stream.try_clone().expect("a clone");
                let (mut from, mut to) = (clone(&server), clone(&client));
                thread::spawn(move || io::copy(&mut from, &mut to));
                if index == 0 {
                    *locked(&first) = Some(clone(&server));
                    let (stopped, held) = (Arc::clone(&stopped), Arc::clone(&held));
                    thread::spawn(move || carry_first(client, server, &stopped, &held));
                } else {
                    thread::spawn(move || carry(client, server));
                }
            }
        });
        this
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.addr)
    }

    /// Holds back what the client of the first connection sends from now on.
    pub(crate) fn stop_first(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    /// What is held back.
    pub(crate) fn held(&self) -> String {
        String::from_utf8_lossy(&locked(&self.held)).into_owned()
    }

    /// Lets what is held back go on to the server, if it still listens.
    pub(crate) fn let_through(&self) -> io::Result<()> {
        let first = locked(&self.first);
        first.as_ref().expect("a first connection").write_all(&locked(&self.held))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no panic in between")
}

fn carry(mut client: TcpStream, mut server: TcpStream) {
    let _ = io::copy(&mut client, &mut server);
    let _ = server.shutdown(Shutdown::Write);
}

fn carry_first(
    mut client: TcpStream,
    mut server: TcpStream,
    stopped: &AtomicBool,
    held: &Mutex<Vec<u8>>,
) {
    let mut buffer = [0; 4_096];
    while let Ok(length @ 1..) = client.read(&mut buffer) {
        if stopped.load(Ordering::SeqCst) {
            locked(held).extend_from_slice(&buffer[..length]);
        } else if server.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}
