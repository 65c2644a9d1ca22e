//! The variables of the environment that mean something.
//!
//! One that is misspelt is refused: with `QUORLOCK_NODE` in the place of `QUORLOCK_NODES` a lock would be taken in a
//! file that no other machine sees, without notice.

use std::ffi::OsString;

use super::misuse;
use crate::exit::Failed;
use crate::nearest::nearest;

const START: &str = "QUORLOCK_";

/// Settings.
const SETTINGS: [&str; 16] = [
    "QUORLOCK_CONFIG",
    "QUORLOCK_CONNECT_LIMIT",
    "QUORLOCK_DIALECT",
    "QUORLOCK_LOG",
    "QUORLOCK_MAX_TTL",
    "QUORLOCK_NODES",
    "QUORLOCK_NODE_LIMIT",
    "QUORLOCK_NOTE",
    "QUORLOCK_PASSWORD",
    "QUORLOCK_PASSWORD_FILE",
    "QUORLOCK_PREFIX",
    "QUORLOCK_TRUST_NEW_NODES",
    "QUORLOCK_TTL",
    "QUORLOCK_USERNAME",
    "QUORLOCK_VOTES_WITHIN",
    "QUORLOCK_WAIT",
];

/// What a run leaves to its command, which may run this program again.
const OF_RUNS: [&str; 5] =
    ["QUORLOCK_FENCE", "QUORLOCK_HELD", "QUORLOCK_NAME", "QUORLOCK_OWNER", "QUORLOCK_TOKEN"];

/// What the tests of this program are told by, and hand down.
const OF_TESTS: [&str; 2] = ["QUORLOCK_TEST_", "QUORLOCK_MUTANT"];

/// Refuses a variable that looks like one of ours and is none.
pub(super) fn check(names: impl Iterator<Item = OsString>) -> Result<(), Failed> {
    let names = names.filter_map(|name| name.into_string().ok());
    let mut unknown: Vec<_> =
        names.filter(|name| name.starts_with(START) && !is_known(name)).collect();
    unknown.sort_unstable();
    let Some(name) = unknown.first() else { return Ok(()) };
    // What runs leave is set by nobody else.
    let meant = nearest(&name[START.len()..], SETTINGS.map(|known| &known[START.len()..]));
    Err(misuse(match meant {
        Some(meant) => {
            format!(
                "there is no variable {name}; write {START}{meant} if that is meant, or unset it"
            )
        }
        None => {
            let known = SETTINGS.map(|known| &known[START.len()..]).join(", ");
            format!("there is no variable {name}; unset it, or write one of {START}…: {known}")
        }
    }))
}

fn is_known(name: &str) -> bool {
    SETTINGS.contains(&name)
        || OF_RUNS.contains(&name)
        || OF_TESTS.iter().any(|start| name.starts_with(start))
        || is_of_kubernetes(name)
}

/// Kubernetes tells every container where each Service is, one that is called `quorlock` or `quorlock-…` as well.
fn is_of_kubernetes(name: &str) -> bool {
    let words: Vec<_> = name.split('_').skip(1).collect();
    let two = |pair: [&str; 2]| words.windows(2).any(|words| words == pair);
    let is_number = |word: &&str| word.parse::<u16>().is_ok();
    two(["SERVICE", "HOST"])
        || two(["SERVICE", "PORT"])
        || words.last() == Some(&"PORT")
        || words.windows(2).any(|words| words[0] == "PORT" && is_number(&words[1]))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn refusal(name: &str) -> Option<String> {
        check([OsString::from("PATH"), name.into()].into_iter()).err().map(|failed| failed.message)
    }

    #[test]
    fn what_is_misspelt_is_refused_with_what_was_meant() {
        for (wrong, meant) in [
            ("QUORLOCK_NODE", "QUORLOCK_NODES"),
            ("QUORLOCK_MAXTTL", "QUORLOCK_MAX_TTL"),
            ("QUORLOCK_PASWORD", "QUORLOCK_PASSWORD"),
            ("QUORLOCK_LOGS", "QUORLOCK_LOG"),
        ] {
            let said = refusal(wrong).expect("a refusal");
            assert!(said.contains(&format!("no variable {wrong}; write {meant} if")), "{said}");
        }
        let other = refusal("QUORLOCK_SERVERS").expect("a refusal");
        assert!(other.contains("unset it, or write one of") && other.contains("NODES"), "{other}");
    }

    #[test]
    fn what_others_set_is_left_alone() {
        for name in [
            "QUORLOCK",
            "QUORLOCK_TOKEN",
            "QUORLOCK_HELD",
            "QUORLOCK_SERVICE_HOST",
            "QUORLOCK_REDIS_A_SERVICE_PORT_REDIS",
            "QUORLOCK_PORT",
            "QUORLOCK_PORT_6379_TCP_ADDR",
            "QUORLOCKX",
        ] {
            assert_eq!(refusal(name), None, "{name}");
        }
    }

    /// Every variable is listed above.
    #[test]
    fn every_variable_of_this_program_is_known() {
        fn look(directory: &Path, seen: &mut Vec<String>) {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    look(&path, seen);
                } else if !path.ends_with("config/variables.rs") {
                    let text = fs::read_to_string(&path).unwrap();
                    let parts = text.split(START).skip(1);
                    let end = |part: &str| part.find(|c: char| !c.is_ascii_uppercase() && c != '_');
                    let word = |part: &str| part[..end(part).unwrap_or(part.len())].to_owned();
                    seen.extend(parts.map(|part| format!("{START}{}", word(part))));
                }
            }
        }
        let mut seen = Vec::new();
        look(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut seen);
        seen.retain(|name| name != START);
        assert!(seen.len() > 30, "{seen:?}");
        for name in seen {
            assert!(is_known(&name), "{name} is not in the list");
        }
    }
}
