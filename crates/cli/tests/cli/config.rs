//! Settings from the command line, the environment and a file, in this order.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use quorlock_testkit::{RedisServer, Reply, test};
use tempfile::TempDir;

use crate::nodes::{Record, quorlock};
use crate::process::{Outcome, Running, outcome};

/// A directory with a configuration file in it.
struct Home(TempDir);

impl Home {
    fn with(text: &str) -> Self {
        let home = Self(tempfile::tempdir().expect("as the test has it"));
        home.write("config.toml", text, 0o600);
        home
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().expect("as the test has it")).expect("as the test has it");
        fs::write(&path, text).expect("as the test has it");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("as the test has it");
        path
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("config.toml")
    }

    /// The program under test, with this file.
    fn quorlock(&self, subcommand: &str) -> Command {
        let mut command = quorlock();
        command.env("QUORLOCK_CONFIG", self.path()).arg(subcommand);
        command
    }

    /// The URL of a file that keeps locks here.
    fn node(&self, name: &str) -> String {
        format!("sqlite:{}/{name}.db", self.0.path().display())
    }
}

fn refusal(command: &mut Command) -> String {
    let run = outcome(command);
    assert_eq!((run.code, run.stdout.as_str()), (Some(78), ""), "{run:?}");
    run.stderr
}

/// The keys of a lock while it is held.
fn keys(server: &RedisServer, run: &mut Command) -> Vec<String> {
    // On a busy machine a release may come too late, and leave its key for a while.
    server.command(&["FLUSHALL"]);
    let mut run = Running::start(run.args(["x", "--", "sh", "-c", "echo in; read _"]));
    assert_eq!(run.line(), "in");
    let Reply::Array(keys) = server.command(&["KEYS", "*"]) else { panic!("no keys") };
    run.close_stdin();
    run.end();
    let text = |key| match key {
        Reply::Bulk(Some(key)) => String::from_utf8_lossy(&key).into_owned(),
        other => panic!("{other:?}"),
    };
    // The marker of the node is not of the lock.
    let of_the_node = [":quorlock:set", ":quorlock:sweep"];
    let is_own = |key: &String| of_the_node.iter().any(|own| key.ends_with(own));
    keys.into_iter().map(text).filter(|key| !is_own(key)).collect()
}

/// The nodes that `status` names.
fn nodes(command: &mut Command) -> Vec<String> {
    let status = outcome(command.arg("x"));
    assert_eq!((status.code, status.stderr.as_str()), (Some(0), ""), "{status:?}");
    let lines = status.stdout.lines().skip(1);
    lines.map(|line| line.split("  ").next().expect("as the test has it").to_owned()).collect()
}

#[test]
fn nodes_come_from_the_command_line_or_the_environment_or_the_file() {
    let home = Home::with("");
    let (a, b, c) = (home.node("a"), home.node("b"), home.node("c"));
    home.write("config.toml", &format!("nodes = [\"{a}\"]"), 0o644);
    assert_eq!(nodes(&mut home.quorlock("status")), [a.as_str()]);
    assert_eq!(nodes(home.quorlock("status").env("QUORLOCK_NODES", &b)), [b.as_str()]);
    let both = &mut home.quorlock("status");
    assert_eq!(nodes(both.env("QUORLOCK_NODES", &b).args(["--node", &c])), [c]);

    let tables =
        format!("[[nodes]]\nurl = \"{a}\"\n[[nodes]]\nurl = \"{b}\"\n[[nodes]]\nurl = '{a}3'");
    home.write("config.toml", &tables, 0o644);
    assert_eq!(nodes(&mut home.quorlock("status")), [a.clone(), b, format!("{a}3")]);
}

