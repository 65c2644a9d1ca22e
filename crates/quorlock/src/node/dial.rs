//! A TCP connection to a host that may have several addresses.
//!
//! They are tried one after another, a moment apart, without waiting for those before to fail: an address that
//! swallows everything, such as one of IPv6 where there is none, does not use up the time for the others. The first
//! connection counts.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Sleep, sleep};

/// From one address to the next. One that fails is followed by the next at once.
const APART: Duration = Duration::from_millis(100);

/// A peer that is gone without closing is noticed on a connection over which nothing goes: after so long it is asked
/// whether it is there, again and again after each of these, and given up after so many.
const IDLE: Duration = Duration::from_secs(10);
const ASKED_EVERY: Duration = Duration::from_secs(5);
const ASKED_AT_MOST: u32 = 3;

/// Connects to a host.
pub(in crate::node) async fn dial(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses = in_turns(lookup_host((host, port)).await?.collect());
    let stream = race(addresses).await?;
    // A vote is a few bytes: it must not wait for more to fill a packet.
    stream.set_nodelay(true)?;
    keep_alive(&stream)?;
    Ok(stream)
}

fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, IDLE)?;
    sockopt::set_tcp_keepintvl(stream, ASKED_EVERY)?;
    sockopt::set_tcp_keepcnt(stream, ASKED_AT_MOST)?;
    Ok(())
}

/// Both families in turns, each in its order, and first the one that the system prefers.
fn in_turns(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first = addresses.first().map(SocketAddr::is_ipv6);
    let (mut one, mut other): (Vec<_>, Vec<_>) =
        addresses.into_iter().partition(|address| Some(address.is_ipv6()) == first);
    let mut turns = Vec::with_capacity(one.len() + other.len());
    one.reverse();
    other.reverse();
    while !one.is_empty() || !other.is_empty() {
        turns.extend(one.pop());
        turns.extend(other.pop());
    }
    turns
}

type Attempt = Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;

/// The first connection to any of them, or why the last one failed.
async fn race(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut left = addresses.into_iter();
    let mut attempts: Vec<Attempt> = Vec::new();
    let mut pause: Option<Pin<Box<Sleep>>> = None;
    let mut error = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    poll_fn(|cx| {
        loop {
            let mut failed = false;
            let mut at = 0;
            while let Some(attempt) = attempts.get_mut(at) {
                match attempt.as_mut().poll(cx) {
                    Poll::Ready(Ok(stream)) => return Poll::Ready(Ok(stream)),
                    Poll::Ready(Err(why)) => {
                        error = why;
                        failed = true;
                        drop(attempts.remove(at));
                    }
                    Poll::Pending => at += 1,
                }
            }
            let over = match &mut pause {
                Some(pause) => pause.as_mut().poll(cx).is_ready(),
                None => true,
            };
            if !over && !failed {
                return Poll::Pending;
            }
            match left.next() {
                Some(address) => {
                    attempts.push(Box::pin(TcpStream::connect(address)));
                    pause = Some(Box::pin(sleep(APART)));
                }
                None if attempts.is_empty() => {
                    let none = io::Error::from(io::ErrorKind::NotConnected);
                    return Poll::Ready(Err(std::mem::replace(&mut error, none)));
                }
                None => return Poll::Pending,
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use tokio::net::{TcpListener, TcpSocket};
    use tokio::time::timeout;

    fn v4(last: u8) -> SocketAddr {
        (Ipv4Addr::new(127, 0, 0, last), 1).into()
    }

    fn v6(last: u16) -> SocketAddr {
        (Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, last), 1).into()
    }

    #[test]
    fn both_families_have_turns() {
        let found = vec![v6(1), v6(2), v6(3), v4(1)];
        assert_eq!(in_turns(found), [v6(1), v4(1), v6(2), v6(3)]);
        assert_eq!(in_turns(vec![v4(1), v6(1), v4(2)]), [v4(1), v6(1), v4(2)]);
        assert_eq!(in_turns(Vec::new()), []);
    }

    /// A port whose queue of connections is full: the system answers nothing more there.
    async fn black_hole() -> (SocketAddr, Vec<TcpStream>, TcpListener) {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind((Ipv4Addr::new(127, 0, 0, 2), 0).into()).expect("a free port");
        let listener = socket.listen(1).expect("it listens");
        let address = listener.local_addr().expect("an address");
        let mut full = Vec::new();
        while let Ok(Ok(stream)) =
            timeout(Duration::from_millis(200), TcpStream::connect(address)).await
        {
            full.push(stream);
        }
        (address, full, listener)
    }

    #[tokio::test]
    async fn an_address_that_swallows_everything_does_not_keep_the_others_from_their_turn() {
        let (hole, _full, _listener) = black_hole().await;
        let there = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = there.local_addr().expect("an address");
        // Without a limit: the hole takes minutes to fail.
        let stream = race(vec![hole, hole, address]).await.expect("one of them is there");
        assert_eq!(stream.peer_addr().expect("connected"), address);
    }

    #[tokio::test]
    async fn the_last_error_is_told_if_none_is_there() {
        let gone = {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            listener.local_addr().expect("an address")
        };
        let error = race(vec![gone, gone]).await.expect_err("nobody listens");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let none = race(Vec::new()).await.expect_err("no address");
        assert_eq!(none.kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn a_peer_that_is_gone_is_noticed() {
        let there = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = there.local_addr().expect("an address");
        let stream = dial("127.0.0.1", address.port()).await.expect("it listens");
        assert!(sockopt::socket_keepalive(&stream).expect("an option"));
        assert_eq!(sockopt::tcp_keepidle(&stream).expect("an option"), IDLE);
        assert_eq!(sockopt::tcp_keepintvl(&stream).expect("an option"), ASKED_EVERY);
        assert_eq!(sockopt::tcp_keepcnt(&stream).expect("an option"), ASKED_AT_MOST);
        assert!(stream.nodelay().expect("an option"));
    }
}
