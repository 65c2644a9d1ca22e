//! What cannot work is refused at once, and says what to do.

use std::io::Write as _;
use std::net::TcpListener;
use std::time::Duration;

use quorlock::Locker;
use quorlock_testkit::{RedisServer, ZooKeeperEnsemble, fresh_prefix, test};

use super::{beside, on, only_lock};

/// Why nobody can lock with this URL.
async fn refused(url: &str) -> String {
    let builder = Locker::builder().nodes([url]).connect_limit(Duration::from_secs(5));
    let locker = match builder.connect().await {
        Ok(locker) => locker,
        Err(error) => return error.to_string(),
    };
    locker.try_lock("x").await.expect_err("it cannot work").to_string()
}

#[test]
async fn an_ensemble_is_no_node_among_others() {
    let ensemble = ZooKeeperEnsemble::shared(3);
    let builder = Locker::builder().nodes([ensemble.url(), "redis://127.0.0.1:1".to_owned()]);
    let error = builder.connect().await.expect_err("it stands alone").to_string();
    assert!(error.contains("is a cluster by itself") && error.contains("use it alone"), "{error}");
}

#[test]
async fn a_ttl_that_clocks_use_up_is_refused() {
    let ensemble = ZooKeeperEnsemble::shared(3);
    let builder = on(&ensemble.endpoints(), &fresh_prefix()).ttl(Duration::from_millis(500));
    let error = builder.connect().await.expect_err("too short").to_string();
    assert!(error.contains("500ms") && error.contains("longer TTL"), "{error}");
}

#[test]
async fn what_is_no_zookeeper_is_named_with_what_it_said() {
    let redis = RedisServer::start();
    let (silent, nobody) = (redis.url().replace("redis://", ""), "127.0.0.1:1");
    let web = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let talks = web.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for mut stream in web.incoming().flatten() {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let error = refused(&format!("zookeeper://{silent},{talks},{nobody}")).await;
    for part in [
        format!("{silent}: it begins no session within"),
        format!("{talks}: it does not speak as a ZooKeeper server does"),
        format!("{nobody}: Connection refused"),
    ] {
        assert!(error.contains(&part), "{part} in {error}");
    }
}

#[test]
async fn a_member_that_speaks_no_tls_is_named() {
    let ensemble = ZooKeeperEnsemble::shared(3);
    let error = refused(&ensemble.url().replace("zookeeper://", "zookeepers://")).await;
    assert!(error.contains(&ensemble.endpoints()[0]), "{error}");
    assert!(error.contains("TLS"), "{error}");
}

#[test]
async fn a_chroot_is_created_with_all_above_it() {
    let ensemble = ZooKeeperEnsemble::shared(3);
    let chroot = format!("{}/teams/a", fresh_prefix());
    let locker = on(&ensemble.endpoints(), &chroot).connect().await.expect("connected");
    locker.lock("x").await.expect("free").release().await.expect("released");
    let mut client = beside(ensemble, 0);
    client.sync();
    only_lock(&mut client, &chroot);
}

/// Two users, each with what it has created.
#[test]
async fn others_have_no_rights_to_what_a_user_has_created() {
    let ensemble = ZooKeeperEnsemble::shared(3);
    let (endpoint, chroot) = (ensemble.endpoints().remove(0), fresh_prefix());
    let url = format!("zookeeper://ann:hunter2@{endpoint}{chroot}");
    let locker = Locker::builder().nodes([&url]).connect().await.expect("connected");
    let guard = locker.lock("x").await.expect("free");
    let next = Locker::builder().nodes([&url]).connect().await.expect("connected");
    let waiter = tokio::spawn(async move { next.lock("x").wait(super::LONG).await });
    guard.release().await.expect("released");
    waiter.await.expect("no panic").expect("its turn").release().await.expect("released");

    let error = refused(&format!("zookeeper://{endpoint}{chroot}")).await;
    let remedy = "zookeeper://user:password@host/chroot";
    assert!(error.contains(&chroot) && error.contains(remedy), "{error}");
    let error = refused(&format!("zookeeper://ann:wrong2@{endpoint}{chroot}")).await;
    assert!(error.contains("the password is not the one"), "{error}");
    assert!(!error.contains("wrong2"), "{error}");
}

#[test]
async fn a_node_that_is_something_else_is_no_lock() {
    let ensemble = ZooKeeperEnsemble::shared(3);
    let chroot = fresh_prefix();
    let url = format!("{}{chroot}", ensemble.url());
    let locker = Locker::builder().nodes([&url]).connect().await.expect("connected");
    locker.lock("x").await.expect("free").release().await.expect("released");
    let mut client = beside(ensemble, 0);
    client.sync();
    let path = only_lock(&mut client, &chroot);
    client.put(&path, b"mine");
    let error = refused(&url).await;
    assert!(error.contains(&format!("the node {path} is no lock of quorlock")), "{error}");
    assert_eq!(client.data(&path).as_deref(), Some(&b"mine"[..]), "it was left alone");
}