#[test]
fn a_variable_that_is_misspelt_is_refused_and_locks_nothing() {
    let home = Home::with("");
    let misspelt = |name: &str, args: &[&str]| {
        let mut command = home.quorlock(args[0]);
        command.env("XDG_STATE_HOME", home.0.path()).env(name, "redis://a");
        refusal(command.args(&args[1..]))
    };
    for args in [
        &["run", "x", "--", "true"][..],
        &["acquire", "x"],
        &["status", "x"],
        &["list"],
        &["doctor"],
        &["init"],
    ] {
        let said = misspelt("QUORLOCK_NODE", args);
        assert!(
            said.contains("there is no variable QUORLOCK_NODE; write QUORLOCK_NODES"),
            "{said}"
        );
    }
    let said = misspelt("QUORLOCK_SERVERS", &["list"]);
    assert!(said.contains("QUORLOCK_SERVERS; unset it") && said.contains("NODES, "), "{said}");
    assert!(!home.0.path().join("quorlock").exists(), "a lock was taken after all");
    // What a run leaves to its command, and what Kubernetes tells of a Service, are no mistakes.
    let mut inside = home.quorlock("run");
    inside.env("XDG_STATE_HOME", home.0.path()).env("QUORLOCK_PORT_6379_TCP_ADDR", "10.0.0.1");
    let script = "$QUORLOCK run inner -- echo in";
    let run = outcome(inside.args(["outer", "--", "sh", "-c", script]));
    assert_eq!((run.code, run.stdout.as_str()), (Some(0), "in\n"), "{run:?}");
}

#[test]
fn a_level_that_is_none_is_refused() {
    let home = Home::with("");
    let said = refusal(home.quorlock("list").env("QUORLOCK_LOG", "inof"));
    assert!(said.contains("\"inof\" is no level, as perhaps info is"), "{said}");
}

#[test]
fn the_doctor_says_where_each_setting_comes_from() {
    let home = Home::with("");
    let text =
        format!("nodes = ['{}']\nconnect_limit = '2s'\nclock_ahead = '200ms'", home.node("a"));
    let file = home.write("config.toml", &text, 0o644);
    let doctor = || {
        let mut doctor = home.quorlock("doctor");
        doctor.env("QUORLOCK_TTL", "9s").env("QUORLOCK_PASSWORD", "hunter2");
        doctor.args(["--node-limit", "300ms"]);
        doctor
    };
    let people = outcome(&mut doctor());
    assert_eq!(people.code, Some(0), "{people:?}");
    let lines: Vec<_> = people.stdout.lines().collect();
    let file = file.display().to_string();
    assert!(
        lines.contains(&&*format!("  from {file}: nodes, clock_ahead, connect_limit")),
        "{people:?}"
    );
    for line in ["  from QUORLOCK_TTL: ttl", "  from --node-limit: node_limit"] {
        assert!(lines.contains(&line), "{people:?}");
    }
    assert!(lines.iter().any(|line| line.starts_with("  by default: prefix, ")), "{people:?}");
    let programs = outcome(doctor().arg("--json"));
    let found: serde_json::Value = serde_json::from_str(&programs.stdout).expect("JSON");
    let sources = &found["sources"];
    assert_eq!((&sources["nodes"], &sources["ttl"]), (&file.into(), &"QUORLOCK_TTL".into()));
    assert_eq!(sources["node_limit"], "--node-limit");
    assert_eq!((&sources["prefix"], &sources["username"]), (&"default".into(), &"default".into()));
    assert_eq!(sources["password"], "QUORLOCK_PASSWORD");
    assert!(!programs.stdout.contains("hunter2") && !people.stdout.contains("hunter2"));
}

#[test]
fn the_file_is_named_or_found() {
    let home = Home::with("");
    let urls = ["a", "b", "c", "d"].map(|name| home.node(name));
    let files =
        ["named.toml", "variable.toml", "c/quorlock/config.toml", "h/.config/quorlock/config.toml"];
    let files: Vec<_> = files
        .iter()
        .zip(&urls)
        .map(|(file, url)| home.write(file, &format!("nodes = ['{url}']"), 0o644))
        .collect();
    let found = |config_home: &str, changed: &dyn Fn(&mut Command)| {
        let mut command = home.quorlock("status");
        command.env("QUORLOCK_CONFIG", &files[1]);
        command.env("XDG_CONFIG_HOME", config_home).env("HOME", home.0.path().join("h"));
        changed(&mut command);
        nodes(&mut command)
    };
    let config_home = home.0.path().join("c");
    let config_home = config_home.to_str().unwrap();
    let by_itself = |command: &mut Command| {
        command.env_remove("QUORLOCK_CONFIG");
    };
    let named = |command: &mut Command| {
        command.arg("--config").arg(&files[0]);
    };
    assert_eq!(found(config_home, &named), urls[..1]);
    assert_eq!(found(config_home, &|_| ()), urls[1..2]);
    assert_eq!(found(config_home, &by_itself), urls[2..3]);
    assert_eq!(found("", &by_itself), urls[3..]);
    assert_eq!(found("c", &by_itself), urls[3..]);
}

