//! `quorlock doctor`: what is wrong with the nodes, and how to mend it.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;

use anstyle::{AnsiColor, Style};
use quorlock::admin::examine::{Checkup, Examination, Fact, Finding, Severity};
use serde_json::{Map, Value, json};

use crate::config::{Origin, Origins};
use crate::duration::shown;
use crate::exit::{self, Failed};
use crate::init_line;
use crate::note::printable_json;
use crate::plan::{self, Cluster};

/// Looks the nodes over, shows what was found, and returns the code to exit with.
pub(crate) async fn doctor(plan: &plan::Doctor) -> Result<u8, Failed> {
    let checkup = plan.cluster.builder().admin().examine(plan.name.as_bytes()).await?;
    let code = code(&checkup);
    let text = match plan.json {
        true => printable_json(&format!("{:#}\n", object(&checkup, code, &plan.cluster))),
        false => table(&checkup, &plan.cluster),
    };
    // Colours only where they are wanted: NO_COLOR, a pipe and a dumb terminal do not.
    let mut stdout = anstream::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        // The reader may have seen enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let message = format!("the findings cannot be written: {error}");
            Err(Failed::new(exit::OWN_FAILURE, message))
        }
        _ => Ok(code),
    }
}

fn code(checkup: &Checkup) -> u8 {
    if checkup.is_misuse() {
        exit::MISUSE
    } else if checkup.usable < checkup.needed {
        exit::UNAVAILABLE
    } else if checkup.severity() >= Severity::Error {
        exit::ERRORS_FOUND
    } else {
        0
    }
}

/// Which settings come from where, in a line for each place.
fn sources(origins: &Origins) -> String {
    let mut places: Vec<(&Origin, Vec<&str>)> = Vec::new();
    for (setting, origin) in origins.iter() {
        match places.iter_mut().find(|(place, _)| *place == origin) {
            Some((_, settings)) => settings.push(setting),
            None => places.push((origin, vec![setting])),
        }
    }
    // What was left open comes last.
    places.sort_by_key(|(place, _)| **place == Origin::Default);
    let lines = places.iter().map(|(place, settings)| {
        let place = if **place == Origin::Default {
            "by default".to_owned()
        } else {
            format!("from {place}")
        };
        format!("  {place}: {}\n", settings.join(", "))
    });
    lines.collect()
}

fn table(checkup: &Checkup, cluster: &Cluster) -> String {
    let settings = &checkup.settings;
    let dialect = match cluster.has_dialect() {
        true => {
            let dialect = cluster.promises.redis.dialect;
            format!(", dialect {dialect}, max TTL {}", shown(settings.max_ttl))
        }
        false => String::new(),
    };
    let mut text = format!(
        "{} node{}{dialect}, TTL {}, {} for a node to answer\n",
        checkup.nodes.len(),
        if checkup.nodes.len() == 1 { "" } else { "s" },
        shown(settings.ttl),
        shown(settings.node_limit)
    );
    text.push_str(&sources(&cluster.origins));
    list(&mut text, &checkup.findings);
    for node in &checkup.nodes {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "\n{}{}", node.node, summary(node));
        list(&mut text, &node.findings);
    }
    text
}

/// What a node is, in a few words.
fn summary(node: &Examination) -> String {
    let words = ["server", "role", "journal_mode"];
    let words = words.iter().filter_map(|name| match node.fact(name)? {
        Fact::Text(text) if text == "master" => Some("primary"),
        Fact::Text(text) => Some(text.as_str()),
        _ => None,
    });
    let words: Vec<_> = words.collect();
    if words.is_empty() { String::new() } else { format!("  ({})", words.join(", ")) }
}

fn list(text: &mut String, findings: &[Finding]) {
    for finding in findings {
        let color = match finding.severity {
            Severity::Ok => AnsiColor::Green,
            Severity::Warn => AnsiColor::Yellow,
            _ => AnsiColor::Red,
        };
        let style = Style::new().fg_color(Some(color.into()));
        let word = word(finding.severity);
        let _ = writeln!(text, "  {style}{word:5}{style:#}  {}", finding.text);
        if let Some(remedy) = &finding.remedy {
            let style = AnsiColor::Cyan.on_default();
            let remedy = init_line::complete(remedy.clone());
            let _ = writeln!(text, "         {style}→{style:#} {remedy}");
        }
    }
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Ok => "ok",
        Severity::Warn => "warn",
        _ => "error",
    }
}

fn object(checkup: &Checkup, code: u8, cluster: &Cluster) -> Value {
    let (settings, redis) = (&checkup.settings, &cluster.promises.redis);
    let origins = cluster.origins.iter();
    let sources = origins.map(|(name, origin)| (name.to_owned(), json!(origin.to_string())));
    let nodes = checkup.nodes.iter().map(|node| {
        let facts = node.facts.iter().map(|(name, fact)| ((*name).to_owned(), value(fact)));
        json!({
            "node": node.node,
            "usable": node.usable,
            "facts": facts.collect::<Map<_, _>>(),
            "findings": findings(&node.findings),
        })
    });
    json!({
        "severity": word(checkup.severity()),
        "exit_code": code,
        "quorum": {
            "nodes": checkup.nodes.len(),
            "needed": checkup.needed,
            "usable": checkup.usable,
            "may_fail": checkup.usable.saturating_sub(checkup.needed),
        },
        "settings": {
            "ttl_ms": millis(settings.ttl),
            "node_limit_ms": millis(settings.node_limit),
            "connect_limit_ms": millis(settings.connect_limit),
            "dialect": redis.dialect.to_string(),
            "max_ttl_ms": millis(settings.max_ttl),
            "clock_behind_ms": millis(redis.clock_behind),
            "clock_ahead_ms": millis(redis.clock_ahead),
            "clients_apart_ms": millis(redis.clients_apart),
        },
        "sources": sources.collect::<Map<_, _>>(),
        "findings": findings(&checkup.findings),
        "nodes": nodes.collect::<Value>(),
    })
}

fn findings(findings: &[Finding]) -> Value {
    let one = |finding: &Finding| {
        json!({
            "check": finding.check,
            "severity": word(finding.severity),
            "text": finding.text,
            "remedy": finding.remedy,
        })
    };
    findings.iter().map(one).collect()
}

fn value(fact: &Fact) -> Value {
    match fact {
        Fact::Text(text) => json!(text),
        Fact::Number(number) => json!(number),
        Fact::Flag(flag) => json!(flag),
        _ => Value::Null,
    }
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
