//! Reading a node's URL.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use url::Url;

use super::options::UrlOptions;
use crate::Error;
use crate::node::tls::TlsSetting;
use crate::node::tls_files::TlsFiles;

const DEFAULT_PORT: u16 = 6379;

/// Where a server is and how to log in.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) place: Place,
    pub(super) user: Option<String>,
    pub(super) password: Option<String>,
    pub(super) db: u32,
    pub(super) tls: Option<TlsSetting>,
    /// Which of the locker's nodes it is.
    pub(super) index: usize,
    /// The URL without secrets.
    pub(super) label: String,
    /// What it is called in its set of nodes: the name that was given to it, or where it is.
    pub(super) member: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl Address {
    /// Reads the URL of the `index`-th node. No error shows the URL: it may hold a password, even
    /// one that was mistyped into another place.
    pub(super) fn parse(index: usize, text: &str) -> Result<Self, Error> {
        let refuse = |problem: &str, remedy: &str| {
            Err(Error::misuse(format!("the URL of node {} {problem}", index + 1), remedy))
        };
        if names_several_hosts(text) {
            return refuse(
                "names several hosts, and a node is one server",
                "write the scheme before each of them: redis://a,redis://b",
            );
        }
        let url = match Url::parse(text) {
            Ok(url) => url,
            Err(error) => {
                return refuse(
                    &format!("cannot be read: {error}"),
                    "write redis://[user:password@]host[:port][/db], with special characters in \
                     the password percent-encoded",
                );
            }
        };
        let unix = matches!(url.scheme(), "unix" | "redis+unix" | "valkey+unix");
        let secure = matches!(url.scheme(), "rediss" | "valkeys");
        let mut db_text = Cow::Borrowed("");
        let mut user = decoded(url.username());
        let mut password = url.password().and_then(decoded);
        let (mut ca, mut name, mut options) = (None, None, UrlOptions::default());
        for (key, value) in url.query_pairs() {
            match &*key {
                "db" if unix => db_text = value,
                "user" if unix => user = Some(value.into_owned()),
                "pass" if unix => password = Some(value.into_owned()),
                "ca" if secure => ca = Some(PathBuf::from(&*value)),
                "name" if is_name(&value) => name = Some(value.into_owned()),
                "name" => {
                    return refuse(
                        &format!("has the name {:?}", value.chars().take(80).collect::<String>()),
                        "a name has 1 to 64 letters, digits and any of -_.:/[], such as ?name=lock-a",
                    );
                }
                _ => match options.read(&key, &value) {
                    Some(Ok(())) => {}
                    Some(Err((problem, remedy))) => return refuse(&problem, &remedy),
                    None => {
                        return refuse(
                            &format!("has the parameter {key:?}, which is not known there"),
                            "use db, user and pass with redis+unix://, ca with rediss://, name, prefix, dialect and \
                             trust_new with all, or none",
                        );
                    }
                },
            }
        }
        let place = if unix {
            match decoded(url.path()) {
                Some(path) if path != "/" => Place::Unix(PathBuf::from(path)),
                _ => return refuse("names no socket", "write redis+unix:///run/redis.sock"),
            }
        } else {
            let path = url.path().trim_matches('/');
            db_text = Cow::Owned(path.to_owned());
            match url.host_str().and_then(|host| decoded(host.trim_matches(['[', ']']))) {
                Some(host) => Place::Tcp(host, url.port().unwrap_or(DEFAULT_PORT)),
                None => return refuse("names no host", "write redis://host[:port][/db]"),
            }
        };
        let db = match &*db_text {
            "" => 0,
            text => match text.parse() {
                Ok(db) => db,
                Err(_) => {
                    return refuse(
                        &format!("has the database {text:?}"),
                        "a database is a number, such as redis://host/2",
                    );
                }
            },
        };
        let tls = match (&place, secure) {
            (Place::Tcp(host, _), true) => {
                let files = TlsFiles { ca, ..TlsFiles::default() };
                Some(TlsSetting::new("rediss", host, &files)?)
            }
            _ => None,
        };
        let label = match &place {
            Place::Tcp(host, port) if host.contains(':') => {
                format!("{}://[{host}]:{port}", url.scheme())
            }
            Place::Tcp(host, port) => format!("{}://{host}:{port}", url.scheme()),
            Place::Unix(path) => format!("{}://{}", url.scheme(), path.display()),
        };
        let label = if db == 0 { label } else { format!("{label}/{db}") };
        let member = name.unwrap_or_else(|| place.member(db));
        Ok(Self { place, user, password, db, tls, index, label, member })
    }
}

