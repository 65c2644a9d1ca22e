//! Locks in a PostgreSQL database, from setting it up to looking it over.

use quorlock_testkit::{PostgresServer, test};
use serde_json::Value;

use crate::nodes::quorlock;
use crate::process::outcome;

#[test]
fn a_database_is_set_up_used_and_looked_over() {
    let server = PostgresServer::start();
    let url = server.url();
    let on = |args: &[&str]| {
        let mut command = quorlock();
        // However slow the machine is.
        command.env("QUORLOCK_NODES", &url).env("QUORLOCK_NODE_LIMIT", "2s");
        outcome(command.args(args))
    };
    let refused = on(&["run", "-n", "job", "--", "true"]);
    assert_eq!(refused.code, Some(69), "{refused:?}");
    assert!(refused.stderr.contains("run quorlock init"), "{refused:?}");

    let printed = on(&["init", "--print-sql"]);
    assert_eq!(printed.code, Some(0), "{printed:?}");
    assert!(printed.stdout.contains("SELECT quorlock.let_lock('ROLE')"), "{printed:?}");
    server.sql(&printed.stdout, &[]);
    let init = on(&["init", "--yes"]);
    assert_eq!(init.code, Some(0), "{init:?}");

    let run = on(&["run", "job", "--", "echo", "in it"]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "in it\n"), "{run:?}");
    let doctor = on(&["doctor", "--json"]);
    let found: Value = serde_json::from_str(&doctor.stdout).expect("JSON");
    assert_eq!(doctor.code, Some(0), "{found:#}");
    let facts = &found["nodes"][0]["facts"];
    assert_eq!(
        (&facts["kind"], &facts["durable"]),
        (&"postgres".into(), &false.into()),
        "{facts:#}"
    );
}

#[test]
fn sql_is_printed_for_databases_alone() {
    let mut command = quorlock();
    let refused = outcome(command.args(["init", "--print-sql", "--node", "redis://127.0.0.1:1"]));
    assert_eq!(refused.code, Some(78), "{refused:?}");
    assert!(
        refused.stderr.contains("no node is a PostgreSQL, MySQL or MariaDB database"),
        "{refused:?}"
    );
}
