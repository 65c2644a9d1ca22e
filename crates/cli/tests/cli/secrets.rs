//! Passwords and tokens are never shown.

use std::fs;
use std::process::Command;

use quorlock_testkit::{RedisServer, test};

use crate::nodes::{Record, quorlock};
use crate::process::{Running, outcome};

const PASSWORD: &str = "hunter2hunter2";

fn assert_silent(command: &mut Command, code: i32) {
    let run = outcome(command.env("QUORLOCK_LOG", "trace"));
    assert_eq!(run.code, Some(code), "{command:?}: {run:?}");
    assert!(!run.stdout.contains(PASSWORD) && !run.stderr.contains(PASSWORD), "{run:?}");
}

#[test]
fn a_password_is_used_but_never_shown() {
    let server = RedisServer::builder().requirepass(PASSWORD).start();
    let with_nodes = |url: &str| {
        let mut command = quorlock();
        command.env("QUORLOCK_NODES", url);
        command
    };
    let url = server.url();
    assert!(url.contains(PASSWORD));
    assert_silent(with_nodes(&url).args(["run", "x", "--", "true"]), 0);
    assert_silent(with_nodes(&url).args(["status", "x"]), 0);
    assert_silent(with_nodes(&url).args(["status", "--json", "x"]), 0);
    assert_silent(with_nodes(&url).args(["acquire", "y"]), 0);
    assert_silent(with_nodes(&url).args(["list"]), 0);
    assert_silent(with_nodes(&url).args(["release", "--force", "y"]), 78);
    assert_silent(with_nodes(&url).args(["release", "--force", "--yes", "y"]), 0);
    assert_silent(quorlock().args(["status", "--node", &url, "x"]), 0);
    assert_silent(with_nodes(&format!("{url},{url}")).args(["status", "x"]), 78);
    assert_silent(with_nodes(&url).args(["run", "--help"]), 0);
    assert_silent(with_nodes(&url).args(["status", "-h"]), 0);

    let wrong = url.replace("127.0.0.1", "127.0.0.2");
    assert_silent(with_nodes(&wrong).args(["status", "x"]), 69);
    let wrong = url.replace(PASSWORD, &format!("{PASSWORD}x"));
    assert_silent(with_nodes(&wrong).args(["run", "x", "--", "true"]), 69);
    let wrong = url.replace("redis:", "rodis:");
    assert_silent(with_nodes(&wrong).args(["run", "x", "--", "true"]), 78);
}

#[test]
fn a_password_in_the_wrong_place_is_not_shown_either() {
    let url = format!("redis://:{PASSWORD}@127.0.0.1:1");
    assert_silent(quorlock().args(["status", "x", &url]), 78);
    assert_silent(quorlock().args(["run", "--nodes", &url, "x", "--", "true"]), 78);
    assert_silent(quorlock().args(["run", &format!("--nodes={url}"), "x", "--", "true"]), 78);
    assert_silent(quorlock().args(["run", "--ttl", &url, "x", "--", "true"]), 78);
    assert_silent(quorlock().args([&url]), 78);
}

#[test]
fn a_token_is_not_shown() {
    let server = RedisServer::start();
    let nodes = ["--node", &server.url(), "x"];
    let run = ["--", "sh", "-c", "echo in; read _; exit 0"];
    let mut run =
        Running::start(quorlock().env("QUORLOCK_LOG", "trace").arg("run").args(nodes).args(run));
    assert_eq!(run.line(), "in");
    let token = Record::on(&server, "x").expect("it is held").token;
    let status = outcome(quorlock().env("QUORLOCK_LOG", "trace").arg("status").args(nodes));
    // The command has it, but not on its command line, which every user can see.
    let processes = fs::read_dir("/proc").unwrap();
    let lines = processes.filter_map(|entry| fs::read(entry.unwrap().path().join("cmdline")).ok());
    assert!(lines.into_iter().all(|line| !String::from_utf8_lossy(&line).contains(&token)));
    run.close_stdin();
    for outcome in [run.end(), status] {
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert!(!outcome.stdout.contains(&token) && !outcome.stderr.contains(&token));
    }
}
