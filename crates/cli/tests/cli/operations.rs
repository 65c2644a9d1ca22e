//! The commands in `docs/operations`, run as they are written there.
//!
//! A server of the test's own stands for each one that is named, and a script that writes down its
//! call for each job.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use quorlock_testkit::{RedisServer, Reply, servers, test};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::nodes::{Record, quorlock};
use crate::process::{Outcome, Running, outcome};

const JOBS: [&str; 5] = ["report", "sync", "publish", "scheduler", "deploy.sh"];

/// The blocks of code of one kind in a page, such as `sh`.
pub(crate) fn blocks(page: &str, kind: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations").join(page);
    let text = fs::read_to_string(path).expect("the page");
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(found) = line.strip_prefix("```") {
            let block: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            if found == kind {
                blocks.push(block.join("\n") + "\n");
            }
        }
    }
    assert!(!blocks.is_empty(), "{page} has no block of {kind}");
    blocks
}

/// A machine as the pages assume it.
struct Site {
    dir: TempDir,
    servers: Vec<RedisServer>,
}

impl Site {
    fn new() -> Self {
        let site =
            Self { dir: tempfile::tempdir().expect("as the test has it"), servers: servers(3) };
        for user in ["locks", "other"] {
            for server in &site.servers {
                server.command(&["ACL", "SETUSER", user, "on", "nopass", "~*", "&*", "+@all"]);
            }
        }
        for job in JOBS {
            let script =
                format!("#!/bin/sh\necho \"{job} $*\" >> '{}'\n", site.path("calls").display());
            site.write(job, &script, 0o755);
        }
        for file in ["password", "redis-password", "lock-a.password", "lock-b.password"] {
            site.write(file, "secret\n", 0o600);
        }
        symlink(env!("CARGO_BIN_EXE_quorlock"), site.path("quorlock")).expect("as the test has it");
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("as the test has it");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("as the test has it");
        path
    }

    /// A text of a page, with what is here in the place of what it names.
    fn here(&self, text: &str) -> String {
        let dir = self.dir.path().display().to_string();
        let mut text = text.to_owned();
        for (name, server) in
            ["redis://lock-a", "redis://lock-b", "redis://lock-c"].iter().zip(&self.servers)
        {
            assert!(!text.contains(&format!("{name}:")), "a port that is not that of the test");
            text = text.replace(name, &server.url());
        }
        for place in ["/usr/local/bin", "/usr/bin/", "/etc/quorlock", "/run/secrets/redis", "%d"] {
            let with = if place.ends_with('/') { format!("{dir}/") } else { dir.clone() };
            text = text.replace(place, &with);
        }
        text
    }

    /// Runs a line in a shell with nothing in its environment but this, as cron does.
    fn run(&self, line: &str, variables: &[(String, String)]) -> Outcome {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(self.dir.path()).env_clear();
        command.env("HOME", self.dir.path()).env("LOGNAME", "root").env("SHELL", "/bin/sh");
        command.env("PATH", format!("{}:/usr/bin:/bin", self.dir.path().display()));
        // A busy machine keeps this limit too.
        command.env("QUORLOCK_NODE_LIMIT", "2s");
        // The servers are new, and have nothing to forget.
        command.env("QUORLOCK_TRUST_NEW_NODES", "1");
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        outcome(&mut command)
    }

    /// What the jobs have written down since the last time.
    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.path("calls")).unwrap_or_default();
        let _ = fs::remove_file(self.path("calls"));
        text.lines().map(|line| line.trim().to_owned()).collect()
    }

    /// Runs a line that starts one job, and sees that it did so silently, under a lock on a server.
    fn run_job(&self, line: &str, variables: &[(String, String)], call: &str) {
        let commands = |server: &RedisServer| {
            let Reply::Bulk(Some(stats)) = server.command(&["INFO", "commandstats"]) else {
                panic!("no statistics");
            };
            let stats = String::from_utf8_lossy(&stats);
            let sets = stats.lines().find_map(|line| line.strip_prefix("cmdstat_set:calls="));
            sets.map_or(0, |text| {
                text.split(',')
                    .next()
                    .expect("as the test has it")
                    .parse::<u64>()
                    .expect("as the test has it")
            })
        };
        let before: u64 = self.servers.iter().map(commands).sum();
        let run = self.run(line, variables);
        assert_eq!(
            (run.code, run.stdout.as_str(), run.stderr.as_str()),
            (Some(0), "", ""),
            "{line}"
        );
        assert_eq!(self.calls(), [call], "{line}");
        let after: u64 = self.servers.iter().map(commands).sum();
        assert!(after >= before + 2, "{line}: a majority of the servers was not asked");
    }
}

fn pair(text: &str) -> (String, String) {
    let (name, value) = text.split_once('=').expect("NAME=VALUE");
    (name.to_owned(), value.to_owned())
}

