//! Reading the file. Every error names the file, the line, the key and what to write.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quorlock::Dialect;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Config, NodeEntry, misuse};
use crate::duration;
use crate::exit::Failed;

const KEYS: &str = "nodes, prefix, ttl, wait, votes_within, node_limit, connect_limit, username, password_file, \
                    note, dialect, max_ttl, clock_behind, clock_ahead, clients_apart";
const NODE_KEYS: &str = "url, username, password_file";

/// Reads the text of the file at `path`.
pub(super) fn parse(path: &Path, text: &str) -> Result<Config, Failed> {
    let source = Source { path, text };
    let table = DeTable::parse(text).map_err(|error| {
        // Only the message: what the error would show besides is the line, with its password.
        let said = error.message().trim();
        source.refuse(&error.span().unwrap_or(0..0), "", &format!("this is no TOML: {said}"))
    })?;
    let mut config = Config::default();
    for (key, value) in table.get_ref() {
        let item = Item { source: &source, key: key.get_ref(), value };
        match item.key {
            "nodes" => config.nodes = item.nodes()?,
            "prefix" => config.prefix = Some(item.text()?),
            "ttl" => config.ttl = Some(item.duration()?),
            "wait" => config.wait = Some(item.duration()?),
            "votes_within" => config.votes_within = Some(item.duration()?),
            "node_limit" => config.node_limit = Some(item.duration()?),
            "connect_limit" => config.connect_limit = Some(item.duration()?),
            "username" => config.username = Some(item.text()?),
            "password_file" => config.password_file = Some(item.file()?),
            "note" => config.note = Some(item.flag()?),
            "dialect" => config.dialect = Some(item.dialect()?),
            "max_ttl" => config.max_ttl = Some(item.duration()?),
            "clock_behind" => config.clock_behind = Some(item.duration()?),
            "clock_ahead" => config.clock_ahead = Some(item.duration()?),
            "clients_apart" => config.clients_apart = Some(item.duration()?),
            unknown => return Err(source.unknown(&key.span(), unknown, KEYS)),
        }
    }
    Ok(config)
}

struct Source<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    fn refuse(&self, at: &Range<usize>, key: &str, problem: &str) -> Failed {
        let before = self.text.as_bytes().get(..at.start).unwrap_or(self.text.as_bytes());
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let key = if key.is_empty() { String::new() } else { format!("{key}: ") };
        misuse(format!("{}:{line}: {key}{problem}", self.path.display()))
    }

    fn unknown(&self, at: &Range<usize>, key: &str, known: &str) -> Failed {
        self.refuse(at, key, &format!("there is no such key; use one of {known}"))
    }
}

/// One key with its value.
struct Item<'a> {
    source: &'a Source<'a>,
    key: &'a str,
    value: &'a Spanned<DeValue<'a>>,
}

impl<'a> Item<'a> {
    fn refuse(&self, problem: &str) -> Failed {
        self.source.refuse(&self.value.span(), self.key, problem)
    }

