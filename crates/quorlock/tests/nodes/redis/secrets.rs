//! No password and no token is ever shown.

use quorlock::Error;
use quorlock_testkit::{Logs, Proxy, RedisServer, Reply, eventually_async as eventually, test};

use super::{connections, hasty, patient, text};

const PASSWORD: &str = "open-sesame";

/// A secret as it would show in a text, or in the numbers of a list of bytes.
fn is_in(secret: &str, text: &str) -> bool {
    let bytes = format!("{:?}", secret.as_bytes());
    text.contains(secret) || text.contains(bytes.trim_matches(['[', ']']))
}

#[test]
async fn nothing_that_can_be_printed_shows_a_password_or_a_token() {
    let server = RedisServer::builder().requirepass(PASSWORD).start();
    let builder = patient().nodes([server.url()]);
    let mut texts = vec![format!("{builder:?}")];
    let locker = builder.connect().await.expect("a locker");
    let guard = locker.try_lock("shown").await.expect("free");
    let token = text(&server, &["GET", "shown"]);
    texts.push(format!("{guard:?} {locker:?} {:?}", locker.lock("shown")));
    let taken = locker.try_lock("shown").await.expect_err("taken");
    assert!(matches!(taken, Error::Taken { .. }), "{taken}");
    texts.push(format!("{taken} {taken:?} {:?}", locker.inspect("shown").await));

    // Both are on their way when the locker is printed: nothing has been awaited in between.
    let (extending, releasing) = (guard.extend(), guard.release());
    texts.push(format!("{locker:?} {extending:?} {releasing:?}"));
    let _ = extending.await;
    let released = releasing.await.expect("released");
    texts.push(format!("{released:?} {:?}", released.nodes()));

    for text in texts {
        assert!(!is_in(PASSWORD, &text) && !is_in(&token, &text), "{text}");
    }
}

#[test]
async fn nothing_that_is_logged_shows_a_password_or_a_token() {
    let logs = Logs::new();
    let server = RedisServer::builder().requirepass(PASSWORD).start();
    let wrong = format!("redis://:{PASSWORD}-2@{}", server.addr());
    patient().nodes([wrong]).connect().await.expect_err("a wrong password");
    assert!(logs.warns_of("WRONGPASS"), "{:?}", logs.lines());

    let proxy = Proxy::in_front_of(server.addr());
    let url = format!("redis://:{PASSWORD}@{}", proxy.addr());
    let locker = hasty().nodes([url]).connect().await.expect("a locker");
    let guard = locker.lock("logged").await.expect("free");
    let token = match server.command(&["GET", "logged"]) {
        Reply::Bulk(Some(token)) => String::from_utf8(token).expect("text"),
        other => panic!("{other:?}"),
    };
    proxy.cut();
    drop(guard);
    eventually("released over a new connection", async || {
        server.command(&["EXISTS", "logged"]) == Reply::Int(0)
    })
    .await;
    assert_eq!(connections(&server).len(), 1);
    assert!(logs.warns_of("cannot be used"), "{:?}", logs.lines());
    for line in logs.lines() {
        assert!(!is_in(PASSWORD, &line) && !is_in(&token, &line), "{line}");
    }
}
