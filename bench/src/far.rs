//! Nodes that are further away than the loopback: a proxy that lets every byte arrive later.
//!
//! One thread carries for all nodes. As the delay is the same for all, what is due first is what came
//! first: one queue is enough, and the thread sleeps to the microsecond until its head is due. The
//! testkit's own proxy can do much more, but its timer counts in milliseconds.

use std::collections::VecDeque;
use std::io::{PipeWriter, Read, Write, pipe};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::event::{PollFd, PollFlags, poll};

use crate::clock::timespec;

/// Stands in front of some servers until it is dropped.
pub struct Far {
    addrs: Vec<SocketAddr>,
    /// The thread ends when this closes.
    alive: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Far {
    /// Listens in front of each of `servers`; every byte takes `one_way` longer, each way.
    pub fn in_front_of(
        servers: impl IntoIterator<Item = SocketAddr>,
        one_way: Duration,
    ) -> Result<Self> {
        let mut doors = Vec::new();
        let mut addrs = Vec::new();
        for server in servers {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            addrs.push(listener.local_addr()?);
            doors.push((listener, server));
        }
        let (stop, alive) = pipe()?;
        let relay = Relay { doors, ends: Vec::new(), queue: VecDeque::new(), one_way };
        let thread = thread::Builder::new().name("far".into()).spawn(move || {
            if let Err(error) = relay.run(&stop.into()) {
                eprintln!("the proxy broke: {error}");
            }
        })?;
        Ok(Self { addrs, alive: Some(alive), thread: Some(thread) })
    }

    pub fn addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        self.alive = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed already.
            let _ = thread.join();
        }
    }
}

struct Relay {
    doors: Vec<(TcpListener, SocketAddr)>,
    /// Both ends of every connection, side by side: the other end of `i` is `i ^ 1`.
    ends: Vec<End>,
    queue: VecDeque<Parcel>,
    one_way: Duration,
}

struct End {
    socket: TcpStream,
    open: bool,
}

/// Bytes on their way to an end. None stand for the end of the connection.
struct Parcel {
    due: Instant,
    to: usize,
    bytes: Vec<u8>,
}

impl Relay {
    fn run(mut self, stop: &OwnedFd) -> Result<()> {
        // The kernel may let a sleep last 50 µs longer unless it is told not to.
        rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
        let mut buffer = vec![0; 64 * 1024];
        loop {
            self.hand_out();
            let Some((doors, ends)) = self.wait(stop)? else { return Ok(()) };
            for index in ends {
                self.take_in(index, &mut buffer);
            }
            for index in doors {
                self.admit(index)?;
            }
        }
    }

    /// Waits for bytes, for clients, or until something is due. `None` is the end.
    fn wait(&self, stop: &OwnedFd) -> Result<Option<(Vec<usize>, Vec<usize>)>> {
        let mut polled = vec![PollFd::new(stop, PollFlags::IN)];
        polled.extend(self.doors.iter().map(|(door, _)| PollFd::new(door, PollFlags::IN)));
        let open: Vec<usize> = (0..self.ends.len()).filter(|end| self.ends[*end].open).collect();
        polled.extend(open.iter().map(|end| PollFd::new(&self.ends[*end].socket, PollFlags::IN)));
        let left = self.queue.front().map(|parcel| parcel.due - Instant::now());
        match poll(&mut polled, left.map(timespec).as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = |fd: &PollFd| !fd.revents().is_empty();
        if ready(&polled[0]) {
            return Ok(None);
        }
        let (doors, ends) = polled[1..].split_at(self.doors.len());
        let doors = (0..doors.len()).filter(|door| ready(&doors[*door])).collect();
        let ends = open.iter().zip(ends).filter(|(_, fd)| ready(fd)).map(|(end, _)| *end).collect();
        Ok(Some((doors, ends)))
    }

    fn admit(&mut self, door: usize) -> Result<()> {
        let (listener, server) = &self.doors[door];
        let (client, server) = (listener.accept()?.0, TcpStream::connect(server)?);
        for socket in [client, server] {
            socket.set_nodelay(true)?;
            self.ends.push(End { socket, open: true });
        }
        Ok(())
    }

    fn take_in(&mut self, from: usize, buffer: &mut [u8]) {
        // A connection that breaks ends like one that closes.
        let length = self.ends[from].socket.read(buffer).unwrap_or(0);
        self.ends[from].open = length > 0;
        let (due, bytes) = (Instant::now() + self.one_way, buffer[..length].to_vec());
        self.queue.push_back(Parcel { due, to: from ^ 1, bytes });
    }

    fn hand_out(&mut self) {
        while let Some(parcel) = self.queue.pop_front_if(|parcel| parcel.due <= Instant::now()) {
            let socket = &mut self.ends[parcel.to].socket;
            // Who is gone gets nothing; its own end is seen when it is read from.
            let _ = match parcel.bytes.as_slice() {
                [] => socket.shutdown(Shutdown::Write),
                bytes => socket.write_all(bytes),
            };
        }
    }
}
