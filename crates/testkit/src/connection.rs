//! One connection through the proxy, and what its faults do to the bytes.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// The faults that are on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    pub(crate) delay: Duration,
    pub(crate) lose_requests: bool,
    pub(crate) lose_replies: bool,
    pub(crate) hang: bool,
    pub(crate) refuse: bool,
}

/// What a proxy has counted, in connections and in bytes.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) accepted: AtomicUsize,
    pub(crate) open: AtomicUsize,
    pub(crate) held: AtomicUsize,
    pub(crate) lost: AtomicUsize,
}

/// Counts a connection as open for as long as it lives.
#[derive(Debug)]
pub(crate) struct Open(Arc<Counts>);

impl Open {
    pub(crate) fn new(counts: &Arc<Counts>) -> Self {
        counts.open.fetch_add(1, SeqCst);
        Self(Arc::clone(counts))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, SeqCst);
    }
}

/// Bytes on their way through the proxy. No bytes stand for the end of the connection.
struct Parcel {
    bytes: Vec<u8>,
    due: Instant,
    counts: Arc<Counts>,
}

impl Parcel {
    fn new(bytes: &[u8], delay: Duration, counts: &Arc<Counts>) -> Self {
        counts.held.fetch_add(bytes.len(), SeqCst);
        Self { bytes: bytes.to_vec(), due: Instant::now() + delay, counts: Arc::clone(counts) }
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        self.counts.held.fetch_sub(self.bytes.len(), SeqCst);
    }
}

/// Connects to the server for `client`, and passes on what comes until both sides are done.
pub(crate) async fn connect_through(
    mut client: TcpStream,
    server: SocketAddr,
    faults: watch::Receiver<Faults>,
    open: Open,
) {
    let both_ways = async {
        let mut server = TcpStream::connect(server).await?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        tokio::try_join!(
            carry(from_client, to_server, |faults| faults.lose_requests, &faults, &open.0),
            carry(from_server, to_client, |faults| faults.lose_replies, &faults, &open.0),
        )
    };
    // Where one side cannot be reached or written to, closing the other says all there is to say.
    let _: io::Result<_> = both_ways.await;
}

/// Passes bytes on in one direction.
async fn carry(
    from: ReadHalf<'_>,
    to: WriteHalf<'_>,
    lost: fn(&Faults) -> bool,
    faults: &watch::Receiver<Faults>,
    counts: &Arc<Counts>,
) -> io::Result<()> {
    // Taking in goes on while earlier bytes wait, so that a delay does not slow the flow.
    let (queue, parcels) = unbounded_channel();
    tokio::try_join!(
        take_in(from, queue, faults, counts),
        hand_out(parcels, to, lost, faults.clone())
    )?;
    Ok(())
}

async fn take_in(
    mut from: ReadHalf<'_>,
    queue: UnboundedSender<Parcel>,
    faults: &watch::Receiver<Faults>,
    counts: &Arc<Counts>,
) -> io::Result<()> {
    let mut buffer = [0; 16 * 1024];
    loop {
        // A connection that breaks ends like one that closes: after the bytes that came before.
        let length = from.read(&mut buffer).await.unwrap_or(0);
        let delay = faults.borrow().delay;
        let closed = queue.send(Parcel::new(&buffer[..length], delay, counts)).is_err();
        if length == 0 || closed {
            return Ok(());
        }
    }
}

async fn hand_out(
    mut parcels: UnboundedReceiver<Parcel>,
    mut to: WriteHalf<'_>,
    lost: fn(&Faults) -> bool,
    mut faults: watch::Receiver<Faults>,
) -> io::Result<()> {
    while let Some(parcel) = parcels.recv().await {
        // The timer rounds up, which would add to a delay of nothing.
        if parcel.due > Instant::now() {
            sleep_until(parcel.due).await;
        }
        if parcel.bytes.is_empty() {
            pass(&mut faults).await?;
            to.shutdown().await?;
        }
        let mut rest = parcel.bytes.as_slice();
        while !rest.is_empty() {
            to.writable().await?;
            let faults = pass(&mut faults).await?;
            // Nothing waits from here to the write, so the faults cannot change in between.
            if lost(&faults) {
                parcel.counts.lost.fetch_add(rest.len(), SeqCst);
                break;
            }
            match to.try_write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Waits until nothing hangs, and tells which other faults are on.
async fn pass(faults: &mut watch::Receiver<Faults>) -> io::Result<Faults> {
    // Without a proxy there is nobody to wait for.
    faults.wait_for(|faults| !faults.hang).await.map(|faults| *faults).map_err(io::Error::other)
}
