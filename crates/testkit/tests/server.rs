//! Servers start, answer, and can be paused, killed and restarted.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quorlock_testkit::{
    Client, DEADLINE, RedisServer, RedisServerBuilder, Reply, eventually, servers, skipping, test,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tokio::net::TcpSocket;

fn ok() -> Reply {
    Reply::Simple("OK".into())
}

fn pong() -> Reply {
    Reply::Simple("PONG".into())
}

/// A client on the server's port, as any other program would connect.
fn connect(server: &RedisServer) -> Client<TcpStream> {
    Client::over(stream(server))
}

fn stream(server: &RedisServer) -> TcpStream {
    let stream = TcpStream::connect(server.addr()).expect("a connection");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    stream
}

fn setting(server: &RedisServer, name: &str) -> Reply {
    match server.command(&["CONFIG", "GET", name]) {
        Reply::Array(mut pair) => pair.pop().expect("a setting"),
        other => panic!("{other:?}"),
    }
}

fn state(server: &RedisServer) -> char {
    let stat = fs::read_to_string(format!("/proc/{}/stat", server.pid())).expect("a process");
    stat.rsplit_once(") ").and_then(|(_, state)| state.chars().next()).expect("a state")
}

#[test]
fn answers_on_its_port() {
    let server = RedisServer::start();
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
    assert_eq!(connect(&server).command(&["SET", "key", "value"]).unwrap(), ok());
    assert_eq!(server.command(&["GET", "key"]), Reply::bulk("value"));
}

#[test]
fn those_started_at_once_are_apart() {
    let servers = servers(3);
    for server in &servers {
        assert_eq!(connect(server).command(&["INCR", "key"]).unwrap(), Reply::Int(1));
    }
    let mut ports: Vec<_> = servers.iter().map(RedisServer::port).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 3);
}

#[test]
fn commands_take_any_bytes_and_give_any_reply() {
    let server = RedisServer::start();
    let name: &[u8] = b"\r\n\0 \xff$3";
    assert_eq!(server.command(&[b"SET", name, b""]), ok());
    assert_eq!(server.command(&[b"GET", name]), Reply::bulk(""));
    assert_eq!(server.command(&["GET", "none"]), Reply::Bulk(None));
    assert_eq!(server.command(&["KEYS", "*"]), Reply::Array(vec![Reply::bulk(name)]));
    assert_eq!(server.command(&["DBSIZE"]), Reply::Int(1));
    assert!(matches!(server.command(&["LPOP"]), Reply::Error(text) if text.starts_with("ERR ")));
}

#[test]
fn a_connection_of_its_own_keeps_its_state() {
    let server = RedisServer::start();
    let mut client = server.connect().unwrap();
    assert_eq!(client.command(&["WATCH", "key"]).unwrap(), ok());
    assert_eq!(server.command(&["SET", "key", "other"]), ok());
    assert_eq!(client.command(&["MULTI"]).unwrap(), ok());
    assert_eq!(client.command(&["EXEC"]).unwrap(), Reply::Bulk(None));
}

#[test]
fn paused_it_is_silent_until_resumed() {
    let server = RedisServer::start();
    let stream = stream(&server);
    let mut client = Client::over(stream.try_clone().unwrap());
    assert_eq!(client.command(&["PING"]).unwrap(), pong());

    server.pause();
    assert_eq!(state(&server), 'T');
    assert!(server.is_running());
    client.send(&["PING"]).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert_eq!(client.receive().unwrap_err().kind(), ErrorKind::WouldBlock);

    server.resume();
    assert_ne!(state(&server), 'T');
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    assert_eq!(client.receive().unwrap(), pong());
}

