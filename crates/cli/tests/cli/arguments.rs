//! Arguments that cannot work, and the help against them.

use quorlock_testkit::test;

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
        (
            &["run", "demo", "echo", "hello"],
            "tip: the command stands behind --: quorlock run … -- echo …",
        ),
        (&["rnu", "demo", "--", "true"], "tip: a similar subcommand exists: 'run'"),
        (&["run", node, "--timeout", "3", "x", "--", "true"], "tip: write --wait 3"),
        (&["run", node, "--ttl", "0", "x", "--", "true"], "a TTL of zero (--ttl, ttl) is no lock"),
        (&["acquire", node, "--ttl", "0s", "x"], "a TTL of zero (--ttl, ttl) is no lock"),
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
    for name in ["", &long, ":quorlock:node", "a:quorlock:queue"] {
        let run = outcome(quorlock().args(["run", "--node", &server.url(), name, "--", "true"]));
        assert_eq!(run.code, Some(78), "{name:?}: {run:?}");
        let run = outcome(quorlock().args(["status", "--node", &server.url(), name]));
        assert_eq!(run.code, Some(78), "{name:?}: {run:?}");
    }
}

#[test]
fn no_term_of_the_library_reaches_the_caller_of_the_command() {
    let server = quorlock_testkit::RedisServer::start();
    let node = format!("--node={}", server.url());
    for args in [
        &["extend", &node, "--token", "bogus", "x"][..],
        &["release", &node, "--token", "bogus", "x"],
        &["run", &node, "--owner", "bogus", "x", "--", "true"],
        &["run", &node, "--ttl", "550ms", "x", "--", "true"],
        &["run", &node, "--ttl", "5ms", "x", "--", "true"],
        &["run", &node, "--node-limit", "9s", "x", "--", "true"],
        &["run", &node, "--max-hold", "10ms", "x", "--", "true"],
        &["run", "--node", "http://a", "x", "--", "true"],
        &["status", &node, ""],
    ] {
        let run = outcome(quorlock().args(args));
        assert_eq!(run.code, Some(78), "{args:?}: {run:?}");
        for word in ["Guard", "Locker", "Owner::", "Builder", "builder", "feature", "loss lead"] {
            assert!(!run.stderr.contains(word), "{args:?}: {run:?}");
        }
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

#[test]
fn every_help_names_the_exit_codes_and_ends_with_examples() {
    const ALWAYS: [&str; 2] = ["78", "125"];
    let commands: [(&str, &[&str]); 13] = [
        ("run", &["*", "69", "75", "76", "124", "126", "127", "128+N"]),
        ("acquire", &["0", "69", "75", "76", "124", "128+N"]),
        ("extend", &["0", "69", "76"]),
        ("release", &["0", "69", "76"]),
        ("status", &["0", "69"]),
        ("list", &["0", "69"]),
        ("init", &["0", "1", "69"]),
        ("nodes", &["0", "69"]),
        ("doctor", &["0", "1", "69"]),
        ("bench", &["0", "69", "130"]),
        ("simulate", &["0", "1"]),
        ("man", &["0"]),
        ("completions", &["0"]),
    ];
    let known = outcome(quorlock().arg("--help")).stdout;
    let known = known.split("Commands:\n").nth(1).expect("a list of commands");
    assert_eq!(known.lines().take_while(|line| line.starts_with("  ")).count(), commands.len());
    for (command, codes) in commands {
        for help in ["-h", "--help"] {
            let text = outcome(quorlock().args([command, help])).stdout;
            let (_, list) = text.split_once("\nExit codes:\n").expect("a list of codes");
            let (list, examples) = list.split_once("\n\nExamples:\n").expect("examples at the end");
            // What goes on from the line before is further to the right.
            let lines = list.lines().filter(|line| !line.starts_with("      "));
            let named: Vec<_> =
                lines.map(|line| line.split_whitespace().next().expect("a code")).collect();
            let mut expected: Vec<_> = codes.iter().copied().chain(ALWAYS).collect();
            expected.sort_unstable();
            let mut sorted = named.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, expected, "{command} {help}");
            let mut lines = examples.trim_end().lines().filter(|line| !line.is_empty());
            assert!(lines.clone().any(|line| line.contains(&format!("quorlock {command}"))));
            assert!(lines.all(|line| line.starts_with("  ")), "{command} {help}: {examples}");
        }
    }
}
