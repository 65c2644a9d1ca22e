//! Nodes that are further away than the loopback: a proxy that lets every byte arrive later.
//!
//! One thread carries for all nodes. As the delay is the same for all, what is due first is what came
//! first: one queue is enough, and the thread sleeps to the microsecond until its head is due. The
//! testkit's own proxy can do much more, but its timer counts in milliseconds.

use std::collections::VecDeque;
use std::io::{PipeWriter, Read, Write, pipe};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::buffer::spare_capacity;
use rustix::event::epoll;
use rustix::io::Errno;

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
        let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        add(&ready, &stop, STOP)?;
        for (index, (door, _)) in doors.iter().enumerate() {
            add(&ready, door, FIRST_DOOR + index)?;
        }
        let relay = Relay { ready, doors, ends: Vec::new(), queue: VecDeque::new(), one_way };
        let thread = thread::Builder::new().name("far".into()).spawn(move || {
            let _stop = stop;
            if let Err(error) = relay.run() {
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

/// What is ready goes by numbers: where to stop, then the doors, then the ends.
const STOP: usize = 0;
const FIRST_DOOR: usize = 1;

fn add(ready: &OwnedFd, what: impl AsFd, number: usize) -> Result<()> {
    let number = epoll::EventData::new_u64(number as u64);
    Ok(epoll::add(ready, what, number, epoll::EventFlags::IN)?)
}

struct Relay {
    /// Tells what is ready. With a list of all ends for each look, the looking would be most of the work.
    ready: OwnedFd,
    doors: Vec<(TcpListener, SocketAddr)>,
    /// Both ends of every connection, side by side: the other end of `i` is `i ^ 1`.
    ends: Vec<TcpStream>,
    queue: VecDeque<Parcel>,
    one_way: Duration,
}

/// Bytes on their way to an end. None stand for the end of the connection.
struct Parcel {
    due: Instant,
    to: usize,
    bytes: Vec<u8>,
}

impl Relay {
    fn run(mut self) -> Result<()> {
        // The kernel may let a sleep last 50 µs longer unless it is told not to.
        rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
        let mut buffer = vec![0; 64 * 1024];
        let mut events = Vec::with_capacity(64);
        loop {
            self.hand_out();
            let left = self.queue.front().map(|parcel| parcel.due - Instant::now());
            match epoll::wait(&self.ready, spare_capacity(&mut events), left.map(timespec).as_ref())
            {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            for event in events.drain(..) {
                let number = usize::try_from(event.data.u64())?;
                let first_end = FIRST_DOOR + self.doors.len();
                match number {
                    STOP => return Ok(()),
                    door if door < first_end => self.admit(door - FIRST_DOOR)?,
                    end => self.take_in(end - first_end, &mut buffer)?,
                }
            }
        }
    }

    fn admit(&mut self, door: usize) -> Result<()> {
        let (listener, server) = &self.doors[door];
        let (client, server) = (listener.accept()?.0, TcpStream::connect(server)?);
        for socket in [client, server] {
            socket.set_nodelay(true)?;
            add(&self.ready, &socket, FIRST_DOOR + self.doors.len() + self.ends.len())?;
            self.ends.push(socket);
        }
        Ok(())
    }

    fn take_in(&mut self, from: usize, buffer: &mut [u8]) -> Result<()> {
        let socket = &mut self.ends[from];
        // A connection that breaks ends like one that closes.
        let length = socket.read(buffer).unwrap_or(0);
        if length == 0 {
            epoll::delete(&self.ready, &*socket)?;
        }
        let (due, bytes) = (Instant::now() + self.one_way, buffer[..length].to_vec());
        self.queue.push_back(Parcel { due, to: from ^ 1, bytes });
        Ok(())
    }

    fn hand_out(&mut self) {
        while let Some(parcel) = self.queue.pop_front_if(|parcel| parcel.due <= Instant::now()) {
            let socket = &mut self.ends[parcel.to];
            // Who is gone gets nothing; its own end is seen when it is read from.
            let _ = match parcel.bytes.as_slice() {
                [] => socket.shutdown(Shutdown::Write),
                bytes => socket.write_all(bytes),
            };
        }
    }
}