#[test]
fn a_file_that_was_named_has_to_be_there_and_another_need_not() {
    let home = Home::with("");
    fs::remove_file(home.path()).unwrap();
    let error = refusal(home.quorlock("status").arg("x"));
    assert!(error.contains("config.toml cannot be read: No such file"), "{error}");
    assert!(error.contains("--config"), "{error}");
    let error = refusal(quorlock().env("QUORLOCK_CONFIG", "").args(["status", "x"]));
    assert!(error.contains("QUORLOCK_CONFIG is empty"), "{error}");

    let mut without = quorlock();
    without.env_remove("QUORLOCK_CONFIG").env("XDG_CONFIG_HOME", home.0.path().join("none"));
    let run = outcome(without.args(["status", "--node", &home.node("a"), "x"]));
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
}

#[test]
fn every_duration_comes_from_the_command_line_or_the_environment_or_the_file() {
    let home = Home::with("");
    let node = home.node("a");
    // Values that cannot work are named by the error, so that it tells which one counted.
    for (key, variable, option, [file, environment, argument], expected) in [
        ("ttl", "QUORLOCK_TTL", "--ttl", ["31s", "32s", "33s"], "a TTL of {}"),
        ("node_limit", "QUORLOCK_NODE_LIMIT", "--node-limit", ["3s", "4s", "5s"], "limit of {}"),
        ("max_ttl", "QUORLOCK_MAX_TTL", "--max-ttl", ["7s", "8s", "9s"], "the maximum of {}"),
    ] {
        let ttl = if key == "max_ttl" { "ttl = '9.5s'" } else { "" };
        home.write("config.toml", &format!("{key} = '{file}'\n{ttl}"), 0o644);
        let run = |environment: Option<&str>, argument: Option<&str>| {
            let mut command = home.quorlock("run");
            command.args(["--node", &node]);
            environment.map(|value| command.env(variable, value));
            argument.map(|value| command.args([option, value]));
            refusal(command.args(["x", "--", "true"]))
        };
        let says = |error: String, value: &str| {
            let expected = expected.replace("{}", value.trim_end_matches('s'));
            assert!(error.contains(&expected), "{key}, {value}: {error}");
        };
        says(run(None, None), file);
        says(run(Some(environment), None), environment);
        says(run(Some(environment), Some(argument)), argument);
        // What does not count is not looked at.
        says(run(Some("never"), Some(argument)), argument);
        let error = run(Some("never"), None);
        assert!(error.contains(&format!("{variable}: \"never\" is no duration")), "{error}");
    }
    let zero = refusal(quorlock().env("QUORLOCK_CONNECT_LIMIT", "0").args(["status", "x"]));
    assert!(zero.contains("the connect time limit is zero"), "{zero}");
}

