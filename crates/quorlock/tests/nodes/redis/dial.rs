//! The ways to a server: sockets, TLS, passwords, users, databases.

use quorlock::{Dialect, Error};
use quorlock_testkit::{Proxy, RedisServer, Reply, eventually_async as eventually, skipping, test};

use super::queue::{client, is_passed_on};
use super::{DIALECTS, calls, exists, info, options, patient, trouble, works};

#[test]
async fn a_server_behind_a_unix_socket_is_a_node() {
    let server = RedisServer::builder().unix_socket().start();
    let locker = patient().nodes([server.url()]).connect().await.expect("a locker");
    works(&locker, &server).await;
}

#[test]
async fn a_server_behind_tls_is_a_node() {
    let server = RedisServer::builder().tls().start();
    let locker = patient().nodes([server.url()]).connect().await.expect("a locker");
    works(&locker, &server).await;
}

/// So much at a time that replies, and records of TLS, are split between reads.
#[test]
async fn many_calls_at_once_pass_through_any_socket() {
    let (plain, tls) = (RedisServer::start(), RedisServer::builder().tls().start());
    let ca = tls.tls_ca().display();
    for (server, scheme, query) in [(&plain, "redis", ""), (&tls, "rediss", &*format!("?ca={ca}"))]
    {
        let proxy = Proxy::in_front_of(server.addr());
        let url = format!("{scheme}://localhost:{}{query}", proxy.addr().port());
        let locker = patient().nodes([url]).connect().await.expect("a locker");
        // With a token so long that replies take up more room than requests.
        server.command(&["SET", "seen by many", &"x".repeat(1_000), "PX", "60000"]);
        let looks: Vec<_> = (0..2_000)
            .map(|_| {
                let locker = locker.clone();
                tokio::spawn(async move { locker.inspect("seen by many").await })
            })
            .collect();
        for look in looks {
            let status = look.await.expect("no panic").expect("a status");
            assert!(status.holder().is_some(), "{status:?}");
        }
        works(&locker, server).await;
        assert_eq!(proxy.connections(), 1);
    }
}

#[test]
async fn a_certificate_of_an_unknown_authority_is_refused() {
    let server = RedisServer::builder().tls().start();
    let other = RedisServer::builder().tls().start();
    let url = format!("rediss://localhost:{}?ca={}", server.port(), other.tls_ca().display());
    let error = patient().nodes([url]).connect().await.expect_err("not to be trusted");
    assert!(matches!(error, Error::NoQuorum { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("certificate") && text.contains("?ca="), "{text}");
}

#[test]
async fn a_password_may_have_any_characters() {
    let password = "p@ss:w/rd? #%41";
    let server = RedisServer::builder().requirepass(password).start();
    let locker = patient().nodes([server.url()]).connect().await.expect("a locker");
    works(&locker, &server).await;

    let server = RedisServer::builder().requirepass(password).unix_socket().start();
    let locker = patient().nodes([server.url()]).connect().await.expect("a locker");
    works(&locker, &server).await;
}

/// Reads the rights out of the remedy, and gives them and no others.
async fn follow_the_remedy(server: &RedisServer, dialect: Dialect) {
    let patient = || patient().redis(options().dialect(dialect).trust_new_nodes(true));
    let acl = |rule: &str| server.command(&["ACL", "SETUSER", "alice", rule]);
    for rule in ["on", ">wonderland", "~works*", "~looked*"] {
        assert_eq!(acl(rule), Reply::Simple("OK".into()));
    }
    let url = format!("redis://alice:wonderland@{}", server.addr());
    let error = patient().nodes([&url]).connect().await.expect_err("a user without rights");
    let text = error.to_string();
    assert!(text.contains("NOPERM") && !text.contains("wonderland"), "{text}");
    let mut rights: Vec<_> =
        text.split_whitespace().filter(|word| word.starts_with(['+', '&'])).collect();
    if dialect == Dialect::Strict {
        rights.extend(text.split_whitespace().filter(|word| word.starts_with("~:")));
    }
    for right in rights.into_iter().map(|right| right.trim_end_matches(',')) {
        let given = acl(right);
        // Not every server has them, and what it does not have it cannot give.
        if !["+delifeq", "+delex"].contains(&right) {
            assert_eq!(given, Reply::Simple("OK".into()), "{right}");
        }
    }
    server.command(&["ACL", "LOG", "RESET"]);
    let locker = patient().nodes([&url]).connect().await.expect("a user with rights");
    works(&locker, server).await;
    assert_eq!(locker.list().await.expect("a list").len(), 0);
    is_passed_on(&client(&url, dialect).await, &client(&url, dialect).await, "works in turn").await;

    // A connection that breaks is ended on the server by the next one, which needs a right as well.
    let killed = calls(server, "client|kill");
    server.command(&["CLIENT", "KILL", "USER", "alice"]);
    eventually("a new connection", async || trouble(&locker, 0).await.is_none()).await;
    works(&locker, server).await;
    assert_eq!(calls(server, "client|kill"), killed + 2, "the test's own and the locker's");
    assert_eq!(server.command(&["ACL", "LOG"]), Reply::Array(vec![]), "no right is missing");
}

#[test]
async fn a_user_with_the_rights_that_the_remedy_names_can_do_everything() {
    for dialect in DIALECTS {
        follow_the_remedy(&RedisServer::start(), dialect).await;
    }
}

#[test]
async fn a_user_of_valkey_with_the_rights_that_the_remedy_names_can_do_everything() {
    let program = skipping::valkey();
    for dialect in DIALECTS {
        follow_the_remedy(&RedisServer::builder().program(&program).start(), dialect).await;
    }
}

#[test]
async fn locks_lie_in_the_database_of_the_url() {
    let server = RedisServer::start();
    let url = format!("{}/3", server.url());
    let locker = patient().nodes([&url]).connect().await.expect("a locker");
    let guard = locker.try_lock("fenced").await.expect("free");
    assert_eq!(info(&server, "keyspace", "db3", "keys"), 2, "the record and its fence");
    assert!(!exists(&server, "fenced"), "it is in database 0");
    let status = locker.inspect("fenced").await.expect("a status");
    assert_eq!(status.nodes[0].node, url);
    guard.release().await.expect("released");
    assert_eq!(info(&server, "keyspace", "db3", "keys"), 1, "the fence stays");
    assert_eq!(server.command(&["DBSIZE"]), Reply::Int(0), "nothing is in database 0");
}

#[test]
async fn a_prefix_stands_before_every_name() {
    let server = RedisServer::start();
    let builder = patient().redis(options().prefix("locks:"));
    let locker = builder.nodes([server.url()]).connect().await.expect("one");
    let guard = locker.try_lock("mine").await.expect("free");
    assert!(exists(&server, "locks:mine") && !exists(&server, "mine"));
    guard.extend().await.expect("extended");
    let status = locker.inspect("mine").await.expect("a status");
    assert!(status.holder().is_some(), "{status:?}");
    guard.release().await.expect("released");
    assert_eq!(server.kept(), 0);
}