#[test]
fn the_lines_of_the_crontab() {
    let site = Site::new();
    let tabs = blocks("cron.md", "crontab");
    let mut variables = Vec::new();
    let mut jobs = Vec::new();
    for line in site.here(&tabs[0]).lines() {
        let schedule = line.starts_with(|c: char| c.is_ascii_digit() || c == '*');
        if schedule {
            let command = line.splitn(6, ' ').nth(5).expect("five fields and a command").trim();
            assert!(!command.contains('%'), "cron would make a new line of it: {command}");
            jobs.push(command.to_owned());
        } else if !line.is_empty() && !line.starts_with('#') {
            variables.push(pair(line));
        }
    }
    let calls = [&["report --full"][..], &["sync"], &["report", "publish"]];
    assert_eq!(jobs.len(), calls.len());
    for (job, expected) in jobs.iter().zip(calls) {
        let run = site.run(job, &variables);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{job}: {run:?}");
        let mut calls = site.calls();
        calls.sort_unstable_by_key(|call| call != "report");
        assert_eq!(calls, expected, "{job}");
    }

    // A job that finds the lock taken has nothing to do, and ends with success.
    for server in &site.servers {
        Record::write(server, "nightly-report", "another machine");
    }
    let second = site.run(&jobs[0], &variables);
    assert_eq!((second.code, site.calls().len()), (Some(0), 0), "{second:?}");

    let alone = site.here(&tabs[1]);
    let run = site.run(alone.splitn(6, ' ').nth(5).unwrap(), &[]);
    assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
    assert_eq!(site.calls(), ["sync"]);
}

#[test]
fn the_units_of_systemd() {
    let site = Site::new();
    let units = blocks("systemd.md", "ini");
    let names = ["nightly-report.service", "nightly-report.timer", "scheduler.service"];
    assert_eq!(units.len(), names.len());
    let mut paths = Vec::new();
    for (name, unit) in names.iter().zip(&units) {
        let unit = site.here(unit);
        // The specifier that stands for the credentials is systemd's own business.
        paths.push(site.write(name, &unit, 0o644));
        let Some(start) = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")) else {
            continue;
        };
        let variables = unit.lines().filter_map(|line| line.strip_prefix("Environment=")).map(pair);
        let call = if name.starts_with("night") { "report --full" } else { "scheduler" };
        site.run_job(start, &variables.collect::<Vec<_>>(), call);
    }
    let mut verify = Command::new("systemd-analyze");
    verify.args(["--man=no", "verify"]).args(&paths);
    match verify.output() {
        Ok(said) => {
            let text = String::from_utf8_lossy(&said.stderr);
            let ours: Vec<_> =
                text.lines().filter(|line| names.iter().any(|name| line.contains(name))).collect();
            assert!(said.status.success() && ours.is_empty(), "{text}");
        }
        Err(error) => eprintln!("not verified by systemd: {error}"),
    }
}

/// Whether a parser of YAML, where there is one, takes the text.
fn assert_yaml(text: &str) {
    let has_parser = Command::new("python3").args(["-c", "import yaml"]).output();
    if !has_parser.is_ok_and(|run| run.status.success()) {
        return eprintln!("not parsed: python3 has no yaml here");
    }
    let parse = "import sys, yaml; assert yaml.safe_load(sys.argv[1])";
    let run =
        Command::new("python3").args(["-c", parse, text]).output().expect("as the test has it");
    assert!(run.status.success(), "{}\n{text}", String::from_utf8_lossy(&run.stderr));
}

#[test]
fn the_manifests_of_kubernetes() {
    let site = Site::new();
    let calls = ["report --full", "scheduler"];
    let manifests = blocks("kubernetes.md", "yaml");
    assert_eq!(manifests.len(), calls.len());
    for (manifest, call) in manifests.iter().zip(calls) {
        assert_yaml(manifest);
        let manifest = site.here(manifest);
        let mut lines = manifest.lines().map(str::trim).peekable();
        let (mut command, mut variables) = (Vec::new(), Vec::new());
        while let Some(line) = lines.next() {
            if let Some(list) = line.strip_prefix("command: ") {
                // A list in brackets and quotes is JSON as well.
                command = serde_json::from_str::<Vec<String>>(list).expect("a list");
            } else if let Some(name) = line.strip_prefix("- name: ")
                && let Some(value) = lines.peek().and_then(|line| line.strip_prefix("value: "))
            {
                variables.push((name.to_owned(), value.to_owned()));
            }
        }
        assert!(variables.iter().any(|(name, _)| name == "QUORLOCK_NODES"), "{variables:?}");
        site.run_job(&command.join(" "), &variables, call);
    }
}