/// What of a path stands as it is in the list of a set's members, which has a comma between them.
const PLAIN: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_').remove(b':');

impl Place {
    fn member(&self, db: u32) -> String {
        let place = match self {
            Self::Tcp(host, port) if host.contains(':') => format!("[{host}]:{port}"),
            Self::Tcp(host, port) => {
                format!("{}:{port}", utf8_percent_encode(&host.to_lowercase(), PLAIN))
            }
            Self::Unix(path) => utf8_percent_encode(&path.to_string_lossy(), PLAIN).to_string(),
        };
        if db == 0 { place } else { format!("{place}/{db}") }
    }
}

/// Whether there is a comma in the host or the port.
fn names_several_hosts(url: &str) -> bool {
    let Some((_, rest)) = url.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().is_some_and(|hosts| hosts.contains(','))
}

fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/[]".contains(&byte);
    (1..=64).contains(&text.len()) && text.bytes().all(plain)
}

fn decoded(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| percent_decode_str(text).decode_utf8_lossy().into_owned())
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.label)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Address {
        Address::parse(0, url).unwrap()
    }

    #[test]
    fn reads_every_part_and_shows_no_secret() {
        let address = parse("redis://al%40ice:p%2Fw%3A@example.com:7000/3");
        assert_eq!(address.place, Place::Tcp("example.com".into(), 7000));
        assert_eq!(address.user.as_deref(), Some("al@ice"));
        assert_eq!(address.password.as_deref(), Some("p/w:"));
        assert_eq!(address.db, 3);
        assert_eq!(format!("{address:?}"), "Address(redis://example.com:7000/3)");
    }

    #[test]
    fn fills_in_what_is_left_out() {
        let address = parse("valkey://localhost");
        assert_eq!(address.place, Place::Tcp("localhost".into(), 6379));
        assert_eq!((address.user, address.password, address.db), (None, None, 0));
        assert_eq!(parse("redis://[::1]:7000").place, Place::Tcp("::1".into(), 7000));
        assert_eq!(parse("redis://[::1]").label, "redis://[::1]:6379");
        assert_eq!(parse("redis://:secret@h").password.as_deref(), Some("secret"));
        assert_eq!(parse("redis://:se,cret@h").password.as_deref(), Some("se,cret"));
    }

    #[test]
    fn one_server_is_one_member_however_it_is_written() {
        for (url, member) in [
            ("redis://Example.com", "example.com:6379"),
            ("valkey://u:p@example.com:6379/0", "example.com:6379"),
            ("redis://example.com/2", "example.com:6379/2"),
            ("redis://[::1]:7000", "[::1]:7000"),
            ("redis+unix:///run/a,b.sock?db=2", "/run/a%2Cb.sock/2"),
            ("redis://10.0.0.1:7000/2?name=lock-a", "lock-a"),
        ] {
            assert_eq!(parse(url).member, member, "{url}");
        }
        assert_eq!(parse("redis://h?name=lock-a").label, "redis://h:6379");
    }

    #[test]
    fn reads_unix_sockets() {
        let address = parse("redis+unix:///run/a%20b.sock?db=2&pass=x&user=u");
        assert_eq!(address.place, Place::Unix("/run/a b.sock".into()));
        assert_eq!((address.db, address.password.as_deref()), (2, Some("x")));
        assert_eq!(address.label, "redis+unix:///run/a b.sock/2");
    }

    #[test]
    fn refusals_name_the_fault_and_the_remedy_but_never_the_password() {
        for (url, says) in [
            ("redis://:hunter2@", "cannot be read"),
            ("redis://:hunter2@host:99999", "cannot be read"),
            ("redis:hunter2", "names no host"),
            ("redis://:hunter2@host/six", "the database \"six\""),
            ("redis://:hunter2@host?pasword=hunter2", "the parameter \"pasword\""),
            ("redis+unix://?pass=hunter2", "names no socket"),
            ("redis://:hunter2@host?name=a,b", "the name \"a,b\""),
            ("redis://:hunter2@a,b", "names several hosts"),
            ("redis://:hunter2@a:1,b:2/3", "write the scheme before each of them"),
            ("redis://:hunter2@host?name=", "the name \"\""),
            ("redis://:hunter2@host?dialect=Strict", "the dialect \"Strict\""),
            ("redis://:hunter2@host?dialect=x", "write strict or redlock"),
            ("redis://:hunter2@host?trust_new=yes", "trust_new=\"yes\""),
        ] {
            let error = Address::parse(2, url).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("node 3"), "{url}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
