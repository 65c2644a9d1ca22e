//! Users and passwords that do not stand in the URLs.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use quorlock::node;
use url::Url;

use super::{Lookup, NodeEntry, Origin, misuse, warn_if_open_to_all};
use crate::exit::Failed;

const USERNAME: &str = "QUORLOCK_USERNAME";
const PASSWORD: &str = "QUORLOCK_PASSWORD";
const PASSWORD_FILE: &str = "QUORLOCK_PASSWORD_FILE";

/// With which name and password to log in where the URL says nothing of it.
pub(crate) struct Login {
    username: Option<String>,
    password: Option<String>,
}

impl Login {
    /// What the environment and the file say for all nodes.
    pub(crate) fn new(lookup: &mut Lookup<'_>) -> Result<Self, Failed> {
        let config = lookup.config;
        let origin = |variable: Option<&str>, in_file: bool, lookup: &Lookup<'_>| match variable {
            Some(variable) => Origin::Variable(variable.to_owned()),
            None if in_file => lookup.file(),
            None => Origin::Default,
        };
        let said = text(USERNAME)?;
        let of = origin(said.is_some().then_some(USERNAME), config.username.is_some(), lookup);
        lookup.found("username", of);
        let username = said.or_else(|| config.username.clone());
        let variable =
            [PASSWORD, PASSWORD_FILE].into_iter().find(|name| env::var_os(name).is_some());
        lookup.found("password", origin(variable, config.password_file.is_some(), lookup));
        let password = match (text(PASSWORD)?, env::var_os(PASSWORD_FILE)) {
            (Some(_), Some(_)) => {
                let both = format!("both {PASSWORD} and {PASSWORD_FILE} are set; unset one");
                return Err(misuse(both));
            }
            (Some(password), None) => Some(password),
            (None, Some(path)) => Some(read(&PathBuf::from(path), PASSWORD_FILE)?),
            (None, None) => match &config.password_file {
                Some(path) => Some(read(path, "password_file")?),
                None => None,
            },
        };
        Ok(Self { username, password })
    }

    /// The URL of a node with what it takes to log in there.
    pub(crate) fn complete(&self, node: &NodeEntry) -> Result<String, Failed> {
        let own = match &node.password_file {
            Some(path) => Some(read(path, "password_file")?),
            None => None,
        };
        let username = node.username.as_ref().or(self.username.as_ref());
        let password = own.as_ref().or(self.password.as_ref());
        Ok(with(&node.url, username, password))
    }
}

/// Whether the URL holds a password.
pub(super) fn has_password(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| url.password().is_some() || parameter(&url, "pass"))
}

/// A URL as it may be shown.
pub(crate) fn without_password(text: &str) -> String {
    let Ok(mut url) = Url::parse(text) else { return "…".to_owned() };
    if !has_password(text) {
        return text.to_owned();
    }
    // A URL without a host has none there.
    let _ = url.set_password(None);
    if parameter(&url, "pass") {
        let others: Vec<_> = url.query_pairs().filter(|(key, _)| key != "pass").collect();
        let others: Vec<_> = others.iter().map(|(key, value)| format!("{key}={value}")).collect();
        url.set_query((!others.is_empty()).then(|| others.join("&")).as_deref());
    }
    url.into()
}

fn parameter(url: &Url, name: &str) -> bool {
    url.query_pairs().any(|(key, _)| key == name)
}

