//! What a release costs the server: a script that compares and deletes, beside the one command for it that
//! newer servers have.

use std::os::unix::net::UnixStream;

use anyhow::{Result, bail, ensure};
use quorlock_testkit::{Client, RedisServer, Reply};

use crate::Run;
use crate::cpu;
use crate::report::{Cell, Column, Group, Report, Row};
use crate::valkey;

const SCRIPT: &str =
    "if redis.call('GET',KEYS[1])==ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0";
const TOKEN: &str = "ql:0123456789abcdef0123456789abcdef01234567";
/// Commands in one write.
const PIPELINE: usize = 64;
const PIPELINES: usize = 100;

pub fn compare(run: &Run) -> Result<Report> {
    let rounds = run.scaled(21, 5);
    let mut builder = RedisServer::builder();
    if let Some(valkey) = valkey::program() {
        builder = builder.program(valkey);
    }
    let server = builder.start();
    let setting = valkey::version(&server)?;
    let mut connection = server.connect()?;
    let Reply::Bulk(Some(sha)) = connection.command(&["SCRIPT", "LOAD", SCRIPT])? else {
        bail!("the script was not taken")
    };
    let sha = String::from_utf8(sha)?;
    let ways: [(&str, Vec<&str>, Vec<&str>); 3] = [
        ("EVALSHA", vec!["EVALSHA", &sha, "1"], vec![TOKEN]),
        ("DELIFEQ", vec!["DELIFEQ"], vec![TOKEN]),
        ("DELEX", vec!["DELEX"], vec!["IFEQ", TOKEN]),
    ];
    let mut rows = Vec::new();
    let mut known = Vec::new();
    for (name, before, after) in &ways {
        let probe: Vec<_> = [before.as_slice(), &["bench/none"], after].concat();
        match connection.command(&probe)? {
            Reply::Error(_) => rows.push(Row::without(name, "this server does not know it", 1)),
            _ => known.push((*name, before, after, Vec::new())),
        }
    }
    for round in 0..rounds {
        run.progress(&format!("release, round {} of {rounds}", round + 1));
        let count = known.len();
        for turn in 0..count {
            let (_, before, after, figures) = &mut known[(turn + round) % count];
            figures.push(released(&server, &mut connection, before, after)?);
        }
    }
    let measured = known.into_iter().map(|(name, _, _, figures)| Row {
        system: name.to_owned(),
        cells: vec![Cell::Figures(figures)],
    });
    rows.splice(..0, measured.collect::<Vec<_>>());
    Ok(Report {
        name: "release",
        title: "What a release costs the server",
        notes: vec![format!(
            "median of {rounds} rounds in turns (min..max); {PIPELINE} commands in one write"
        )],
        columns: vec![Column { name: "server CPU µs/release", charted: true }],
        groups: vec![Group { setting, rows }],
    })
}

/// Microseconds of the server for each of many releases, of locks that are there.
fn released(
    server: &RedisServer,
    connection: &mut Client<UnixStream>,
    before: &[&str],
    after: &[&str],
) -> Result<f64> {
    let names: Vec<_> = (0..PIPELINE * PIPELINES).map(|name| format!("bench/{name}")).collect();
    for names in names.chunks(PIPELINE) {
        let taken = |name| vec!["SET", name, TOKEN, "NX", "PX", "60000"];
        let taken: Vec<_> = names.iter().map(|name| taken(name)).collect();
        let ok = Reply::Simple("OK".into());
        ensure!(connection.pipeline(&taken)?.iter().all(|it| *it == ok), "a lock was not taken");
    }
    let releases = names.chunks(PIPELINE).map(|names| {
        names.iter().map(|name| [before, &[name], after].concat()).collect::<Vec<_>>()
    });
    let releases: Vec<_> = releases.collect();
    let began = cpu::seconds_of(server.pid())?;
    for releases in &releases {
        let one = Reply::Int(1);
        ensure!(connection.pipeline(releases)?.iter().all(|it| *it == one), "a lock stayed");
    }
    Ok((cpu::seconds_of(server.pid())? - began) * 1e6 / names.len() as f64)
}