#[test]
fn killed_it_is_gone_and_restarted_it_is_empty() {
    let server = RedisServer::start();
    let (url, pid) = (server.url(), server.pid());
    assert_eq!(server.command(&["SET", "key", "value"]), ok());

    server.kill();
    assert!(!server.is_running());
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    let error = TcpStream::connect(server.addr()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    server.kill();

    server.restart();
    assert!(server.is_running());
    assert_eq!(server.url(), url);
    assert_ne!(server.pid(), pid);
    assert_eq!(connect(&server).command(&["EXISTS", "key"]).unwrap(), Reply::Int(0));
}

#[test]
fn restart_kills_what_still_runs_or_is_paused() {
    let server = RedisServer::start();
    for pause in [false, true] {
        let old = server.pid();
        if pause {
            server.pause();
        }
        server.restart();
        assert!(!Path::new(&format!("/proc/{old}")).exists());
        assert_eq!(connect(&server).command(&["PING"]).unwrap(), pong());
    }
}

#[test]
fn nobody_gets_its_port_while_it_is_down() {
    let server = RedisServer::start();
    server.kill();
    let other = TcpSocket::new_v4().unwrap();
    assert_eq!(other.bind(server.addr()).unwrap_err().kind(), ErrorKind::AddrInUse);
}

#[test]
fn appendonly_keeps_the_data_over_a_kill() {
    let server = RedisServer::builder().appendonly(true).start();
    assert_eq!(server.command(&["SET", "key", "value"]), ok());
    server.restart();
    assert_eq!(server.command(&["GET", "key"]), Reply::bulk("value"));
}

#[test]
fn listens_on_a_unix_socket_only() {
    let server = RedisServer::builder().unix_socket().start();
    assert_eq!(setting(&server, "port"), Reply::bulk("0"));
    let url = server.url();
    let path = url.strip_prefix("redis+unix://").unwrap();
    let mut client = Client::over(UnixStream::connect(path).unwrap());
    assert_eq!(client.command(&["PING"]).unwrap(), pong());

    server.restart();
    assert_eq!(server.url(), url);
}

#[test]
fn asks_for_its_password() {
    let password = "p@ss: /w%rd?\"é";
    let encoded = "p%40ss%3A%20%2Fw%25rd%3F%22%C3%A9";
    let server = RedisServer::builder().requirepass(password).start();
    assert_eq!(server.url(), format!("redis://:{encoded}@127.0.0.1:{}", server.port()));
    let mut client = connect(&server);
    let refused = client.command(&["PING"]).unwrap();
    assert!(matches!(&refused, Reply::Error(text) if text.starts_with("NOAUTH")), "{refused:?}");
    assert_eq!(client.command(&["AUTH", password]).unwrap(), ok());
    assert_eq!(client.command(&["PING"]).unwrap(), pong());
    assert_eq!(server.command(&["PING"]), pong());

    let server = RedisServer::builder().requirepass(password).unix_socket().start();
    assert!(server.url().ends_with(&format!("/redis.sock?pass={encoded}")), "{}", server.url());
}

#[test]
fn speaks_tls_with_a_certificate_from_its_own_authority() {
    let server = RedisServer::builder().tls().start();
    let ca = server.tls_ca();
    assert_eq!(server.url(), format!("rediss://localhost:{}?ca={}", server.port(), ca.display()));

    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).unwrap()).unwrap();
    let config =
        Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth());
    for name in ["localhost", "127.0.0.1"] {
        let name = ServerName::try_from(name).unwrap();
        let tls = ClientConnection::new(Arc::clone(&config), name).unwrap();
        let mut client = Client::over(StreamOwned::new(tls, stream(&server)));
        assert_eq!(client.command(&["PING"]).unwrap(), pong());
    }
    assert_eq!(server.command(&["PING"]), pong());
}

#[test]
fn follows_another_server() {
    let primary = RedisServer::start();
    let replica = RedisServer::builder().replica_of(primary.port()).start();
    assert_eq!(primary.command(&["SET", "key", "value"]), ok());
    eventually("the replica has the key", || {
        replica.command(&["GET", "key"]) == Reply::bulk("value")
    });
    let refused = replica.command(&["SET", "key", "other"]);
    assert!(matches!(&refused, Reply::Error(text) if text.starts_with("READONLY")), "{refused:?}");
}

#[test]
fn takes_any_setting() {
    let server = RedisServer::builder().arg("--maxmemory-policy", "allkeys-lru").start();
    assert_eq!(setting(&server, "maxmemory-policy"), Reply::bulk("allkeys-lru"));
}

#[test]
fn says_why_it_did_not_start() {
    let _ = skipping::program("redis-server");
    let why = |builder: RedisServerBuilder| {
        let panic = catch_unwind(AssertUnwindSafe(|| builder.start())).unwrap_err();
        panic.downcast_ref::<String>().unwrap().clone()
    };
    let message = why(RedisServer::builder().arg("--no-such-setting", "1"));
    assert!(message.contains("ended with exit status: 1"), "{message}");
    assert!(message.contains("Bad directive"), "{message}");
    let message = why(RedisServer::builder().program("/nowhere/valkey-server"));
    assert!(message.contains("/nowhere/valkey-server ended with exit status: 127"), "{message}");
}
