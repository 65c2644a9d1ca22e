//! Servers that cannot be nodes: one of three does no harm, and the only one says why not.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use quorlock::{Builder, Error, Locker};
use quorlock_testkit::{RedisServer, eventually_async as eventually, servers, test};
use tokio::net::TcpSocket;

use super::{patient, trouble};

const PASSWORD: &str = "open-sesame";

/// Some of these nodes let the time limit for connecting run out each time.
fn limited() -> Builder {
    patient().connect_limit(Duration::from_secs(2))
}

/// Every part of `says` has to stand in what is said of the node.
async fn is_lived_with(url: &str, says: &[&str]) {
    let check = |text: &str| {
        for part in says {
            assert!(text.contains(part), "no {part:?} in: {text}");
        }
        assert!(!text.contains(PASSWORD), "{text}");
    };
    let error = limited().nodes([url]).connect().await.expect_err("the only node");
    assert!(matches!(error, Error::NoQuorum { have: 0, need: 1, nodes: 1, .. }), "{error}");
    check(&error.to_string());
    assert!(!format!("{error:?}").contains(PASSWORD), "{error:?}");

    let good = servers(2);
    let urls = [good[0].url(), url.to_owned(), good[1].url()];
    let locker = limited().nodes(urls).connect().await.expect("two of three");
    two_of_three_work(&locker, &good).await;
    // At first it may only be known that the connection is not there yet.
    eventually("the reason", async || {
        trouble(&locker, 1).await.is_some_and(|text| says.iter().all(|part| text.contains(part)))
    })
    .await;
    let status = format!("{:?} {locker:?}", locker.inspect("x").await);
    assert!(!status.contains(PASSWORD), "{status}");
}

async fn two_of_three_work(locker: &Locker, good: &[RedisServer]) {
    let guard = locker.try_lock("lived with").await.expect("two of three");
    guard.extend().await.expect("two of three");
    guard.release().await.expect("two of three");
    for server in good {
        assert_eq!(server.kept(), 0);
    }
}

#[test]
async fn a_wrong_password() {
    let server = RedisServer::builder().requirepass("another").start();
    let url = format!("redis://:{PASSWORD}@{}", server.addr());
    is_lived_with(&url, &["WRONGPASS", "check user and password"]).await;
}

#[test]
async fn no_password_where_one_is_needed() {
    let server = RedisServer::builder().requirepass(PASSWORD).start();
    let url = format!("redis://{}", server.addr());
    is_lived_with(&url, &["NOAUTH", "put the password into the URL"]).await;
}

#[test]
async fn a_name_that_nobody_knows() {
    // Depending on the machine, the answer is that it does not exist, or there is none in time.
    let url = format!("redis://:{PASSWORD}@no-such-host.invalid");
    is_lived_with(&url, &["is the address right?"]).await;
}

#[test]
async fn nobody_who_listens() {
    // Bound and not listening: nobody else can get the port in the meantime.
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
    let url = format!("redis://:{PASSWORD}@{}", socket.local_addr().expect("an address"));
    is_lived_with(&url, &["cannot connect", "refused", "is it up"]).await;
}

#[test]
async fn somebody_who_never_answers() {
    // The kernel accepts for it.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("redis://:{PASSWORD}@{}", listener.local_addr().expect("an address"));
    is_lived_with(&url, &["is it up"]).await;
}

#[test]
async fn another_protocol() {
    let addr = serve(|mut client| {
        let _ = client.read(&mut [0; 4_096]);
        let _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    });
    let url = format!("redis://:{PASSWORD}@{addr}");
    is_lived_with(&url, &["another protocol", "check the port"]).await;
}

#[test]
async fn a_server_without_tls_where_tls_is_asked_for() {
    let (server, tls) = (RedisServer::start(), RedisServer::builder().tls().start());
    let ca = tls.tls_ca().display();
    let url = format!("rediss://:{PASSWORD}@localhost:{}?ca={ca}", server.port());
    // Such a server waits for the end of what it takes for a command, or says that it knows none.
    is_lived_with(&url, &[]).await;
}

#[test]
async fn a_database_that_is_not_there() {
    let server = RedisServer::start();
    is_lived_with(&format!("{}/99", server.url()), &["DB index is out of range"]).await;
}

/// It greets as Redis does, and answers every command with an empty array.
#[test]
async fn a_server_whose_answers_make_no_sense() {
    let addr = serve(answer_with_arrays);
    let alone = patient().nodes([format!("redis://{addr}")]).connect().await.expect("it greets");
    let says = ["answered with an array", &addr.to_string()];
    let error = alone.try_lock("x").await.expect_err("no vote");
    assert!(matches!(error, Error::NoQuorum { have: 0, .. }), "{error}");
    assert!(says.iter().all(|part| error.to_string().contains(part)), "{error}");

    let good = servers(2);
    let urls = [good[0].url(), format!("redis://{addr}"), good[1].url()];
    let locker = patient().nodes(urls).connect().await.expect("three of three");
    two_of_three_work(&locker, &good).await;
    let text = trouble(&locker, 1).await.expect("no answer to a look either");
    assert!(text.contains(says[0]), "{text}");
}

/// A server that treats each connection so, on a thread each, until the process ends.
fn serve(treat: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || treat(client));
        }
    });
    addr
}

fn answer_with_arrays(client: TcpStream) {
    let mut lines = BufReader::new(client.try_clone().expect("a clone")).lines();
    let mut out = client;
    // Each command is a line with the number of its parts, and two lines for each of them.
    while let Some(Ok(head)) = lines.next() {
        let Some(parts) = head.strip_prefix('*').and_then(|count| count.parse().ok()) else {
            continue;
        };
        let mut name = String::new();
        for part in 0..parts {
            let (Some(Ok(length)), Some(Ok(mut text))) = (lines.next(), lines.next()) else {
                return;
            };
            let length: usize = length[1..].parse().expect("a length");
            while text.len() < length {
                let Some(Ok(more)) = lines.next() else { return };
                text = text + "\n" + &more;
            }
            if part == 0 {
                name = text;
            }
        }
        let answer = match name.as_str() {
            "HELLO" => "%2\r\n$2\r\nid\r\n:7\r\n$4\r\nrole\r\n$6\r\nmaster\r\n",
            "SELECT" => "+OK\r\n",
            "INFO" => "$11\r\nrun_id:fake\r\n",
            _ => "*0\r\n",
        };
        if out.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}
