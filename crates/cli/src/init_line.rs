//! The line that marks new nodes as new, for users who are asked to run it: ready to be pasted.

use std::sync::OnceLock;

use crate::args::quoted;
use crate::config::{NodeEntry, Origin, Origins, Promises, without_password};

static LINE: OnceLock<String> = OnceLock::new();

/// How it is referred to in what is said.
const SPOKEN: &str = "run quorlock init";
/// Messages that speak of `quorlock init` have this line from now on.
pub(crate) fn set(line: String) {
    // There is one set of nodes in a run of this program.
    let _ = LINE.set(line);
}

/// The message, and the whole line if it speaks of it.
pub(crate) fn complete(message: String) -> String {
    match LINE.get() {
        // Force is for users who know what it overrides, and not for pasting.
        Some(line) if message.contains(SPOKEN) && !message.contains("--force") => {
            format!("{message}; to paste: {line}")
        }
        _ => message,
    }
}

/// The line for these nodes, with the settings that were used here. What stands in a file is named by the file;
/// passwords are left out.
pub(crate) fn of(nodes: &[NodeEntry], promises: &Promises, origins: &Origins) -> String {
    let mut words = vec!["quorlock".to_owned(), "init".to_owned()];
    let in_file = origins.iter().find_map(|(_, origin)| match origin {
        Origin::File(path) => Some(path),
        _ => None,
    });
    if let Some(path) = in_file {
        words.extend(["--config".to_owned(), quoted(path)]);
    }
    let said_here =
        |setting| matches!(origins.of(setting), Origin::Argument(_) | Origin::Variable(_));
    if said_here("nodes") {
        let urls: Vec<_> = nodes.iter().map(|node| without_password(&node.url)).collect();
        words.extend(["--node".to_owned(), quoted(&urls.join(","))]);
    }
    if said_here("prefix") {
        words.extend([
            "--prefix".to_owned(),
            quoted(&String::from_utf8_lossy(&promises.redis.prefix)),
        ]);
    }
    if said_here("max_ttl") {
        words.extend(["--max-ttl".to_owned(), format!("{}ms", promises.max_ttl.as_millis())]);
    }
    words.join(" ")
}
