//! Each fault of the proxy is seen working.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use quorlock_testkit::{Client, DEADLINE, Proxy, RedisServer, Reply, eventually, test};

fn server_and_proxy() -> (RedisServer, Proxy) {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(server.addr());
    (server, proxy)
}

fn stream(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(proxy.addr()).expect("a connection");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    stream
}

fn connect(proxy: &Proxy) -> Client<TcpStream> {
    Client::over(stream(proxy))
}

fn ok() -> Reply {
    Reply::Simple("OK".into())
}

fn pong() -> Reply {
    Reply::Simple("PONG".into())
}

fn exists(server: &RedisServer, key: &str) -> bool {
    server.command(&["EXISTS", key]) == Reply::Int(1)
}

/// Whether the other side has closed the connection, in either of the ways TCP has.
fn is_closed(mut stream: &TcpStream) -> bool {
    match stream.read(&mut [0]) {
        Ok(length) => length == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// Whether nothing has come yet, without waiting for it.
fn is_silent(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("a stream that does not block");
    let silent = stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    stream.set_nonblocking(false).expect("a stream that blocks");
    silent
}

#[test]
fn passes_bytes_and_counts_connections() {
    let (server, proxy) = server_and_proxy();
    assert_eq!(proxy.url(), format!("redis://{}?name={}", proxy.addr(), server.addr()));
    let mut first = connect(&proxy);
    assert_eq!(first.command(&["SET", "key", "value"]).unwrap(), ok());
    assert_eq!(server.command(&["GET", "key"]), Reply::bulk("value"));
    let mut second = connect(&proxy);
    assert_eq!(second.command(&["GET", "key"]).unwrap(), Reply::bulk("value"));
    assert_eq!((proxy.connections(), proxy.open()), (2, 2));

    drop(first);
    eventually("one is closed", || proxy.open() == 1);
    assert_eq!(second.command(&["PING"]).unwrap(), pong());
    assert_eq!((proxy.connections(), proxy.open()), (2, 1));
    eventually("nothing is held", || proxy.held() == 0);
    assert_eq!(proxy.lost(), 0);
}

#[test]
fn works_while_the_test_blocks_its_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (_server, proxy) = server_and_proxy();
        assert_eq!(connect(&proxy).command(&["PING"]).unwrap(), pong());
    });
}

#[test]
fn delay_comes_once_each_way() {
    let (_server, proxy) = server_and_proxy();
    let mut client = connect(&proxy);
    let delay = Duration::from_millis(100);
    proxy.delay(delay);
    let start = Instant::now();
    assert_eq!(client.command(&["PING"]).unwrap(), pong());
    assert!(start.elapsed() >= 2 * delay, "{:?}", start.elapsed());
}

#[test]
fn delayed_bytes_travel_side_by_side_and_in_order() {
    let (server, proxy) = server_and_proxy();
    let mut client = connect(&proxy);
    let delay = Duration::from_millis(50);
    proxy.delay(delay);

    // The proxy takes in 16 KiB at a time at most: one after another these would take 25 s.
    let value: Vec<u8> = (0..8 * 1024 * 1024_u32).map(|i| (i >> 7) as u8).collect();
    assert_eq!(client.command(&[b"SET", b"key", value.as_slice()]).unwrap(), ok());
    assert!(server.command(&["GET", "key"]) == Reply::bulk(value), "what arrived is what was sent");

    for _ in 0..100 {
        client.send(&["INCR", "count"]).unwrap();
    }
    for count in 1..=100 {
        assert_eq!(client.receive().unwrap(), Reply::Int(count));
    }
}

#[test]
fn delayed_bytes_have_not_arrived_yet() {
    let (server, proxy) = server_and_proxy();
    let mut client = connect(&proxy);
    proxy.delay(Duration::from_secs(3600));
    client.send(&["SET", "key", "value"]).unwrap();
    eventually("the request is on its way", || proxy.held() > 0);
    assert!(!exists(&server, "key"));
}

#[test]
fn lost_replies_leave_the_requests_done() {
    let (server, proxy) = server_and_proxy();
    let mut client = connect(&proxy);
    proxy.lose_replies(true);
    client.send(&["SET", "key", "value"]).unwrap();
    eventually("the reply is lost", || proxy.lost() == "+OK\r\n".len());
    assert!(exists(&server, "key"));

    proxy.lose_replies(false);
    // Had the other reply not been lost, it would come first.
    assert_eq!(client.command(&["PING"]).unwrap(), pong());
}

