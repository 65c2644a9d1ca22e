//! What a terminal shows: the waiting, and colours. And what a file or a pipe is spared.

use quorlock_testkit::{eventually, test};
use serde_json::Value;

use crate::nodes::{Nodes, quorlock};
use crate::process::{Running, outcome};
use crate::terminal::Terminal;

const HOLD: [&str; 5] = ["x", "--", "sh", "-c", "echo in; read _; exit 0"];

/// Longer than it takes until the waiting is shown.
const A_WHILE: &str = "800ms";

/// Somebody who holds the lock, and what is said of them.
fn holder(nodes: &Nodes) -> (Running, String) {
    let run = Running::start(nodes.quorlock("run").args(["--ttl", "30s"]).args(HOLD));
    assert_eq!(run.line(), "in");
    eventually("the note is there", || nodes.holding("x:quorlock:holder") == nodes.0.len());
    let status = outcome(nodes.quorlock("status").args(["--json", "x"])).stdout;
    let by = serde_json::from_str::<Value>(&status).expect("JSON")["by"].take();
    let text = |part: &str| by[part].as_str().expect("a text").to_owned();
    (run, format!("{}@{}, pid {}, sh", text("user"), text("host"), by["pid"]))
}

fn seconds(text: &str) -> f64 {
    let text = text.trim();
    let millis = text.strip_suffix("ms").map(|millis| millis.parse::<f64>().expect("ms") / 1e3);
    millis.unwrap_or_else(|| text.trim_end_matches('s').parse().expect("seconds"))
}

#[test]
fn the_waiting_shows_who_holds_the_lock_how_long_and_how_many_wait() {
    let nodes = Nodes::start(3);
    let (mut holder, who) = holder(&nodes);
    let others: Vec<_> = (1..=2)
        .map(|place| {
            let run = Running::start(nodes.quorlock("run").args(["x", "--", "true"]));
            nodes.wait_for_queue("x", place);
            run
        })
        .collect();
    let mut shell = Terminal::shell(&nodes);
    // A machine that is busy is no reason for a warning.
    shell.types("QUORLOCK_NODE_LIMIT=1s $QUORLOCK run x -- echo o\"\"ut\n");
    let (mut leases, mut waits, mut counts) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..15 {
        let waited = shell.sees(" waiting for the lock x, held by ");
        waits.push(seconds(waited.rsplit(' ').next().expect("a time")));
        assert_eq!(shell.sees(", lease "), who);
        leases.push(seconds(&shell.sees(", ")));
        counts.push(shell.sees(" waiting"));
    }
    assert!(waits.is_sorted(), "{waits:?}");
    assert!(leases.iter().all(|left| *left <= 30.0), "{leases:?}");
    // Each is shown a tenth of a second later; the nodes are asked for it once in twelve.
    leases.dedup();
    assert!(leases.len() >= 8, "{leases:?}");
    // At first it may not stand in the queue itself.
    counts.dedup();
    assert!(counts.ends_with(&["3".to_owned()]) && counts.len() <= 2, "{counts:?}");
    holder.close_stdin();
    let before = shell.sees("out");
    assert!(before.ends_with("\r\x1b[K"), "{before:?}");
    assert_eq!(shell.exit_code(), "0");
    for run in others {
        assert_eq!(run.end().stderr, "", "a pipe is spared");
    }
}

#[test]
fn acquire_shows_the_waiting_too_and_leaves_stdout_alone() {
    let nodes = Nodes::start(1);
    let (mut holder, who) = holder(&nodes);
    let mut shell = Terminal::shell(&nodes);
    shell.types("token=$($QUORLOCK acquire x); echo \"<${token%%:*}>\"\n");
    shell.sees(&format!("waiting for the lock x, held by {who}, lease "));
    holder.close_stdin();
    shell.sees("\r\x1b[K<ql>");
}

#[test]
fn nodes_that_do_not_answer_are_named_as_what_is_waited_for() {
    let nodes = Nodes::start(1);
    let (_holder, _) = holder(&nodes);
    let mut shell = Terminal::shell(&nodes);
    shell.types("$QUORLOCK run x -- true\n");
    shell.sees("waiting for the lock x, held by ");
    nodes.0[0].pause();
    shell.sees("waiting for the lock x, but too few nodes answer");
    nodes.0[0].resume();
    shell.sees("waiting for the lock x, held by ");
}

#[test]
fn a_line_that_is_too_long_for_the_terminal_is_cut_and_taken_away_as_a_whole() {
    let nodes = Nodes::start(1);
    nodes.take("x");
    let mut shell = Terminal::shell(&nodes);
    shell.is_wide(30);
    shell.types("$QUORLOCK run x -- echo o\"\"ut\n");
    shell.sees("\r\x1b[K");
    for _ in 0..3 {
        let line = shell.sees("\r\x1b[K");
        assert!(line.contains("waiting for the loc") && line.len() == 29, "{line:?}");
    }
}

#[test]
fn nothing_is_shown_where_nobody_can_see_it() {
    let nodes = Nodes::start(1);
    nodes.take("x");
    let mut shell = Terminal::shell(&nodes);
    let run = format!("$QUORLOCK run -w {A_WHILE} x -- true");
    shell.types(&format!("{run} 2>&1 | cat; echo co\"\"de=$?\n"));
    let piped = shell.sees("code=");
    shell.types(&format!("TERM=dumb {run}; echo co\"\"de=$?\n"));
    let dumb = shell.sees("code=");
    for said in [piped, dumb] {
        assert!(said.contains("quorlock: waited ") && !said.contains("waiting for"), "{said:?}");
        assert!(!said.contains('\x1b'), "{said:?}");
    }
}

#[test]
fn colours_are_for_terminals_that_have_them_and_people_who_want_them() {
    let nodes = Nodes::start(2);
    nodes.take("x");
    let mut shell = Terminal::shell(&nodes);
    let run = format!("$QUORLOCK run -w {A_WHILE} x -- true");
    let wrong = "$QUORLOCK run --nod x";
    let (red, yellow, cyan) = ("\x1b[1m\x1b[31m", "\x1b[1m\x1b[33m", "\x1b[1m\x1b[36m");
    shell.types(&format!("NO_COLOR= {run}; NO_COLOR= {wrong}; echo co\"\"de=$?\n"));
    shell.sees(&format!("{yellow}quorlock: warning:\x1b[0m 2 nodes survive"));
    shell.sees(&format!("\r\x1b[K{cyan}|\x1b[0m "));
    shell.sees(" waiting for the lock x");
    shell.sees(&format!("\r\x1b[K{red}quorlock:\x1b[0m waited "));
    shell.sees(&format!("{red}quorlock:\x1b[0m unexpected argument '--nod'"));
    shell.sees(&format!("{cyan}tip:\x1b[0m a similar argument exists"));
    shell.sees("code=");

    // The line is still there without them: NO_COLOR is about colours.
    shell.types(&format!("NO_COLOR=1 {run}; NO_COLOR=1 {wrong}; echo co\"\"de=$?\n"));
    let plain = shell.sees("code=");
    assert!(plain.contains("\r\x1b[K| ") && plain.contains("waiting for the lock x"), "{plain:?}");
    assert!(plain.contains("quorlock: waited") && plain.contains("\n  tip: "), "{plain:?}");
    assert!(!plain.contains("\x1b[1m") && !plain.contains("\x1b[3"), "{plain:?}");

    let piped = outcome(
        quorlock().args(["run", "--nod", "x"]).env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE"),
    );
    assert!(piped.stderr.starts_with("quorlock: unexpected") && !piped.stderr.contains('\x1b'));
}