/// What stands in the URL stays. A URL that cannot be read is left to those who can say why.
fn with(text: &str, username: Option<&String>, password: Option<&String>) -> String {
    let Ok(mut url) = Url::parse(text) else { return text.to_owned() };
    // Encoded here, since the URL would take a `%` for the start of something encoded.
    let encoded = |text: &String| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    match node::login_of(text) {
        Some(node::Login::BeforeHost) => {
            // A URL without a host takes neither, and is refused later.
            if let Some(username) = username.filter(|_| url.username().is_empty()) {
                let _ = url.set_username(&encoded(username));
            }
            if let Some(password) = password.filter(|_| url.password().is_none()) {
                let _ = url.set_password(Some(&encoded(password)));
            }
        }
        Some(node::Login::Parameters) => {
            for (name, value) in [("user", username), ("pass", password)] {
                if let Some(value) = value.filter(|_| !parameter(&url, name)) {
                    url.query_pairs_mut().append_pair(name, value);
                }
            }
        }
        Some(node::Login::Nowhere) | None => return text.to_owned(),
    }
    url.into()
}

fn text(name: &str) -> Result<Option<String>, Failed> {
    match env::var_os(name).map(OsString::into_string) {
        None => Ok(None),
        Some(Ok(value)) if !value.is_empty() => Ok(Some(value)),
        Some(Ok(_)) => Err(misuse(format!("{name} is empty; give it a value, or unset it"))),
        Some(Err(_)) => Err(misuse(format!("{name} is not UTF-8; write it so"))),
    }
}

fn read(path: &Path, named_by: &str) -> Result<String, Failed> {
    let refuse = |problem: String| {
        misuse(format!("the password file {} ({named_by}) {problem}", path.display()))
    };
    let text = fs::read_to_string(path).map_err(|error| {
        refuse(format!("cannot be read: {error}; check the path and who may read it"))
    })?;
    // Editors and `echo` end a file with a new line.
    let password = text.strip_suffix('\n').unwrap_or(&text);
    let password = password.strip_suffix('\r').unwrap_or(password);
    if password.is_empty() {
        return Err(refuse("is empty; write the password into it".to_owned()));
    }
    if password.contains('\n') {
        return Err(refuse("has several lines; write nothing but the password".to_owned()));
    }
    warn_if_open_to_all(path);
    Ok(password.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completed(url: &str) -> String {
        with(url, Some(&"al ice".to_owned()), Some(&"p%/:@,ß".to_owned()))
    }

    #[test]
    fn a_password_is_left_out_and_nothing_else() {
        for (url, shown) in [
            ("redis://h:7/2?name=a", "redis://h:7/2?name=a"),
            ("redis://bob:hunter2@h", "redis://bob@h"),
            ("redis://:hunter2@h:1", "redis://h:1"),
            ("redis+unix:///s?db=2&pass=hunter2&name=x", "redis+unix:///s?db=2&name=x"),
            ("redis+unix:///s?pass=hunter2", "redis+unix:///s"),
            ("sqlite:/a b.db", "sqlite:/a b.db"),
            ("hunter2", "…"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }

    #[test]
    fn what_is_missing_is_filled_in_and_encoded() {
        let password = "p%25%2F%3A%40%2C%C3%9F";
        assert_eq!(completed("redis://h:7/2"), format!("redis://al%20ice:{password}@h:7/2"));
        assert_eq!(completed("rediss://bob@h"), format!("rediss://bob:{password}@h"));
        assert_eq!(completed("redis://bob:own@h"), "redis://bob:own@h");
        assert_eq!(completed("redis://:own@h"), "redis://al%20ice:own@h");
        assert_eq!(
            completed("redis+unix:///s?db=2&user=bob"),
            format!("redis+unix:///s?db=2&user=bob&pass={password}")
        );
    }

    #[test]
    fn what_takes_no_password_is_left_alone() {
        for url in ["sqlite:/a b.db", "sqlite:a", "redis://", "nonsense", "http://a", ""] {
            assert_eq!(completed(url), url);
        }
    }

    #[test]
    fn a_url_with_a_password_is_known() {
        for (url, has) in [
            ("redis://:x@h", true),
            ("redis+unix:///s?pass=x", true),
            ("redis://h", false),
            ("redis://user@h", false),
            ("sqlite:/x", false),
        ] {
            assert_eq!(has_password(url), has, "{url}");
        }
    }
}
