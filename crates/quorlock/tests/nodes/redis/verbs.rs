//! What is sent to a server: scripts that it forgot, commands that it has or has not.

use quorlock_testkit::{RedisServer, Reply, test};

use super::{calls, exists, patient, text, works};

#[test]
async fn scripts_that_a_server_has_forgotten_are_sent_again() {
    let server = RedisServer::start();
    let locker = patient().nodes([server.url()]).connect().await.expect("a locker");
    let forget = || assert_eq!(server.command(&["SCRIPT", "FLUSH"]), Reply::Simple("OK".into()));
    let before = calls(&server, "eval");
    forget();
    let guard = locker.try_lock("flushed").await.expect("free");
    forget();
    guard.extend().await.expect("extended");
    forget();
    let status = locker.inspect("flushed").await.expect("a status");
    assert!(status.holder().is_some(), "{status:?}");
    forget();
    guard.release().await.expect("released");
    assert!(!exists(&server, "flushed"));
    assert_eq!(calls(&server, "eval") - before, 4, "each source was sent once");
    works(&locker, &server).await;
    let known = calls(&server, "eval");
    works(&locker, &server).await;
    assert_eq!(calls(&server, "eval"), known, "what was sent once is known");
}

/// Twenty callers find out at the same time that a script is missing.
#[test]
async fn a_forgotten_script_that_many_need_at_once_keeps_none_of_them() {
    let server = RedisServer::start();
    let locker = patient().nodes([server.url()]).connect().await.expect("a locker");
    let mut guards = Vec::new();
    for index in 0..20 {
        guards.push(locker.try_lock(format!("flushed/{index}")).await.expect("free"));
    }
    server.command(&["SCRIPT", "FLUSH"]);
    let releases: Vec<_> = guards.into_iter().map(quorlock::Guard::release).collect();
    for release in releases {
        release.await.expect("released");
    }
    assert_eq!(server.kept(), 0);
}

/// The setting has two values, the second of them empty: no such command any more.
fn without_commands(one: &str, other: &str) -> RedisServer {
    let renamed = RedisServer::builder().arg("--rename-command", one);
    renamed.arg("", "--rename-command").arg(other, "").start()
}

/// Servers repeat the arguments of a command that they do not know, and the token is one of them.
#[test]
async fn a_server_without_a_command_does_not_give_the_token_away() {
    let server = without_commands("EVALSHA", "DEBUG");
    let builder = patient().fences(false).nodes([server.url()]);
    let locker = builder.connect().await.expect("a locker");
    let guard = locker.try_lock("unscripted").await.expect("SET needs no script");
    let token = text(&server, &["GET", "unscripted"]);
    let extended = guard.extend().await.expect_err("no scripts");
    let released = guard.release().await.expect_err("no scripts");
    for error in [extended, released] {
        for text in [error.to_string(), format!("{error:?}")] {
            assert!(text.contains("EVALSHA"), "{text}");
            assert!(!text.contains(&token) && !text.contains("args"), "{text}");
        }
    }
    let locker = patient().nodes([server.url()]).connect().await.expect("a locker");
    let error = locker.try_lock("fenced").await.expect_err("a fence needs a script");
    for text in [error.to_string(), format!("{error:?}")] {
        assert!(text.contains("EVALSHA"), "{text}");
        // As every token begins.
        assert!(!text.contains("ql:") && !text.contains("args"), "{text}");
    }
    assert!(token.starts_with("ql:") && !exists(&server, "fenced"));
}

/// Nothing that it granted could be given back.
#[test]
async fn a_server_without_scripts_is_refused_before_it_is_asked_for_anything() {
    let server = without_commands("EVAL", "EVALSHA");
    for fences in [true, false] {
        let refused = patient().fences(fences).nodes([server.url()]).connect().await;
        let text = refused.expect_err("no scripts").to_string();
        assert!(text.contains("EVAL") && text.contains("scripts"), "{text}");
        assert!(!text.contains("args"), "{text}");
    }
}
