//! Arguments that cannot work, and the help against them.

use crate::nodes::quorlock;
use crate::process::outcome;

#[test]
fn bad_arguments_give_78_and_name_the_fault() {
    let long = "n".repeat(513);
    let node = "--node=redis://127.0.0.1:1";
    for (args, says) in [
        (&[][..], "requires a subcommand"),
        (&["walk"], "unrecognized subcommand 'walk'"),
        (&["run"], "<NAME>"),
        (&["run", node, "x"], "<CMD>"),
        (&["run", node, "x", "true"], "unexpected argument 'true'"),
        (&["run", node, "--frob", "x", "--", "true"], "unexpected argument '--frob'"),
        (&["run", node, "-n", "-w", "1", "x", "--", "true"], "cannot be used with"),
        (&["run", node, "x", "-c", "true", "--", "true"], "cannot be used with"),
        (&["run", node, "-s", "STOP", "x", "--", "true"], "\"STOP\" is no signal"),
        (
            &["run", node, "--max-hold", "5s", "--hold-at-least", "6s", "x", "--", "true"],
            "--hold-at-least 6.0s does not fit into --max-hold 5.0s",
        ),
        (&["run", node, "-n", "-E", "256", "x", "--", "true"], "256 is not in 0..=255"),
        (&["run", node, "-w", "1d", "x", "--", "true"], "\"1d\" is no duration"),
        (&["run", node, "-w=-1", "x", "--", "true"], "\"-1\" is no duration"),
        (&["run", node, "--ttl", "1ms", "x", "--", "true"], "a TTL of 1ms is too short"),
        (&["run", node, "--ttl", "1h", "x", "--", "true"], "above the maximum of 30.0s"),
        (&["run", "--node", "", "x", "--", "true"], "--node redis://HOST"),
        (&["run", "--node", "http://a", "x", "--", "true"], "URL scheme \"http\""),
        (&["status", node], "<NAME>"),
        (&["status", node, "x", "y"], "unexpected argument 'y'"),
    ] {
        let run = outcome(quorlock().args(args));
        assert_eq!(run.code, Some(78), "{args:?}: {run:?}");
        assert!(run.stderr.starts_with("quorlock: "), "{args:?}: {run:?}");
        assert!(run.stderr.contains(says), "{args:?}: {run:?}");
        assert_eq!(run.stdout, "", "{args:?}");
    }
    let server = quorlock_testkit::RedisServer::start();
    for name in ["", &long] {
        let run = outcome(quorlock().args(["run", "--node", &server.url(), name, "--", "true"]));
        assert_eq!(run.code, Some(78), "{name:?}: {run:?}");
        let run = outcome(quorlock().args(["status", "--node", &server.url(), name]));
        assert_eq!(run.code, Some(78), "{name:?}: {run:?}");
    }
}

#[test]
fn an_empty_variable_names_no_node() {
    let run = outcome(quorlock().env("QUORLOCK_NODES", "").args(["status", "x"]));
    assert_eq!(run.code, Some(78), "{run:?}");
    assert!(run.stderr.contains("--node redis://HOST"), "{run:?}");
}

#[test]
fn one_server_under_two_urls_gives_78() {
    let server = quorlock_testkit::RedisServer::start();
    let other = server.url().replace("127.0.0.1", "localhost");
    let nodes = format!("{},{other}", server.url());
    let run = outcome(quorlock().args(["run", "--node", &nodes, "x", "--", "echo", "out"]));
    assert_eq!((run.code, run.stdout.as_str()), (Some(78), ""), "{run:?}");
    assert!(run.stderr.contains("the same server"), "{run:?}");
}

#[test]
fn help_and_version_are_on_stdout_and_give_0() {
    let says = |args: &[&str]| {
        let run = outcome(quorlock().args(args));
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{args:?}");
        run.stdout
    };
    assert!(says(&["--version"]).starts_with("quorlock "));
    for help in ["-h", "--help"] {
        assert!(says(&[help]).contains("Examples:"));
        let run = says(&["run", help]);
        for part in [
            "[default: 10s]",
            "[default: without",
            "[default: 75",
            "[default: TERM]",
            "[default: nothing]",
            "Examples:",
            "Passwords belong into QUORLOCK_NODES or a file",
            "124  ",
        ] {
            assert!(run.contains(part), "{help} has no {part:?}:\n{run}");
        }
        let status = says(&["status", help]);
        assert!(status.contains("Passwords belong into QUORLOCK_NODES or a file"), "{status}");
    }
}
