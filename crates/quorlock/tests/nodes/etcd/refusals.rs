//! What cannot work is refused at once, and says what to do.

use std::time::Duration;

use quorlock::Locker;
use quorlock_testkit::{EtcdCluster, EtcdTls, RedisServer, test};

use super::{etcdctl, on};

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
async fn a_cluster_is_no_node_among_others() {
    let cluster = EtcdCluster::shared(3);
    let builder = Locker::builder().nodes([cluster.url(), "redis://127.0.0.1:1".to_owned()]);
    let error = builder.connect().await.expect_err("it stands alone").to_string();
    assert!(error.contains("is a cluster by itself") && error.contains("use it alone"), "{error}");
}

#[test]
async fn a_ttl_below_a_second_is_refused() {
    let builder = on(&EtcdCluster::shared(3).endpoints()).ttl(Duration::from_millis(999));
    let error = builder.connect().await.expect_err("too short").to_string();
    assert!(error.contains("999ms") && error.contains("use one of 1s or more"), "{error}");
}

#[test]
async fn what_is_no_etcd_is_named_with_what_it_said() {
    let redis = RedisServer::start();
    let (here, nobody) = (redis.url().replace("redis://", ""), "127.0.0.1:1");
    let error = refused(&format!("etcd://{here},{nobody}")).await;
    assert!(error.contains(&here) && error.contains(nobody), "{error}");
    assert!(error.contains("refused"), "{error}");
}

#[test]
async fn a_member_that_speaks_no_tls_is_named() {
    let cluster = EtcdCluster::shared(3);
    let error = refused(&cluster.url().replace("etcd://", "etcds://")).await;
    assert!(error.contains(&cluster.endpoints()[0]), "{error}");
    assert!(error.contains("does not speak TLS there: write etcd://"), "{error}");
}

#[test]
async fn certificates_are_checked_on_both_sides() {
    let (_cluster, tls) = EtcdCluster::start_with_tls();
    let EtcdTls { endpoint, ca, cert, key } = &tls;
    let (ca, cert, key) = (ca.display(), cert.display(), key.display());
    let error = refused(&format!("etcds://{endpoint}?ca={ca}")).await;
    assert!(error.contains(endpoint), "without a certificate: {error}");
    let error = refused(&format!("etcds://{endpoint}?cert={cert}&key={key}")).await;
    assert!(error.contains(endpoint), "of an authority that is not known: {error}");
    let error = refused(&format!("etcds://{endpoint}?ca=/nowhere.pem")).await;
    assert!(error.contains("/nowhere.pem cannot be read"), "{error}");

    let url = format!("etcds://{endpoint}?ca={ca}&cert={cert}&key={key}");
    let locker = Locker::builder().nodes([url]).connect().await.expect("connected");
    locker.lock("x").await.expect("free").release().await.expect("released");
}

#[test]
async fn rights_are_asked_for_by_name() {
    let cluster = EtcdCluster::start(1);
    for args in [
        &["user", "add", "root:toor"][..],
        &["user", "grant-role", "root", "root"],
        &["role", "add", "locks"],
        &["role", "grant-permission", "locks", "--prefix=true", "readwrite", "mine/"],
        &["user", "add", "ann:hunter2"],
        &["user", "grant-role", "ann", "locks"],
        &["auth", "enable"],
    ] {
        etcdctl(&cluster, args);
    }
    let endpoint = cluster.endpoints().remove(0);
    let error = refused(&format!("etcd://{endpoint}/mine")).await;
    assert!(error.contains("it asks to log in; write etcd://user:password@host"), "{error}");
    let error = refused(&format!("etcd://ann:wrong2@{endpoint}/mine")).await;
    assert!(error.contains("refuses the user or the password"), "{error}");
    assert!(!error.contains("wrong2"), "{error}");
    let error = refused(&format!("etcd://ann:hunter2@{endpoint}/others")).await;
    assert!(error.contains("--prefix=true readwrite others/"), "{error}");

    let url = format!("etcd://ann:hunter2@{endpoint}/mine");
    let locker = Locker::builder().nodes([url]).connect().await.expect("connected");
    let guard = locker.lock("x").await.expect("these rights are enough");
    guard.release().await.expect("released");
}

#[test]
async fn a_user_where_nobody_logs_in_is_refused() {
    let endpoint = EtcdCluster::shared(3).endpoints().remove(0);
    let error = refused(&format!("etcd://ann:hunter2@{endpoint}")).await;
    assert!(error.contains("take user and password out of the URL"), "{error}");
    assert!(!error.contains("hunter2"), "{error}");
}

#[test]
async fn a_full_database_is_named_with_what_to_do() {
    let cluster = EtcdCluster::start_with(1, &["--quota-backend-bytes", "262144"]);
    let large = "x".repeat(100_000);
    let is_full = |answer: &String| answer.contains("space exceeded");
    let mut puts =
        (0..100).map(|index| etcdctl(&cluster, &["put", &format!("large/{index}"), &large]));
    puts.find(is_full).expect("it is full in the end");
    let error = refused(&cluster.url()).await;
    assert!(error.contains("its database is full") && error.contains("alarm disarm"), "{error}");
}

#[test]
async fn a_key_that_is_something_else_is_no_lock() {
    let cluster = EtcdCluster::start(1);
    etcdctl(&cluster, &["put", "quorlock/state/x", "mine"]);
    let error = refused(&cluster.url()).await;
    assert!(error.contains("the key quorlock/state/x is no lock of quorlock"), "{error}");
}