#[test]
fn the_dialect_comes_from_the_command_line_or_the_environment_or_the_file() {
    let server = RedisServer::start();
    let home = Home::with("");
    let dialect = |file: &str, environment: Option<&str>, args: &[&str]| {
        server.command(&["FLUSHALL"]);
        home.write("config.toml", &format!("nodes = ['{}']\n{file}", server.url()), 0o600);
        let mut command = home.quorlock("acquire");
        environment.map(|dialect| command.env("QUORLOCK_DIALECT", dialect));
        let acquired = outcome(command.args(args).arg("x"));
        assert_eq!((acquired.code, acquired.stderr.as_str()), (Some(0), ""), "{acquired:?}");
        let Reply::Bulk(Some(record)) = server.command(&["GET", "x"]) else { panic!("no lock") };
        if record.starts_with(b"quorlock ") { "strict" } else { "redlock" }
    };
    assert_eq!(dialect("", None, &[]), "strict");
    assert_eq!(dialect("dialect = 'redlock'", None, &[]), "redlock");
    assert_eq!(dialect("dialect = 'redlock'", Some("strict"), &[]), "strict");
    assert_eq!(dialect("", Some("redlock"), &[]), "redlock");
    assert_eq!(dialect("", Some("redlock"), &["--dialect", "strict"]), "strict");
    // What does not count is not looked at.
    assert_eq!(dialect("", Some("none"), &["--dialect", "strict"]), "strict");

    let says = |command: &mut Command, says: &str| {
        let error = refusal(command.arg("x"));
        assert!(error.contains(says) && error.contains("write strict or redlock"), "{error}");
    };
    says(home.quorlock("status").env("QUORLOCK_DIALECT", "none"), "QUORLOCK_DIALECT: \"none\"");
    says(home.quorlock("status").args(["--dialect", "none"]), "--dialect <DIALECT>");
    home.write("config.toml", "\ndialect = 'none'", 0o644);
    says(&mut home.quorlock("status"), "config.toml:2: dialect: \"none\" is no dialect");
}

#[test]
fn a_ttl_that_nobody_named_is_no_longer_than_the_longest() {
    let server = RedisServer::start();
    let home = Home::with(&format!("nodes = ['{}']\nmax_ttl = '2s'", server.url()));
    for verb in ["acquire", "run"] {
        let args: &[&str] = if verb == "run" { &["y", "--", "true"] } else { &["x"] };
        let run = outcome(home.quorlock(verb).args(args));
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    }
    let left = Record::on(&server, "x").expect("it is held").left_ms(&server);
    assert!(left <= 2_000, "{left}");
    // The node serves clients with this one, and no others.
    let other = outcome(home.quorlock("acquire").args(["-n", "--max-ttl", "3s", "z"]));
    assert_eq!(other.code, Some(78), "{other:?}");
    assert!(other.stderr.contains("max_ttl of 2s"), "{other:?}");
}

#[test]
fn clocks_are_compared_by_what_the_file_allows() {
    let server = RedisServer::builder().own_clock().start();
    server.clock().jump_ms(1_000);
    let home = Home::with(&format!("nodes = ['{}']", server.url()));
    let try_it = || outcome(home.quorlock("run").args(["-n", "x", "--", "true"]));
    let apart = try_it();
    assert_eq!(apart.code, Some(69), "{apart:?}");
    assert!(apart.stderr.contains("ahead of this machine's"), "{apart:?}");
    let wide = "clock_ahead = '1.5s'\nclock_behind = '1ms'\nclients_apart = '1ms'";
    home.write("config.toml", &format!("nodes = ['{}']\n{wide}", server.url()), 0o600);
    let allowed = try_it();
    assert_eq!(allowed.code, Some(0), "{allowed:?}");
}

#[test]
fn the_wait_comes_from_the_command_line_or_the_environment_or_the_file() {
    let home = Home::with("");
    home.write("config.toml", &format!("nodes = ['{}']\nwait = '10ms'", home.node("a")), 0o644);
    let mut holder =
        Running::start(home.quorlock("run").args(["x", "--", "sh", "-c", "echo in; read _"]));
    assert_eq!(holder.line(), "in");
    let code = |wait: Option<&str>, args: &[&str]| {
        let mut command = home.quorlock("run");
        wait.map(|wait| command.env("QUORLOCK_WAIT", wait));
        outcome(command.args(args).args(["x", "--", "true"])).code
    };
    assert_eq!(code(None, &[]), Some(124));
    // Not to wait at all gives another code than to wait in vain.
    assert_eq!(code(Some("0"), &[]), Some(75));
    assert_eq!(code(Some("0"), &["-w", "10ms"]), Some(124));
    assert_eq!(code(Some("1h"), &["-n"]), Some(75));
    holder.close_stdin();
    holder.end();
}