    /// The value is not shown where it is of the wrong type: it may be a password.
    fn expected(&self, what: &str) -> Failed {
        let found = match self.value.get_ref() {
            DeValue::String(_) => "a text",
            DeValue::Integer(_) | DeValue::Float(_) => "a number",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date or a time",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.refuse(&format!("this is {found}; write {what}"))
    }

    fn text(&self) -> Result<String, Failed> {
        match self.value.get_ref() {
            DeValue::String(text) => Ok(text.clone().into_owned()),
            _ => Err(self.expected(&format!("a text in quotes, such as {} = \"…\"", self.key))),
        }
    }

    fn flag(&self) -> Result<bool, Failed> {
        match self.value.get_ref() {
            DeValue::Boolean(flag) => Ok(*flag),
            _ => Err(self.expected("true or false, without quotes")),
        }
    }

    fn dialect(&self) -> Result<Dialect, Failed> {
        let DeValue::String(text) = self.value.get_ref() else {
            return Err(self.expected("\"strict\" or \"redlock\""));
        };
        text.parse().map_err(|error: String| self.refuse(&error))
    }

    /// As on the command line, or a plain number of seconds.
    fn duration(&self) -> Result<Duration, Failed> {
        let text = match self.value.get_ref() {
            DeValue::String(text) => text.as_ref(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
            DeValue::Float(number) => number.as_str(),
            _ => return Err(self.expected("a duration such as \"10s\", or a number of seconds")),
        };
        duration::parse(text).map_err(|error| self.refuse(&error))
    }

    /// A relative path counts from the directory of this file: its author does not know
    /// where the command will be started.
    fn file(&self) -> Result<PathBuf, Failed> {
        let path = self.text()?;
        if path.is_empty() {
            return Err(self.refuse("this names no file; write a path"));
        }
        Ok(match self.source.path.parent() {
            Some(directory) => directory.join(path),
            None => path.into(),
        })
    }

    fn nodes(&self) -> Result<Vec<NodeEntry>, Failed> {
        let what = "a list of URLs such as [\"redis://a\", \"redis://b\"], or a table [[nodes]] for \
                    each node";
        let DeValue::Array(nodes) = self.value.get_ref() else { return Err(self.expected(what)) };
        if nodes.is_empty() {
            return Err(self.refuse(&format!("this is an empty list; write {what}")));
        }
        let nodes = nodes.iter().map(|value| {
            let item = Item { value, ..*self };
            let node = match value.get_ref() {
                DeValue::String(url) => {
                    NodeEntry { url: url.clone().into_owned(), ..NodeEntry::default() }
                }
                DeValue::Table(table) => item.node(table)?,
                _ => return Err(item.expected("a URL in quotes")),
            };
            if node.url.trim().is_empty() {
                return Err(item.refuse("a node has no url; write url = \"redis://HOST\""));
            }
            Ok(node)
        });
        nodes.collect()
    }

    fn node(&self, table: &DeTable<'_>) -> Result<NodeEntry, Failed> {
        let mut node = NodeEntry::default();
        for (key, value) in table {
            let item = Item { source: self.source, key: key.get_ref(), value };
            match item.key {
                "url" => node.url = item.text()?,
                "username" => node.username = Some(item.text()?),
                "password_file" => node.password_file = Some(item.file()?),
                unknown => return Err(self.source.unknown(&key.span(), unknown, NODE_KEYS)),
            }
        }
        Ok(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config, String> {
        parse(Path::new("/c/x.toml"), text).map_err(|failed| {
            assert_eq!(failed.code, 78);
            failed.message
        })
    }

    #[test]
    fn reads_every_key() {
        let config = read(
            "nodes = ['redis://a', { url = 'redis://b', username = 'u' }]\nprefix = 'p:'\n\
             ttl = '5s'\nwait = 1.5\nvotes_within = '1m'\nnode_limit = '20ms'\nconnect_limit = 2\nusername = 'all'\n\
             password_file = 'secret'\nnote = false\ndialect = 'redlock'\nmax_ttl = '20s'\n\
             clock_behind = '1ms'\nclock_ahead = '2ms'\nclients_apart = '3ms'\n",
        );
        let config = config.unwrap();
        assert_eq!(config.nodes[0].url, "redis://a");
        assert_eq!(config.nodes[1].url, "redis://b");
        assert_eq!(config.nodes[1].username.as_deref(), Some("u"));
        assert_eq!(config.prefix.as_deref(), Some("p:"));
        assert_eq!(config.ttl, Some(Duration::from_secs(5)));
        assert_eq!(config.wait, Some(Duration::from_millis(1_500)));
        assert_eq!(config.votes_within, Some(Duration::from_secs(60)));
        assert_eq!(config.node_limit, Some(Duration::from_millis(20)));
        assert_eq!(config.connect_limit, Some(Duration::from_secs(2)));
        assert_eq!(config.username.as_deref(), Some("all"));
        assert_eq!(config.password_file, Some("/c/secret".into()));
        assert_eq!(config.note, Some(false));
        assert_eq!(config.dialect, Some(Dialect::Redlock));
        assert_eq!(config.max_ttl, Some(Duration::from_secs(20)));
        assert_eq!(config.clock_behind, Some(Duration::from_millis(1)));
        assert_eq!(config.clock_ahead, Some(Duration::from_millis(2)));
        assert_eq!(config.clients_apart, Some(Duration::from_millis(3)));
        assert!(read("").unwrap().nodes.is_empty());
    }

    #[test]
    fn a_table_for_each_node() {
        let config =
            read("[[nodes]]\nurl = 'redis://a'\npassword_file = '/s'\n[[nodes]]\nurl = 'sqlite:x'");
        let config = config.unwrap();
        assert_eq!(config.nodes[0].password_file, Some("/s".into()));
        assert_eq!(config.nodes[1].url, "sqlite:x");
    }

    #[test]
    fn refusals_name_file_line_key_and_what_to_write() {
        for (text, says) in [
            ("\nttl = '1d'", "/c/x.toml:2: ttl: \"1d\" is no duration; write 10s"),
            ("ttl = -1", "/c/x.toml:1: ttl: \"-1\" is no duration"),
            ("ttl = true", "/c/x.toml:1: ttl: this is true or false; write a duration"),
            ("ttl = 0x10", "/c/x.toml:1: ttl: this is a number; write a duration"),
            ("ttl = inf", "/c/x.toml:1: ttl: \"inf\" is no duration"),
            ("\n\ntll = '1s'", "/c/x.toml:3: tll: there is no such key; use one of nodes, prefix"),
            ("note = 'yes'", "/c/x.toml:1: note: this is a text; write true or false"),
            (
                "\ndialect = 'x'",
                "/c/x.toml:2: dialect: \"x\" is no dialect; write strict or redlock",
            ),
            ("dialect = 1", "/c/x.toml:1: dialect: this is a number; write \"strict\""),
            ("max_ttl = 'x'", "/c/x.toml:1: max_ttl: \"x\" is no duration"),
            ("prefix = 3", "/c/x.toml:1: prefix: this is a number; write a text in quotes"),
            ("nodes = 'redis://a'", "/c/x.toml:1: nodes: this is a text; write a list of URLs"),
            ("nodes = []", "/c/x.toml:1: nodes: this is an empty list"),
            ("nodes = [\n'redis://a',\n7]", "/c/x.toml:3: nodes: this is a number; write a URL"),
            ("nodes = ['redis://a',\n' ']", "/c/x.toml:2: nodes: a node has no url"),
            ("[[nodes]]\nusername = 'x'", "/c/x.toml:1: nodes: a node has no url"),
            (
                "[[nodes]]\nurl='a'\npass='x'",
                "/c/x.toml:3: pass: there is no such key; use one of url",
            ),
            ("password_file = ''", "/c/x.toml:1: password_file: this names no file"),
            ("\nttl = ", "/c/x.toml:2: this is no TOML: "),
            ("ttl = 1\nttl = 2", "/c/x.toml:2: this is no TOML: duplicate key"),
            ("\n\nttl : 5", "/c/x.toml:3: this is no TOML: "),
        ] {
            let error = read(text).err().unwrap();
            assert!(error.starts_with(says), "{text:?}: {error}");
        }
    }

    #[test]
    fn refusals_show_no_password() {
        for text in [
            "nodes = 'redis://:hunter2@a'",
            "nodes = ['redis://:hunter2@a', 3]",
            "nodes = ['redis://:hunter2@a'",
            "nodes = [redis://:hunter2@a]",
            "nodes = ['redis://:hunter2@a\n']",
            "[[nodes]]\nurl = ['redis://:hunter2@a']",
        ] {
            let error = read(text).err().unwrap();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
