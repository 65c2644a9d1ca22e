//! Servers that are none, or that mean harm.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use quorlock::Locker;

use super::LONG;

/// A server that begins every session, and does this then. Returns its address, and how many it has begun.
fn begins(then: impl Fn(&mut TcpStream) + Send + 'static) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = listener.local_addr().expect("an address").to_string();
    let sessions = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&sessions);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut length = [0; 4];
            if stream.read_exact(&mut length).is_err() {
                continue;
            }
            let mut hello = vec![0; u32::from_be_bytes(length).min(1_024) as usize];
            let _ = stream.read_exact(&mut hello);
            // The protocol, the length of the session, its number and its password.
            let parts = [&0_u32.to_be_bytes()[..], &60_000_u32.to_be_bytes(), &7_u64.to_be_bytes()];
            let body = [parts.concat(), 16_u32.to_be_bytes().to_vec(), vec![5; 16]].concat();
            let length = u32::try_from(body.len()).expect("a short one").to_be_bytes();
            count.fetch_add(1, SeqCst);
            let _ = stream.write_all(&[&length[..], &body].concat());
            then(&mut stream);
        }
    });
    (addr, sessions)
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_refused_by_its_header() {
    let (addr, _) = begins(|stream| {
        let _ = stream.read(&mut [0; 64]);
        let _ = stream.write_all(&(2_u32 << 20).to_be_bytes());
        // It says no more, and does not go away before the client does.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let locker = Locker::builder().nodes([format!("zookeeper://{addr}")]);
    let error = locker
        .connect_limit(Duration::from_secs(5))
        .connect()
        .await
        .expect_err("no server")
        .to_string();
    assert!(error.contains("it does not speak as a ZooKeeper server does"), "{error}");
}

#[tokio::test]
async fn sessions_that_end_at_once_are_not_begun_again_and_again() {
    let (addr, sessions) = begins(|_| ());
    let locker = Locker::builder().nodes([format!("zookeeper+curator://{addr}")]);
    let connecting = tokio::spawn(async move {
        let _locker = locker.connect_limit(LONG).connect().await;
        std::future::pending::<()>().await;
    });
    tokio::time::sleep(Duration::from_secs(2)).await;
    connecting.abort();
    let sessions = sessions.load(SeqCst);
    assert!((2..=20).contains(&sessions), "{sessions}");
}