#[test]
fn the_prefix_comes_from_the_command_line_or_the_environment_or_the_file() {
    let server = RedisServer::start();
    let text = format!("nodes = ['{}']\nprefix = 'file:'\nnote = false", server.url());
    let home = Home::with(&text);
    let key = |environment: Option<&str>, args: &[&str]| {
        let mut command = home.quorlock("run");
        environment.map(|prefix| command.env("QUORLOCK_PREFIX", prefix));
        keys(&server, command.args(args)).join(" ")
    };
    assert_eq!(key(None, &[]), "file:x");
    assert_eq!(key(Some("environment:"), &[]), "environment:x");
    assert_eq!(key(Some("environment:"), &["--prefix", "argument:"]), "argument:x");
    assert_eq!(key(Some(""), &[]), "x");
}

#[test]
fn notes_are_turned_off_by_the_command_line_or_the_environment_or_the_file() {
    let server = RedisServer::start();
    let home = Home::with("");
    let noted = |note: &str, environment: Option<&str>, args: &[&str]| {
        home.write("config.toml", &format!("nodes = ['{}']\n{note}", server.url()), 0o600);
        let mut command = home.quorlock("run");
        environment.map(|note| command.env("QUORLOCK_NOTE", note));
        // The note arrives after the command was started: it is there, or it never will be.
        let keys = keys(&server, command.args(args));
        assert!(keys.contains(&"x".to_owned()), "{keys:?}");
        keys.len() > 1
    };
    assert!(!noted("note = false", None, &[]));
    assert!(!noted("note = true", Some("off"), &[]));
    assert!(!noted("note = true", Some("on"), &["--no-note"]));
}

#[test]
fn an_error_names_the_file_the_line_the_key_and_the_remedy() {
    let home = Home::with("# locks\n\nttl = '10 s'\n");
    let file = home.path().display().to_string();
    let error = refusal(home.quorlock("status").arg("x"));
    assert_eq!(
        error,
        format!(
            "quorlock: {file}:3: ttl: \"10 s\" is no duration; write 10s, 1m30s, 500ms or 2h, or a \
             plain number of seconds such as 0.5\n"
        )
    );
    home.write("config.toml", "nodes = ['redis://:hunter2@a']\n[node]\n", 0o600);
    let error = refusal(home.quorlock("status").arg("x"));
    assert!(error.contains(&format!("{file}:2: node: there is no such key; use one of nodes, ")));
    assert!(!error.contains("hunter2"), "{error}");
}

const PASSWORD: &str = "p%41 /:@,ß\"x";

fn assert_logs_in(command: &mut Command) -> Outcome {
    let run = outcome(command.args(["x", "--", "true"]).env("QUORLOCK_LOG", "trace"));
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(!run.stderr.contains(PASSWORD), "{run:?}");
    run
}

/// The URL of a server without its password.
fn bare_url(server: &RedisServer) -> String {
    format!("redis://{}", server.addr())
}

#[test]
fn a_password_comes_from_a_file_or_the_environment() {
    let server = RedisServer::builder().requirepass(PASSWORD).start();
    let url = bare_url(&server);
    let home = Home::with(&format!("nodes = ['{url}']\n"));
    let secret = home.write("secret", &format!("{PASSWORD}\n"), 0o600);
    let wrong = home.write("wrong", "wrong", 0o600);

    let none = outcome(home.quorlock("run").args(["x", "--", "true"]));
    assert_eq!(none.code, Some(69), "{none:?}");
    assert_logs_in(home.quorlock("run").env("QUORLOCK_PASSWORD", PASSWORD));
    assert_logs_in(home.quorlock("run").env("QUORLOCK_PASSWORD_FILE", &secret));
    let both = &mut home.quorlock("run");
    both.env("QUORLOCK_PASSWORD_FILE", &secret).env("QUORLOCK_PASSWORD", PASSWORD);
    let error = refusal(both.args(["x", "--", "true"]));
    assert!(error.contains("both QUORLOCK_PASSWORD and QUORLOCK_PASSWORD_FILE"), "{error}");

    // A relative path counts from the file that it stands in; the environment wins over it.
    home.write("config.toml", &format!("nodes = ['{url}']\npassword_file = 'secret'"), 0o644);
    assert_logs_in(home.quorlock("run").current_dir("/"));
    home.write("config.toml", &format!("nodes = ['{url}']\npassword_file = 'wrong'"), 0o644);
    assert_logs_in(home.quorlock("run").env("QUORLOCK_PASSWORD", PASSWORD));
    // What stands nearest to a node wins.
    let table =
        format!("password_file = 'wrong'\n[[nodes]]\nurl = '{url}'\npassword_file = 'secret'");
    home.write("config.toml", &table, 0o644);
    assert_logs_in(home.quorlock("run").env("QUORLOCK_PASSWORD_FILE", &wrong));
    assert_logs_in(
        quorlock().args(["run", "--node", &server.url()]).env("QUORLOCK_PASSWORD", "wrong"),
    );
}

