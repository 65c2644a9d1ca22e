//! A TCP proxy that breaks the network on demand.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{Sender as Ack, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::connection::{Counts, Faults, Open, connect_through};

/// Stands between a client and a server, and breaks what passes between them.
///
/// A fault holds for every connection, old and new. It is in force when the call that switches it
/// returns: no byte passes after that by the old rules. Several may be on together.
///
/// The proxy runs on a thread of its own, so it works however busy the test is. When it is dropped,
/// its connections close and its thread ends.
#[derive(Debug)]
pub struct Proxy {
    addr: SocketAddr,
    server: SocketAddr,
    counts: Arc<Counts>,
    /// `None` only while it is dropped.
    orders: Option<UnboundedSender<(Change, Ack<()>)>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
enum Change {
    Delay(Duration),
    LoseRequests(bool),
    LoseReplies(bool),
    Hang(bool),
    Refuse(bool),
    Cut,
}

impl Proxy {
    /// Listens on a free port of 127.0.0.1, and connects to `server` once for each client.
    ///
    /// # Panics
    ///
    /// When the port or the thread cannot be had.
    #[must_use]
    pub fn in_front_of(server: SocketAddr) -> Self {
        let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let addr = listener.local_addr().expect("a bound socket has an address");
        listener.set_nonblocking(true).expect("a listener can be made non-blocking");
        let counts = Arc::new(Counts::default());
        let (orders, inbox) = unbounded_channel();
        let run = Relay::new(server, Arc::clone(&counts)).run(listener, inbox);
        let thread = thread::Builder::new()
            .name("proxy".into())
            .spawn(move || {
                tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .expect("the proxy's runtime")
                    .block_on(run)
                    .expect("the proxy listens");
            })
            .expect("the proxy thread starts");
        Self { addr, server, counts, orders: Some(orders), thread: Some(thread) }
    }

    /// Where clients connect.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where clients connect, as `redis://127.0.0.1:PORT?name=SERVER`: by its name it is the same node as the
    /// server behind the proxy.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}?name={}", self.addr, self.server)
    }

    /// Lets every byte, and the end of a connection, arrive this much later, each way.
    ///
    /// Order is kept. Bytes travel side by side: ten requests sent together take one delay, not ten.
    /// It counts for what enters the proxy from now on.
    pub fn delay(&self, delay: Duration) {
        self.order(Change::Delay(delay));
    }

    /// Swallows what servers send while it is on. Requests still pass, and so does the end of a
    /// connection.
    pub fn lose_replies(&self, on: bool) {
        self.order(Change::LoseReplies(on));
    }

    /// Swallows what clients send while it is on. Replies still pass, and so does the end of a
    /// connection.
    pub fn lose_requests(&self, on: bool) {
        self.order(Change::LoseRequests(on));
    }

    /// Lets nothing pass either way while it is on, and keeps the connections open. What was held
    /// flows on when it is switched off.
    pub fn hang(&self, on: bool) {
        self.order(Change::Hang(on));
    }

    /// Closes new connections at once while it is on. Those there are stay.
    pub fn refuse(&self, on: bool) {
        self.order(Change::Refuse(on));
    }

    /// Closes all connections. What was still in the proxy is gone.
    pub fn cut(&self) {
        self.order(Change::Cut);
    }

    /// How many connections have been accepted since the start, with those closed at once.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.counts.accepted.load(SeqCst)
    }

    /// How many connections are open now.
    #[must_use]
    pub fn open(&self) -> usize {
        self.counts.open.load(SeqCst)
    }

    /// How many bytes are in the proxy now, because of a delay or a hang.
    ///
    /// A test waits for this to rise to know that what it sent is on its way.
    #[must_use]
    pub fn held(&self) -> usize {
        self.counts.held.load(SeqCst)
    }

    /// How many bytes have been swallowed since the start.
    ///
    /// A test waits for this to rise to know that a request or a reply is lost for good.
    #[must_use]
    pub fn lost(&self) -> usize {
        self.counts.lost.load(SeqCst)
    }

    /// Makes the change on the proxy's thread, where it cannot fall between looking at the faults
    /// and passing bytes on.
    fn order(&self, change: Change) {
        let (ack, done) = channel();
        let orders = self.orders.as_ref().expect("the proxy is not dropped yet");
        orders.send((change, ack)).expect("the proxy thread runs");
        done.recv().expect("the proxy thread runs");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The thread ends when no more orders can come.
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already, and a second one here would abort the test.
            let _ = thread.join();
        }
    }
}

/// The side of the proxy that lives on its thread.
struct Relay {
    server: SocketAddr,
    counts: Arc<Counts>,
    faults: watch::Sender<Faults>,
    connections: JoinSet<()>,
}

impl Relay {
    fn new(server: SocketAddr, counts: Arc<Counts>) -> Self {
        let faults = watch::Sender::new(Faults::default());
        Self { server, counts, faults, connections: JoinSet::new() }
    }

    async fn run(
        mut self,
        listener: StdListener,
        mut orders: UnboundedReceiver<(Change, Ack<()>)>,
    ) -> io::Result<()> {
        let wakes = TcpListener::from_std(listener.try_clone()?)?;
        loop {
            tokio::select! {
                // An error is about a client that left before it was accepted.
                accepted = wakes.accept() => if let Ok((client, _)) = accepted {
                    self.admit(client);
                },
                order = orders.recv() => {
                    let Some((change, ack)) = order else { return Ok(()) };
                    // Who connected before the change is treated by the old rules.
                    while let Ok((client, _)) = listener.accept() {
                        client.set_nonblocking(true)?;
                        self.admit(TcpStream::from_std(client)?);
                    }
                    self.apply(change).await;
                    // The thread that gave the order is blocked on the answer: it is there to take it.
                    let _ = ack.send(());
                }
                Some(_) = self.connections.join_next() => {}
            }
        }
    }

    async fn apply(&mut self, change: Change) {
        self.faults.send_modify(|faults| match change {
            Change::Delay(delay) => faults.delay = delay,
            Change::LoseRequests(on) => faults.lose_requests = on,
            Change::LoseReplies(on) => faults.lose_replies = on,
            Change::Hang(on) => faults.hang = on,
            Change::Refuse(on) => faults.refuse = on,
            Change::Cut => {}
        });
        if matches!(change, Change::Cut) {
            self.connections.shutdown().await;
        }
    }

    fn admit(&mut self, client: TcpStream) {
        self.counts.accepted.fetch_add(1, SeqCst);
        if self.faults.borrow().refuse {
            return;
        }
        let open = Open::new(&self.counts);
        self.connections.spawn(connect_through(client, self.server, self.faults.subscribe(), open));
    }
}