#[test]
fn lost_requests_are_never_done() {
    let (server, proxy) = server_and_proxy();
    let stream = stream(&proxy);
    let mut client = Client::over(stream.try_clone().unwrap());
    // This one's reply is still to come when requests are lost.
    client.send(&["BLPOP", "queue", "0"]).unwrap();
    eventually("the server got it", || {
        let blocked = b"blocked_clients:1\r\n";
        matches!(server.command(&["INFO", "clients"]), Reply::Bulk(Some(info))
            if info.windows(blocked.len()).any(|window| window == blocked))
    });

    proxy.lose_requests(true);
    client.send(&["INCR", "count"]).unwrap();
    eventually("the request is lost", || proxy.lost() > 0);
    assert!(is_silent(&stream));
    server.command(&["LPUSH", "queue", "value"]);
    let popped = Reply::Array(vec![Reply::bulk("queue"), Reply::bulk("value")]);
    assert_eq!(client.receive().unwrap(), popped);

    proxy.lose_requests(false);
    assert_eq!(client.command(&["INCR", "count"]).unwrap(), Reply::Int(1));
}

#[test]
fn a_hang_holds_requests_until_it_is_over() {
    let (server, proxy) = server_and_proxy();
    let mut client = connect(&proxy);
    assert_eq!(client.command(&["PING"]).unwrap(), pong());
    proxy.hang(true);
    client.send(&["SET", "key", "value"]).unwrap();
    eventually("the request is held", || proxy.held() > 0);
    assert!(!exists(&server, "key"));
    assert_eq!(proxy.open(), 1);

    proxy.hang(false);
    assert_eq!(client.receive().unwrap(), ok());
    assert_eq!(proxy.lost(), 0);
}

#[test]
fn a_hang_holds_replies_and_the_end_until_it_is_over() {
    let (server, proxy) = server_and_proxy();
    let stream = stream(&proxy);
    let mut client = Client::over(stream.try_clone().unwrap());
    assert!(matches!(client.command(&["SUBSCRIBE", "news"]).unwrap(), Reply::Array(_)));

    proxy.hang(true);
    assert_eq!(server.command(&["PUBLISH", "news", "one"]), Reply::Int(1));
    eventually("the message is held", || proxy.held() > 0);
    server.kill();
    assert!(is_silent(&stream));
    assert_eq!(proxy.open(), 1);

    proxy.hang(false);
    let message = ["message", "news", "one"].map(Reply::bulk);
    assert_eq!(client.receive().unwrap(), Reply::Array(message.into()));
    assert!(is_closed(&stream));
}

#[test]
fn cut_closes_all_and_drops_what_was_on_its_way() {
    let (server, proxy) = server_and_proxy();
    let (idle, busy) = (stream(&proxy), stream(&proxy));
    proxy.hang(true);
    let mut client = Client::over(busy.try_clone().unwrap());
    client.send(&["SET", "key", "value"]).unwrap();
    eventually("the request is held", || proxy.held() > 0);
    assert_eq!(proxy.open(), 2);

    proxy.cut();
    assert_eq!((proxy.open(), proxy.held()), (0, 0));
    assert!(is_closed(&idle));
    assert!(is_closed(&busy));

    proxy.hang(false);
    assert_eq!(connect(&proxy).command(&["EXISTS", "key"]).unwrap(), Reply::Int(0));
    assert!(!exists(&server, "key"));
    assert_eq!(proxy.connections(), 3);
}

#[test]
fn cut_also_closes_who_connected_just_before() {
    let (_server, proxy) = server_and_proxy();
    for round in 1..=50 {
        let stream = stream(&proxy);
        proxy.cut();
        assert_eq!((proxy.connections(), proxy.open()), (round, 0));
        assert!(is_closed(&stream));
    }
}

#[test]
fn refuse_closes_new_connections_and_keeps_the_old() {
    let (_server, proxy) = server_and_proxy();
    let mut old = connect(&proxy);
    assert_eq!(old.command(&["PING"]).unwrap(), pong());

    proxy.refuse(true);
    assert!(is_closed(&stream(&proxy)));
    assert!(is_closed(&stream(&proxy)));
    assert_eq!(old.command(&["PING"]).unwrap(), pong());
    assert_eq!((proxy.connections(), proxy.open()), (3, 1));

    proxy.refuse(false);
    assert_eq!(connect(&proxy).command(&["PING"]).unwrap(), pong());
}

#[test]
fn a_server_that_is_down_closes_the_connections_and_may_come_back() {
    let (server, proxy) = server_and_proxy();
    let stream_before = stream(&proxy);
    let mut client = Client::over(stream_before.try_clone().unwrap());
    assert_eq!(client.command(&["PING"]).unwrap(), pong());
    server.kill();
    assert!(is_closed(&stream_before));
    assert!(is_closed(&stream(&proxy)));

    server.restart();
    assert_eq!(connect(&proxy).command(&["PING"]).unwrap(), pong());
}