#[test]
fn the_steps_of_pipelines() {
    let site = Site::new();
    let nodes: Vec<_> = site.servers.iter().map(RedisServer::url).collect();
    let nodes = [("QUORLOCK_NODES".to_owned(), nodes.join(","))];
    for line in blocks("ci.md", "sh") {
        site.run_job(&line, &nodes, "deploy.sh --production");
    }
    for server in &site.servers {
        Record::write(server, "deploy/web", "a newer one");
    }
    let pointless = site.run(&blocks("ci.md", "sh")[1], &nodes);
    assert_eq!((pointless.code, site.calls().len()), (Some(0), 0), "{pointless:?}");
    for server in &site.servers {
        server.command(&["DEL", "deploy/web"]);
    }
    for pipeline in blocks("ci.md", "yaml") {
        assert_yaml(&pipeline);
        let mut steps = pipeline.lines().map(str::trim).filter_map(|line| line.strip_prefix("- "));
        let step = steps.find(|step| step.contains("quorlock")).expect("a step");
        let step = step.strip_prefix("run: ").unwrap_or(step);
        site.run_job(step, &nodes, "deploy.sh --production");
    }
}

#[test]
fn the_files_of_the_configuration() {
    let site = Site::new();
    for text in blocks("configuration.md", "toml") {
        // Each file is for servers of its own.
        for server in &site.servers {
            server.command(&["FLUSHALL"]);
        }
        let file = site.write("config.toml", &site.here(&text), 0o600);
        let mut command = quorlock();
        command.env("QUORLOCK_CONFIG", file).args(["run", "x", "--"]).arg(site.path("sync"));
        let run = outcome(&mut command);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{text}");
        assert_eq!(site.calls(), ["sync"]);
    }
}

#[test]
fn new_servers_are_told_so() {
    let site = Site::new();
    let lines = site.here(&blocks("configuration.md", "sh")[0]);
    let mut lines = lines.lines();
    let init = site.run(lines.next().expect("a line"), &[]);
    assert_eq!((init.code, init.stderr.as_str()), (Some(0), ""), "{init:?}");
    assert_eq!(init.stdout.matches("is marked as new").count(), 3, "{init:?}");
    assert_eq!(lines.next(), None);
}

#[test]
fn the_calls_of_the_doctor() {
    let site = Site::new();
    let lines = site.here(&blocks("doctor.md", "sh")[0]);
    for line in lines.lines() {
        let run = site.run(line, &[]);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{line}: {run:?}");
    }
}

#[test]
fn every_option_of_the_table_of_settings_is_there() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations/configuration.md");
    let page = fs::read_to_string(page).unwrap();
    let help = outcome(quorlock().args(["run", "--help"])).stdout;
    let mut seen = 0;
    for word in page.lines().filter(|line| line.starts_with('|')).flat_map(|line| line.split('`')) {
        if word.starts_with("QUORLOCK_") || word.starts_with('-') && !word.starts_with("---") {
            assert!(help.contains(word), "{word} is not in the help");
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen}");
}

/// The program as the first process of a container. `None` where that cannot be had.
fn as_first_process(site: &Site, command: &str) -> Option<Command> {
    let namespaces = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    let as_root = Command::new("unshare").args(namespaces).arg("true").output();
    let user: &[&str] = if as_root.is_ok_and(|run| run.status.success()) { &[] } else { &["-Ur"] };
    let possible = Command::new("unshare").args(user).args(namespaces).arg("true").output();
    if !possible.is_ok_and(|run| run.status.success()) {
        eprintln!("not run as a first process: there are no namespaces for it here");
        return None;
    }
    let mut unshare = Command::new("unshare");
    unshare.args(user).args(namespaces).arg(env!("CARGO_BIN_EXE_quorlock"));
    unshare.args(["run", "x", "--", "sh", "-c", command]);
    unshare.env("QUORLOCK_CONFIG", "/dev/null").env("XDG_STATE_HOME", site.path("state"));
    unshare.env_remove("QUORLOCK_NODES");
    Some(unshare)
}

#[test]
fn as_the_first_process_of_a_container() {
    let site = Site::new();
    // Its exit code is the command's, though something is left behind that nobody collects.
    let Some(mut run) = as_first_process(&site, "(true &); echo $PPID; exit 3") else { return };
    let run = outcome(&mut run);
    assert_eq!(
        (run.code, run.stdout.as_str(), run.stderr.as_str()),
        (Some(3), "1\n", ""),
        "{run:?}"
    );

    // A signal reaches the command: a first process without a handler would not hear it.
    let line = "trap 'echo ended; exit 4' TERM; echo ready; while :; do sleep 0.01; done";
    let mut run = Running::start(&mut as_first_process(&site, line).unwrap());
    assert_eq!(run.line(), "ready");
    let children = format!("/proc/{0}/task/{0}/children", run.id());
    let first: i32 = fs::read_to_string(children).unwrap().trim().parse().unwrap();
    kill_process(Pid::from_raw(first).unwrap(), Signal::TERM).unwrap();
    assert_eq!(run.line(), "ended");
    run.close_stdin();
    assert_eq!(run.end().code, Some(4));
    // And the lock is free again.
    let again = outcome(&mut as_first_process(&site, "exit 5").unwrap());
    assert_eq!(again.code, Some(5), "{again:?}");
}