#[test]
fn a_user_has_a_name_as_well() {
    let server = RedisServer::start();
    let user = ["ACL", "SETUSER", "al@ice", "on", &format!(">{PASSWORD}"), "~*", "&*", "+@all"];
    assert_eq!(server.command(&user), Reply::Simple("OK".into()));
    server.command(&["ACL", "SETUSER", "default", "off"]);
    let url = bare_url(&server);
    let home = Home::with(&format!("nodes = ['{url}']\nusername = 'al@ice'\npassword_file = 's'"));
    home.write("s", PASSWORD, 0o600);
    assert_logs_in(&mut home.quorlock("run"));
    let environment = &mut quorlock();
    environment.args(["run", "--node", &url]).env("QUORLOCK_USERNAME", "al@ice");
    assert_logs_in(environment.env("QUORLOCK_PASSWORD", PASSWORD));
}

#[test]
fn a_password_file_that_cannot_be_used_is_named_with_what_named_it() {
    let home = Home::with("password_file = 'secret'");
    let secret = home.0.path().join("secret").display().to_string();
    for (text, says) in [
        (None, "(password_file) cannot be read: No such file"),
        (Some("\n"), "(password_file) is empty"),
        (Some("hunter2\nhunter2\n"), "(password_file) has several lines"),
    ] {
        text.map(|text| home.write("secret", text, 0o600));
        let error = refusal(home.quorlock("status").arg("x"));
        assert!(error.contains(&format!("{secret} {says}")), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
    let error = refusal(quorlock().env("QUORLOCK_PASSWORD_FILE", &secret).args(["status", "x"]));
    assert!(error.contains("(QUORLOCK_PASSWORD_FILE)"), "{error}");
    let error = refusal(quorlock().env("QUORLOCK_PASSWORD", "").args(["status", "x"]));
    assert!(error.contains("QUORLOCK_PASSWORD is empty"), "{error}");
}

#[test]
fn a_password_that_every_user_can_read_is_warned_about() {
    let server = RedisServer::builder().requirepass(PASSWORD).start();
    let warning = |path: &Path| {
        let path = path.display();
        format!(
            "quorlock: warning: {path} holds a password and is open to every user of this machine; \
             chmod o= {path}\n"
        )
    };
    let home = Home::with(&format!("nodes = ['{}']\npassword_file = 'secret'", bare_url(&server)));
    let says = |command: &mut Command| outcome(command.arg("x")).stderr;
    for (mode, open) in [(0o600, false), (0o640, false), (0o604, true), (0o602, true)] {
        let secret = home.write("secret", PASSWORD, mode);
        let expected = if open { warning(&secret) } else { String::new() };
        assert_eq!(says(&mut home.quorlock("status")), expected, "{mode:o}");
    }
    home.write("secret", PASSWORD, 0o600);
    home.write("config.toml", &format!("nodes = ['{}']", server.url()), 0o644);
    assert_eq!(says(&mut home.quorlock("status")), warning(&home.path()));
    home.write("config.toml", &format!("nodes = ['{}']", server.url()), 0o640);
    assert_eq!(says(&mut home.quorlock("status")), "");
}
